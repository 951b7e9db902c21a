"""Holds the connection to Discord's gateway: opens it, says why it ended, passes events on."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import discord
from discord.gateway import DiscordWebSocket, KeepAliveHandler
from discord.http import Route

from bot.surfaces.base import SurfaceError
from bot.surfaces.config import DiscordConfig
from bot.surfaces.discord_places import Place
from bot.surfaces.discord_rest import tracing

__all__ = ["Client", "Listener"]

#: Seconds without another server after which all are there.
_ALL_THERE = 1.0
#: Seconds that Discord's own wait for a free request may take; the least discord.py allows.
_PATIENCE = 30.0
#: Seconds before a connection that broke off is made anew; doubled up to this, so that the 1,000
#: new sessions Discord grants a day are never used up.
_PAUSE, _LONG = 0.5, 120.0
#: Close codes of the gateway after which another try makes no sense.
#: https://discord.com/developers/docs/topics/opcodes-and-status-codes#gateway
_BAD_TOKEN, _NOT_ALLOWED = 4004, 4014

_TOKEN = (
    "Discord does not know this token.",
    "Make a new one at https://discord.com/developers/applications (Bot, Reset Token) and set it "
    "as DISCORD_BOT_TOKEN.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Who is told of what comes in."""

    message: Callable[[discord.Message], Awaitable[None]]
    edit: Callable[[discord.Message], Awaitable[None]]
    interaction: Callable[[discord.Interaction[Any]], Awaitable[None]]
    #: A new connection stands, and all servers are known. Never waits.
    ready: Callable[[], None]
    #: An event failed: its name, and how.
    fault: Callable[[str, BaseException], None]


