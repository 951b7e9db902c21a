"""The house's HTTP address, which opens only when something needs it: a port is set, or a route.

TLS is the business of whatever stands in front of it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bot import settings
from bot.web.counts import Counts
from engine.errors import SettingsError

if TYPE_CHECKING:  # aiohttp is loaded with the server
    from bot.web.serving import Handler, Ready, Server

__all__ = ["Web"]

#: Where a route is answered when no port is set.
PORT = 8080


class Web:
    """The server's routes; an async context manager that closes what it opened.

    Args:
        ready: answers whether everything works now, and what each part says of itself.
    """

    def __init__(self, listening: settings.Web, counts: Counts, ready: Ready) -> None:
        self._listening = listening
        self._counts = counts
        self._ready = ready
        self._routes: dict[tuple[str, str], Handler] = {}
        self._server: Server | None = None
        self._opening = asyncio.Lock()
        #: The port it listens on; 0: it does not.
        self.port = 0

    async def __aenter__(self) -> Web:
        if self._listening.port is not None:
            await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            await self._server.stop()
            self._server, self.port = None, 0

    @property
    def url(self) -> str:
        """The address it is reached under, for what is told to platforms and people."""
        return self._listening.url or f"http://{self._listening.host}:{self.port}"

    @property
    def public(self) -> str:
        """The address people reach it under from anywhere, as set; empty: none is set."""
        return self._listening.url

    async def add(self, method: str, path: str, handler: Handler) -> None:
        """Answer `method path` with `handler` from now on; opens the server.

        A path that ends in /* stands for any one word there; it is no pattern otherwise.

        Raises SettingsError when the address cannot be listened on, ValueError when the route is
        there already.
        """
        if (method, path) in self._routes:
            raise ValueError(f"{method} {path} is answered already")
        await self._open()
        self._routes[method, path] = handler

    def remove(self, method: str, path: str) -> None:
        """Answer `method path` no more."""
        self._routes.pop((method, path), None)

    async def _open(self) -> None:
        async with self._opening:
            if self._server is not None:
                return
            from bot.web.serving import Server

            server = Server(self._routes, self._counts, self._ready)
            host = self._listening.host
            port = PORT if self._listening.port is None else self._listening.port
            try:
                self.port = await server.start(host, port)
            except OSError as error:
                raise SettingsError(
                    f"Nod cannot listen on {host}:{port} ({error.strerror or error}).",
                    "Set web.host and web.port to a free address.",
                ) from error
            self._server = server
