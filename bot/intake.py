"""The intake: takes what comes in, once, and decides whose it is: one transaction an event.

Known already? Who is it, and may they? Which session? Does the line answer a card, stop the turn,
or is it a message? When `take` returns, the outcome is durable and the event may be acknowledged.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from bot import answers, cards, edits
from bot.answers import House
from bot.commands import Context, run
from bot.markup import defused, plain
from bot.surfaces.base import (
    Attachment,
    Commanded,
    Edited,
    Inbound,
    Pressed,
    Receipt,
    Said,
    SurfaceError,
)
from engine import inbox, people, sessions
from engine.canonical import digest, dumps
from engine.errors import NodError, PromptError, SessionError
from engine.inbox import Person, Prompt
from engine.sessions import Post, Session, files_of
from engine.store.base import Store, Tx
from engine.targets import ThreadTarget

__all__ = ["Intake"]

#: A whole message that says one of these stops the turn.
STOP_WORDS = frozenset({"stop", "halt", "cancel"})
#: Prompts that a line can answer; the others take buttons only.
BY_TEXT = frozenset({"approval", "plan", "grant", "question"})

#: Characters of one message; the rest belongs into a file.
TEXT_LIMIT = 200_000
#: Files of one message, and bytes of those the model is shown, not only told of.
FILES, INLINE = 10, 5_000_000
#: Seconds one file may take to come.
FETCH_TIMEOUT = 60.0
#: Messages of somebody unknown that wait for the owner's word.
UNKNOWN_LIMIT = 5

_SHOWN_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A file that came in and lies in the spool."""

    name: str
    media_type: str
    path: Path
    #: data: URL of what the model is shown; empty: it is told of the file only.
    url: str = ""


