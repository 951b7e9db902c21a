"""Shows what no session's log tells of: cards of no turn, reminders, cards handed over, charts.

What is due is a query over the store. Each place has a task of its own, so that one that is slow
holds up no other; what a place never takes is given up, and its owner is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bot.inbound import answers
from bot.outbound.outbox import FAILURES, TRIED_FOR, Shown, fingerprint, passing
from bot.outbound.stage import Stage
from bot.surfaces.base import Message, SurfaceError
from engine import inbox, people
from engine.canonical import loads
from engine.errors import PromptError
from engine.inbox import Prompt
from engine.store.base import Row, Tx

__all__ = ["OffLog"]

#: Rows read at once, and messages to one place at one look.
LOOK, LANE = 100, 100

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Due:
    """One message that is to be shown, or to be changed."""

    #: Where the next page of what was asked for begins.
    after: tuple[float, str]
    subject: str
    place: str
    session: str
    created_at: float
    #: The prompt whose card it is; empty: it is a text.
    prompt: str = ""
    text: str = ""
    #: Path of a file that goes with it, relative to the data folder.
    file: str = ""
    #: The message that shows it already, and the hash of how that looks.
    ref: str = ""
    shown: str = ""
    #: It has a delivery row.
    row: bool = False


class OffLog:
    """Looks for what is due. `close` ends what is on its way."""

    def __init__(self, stage: Stage, started: float, again: Callable[[], None]) -> None:
        """`started`: when this Nod began to show things, epoch seconds; `again` asks for a look."""
        self._stage = stage
        self._started = started
        self._again = again
        #: Who shows something, by place.
        self._lanes: dict[str, asyncio.Task[None]] = {}
        #: Places where more was due while something was on its way.
        self._more: set[str] = set()
        #: (subject, place) of what was sent and is not known to be there: it may be.
        self._sending: set[tuple[str, str]] = set()

    async def close(self) -> None:
        """Show nothing more."""
        tasks = list(self._lanes.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def look(self) -> None:
        """Have everything shown that is due in places where nothing is on its way."""
        busy = set(self._lanes)  # what is read from here on may hold what they have just shown
        lanes: dict[str, list[_Due]] = {}
        for find in (self._unshown, self._stale, self._rows):
            await self._all_of(find, lanes)
        for place, lane in lanes.items():
            if place in self._lanes:
                self._more.add(place)
            elif place in busy:
                self._again()
            else:
                task = asyncio.create_task(self._show_all(lane), name=f"show in {place}")
                self._lanes[place] = task
                task.add_done_callback(partial(self._ended, place))

    def _ended(self, place: str, _: asyncio.Task[None]) -> None:
        del self._lanes[place]
        if place in self._more:
            self._more.discard(place)
            self._again()

    async def _all_of(
        self, find: Callable[..., Sequence[_Due]], lanes: dict[str, list[_Due]]
    ) -> None:
        after = (0.0, "")
        while found := await self._stage.store.read(partial(find, after=after)):
            for due in found:
                lane = lanes.setdefault(due.place, [])
                if len(lane) < LANE:
                    lane.append(due)
            after = found[-1].after

    # -- what is due

    def _page(self, after: tuple[float, str]) -> dict[str, Any]:
        at, last = after
        return {"tenant": self._stage.tenant, "after_at": at, "after": last, "limit": LOOK}

    def _unshown(self, tx: Tx, after: tuple[float, str]) -> list[_Due]:
        """Cards that nothing else brings to anyone: access, grants, notices."""
        found = map(inbox.prompt_from, tx.all("prompts_unshown", **self._page(after)))
        return [
            _Due(
                after=(prompt.created_at, prompt.id),
                subject=f"prompt:{prompt.id}",
                place=self._home(tx, prompt),
                session=prompt.session or "",
                created_at=prompt.created_at,
                prompt=prompt.id,
            )
            for prompt in found
        ]

    def _home(self, tx: Tx, prompt: Prompt) -> str:
        row = tx.one("session_get", id=prompt.session) if prompt.session else None
        if row is not None:
            return str(row["home"])
        return self._stage.private(tx, people.CONSOLE) or self._stage.inbox

    def _stale(self, tx: Tx, after: tuple[float, str]) -> list[_Due]:
        """Cards of no session that were decided, by whomever, after they were last drawn."""
        return [
            _Due(
                after=(row["resolved_at"], row["delivery"]),
                subject=f"prompt:{row['id']}",
                place=row["destination"],
                session="",
                created_at=row["resolved_at"],
                prompt=row["id"],
                ref=row["ref"],
                shown=row["shown"] or "",
            )
            for row in tx.all("prompts_stale", **self._page(after))
        ]

    def _rows(self, tx: Tx, after: tuple[float, str]) -> list[_Due]:
        """Delivery rows that carry what they show."""
        return [_due_row(row) for row in tx.all("deliveries_open", **self._page(after))]

    # -- showing it

    async def _show_all(self, lane: Sequence[_Due]) -> None:
        """Show what is due in one place, until that asks to wait."""
        for due in lane:
            try:
                if not await self._show(due):
                    return
            except Exception:  # noqa: BLE001  # broad: one that cannot be shown holds up no other
                _log.exception("showing %s in %s failed", due.subject, due.place)

    async def _show(self, due: _Due) -> bool:
        """Show it; False: the place asks to wait."""
        now = self._stage.now()  # what is decided from here on may be missing
        try:
            prompts, message = await self._message(due)
            if due.ref and due.shown == fingerprint(message):
                return True
            ref = await self._sent(due, message)
        except PromptError as error:  # its prompt was deleted meanwhile
            _log.info("%s is shown no more: %s", due.subject, error)
            await self._failed(due)
            return True
        except FAILURES as error:
            return await self._not_shown(due, error)
        await self._record(due, ref, message, now)
        await self._decided_meanwhile(due, ref, prompts)
        return True

    async def _message(self, due: _Due) -> tuple[list[Prompt], Message]:
        if not due.prompt:
            return [], Message(text=due.text)
        asked = partial(self._stage.asked, ids=[due.prompt])
        prompts, names = await self._stage.store.read(asked)
        return prompts, self._stage.card(prompts, due.place, names)

    async def _sent(self, due: _Due, message: Message) -> str:
        outbox = self._stage.outbox
        if due.ref:
            await outbox.update(due.place, due.ref, message)
            return due.ref
        doubt = due.created_at < self._started or (due.subject, due.place) in self._sending
        self._sending.add((due.subject, due.place))
        file = self._stage.data / due.file if due.file else None
        if file is not None and await asyncio.to_thread(file.exists):
            return await outbox.upload(due.place, [file], message, due.subject, doubt=doubt)
        return await outbox.show(due.place, message, due.subject, doubt=doubt)

    async def _record(self, due: _Due, ref: str, message: Message, at: float) -> None:
        shown = Shown(
            session=due.session,
            subject=due.subject,
            destination=due.place,
            ref=ref,
            shown=fingerprint(message),
            at=at,
        )
        await self._stage.store.write(lambda tx: self._stage.outbox.record(tx, shown))
        self._sending.discard((due.subject, due.place))

    async def _decided_meanwhile(self, due: _Due, ref: str, prompts: Sequence[Prompt]) -> None:
        """Whoever decided it while the card was on its way did not know of this message."""
        if not any(prompt.status == "pending" for prompt in prompts):
            return
        now = self._stage.now()
        again, message = await self._message(due)
        if any(prompt.status == "pending" for prompt in again):
            return
        try:
            await self._stage.outbox.update(due.place, ref, message)
        except FAILURES as error:
            _log.warning("drawing %s in %s failed: %s", due.subject, due.place, error)
        else:
            await self._record(due, ref, message, now)

    # -- what is not taken

    async def _not_shown(self, due: _Due, error: Exception) -> bool:
        """Leave it to the next look, or give it up; False: the place asks to wait."""
        _log.warning("showing %s in %s failed: %s", due.subject, due.place, error)
        if isinstance(error, SurfaceError) and error.certain:
            self._sending.discard((due.subject, due.place))
        since = max(due.created_at, self._started)
        if passing(error) and self._stage.now() - since < TRIED_FOR:
            return False
        if due.ref:  # the message is gone, or can be changed no more
            await self._record(due, due.ref, (await self._message(due))[1], self._stage.now())
        elif not due.row and due.place != self._stage.inbox:
            # Where they read alone nothing may be taken any more: a workspace is lost.
            await self._show(replace(due, place=self._stage.inbox))
        elif due.row:
            await self._failed(due, str(error) or "it did not answer")
        return True

    async def _failed(self, due: _Due, why: str = "") -> None:
        """Give a row up, and tell the owner why."""
        stage, now = self._stage, self._stage.now()

        def work(tx: Tx) -> None:
            tx.run(
                "delivery_failed",
                tenant=stage.tenant,
                subject=due.subject,
                destination=due.place,
                part=1,
                now=now,
            )
            if why:
                title, cause = "A message could not be delivered", f"undelivered:{due.place}"
                text = f"In {due.place}: {why} It said: {due.text or 'see /inbox ' + due.prompt}"
                answers.notify(tx, stage.tenant, now, cause, title, text)

        await stage.store.write(work)
        self._sending.discard((due.subject, due.place))


def _due_row(row: Row) -> _Due:
    payload = loads(row["payload"])
    return _Due(
        after=(row["created_at"], row["id"]),
        subject=row["subject"],
        place=row["destination"],
        session=row["session_id"],
        created_at=row["created_at"],
        prompt=str(payload.get("prompt", "")),
        text=str(payload.get("text", "")),
        file=str(payload.get("file", "")),
        row=True,
    )
