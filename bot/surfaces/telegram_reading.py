"""Reads updates: what a person said, changed, pressed or commanded, and where.

In a group without topics a message belongs to the reply chain it answers; one that mentions Nod
opens a chain; any other is nobody's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from telegram import CallbackQuery, Chat, Message, MessageEntity, Update, User

from bot.places import Places
from bot.render.measure import units
from bot.surfaces.base import Attachment, Author, Commanded, Edited, Inbound, Line, Pressed, Said
from bot.surfaces.config import Owned
from bot.surfaces.telegram_places import CHAIN, GENERAL, Post, target

__all__ = [
    "ALLOWED",
    "Filled",
    "Migrated",
    "Reader",
    "form",
    "is_joined",
    "lane_of",
    "may_go_on",
]

#: Kinds of updates that are asked for.
ALLOWED = ["message", "edited_message", "callback_query", "my_chat_member"]
#: Units from which on a text may be the beginning of one that the sender's app cut up.
CUT = 4_000
#: Messages kept that somebody answered with a mention, until the session has read them.
QUOTES = 200

Fetch = Callable[[str, int, Path], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """A group became a supergroup."""

    old: int
    new: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """The answer to a form: see `form`."""

    press: Pressed
    #: Names and values, as somebody wrote them.
    text: str


#: Stands in the address of a link in a form, before the token of the button that opened it.
_FORM = "https://t.me/share#nod-form-"


def form(token: str) -> str:
    """Return the address of the link that a form carries: whatever answers it is for the button.

    The server gives a message that is answered back with its links, so nothing is kept meanwhile.
    """
    return f"{_FORM}{token}"


def _token(message: Message) -> str:
    links = [entity.url for entity in message.entities if entity.type == MessageEntity.TEXT_LINK]
    found = [url.removeprefix(_FORM) for url in links if url and url.startswith(_FORM)]
    return found[0] if found else ""


def lane_of(raw: dict[str, Any]) -> str:
    """Return the conversation of a raw update: what is in one is taken in order."""
    for kind in ("message", "edited_message", "my_chat_member"):
        if kind in raw:
            return str(raw[kind]["chat"]["id"])
    query = raw.get("callback_query") or {}
    return str(((query.get("message") or {}).get("chat") or {}).get("id", ""))


def may_go_on(raw: dict[str, Any]) -> bool:
    """Say whether the next message may belong to this one: an album, or a text that was cut."""
    said = raw.get("message") or {}
    return bool(said.get("media_group_id")) or units(str(said.get("text", ""))) >= CUT


def is_joined(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Say whether the message `after` goes on with the one before it."""
    one, two = before.get("message"), after.get("message")
    if not one or not two or one.get("from") != two.get("from"):
        return False
    if one.get("media_group_id") or two.get("media_group_id"):
        return bool(one.get("media_group_id") == two.get("media_group_id"))
    if "reply_to_message" in two and two["reply_to_message"] != one.get("reply_to_message"):
        return False
    entities = two.get("entities") or [{}]
    is_command = entities[0].get("type") == "bot_command" and entities[0].get("offset") == 0
    same = one.get("message_thread_id") == two.get("message_thread_id")
    return same and bool(two.get("text")) and not is_command


