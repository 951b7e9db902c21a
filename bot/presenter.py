"""The presenter: keeps a follower on every session that moves, and shows what no log tells of.

The bus only shortens the wait and carries deltas; what must be shown is a query over the store
(`seq > presented`, prompts without a card, open delivery rows), asked at start and now and then.
One task per session, so a slow thread holds no other back; it ends when nothing happens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

from bot.follower import Follower
from bot.outbox import Shown, fingerprint
from bot.stage import Stage
from bot.surfaces.base import Message, SurfaceError
from engine import inbox, people
from engine.canonical import loads
from engine.errors import NodError
from engine.events import TRANSPORT, Bus, Event, Kind
from engine.inbox import Prompt
from engine.store.base import Row, Tx

__all__ = ["Presenter"]

#: Seconds after which an idle session is no longer followed, and between looks at the store.
IDLE, SWEEP = 60.0, 30.0
#: Sessions taken up at once after a start, rows at one look, messages on their way.
RECOVER, LOOK, POSTING = 500, 100, 64
#: Seconds the next few hundred wait for the ones before.
PATIENCE = 5.0
#: Seconds before a failed post is tried again, doubled each time; tries before the next look.
RETRY_FIRST, RETRY_MOST, TRIES = 1.0, 60.0, 6

_log = logging.getLogger(__name__)

_FAILURES = (SurfaceError, TimeoutError, NodError, OSError)


class Presenter:
    """Shows what happens; an async context manager that works while it is entered."""

    def __init__(self, stage: Stage, bus: Bus, *, idle: float = IDLE) -> None:
        self._stage = stage
        self._bus = bus
        self._idle = idle
        self._followers: dict[str, Follower] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._poked = asyncio.Event()
        self._posting = asyncio.Semaphore(POSTING)
        self._started = stage.now()

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

    def _own(self, work: Awaitable[None], name: str) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def poke(self) -> None:
        """Hint that something outside the logs waits to be shown. Never waits."""
        self._poked.set()

    async def caught_up(self, session: str, seq: int) -> None:
        """Wait until everything up to `seq` of the session's log was shown."""
        while (follower := self._follow(session)).seen < seq:
            follower.handled.clear()
            follower.wake.set()
            await follower.handled.wait()

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
            except _FAILURES as error:
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
                await self._show_prompts()
                await self._redraw_prompts()
                await self._show_rows()
            except _FAILURES as error:
                _log.warning("looking for what to show failed: %s", error)
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
                follower.wake.set()
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

    async def _show_prompts(self) -> None:
        """Show the cards of prompts that no log tells of: access, grants, notices."""
        for prompt, place in await self._stage.store.read(self._unshown):
            message = self._stage.card([prompt], place, {})
            doubt, subject = prompt.created_at < self._started, f"prompt:{prompt.id}"
            taken = await self._try(prompt.session or "", subject, place, message, "", doubt)
            if not taken and not prompt.session and place != self._stage.inbox:
                # Where they read alone nothing may be taken any more: a workspace is lost.
                inbox_card = self._stage.card([prompt], self._stage.inbox, {})
                await self._try("", subject, self._stage.inbox, inbox_card, "", doubt)

    def _unshown(self, tx: Tx) -> list[tuple[Prompt, str]]:
        rows = tx.all("prompts_unshown", tenant=self._stage.tenant, limit=LOOK)
        return [(prompt, self._home(tx, prompt)) for prompt in map(inbox.prompt_from, rows)]

    def _home(self, tx: Tx, prompt: Prompt) -> str:
        row = tx.one("session_get", id=prompt.session) if prompt.session else None
        if row is not None:
            return str(row["home"])
        return self._stage.private(tx, people.CONSOLE) or self._stage.inbox

    async def _redraw_prompts(self) -> None:
        """Bring the cards of no session to their decided form, by whomever it was decided."""

        def look(tx: Tx) -> tuple[list[Row], dict[str, str]]:
            rows = list(tx.all("prompts_stale", tenant=self._stage.tenant, limit=LOOK))
            return rows, self._stage.names(tx, [inbox.prompt_from(row) for row in rows])

        rows, names = await self._stage.store.read(look)
        for row in rows:
            prompt, place = inbox.prompt_from(row), row["destination"]
            message = self._stage.card([prompt], place, names)
            if row["shown"] != fingerprint(message):
                await self._try("", f"prompt:{prompt.id}", place, message, row["ref"], False)

    async def _show_rows(self) -> None:
        """Show delivery rows that carry what they show: reminders, cards handed over, charts."""
        for row in await self._stage.outbox.waiting(LOOK):
            payload = loads(row["payload"])
            message = Message(text=str(payload.get("text", "")))
            if "prompt" in payload:
                asked = partial(self._stage.asked, ids=[payload["prompt"]])
                prompts, names = await self._stage.store.read(asked)
                message = self._stage.card(prompts, row["destination"], names)
            doubt = row["created_at"] < self._started
            file = self._stage.data / payload["file"] if "file" in payload else None
            await self._try(
                row["session_id"], row["subject"], row["destination"], message, "", doubt, file
            )

    async def _try(
        self,
        session: str,
        subject: str,
        place: str,
        message: Message,
        ref: str,
        doubt: bool,
        file: Path | None = None,
    ) -> bool:
        """Show it, or leave it to the next look; False: the place surely takes nothing."""
        outbox = self._stage.outbox
        try:
            if ref:
                await outbox.update(place, ref, message)
            elif file is not None and await asyncio.to_thread(file.exists):
                ref = await outbox.upload(place, [file], message, subject, doubt=doubt)
            else:
                ref = await outbox.show(place, message, subject, doubt=doubt)
        except _FAILURES as error:
            _log.warning("showing %s in %s failed: %s", subject, place, error)
            if isinstance(error, SurfaceError):
                return not error.certain or error.retry_after is not None
            return True
        shown = Shown(
            session=session,
            subject=subject,
            destination=place,
            ref=ref,
            shown=fingerprint(message),
        )
        await self._stage.store.write(lambda tx: outbox.record(tx, shown))
        return True


def _pause(error: BaseException, failures: int) -> float:
    asked = error.retry_after if isinstance(error, SurfaceError) else None
    return min(RETRY_MOST, asked or RETRY_FIRST * 2 ** (failures - 1))