@dataclass(slots=True)
class _Done:
    """What a transaction led to."""

    status: str
    text: str = ""
    session: str | None = None
    moved: list[str] = field(default_factory=list)


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
        zone: str = "UTC",
        file_limit: int = 20_000_000,
    ) -> None:
        """`enqueue` and `poke` are the hints to the dispatcher and the presenter.

        `context` is what commands get, without the person and thread; `file_limit` is in bytes.
        """
        self._store = store
        self._house = house
        self._context = context
        self._key = key
        self._enqueue = enqueue
        self._poke = poke
        self._zone = ZoneInfo(zone)
        self._file_limit = file_limit

    async def take(self, event: Inbound) -> Receipt:
        """Take one event; its outcome is durable when this returns.

        Raises StoreError when it could not be stored: then the event must not be acknowledged.
        """
        if isinstance(event, Commanded):
            return await self._command(event)
        try:
            if isinstance(event, Pressed):
                pressed = event
                done = await self._store.write(lambda tx: self._press(tx, pressed))
            elif isinstance(event, Edited):
                edited = event
                done = await self._store.write(lambda tx: self._edit(tx, edited))
            else:
                done = await self._say(event)
        except (PromptError, SessionError) as error:
            return Receipt(status="refused", text=str(error))
        for session in done.moved:
            self._enqueue(session)
        if done.status != "accepted":
            self._poke()
        return Receipt(status=done.status, session=done.session, text=done.text)

    # -- what every event goes through

    def _known(self, tx: Tx, event: Inbound) -> bool:
        return tx.one("mail_seen", tenant=self._house.tenant, key=_key(event)) is not None

    def _note(self, tx: Tx, event: Inbound, kind: str, by: str, session: str | None = None) -> None:
        """Remember an event that enters no session, so that its second copy is known."""
        tx.run(
            "mail_noted",
            tenant=self._house.tenant,
            session=session,
            kind=kind,
            key=_key(event),
            target=event.target,
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
            return Receipt(status="refused", text=_STRANGER)
        context = self._context.of(person, event.target)
        try:
            text = await run(context, event.name, event.arguments)
        except NodError as error:
            return Receipt(status="refused", text=str(error))
        return Receipt(status="commanded", text=text)

    def _noted_command(self, tx: Tx, event: Commanded) -> Person | None:
        if self._known(tx, event):
            return None
        person = self._person(tx, event) or Person(id="", role="guest", name=event.person.name)
        self._note(tx, event, "command", person.id)
        return person

    def _press(self, tx: Tx, event: Pressed) -> _Done:
        if self._known(tx, event):
            return _Done("duplicate")
        person = self._person(tx, event)
        if person is None:
            return _Done("refused", _STRANGER)
        press = cards.read_token(event.token, self._key)
        prompt = inbox.get(tx, press.prompt)
        if cards.mark_of(prompt) != press.mark:
            raise PromptError("What this card shows has changed.", "Answer on the newest card.")
        self._note(tx, event, "press", person.id, prompt.session)
        self._add_ref(tx, prompt, event)
        now = self._house.now()
        answer = cards.answer_of(prompt, press.answer, now, event.text, event.arguments)
        return self._answer(tx, prompt, answer, person, event)

    def _add_ref(self, tx: Tx, prompt: Prompt, event: Pressed) -> None:
        """The message a press came from shows the prompt: it too is edited when it is decided."""
        if not event.ref:
            return
        subject = f"prompt:{prompt.id}"
        rows = tx.all("deliveries_of", tenant=self._house.tenant, subject=subject)
        if any(row["ref"] == event.ref for row in rows):
            return
        part = 1 + sum(row["destination"] == event.target for row in rows)
        tx.run(
            "delivery_ref_add",
            id=f"{prompt.id}-{len(rows)}",
            tenant=self._house.tenant,
            session=prompt.session or "",
            subject=subject,
            destination=event.target,
            part=part,
            ref=event.ref,
            now=self._house.now(),
        )

    def _answer(
        self, tx: Tx, prompt: Prompt, answer: Mapping[str, Any], person: Person, event: Inbound
    ) -> _Done:
        surface = ThreadTarget.parse(event.target).surface
        resolution, moved = answers.take(tx, self._house, prompt, answer, person, surface)
        text = ""
        if resolution.status == "already":
            text = f"Already decided. {self._decision(tx, resolution.prompt)}."
        elif resolution.status == "voted":
            text = f"Your vote counts: {resolution.votes} of {prompt.needs}."
        return _Done("answered", text, prompt.session, moved)

    def _decision(self, tx: Tx, prompt: Prompt) -> str:
        person = people.get(tx, self._house.tenant, prompt.resolved_by)
        name = person.name if person else prompt.resolved_by
        return cards.decision(prompt, lambda _: name, self._zone)

    # -- what somebody says

    async def _say(self, said: Said) -> _Done:
        files: list[_File] = []
        told: list[str] = []
        if said.files:
            welcome = await self._store.read(lambda tx: self._may_send(tx, said))
            files, told = await self._fetch(said) if welcome else ([], [])
        try:
            return await self._store.write(lambda tx: self._said(tx, said, files, told))
        finally:
            if said.files:
                await asyncio.to_thread(shutil.rmtree, self._spool(said), ignore_errors=True)

    def _may_send(self, tx: Tx, said: Said) -> bool:
        return not self._known(tx, said) and self._person(tx, said) is not None

    def _said(self, tx: Tx, said: Said, files: Sequence[_File], told: Sequence[str]) -> _Done:
        if self._known(tx, said):
            return _Done("duplicate")
        if len(said.text) > TEXT_LIMIT:
            text = f"{len(said.text):,} characters are too many for one message ({TEXT_LIMIT:,})."
            return _Done("refused", f"{text} Send it as a file.")
        person = self._person(tx, said)
        if person is None:
            return self._stranger(tx, said)
        found = sessions.find_thread(tx, self._house.tenant, said.target)
        if found is not None:
            session = sessions.get(tx, found)
            done = self._stop(tx, said, person, session) or self._text(tx, said, person, session)
            if done is not None:
                return done
        now = self._house.now()
        if found is None:
            found = self._house.open(tx, said.target, person.id, now)
        session = sessions.get(tx, found)
        placed = [_place(file, files_of(self._house.data, session.id) / "in") for file in files]
        body = {
            "message": {"role": "user", "content": self._content(said, person, placed, told)},
            "source": _source(said),
        }
        mail = Post(kind="message", key=_key(said), by=person.id, body=body)
        sessions.post(tx, session, mail, now)
        if not session.title and said.text.strip():
            tx.run("session_rename", id=session.id, title=plain(said.text.strip())[:80])
        return _Done("accepted", "\n".join(told), session.id, [session.id])

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
        if said.reply_to:
            rows = tx.all("delivery_by_ref", tenant=self._house.tenant, ref=said.reply_to)
            prompts = [inbox.get(tx, row["subject"].removeprefix("prompt:")) for row in rows]
        elif said.addressed:
            prompts = inbox.pending_in(tx, session.id)
        else:
            prompts = []
        return [
            prompt
            for prompt in prompts
            if prompt.status == "pending"
            and prompt.kind in BY_TEXT
            and inbox.may_answer(prompt, person)
        ]

    def _edit(self, tx: Tx, edited: Edited) -> _Done:
        if self._known(tx, edited):
            return _Done("duplicate")
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
        platform = ThreadTarget.parse(said.target).surface
        name = plain(said.person.name)[:80] or said.person.id
        asked = answers.ask_access(tx, self._house, platform, said.person.id, name, said.target)
        waiting = answers.waiting_as(platform, said.person.id)
        held = tx.all("mail_unrouted", tenant=self._house.tenant, waiting=waiting)
        subject = f"{platform}:{said.person.id}"
        row = tx.one("prompt_by_subject", tenant=self._house.tenant, kind="access", subject=subject)
        if row is None or row["status"] != "pending" or len(held) >= UNKNOWN_LIMIT:
            return _Done("refused")  # dismissed, or too many already: no second polite line
        stranger = Person(id=waiting, role="guest", name=name)
        body = {
            "message": {"role": "user", "content": self._content(said, stranger, [], [])},
            "source": _source(said),
        }
        tx.run(
            "mail_add",
            tenant=self._house.tenant,
            session=None,
            kind="message",
            key=_key(said),
            target=said.target,
            by=waiting,
            body=dumps(body),
            now=self._house.now(),
        )
        return _Done("waiting", _STRANGER if asked else "")

    # -- what the model reads

    def _content(
        self, said: Said, person: Person, files: Sequence[_File], told: Sequence[str]
    ) -> str | list[dict[str, Any]]:
        """Return the message with what is true only now: the time, and who speaks."""
        lines = [defused(said.text)]
        lines += [f"[file in/{defused(file.name)}, {file.media_type}]" for file in files]
        lines += [f"[{defused(each)}]" for each in told]
        at = datetime.fromtimestamp(self._house.now(), self._zone)
        name = defused(plain(person.name)).replace("\n", " ")
        when = f"{at:%A %Y-%m-%d %H:%M} {self._zone.key}"
        lines.append(f"<nod-context>{when}; {name} speaks</nod-context>")
        text = "\n".join(line for line in lines if line)
        shown = [_attached(file) for file in files if file.url]
        return [{"type": "text", "text": text}, *shown] if shown else text

    # -- files

    def _spool(self, said: Said) -> Path:
        return self._house.data / "spool" / digest(_key(said))[:24]

    async def _fetch(self, said: Said) -> tuple[list[_File], list[str]]:
        """Bring the message's files into the spool; what is not taken is told."""
        files: list[_File] = []
        told = [f"Only the first {FILES} files were taken."] if len(said.files) > FILES else []
        for number, each in enumerate(said.files[:FILES]):
            name = _file_name(each.name, number, {file.name for file in files})
            if each.bytes > self._file_limit:
                limit = self._file_limit // 1_000_000
                told.append(f"{name} was not taken: it is over the limit of {limit} MB.")
                continue
            path = self._spool(said) / name
            try:
                files.append(await self._fetch_one(each, name, path))
            except (SurfaceError, TimeoutError, OSError) as error:
                told.append(f"{name} could not be fetched: {error or 'it took too long'}.")
        return files, told

    async def _fetch_one(self, attachment: Attachment, name: str, path: Path) -> _File:
        await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
        async with asyncio.timeout(FETCH_TIMEOUT):
            await attachment.fetch(path)
        size = (await asyncio.to_thread(path.stat)).st_size
        if size > self._file_limit:  # it was larger than its platform said
            await asyncio.to_thread(path.unlink)
            raise SurfaceError(f"it is over the limit of {self._file_limit // 1_000_000} MB")
        url = ""
        if attachment.media_type in _SHOWN_TYPES and size <= INLINE:
            raw = await asyncio.to_thread(path.read_bytes)
            url = f"data:{attachment.media_type};base64,{base64.b64encode(raw).decode()}"
        return _File(name=name, media_type=attachment.media_type, path=path, url=url)


_STRANGER = "We have not met yet. I have asked my owner; I answer as soon as they say yes."


def _key(event: Inbound) -> str:
    """Return the mailbox key of an event: the platform, and its id there."""
    return f"{ThreadTarget.parse(event.target).surface}:{event.event}"


def _source(said: Said) -> dict[str, Any]:
    """Return where a message came from, and how much of its content are the person's words."""
    return {"target": said.target, "event": said.event, "length": len(defused(said.text))}


def _may_steer(person: Person, session: Session) -> bool:
    return person.id == session.owner or person.role in ("operator", "owner")


def _attached(file: _File) -> dict[str, Any]:
    if file.media_type == "application/pdf":
        return {"type": "file", "file": {"filename": file.name, "file_data": file.url}}
    return {"type": "image_url", "image_url": {"url": file.url}}


def _file_name(name: str, number: int, taken: set[str]) -> str:
    """Return a name that stays in its folder and is none of `taken`."""
    last = plain(name).replace("\\", "/").rsplit("/", 1)[-1].lstrip(".")[:120]
    safe = last.replace("\n", " ") or f"file-{number + 1}"
    return f"{number + 1}-{safe}" if safe in taken else safe


def _place(file: _File, folder: Path) -> _File:
    """Put a file into its session's folder, before the row that names it is durable.

    Linked, not moved: when the transaction is run again, it finds its own file there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target, number = folder / file.name, 1
    while True:
        try:
            os.link(file.path, target)
            break
        except FileExistsError:
            if target.samefile(file.path):
                break
            number += 1
            target = folder / f"{file.path.stem}-{number}{file.path.suffix}"
    return _File(name=target.name, media_type=file.media_type, path=target, url=file.url)
