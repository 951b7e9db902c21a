"""A chat platform in memory that keeps to its limits, and can fail, hang or forget on demand."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bot.cards import text_of
from bot.surfaces.base import (
    Capabilities,
    Inbound,
    Line,
    Message,
    Receipt,
    SurfaceError,
)

__all__ = ["MemorySurface", "Posted"]


@dataclass(slots=True)
class Posted:
    """One message as the platform shows it now."""

    ref: str
    target: str
    delivery: str
    shown: str
    files: tuple[Path, ...] = ()
    edits: list[str] = field(default_factory=list)


class MemorySurface:
    """Implements `Surface`.

    Args:
        edit_every: seconds between edits of a streamed answer; 0: no streaming.
        look_up: whether `find` finds.
    """

    def __init__(
        self, name: str = "memory", *, edit_every: float = 0.0, look_up: bool = True
    ) -> None:
        self.name = name
        self.capabilities = Capabilities(
            text_limit=4_000,
            buttons=25,
            value_bytes=64,
            file_bytes=10_000_000,
            edit_every=edit_every,
            look_up=look_up,
        )
        #: Everything that was posted, in order.
        self.posted: list[Posted] = []
        #: Raised by the next posts, one each, before anything is posted.
        self.failures: list[BaseException] = []
        #: Raised by the next posts, one each, after the message was posted.
        self.losses: list[BaseException] = []
        #: Targets whose posts wait until the event is set.
        self.slow: dict[str, asyncio.Event] = {}
        self.typed: list[str] = []
        #: Raised by the next signs of work, one each; and set: they never come back.
        self.typing_failures: list[BaseException] = []
        self.typing_hangs = False
        #: Messages of people that were to be deleted, and whether the platform does it.
        self.erased: list[str] = []
        self.erases = True
        #: What people have written in a thread, by target.
        self.lines: dict[str, list[Line]] = {}
        self.changed = asyncio.Condition()
        self._numbers = itertools.count(1)
        self.intake: Callable[[Inbound], Awaitable[Receipt]] | None = None

    async def start(self, intake: Callable[[Inbound], Awaitable[Receipt]]) -> None:
        self.intake = intake

    async def stop(self) -> None:
        self.intake = None

    async def post(self, target: str, message: Message, delivery: str) -> str:
        return await self._post(target, message, delivery, ())

    async def upload(
        self, target: str, files: Sequence[Path], message: Message, delivery: str
    ) -> str:
        return await self._post(target, message, delivery, tuple(files))

    async def _post(
        self, target: str, message: Message, delivery: str, files: tuple[Path, ...]
    ) -> str:
        if target in self.slow:
            await self.slow[target].wait()
        if self.failures:
            raise self.failures.pop(0)
        shown = self._shown(message)
        ref = f"{target}#{next(self._numbers)}"
        self.posted.append(
            Posted(ref=ref, target=target, delivery=delivery, shown=shown, files=files)
        )
        await self._tell()
        if self.losses:
            raise self.losses.pop(0)
        return ref

    async def edit(self, ref: str, message: Message) -> None:
        found = next((each for each in self.posted if each.ref == ref), None)
        if found is None:
            raise SurfaceError(f"There is no message {ref}.")
        found.shown = self._shown(message)
        found.edits.append(found.shown)
        await self._tell()

    async def typing(self, target: str) -> None:
        self.typed.append(target)
        await self._tell()
        if self.typing_failures:
            raise self.typing_failures.pop(0)
        if self.typing_hangs:
            await asyncio.Event().wait()

    async def erase(self, target: str, event: str) -> bool:
        self.erased.append(event)
        return self.erases

    async def history(self, target: str, since: float) -> list[Line]:
        own = [
            Line(ref=each.ref, at=since, by="", text=each.shown)
            for each in self.posted
            if each.target == target
        ]
        return [each for each in self.lines.get(target, ()) if each.at >= since] + own

    async def find(self, target: str, delivery: str) -> str | None:
        if not self.capabilities.look_up:
            return None
        held = (p.ref for p in self.posted if (p.target, p.delivery) == (target, delivery))
        return next(held, None)

    async def until(self, holds: Callable[[MemorySurface], bool], limit: float = 15.0) -> None:
        """Wait until `holds(self)`; it is asked again whenever something changed."""
        async with asyncio.timeout(limit), self.changed:
            await self.changed.wait_for(lambda: holds(self))

    def of(self, target: str) -> list[str]:
        """Return what a thread shows now."""
        return [each.shown for each in self.posted if each.target == target]

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    def _shown(self, message: Message) -> str:
        card = text_of(message.card) if message.card else ""
        for row in message.card.rows if message.card else ():
            for button in row.buttons:
                assert len(button.token.encode()) <= self.capabilities.value_bytes
        shown = "\n".join(part for part in (message.text, card, message.footer) if part)
        assert shown, "a platform takes no empty message"
        assert len(shown) <= self.capabilities.text_limit
        return shown
