"""What the servers of all vendors share: credentials, refusals, faults on demand, a record of acts.

A vendor's server declares its routes on top. It refuses what the vendor refuses; what it was asked
to change is in `acts`, so a test sees what really happened, whatever the client was told.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import Any, Self

from aiohttp import web

__all__ = ["Fault", "Refused", "Seen", "Service"]

Handler = Callable[[web.Request], Awaitable[Any]]


class Refused(Exception):
    """The vendor refuses: a status and the body it would send."""

    def __init__(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.headers = headers or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What the next request meets in place of, or after, its handling."""

    #: HTTP status in place of the answer; 0: none of its own, so this request meets no fault.
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    #: The request is handled, and takes effect, before the fault.
    after: bool = False
    #: The connection is cut before an answer, after half of it, or never answered at all; or the
    #: answer says the whole request again, its credentials too.
    how: str = ""  # '', 'cut', 'truncated', 'silent', 'echo'
    #: Only requests with this method, and with this in their body; empty: any.
    method: str = ""
    holding: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request, as it came."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    #: Port of the client's end of the connection.
    peer: int

    @property
    def json(self) -> Any:
        """The body as JSON; None when it is empty."""
        return json.loads(self.body) if self.body else None


class Service:
    """A vendor's server on a port of its own; an async context manager.

    `tokens` maps an access token to whom it is for; others get 401.
    """

    #: How the vendor says 401.
    unauthorized: Mapping[str, Any] = MappingProxyType({"message": "Bad credentials"})
    #: The scheme of the Authorization header.
    scheme = "Bearer"

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {"token-1": "ana"}
        self.seen: list[Seen] = []
        #: What was changed, in order: one entry an effect.
        self.acts: list[Any] = []
        self.faults: list[Fault] = []
        #: Requests a service of this kind is being asked at the same moment, at most so far.
        self.at_once = 0
        self._now = 0
        self._application = web.Application(client_max_size=50_000_000)
        self._runner: web.AppRunner | None = None
        self._silent = asyncio.Event()
        self.url = ""
        #: Refresh token -> the access token it gives next; each is good once.
        self.refreshes: dict[str, str] = {}
        self.on("POST", "/oauth/token", self._refreshed, open=True)
        self.routes()

    def routes(self) -> None:
        """Declare the routes, with `self.on`."""
        raise NotImplementedError

    def on(self, method: str, path: str, handler: Handler, *, open: bool = False) -> None:
        """Answer `method path` with what `handler` returns: a JSON value or a web.Response."""

        async def answered(request: web.Request) -> web.StreamResponse:
            return await self._answer(request, handler, open)

        self._application.router.add_route(method, path, answered)

    def fail(self, *faults: Fault) -> None:
        """Let the next requests meet these faults, in order."""
        self.faults += faults

    async def __aenter__(self) -> Self:
        self._runner = web.AppRunner(self._application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._silent.set()
        assert self._runner is not None
        await self._runner.cleanup()

    def who(self, request: web.Request) -> str:
        """Return whom the request is from; raises Refused(401)."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme != self.scheme or token not in self.tokens:
            raise Refused(401, dict(self.unauthorized))
        return self.tokens[token]

    async def _refreshed(self, request: web.Request) -> Any:
        """Renew a token (RFC 6749, 6); the refresh token is replaced by another one."""
        form = await request.post()
        spent = str(form.get("refresh_token"))
        access = self.refreshes.pop(spent, "")
        if form.get("grant_type") != "refresh_token" or not access:
            raise Refused(400, {"error": "invalid_grant"})
        following = f"{spent}+"
        self.refreshes[following] = f"{access}+"
        self.tokens[access] = "ana"
        answer = {"access_token": access, "token_type": "bearer", "expires_in": 3600}
        return {**answer, "refresh_token": following}

    # -- within

    async def _answer(
        self, request: web.Request, handler: Handler, open: bool
    ) -> web.StreamResponse:
        self._now += 1
        self.at_once = max(self.at_once, self._now)
        try:
            return await self._handled(request, handler, open)
        finally:
            self._now -= 1

    async def _handled(
        self, request: web.Request, handler: Handler, open: bool
    ) -> web.StreamResponse:
        self.seen.append(
            Seen(
                method=request.method,
                path=request.path,
                query=dict(request.query),
                headers=dict(request.headers),
                body=await request.read(),
                peer=_peer(request),
            )
        )
        fault = self._fault(self.seen[-1])
        if fault is not None and not fault.after and (fault.status or fault.how):
            return await self._met(request, fault, None)
        try:
            if not open:
                self.who(request)
            value = await handler(request)
        except Refused as refused:
            return web.json_response(refused.body, status=refused.status, headers=refused.headers)
        answer = value if isinstance(value, web.StreamResponse) else web.json_response(value)
        met = fault is not None and fault.after
        return await self._met(request, fault, answer) if fault and met else answer

    def _fault(self, seen: Seen) -> Fault | None:
        fault = self.faults[0] if self.faults else None
        if fault and fault.method in ("", seen.method) and fault.holding.encode() in seen.body:
            return self.faults.pop(0)
        return None

    async def _met(
        self, request: web.Request, fault: Fault, answer: web.StreamResponse | None
    ) -> web.StreamResponse:
        if fault.how == "silent":
            await self._silent.wait()
        if fault.how in ("cut", "silent"):
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if fault.how == "truncated":
            half = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": _JSON})
            await half.prepare(request)
            await half.write(b'{"half": ')
            assert request.transport is not None
            request.transport.close()
            return half
        if fault.how == "echo":
            return web.json_response(_echo(request), status=fault.status)
        if fault.status:
            body = {"message": "fault"} if fault.body is None else fault.body
            headers = dict(fault.headers)
            if isinstance(body, str):
                return web.Response(text=body, status=fault.status, headers=headers)
            return web.json_response(body, status=fault.status, headers=headers)
        assert answer is not None, "a fault without a status comes after handling"
        return answer


_JSON = "application/json"


def _echo(request: web.Request) -> dict[str, Any]:
    """Return what a service in debug mode says of a request that it does not like."""
    sent = dict(request.headers)
    return {"ok": False, "message": f"{request.method} {request.path_qs} with {sent}", "sent": sent}


def _peer(request: web.Request) -> int:
    """Return the port of the client's end of the connection."""
    assert request.transport is not None
    return int(request.transport.get_extra_info("peername")[1])
