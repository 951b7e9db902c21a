"""The HTTP server: health, readiness, counts, and the routes that surfaces add.

It listens only when something needs it: a port that is set, or a route of a surface. TLS is the
business of whatever stands in front of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from bot.counts import Counts
from engine.errors import SettingsError

__all__ = ["Handler", "Listening", "Web"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Bytes of a request's body: Slack sends at most about 1 MB (an options payload with its view).
BODY = 4_000_000
#: Seconds a request in flight has when the server stops, and the look into the store may take.
GRACE, LOOK = 5.0, 2.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where the server listens, as it is set."""

    host: str = "127.0.0.1"
    #: None: only when a route is added, then on 8080. 0: any free one (tests).
    port: int | None = None
    #: The address people and platforms reach it under, without a slash at the end; empty: none.
    url: str = ""


class Web:
    """The server; an async context manager that closes what it opened.

    Args:
        ready: answers whether everything works now, and what each part says of itself.
    """

    def __init__(
        self,
        listening: Listening,
        counts: Counts,
        ready: Callable[[], Awaitable[tuple[bool, Mapping[str, str]]]],
    ) -> None:
        self._listening = listening
        self._counts = counts
        self._ready = ready
        self._runner: web.AppRunner | None = None
        self._opening = asyncio.Lock()
        #: The port it listens on; 0: it does not.
        self.port = 0
        self._routes: dict[tuple[str, str], Handler] = {
            ("GET", "/healthz"): self._healthz,
            ("GET", "/readyz"): self._readyz,
            ("GET", "/metrics"): self._metrics,
        }

    async def __aenter__(self) -> Web:
        if self._listening.port is not None:
            await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner, self.port = None, 0

    @property
    def url(self) -> str:
        """The address to reach the server under, for what is told to platforms and people."""
        return self._listening.url or f"http://{self._listening.host}:{self.port}"

    async def add(self, method: str, path: str, handler: Handler) -> None:
        """Answer `method path` (no pattern) with `handler` from now on; opens the server.

        Raises SettingsError when the address cannot be listened on, ValueError when it is taken.
        """
        if (method, path) in self._routes:
            raise ValueError(f"{method} {path} is answered already")
        self._routes[method, path] = handler
        await self._open()

    def remove(self, method: str, path: str) -> None:
        """Answer `method path` with 404 again."""
        self._routes.pop((method, path), None)

    async def _open(self) -> None:
        async with self._opening:
            if self._runner is not None:
                return
            served = web.Application(client_max_size=BODY)
            served.router.add_route("*", "/{path:.*}", self._answer)
            runner = web.AppRunner(served, access_log=None, shutdown_timeout=GRACE)
            await runner.setup()
            port = 8080 if self._listening.port is None else self._listening.port
            try:
                await web.TCPSite(runner, self._listening.host, port).start()
            except OSError as error:
                await runner.cleanup()
                raise SettingsError(
                    f"Nod cannot listen on {self._listening.host}:{port} ({error.strerror}).",
                    "Set web.port and web.host to a free address.",
                ) from error
            self._runner, self.port = runner, int(runner.addresses[0][1])

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        handler = self._routes.get((request.method, request.path))
        path = request.path if handler is not None else "other"
        status = 500
        try:
            if handler is None:
                known = any(path == request.path for _, path in self._routes)
                raise web.HTTPMethodNotAllowed(request.method, ()) if known else web.HTTPNotFound()
            response = await handler(request)
            status = response.status
            return response
        except web.HTTPException as error:
            status = error.status
            raise
        except Exception as error:  # noqa: BLE001  # broad: a request border; aiohttp logs values
            _log.error("%s %s failed: %s", request.method, path, type(error).__name__)
            return web.Response(status=500, text="Something went wrong inside Nod.\n")
        finally:
            self._counts.add("nod_requests_total", path=path, status=str(status))

    async def _healthz(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.StreamResponse:
        try:
            async with asyncio.timeout(LOOK):
                ready, parts = await self._ready()
        except TimeoutError:
            ready, parts = False, {"store": "slow"}
        body = {"ready": ready, **parts}
        return web.json_response(body, status=200 if ready else 503)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text=self._counts.text(), headers={"Content-Type": _PROMETHEUS})


_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
