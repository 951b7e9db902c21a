"""The intake: takes what comes in, once, and decides whose it is: one transaction an event.

Known already? Who is it, and may they? Which session? Does the line answer a card, stop the turn,
or is it a message? When `take` returns, the outcome is durable and the event may be acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from bot import cards, pairing
from bot.commands.table import Context, run
from bot.inbound import answers, edits, pressing, receiving, routing, watching
from bot.inbound.answers import House
from bot.inbound.completing import Completing, History, Unfinished
from bot.inbound.hearing import Ear
from bot.inbound.quarantine import Quarantine
from bot.markup import defused, plain
from bot.surfaces.base import (
    Commanded,
    Edited,
    Inbound,
    Pressed,
    Receipt,
    Said,
)
from bot.web.counts import Counts
from engine import inbox, people, sessions
from engine.canonical import dumps
from engine.errors import NodError, PromptError, SessionError, StoreError
from engine.inbox import Person, Prompt
from engine.schedule import digests
from engine.sessions import Post, Session
from engine.store.base import Store, Tx
from engine.targets import ThreadTarget

__all__ = ["Intake"]

#: A whole message that says one of these stops the turn.
STOP_WORDS = frozenset({"stop", "halt", "cancel"})
#: Prompts that a line can answer; the others take buttons only.
BY_TEXT = frozenset({"approval", "plan", "grant", "question"})

#: Characters of one message; the rest belongs into a file.
TEXT_LIMIT = 200_000
#: Messages of somebody unknown that wait for the owner's word.
UNKNOWN_LIMIT = 5

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Done:
    """What a transaction led to."""

    status: str
    text: str = ""
    session: str | None = None
    moved: list[str] = field(default_factory=list)
    #: The message is stored, and not whole yet.
    unfinished: Unfinished | None = None
    #: The clock has something to do sooner than it knew.
    sooner: bool = False


class Intake:
    """Takes events from every surface. `take` is what a surface is started with."""

    def __init__(
        self,
        *,
        store: Store,
        house: House,
        context: Context,
        key: bytes,
        enqueue: Callable[[str], None],
        poke: Callable[[], None],
        history: History,
        ear: Ear,
        counts: Counts,
        zone: str = "UTC",
        file_limit: int = 20_000_000,
        door: Callable[[Inbound], Awaitable[Inbound | Receipt]] | None = None,
    ) -> None:
        """`enqueue` and `poke` are the hints to the dispatcher and the presenter.

        `context` is what commands get, without the person and thread; `file_limit` is in bytes;
        `history` reads a thread of any surface, from a time on; `door` looks at an event first,
        and returns it as it may go on, or what became of it.
        """
        self._store = store
        self._house = house
        self._context = context
        self._key = key
        self._enqueue = enqueue
        self._poke = poke
        self._zone = ZoneInfo(zone)
        self._file_limit = file_limit
        self._counts = counts
        self._quarantine = Quarantine(store, house)
        self._door = door
        self._nudged = asyncio.Event()
        self._retrying: asyncio.Task[None] | None = None
        self.completing = Completing(
            store=store,
            house=house,
            ear=ear,
            history=history,
            enqueue=enqueue,
            poke=poke,
            file_limit=file_limit,
        )

    async def __aenter__(self) -> Intake:
        await self.completing.__aenter__()
        self._nudged.set()
        self._retrying = asyncio.create_task(self._retry(), name="quarantine")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._retrying is not None:
            self._retrying.cancel()
            await asyncio.gather(self._retrying, return_exceptions=True)
        await self.completing.__aexit__()

    def nudge(self) -> None:
        """Hint that a card was answered: an event in quarantine may be tried again."""
        self._nudged.set()

    async def _retry(self) -> None:
        while True:
            await self._nudged.wait()
            self._nudged.clear()
            try:
                for event in await self._quarantine.again():
                    await self.take(event)
            except NodError as error:
                _log.warning("what is held could not be tried again: %s", error)

    async def take(self, event: Inbound) -> Receipt:
        """Take one event; its outcome is durable when this returns.

        Raises StoreError when it could not be stored, and whatever else went wrong with it, until
        it has failed three times: then it is held for the owner. What raises must not be
        acknowledged.
        """
        surface = event.target.partition(":")[0]
        try:
            receipt = await self._take(event)
            await self._quarantine.succeeded(_key(event))
        except StoreError:
            raise
        except Exception as error:  # broad: it is counted, and held or raised again
            _log.exception("an event of %s failed", surface)
            if not await self._quarantine.failed(event, _key(event), error):
                raise
            self._poke()
            receipt = Receipt(status="held")
        self._counts.add("nod_events_total", surface=surface, status=receipt.status)
        return receipt

    async def _take(self, event: Inbound) -> Receipt:
        if self._door is not None:
            looked = await self._door(event)
            if isinstance(looked, Receipt):
                return looked
            event = looked
        if isinstance(event, Commanded):
            return await self._command(event)
        if isinstance(event, Said) and event.overheard and not await self._is_watched(event):
            return Receipt(status="ignored")
        try:
            done = await self._store.write(lambda tx: self._one(tx, event))
        except (PromptError, SessionError) as error:
            return Receipt(status="refused", text=str(error))
        if done.unfinished is not None:
            self.completing.begin(done.unfinished)
        for session in done.moved:
            self._enqueue(session)
        if done.sooner or done.status not in ("accepted", "ignored"):
            self._poke()
        return Receipt(status=done.status, session=done.session, text=done.text)

    def _one(self, tx: Tx, event: Said | Pressed | Edited) -> _Done:
        if tx.one("mail_seen", tenant=self._house.tenant, key=_key(event)) is not None:
            return _Done("duplicate")
        if isinstance(event, Pressed):
            return self._press(tx, event)
        return self._edit(tx, event) if isinstance(event, Edited) else self._said(tx, event)

    # -- what every event goes through

    def _note(
        self,
        tx: Tx,
        event: Inbound,
        kind: str,
        by: str,
        session: str | None = None,
        place: str | None = None,
    ) -> None:
        """Remember an event that enters no session, so that its second copy is known."""
        tx.run(
            "mail_noted",
            tenant=self._house.tenant,
            session=session,
            kind=kind,
            key=_key(event),
            target=event.target if place is None else place,
            by=by,
            now=self._house.now(),
        )

    def _person(self, tx: Tx, event: Inbound) -> Person | None:
        platform = ThreadTarget.parse(event.target).surface
        person = people.person_of(tx, self._house.tenant, platform, event.person.id)
        return None if person is None or person.role == "guest" else person

    # -- commands and presses

    async def _command(self, event: Commanded) -> Receipt:
        person = await self._store.write(lambda tx: self._noted_command(tx, event))
        if person is None:
            return Receipt(status="duplicate")
        if person.role == "guest":
            return await self._unmet(event)
        zone = event.person.zone
        context = self._context.of(person, event.target, beside=event.beside, profile_zone=zone)
        try:
            text = await run(context, event.name, event.arguments)
        except NodError as error:
            return Receipt(status="refused", text=str(error))
        except Exception:  # noqa: BLE001  # broad: a command is run once, so its failure is told
            _log.exception("the command %s failed", event.name)
            return Receipt(status="refused", text=_FAILED)
        return Receipt(status="commanded", text=text)

    async def _unmet(self, event: Commanded) -> Receipt:
        """Answer a command of somebody unknown; the owner is asked once, as about a message."""
        house, platform = self._house, ThreadTarget.parse(event.target).surface
        name = plain(event.person.name)[:80] or event.person.id

        def ask(tx: Tx) -> str:
            if pairing.closed(tx, house.tenant, platform):
                return _CLOSED
            who = event.person.id
            asked, _ = answers.ask_access(tx, house, platform, who, name, event.target)
            return _STRANGER if asked is not None else _UNMET

        text = await self._store.write(ask)
        self._poke()
        return Receipt(status="refused", text=text)

    def _noted_command(self, tx: Tx, event: Commanded) -> Person | None:
        if tx.one("mail_seen", tenant=self._house.tenant, key=_key(event)) is not None:
            return None
        person = self._person(tx, event) or Person(id="", role="guest", name=event.person.name)
        self._note(tx, event, "command", person.id)
        return person

    def _press(self, tx: Tx, event: Pressed) -> _Done:
        person = self._person(tx, event)
        if person is None:
            return _Done("refused", _NOT_YOURS)
        press = cards.read_token(event.token, self._key)
        pressed = pressing.meant(tx, press, person, event, self._house.now())
        if pressed.text:
            return _Done("answered", pressed.text)
        first = pressed.answers[0][0]
        self._note(tx, event, "press", person.id, first.session)
        done = _Done("answered", "", first.session)
        for prompt, answer in pressed.answers:
            pressing.add_ref(tx, prompt, event, self._house.now())
            one = self._answer(tx, prompt, answer, person, event)
            done.moved += one.moved
            done.text = done.text or one.text
        return done

    def _answer(
        self, tx: Tx, prompt: Prompt, answer: Mapping[str, Any], person: Person, event: Inbound
    ) -> _Done:
        surface = ThreadTarget.parse(event.target).surface
        resolution, moved = answers.take(tx, self._house, prompt, answer, person, surface)
        text = ""
        if resolution.status == "already":
            late = (resolution.prompt.answer or {}).get("silence")
            first = "Too late" if late else "Already decided"
            text = f"{first}. {self._decision(tx, resolution.prompt)}."
        elif resolution.status == "voted":
            text = f"Your vote counts: {resolution.votes} of {prompt.needs}."
        return _Done("answered", text, prompt.session, moved)

    def _decision(self, tx: Tx, prompt: Prompt) -> str:
        person = people.get(tx, self._house.tenant, prompt.resolved_by)
        name = person.name if person else prompt.resolved_by
        return cards.decision(prompt, lambda _: name, self._zone)

    # -- what somebody says

    def _said(self, tx: Tx, said: Said) -> _Done:
        if said.overheard:
            return self._watched(tx, said)
        if len(said.text) > TEXT_LIMIT:
            text = f"{len(said.text):,} characters are too many for one message ({TEXT_LIMIT:,})."
            return _Done("refused", f"{text} Send it as a file.")
        now = self._house.now()
        if said.direct and pairing.looks_like_code(said.text):
            owner = pairing.redeem(tx, self._house.tenant, said, now)
            if owner is not None:
                self._note(tx, said, "paired", owner.id)
                digests.begin(tx, self._house.tenant, owner.id, self._zone.key, now)
                return _Done("answered", _PAIRED)
        person = self._person(tx, said)
        if person is None:
            return self._stranger(tx, said)
        if said.direct:
            surface = ThreadTarget.parse(said.target).surface
            people.seen_at(tx, self._house.tenant, surface, said.person.id, said.target, now)
        way = routing.route(tx, self._house, said)
        if way.nobodys:
            return self._watched(tx, said)
        if way.session is None:
            return self._opened(tx, said, person, way.text)
        done = self._machine(tx, said, person, way.session) if said.bot else None
        if not said.bot:
            done = self._stop(tx, said, person, way.session)
            done = done or self._text(tx, said, person, way.session)
        return done or self._posted(tx, said, person, way.session)

    async def _is_watched(self, said: Said) -> bool:
        return await self._store.read(lambda tx: watching.is_watched(tx, self._house, said))

    def _watched(self, tx: Tx, said: Said) -> _Done:
        """A line nobody addressed to Nod: its channel may be watched."""
        kept, sooner = watching.take(tx, self._house, said)
        if kept:  # under no place: it stands in no session's thread
            self._note(tx, said, "watched", "", place="")
        return _Done("ignored", sooner=sooner)

    def _opened(self, tx: Tx, said: Said, person: Person, text: str) -> _Done:
        """A message opens a session, which owns its thread from now on."""
        found = self._house.open(tx, said.target, person.id, self._house.now())
        done = self._posted(tx, said, person, sessions.get(tx, found), opened=not said.direct)
        done.text = "\n".join(part for part in (text, done.text) if part)
        return done

    def _posted(
        self, tx: Tx, said: Said, person: Person, session: Session, *, opened: bool = False
    ) -> _Done:
        wanted, told = receiving.refusals(said.files, self._file_limit)
        stamp, words = self._stamp(person, said), defused(said.text)
        late = receiving.announced(wanted)
        body = {
            "message": {
                "role": "user",
                "content": receiving.content(words, stamp, (), [*late, *told]),
            },
            "source": _source(said),
        }
        key = _key(said)
        sessions.post(
            tx, session, Post(kind="message", key=key, by=person.id, body=body), self._house.now()
        )
        if not session.title and said.text.strip():
            tx.run("session_rename", id=session.id, title=plain(said.text.strip())[:80])
        done = _Done("accepted", "\n".join(told), session.id)
        if wanted or opened:
            done.unfinished = Unfinished(
                said=said,
                session=session.id,
                key=key,
                by=person.id,
                stamp=stamp,
                files=wanted,
                told=told,
                earlier=opened,
            )
        else:
            done.moved.append(session.id)
        return done

    def _machine(self, tx: Tx, said: Said, person: Person, session: Session) -> _Done | None:
        """A machine's line never stops or answers; several in a row are not listened to."""
        if routing.hops(tx, session) < routing.HOPS:
            return None
        self._note(tx, said, "hop", person.id, session.id)
        return _Done("ignored")

    def _stop(self, tx: Tx, said: Said, person: Person, session: Session) -> _Done | None:
        if said.text.strip().casefold() not in STOP_WORDS or not _may_steer(person, session):
            return None
        mail = Post(kind="stop", key=_key(said), by=person.id, body={"reason": "stopped"})
        sessions.post(tx, session, mail, self._house.now())
        return _Done("answered", "", session.id, [session.id])

    def _text(self, tx: Tx, said: Said, person: Person, session: Session) -> _Done | None:
        """Take the line as an answer, when it is one."""
        if said.files or not said.text.strip():
            return None
        open_cards = inbox.choices(self._open_for(tx, said, person, session))
        if not open_cards:
            return None
        group = next(iter(open_cards.values()))
        # An offered folder is turned down by the next line, which is a message all the same.
        offer = len(open_cards) == 1 and all("root" in prompt.payload for prompt in group)
        if not offer:
            self._note(tx, said, "answer", person.id, session.id)
        if len(open_cards) > 1:
            titles = [
                f"- {p[0].payload.get('title') or p[0].kind} (`/inbox {p[0].id}`)"
                for p in open_cards.values()
            ]
            ask = "Several cards are open here. Which one do you mean? Answer with its buttons or "
            return _Done("refused", f"{ask}`/answer ID …`.\n" + "\n".join(titles), session.id)
        done = _Done("answered", "", session.id)
        for prompt in group:
            answer = cards.text_answer(prompt, plain(said.text.strip()))
            one = self._answer(tx, prompt, answer, person, said)
            done.moved += one.moved
            done.text = done.text or one.text
        return None if offer else done

    def _open_for(self, tx: Tx, said: Said, person: Person, session: Session) -> list[Prompt]:
        """Return the open prompts this line may answer."""
        prompts = self._replied(tx, said)
        meant = said.addressed or said.direct or routing.alone(tx, session, person)
        if meant and not prompts:
            prompts = inbox.pending_in(tx, session.id)
        return [
            prompt
            for prompt in prompts
            if prompt.kind in BY_TEXT
            and "budget" not in prompt.payload
            and inbox.may_answer(prompt, person)
        ]

    def _replied(self, tx: Tx, said: Said) -> list[Prompt]:
        """Return what is still open of the card this line is a reply to."""
        if not said.reply_to:
            return []
        rows = tx.all("delivery_by_ref", tenant=self._house.tenant, ref=said.reply_to)
        found = [inbox.get(tx, row["subject"].removeprefix("prompt:")) for row in rows]
        return [prompt for prompt in found if prompt.status == "pending"]

    def _edit(self, tx: Tx, edited: Edited) -> _Done:
        key = f"{ThreadTarget.parse(edited.target).surface}:{edited.original}"
        row = tx.one("mail_of_event", tenant=self._house.tenant, key=key)
        person = self._person(tx, edited)
        if row is None or person is None or row["kind"] != "message":
            return _Done("ignored")
        if row["session_id"] is None or row["principal_id"] != person.id:
            return _Done("ignored")
        moved = edits.rewrite(tx, edited, row, person, _key(edited), self._house.now())
        self._note(tx, edited, "edit", person.id, row["session_id"])
        return _Done("accepted", "", row["session_id"], [moved] if moved else [])

    def _stranger(self, tx: Tx, said: Said) -> _Done:
        """Somebody unknown: the owner is asked once, and the message waits for the answer."""
        tenant, platform = self._house.tenant, ThreadTarget.parse(said.target).surface
        waiting = answers.waiting_as(platform, said.person.id)
        self._note_unknown(tx, said, waiting)
        if not (said.addressed or said.direct):
            return self._watched(tx, said)
        if pairing.closed(tx, tenant, platform):
            told = tx.one("mail_by", tenant=tenant, by=waiting) is not None
            self._note(tx, said, "closed", waiting)
            return _Done("refused", "" if told or said.bot else _CLOSED)
        name = plain(said.person.name)[:80] or said.person.id
        asked, new = answers.ask_access(
            tx, self._house, platform, said.person.id, name, said.target
        )
        held = tx.all("mail_unrouted", tenant=tenant, waiting=waiting)
        if asked is None or len(held) >= UNKNOWN_LIMIT:
            return _Done("refused")  # dismissed, or too many already: no second polite line
        stamp = self._stamp(Person(id=waiting, role="guest", name=name), said)
        told_of = [f"{plain(each.name)} was not taken: ask for it again" for each in said.files]
        words = receiving.content(defused(said.text), stamp, (), told_of)
        body = {"message": {"role": "user", "content": words}, "source": _source(said)}
        tx.run(
            "mail_add",
            tenant=tenant,
            session=None,
            kind="message",
            key=_key(said),
            target=said.target,
            by=waiting,
            body=dumps(body),
            now=self._house.now(),
        )
        return _Done("waiting", _STRANGER if new and not said.bot else "")

    def _note_unknown(self, tx: Tx, said: Said, waiting: str) -> None:
        """Note that somebody unknown wrote in a session's thread: nobody is alone there now."""
        session = sessions.find_thread(tx, self._house.tenant, said.target)
        if session is not None:
            tx.run(
                "mail_noted",
                tenant=self._house.tenant,
                session=session,
                kind="unknown",
                key=f"unknown:{session}",
                target=said.target,
                by=waiting,
                now=self._house.now(),
            )

    def _stamp(self, person: Person, said: Said) -> str:
        """Return what is true only now: the time, who speaks, and whether to Nod.

        The mention itself is an address and was left out of the words.
        """
        at = datetime.fromtimestamp(self._house.now(), self._zone)
        name = defused(plain(person.name)).replace("\n", " ")
        when = f"{at:%A %Y-%m-%d %H:%M} {self._zone.key}"
        whom = "speaks to you" if said.addressed or said.direct else "speaks in the thread"
        named = [f"; {defused(plain(name))} is {target}" for name, target in said.places.items()]
        return f"<nod-context>{when}; {name} {whom}{''.join(named)}</nod-context>"


_STRANGER = "We have not met yet. I have asked my owner; I answer as soon as they say yes."
_UNMET = "We have not met, so I take no commands from you."
_CLOSED = "I am not set up here yet: my owner has to pair with me first."
_FAILED = "Something went wrong with that, and the log says more. Try it again."
_PAIRED = "We are paired: you are my owner here, and what needs your nod comes to this place."
_NOT_YOURS = "We have not met, so this is not yours to answer."


def _key(event: Inbound) -> str:
    """Return the mailbox key of an event: the platform, and its id there."""
    return f"{ThreadTarget.parse(event.target).surface}:{event.event}"


def _source(said: Said) -> dict[str, Any]:
    """Return where a message came from, and how much of its content are the person's words."""
    source = {"target": said.target, "event": said.event, "length": len(defused(said.text))}
    return {**source, "bot": True} if said.bot else source


def _may_steer(person: Person, session: Session) -> bool:
    return person.id == session.owner or person.role in ("operator", "owner")