class Client(discord.Client):
    """One bot's connection. Messages are not cached: the store has what counts."""

    def __init__(self, config: DiscordConfig, listener: Listener) -> None:
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False  # voice is not used
        intents = discord.Intents(guilds=True, messages=True, message_content=True)
        super().__init__(
            intents=intents,
            max_messages=None,
            allowed_mentions=discord.AllowedMentions.none(),
            chunk_guilds_at_startup=False,
            member_cache_flags=discord.MemberCacheFlags.none(),
            guild_ready_timeout=_ALL_THERE,
            max_ratelimit_timeout=_PATIENCE,
            http_trace=tracing(),
        )
        self._token = config.token
        self._listener = listener
        self._open = asyncio.Event()
        self._holding: asyncio.Task[None] | None = None
        #: The socket of the last try; the library forgets one that Discord turns down.
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._redirect(config)

    def _redirect(self, config: DiscordConfig) -> None:
        """Speak to the addresses that are set; the library has them for the whole process."""
        request, connect = self.http.request, self.http.ws_connect

        async def requested(route: Route, **given: Any) -> Any:
            if config.base_url:
                route.url = config.base_url.rstrip("/") + route.url.removeprefix(Route.BASE)
            return await request(route, **given)

        async def connected(url: str, *, compress: int = 0) -> Any:
            if config.gateway_url:
                ours = str(DiscordWebSocket.DEFAULT_GATEWAY)
                url = url.replace(ours, config.gateway_url.rstrip("/") + "/", 1)
            await self._hang_up()
            self._socket = await connect(url, compress=compress)
            return self._socket

        self.http.request = requested  # type: ignore[method-assign]
        self.http.ws_connect = connected  # type: ignore[method-assign]

    # -- the connection

    @property
    def me(self) -> int:
        """Nod's own user id; 0 while it is not known."""
        return self.user.id if self.user else 0

    async def open(self) -> None:
        """Log in and connect; returns when events come. Raises SurfaceError."""
        try:
            await self.login(self._token)
        except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
            await self._closed()
            raise self._reason(error) from error
        self._holding = asyncio.create_task(self._hold(), name="discord gateway")
        opening = asyncio.create_task(self._open.wait(), name="discord opening")
        try:
            await asyncio.wait([self._holding, opening], return_when=asyncio.FIRST_COMPLETED)
        finally:
            opening.cancel()
        if self._holding.done():
            fault = self._holding.exception() or ConnectionError()
            await self._closed()
            raise self._reason(fault) from fault

    async def _hold(self) -> None:
        """Hold the connection. What the library cannot read breaks it off; it is made anew."""
        pause = _PAUSE
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self.connect()
                return
            except (discord.ConnectionClosed, discord.PrivilegedIntentsRequired):
                raise
            except Exception as error:  # broad: the library reads what it is sent
                self._listener.fault("connection", error)
                if not self._open.is_set():
                    raise
            if self.ws is not None and self.ws.open:
                await self.ws.close(code=4000)
            held = asyncio.get_running_loop().time() - began
            pause = _PAUSE if held > _LONG else min(pause * 2, _LONG)
            await asyncio.sleep(pause)

    async def ended(self) -> SurfaceError | None:
        """Wait until the connection ends for good; return why, None when it was closed here."""
        assert self._holding is not None, "it was opened"
        await asyncio.wait([self._holding])
        error = None if self._holding.cancelled() else self._holding.exception()
        return self._reason(error) if error else None

    async def close(self) -> None:
        """Close the connection."""
        await self._closed()
        if self._holding is not None:
            self._holding.cancel()
            with suppress(asyncio.CancelledError, Exception):  # broad: it ended, however it did
                await self._holding
        for thread in threading.enumerate():  # closed between two connections, one is left behind
            if isinstance(thread, KeepAliveHandler) and thread.ws._connection is self._connection:
                thread.stop()

    async def _closed(self) -> None:
        waiting = self._connection._ready_task  # else it tells a closed client that it is ready
        if waiting is not None:
            waiting.cancel()
        await super().close()
        await self._hang_up()

    async def _hang_up(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None and not socket.closed:
            await socket.close(code=4000)  # any code but 1000 and 1001 lets a session be resumed

    def _reason(self, error: BaseException) -> SurfaceError:
        if isinstance(error, discord.LoginFailure) or _code(error) == _BAD_TOKEN:
            return SurfaceError(*_TOKEN)
        if isinstance(error, discord.PrivilegedIntentsRequired) or _code(error) == _NOT_ALLOWED:
            page = f"https://discord.com/developers/applications/{self.application_id}/bot"
            return SurfaceError(
                "Discord lets Nod read no messages: Message Content Intent is off.",
                f"Switch it on under Privileged Gateway Intents at {page} and start Nod again.",
            )
        what = f"The connection to Discord failed ({type(error).__name__})."
        return SurfaceError(what, retry_after=10.0)

    # -- what comes in

    async def on_connect(self) -> None:
        self._open.set()

    async def on_ready(self) -> None:
        self._listener.ready()

    async def on_message(self, message: discord.Message) -> None:
        await self._listener.message(message)

    async def on_raw_message_edit(self, event: discord.RawMessageUpdateEvent) -> None:
        await self._listener.edit(event.message)

    async def on_interaction(self, interaction: discord.Interaction[Any]) -> None:
        await self._listener.interaction(interaction)

    async def on_error(self, event: str, /, *_: Any, **__: Any) -> None:
        error = sys.exception() if sys.version_info >= (3, 12) else sys.exc_info()[1]
        if error is not None:
            self._listener.fault(event, error)

    # -- what is known

    async def channel_of(self, message: discord.Message) -> Any:
        """Return where a message stands; one that is not known yet is asked for."""
        channel = message.channel
        if isinstance(channel, discord.PartialMessageable) and message.guild is not None:
            return await self.fetch_channel(channel.id)
        return channel

    def newest(self, place: Place) -> str | None:
        """Return the id of the newest message there; None: it is not known."""
        if place.is_direct:
            return None
        guild = self.get_guild(int(place.guild))
        channel: Any = guild and guild.get_channel_or_thread(int(place.posts_in))
        newest = getattr(channel, "last_message_id", None)
        return str(newest) if newest else None if channel else place.posts_in

    def message(self, data: Mapping[str, Any], place: Place) -> discord.Message:
        """Return a message that was read from the history, as if it had just come."""
        given: Any = dict(data)
        if not place.is_direct:
            given["guild_id"] = place.guild
        channel: Any = self._connection._get_guild_channel(given)[0]
        return discord.Message(state=self._connection, channel=channel, data=given)

    async def fetch(self, file: discord.Attachment, path: Path) -> None:
        """Write the content of a file that came in. Raises SurfaceError."""
        try:
            content = await file.read()
        except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
            what = f"Discord did not give {file.filename} ({type(error).__name__})."
            raise SurfaceError(what, retry_after=5.0) from error
        await asyncio.to_thread(path.write_bytes, content)


def _code(error: BaseException) -> int:
    return error.code if isinstance(error, discord.ConnectionClosed) else 0
