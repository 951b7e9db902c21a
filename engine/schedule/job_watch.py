"""Sees background jobs end and notes it: those that began here, and those found at the start.

How a job stands is written in its folder, so a job that ended while no Nod ran is noted at the
next start, and one whose machine went down meanwhile is found lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

from engine.clock import Now
from engine.errors import NodError
from engine.sandbox import jobs as sandbox
from engine.sandbox.jobs import Ended
from engine.schedule import jobs
from engine.schedule.jobs import Job
from engine.store.base import Store, Tx

__all__ = ["JobWatch"]

LOOK = 0.5  # seconds between looks while a job runs
RESCAN = 30.0  # seconds between looks for jobs that another process started
#: Seconds a job may take from its row to its first file; and after its time limit, on a machine
#: whose folders we do not see, to be noted by the Nod over there.
PATIENCE = 120.0
TAIL = 4_000  # bytes of output that a wake brings
GRACE = 10.0  # seconds a stop waits for the look under way

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """How a job was found to have ended."""

    job: Job
    ended: Ended
    tail: str = ""


class JobWatch:
    """Looks while it is entered; an async context manager.

    Args:
        data: the data folder, where sessions keep their jobs.
        alone: no other process has jobs in this store.
        on_due: called when wakes may be due: jobs have ended, or there was a nudge. Must not wait.
    """

    def __init__(
        self,
        *,
        store: Store,
        now: Now,
        tenant: str,
        data: Path,
        alone: bool,
        on_due: Callable[[], None],
    ) -> None:
        self._store = store
        self._now = now
        self._tenant = tenant
        self._data = data
        self._alone = alone
        self._on_due = on_due
        self._began = now()
        self._nudged = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> JobWatch:
        self._task = asyncio.create_task(self._watch(), name="jobs")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._task is not None, "only what was entered is left"
        self._closing = True
        self._nudged.set()
        with suppress(asyncio.CancelledError):
            try:
                async with asyncio.timeout(GRACE):
                    await self._task
            except TimeoutError:
                _log.warning("the watch over jobs did not stop within %s s", GRACE)

    def nudge(self) -> None:
        """Look at once: a job was started or stopped, or is waited for. Never waits."""
        self._nudged.set()

    async def look(self) -> bool:
        """Note what has ended; return whether a job still runs. Raises StoreError."""
        running = await self._store.read(lambda tx: jobs.unfinished(tx, self._tenant))
        if not running:
            return False
        seen = await asyncio.to_thread(lambda: [self._seen(each) for each in running])
        ended = [each for each in seen if each is not None]
        for each in ended:
            await self._store.write(partial(self._note, each))
        if ended:
            self._on_due()
        return len(ended) < len(running)

    async def _watch(self) -> None:
        while not self._closing:
            nudged, running = self._nudged.is_set(), False
            self._nudged.clear()
            try:
                running = await self.look()
            except NodError as error:
                _log.warning("jobs: %s It looks again within %g s.", error, RESCAN)
            except Exception:  # noqa: BLE001  # broad: one job's folder must not end the watch
                _log.exception("jobs could not be looked at; it looks again within %g s", RESCAN)
            if nudged:
                self._on_due()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK if running else RESCAN):
                    await self._nudged.wait()

    def _note(self, seen: _Seen, tx: Tx) -> None:
        jobs.end(tx, seen.job, seen.ended, seen.tail, self._now())

    def _seen(self, job: Job) -> _Seen | None:
        """Return how the job ended; None while it runs, or may."""
        folder = jobs.folder_of(self._data, job.session, job.id)
        try:
            ended = sandbox.ending(folder)
        except FileNotFoundError:
            return self._missing(job)
        except OSError as error:
            _log.warning("job %s cannot be looked at: %s", job.id, error)
            return None
        if ended is None:
            return None
        if ended.how == "lost":
            sandbox.end_rest(job.id)
        return _Seen(job=job, ended=ended, tail=_tail(folder))

    def _missing(self, job: Job) -> _Seen | None:
        """Judge a job of which this machine has nothing: not started yet, elsewhere, or gone."""
        since = max(job.created_at, self._began) if self._alone else job.deadline
        if self._now() < since + PATIENCE:
            return None
        return _Seen(job=job, ended=Ended(how="lost", at=self._now()))


def _tail(folder: Path) -> str:
    try:
        said = sandbox.read(folder, None, TAIL)
    except OSError:
        return ""
    return f"[{said.begin} bytes before this]\n{said.text}" if said.begin else said.text
