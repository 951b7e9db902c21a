"""A model provider on loopback that speaks three wire protocols and is as strict as the real ones.

A test hands it `Reply` objects; each request takes the next one, is checked first, and is answered
in the protocol it came in. A request the real service would refuse is answered 400.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests.fakes import llm_anthropic, llm_gemini, llm_openai
from tests.fakes.llm_rules import Broken, Reply, Service

__all__ = ["KEY", "FakeLLM", "Reply"]

#: The one key that is accepted.
KEY = "key-that-works-0123456789"


@dataclass
class Seen:
    """One request as it arrived."""

    protocol: str
    body: dict[str, Any]
    headers: Mapping[str, str]
    at: float
    refused: str = ""


@dataclass
class FakeLLM:
    """Use as `async with FakeLLM([Reply(...), ...]) as fake`."""

    replies: Sequence[Reply | Callable[[dict[str, Any]], Reply]] = ()
    service: Service = field(default_factory=Service)
    #: Every request, in order.
    seen: list[Seen] = field(default_factory=list)
    #: Set when a client closes a connection before its answer was complete.
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    #: Set when the first bytes of a faulty answer are out.
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._openai)
        app.router.add_post("/v1/messages", self._anthropic)
        app.router.add_post("/v1beta/models/{model}", self._gemini)
        app.router.add_get("/v1/models", self._models)

        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._runner.cleanup()

    def reset(self) -> None:
        """Forget everything that happened."""
        self.replies, self.service, self.seen = (), Service(), []
        self.closed.clear()
        self.begun.clear()

    def environ(self) -> dict[str, str]:
        """Return an environment in which the three providers are here."""
        return {
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "DEEPSEEK_API_KEY": KEY,
            "DEEPSEEK_BASE_URL": f"{self.url}/v1",
            "MISTRAL_API_KEY": KEY,
            "MISTRAL_BASE_URL": f"{self.url}/v1",
            "OLLAMA_BASE_URL": f"{self.url}/v1",
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": self.url,
            "GEMINI_API_KEY": KEY,
            "GEMINI_BASE_URL": self.url,
        }

    @property
    def refused(self) -> list[str]:
        """What was wrong with the requests that were refused as malformed."""
        return [each.refused for each in self.seen if each.refused]

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": name} for name in self.service.models]})

    async def _openai(self, request: web.Request) -> web.StreamResponse:
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        return await self._serve("openai", request, key, llm_openai)

    async def _anthropic(self, request: web.Request) -> web.StreamResponse:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        key = request.headers.get("x-api-key") or bearer
        return await self._serve("anthropic", request, key, llm_anthropic)

    async def _gemini(self, request: web.Request) -> web.StreamResponse:
        key = request.headers.get("x-goog-api-key", "")
        return await self._serve("gemini", request, key, llm_gemini)

    async def _serve(
        self, protocol: str, request: web.Request, key: str, dialect: Any
    ) -> web.StreamResponse:
        body = json.loads(await request.read())
        now = asyncio.get_running_loop().time()
        seen = Seen(protocol=protocol, body=body, headers=request.headers, at=now)
        self.seen.append(seen)
        if key != KEY and self.service.keyed:
            said = f"Incorrect API key provided: {key}."
            return self._failed(dialect, 401, said)
        try:
            dialect.check(body, self.service)
        except Broken as broken:
            seen.refused = str(broken)
            return self._failed(dialect, 400, str(broken))
        assert self.replies, "a request more than the test has replies"
        reply, *self.replies = self.replies
        if callable(reply):
            reply = reply(body)
        if reply.status != 200:
            return self._failed(dialect, reply.status, reply.said, reply.headers)
        return await self._stream(request, reply, dialect)

    def _failed(
        self, dialect: Any, status: int, said: str, headers: Mapping[str, str] | None = None
    ) -> web.Response:
        return web.json_response(dialect.error(status, said), status=status, headers=headers)

    async def _stream(self, request: web.Request, reply: Reply, dialect: Any) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        events = dialect.events(reply, self.service)
        try:
            if reply.fault:
                return await self._faulty(response, reply, events, dialect)
            for event in events:
                await response.write(event)
            await response.write_eof()
        except (asyncio.CancelledError, ConnectionError):
            self.closed.set()
            raise
        return response

    async def _faulty(
        self, response: web.StreamResponse, reply: Reply, events: list[bytes], dialect: Any
    ) -> web.StreamResponse:
        for event in events[: reply.after]:
            await response.write(event)
        self.begun.set()
        if reply.fault == "stall":
            await asyncio.Event().wait()
        while reply.fault == "ping":
            await response.write(dialect.PING)
            await asyncio.sleep(0.01)
        if reply.fault == "cut":
            assert response._req is not None and response._req.transport is not None
            response._req.transport.abort()
        elif reply.fault == "malformed":
            await response.write(dialect.MALFORMED)
        elif reply.fault == "error":
            await response.write(dialect.error_event(reply.said))
        await response.write_eof()  # "truncate" is nothing but this
        return response
