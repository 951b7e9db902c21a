"""The fake MCP server behind a sign-in: metadata, registration, and tokens bound to the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.fakes.mcp_http import HttpServer
from tests.fakes.oauth import FakeOAuth

__all__ = ["SignIn", "signed_in"]


class SignIn:
    """An authorization server and the server it guards, at one address."""

    def __init__(self) -> None:
        self.oauth = FakeOAuth()
        self.server = HttpServer()
        self.base = ""
        #: It registers clients by itself.
        self.registers = True
        #: What was registered, newest last.
        self.clients: list[dict[str, Any]] = []
        #: The resource of each request for a token.
        self.resources: list[str] = []
        #: Says of itself that it is another server.
        self.resource = ""
        #: What the server and its token endpoint were sent: credentials, forms.
        self.sent: list[str] = []

    async def protected(self, request: web.Request) -> web.Response:
        resource = self.resource or self.server.url
        return web.json_response(
            {
                "resource": resource,
                "authorization_servers": [self.base],
                "scopes_supported": ["use"],
            }
        )

    async def metadata(self, request: web.Request) -> web.Response:
        found = {
            "issuer": self.base,
            "authorization_endpoint": f"{self.base}/authorize",
            "token_endpoint": f"{self.base}/token",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }
        if self.registers:
            found["registration_endpoint"] = f"{self.base}/register"
        return web.json_response(found)

    async def register(self, request: web.Request) -> web.Response:
        asked = await request.json()
        assert asked["redirect_uris"] and "authorization_code" in asked["grant_types"]
        self.clients.append(asked)
        made = {"client_id": self.oauth.client_id, "client_secret": self.oauth.client_secret}
        return web.json_response({**asked, **made}, status=201)

    async def token(self, request: web.Request) -> web.Response:
        form = await request.post()
        self.sent.append(str(dict(form)))
        self.resources.append(str(form.get("resource")))
        return await self.oauth.token(request)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.sent.append(request.headers.get("Authorization", ""))
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer" or token not in self.oauth.live:
            where = (
                f'Bearer resource_metadata="{self.base}/.well-known/oauth-protected-resource/mcp"'
            )
            return web.Response(status=401, headers={"WWW-Authenticate": where})
        return await self.server.handle(request)


@asynccontextmanager
async def signed_in() -> AsyncIterator[SignIn]:
    """Serve it on a free port of this machine."""
    both = SignIn()
    app = web.Application()
    app.router.add_get("/.well-known/oauth-protected-resource/mcp", both.protected)
    app.router.add_get("/.well-known/oauth-authorization-server", both.metadata)
    app.router.add_post("/register", both.register)
    app.router.add_post("/token", both.token)
    app.router.add_route("*", "/mcp", both.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    both.base = f"http://127.0.0.1:{port}"
    both.server.url = f"{both.base}/mcp"
    try:
        yield both
    finally:
        await runner.cleanup()
