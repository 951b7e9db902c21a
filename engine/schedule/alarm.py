"""The one timer: it stands for the nearest due schedule, wake, reminder or deadline, and rings.

What is due is a query; each row is dealt with in a transaction of its own, and no run is awaited.
So one that fails or takes long delays no other, and what another process wrote is found within
the rescan.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from engine import inbox
from engine.clock import Now, system_now
from engine.errors import Conflict, NodError, StoreError
from engine.events import Bus, Kind
from engine.inbox import Prompt
from engine.schedule import fires, runs, subscriptions, wakes
from engine.store.base import Store, Tx

__all__ = ["Alarm"]

RESCAN = 30  # seconds between looks for rows of other processes
#: Seconds after a start in which no prompt expires: presses made while Nod was down count first.
QUIET = 3600.0
#: Seconds without a look, far beyond a rescan, after which the machine must have slept: what was
#: pressed meanwhile comes first, as after a start.
SLEPT = 600.0
BATCH = 100  # rows of one kind that one ring deals with; the rest is next
#: Runs of one transaction that meets another process in the same row.
ATTEMPTS = 5
#: Seconds a stop waits for the transactions under way.
GRACE = 10.0

_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Due:
    """What a ring found."""

    schedules: Sequence[tuple[str, float]] = ()
    runs: Sequence[tuple[str, float]] = ()
    wakes: Sequence[str] = ()
    watches: Sequence[str] = ()
    #: (event, schedule)
    arrivals: Sequence[tuple[str, str]] = ()
    digests: Sequence[str] = ()
    prompts: bool = False

    @property
    def full(self) -> bool:
        """Whether there may be more."""
        found = (self.schedules, self.runs, self.wakes, self.watches, self.arrivals)
        return max(map(len, found)) == BATCH


class Alarm:
    """Rings while it is entered; an async context manager.

    Args:
        data: the data folder, where runs get their folders.
        on_wake: called with the id of a session that now has something to do; must not wait.
        on_prompts: called with the prompts that expired (status 'resolved') and those whose
            reminder came (status 'pending'), after their commit; must not wait. Also called, with
            none, when a digest was written.
        digest: writes the digest of a principal, if it is still due; None: there are none.
        bus: heard for runs that begin and turns that end here, so that a deadline, a further try,
            and what waits for another run or session are known at once; without it, within the
            rescan.
    """

    def __init__(
        self,
        *,
        store: Store,
        now: Now,
        tenant: str,
        data: Path,
        on_wake: Callable[[str], None],
        on_prompts: Callable[[Sequence[Prompt]], None],
        bus: Bus | None = None,
        digest: Callable[[Tx, str, float], None] | None = None,
    ) -> None:
        self._store = store
        self._bus = bus
        self._now = now
        self._tenant = tenant
        self._data = data
        self._on_wake = on_wake
        self._on_prompts = on_prompts
        self._digest = digest
        self._looked_at = now()
        self._quiet_until = self._looked_at + QUIET
        self._rung = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None
        self._ear: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Alarm:
        self._rung.set()
        self._task = asyncio.create_task(self._watch(), name="alarm")
        if self._bus is not None:
            self._ear = asyncio.create_task(self._hear(self._bus), name="alarm ear")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._task is not None, "only what was entered is left"
        self._closing = True
        self._rung.set()
        if self._ear is not None:
            self._ear.cancel()
            await asyncio.gather(self._ear, return_exceptions=True)
        with suppress(asyncio.CancelledError):
            try:
                async with asyncio.timeout(GRACE):
                    await self._task
            except TimeoutError:  # the task is cancelled by now; what it wrote is found at start
                _log.warning("the alarm did not stop within %s s", GRACE)

    def nudge(self) -> None:
        """Look at once: something that may be due sooner was added. Never waits."""
        self._rung.set()

    async def ring(self) -> float | None:
        """Deal with what is due now; return when to ring next, epoch seconds, if anything waits.

        A row that could not be dealt with stays due and is left to the rescan. Raises StoreError
        when the store cannot be read.
        """
        now = self._now()
        if now - self._looked_at > SLEPT:
            self._quiet_until = now + QUIET
        self._looked_at = now
        due = await self._store.read(lambda tx: self._due(tx, now))
        done = await asyncio.gather(
            *(self._fire(schedule, at) for schedule, at in due.schedules),
            *(self._tend(fire, at) for fire, at in due.runs),
            *(self._wake(wake_id, wakes.wake) for wake_id in due.wakes),
            *(self._wake(watch, subscriptions.hand_over) for watch in due.watches),
            *(self._start(event, schedule) for event, schedule in due.arrivals),
            *(self._tell(principal) for principal in due.digests),
            *((self._prompts(now),) if due.prompts else ()),
        )
        # Where nothing could be dealt with, asking again at once would only spin.
        after = 0.0 if all(done) or (due.full and any(done)) else now
        return await self._store.read(
            lambda tx: min(self._nearest(tx, after).values(), default=None)
        )

    async def _watch(self) -> None:
        scheduler = await asyncio.to_thread(_alarm_clock)
        scheduler.start()
        try:
            scheduler.add_job(self._bell, "interval", seconds=RESCAN, id="rescan")
            while not self._closing:
                await self._rung.wait()
                self._rung.clear()
                await self._ring_and_arm(scheduler)
        finally:
            scheduler.shutdown(wait=False)
            await asyncio.sleep(0)  # it shuts down in a callback

    async def _ring_and_arm(self, scheduler: Any) -> None:
        try:
            at = await self.ring()
        except Exception:  # noqa: BLE001  # broad: the clock must go on
            _log.exception("the alarm could not look; it looks again within %s s", RESCAN)
            return
        if at is not None:
            wait = max(0.0, at - self._now())
            moment = datetime.fromtimestamp(system_now() + wait, UTC)
            scheduler.add_job(
                self._bell, "date", run_date=moment, id="nearest", replace_existing=True
            )

    async def _hear(self, bus: Bus) -> None:
        """Ring when a run begins or a turn ends: the clock may have to do something then."""
        with bus.subscribe() as subscription:
            while True:
                event = await subscription.next()
                began = event.kind is Kind.TURN_START and event.body.get("cause") == "fire"
                if began or event.kind is Kind.TURN_END:
                    self._rung.set()

    async def _bell(self) -> None:
        self._rung.set()

    def _nearest(self, tx: Tx, after: float) -> dict[str, float]:
        row = tx.one("alarm_next", tenant=self._tenant, after=after)
        assert row is not None, "an aggregate has one row"
        kinds = ("schedule", "run", "wake", "watch", "arrival", "digest", "remind", "deadline")
        found = {kind: float(row[kind]) for kind in kinds if row[kind] is not None}
        if self._digest is None:
            found.pop("digest", None)
        if "deadline" in found:
            found["deadline"] = max(found["deadline"], self._quiet_until)
        return found

    def _due(self, tx: Tx, now: float) -> _Due:
        kinds = {kind for kind, at in self._nearest(tx, 0.0).items() if at <= now}
        asked = {"tenant": self._tenant, "now": now, "limit": BATCH}
        schedules = tx.all("schedules_due", **asked) if "schedule" in kinds else ()
        tended = tx.all("fires_due", **asked) if "run" in kinds else ()
        woken = tx.all("wakes_due", **asked) if "wake" in kinds else ()
        watched = tx.all("watches_due", **asked) if "watch" in kinds else ()
        arrived = tx.all("arrivals_due", **asked) if "arrival" in kinds else ()
        told = tx.all("digests_due", **asked) if "digest" in kinds else ()
        return _Due(
            schedules=[(row["id"], row["next_at"]) for row in schedules],
            runs=[(row["id"], row["look_at"]) for row in tended],
            wakes=[row["id"] for row in woken],
            watches=[row["id"] for row in watched],
            arrivals=[(row["event_id"], row["schedule_id"]) for row in arrived],
            digests=[row["principal_id"] for row in told],
            prompts=not kinds.isdisjoint(("remind", "deadline")),
        )

    async def _fire(self, schedule: str, due: float) -> bool:
        try:
            fired = await self._firmly(
                lambda tx: fires.fire(tx, schedule, due, self._now(), data=self._data)
            )
        except Exception as error:  # noqa: BLE001  # broad: one schedule must not stop the others
            return await self._failed(schedule, due, error)
        for session in (fired.session, fired.superseded) if fired is not None else ():
            if session is not None:
                self._on_wake(session)
        return True

    async def _failed(self, schedule: str, due: float, error: Exception) -> bool:
        """Write down that firing failed. What the store refused stays due."""
        _log.error("schedule %s could not be fired", schedule, exc_info=error)
        if isinstance(error, StoreError):
            return False
        cause = str(error) if isinstance(error, NodError) else "an internal error, see the log."
        try:
            await self._firmly(lambda tx: fires.fail(tx, schedule, due, self._now(), cause))
        except Exception:  # noqa: BLE001  # broad: one schedule must not stop the others
            _log.exception("schedule %s could not be moved on", schedule)
            return False
        return True

    async def _start(self, event: str, schedule: str) -> bool:
        """Start the run of a schedule that waits for an event which came."""
        try:
            fired = await self._firmly(
                lambda tx: fires.start(tx, event, schedule, self._now(), data=self._data)
            )
        except Exception:  # noqa: BLE001  # broad: one schedule must not stop the others
            _log.exception("schedule %s could not be started; it stays due", schedule)
            return False
        for session in (fired.session, fired.superseded) if fired is not None else ():
            if session is not None:
                self._on_wake(session)
        return True

    async def _tend(self, fire: str, due: float) -> bool:
        """See to a run: its deadline, its next try, or its turn after the run before."""
        try:
            moved = await self._firmly(
                lambda tx: fires.tend(tx, fire, due, self._now(), data=self._data)
            )
        except Exception as error:  # noqa: BLE001  # broad: one run must not stop the others
            _log.error("run %s could not be seen to", fire, exc_info=error)
            if isinstance(error, StoreError):
                return False
            cause = str(error) if isinstance(error, NodError) else "an internal error, see the log."
            return await self._given_up(fire, cause)
        for session in moved:
            self._on_wake(session)
        return True

    async def _given_up(self, fire: str, cause: str) -> bool:
        try:
            await self._firmly(lambda tx: runs.give_up(tx, fire, cause, self._now()))
        except Exception:  # noqa: BLE001  # broad: one run must not stop the others
            _log.exception("run %s could not be given up; it stays due", fire)
            return False
        return True

    async def _wake(self, waiting: str, post: Callable[[Tx, str, float], str | None]) -> bool:
        """Post a wake, or what a watch gathered, into its session."""
        try:
            session = await self._firmly(lambda tx: post(tx, waiting, self._now()))
        except Exception:  # noqa: BLE001  # broad: one wake must not stop the others
            _log.exception("wake or watch %s could not be delivered; it stays due", waiting)
            return False
        if session is not None:
            self._on_wake(session)
        return True

    async def _tell(self, principal: str) -> bool:
        write = self._digest
        assert write is not None, "without it no digest is due"
        try:
            await self._firmly(lambda tx: write(tx, principal, self._now()))
        except Exception:  # noqa: BLE001  # broad: a digest must not stop the schedules
            _log.exception("the digest of %s could not be written; it stays due", principal)
            return False
        self._on_prompts(())
        return True

    async def _prompts(self, now: float) -> bool:
        def expire_and_remind(tx: Tx) -> list[Prompt]:
            expired = inbox.expire(tx, now, BATCH) if now >= self._quiet_until else []
            return expired + inbox.remind(tx, now, BATCH)

        try:
            prompts = await self._firmly(expire_and_remind)
        except Exception:  # noqa: BLE001  # broad: prompts must not stop the schedules
            _log.exception("deadlines and reminders could not be dealt with; they stay due")
            return False
        for prompt in prompts:
            if prompt.status == "resolved" and prompt.session is not None:
                self._on_wake(prompt.session)
        if prompts:
            self._on_prompts(prompts)
        return True

    async def _firmly(self, work: Callable[[Tx], T]) -> T:
        """Run `work`, again when another process wrote the same row at the same time."""
        for _ in range(ATTEMPTS - 1):
            with suppress(Conflict):
                return await self._store.write(work)
        return await self._store.write(work)


def _alarm_clock() -> Any:
    # Imported only here and in a thread: it is slow, and nothing at start waits for it.
    from apscheduler.schedulers.asyncio import (  # type: ignore[import-untyped]
        AsyncIOScheduler,
    )

    # A ring that is late is still a ring, and several at once are one.
    defaults = {"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
    return AsyncIOScheduler(timezone=UTC, job_defaults=defaults)
