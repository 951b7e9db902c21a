"""Says again, in the thread it was asked in, that a prompt still waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from types import TracebackType

from bot.commands.listings import spoken
from engine.canonical import dumps
from engine.clock import Now, mint
from engine.errors import NodError
from engine.inbox import Prompt
from engine.store.base import Store, Tx

__all__ = ["Reminders"]

#: Prompts that wait to be reminded of; more is left to the next day's reminder.
_BACKLOG = 1000

_log = logging.getLogger(__name__)


class Reminders:
    """Writes a delivery row for each reminder; an async context manager.

    Args:
        place: thread_target for prompts that belong to no session.
        poke: the hint to the presenter, which shows such rows.
    """

    def __init__(self, store: Store, now: Now, place: str, poke: Callable[[], None]) -> None:
        self._store = store
        self._now = now
        self._place = place
        self._poke = poke
        self._due: asyncio.Queue[Sequence[Prompt]] = asyncio.Queue(_BACKLOG)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Reminders:
        self._task = asyncio.create_task(self._work(), name="reminders")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def take(self, prompts: Sequence[Prompt]) -> None:
        """Take what the clock found: the expired, which the log tells of, and the due."""
        due = [prompt for prompt in prompts if prompt.status == "pending"]
        if due and not self._due.full():
            self._due.put_nowait(due)
        self._poke()

    async def _work(self) -> None:
        while True:
            due = await self._due.get()
            try:
                await self._store.write(lambda tx: self._write(tx, due))  # noqa: B023 # awaited
            except NodError as error:
                _log.warning("a reminder could not be written: %s", error)
            self._poke()

    def _write(self, tx: Tx, due: Sequence[Prompt]) -> None:
        now = self._now()
        for prompt in due:
            session = prompt.session or ""
            row = tx.one("session_get", id=session) if session else None
            home = str(row["home"]) if row is not None else self._place
            title = prompt.payload.get("title") or prompt.payload.get("tool") or prompt.kind
            age = spoken(now - prompt.created_at)
            text = f"Still waiting for your nod, for {age}: {title}. `/inbox {prompt.id}`"
            tx.run(
                "delivery_add",
                id=mint("d"),
                tenant=prompt.tenant,
                session=session,
                kind="show",
                subject=f"remind:{prompt.id}/{now:.0f}",
                destination=self._shown(tx, prompt) or home,
                part=1,
                payload=dumps({"text": text}),
                status="open",
                attempted=None,
                now=now,
            )

    def _shown(self, tx: Tx, prompt: Prompt) -> str:
        """Return where the card was shown last: it may be aside of the session's home."""
        rows = tx.all("deliveries_of", tenant=prompt.tenant, subject=f"prompt:{prompt.id}")
        latest = max(rows, key=lambda row: row["created_at"], default=None)
        return "" if latest is None else str(latest["destination"])
