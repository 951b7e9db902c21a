"""One way out to each place: one message at a time, the most urgent first, pauses obeyed.

Where a platform asks to wait, whoever was turned away queues again, so that after the pause a card
goes before what was there first. Of several edits of one message only the newest is shown, and what
merely tells how far a turn has come never makes anybody wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar

from bot.surfaces.base import Message, SurfaceError

__all__ = ["CARD", "CHATTER", "WORDS", "Pacing", "Paused", "rank_of"]

#: Who goes first: what waits for a person, what they wait for, what merely shows progress.
CARD, WORDS, CHATTER = 0, 1, 2
#: Seconds a message waits for its turn before its sender is told to come again; below the time the
#: outbox gives to a request, so that a message that was never sent is surely known as such.
PATIENCE = 15.0
#: Places that are remembered while nothing is on its way there.
PLACES = 2_000

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Paused(SurfaceError):
    """The platform asks to wait; nothing was posted. `retry_after` says how long."""

    def __init__(self, what: str, *, retry_after: float) -> None:
        super().__init__(what, retry_after=retry_after)
        self.seconds = retry_after


def rank_of(message: Message) -> int:
    """Return how urgent a message is: CARD, WORDS or CHATTER."""
    if message.card is not None:
        return CARD
    return CHATTER if message.growing or message.tasks else WORDS


@dataclass(order=True, slots=True)
class _Waiting:
    rank: int
    number: int
    turn: asyncio.Future[None] = field(compare=False)


class _Lane:
    """The way to one place."""

    def __init__(self) -> None:
        self.busy = False
        self._until = 0.0
        self._waiting: list[_Waiting] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def left(self) -> float:
        """Seconds of the pause that are left; 0: there is none."""
        return max(0.0, self._until - asyncio.get_running_loop().time())

    @property
    def is_idle(self) -> bool:
        return not (self.busy or self._waiting or self.left)

    async def enter(self, rank: int, deadline: float | None) -> None:
        """Wait for one's turn, at most until then. Raises Paused."""
        if not self.busy and not self.left:
            self.busy = True
            return
        loop = asyncio.get_running_loop()
        if deadline is not None and loop.time() + self.left >= deadline:
            raise self.turned_away()
        self._count += 1
        mine = _Waiting(rank, self._count, loop.create_future())
        self._waiting.append(mine)
        self._next()
        try:
            async with asyncio.timeout_at(deadline):
                await mine.turn
        except BaseException as error:
            if mine in self._waiting:
                self._waiting.remove(mine)
            elif mine.turn.done() and not mine.turn.cancelled():
                self.leave()  # it was our turn just then
            if isinstance(error, TimeoutError):
                raise self.turned_away() from None
            raise

    def turned_away(self) -> Paused:
        """Return what tells a sender to queue again, in time for the end of a long pause."""
        return Paused("No more is taken there now.", retry_after=max(1.0, self.left - PATIENCE / 2))

    def leave(self) -> None:
        """Let the next one go."""
        self.busy = False
        self._next()

    def pause(self, seconds: float) -> None:
        """Let nobody go for so long."""
        self._until = max(self._until, asyncio.get_running_loop().time() + seconds)

    def _next(self) -> None:
        if self.busy or not self._waiting:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.left:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._until, self._next)
            return
        first = min(self._waiting)
        self._waiting.remove(first)
        if first.turn.cancelled():
            self._next()
            return
        self.busy = True
        first.turn.set_result(None)


class Pacing:
    """The ways to all places of one platform. Close it to drop the edits that wait."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[Hashable, _Lane] = OrderedDict()
        #: ref -> the newest message it is to show.
        self._newest: dict[str, Message] = {}
        #: ref -> who shows it when there is room.
        self._later: dict[str, asyncio.Task[None]] = {}

    async def close(self) -> None:
        """Drop the edits that wait."""
        tasks = list(self._later.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def send(
        self,
        place: Hashable,
        rank: int,
        work: Callable[[], Awaitable[T]],
        *,
        patience: float | None = PATIENCE,
        holds: bool = True,
    ) -> T:
        """Do `work` when it is its turn, and again after each pause it is told of.

        Args:
            patience: seconds until its sender is told to come again; None: never.
            holds: nothing else goes to the place meanwhile; not so for a slow upload.

        Raises Paused, and whatever `work` raises.
        """
        loop = asyncio.get_running_loop()
        lane = self._lane(place)
        deadline = None if patience is None else loop.time() + patience
        while True:
            await lane.enter(rank, deadline)
            if not holds:
                lane.leave()
            try:
                return await work()
            except Paused as error:
                lane.pause(error.seconds)
            finally:
                if holds:
                    lane.leave()

    async def show(
        self,
        place: Hashable,
        ref: str,
        message: Message,
        edit: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Edit what a ref shows; raises as `send` does.

        While there is no room, progress is shown later, and this returns at once.
        """
        self._newest[ref] = message
        try:
            if rank_of(message) < CHATTER:
                await self.send(place, rank_of(message), lambda: self._show(ref, edit))
            elif ref not in self._later:
                await self.send(place, CHATTER, lambda: self._show(ref, edit), patience=0.0)
        except Paused:
            if rank_of(message) < CHATTER:
                self._forget(ref, message)
                raise
            catching_up = self._catch_up(place, ref, edit)
            self._later[ref] = asyncio.create_task(catching_up, name=f"show {ref}")
        except BaseException:
            self._forget(ref, message)
            raise

    async def sign(self, place: Hashable, work: Callable[[], Awaitable[object]]) -> None:
        """Do what may as well be left out, unless the place is paused; raises as `work` does."""
        lane = self._lane(place)
        if lane.left:
            return
        try:
            await work()
        except Paused as error:
            lane.pause(error.seconds)

    async def _show(self, ref: str, edit: Callable[[Message], Awaitable[None]]) -> None:
        """Show the newest; nothing when somebody else has done so meanwhile."""
        message = self._newest.get(ref)
        if message is not None:
            await edit(message)
            self._forget(ref, message)

    async def _catch_up(
        self, place: Hashable, ref: str, edit: Callable[[Message], Awaitable[None]]
    ) -> None:
        try:
            while ref in self._newest:
                await self.send(place, CHATTER, lambda: self._show(ref, edit), patience=None)
        except SurfaceError as error:
            _log.info("progress was not shown: %s", error)
            self._newest.pop(ref, None)
        finally:
            del self._later[ref]

    def _forget(self, ref: str, message: Message) -> None:
        if self._newest.get(ref) is message:
            del self._newest[ref]

    def _lane(self, place: Hashable) -> _Lane:
        lane = self._lanes.get(place)
        if lane is None:
            lane = self._lanes[place] = _Lane()
        self._lanes.move_to_end(place)
        if len(self._lanes) > PLACES:
            idle = next((key for key, each in self._lanes.items() if each.is_idle), None)
            if idle is not None and idle != place:
                del self._lanes[idle]
        return lane
