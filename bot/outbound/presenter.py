"""The presenter: keeps a follower on every session that moves, and shows what no log tells of.

The bus only shortens the wait and carries deltas; what must be shown is a query over the store
(`seq > presented`, prompts without a card, open delivery rows), asked at start and now and then.
One task per session, so a slow thread holds no other back; it ends when nothing happens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from types import TracebackType

from bot.outbound.follower import Follower, Gone, Posting
from bot.outbound.offlog import OffLog
from bot.outbound.outbox import FAILURES
from bot.outbound.stage import Stage
from bot.surfaces.base import SurfaceError
from engine.events import TRANSPORT, Bus, Event, Kind
from engine.store.base import Row

__all__ = ["Presenter"]

#: Seconds after which an idle session is no longer followed, and between looks at the store.
IDLE, SWEEP = 60.0, 30.0
#: Sessions taken up at once after a start.
RECOVER = 500
#: Seconds the next few hundred wait for the ones before.
PATIENCE = 5.0
#: Seconds before a failed post is tried again, doubled each time; tries before the next look.
RETRY_FIRST, RETRY_MOST, TRIES = 1.0, 60.0, 6

_log = logging.getLogger(__name__)


class Presenter:
    """Shows what happens; an async context manager that works while it is entered."""

    def __init__(self, stage: Stage, bus: Bus, *, idle: float = IDLE) -> None:
        self._stage = stage
        self._bus = bus
        self._idle = idle
        self._followers: dict[str, Follower] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._poked = asyncio.Event()
        self._posting = Posting()
        self._started = stage.now()
        self._offlog = OffLog(stage, self._started, self.poke)

    async def __aenter__(self) -> Presenter:
        listening = asyncio.Event()
        self._own(self._listen(listening), "presenter")
        await listening.wait()
        self._own(self._sweep(), "presenter sweep")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._offlog.close()

    def _own(self, work: Awaitable[None], name: str) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def poke(self) -> None:
        """Hint that something outside the logs waits to be shown. Never waits."""
        self._poked.set()

    async def caught_up(self, session: str, seq: int) -> None:
        """Wait until everything up to `seq` of the session's log was shown, or it is deleted."""
        while (follower := self._follow(session)).seen < seq:
            follower.handled.clear()
            follower.look()
            await follower.handled.wait()
            if follower.seen < seq and not await self._is_there(session):
                return

    async def _is_there(self, session: str) -> bool:
        row = await self._stage.store.read(lambda tx: tx.one("session_get", id=session))
        return row is not None

    # -- the logs

    async def _listen(self, listening: asyncio.Event) -> None:
        with self._bus.subscribe() as subscription:
            listening.set()
            while True:
                self._hear(await subscription.next())
                for event in subscription.drain():
                    self._hear(event)
                if subscription.lagged:
                    subscription.lagged = False
                    self.poke()

    def _hear(self, event: Event) -> None:
        if event.kind not in TRANSPORT:
            if event.seq:
                self._follow(event.session).hear(event)
            elif event.kind is Kind.PROGRESS:
                self._follow(event.session).hear_early(event)
        elif event.kind is Kind.ASSISTANT_DELTA and event.session in self._followers:
            self._followers[event.session].hear_delta(event)

    def _follow(self, session: str) -> Follower:
        follower = self._followers.get(session)
        if follower is None:
            follower = Follower(session, self._stage, self._posting, self._started)
            self._followers[session] = follower
            self._own(self._run(follower), f"present {session}")
        return follower

    async def _run(self, follower: Follower) -> None:
        try:
            await self._follow_on(follower)
        except Exception:  # noqa: BLE001  # broad: the border of one session; others are shown
            _log.exception("showing %s failed", follower.session)
        finally:
            # The next event, or the next look at the store, takes the session up again.
            del self._followers[follower.session]
            follower.handled.set()
            await follower.close()

    async def _follow_on(self, follower: Follower) -> None:
        failures = 0
        while failures < TRIES:
            try:
                await follower.advance()
                failures = 0
                if not await self._moves(follower):
                    await follower.settle()
                    if not (follower.wake.is_set() or follower.at_work):
                        return
            except Gone:
                return
            except FAILURES as error:
                failures += 1
                _log.warning("showing %s failed: %s", follower.session, error)
                follower.fall_back()
                await asyncio.sleep(_pause(error, failures))

    async def _moves(self, follower: Follower) -> bool:
        """Wait until the session moves; False: it did not for a while."""
        try:
            async with asyncio.timeout(self._idle):
                await follower.wake.wait()
        except TimeoutError:
            return follower.wake.is_set()
        return True

    # -- what no hint told of

    async def _sweep(self) -> None:
        while True:
            self._poked.clear()
            try:
                await self._recover()
                await self._offlog.look()
            except Exception:  # noqa: BLE001  # broad: the look is a task's border; the next one comes
                _log.exception("looking for what to show failed")
            try:
                async with asyncio.timeout(SWEEP):
                    await self._poked.wait()
            except TimeoutError:
                continue

    async def _recover(self) -> None:
        """Take up every session whose log goes on after its cursor, a few hundred at a time."""
        after = ""
        while rows := await self._behind(after):
            found = [self._follow(row["id"]) for row in rows]
            for follower in found:
                follower.look()
            await self._settled(found)
            after = rows[-1]["id"]

    async def _settled(self, followers: Sequence[Follower]) -> None:
        """Wait until these have come through what they found, but for none that is slow."""
        try:
            async with asyncio.timeout(PATIENCE):
                for follower in followers:
                    if not follower.stored:
                        await follower.handled.wait()
        except TimeoutError:
            _log.info("some threads are slow to take what was missed")

    async def _behind(self, after: str) -> list[Row]:
        tenant = self._stage.tenant
        return list(
            await self._stage.store.read(
                lambda tx: tx.all("sessions_unpresented", tenant=tenant, after=after, limit=RECOVER)
            )
        )


def _pause(error: BaseException, failures: int) -> float:
    asked = error.retry_after if isinstance(error, SurfaceError) else None
    return min(RETRY_MOST, asked or RETRY_FIRST * 2 ** (failures - 1))
