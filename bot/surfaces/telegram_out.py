"""Sends and edits messages of one bot: rich first, then HTML, then plain; nothing sent twice.

What is remembered here only spares calls: a ref alone is enough to edit a message.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from telegram import (
    InputFile,
    InputMediaDocument,
    InputMediaPhoto,
    LinkPreviewOptions,
    ReplyParameters,
)

from bot.outbound.outbox import DUPLICATE
from bot.places import Move, MovedAway
from bot.surfaces.base import Message, SurfaceError
from bot.surfaces.pacing import CARD, WORDS, Pacing, rank_of
from bot.surfaces.telegram_line import RAW_EDIT, UPLOAD, Line, Moved, NoSuchMethod, Refused
from bot.surfaces.telegram_places import Place, Post, moving
from bot.surfaces.telegram_words import CAPTION, Look, looks

__all__ = ["Sender"]

#: Messages that are remembered, and deliveries that were begun.
REMEMBERED, BEGUN = 2_000, 500
#: Seconds between two edits of a growing answer in a group: 20 messages a minute, edits
#: included: https://core.telegram.org/bots/faq#my-bot-is-hitting-limits-how-do-i-avoid-this
GROUP_PACE = 3.5
#: Files of one album; bytes of a picture that is shown as one.
ALBUM, PICTURE = 10, 10_000_000
_PICTURES = (".png", ".jpg", ".jpeg", ".webp")

T = TypeVar("T")

_log = logging.getLogger(__name__)

_NO_PREVIEW = LinkPreviewOptions(is_disabled=True)


@dataclass(slots=True)
class _Sent:
    """The messages a ref stands for, and how each looks now."""

    ids: list[int]
    shown: list[Look] = field(default_factory=list)


class Sender:
    """Everything one bot posts.

    Args:
        moved: told of a group that has a new id, before its sender is.
    """

    def __init__(self, line: Line, moved: Callable[[Move], Awaitable[None]]) -> None:
        self._line = line
        self._moved = moved
        self._pacing = Pacing()
        #: The server knows rich messages, as far as is known.
        self._rich = True
        self._sent: OrderedDict[str, _Sent] = OrderedDict()
        self._begun: OrderedDict[str, list[int]] = OrderedDict()
        self._drafts: OrderedDict[str, None] = OrderedDict()
        self._grown: dict[int, float] = {}

    # -- what a surface does

    async def post(self, place: Place, message: Message, delivery: str) -> str:
        """Post a message and return its ref; a growing answer in a private chat is a draft."""
        if message.growing and place.is_private:
            number = int.from_bytes(hashlib.sha256(delivery.encode()).digest()[:4]) >> 1 or 1
            post = Post(bot=place.bot, chat=place.chat, draft=number, topic=place.topic)
            _remember(self._drafts, str(post), None, REMEMBERED)
            await self._draft(post, message)
            return str(post)
        return self._known(place, await self._sent_whole(place, message, delivery))

    async def close(self) -> None:
        """Drop the edits that wait for room."""
        await self._pacing.close()

    async def _sent_whole(self, place: Place, message: Message, delivery: str) -> _Sent:
        return await self._pacing.send(
            place.chat, rank_of(message), lambda: self._post(place, message, delivery)
        )

    async def edit(self, ref: str, message: Message) -> None:
        """Bring what a ref stands for to how `message` looks; what looks so already is left."""
        post = Post.parse(ref)
        if post.draft and ref not in self._sent:
            await self._settle(post, ref, message)
            return
        if message.growing and self._is_too_soon(post.chat):
            return
        await self._pacing.show(post.chat, ref, message, partial(self._edit, post, ref))

    async def _edit(self, post: Post, ref: str, message: Message) -> None:
        sent = self._sent.get(ref) or _Sent(ids=[post.message])
        _remember(self._sent, ref, sent, REMEMBERED)
        place = Place(bot=post.bot, chat=post.chat, topic=post.topic)
        await self._show(place, sent, message)

    async def upload(
        self, place: Place, files: Sequence[Path], message: Message, delivery: str
    ) -> str:
        """Post files with the message as caption, or before them when it is too long for one."""
        sizes = await asyncio.to_thread(lambda: [each.stat().st_size for each in files])
        for file, size in zip(files, sizes, strict=True):
            if not 0 < size <= UPLOAD:
                what = "is empty" if not size else f"is over {UPLOAD // 1_000_000} MB"
                raise SurfaceError(f"{file.name} {what}: Telegram does not take it from a bot.")
        pictures = all(
            file.suffix.lower() in _PICTURES and size <= PICTURE
            for file, size in zip(files, sizes, strict=True)
        )
        work = partial(self._upload, place, files, message, delivery, pictures)
        return await self._pacing.send(place.chat, WORDS, work, holds=False)

    async def _upload(
        self, place: Place, files: Sequence[Path], message: Message, delivery: str, pictures: bool
    ) -> str:
        """Post what was not posted before it broke off: the text, then album after album."""
        shown = looks(message, is_rich=False, limit=CAPTION) if _says(message) else []
        caption = shown[0] if len(shown) == 1 and message.card is None else None
        text, begun = f"{delivery}#text", self._begun.get(delivery)
        if shown and caption is None and begun is None:
            await self._post(place, message, text)
        begun = begun or []
        _remember(self._begun, delivery, begun, BEGUN)
        for at in range(0, len(files), ALBUM):
            if at // ALBUM >= len(begun):
                part = files[at : at + ALBUM]
                begun.append(await self._files(place, part, caption if not at else None, pictures))
        self._begun.pop(delivery, None)
        return self._known(place, _Sent(ids=[begun[0]]))

    async def erase(self, post: Post) -> bool:
        """Delete what a person wrote; False: Telegram does not let the bot."""
        try:
            await self._in(
                post.chat, lambda: self._line.bot.delete_message(post.chat, post.message)
            )
        except Refused:
            return False
        return True

    async def typing(self, place: Place) -> None:
        """Show that Nod is at work, for five seconds or until the next message."""
        bot = self._line.bot

        async def show(at: Place) -> None:
            await bot.send_chat_action(at.chat, "typing", message_thread_id=at.thread)

        await self._pacing.sign(place.chat, lambda: self._call(place, show))

    async def seen(self, chat: int, message: int) -> None:
        """Show that a message was taken."""
        bot, told = self._line.bot, self._line.told
        await self._pacing.sign(
            chat, lambda: told(lambda: bot.set_message_reaction(chat, message, "👀"))
        )

    async def ask(self, place: Place, to: int, text: str) -> None:
        """Post `text` (HTML) as a reply to a message, with the reply field open for an answer."""

        async def send(at: Place) -> None:
            await self._line.bot.send_message(
                at.chat,
                text,
                parse_mode="HTML",
                message_thread_id=at.thread,
                link_preview_options=_NO_PREVIEW,
                reply_parameters=_reply(to),
                api_kwargs={"reply_markup": {"force_reply": True, "selective": True}},
            )

        await self._pacing.send(place.chat, CARD, lambda: self._call(place, send))

    # -- posting

    def _known(self, place: Place, sent: _Sent) -> str:
        ref = str(Post(bot=place.bot, chat=place.chat, message=sent.ids[0]))
        _remember(self._sent, ref, sent, REMEMBERED)
        return ref

    async def _post(self, place: Place, message: Message, delivery: str) -> _Sent:
        """Post all parts; a delivery that broke off between two goes on after the last."""
        sent = _Sent(ids=self._begun.pop(delivery, []))
        try:
            await self._show(place, sent, message)
        except BaseException:
            if sent.ids:
                _remember(self._begun, delivery, sent.ids, BEGUN)
            raise
        return sent

    async def _show(self, place: Place, sent: _Sent, message: Message) -> None:
        """Edit the messages that are there, post those that are missing, delete those too many."""
        shown = looks(message, is_rich=self._rich)
        if message.growing:
            shown = shown[:1]
        try:
            await self._show_looks(place, sent, shown)
        except (NoSuchMethod, Refused) as error:
            if not (shown[0].rich and _is_about_looks(error)):
                raise
            if isinstance(error, NoSuchMethod):
                self._rich = False  # until the next start
            _log.info("no rich message: %s", error.what)
            plain = looks(message, is_rich=False)
            await self._show_looks(place, sent, plain[:1] if message.growing else plain)

    async def _show_looks(self, place: Place, sent: _Sent, shown: Sequence[Look]) -> None:
        for number, look in enumerate(shown):
            if number >= len(sent.ids):
                sent.ids.append(await self._send(place, look))
            elif number >= len(sent.shown) or sent.shown[number] != look:
                await self._change(place.chat, sent.ids[number], look)
            sent.shown[number : number + 1] = [look]
        while len(sent.ids) > len(shown):
            await self._delete(place.chat, sent.ids.pop())
            del sent.shown[len(shown) :]

    async def _send(self, place: Place, look: Look) -> int:
        """Send one message and return its number."""
        bot, kwargs = self._line.bot, _markup(look)

        async def rich(at: Place) -> int:
            given = {
                "chat_id": at.chat,
                "rich_message": {"html": look.rich, "skip_entity_detection": True},
                "message_thread_id": at.thread,
                "reply_parameters": _reply(at.root).to_dict() if at.root else None,
                "reply_markup": look.keyboard,
            }
            made = await bot.do_api_request(
                "sendRichMessage",
                api_kwargs={name: value for name, value in given.items() if value is not None},
            )
            return int(made["message_id"])

        async def text(at: Place, words: str, mode: str | None) -> int:
            made = await bot.send_message(
                at.chat,
                words,
                parse_mode=mode,
                message_thread_id=at.thread,
                link_preview_options=_NO_PREVIEW,
                reply_parameters=_reply(at.root) if at.root else None,
                api_kwargs=kwargs,
            )
            return made.message_id

        if look.rich:
            return await self._call(place, rich)
        try:
            return await self._call(place, lambda at: text(at, look.html, "HTML"))
        except Refused as error:
            if not _is_unparsed(error):
                raise
            _log.warning("HTML refused, sent plain: %s", error.what)
            return await self._call(place, lambda at: text(at, look.plain, None))

    async def _change(self, chat: int, number: int, look: Look) -> None:
        """Edit one message; without a keyboard it loses its buttons."""
        bot, kwargs = self._line.bot, _markup(look)

        async def text(words: str, mode: str | None) -> None:
            await bot.edit_message_text(
                words,
                chat_id=chat,
                message_id=number,
                parse_mode=mode,
                link_preview_options=_NO_PREVIEW,
                api_kwargs=kwargs,
            )

        async def rich() -> None:
            given: dict[str, Any] = {
                "chat_id": chat,
                "message_id": number,
                "rich_message": {"html": look.rich, "skip_entity_detection": True},
            }
            await self._line.bot.do_api_request(RAW_EDIT, api_kwargs={**given, **(kwargs or {})})

        try:
            if look.rich:
                await self._in(chat, rich)
            else:
                await self._in(chat, lambda: text(look.html, "HTML"))
        except Refused as error:
            if "message is not modified" in error.what.lower():
                return
            if look.rich or not _is_unparsed(error):
                raise
            await self._in(chat, lambda: text(look.plain, None))

    async def _delete(self, chat: int, number: int) -> None:
        try:
            await self._in(chat, lambda: self._line.bot.delete_message(chat, number))
        except Refused as error:
            _log.info("a message that is no longer needed stays: %s", error.what)

    # -- growing answers

    def _is_too_soon(self, chat: int) -> bool:
        """Say whether a group had an edit just now: the next one will hold this one's text too."""
        now = asyncio.get_running_loop().time()
        if chat < 0 and now - self._grown.get(chat, -GROUP_PACE) < GROUP_PACE:
            return True
        if len(self._grown) > REMEMBERED:
            self._grown.clear()
        self._grown[chat] = now
        return False

    async def _draft(self, post: Post, message: Message) -> None:
        """Show a preview that fades by itself after 30 seconds."""
        place = Place(bot=post.bot, chat=post.chat, topic=post.topic)
        shown = looks(message, is_rich=self._rich)[0]
        bot = self._line.bot
        try:
            if shown.rich:
                given = {
                    "chat_id": place.chat,
                    "draft_id": post.draft,
                    "rich_message": {"html": shown.rich, "skip_entity_detection": True},
                    "message_thread_id": place.thread,
                }
                given = {name: value for name, value in given.items() if value is not None}
                await self._preview(
                    place, lambda: bot.do_api_request("sendRichMessageDraft", api_kwargs=given)
                )
            else:
                await self._preview(
                    place,
                    lambda: bot.send_message_draft(
                        place.chat,
                        post.draft,
                        shown.html,
                        message_thread_id=place.thread,
                        parse_mode="HTML",
                    ),
                )
        except NoSuchMethod:
            if not shown.rich:
                raise
            self._rich = False
            await self._draft(post, message)
        except Refused as error:
            _log.info("no draft: %s", error.what)  # only a preview: the answer itself follows

    async def _preview(self, place: Place, work: Callable[[], Awaitable[object]]) -> None:
        await self._pacing.sign(place.chat, lambda: self._line.told(work))

    async def _settle(self, post: Post, ref: str, message: Message) -> None:
        """Show more of a draft, or post the whole in its place."""
        if message.growing:
            await self._draft(post, message)
            return
        if ref not in self._drafts:  # an earlier run may have posted it and not stored that
            message = replace(message, footer=message.footer or DUPLICATE)
        place = Place(bot=post.bot, chat=post.chat, topic=post.topic)
        sent = await self._sent_whole(place, message, ref)
        _remember(self._sent, ref, sent, REMEMBERED)
        self._drafts.pop(ref, None)

    # -- files

    async def _files(
        self, place: Place, files: Sequence[Path], caption: Look | None, pictures: bool
    ) -> int:
        try:
            return await self._album(place, files, caption, "HTML", pictures)
        except Refused as error:
            if caption is not None and _is_unparsed(error):
                plain = replace(caption, html=caption.plain)
                return await self._album(place, files, plain, None, pictures)
            if pictures and _is_about_picture(error):
                return await self._files(place, files, caption, False)
            raise

    async def _album(
        self,
        place: Place,
        files: Sequence[Path],
        caption: Look | None,
        mode: str | None,
        pictures: bool,
    ) -> int:
        bot, words = self._line.bot, caption.html if caption else None

        async def send(at: Place) -> int:
            reply = _reply(at.root) if at.root else None
            with ExitStack() as stack:
                held = [
                    InputFile(
                        stack.enter_context(each.open("rb")),
                        filename=each.name,
                        attach=len(files) > 1,
                        read_file_handle=False,
                    )
                    for each in files
                ]
                if len(held) > 1:
                    kind = InputMediaPhoto if pictures else InputMediaDocument
                    media = [
                        kind(each, caption=None if n else words, parse_mode=None if n else mode)
                        for n, each in enumerate(held)
                    ]
                    made = await bot.send_media_group(
                        at.chat, media, message_thread_id=at.thread, reply_parameters=reply
                    )
                    return made[0].message_id
                sending = bot.send_photo if pictures else bot.send_document
                one = await sending(
                    at.chat,
                    held[0],
                    caption=words,
                    parse_mode=mode,
                    message_thread_id=at.thread,
                    reply_parameters=reply,
                )
                return int(one.message_id)

        return await self._call(place, send)

    # -- calls

    async def _call(self, place: Place, work: Callable[[Place], Awaitable[T]]) -> T:
        """Do it in the place. Raises MovedAway when the group is another one now."""
        return await self._in(place.chat, lambda: work(place))

    async def _in(self, chat: int, work: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self._line.told(work)
        except Moved as error:
            move = moving(self._line.id, chat, error.chat)
        await self._moved(move)
        raise MovedAway(move)


def _markup(look: Look) -> dict[str, Any] | None:
    return {"reply_markup": look.keyboard} if look.keyboard else None


def _says(message: Message) -> bool:
    return bool(message.text or message.card or message.footer)


def _remember(kept: OrderedDict[str, Any], key: str, value: Any, most: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)


def _reply(to: int) -> ReplyParameters:
    """Reply to a message, or stand alone when it is gone."""
    return ReplyParameters(message_id=to, allow_sending_without_reply=True)


def _is_unparsed(error: SurfaceError) -> bool:
    return "can't parse" in error.what.lower()  # the library writes the first letter large


def _is_about_looks(error: SurfaceError) -> bool:
    """Say whether another form of the same message may be taken."""
    about = ("chat not found", "message thread not found", "message to edit", "not enough rights")
    told = error.what.lower()
    return not (
        any(each in told for each in about) or "forbidden" in told or "blocked" in told
    ) and not isinstance(error, Moved)


def _is_about_picture(error: SurfaceError) -> bool:
    return any(each in error.what.lower() for each in ("photo_", "image_process"))
