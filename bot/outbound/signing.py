"""Shows in a thread that Nod is at work, beside everything else: it never delays what is shown.

A sign that a platform does not take is tried again, a few times; one that fades is shown anew for
as long as the work goes on.
"""

from __future__ import annotations

import asyncio
import logging

from bot.outbound.outbox import Outbox
from bot.surfaces.base import SurfaceError
from engine.errors import NodError

__all__ = ["Sign"]

#: Seconds one sign may take, and before it is tried again, doubled each time; tries in a row.
TIMEOUT, AGAIN, TRIES = 5.0, 1.0, 5

_log = logging.getLogger(__name__)


class Sign:
    """The sign of one thread. `begin` and `end` never wait, and may be called any time."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._task: asyncio.Task[None] | None = None
        #: Every task that has not come to its end.
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def shown(self) -> bool:
        """Nod is at work: `begin` was called, and `end` was not yet."""
        return self._task is not None

    def begin(self, target: str) -> None:
        """Show that Nod is at work in `target`, a thread_target, from now on."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep(target), name=f"sign {target}")
            self._tasks.add(self._task)
            self._task.add_done_callback(self._tasks.discard)

    def end(self) -> None:
        """Show it no longer; what fades does so by itself."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """End it, and wait until nothing is on its way any more."""
        self.end()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, target: str) -> None:
        failures = 0
        while failures < TRIES:
            try:
                surface = self._outbox.surface(target)
                async with asyncio.timeout(TIMEOUT):
                    await surface.typing(target)
            except (NodError, TimeoutError, OSError) as error:
                _log.info("no sign of work could be shown in %s: %s", target, error)
                asked = error.retry_after if isinstance(error, SurfaceError) else None
                pause = asked or AGAIN * 2**failures
                failures += 1
            except Exception:  # noqa: BLE001  # broad: a task's border; it is only a sign
                _log.warning("a sign of work failed in %s", target, exc_info=True)
                return
            else:
                failures, pause = 0, surface.capabilities.sign_fades
                if not pause:
                    return
            await asyncio.sleep(pause)
