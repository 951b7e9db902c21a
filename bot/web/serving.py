"""Answers HTTP requests from a table of routes, with health, readiness and counts in it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping

from aiohttp import web

from bot.web.counts import Counts

__all__ = ["Handler", "Ready", "Server"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
#: Answers whether everything works now, and what each part says of itself.
Ready = Callable[[], Awaitable[tuple[bool, Mapping[str, str]]]]

#: Bytes of a request's body: what platforms send is far below.
BODY = 4_000_000
#: Seconds a request in flight has when the server stops, and the look into the store may take.
GRACE, LOOK = 5.0, 2.0

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"

_log = logging.getLogger(__name__)


class Server:
    """Listens from `start` to `stop`; routes may be added and removed meanwhile."""

    def __init__(
        self, routes: MutableMapping[tuple[str, str], Handler], counts: Counts, ready: Ready
    ) -> None:
        self._routes = routes
        self._counts = counts
        self._ready = ready
        routes["GET", "/healthz"] = self._healthz
        routes["GET", "/readyz"] = self._readyz
        routes["GET", "/metrics"] = self._metrics
        served = web.Application(client_max_size=BODY)
        served.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(served, access_log=None, shutdown_timeout=GRACE)

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port; raises OSError when the address cannot be had."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError:
            await self._runner.cleanup()
            raise
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Let requests in flight end, for a few seconds, and listen no more."""
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        handler = self._routes.get((request.method, path))
        if handler is None:  # a route that ends in /* takes one more word, which no count names
            path = f"{path.rpartition('/')[0]}/*"
            handler = self._routes.get((request.method, path))
        path, status = (path if handler is not None else "other"), 500
        try:
            if handler is None:
                raise web.HTTPNotFound(text="There is nothing here.\n")
            response = await handler(request)
            status = response.status
            return response
        except web.HTTPException as error:
            status = error.status
            raise
        except Exception as error:  # noqa: BLE001  # broad: a request border; no value is logged
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
        return web.json_response({"ready": ready, **parts}, status=200 if ready else 503)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text=self._counts.text(), headers={"Content-Type": _PROMETHEUS})
