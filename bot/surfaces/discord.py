"""The Discord surface: threads of servers and direct messages, through discord.py's gateway.

The gateway has no acknowledgement and no backlog: each event is stored before anything is done
about it, and after every new connection the owned threads are read for what was missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import discord

from bot.surfaces import discord_commands, discord_reading
from bot.surfaces.base import (
    Capabilities,
    Inbound,
    Line,
    Message,
    Receipt,
    SurfaceError,
)
from bot.surfaces.config import DiscordConfig, Ground, Owned
from bot.surfaces.discord_client import Client, Listener
from bot.surfaces.discord_places import Place, Spot, at_of
from bot.surfaces.discord_posts import Posts
from bot.surfaces.discord_pressing import PATIENCE, Pressing
from bot.surfaces.discord_rest import Rest
from engine.errors import NodError

__all__ = ["DiscordSurface"]

#: Bytes of a file that a bot may send to a server without boosts.
#: https://discord.com/developers/docs/reference#uploading-files
UPLOAD = 10 * 1024 * 1024
#: Seconds between edits of a growing answer; Discord takes five requests in five.
EDIT_EVERY = 1.5

#: Seconds after which "typing" is shown anew; it fades after ten:
#: https://discord.com/developers/docs/resources/channel#trigger-typing-indicator
SIGN = 9.0

#: Threads that are read for what was missed, and how many at once.
MISSED, AT_ONCE = 300, 4
#: Seconds by which Discord's clock and ours may differ.
SKEW = 60.0
#: Seconds before an event that could not be stored is tried again.
AGAIN = (0.2, 2.0)

_log = logging.getLogger(__name__)


class DiscordSurface:
    """Implements `Surface` for one bot."""

    name = "discord"
    capabilities = Capabilities(
        text_limit=2000,
        buttons=25,
        value_bytes=100,
        file_bytes=UPLOAD,
        edit_every=EDIT_EVERY,
        sign_fades=SIGN,
        small_text=True,
        modals=True,
        threads=True,
    )

    def __init__(
        self, config: DiscordConfig, ground: Ground, *, patience: float = PATIENCE
    ) -> None:
        """`patience`: seconds a press may take before its answer is put off."""
        self._config = config
        self._ground = ground
        self._patience = patience
        self._client: Client | None = None
        self._posts: Posts | None = None
        self._pressing: Pressing | None = None
        self._intake: Callable[[Inbound], Awaitable[Receipt]] | None = None
        self._orders: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- the connection

    async def start(self, intake: Callable[[Inbound], Awaitable[Receipt]]) -> None:
        """Connect. Raises SurfaceError: the token, an intent, or no way to reach Discord."""
        self._intake = intake
        listener = Listener(
            message=self._heard,
            edit=self._changed,
            interaction=self._pressed,
            ready=self._caught_up,
            fault=self._fault,
        )
        client = self._client = Client(self._config, listener)
        rest = Rest(client.http)
        posts = self._posts = Posts(rest, lambda: str(client.me))
        self._pressing = Pressing(rest, posts, self._ground, self._take, self._patience)
        await client.open()
        self._own(self._watch(client), "discord connection")
        self._own(self._list_commands(client, rest), "discord commands")

    async def stop(self) -> None:
        """Take no more events and close the connection."""
        self._intake = None
        client, self._client = self._client, None
        if client is None:
            return
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._posts is not None:
            await self._posts.close()
        await client.close()

    async def _watch(self, client: Client) -> None:
        """Wait for the connection to end for good, and tell the owner."""
        fault = await client.ended()
        if fault is None or self._client is not client:
            return
        _log.error("the connection to Discord ended: %s", fault)
        self._ground.counts.add("nod_surface_faults_total", surface=self.name)
        text = f"{fault} The other surfaces go on. Check it with: nod discord"
        await self._ground.notify("surface:discord", "Discord is not connected", text)

    async def _list_commands(self, client: Client, rest: Rest) -> None:
        """Tell Discord the commands; without them, everything else works."""
        ids = {"application_id": str(client.application_id)}
        made = discord_commands.commands()
        try:
            await rest.call("PUT", "/applications/{application_id}/commands", ids, body=made)
        except SurfaceError as error:
            _log.warning("Discord was not told the commands: %s", error)

    def _own(self, work: Awaitable[None], name: str) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- in

    async def _take(self, event: Inbound) -> Receipt | None:
        """Store an event; one that fails is tried again. None: it could not be stored."""
        for pause in (*AGAIN, None):
            if self._intake is None:
                return None
            try:
                return await self._intake(event)
            except Exception as error:  # noqa: BLE001  # broad: Discord tells nothing twice
                told = error if isinstance(error, NodError) else type(error).__name__
                _log.warning("an event of Discord could not be taken: %s", told)
            if pause is not None:
                await asyncio.sleep(pause)
        self._ground.counts.add("nod_refused_total", surface=self.name, reason="not stored")
        return None

    async def _heard(self, message: discord.Message) -> None:
        client = self._client
        if client is None:
            return
        if message.author.id == client.me:
            if message.nonce is not None:
                spot = Spot(channel=str(message.channel.id), message=str(message.id))
                self._out().heard(str(message.nonce), str(spot))
            return
        async with self._in_order(message.channel.id):
            await self._say(client, message)

    async def _say(self, client: Client, message: discord.Message) -> None:
        channel = await client.channel_of(message)
        said = discord_reading.said(message, client.me, channel, client.fetch)
        if said is None:
            return
        if not said.overheard:
            self._out().named(str(message.id), said.text)
        receipt = await self._take(said)
        if receipt is None or not receipt.text:
            return
        try:
            await self._out().reply(Spot.parse(said.event), receipt.text)
        except SurfaceError as error:
            _log.warning("an answer could not be shown in %s: %s", said.target, error)

    async def _changed(self, message: discord.Message) -> None:
        client = self._client
        if client is None:
            return
        async with self._in_order(message.channel.id):
            channel = await client.channel_of(message)
            edited = discord_reading.edited(message, client.me, channel)
            if edited is not None:
                await self._take(edited)

    async def _pressed(self, interaction: discord.Interaction[Any]) -> None:
        if self._pressing is not None:
            await self._pressing.handle(interaction)

    def _fault(self, event: str, error: BaseException) -> None:
        """An event could not be handled: count it; what it held is not written to the log."""
        self._ground.counts.add("nod_refused_total", surface=self.name, reason="failed")
        told = error if isinstance(error, NodError) else type(error).__name__
        trace = None if isinstance(error, NodError) else error
        _log.error("an event of Discord (%s) could not be handled: %s", event, told, exc_info=trace)

    def _in_order(self, channel: int) -> asyncio.Lock:
        """Return the lock under which one channel's messages are taken as they came."""
        lock = self._orders.get(channel)
        if lock is None:
            lock = self._orders[channel] = asyncio.Lock()
        return lock

    # -- what was missed

    def _caught_up(self) -> None:
        """A new connection stands: what was written meanwhile is nowhere but in the history."""
        if self._client is not None:
            self._own(self._pick_up(self._client), "discord history")

    async def _pick_up(self, client: Client) -> None:
        owned = await self._ground.owned("discord:")
        behind = [each for each in owned if _may_be_behind(client, each)]
        behind.sort(key=lambda each: -each.last_at)
        gate = asyncio.Semaphore(AT_ONCE)

        async def read(each: Owned) -> None:
            async with gate:
                await self._read_missed(client, each)

        await asyncio.gather(*(read(each) for each in behind[:MISSED]))

    async def _read_missed(self, client: Client, owned: Owned) -> None:
        place = Place.parse(owned.target)
        try:
            found = await self._out().messages(place, owned.last_at - SKEW)
        except SurfaceError as error:
            _log.info("%s could not be read for what was missed: %s", owned.target, error)
            return
        for data in found:
            if str(data["channel_id"]) == place.posts_in and "webhook_id" not in data:
                await self._heard(client.message(data, place))

    # -- out

    async def post(self, target: str, message: Message, delivery: str) -> str:
        """Post a message; a long one becomes several, with the first one's ref."""
        return await self._out().post(Place.parse(target), message, delivery)

    async def edit(self, ref: str, message: Message) -> None:
        """Replace what a message shows."""
        await self._out().edit(ref, message)

    async def upload(
        self, target: str, files: Sequence[Path], message: Message, delivery: str
    ) -> str:
        """Post files, at most ten, with the message as their caption."""
        return await self._out().post(Place.parse(target), message, delivery, files)

    async def erase(self, target: str, event: str) -> bool:
        """Delete a message, where Nod may manage messages; never in a DM."""
        return await self._out().erase(Spot.parse(event))

    async def typing(self, target: str) -> None:
        """Show that Nod writes; a thread that is not there yet is opened."""
        await self._out().typing(Place.parse(target))

    async def history(self, target: str, since: float) -> list[Line]:
        """Return what was written there since then: the newest 500 messages of it."""
        return await self._out().history(Place.parse(target), since)

    async def find(self, target: str, delivery: str) -> str | None:
        """Return the ref of what was posted under the delivery; None: nobody can tell."""
        return await self._out().find(Place.parse(target), delivery)

    def _out(self) -> Posts:
        if self._posts is None or self._client is None:
            raise SurfaceError("Discord is not connected.", "See: nod discord", retry_after=5.0)
        return self._posts


def _may_be_behind(client: Client, owned: Owned) -> bool:
    """Say whether something may have been written there since the last message that was taken."""
    try:
        place = Place.parse(owned.target)
    except SurfaceError:
        return False
    newest = client.newest(place)
    return newest is None or at_of(newest) > owned.last_at - SKEW
