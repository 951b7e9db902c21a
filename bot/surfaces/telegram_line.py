"""One bot's line to the Bot API: every call, and its failures told apart.

No text that leaves here holds the token: the library puts it into addresses and messages.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import httpx
from telegram import Bot, User
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    EndPointNotFound,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
    TimedOut,
)
from telegram.request import HTTPXRequest

from bot.surfaces.base import SurfaceError
from bot.surfaces.pacing import Paused

__all__ = [
    "DOWNLOAD",
    "UPLOAD",
    "Conflicting",
    "Line",
    "Moved",
    "NoSuchMethod",
    "Refused",
    "id_of",
]

# The library asks in this way whether it may give durations as such; else it warns each time.
os.environ.setdefault("PTB_TIMEDELTA", "true")

#: Bytes of a file that a bot may fetch, and send: https://core.telegram.org/bots/api#getfile,
#: https://core.telegram.org/bots/api#sending-files
DOWNLOAD, UPLOAD = 20_000_000, 50_000_000
#: Seconds: one call, an upload, one long poll; requests at once.
CALL, MEDIA, POLL = 20.0, 200.0, 30
REQUESTS = 32
#: Names of methods of whose typed form one cannot be used: a malformed update would break all of
#: its batch, and rich text is unknown to it. Under their usual names the library would warn.
RAW_UPDATES, RAW_EDIT = "get_Updates", "edit_Message_Text"
#: Seconds before another try where the server says nothing.
AGAIN = 5.0

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Refused(SurfaceError):
    """The server understood the call and will not do it: another try makes no sense."""


class NoSuchMethod(Refused):
    """The server is older than the method."""


class Conflicting(SurfaceError):
    """Somebody else takes this bot's updates."""


class Moved(Refused):
    """The group became a supergroup and has another id."""

    def __init__(self, chat: int) -> None:
        super().__init__(f"The group is now {chat}.")
        self.chat = chat


def id_of(token: str) -> str:
    """Return a bot's id, the number before its token's colon; "?" for what is no such token.

    No part of that is shown: it may be the key of something else.
    """
    found = re.match(r"(\d+):", token)
    return found[1] if found else "?"


class Line:
    """The Bot API for one token."""

    def __init__(self, token: str, base_url: str) -> None:
        self._token = token
        self.id = id_of(token)
        address = base_url.rstrip("/")
        self.bot = Bot(
            token,
            base_url=f"{address}/bot",
            base_file_url=f"{address}/file/bot",
            request=_request(REQUESTS),
            get_updates_request=_request(1),
        )

    async def open(self) -> User:
        """Return the bot as the server knows it. Raises SurfaceError."""
        await self.told(self.bot.initialize)
        return self.bot.bot

    async def close(self) -> None:
        """Close the connections."""
        await self.told(self.bot.shutdown)

    async def told(self, work: Callable[[], Awaitable[T]]) -> T:
        """Ask the server something. Raises SurfaceError, its kinds here, and Paused."""
        try:
            return await work()
        except TelegramError as error:
            failure = self._failure(error)
        # Raised out here: the library's error names the address, and with it the token.
        raise failure

    async def updates(self, offset: int | None, allowed: list[str]) -> list[dict[str, Any]]:
        """Return raw updates from `offset` on, which confirms all before it; waits for some."""
        asked: Mapping[str, Any] = {"timeout": POLL, "allowed_updates": allowed, "limit": 100}
        values = asked if offset is None else {**asked, "offset": offset}
        found = await self.told(
            lambda: self.bot.do_api_request(
                RAW_UPDATES, api_kwargs=dict(values), read_timeout=POLL + CALL
            )
        )
        return [each for each in found if isinstance(each, dict)]

    async def fetch(self, file: str, size: int, path: Path) -> None:
        """Write a file that was sent to the bot. Raises SurfaceError, also when it is too big."""
        if size > DOWNLOAD:
            raise SurfaceError(f"Telegram gives bots no file over {DOWNLOAD // 1_000_000} MB")

        async def load() -> None:
            found = await self.bot.get_file(file)
            await found.download_to_drive(path, read_timeout=MEDIA)

        await self.told(load)

    def _failure(self, error: TelegramError) -> SurfaceError:
        """Return what a failure means. BadRequest is a NetworkError too, so it comes first."""
        what = f"Telegram says: {error.message.replace(self._token, '[token]')}"[:300]
        if isinstance(error, RetryAfter):
            return Paused(what, retry_after=_seconds(error.retry_after))
        if isinstance(error, ChatMigrated):
            return Moved(error.new_chat_id)
        if isinstance(error, EndPointNotFound):
            return NoSuchMethod(what)
        if isinstance(error, InvalidToken):
            fix = "Get a new one from @BotFather and set TELEGRAM_BOT_TOKEN."
            if self.id == "?":
                return Refused("TELEGRAM_BOT_TOKEN holds no token: that is 123456:ABC-…", fix)
            return Refused(f"Telegram does not know the token of bot {self.id}.", fix)
        if isinstance(error, BadRequest | Forbidden):
            return Refused(what)
        if isinstance(error, Conflict):
            return Conflicting(what, retry_after=AGAIN)
        certain = isinstance(error.__cause__, _UNSENT)
        if isinstance(error, TimedOut | NetworkError):
            return SurfaceError(what, certain=certain, retry_after=AGAIN)
        return SurfaceError(what, certain=False, retry_after=AGAIN)


_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


def _seconds(asked: int | timedelta) -> float:
    return asked.total_seconds() if isinstance(asked, timedelta) else float(asked)


def _request(pool: int) -> HTTPXRequest:
    return HTTPXRequest(
        connection_pool_size=pool,
        connect_timeout=10.0,
        read_timeout=CALL,
        write_timeout=CALL,
        media_write_timeout=MEDIA,
        pool_timeout=10.0,
        httpx_kwargs={"verify": _trusted()},
    )


@cache
def _trusted() -> ssl.SSLContext:
    """Return whom we trust: read once, since reading it takes longer than a call."""
    return ssl.create_default_context()
