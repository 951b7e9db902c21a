"""Posts to Discord, edits, uploads, finds and reads back.

A long text is several messages: its ref is the first one's, and the others are found again by the
nonces they were posted under, which Discord enforces for some minutes. It shows nonces only to
whoever listens, so that nothing was posted under a delivery can never be told surely.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import discord

from bot.render.discord import render, render_open
from bot.surfaces import discord_cards
from bot.surfaces.base import Line, Message, SurfaceError
from bot.surfaces.discord_places import Place, Spot, at_of, id_at
from bot.surfaces.discord_rest import QUIET, Rest, RestError
from bot.surfaces.pacing import WORDS, Pacing, rank_of
from engine.canonical import clean, digest

__all__ = ["Posts"]

_MESSAGES = "/channels/{channel_id}/messages"
_ONE = f"{_MESSAGES}/{{message_id}}"
_TYPING = "/channels/{channel_id}/typing"

#: Message flags: no previews of links; the message is made of components.
#: https://discord.com/developers/docs/resources/message#message-object-message-flags
_NO_PREVIEWS, _OF_COMPONENTS = 1 << 2, 1 << 15
#: Kinds of messages that say something: usual, reply, answer to a command, start of a thread.
_SAYING, _STARTER = frozenset({0, 19, 20, 21}), 21
#: Error codes: no such channel, no such message, not allowed, the thread is there already.
_NO_CHANNEL, _NO_MESSAGE, _NOT_ALLOWED, _IS_THERE = 10003, 10008, 50013, 160004

#: Characters of a nonce, and of a thread's name.
NONCE, NAME = 25, 100
#: Minutes without a word after which a thread leaves the list; it opens again by itself.
_ARCHIVE = 4320
#: Files of one message.
FILES = 10
#: Messages of a page, and pages that are read.
PAGE, PAGES = 100, 5
#: Deliveries, long messages and names that are remembered.
REMEMBERED = 2000

_USER = re.compile(r"<@!?(\d+)>")

K = TypeVar("K")
V = TypeVar("V")

Body = dict[str, Any]

_NO_THREAD = (
    "I answer in a thread, and may not open one here. My role needs Create Public Threads and Send "
    "Messages in Threads; then mention me again."
)


@dataclass(frozen=True, slots=True)
class _Part:
    """One of the messages a text was posted as."""

    id: str
    #: Hash of what it shows.
    shown: str


class Posts:
    """Nod's messages on Discord. Everything may raise SurfaceError."""

    def __init__(self, rest: Rest, me: Callable[[], str]) -> None:
        """`me` returns Nod's own user id."""
        self._rest = rest
        self._asked = partial(rest.call, yields=True)
        self._me = me
        self._pacing = Pacing()
        self._parts: OrderedDict[str, list[_Part]] = OrderedDict()
        #: nonce -> ref, of what was seen being posted.
        self._nonces: OrderedDict[str, str] = OrderedDict()
        #: message id -> what a thread that begins there is called.
        self._names: OrderedDict[str, str] = OrderedDict()

    async def close(self) -> None:
        """Drop the edits that wait for room."""
        await self._pacing.close()

    def heard(self, nonce: str, ref: str) -> None:
        """Take note of a message of Nod's own that was seen in its channel."""
        _remember(self._nonces, nonce, ref)

    def named(self, message: str, text: str) -> None:
        """Take note of what a thread is called that may begin at this message."""
        _remember(self._names, message, text)

    # -- out

    async def post(
        self, place: Place, message: Message, delivery: str, files: Sequence[Path] = ()
    ) -> str:
        """Post a message, with files, and return its ref."""
        if len(files) > FILES:
            raise SurfaceError(f"Discord takes {FILES} files at once.", "Send fewer.")
        bodies = _bodies(message, discord_cards.mark_of(delivery), bool(files))
        parts: list[_Part] = []

        async def send() -> None:
            for number in range(len(parts), len(bodies)):
                nonce = _nonce(place.posts_in, delivery, number)
                held = () if number else files
                parts.append(await self._send(place, bodies[number], nonce, held))

        await self._pacing.send(place.posts_in, rank_of(message), send, holds=not files)
        ref = str(Spot(channel=place.posts_in, message=parts[0].id))
        _remember(self._parts, ref, parts)
        return ref

    async def edit(self, ref: str, message: Message) -> None:
        """Replace what a message shows; it becomes more messages, or fewer, as it needs."""
        spot = Spot.parse(ref)
        await self._pacing.show(spot.channel, ref, message, partial(self._edit, spot, ref))

    async def _edit(self, spot: Spot, ref: str, message: Message) -> None:
        bodies = _bodies(message, 0, with_files=False)
        known = self._parts.get(ref) or [_Part(spot.message, "")]
        place = Place(guild="", channel=spot.channel)
        now: list[_Part] = []
        for number, body in enumerate(bodies):
            if number < len(known):
                now.append(await self._rewrite(spot.channel, known[number], body))
            else:
                nonce = _nonce(spot.channel, ref, number)
                now.append(await self._send(place, body, nonce, ()))
            _remember(self._parts, ref, [*now, *known[len(now) :]])
        for part in known[len(bodies) :]:
            await self._delete(spot.channel, part.id)
        _remember(self._parts, ref, now)

    async def erase(self, spot: Spot) -> bool:
        """Delete what a person wrote; False: Discord does not let Nod."""
        try:
            await self._delete(spot.channel, spot.message)
        except RestError:
            return False
        return True

    async def typing(self, place: Place) -> None:
        """Show that Nod writes; fades after ten seconds."""

        async def show() -> None:
            await self._asked("POST", _TYPING, {"channel_id": place.posts_in})

        await self._pacing.sign(place.posts_in, lambda: self._in_thread(place, show))

    async def reply(self, spot: Spot, text: str) -> None:
        """Say something to the author of a message, below it."""
        await self._pacing.send(spot.channel, WORDS, lambda: self._reply(spot, text))

    async def _reply(self, spot: Spot, text: str) -> None:
        for number, piece in enumerate(render(clean(text))):
            body = {**_content(piece), "nonce": _nonce(spot.channel, f"reply/{spot}", number)}
            body["message_reference"] = {"message_id": spot.message, "fail_if_not_exists": False}
            await self._create(spot.channel, {**body, "enforce_nonce": True})

    async def tell(self, user: str, text: str, delivery: str) -> None:
        """Say something to a person in their direct messages."""
        opened = await self._rest.call(
            "POST", "/users/@me/channels", {}, body={"recipient_id": user}
        )
        place = Place(guild="@me", channel=str(opened["id"]))
        await self.post(place, Message(text=text), delivery)

    # -- back

    async def history(self, place: Place, since: float) -> list[Line]:
        """Return what was written there since then, the newest of it, oldest first."""
        return [_line(each, self._me()) for each in await self.messages(place, since)]

    async def messages(self, place: Place, since: float) -> list[Mapping[str, Any]]:
        """Return the messages that were written there since then, as Discord tells them."""
        found: dict[str, Mapping[str, Any]] = {}
        query: dict[str, Any] = {"limit": PAGE}
        first = id_at(since)
        for _ in range(PAGES):
            page = await self._page(place, query)
            found |= {each["id"]: each for each in map(_started, page)}
            if len(page) < PAGE or int(page[-1]["id"]) < first:
                break
            query["before"] = page[-1]["id"]
        said = [each for each in found.values() if each["type"] in _SAYING]
        return sorted((m for m in said if int(m["id"]) >= first), key=lambda m: int(m["id"]))

    async def find(self, place: Place, delivery: str) -> str | None:
        """Return the ref of what was posted under the delivery; None: nobody can tell."""
        nonce = _nonce(place.posts_in, delivery, 0)
        if nonce in self._nonces:
            return self._nonces[nonce]
        mark = discord_cards.mark_of(delivery)
        for each in await self._page(place, {"limit": PAGE}):
            marks = {part.get("id") for part in each.get("components", ())}
            own = str(each["author"]["id"]) == self._me()
            if own and (str(each.get("nonce")) == nonce or mark in marks):
                return str(Spot(channel=place.posts_in, message=each["id"]))
        return None

    async def _page(self, place: Place, query: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        try:
            page = await self._rest.call(
                "GET", _MESSAGES, {"channel_id": place.posts_in}, query=query
            )
        except RestError as error:
            if error.code == _NO_CHANNEL and place.thread:
                return []  # the thread is not there yet
            raise
        return list(page)

    # -- one message

    async def _send(self, place: Place, body: Body, nonce: str, files: Sequence[Path]) -> _Part:
        sent = {**body, "nonce": nonce, "enforce_nonce": True}

        async def send() -> Mapping[str, Any]:
            return await self._create(place.posts_in, sent, files)

        made = await self._in_thread(place, send)
        self.heard(nonce, str(Spot(channel=place.posts_in, message=made["id"])))
        part = _Part(made["id"], _hash(body))
        if "content" in body and made.get("content", "") != body["content"]:
            return await self._rewrite(place.posts_in, _Part(part.id, ""), body)
        return part

    async def _create(
        self, channel: str, body: Body, files: Sequence[Path] = ()
    ) -> Mapping[str, Any]:
        """Make a message, or get the one that was made under its nonce before."""
        held = await asyncio.to_thread(_opened, files)
        if held:
            named = [{"id": n, "filename": file.filename} for n, file in enumerate(held)]
            body = {**body, "attachments": named}
        try:
            made: Mapping[str, Any] = await self._asked(
                "POST", _MESSAGES, {"channel_id": channel}, body=body, files=held
            )
        finally:
            for file in held:
                file.close()
        return made

    async def _rewrite(self, channel: str, part: _Part, body: Body) -> _Part:
        shown = _hash(body)
        if part.shown != shown:
            ids = {"channel_id": channel, "message_id": part.id}
            await self._asked("PATCH", _ONE, ids, body=body)
        return _Part(part.id, shown)

    async def _delete(self, channel: str, message: str) -> None:
        try:
            await self._asked("DELETE", _ONE, {"channel_id": channel, "message_id": message})
        except RestError as error:
            if error.code != _NO_MESSAGE:
                raise

    # -- threads

    async def _in_thread(self, place: Place, act: Callable[[], Any]) -> Any:
        """Act in a place; a thread that is not there yet is opened at its message."""
        try:
            return await act()
        except RestError as error:
            if error.code != _NO_CHANNEL or not place.thread:
                raise
        await self._open(place)
        return await act()

    async def _open(self, place: Place) -> None:
        name = self._names.get(place.thread) or await self._begun(place)
        body = {"name": _thread_name(name), "auto_archive_duration": _ARCHIVE}
        ids = {"channel_id": place.channel, "message_id": place.thread}
        try:
            await self._asked("POST", f"{_ONE}/threads", ids, body=body)
        except RestError as error:
            if error.code == _IS_THERE:
                return
            if error.code == _NOT_ALLOWED:
                await self._reply(Spot(channel=place.channel, message=place.thread), _NO_THREAD)
            raise

    async def _begun(self, place: Place) -> str:
        """Return the text of the message at which a thread begins."""
        ids = {"channel_id": place.channel, "message_id": place.thread}
        return str((await self._rest.call("GET", _ONE, ids)).get("content", ""))


def _bodies(message: Message, mark: int, with_files: bool) -> list[Body]:
    """Return what a message is posted as, one body for each of Discord's messages."""
    if message.card is not None:
        shown = discord_cards.components(message.card, message.text, message.footer, mark)
        return [{"components": shown, "flags": _OF_COMPONENTS, "allowed_mentions": QUIET}]
    written = render_open if message.growing else render
    pieces = written(clean(message.text))
    if message.footer:
        foot = f"-# {' '.join(render(clean(message.footer)))}".replace("\n", " ")[:400]
        if pieces and len(pieces[-1]) + len(foot) < 2000:
            pieces[-1] = f"{pieces[-1]}\n{foot}"
        else:
            pieces.append(foot)
    if not pieces and not with_files:
        raise SurfaceError("There is nothing to be seen in this message.", "Write some words.")
    return [_content(piece) for piece in pieces or [""]]


def _content(piece: str) -> Body:
    return {"content": piece, "flags": _NO_PREVIEWS, "allowed_mentions": QUIET}


def _nonce(channel: str, delivery: str, part: int) -> str:
    return digest(f"{channel}\0{delivery}\0{part}")[:NONCE]


def _hash(body: Body) -> str:
    return digest(repr((body.get("content"), body.get("components"))))


def _opened(files: Sequence[Path]) -> list[discord.File]:
    held: list[discord.File] = []
    try:
        held.extend(discord.File(path, path.name) for path in files)
    except OSError as error:
        for file in held:
            file.close()
        raise SurfaceError(f"{error.filename} cannot be read: {error.strerror}.") from error
    return held


def _thread_name(text: str) -> str:
    first = next((line.strip() for line in clean(text).splitlines() if line.strip()), "")
    return first[:NAME].strip() or "Nod"


def _started(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A thread's own start only points at the message it began at: return that."""
    if message["type"] != _STARTER:
        return message
    return message.get("referenced_message") or message


def _line(message: Mapping[str, Any], me: str) -> Line:
    author = message["author"]
    own = str(author["id"]) == me
    names = {each["id"]: each for each in message.get("mentions", ())}
    said = _USER.sub(
        lambda found: f"@{_name(names.get(found[1], {}), found[1])}", message["content"]
    )
    texts = [said, *_texts(message.get("components", ()))]
    texts += [f"[file] {each['filename']}" for each in message.get("attachments", ())]
    return Line(
        ref=str(Spot(channel=str(message["channel_id"]), message=message["id"])),
        at=at_of(message["id"]),
        by="" if own else _name(author, author["id"]),
        text="\n".join(each for each in texts if each),
        author="" if own else str(author["id"]),
    )


def _name(user: Mapping[str, Any], otherwise: str) -> str:
    return str(user.get("global_name") or user.get("username") or otherwise)


def _texts(components: Sequence[Mapping[str, Any]]) -> list[str]:
    found = []
    for each in components:
        found += [str(each["content"])] if "content" in each else []
        found += _texts(each.get("components", ()))
    return found


def _remember(memory: OrderedDict[K, V], key: K, value: V) -> None:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > REMEMBERED:
        memory.popitem(last=False)
