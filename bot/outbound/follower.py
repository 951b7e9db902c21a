"""Follows one session's log and shows it in the session's home, from a durable cursor on.

What was shown, with its ref, is stored together with the cursor. What an earlier run may have
shown is looked up before it is shown again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from bot.inbound import answers
from bot.outbound import showing
from bot.outbound.outbox import TRIED_FOR, Shown, fingerprint, passing
from bot.outbound.showing import Part
from bot.outbound.signing import Sign
from bot.outbound.stage import Stage
from bot.surfaces.base import MORE, Message, SurfaceError
from engine import sessions
from engine.errors import NodError, ToolError
from engine.events import Event, Kind
from engine.inbox import Prompt
from engine.schedule.subscriptions import ORIGIN
from engine.store.base import Row, Tx
from engine.turn.journal import event_from
from engine.turn.project import answer_row

__all__ = ["Follower", "Gone", "Posting"]

#: Facts read from the log at once.
PAGE = 200
#: Messages on their way to one platform.
POSTING = 64
#: All that a thread is told of a card that goes to its person alone.
WAITING = "Waiting for a nod."
#: Facts, and characters of a streamed answer, kept in memory; the log has the rest.
BACKLOG, STREAM = 1_000, 200_000

_log = logging.getLogger(__name__)


class Gone(NodError):
    """The session was deleted."""


class Posting:
    """Bounds the messages on their way to each platform: a slow one holds up no other."""

    def __init__(self) -> None:
        self._by_surface: dict[str, asyncio.Semaphore] = {}

    def to(self, target: str) -> asyncio.Semaphore:
        """Return what a post to a thread_target waits for."""
        surface = target.partition(":")[0]
        return self._by_surface.setdefault(surface, asyncio.Semaphore(POSTING))


class Follower:
    """One session as the presenter sees it. Used by one task; `hear` may be called any time."""

    def __init__(self, session: str, stage: Stage, posting: Posting, started: float) -> None:
        """`started`: when this Nod began to show things (epoch seconds)."""
        self.session = session
        self._started = started
        self.home = ""
        #: Nobody asked: only its last word is shown, and not even that when it has nothing to say.
        self.quiet = False
        #: Last log place that was handled, and the one that is stored as the cursor.
        self.seen = 0
        self.stored = 0
        self.wake = asyncio.Event()
        #: Set whenever something was handled.
        self.handled = asyncio.Event()
        self._stage = stage
        self._posting = posting
        self._facts: list[Event] = []
        #: The newest to-do list that is in no log yet.
        self._early: Event | None = None
        #: The log has facts that did not come over the bus.
        self._behind = True
        #: Facts from this place on are new; those before it may have been shown by an earlier run.
        self._live_from: int | None = None
        self._writes: list[Callable[[Tx], object]] = []
        self._sign = Sign(stage.outbox)
        #: The answer that is being written: where, its text so far, its ref once it is shown.
        self._place = (0, 0)
        self._text = ""
        self._ref = ""
        self._changed = False
        self._show: Mapping[str, Callable[[Part], Awaitable[None]]] = {
            "typing": self._typing,
            "answer": self._answer,
            "text": self._note,
            "progress": self._progress,
            "file": self._file,
            "card": self._card,
            "decided": self._decided,
        }

    # -- hearing of it

    def hear(self, fact: Event) -> None:
        """Take a fact from the bus."""
        if self._live_from is None:
            self._live_from = fact.seq
        if len(self._facts) < BACKLOG:
            self._facts.append(fact)
        else:
            self._behind = True
        if fact.kind is Kind.PROGRESS:
            self._early = None  # what came before it is in it
        self.wake.set()

    def look(self) -> None:
        """Hint that the log may have what did not come over the bus."""
        self._behind = True
        self.wake.set()

    def hear_early(self, progress: Event) -> None:
        """Take a to-do list that is not durable yet: a turn that only reads has no other."""
        self._early = progress
        self.wake.set()

    def hear_delta(self, delta: Event) -> None:
        """Take a piece of an answer from the bus, if the home shows answers while they grow.

        The first ones may come before the home was read, and belong to the answer all the same.
        """
        if (self.home and not self.pace) or self.quiet:
            return
        if self._place != (delta.turn, delta.iteration):
            self._place, self._text, self._ref = (delta.turn, delta.iteration), "", ""
        if len(self._text) < STREAM:
            self._text += delta.body["text"]
            self._changed = True
            self.wake.set()

    def fall_back(self) -> None:
        """After a failure: read the log again, and trust nothing that was on its way."""
        self._behind, self._live_from = True, None
        self._writes.clear()

    @property
    def pace(self) -> float:
        """Seconds between edits of a growing answer; 0: the home does not show it grow."""
        try:
            return self._stage.outbox.surface(self.home).capabilities.edit_every
        except ToolError:
            return 0.0

    # -- going on

    @property
    def at_work(self) -> bool:
        """A sign of work is shown: the turn is open, and waits for nobody."""
        return self._sign.shown

    async def close(self) -> None:
        """Show no sign any more."""
        await self._sign.close()

    async def advance(self) -> None:
        """Show everything that is there, then return. Raises what the surface or store raised."""
        if not self.home:
            await self._begin()
        self.wake.clear()
        while facts := await self._next():
            await self._show_all(facts)
            self.seen = facts[-1].seq
            self.handled.set()
        if self._early is not None and not self.quiet:
            await self._foretell()
        if self._changed and self.pace and not self.quiet:
            await self._grow()
        self.handled.set()

    async def settle(self) -> None:
        """Store the cursor, when facts that show nothing moved it."""
        if self.seen > self.stored:
            await self._flush(self.seen)

    async def _begin(self) -> None:
        row = await self._stage.store.read(lambda tx: tx.one("session_get", id=self.session))
        if row is None:
            raise Gone(f"Session {self.session} is gone.")
        self.seen = self.stored = row["presented"]
        self.home, self.quiet = row["home"], row["origin"] == ORIGIN

    async def _next(self) -> list[Event]:
        """Return the facts after the cursor: from the bus when they join on, else from the log."""
        held = [fact for fact in self._facts if fact.seq > self.seen]
        self._facts = []
        joined = all(fact.seq == self.seen + n for n, fact in enumerate(held, 1))
        if joined and not self._behind:
            return held
        seen, self._behind = self.seen, False
        rows = await self._stage.store.read(
            lambda tx: tx.all("log_page", session=self.session, seq=seen, limit=PAGE)
        )
        self._behind = self._behind or len(rows) == PAGE
        return [event_from(row) for row in rows]

    async def _show_all(self, facts: Sequence[Event]) -> None:
        """Show these, with a sign for as long as something is at work."""
        started = any(f.kind is Kind.TOOL_STARTED and not self._in_doubt(f.seq) for f in facts)
        if started and not self.quiet:
            self._sign.begin(self.home)  # a turn that waited for somebody goes on
        shown = showing.parts(facts)
        for part in showing.last_words(shown) if self.quiet else shown:
            try:
                await self._show[part.kind](part)
            except (SurfaceError, TimeoutError, ToolError) as error:
                since = max(part.facts[0].at, self._started)
                if passing(error) and self._stage.now() - since < TRIED_FOR:
                    raise
                self._give_up(part, error)
            except (NodError, OSError):
                raise
            except Exception as error:  # noqa: BLE001  # broad: it holds up nothing after it
                _log.exception("%s of %s cannot be shown", part.kind, self.session)
                self._give_up(part, SurfaceError(f"It broke ({type(error).__name__})."))
        if any(fact.kind is Kind.TURN_END for fact in facts):
            self._sign.end()
        if self._writes:
            await self._flush(facts[-1].seq)

    def _give_up(self, part: Part, error: Exception) -> None:
        """The thread does not take a message: the owner is told; the log has it all the same."""
        _log.warning("%s takes no %s: %s", self.home, part.kind, error)
        if part.kind in ("typing", "progress", "decided"):
            return
        if part.kind == "answer":
            self._writes.append(partial(self._failed, fact=part.facts[0]))
        why = str(error) or "it did not answer"
        text = f"In {self.home}: {why} Read it with: nod session show {self.session}"
        self._writes.append(
            partial(
                answers.notify,
                tenant=self._stage.tenant,
                now=self._stage.now(),
                cause=f"undelivered:{self.session}",
                title="A message could not be delivered",
                text=text,
            )
        )

    def _failed(self, tx: Tx, fact: Event) -> None:
        """The answer's row, which was there before its post, says that there is none."""
        tx.run(
            "delivery_failed",
            tenant=self._stage.tenant,
            subject=f"answer:{self.session}/{fact.turn}/{fact.iteration}",
            destination=self.home,
            part=1,
            now=self._stage.now(),
        )

    async def _flush(self, cursor: int = 0) -> None:
        """Store what was shown, and how far we came, in one transaction."""
        writes, self._writes = self._writes, []

        def work(tx: Tx) -> None:
            for write in writes:
                write(tx)
            if cursor:
                tx.run("session_presented", id=self.session, seq=cursor)

        if writes or cursor:
            await self._stage.store.write(work)
            self.stored = max(self.stored, cursor)

    # -- what is shown

    async def _typing(self, part: Part) -> None:
        """A sign comes beside the rest: it may take long, or fail."""
        if not self._in_doubt(part.facts[0].seq):
            self._sign.begin(self.home)

    async def _answer(self, part: Part) -> None:
        """The answer replaces what was streamed of it, or is posted."""
        fact, message = part.facts[0], part.message
        subject = f"answer:{self.session}/{fact.turn}/{fact.iteration}"
        if part.final:
            self._sign.end()  # what comes after the answer would stay below it
        if part.final and self._stage.small(self.home):
            message = replace(message, footer=await self._footer(fact))
        streamed = self._place == (fact.turn, fact.iteration)
        ref = self._ref if streamed else ""
        if streamed:
            self._place, self._text, self._ref, self._changed = (0, 0), "", "", False
        if ref:
            await self._flush()
            await self._update(ref, message, [subject])
        else:
            await self._post(message, [subject], fact.seq, look=self.pace > 0)
        if self._sign.shown:  # a post takes it away, and the work goes on
            self._sign.end()
            self._sign.begin(self.home)

    async def _footer(self, fact: Event) -> str:
        row = await self._stage.store.read(
            lambda tx: tx.one(
                "usage_of_turn", session=self.session, turn=fact.turn, iteration=fact.iteration
            )
        )
        assert row is not None, "a sum is always a row"
        return showing.taken(fact, float(row["cost"]), int(row["unpriced"]))

    async def _note(self, part: Part) -> None:
        fact = part.facts[0]
        subject = f"event:{self.session}/{fact.seq}"
        await self._post(part.message, [subject], fact.seq)

    async def _progress(self, part: Part) -> None:
        """One message a turn, edited."""
        subject = f"event:{self.session}/{part.facts[0].turn}.progress"
        await self._post(part.message, [subject], part.facts[0].seq, look=True)

    async def _foretell(self) -> None:
        """Show a list that is not durable yet; when that fails, the log has it soon."""
        early, self._early = self._early, None
        try:
            for part in showing.parts([early] if early else []):
                await self._progress(part)
            await self._flush()
        except (SurfaceError, TimeoutError, ToolError) as error:
            _log.info("progress was not shown early in %s: %s", self.home, error)

    async def _file(self, part: Part) -> None:
        """A file that a call made is uploaded, unless the call itself delivered it."""
        fact = part.facts[0]
        acts = await self._stage.store.read(
            lambda tx: tx.all(
                "deliveries_of_call", session=self.session, prefix=f"act:{fact.call}/%"
            )
        )
        if acts:
            return
        await self._flush()
        subject, doubt = f"event:{self.session}/{fact.seq}", self._in_doubt(fact.seq)
        files = [self._stage.data / fact.body["path"]]
        async with self._posting.to(self.home):
            ref = await self._stage.outbox.upload(
                self.home, files, part.message, subject, doubt=doubt
            )
        self._record([subject], self.home, ref, part.message)

    async def _card(self, part: Part) -> None:
        """Prompts that were asked together are one message."""
        ids = [fact.body["prompt"]["id"] for fact in part.facts]

        def look(tx: Tx) -> tuple[list[Prompt], dict[str, str], str]:
            prompts, names = self._stage.asked(tx, ids)
            return prompts, names, self._stage.aside(tx, self.home, prompts)

        prompts, names, aside = await self._stage.store.read(look)
        subjects, seq = [f"prompt:{prompt}" for prompt in ids], part.facts[0].seq
        if not aside:
            message = self._stage.card(prompts, self.home, names)
            await self._post(message, subjects, seq)
            return
        await self._aside(prompts, names, subjects, seq, aside)
        if self.home.startswith("console:"):  # nobody but the owner reads there
            await self._post(self._stage.card(prompts, self.home, names), subjects, seq)
        elif prompts[0].status == "pending":
            turn = f"event:{self.session}/{prompts[0].turn}.waiting"
            await self._post(Message(text=WAITING), [turn], seq, look=True)

    async def _aside(
        self,
        prompts: Sequence[Prompt],
        names: Mapping[str, str],
        subjects: Sequence[str],
        seq: int,
        place: str,
    ) -> None:
        """Show a card where its person reads alone; who cannot be reached there has an inbox."""
        try:
            message = self._stage.card(prompts, place, names)
            await self._post(message, subjects, seq, place=place)
        except SurfaceError as error:
            if not error.certain or error.retry_after is not None or place == self._stage.inbox:
                raise
            _log.warning("%s takes no card: %s", place, error)
            await self._aside(prompts, names, subjects, seq, self._stage.inbox)

    async def _decided(self, part: Part) -> None:
        """Every message that shows a decided prompt is edited to say so."""
        await self._flush()
        touched = await self._stage.store.read(lambda tx: self._stage.touched(tx, part.facts[0]))
        for group in touched.groups:
            subjects = [f"prompt:{prompt.id}" for prompt in group]
            for (place, ref), shown in touched.places(group).items():
                message = self._stage.card(group, place, touched.names)
                if shown != fingerprint(message):
                    await self._update(ref, message, subjects, place)

    async def _grow(self) -> None:
        """Show the answer so far, then wait as long as the surface's pace asks."""
        self._changed = False
        place, message = self._place, Message(text=self._text + MORE, growing=True)
        subject = f"answer:{self.session}/{place[0]}/{place[1]}"
        if self._ref:
            await self._stage.outbox.update(self.home, self._ref, message)
        elif self._text.strip():
            if place[1] > 1:  # the first answer's row was committed with the turn's start
                await self._stage.store.write(lambda tx: self._open_row(tx, place))
            async with self._posting.to(self.home):
                ref = await self._stage.outbox.show(self.home, message, subject, doubt=False)
            self._record([subject], self.home, ref, message)
            await self._flush()
            if self._place == place:  # the next answer may have begun meanwhile
                self._ref = ref
        await asyncio.sleep(self.pace)

    def _open_row(self, tx: Tx, place: tuple[int, int]) -> None:
        session = sessions.get(tx, self.session)
        answer_row(tx, session, place[0], place[1], self._stage.now())

    # -- posting

    def _in_doubt(self, seq: int) -> bool:
        """Say whether an earlier run may have shown it; what has no place in the log is new."""
        if not seq:
            return False
        return self._live_from is None or seq < self._live_from

    async def _post(
        self,
        message: Message,
        subjects: Sequence[str],
        seq: int,
        look: bool = False,
        place: str = "",
    ) -> None:
        """Show a message under the first subject; in doubt, what is there already is edited.

        `look` says that this run itself may have shown an earlier form of it.
        """
        await self._flush()  # a ref is stored before anything else is posted
        doubt, place = self._in_doubt(seq), place or self.home
        row = await self._row(subjects[0], place) if doubt or look else None
        if row is not None and row["ref"]:
            if row["shown"] != fingerprint(message):
                await self._update(row["ref"], message, subjects, place)
            return
        async with self._posting.to(place):
            ref = await self._stage.outbox.show(place, message, subjects[0], doubt=doubt)
        self._record(subjects, place, ref, message)

    async def _update(
        self, ref: str, message: Message, subjects: Sequence[str], place: str = ""
    ) -> None:
        place = place or self.home
        await self._stage.outbox.update(place, ref, message)
        self._record(subjects, place, ref, message)

    async def _row(self, subject: str, place: str) -> Row | None:
        return await self._stage.store.read(
            lambda tx: tx.one(
                "delivery_get",
                tenant=self._stage.tenant,
                subject=subject,
                destination=place,
                part=1,
            )
        )

    def _record(self, subjects: Sequence[str], place: str, ref: str, message: Message) -> None:
        for subject in subjects:
            shown = Shown(
                session=self.session,
                subject=subject,
                destination=place,
                ref=ref,
                shown=fingerprint(message),
            )
            self._writes.append(partial(self._stage.outbox.record, shown=shown))
