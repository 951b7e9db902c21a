"""Hands updates on in order within a conversation, and side by side between conversations.

What belongs together (an album, a long text that the sender's app cut up) is handed on as one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["Lanes"]

#: Items in all lanes from which on no more are taken in.
FULL = 1_000
#: Items of one group.
GROUP = 50

T = TypeVar("T")


class _Lane(Generic[T]):
    def __init__(self) -> None:
        self.items: deque[T] = deque()
        self.more = asyncio.Event()


class Lanes(Generic[T]):
    """One queue a conversation, each worked off by a task of its own while it has items.

    Args:
        handle: takes a group in; must not raise.
        joins: whether an item belongs to the one before it.
        awaits: whether more may follow that belongs to this item.
        quiet: seconds without another item after which a group is whole.
    """

    def __init__(
        self,
        handle: Callable[[Sequence[T]], Awaitable[None]],
        joins: Callable[[T, T], bool],
        awaits: Callable[[T], bool],
        quiet: float,
    ) -> None:
        self._handle = handle
        self._joins = joins
        self._awaits = awaits
        self._quiet = quiet
        self._lanes: dict[str, _Lane[T]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._count = 0
        self._room = asyncio.Event()
        self._room.set()

    def put(self, key: str, item: T) -> None:
        """Append an item to the lane of a conversation. Never waits."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
            task = asyncio.create_task(self._work(key, lane), name=f"telegram {key}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        lane.items.append(item)
        lane.more.set()
        self._count += 1
        if self._count >= FULL:
            self._room.clear()

    async def room(self) -> None:
        """Wait until there is room for more."""
        await self._room.wait()

    async def close(self) -> None:
        """Stop; what was not handed on stays where its caller keeps it."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._lanes.clear()

    async def _work(self, key: str, lane: _Lane[T]) -> None:
        while lane.items:
            group = await self._group(lane)
            await self._handle(group)
            self._count -= len(group)
            if self._count < FULL:
                self._room.set()
        del self._lanes[key]

    async def _group(self, lane: _Lane[T]) -> list[T]:
        group = [lane.items.popleft()]
        while len(group) < GROUP and self._awaits(group[-1]):
            lane.more.clear()
            if not lane.items:
                try:
                    async with asyncio.timeout(self._quiet):
                        await lane.more.wait()
                except TimeoutError:
                    break
            if not self._joins(group[-1], lane.items[0]):
                break
            group.append(lane.items.popleft())
        return group