class Reader:
    """Reads the updates of one bot."""

    def __init__(
        self,
        me: User,
        places: Places,
        owned: Callable[[str], Awaitable[list[Owned]]],
        fetch: Fetch,
    ) -> None:
        self._me = me
        self._id = str(me.id)
        self._places = places
        self._owned = owned
        self._fetch = fetch
        #: By thread: the message that its first one answered.
        self.quotes: OrderedDict[str, Line] = OrderedDict()

    async def read(self, updates: Sequence[Update]) -> Inbound | Filled | Migrated | None:
        """Return what updates that belong together say; None: nothing for anybody here."""
        first = updates[0]
        if first.callback_query is not None:
            return await self._pressed(first.callback_query)
        if first.edited_message is not None:
            return await self._edited(first.edited_message)
        messages = [update.message for update in updates if update.message is not None]
        return await self._said(messages) if messages else None

    # -- messages

    async def _said(self, messages: Sequence[Message]) -> Inbound | Filled | Migrated | None:
        head = messages[0]
        if head.migrate_to_chat_id is not None:
            return Migrated(old=head.chat.id, new=head.migrate_to_chat_id)
        if head.migrate_from_chat_id is not None:  # told in the new group too, before all else
            return Migrated(old=head.migrate_from_chat_id, new=head.chat.id)
        if not self._is_for_reading(head):
            return None
        person = _author(head)
        if person is None:
            return None
        words = "\n".join(text for each in messages if (text := self._words(each)))
        files = tuple(file for each in messages for file in self._files(each))
        if head.chat.type == Chat.PRIVATE:
            words = _started(head) or words
        command = self._command(head)
        if command == "":
            return None  # it is for another bot
        mentioned = command is not None or any(map(self._is_mentioned, messages))
        place, replied = await self._place(head, mentioned)
        overheard = not place
        place = place or target(self._id, head.chat.id)
        event, direct = self._post(head), head.chat.type == Chat.PRIVATE
        if command is not None:
            beside = place == self._own_chain(head)  # it answers nothing, and opens no chain
            name, _, arguments = command.partition(" ")
            return Commanded(
                event=event,
                target=target(self._id, head.chat.id) if beside else place,
                person=person,
                name=name,
                arguments=arguments.strip(),
                direct=direct,
                beside=beside,
            )
        answered = head.reply_to_message
        if words and answered and _is_from(answered, self._me) and (token := _token(answered)):
            press = Pressed(event=event, target=place, person=person, token=token, ref="")
            return Filled(press=press, text=words)
        if not words and not files:
            return None
        return Said(
            event=event,
            target=place,
            person=person,
            text=words,
            files=files,
            reply_to=replied,
            addressed=direct or mentioned or bool(replied),
            direct=direct,
            bot=_is_bot(head),
            overheard=overheard,
        )

    def _is_for_reading(self, message: Message) -> bool:
        of_me = message.from_user is not None and message.from_user.id == self._me.id
        return (
            message.chat.type in (Chat.PRIVATE, Chat.GROUP, Chat.SUPERGROUP)
            and not of_me
            and not message.is_automatic_forward
        )

    async def _edited(self, message: Message) -> Inbound | None:
        person = _author(message)
        if person is None or _is_bot(message) or not self._is_for_reading(message):
            return None
        post = self._post(message)
        place, _ = await self._place(message, mentioned=True)
        stamp = int(message.edit_date.timestamp()) if message.edit_date else 0
        return Edited(
            event=f"{post}/e{stamp}",
            target=place,
            person=person,
            original=post,
            text=self._words(message),
        )

    async def _pressed(self, query: CallbackQuery) -> Inbound | None:
        message = query.message
        if message is None or not query.data:
            return None
        ref = str(Post(bot=self._id, chat=message.chat.id, message=message.message_id))
        chat = target(self._id, message.chat.id)
        place = await self._places.of("telegram", ref)
        if not place and (now := await self._places.after(chat)):
            place, ref = now, ""  # left behind in a group that moved: it cannot be edited
        person = Author(id=str(query.from_user.id), name=_name(query.from_user))
        return Pressed(
            event=f"{self._id}/press/{query.id}",
            target=place or chat,
            person=person,
            token=query.data,
            ref=ref,
        )

    # -- where it is

    def _post(self, message: Message) -> str:
        return str(Post(bot=self._id, chat=message.chat.id, message=message.message_id))

    async def _place(self, message: Message, mentioned: bool) -> tuple[str, str]:
        """Return the thread_target and the ref of the message of Nod's it answers; both may be
        empty: nobody's, none."""
        replied = message.reply_to_message
        if replied is not None and replied.forum_topic_created is not None:
            replied = None  # every message of a topic answers its beginning
        ours = replied is not None and _is_from(replied, self._me)
        ref = self._post(replied) if replied is not None and ours else ""
        chat, topic = message.chat, message.message_thread_id
        if message.is_topic_message and topic is not None:
            return target(self._id, chat.id, str(topic)), ref
        if chat.type == Chat.PRIVATE:
            return target(self._id, chat.id), ref
        if chat.is_forum:
            return target(self._id, chat.id, str(GENERAL)), ref
        chain = await self._chain(message, replied) if replied is not None else ""
        if not chain and (mentioned or ours):
            chain = self._own_chain(message)
            if replied is not None and not ours:
                self._quote(chain, replied)
        return chain, ref

    def _own_chain(self, message: Message) -> str:
        """Return the reply chain that begins with a message."""
        return target(self._id, message.chat.id, f"{CHAIN}{message.message_id}")

    def _quote(self, chain: str, replied: Message) -> None:
        """Remember what a mention was an answer to: it opens the chain's history."""
        author, text = _author(replied), self._words(replied)
        if author is not None and text:
            self.quotes[chain] = Line(
                ref=self._post(replied),
                at=replied.date.timestamp(),
                by=author.name,
                text=text,
                author=author.id,
            )
            while len(self.quotes) > QUOTES:
                self.quotes.popitem(last=False)

    async def _chain(self, message: Message, replied: Message) -> str:
        """Return the reply chain that a message goes on with; empty: none that is known."""
        group = target(self._id, message.chat.id)
        post = self._post(replied)
        known = await self._places.of("telegram", post)
        if known == group:  # sent to the group as a whole, by a session that is at home elsewhere
            return f"{group}/{CHAIN}{replied.message_id}"
        if known.startswith(f"{group}/"):
            return known
        if message.message_thread_id is not None:  # in a supergroup: the root of the replies
            root = f"{group}/{CHAIN}{message.message_thread_id}"
            if any(each.target == root for each in await self._owned(root)):
                return root
        return ""

    # -- what it says

    def _is_mentioned(self, message: Message) -> bool:
        entities = {**message.parse_entities(), **message.parse_caption_entities()}
        return any(self._is_me(entity, text) for entity, text in entities.items())

    def _is_me(self, entity: MessageEntity, text: str) -> bool:
        if entity.type == MessageEntity.TEXT_MENTION:
            return entity.user is not None and entity.user.id == self._me.id
        return entity.type == MessageEntity.MENTION and text.casefold() == self._handle

    @property
    def _handle(self) -> str:
        return f"@{self._me.username or ''}".casefold()

    def _command(self, message: Message) -> str | None:
        """Return a command with its arguments; None: it is none; empty: it is another bot's."""
        entities, text = message.entities, message.text or ""
        if not entities or entities[0].type != MessageEntity.BOT_COMMAND or entities[0].offset:
            return None
        word, rest = text[: entities[0].length], text[entities[0].length :]
        if rest and not rest[0].isspace():
            return None  # a path
        name, at, bot = word[1:].partition("@")
        if at and f"@{bot}".casefold() != self._handle:
            return ""
        if name == "start":
            return None if rest.strip() and message.chat.type == Chat.PRIVATE else "help"
        return f"{name} {rest.strip()}".strip()

    def _words(self, message: Message) -> str:
        """Return the text, the mention of Nod left out, the address of each link after it."""
        text = message.text or message.caption or ""
        entities = message.entities or message.caption_entities
        raw = text.encode("utf-16-le")
        for entity in sorted(entities, key=lambda each: each.offset, reverse=True):
            start, end = 2 * entity.offset, 2 * (entity.offset + entity.length)
            shown = raw[start:end].decode("utf-16-le", "replace")
            if entity.type == MessageEntity.TEXT_LINK and entity.url and entity.url != shown:
                raw = raw[:end] + f" ({entity.url})".encode("utf-16-le") + raw[end:]
            elif self._is_me(entity, shown):
                raw = raw[:start] + raw[end:].removeprefix(" ".encode("utf-16-le"))
        return raw.decode("utf-16-le", "replace").strip() or _described(message)

    def _files(self, message: Message) -> list[Attachment]:
        return [
            Attachment(
                name=name,
                media_type=media_type,
                bytes=held.file_size or 0,
                voice=voice,
                fetch=partial(self._fetch, held.file_id, held.file_size or 0),
            )
            for held, name, media_type, voice in _held(message)
        ]


