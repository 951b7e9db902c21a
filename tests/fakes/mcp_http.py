"""The fake MCP server over HTTP, legacy streamable form with JSON answers, and faults on demand."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.fakes.mcp_server import Server

__all__ = ["HttpServer", "served"]


class HttpServer:
    """Answers POSTs of one session at a time; strict about its headers."""

    def __init__(self) -> None:
        self.url = ""
        self.sessions = 0
        #: What the next tool calls are answered with: a status, 'drop', 'endless', or 'echo'.
        self.faults: list[int | str] = []
        #: The Authorization header that is demanded; empty: none.
        self.token = ""
        self.calls = 0
        #: The headers of the last request.
        self.headers: dict[str, str] = {}
        self._fake = _fresh()

    def forget(self) -> None:
        """Forget the session, as a server that was restarted does."""
        self.sessions += 1
        self._fake = _fresh()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.headers = dict(request.headers)
        if self.token and request.headers.get("Authorization") != self.token:
            return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})
        if request.method == "GET":
            return web.Response(status=405)
        if request.method == "DELETE":
            return web.Response(status=204)
        message = await request.json()
        method = message.get("method")
        if method == "server/discover":
            return self._error(message, -32601, "No such method", 200)
        if method == "initialize":
            self.sessions += 1
            self._fake = _fresh()
        elif request.headers.get("Mcp-Session-Id") != f"s{self.sessions}":
            return web.Response(status=404)
        if "id" not in message:
            self._fake.hear(message)
            return web.Response(status=202)
        if method == "tools/call" and self.faults:
            fault = self.faults.pop(0)
            if fault == "echo":
                return self._error(message, -32050, f"You sent {dict(request.headers)}", 400)
            return await self._faulty(request, fault)
        if method == "tools/call":
            self.calls += 1
        try:
            result = self._fake.result(method, message.get("params") or {})
        except NotImplementedError:
            return self._error(message, -32601, "No such method", 200)
        headers = {"Mcp-Session-Id": f"s{self.sessions}"} if method == "initialize" else {}
        body = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        return web.json_response(body, headers=headers)

    async def _faulty(self, request: web.Request, fault: int | str) -> web.StreamResponse:
        if isinstance(fault, int):
            headers = {"Retry-After": "7"} if fault == 429 else {}
            return web.Response(status=fault, headers=headers, text="<html>nothing for you</html>")
        if fault.startswith("http"):
            return web.Response(status=307, headers={"Location": fault})
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if fault == "endless":
            for _ in range(40):
                await response.write(b" " * 1_000_000)
        assert request.transport is not None
        request.transport.abort()
        return response

    def _error(self, message: dict[str, Any], code: int, text: str, status: int) -> web.Response:
        error = {"code": code, "message": text}
        return web.json_response(
            {"jsonrpc": "2.0", "id": message.get("id"), "error": error}, status=status
        )


def _fresh() -> Server:
    asked = argparse.Namespace(hostile=False, wrong_list=False, hang_at_start=False)
    return Server(asked)


@asynccontextmanager
async def served() -> AsyncIterator[HttpServer]:
    """Serve it on a free port of this machine."""
    server = HttpServer()
    app = web.Application()
    app.router.add_route("*", "/mcp", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    server.url = f"http://127.0.0.1:{port}/mcp"
    try:
        yield server
    finally:
        await runner.cleanup()
