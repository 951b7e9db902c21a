"""Starts the surface of every platform that has a token; a broken one leaves the others running."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from importlib import import_module
from typing import Any

from bot.settings import Settings
from bot.surfaces.base import Inbound, Receipt, Surface, SurfaceError
from bot.surfaces.config import Ground
from bot.surfaces.table import PLATFORMS, Platform
from engine.errors import NodError

__all__ = ["Connections"]

#: Seconds one start may take, a start of Nod waits for the first try of all, and a stop may take.
START, PATIENCE, STOP = 60.0, 20.0, 10.0
#: Seconds before the next try, doubled each time.
RETRY_FIRST, RETRY_MOST = 5.0, 300.0

Take = Callable[[Inbound], Awaitable[Receipt]]

_log = logging.getLogger(__name__)


class Connections:
    """The surfaces of the platforms; an async context manager.

    Args:
        surfaces: by name; a surface is in it from its first try to start on.
        started: called with the name of one that has started: what waited for it may be shown.
    """

    def __init__(
        self,
        settings: Settings,
        ground: Ground,
        surfaces: MutableMapping[str, Surface],
        take: Take,
        started: Callable[[str], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._ground = ground
        self._surfaces = surfaces
        self._take = take
        self._started = started
        self._tasks: list[asyncio.Task[None]] = []
        self._made: list[Surface] = []
        #: By platform: starting, connected, or broken: with one sentence.
        self.states: dict[str, str] = {}

    async def __aenter__(self) -> Connections:
        configured = await asyncio.to_thread(self._configured)
        tries = [asyncio.Event() for _ in configured]
        for (name, config), tried in zip(configured.items(), tries, strict=True):
            self.states[name] = "starting"
            hold = self._hold(name, PLATFORMS[name], config, tried)
            self._tasks.append(asyncio.create_task(hold, name=f"connect {name}"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                for tried in tries:
                    await tried.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(_stopped(each) for each in self._made))

    def _configured(self) -> dict[str, Any]:
        """Return the configs of the platforms that have a token."""
        secret = self._ground.secrets.get
        found = {name: each.config(self._settings, secret) for name, each in PLATFORMS.items()}
        return {name: config for name, config in found.items() if config is not None}

    async def _hold(self, name: str, platform: Platform, config: Any, tried: asyncio.Event) -> None:
        """Try until it is connected, or it makes no sense to try again."""
        failures = 0
        while True:
            try:
                await self._start(name, platform, config)
            except Exception as error:  # noqa: BLE001  # broad: a platform's library may raise all
                failures += 1
                await self._broken(name, error)
                tried.set()
                if not _passing(error):
                    return
                await asyncio.sleep(_pause(error, failures))
            else:
                self.states[name] = "connected"
                tried.set()
                await self._begun(name)
                return

    async def _begun(self, name: str) -> None:
        try:
            await self._started(name)
        except NodError as fault:
            _log.warning("what waited for %s is shown later: %s", name, fault)

    async def _start(self, name: str, platform: Platform, config: Any) -> None:
        await asyncio.to_thread(import_module, platform.module)  # its library may be slow to load
        surface = platform.made(config, self._ground)
        self._made.append(surface)
        try:
            async with asyncio.timeout(START):
                await surface.start(self._take)
        except BaseException:
            self._made.remove(surface)
            await _stopped(surface)
            raise
        self._surfaces[name] = surface

    async def _broken(self, name: str, error: Exception) -> None:
        told = isinstance(error, NodError)
        what = str(error) if told else f"It failed with {type(error).__name__}; the log says more."
        if isinstance(error, TimeoutError):
            what = f"It did not answer within {START:.0f} s."
        self.states[name] = f"broken: {what}"
        self._ground.counts.add("nod_surface_faults_total", surface=name)
        _log.warning("%s is not connected: %s", name, what, exc_info=None if told else error)
        text = f"{what} The other surfaces go on. Check it with: nod {name}"
        try:
            await self._ground.notify(f"surface:{name}", f"{name.title()} is not connected", text)
        except NodError as fault:
            _log.warning("the owner could not be told: %s", fault)


def _passing(error: Exception) -> bool:
    """Say whether another try may help: the platform asks for one, or could not be reached."""
    if isinstance(error, SurfaceError):
        return error.retry_after is not None
    return isinstance(error, TimeoutError | OSError) and not isinstance(error, NodError)


def _pause(error: Exception, failures: int) -> float:
    asked = error.retry_after if isinstance(error, SurfaceError) else None
    return max(asked or 0.0, min(RETRY_MOST, RETRY_FIRST * 2.0 ** (failures - 1)))


async def _stopped(surface: Surface) -> None:
    try:
        async with asyncio.timeout(STOP):
            await surface.stop()
    except Exception as error:  # noqa: BLE001  # broad: whatever it is, the others are stopped too
        _log.warning("%s did not stop in order: %s", surface.name, type(error).__name__)
