"""Reads what Discord sends: one event in, one inbound value out, or none. Does no I/O."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import discord

from bot.surfaces.base import Attachment, Author, Edited, Said
from bot.surfaces.discord_places import DIRECT, Place, Spot

__all__ = ["author_of", "edited", "place_of", "said", "text_of"]

#: Kinds of messages that people write; all others are Discord's own notes.
#: https://discord.com/developers/docs/resources/message#message-object-message-types
_WRITTEN = frozenset({discord.MessageType.default, discord.MessageType.reply})

_MARK = re.compile(
    r"<(?:@!?(?P<user>\d+)|@&(?P<role>\d+)|#(?P<channel>\d+)|a?:(?P<emoji>\w+):\d+)>"
)

#: Fetches the content of a file.
Fetch = Callable[[discord.Attachment, Path], Awaitable[None]]


def place_of(channel: Any, guild: int | None) -> Place:
    """Return the place of a channel, a thread, or a direct message."""
    if guild is None:
        return Place(guild=DIRECT, channel=str(channel.id))
    if isinstance(channel, discord.Thread):
        return Place(guild=str(guild), channel=str(channel.parent_id), thread=str(channel.id))
    return Place(guild=str(guild), channel=str(channel.id))


def author_of(user: Any) -> Author:
    """Return who a user or member is."""
    return Author(id=str(user.id), name=str(user.display_name))


def said(message: discord.Message, me: int, channel: Any, fetch: Fetch) -> Said | None:
    """Read a message; None: it is Nod's own, or one of Discord's notes.

    What is nobody's line, a machine's or a webhook's, is overheard.

    Args:
        me: Nod's own user id.
        channel: where it stands; a thread knows its parent.
    """
    if message.type not in _WRITTEN or message.author.id == me:
        return None
    guild = message.guild.id if message.guild else None
    place, direct = place_of(channel, guild), guild is None
    hook = message.webhook_id is not None
    mentioned, bot = _mentions(message, me), hook or message.author.bot
    stray = (bot or not (direct or place.thread)) and not mentioned and not _replies(message, me)
    overheard = hook or stray
    if overheard and direct:
        return None
    if not direct and not place.thread:  # it begins a thread of its own
        place = Place(guild=place.guild, channel=place.channel, thread=str(message.id))
    return Said(
        event=str(Spot(channel=str(message.channel.id), message=str(message.id))),
        target=str(place),
        person=author_of(message.author),
        text="\n\n".join(
            filter(None, (text_of(message, me), *(_embedded(message) if bot else ())))
        ),
        files=tuple(_attachment(each, fetch) for each in _attachments(message)),
        reply_to=_replies(message, me),
        addressed=(direct or mentioned) and not overheard,
        direct=direct,
        bot=bot,
        overheard=overheard,
        places=_places(message),
    )


def _embedded(message: discord.Message) -> list[str]:
    """Return what a machine says in the boxes below its message; people's are link previews."""
    told = []
    for each in message.embeds:
        fields = [f"{field.name}: {field.value}" for field in each.fields]
        told.append("\n".join(filter(None, (each.title, each.description, *fields))))
    return told


def edited(message: discord.Message, me: int, channel: Any) -> Edited | None:
    """Read a changed message; None: a machine changed it, or only a preview came."""
    if message.type not in _WRITTEN or message.webhook_id is not None or message.author.bot:
        return None
    if message.edited_at is None or message.author.id == me:
        return None
    place = place_of(channel, message.guild.id if message.guild else None)
    if not place.is_direct and not place.thread:
        place = Place(guild=place.guild, channel=place.channel, thread=str(message.id))
    original = str(Spot(channel=str(message.channel.id), message=str(message.id)))
    return Edited(
        event=f"{original}/{message.edited_at.timestamp():.6f}",
        target=str(place),
        person=author_of(message.author),
        original=original,
        text=text_of(message, me),
    )


def text_of(message: discord.Message, me: int) -> str:
    """Return what a message says; a leading mention of Nod is an address and left out."""
    names = {str(each.id): each.display_name for each in message.mentions}
    own = re.match(rf"\s*<@!?{me}>[\s:,]*", message.content)
    words = message.content[own.end() :] if own else message.content
    text = _MARK.sub(lambda found: _named(found, {**names, str(me): "Nod"}, message), words)
    stickers = [f"[sticker: {each.name}]" for each in message.stickers]
    return "\n\n".join(part for part in (text, *stickers, *_forwarded(message)) if part)


def _named(found: re.Match[str], names: dict[str, str], message: discord.Message) -> str:
    if found["user"]:
        return f"@{names.get(found['user'], found['user'])}"
    if found["emoji"]:
        return f":{found['emoji']}:"
    if found["role"]:
        role = message.guild.get_role(int(found["role"])) if message.guild else None
        return f"@{role.name if role else found['role']}"
    channel = message.guild.get_channel_or_thread(int(found["channel"])) if message.guild else None
    return f"#{channel.name if channel else found['channel']}"


def _places(message: discord.Message) -> dict[str, str]:
    """Return the channels that a message names, as people read them, with their thread_target."""
    if message.guild is None:
        return {}
    guild = str(message.guild.id)
    named = [message.guild.get_channel(each) for each in message.raw_channel_mentions]
    return {
        f"#{each.name}": str(Place(guild=guild, channel=str(each.id))) for each in named if each
    }


def _forwarded(message: discord.Message) -> list[str]:
    quoted = [each.content.replace("\n", "\n> ") for each in message.message_snapshots]
    return [f"Forwarded:\n> {each}" for each in quoted if each]


def _mentions(message: discord.Message, me: int) -> bool:
    """Say whether a message names Nod, or the role that stands for it; @everyone does not."""
    if me in message.raw_mentions or any(each.id == me for each in message.mentions):
        return True
    role = message.guild.self_role if message.guild else None
    return role is not None and role.id in message.raw_role_mentions


def _replies(message: discord.Message, me: int) -> str:
    """Return the ref of Nod's message that this one replies to; empty: none."""
    to = message.reference
    if to is None or to.message_id is None or message.type is not discord.MessageType.reply:
        return ""
    if not isinstance(to.resolved, discord.Message) or to.resolved.author.id != me:
        return ""
    return str(Spot(channel=str(to.channel_id), message=str(to.message_id)))


def _attachments(message: discord.Message) -> list[discord.Attachment]:
    forwarded = [file for each in message.message_snapshots for file in each.attachments]
    return [*message.attachments, *forwarded]


def _attachment(file: discord.Attachment, fetch: Fetch) -> Attachment:
    async def bring(path: Path) -> None:
        await fetch(file, path)

    kind = (file.content_type or "application/octet-stream").partition(";")[0].strip()
    return Attachment(
        name=file.filename,
        media_type=kind,
        bytes=file.size,
        voice=file.is_voice_message(),
        fetch=bring,
    )