def _held(message: Message) -> list[tuple[Any, str, str, bool]]:
    """Return a message's files: (what the library holds, name, media type, is a voice note)."""
    number = message.message_id
    if message.photo:
        return [(message.photo[-1], f"photo-{number}.jpg", "image/jpeg", False)]
    if message.voice:
        return [
            (message.voice, f"voice-{number}.ogg", message.voice.mime_type or "audio/ogg", True)
        ]
    if message.video_note:
        return [(message.video_note, f"video-{number}.mp4", "video/mp4", False)]
    for held, plain in (
        (message.document, "application/octet-stream"),
        (message.video, "video/mp4"),
        (message.audio, "audio/mpeg"),
    ):
        if held is not None:
            kind = held.mime_type or plain
            name = held.file_name or f"file-{number}.{kind.rpartition('/')[2]}"
            return [(held, name, kind, False)]
    return []


def _described(message: Message) -> str:
    """Return in words what has no text: a place, a contact, a poll, a sticker."""
    if message.venue:
        return f"[place: {message.venue.title}, {message.venue.address}]"
    if message.location:
        return f"[location: {message.location.latitude}, {message.location.longitude}]"
    if message.contact:
        name = f"{message.contact.first_name} {message.contact.last_name or ''}".strip()
        return f"[contact: {name}, {message.contact.phone_number}]"
    if message.poll:
        options = "; ".join(each.text for each in message.poll.options)
        return f"[poll: {message.poll.question} ({options})]"
    if message.sticker:
        return f"[sticker: {message.sticker.emoji or 'without emoji'}]"
    return ""


def _started(message: Message) -> str:
    """Return what a link to the bot carries (t.me/bot?start=…), or nothing."""
    word, _, rest = (message.text or "").partition(" ")
    return rest.strip() if word == "/start" else ""


def _is_from(message: Message, user: User) -> bool:
    return message.from_user is not None and message.from_user.id == user.id


def _is_bot(message: Message) -> bool:
    return message.from_user is not None and message.from_user.is_bot and not message.sender_chat


def _author(message: Message) -> Author | None:
    """Return who wrote it; a group or channel may write as itself."""
    if message.sender_chat is not None:
        return Author(id=str(message.sender_chat.id), name=message.sender_chat.title or "a group")
    user = message.from_user
    return None if user is None else Author(id=str(user.id), name=_name(user))


def _name(user: User) -> str:
    return user.full_name or user.username or str(user.id)
