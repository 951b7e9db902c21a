"""Puts messages on Slack: one lane a conversation, in order, cards first, newest edit only.

A long message is several posts, and an answer is streamed while it is written. The first one's ref
stands for all; each carries the delivery and its number in its metadata, so the others are found
again, also by the next process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession

from bot.render.slack import Part
from bot.surfaces import slack_blocks, slack_words
from bot.surfaces.base import Message, SurfaceError
from bot.surfaces.slack_faults import Unshowable
from bot.surfaces.slack_places import Place, Spot
from bot.surfaces.slack_stream import Reader, Stream, ended
from bot.surfaces.slack_teams import Team, Teams
from engine.canonical import clean, digest

__all__ = ["Sender"]

EVENT = "nod_delivery"
#: Deliveries that are Nod's own words, not a model's.
OWN = ("event:", "mail:", "remind:")
#: Messages of one page of a history (documented most: 999), and pages looked through.
PAGE, PAGES = 200, 10
#: Messages whose parts and looks are remembered; lanes kept while nobody is in them.
KNOWN, LANES = 5_000, 2_000
#: Seconds between looks for streams that are to be ended.
TEND = 10.0
#: How often a post whose answer was lost is looked up.
LOST = 2
#: Seconds between looks for the message that shows an upload, which Slack posts a little later.
LOOKS = (0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 5.0)

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Lane:
    """One conversation: one message on its way at a time; who is more urgent goes first."""

    busy: bool = False
    waiting: list[tuple[int, int, asyncio.Future[None]]] = field(default_factory=list)
    turns: int = 0

    @asynccontextmanager
    async def turn(self, rank: int) -> AsyncIterator[None]:
        if self.busy:
            self.turns += 1
            mine = (rank, self.turns, asyncio.get_running_loop().create_future())
            self.waiting.append(mine)
            try:
                await mine[2]
            except asyncio.CancelledError:
                if mine in self.waiting:
                    self.waiting.remove(mine)
                elif not mine[2].cancelled():
                    self._next()
                raise
        self.busy = True
        try:
            yield
        finally:
            self._next()

    def _next(self) -> None:
        self.busy = False
        while self.waiting:
            first = min(self.waiting, key=lambda each: each[:2])
            self.waiting.remove(first)
            if not first[2].cancelled():
                self.busy = True
                first[2].set_result(None)
                return


@dataclass(slots=True)
class _Posted:
    """A message: the delivery it was posted under, and the ts of its posts, in order."""

    delivery: str
    parts: list[str] = field(default_factory=list)
    #: What shows it while it is still being written.
    stream: Stream | None = None
    #: ts of posts that may be streaming still, with nobody who ends them.
    left: list[str] = field(default_factory=list)
    #: A post may have been made whose answer did not come; how often that is still looked up:
    #: at once, and for the whole message, as Slack may be late.
    looks: int = 0


class Sender:
    """Posts, edits, uploads and finds."""

    def __init__(self, teams: Teams, session: ClientSession) -> None:
        self._teams = teams
        self._session = session
        self._lanes: OrderedDict[tuple[str, str], _Lane] = OrderedDict()
        #: ref -> what it stands for.
        self._posted: OrderedDict[str, _Posted] = OrderedDict()
        #: (channel, ts) -> hash of what the post shows.
        self._looks: OrderedDict[tuple[str, str], str] = OrderedDict()
        #: ref -> the newest message it is to show.
        self._wanted: dict[str, Message] = {}
        #: (team, user) -> DM channel.
        self._direct: dict[tuple[str, str], str] = {}
        #: thread_target -> who wrote there last.
        self._readers: OrderedDict[str, Reader] = OrderedDict()

    # -- the four ways out

    async def post(self, target: str, message: Message, delivery: str) -> str:
        """Post the message and return its ref; raises SurfaceError."""
        team, place = await self._place(target)
        posted = _Posted(delivery)
        spot = Spot(team=team.id, channel=place.channel, ts="?", thread=place.thread)
        async with self._lane(spot).turn(_rank(message)):
            try:
                if not await self._grow(team, spot, posted, message, self._readers.get(target)):
                    await self._settle(team, spot, posted, message)
                    await self._lay(team, spot, posted, message)
            except SurfaceError as error:
                if not posted.parts:
                    raise
                what = f"Only a part of it was posted: {error.what}"
                again = error.retry_after
                raise SurfaceError(what, error.fix, certain=False, retry_after=again) from error
        first = posted.parts[0]
        ref = str(Spot(team=team.id, channel=place.channel, ts=first, thread=place.thread))
        _remember(self._posted, ref, posted)
        return ref

    async def edit(self, ref: str, message: Message) -> None:
        """Show `message` instead; an edit that waits is left out when a newer one comes."""
        spot = Spot.parse(ref)
        team = self._teams.get(spot.team)
        self._wanted[ref] = message
        async with self._lane(spot).turn(_rank(message)):
            if self._wanted.get(ref) is not message:
                return
            del self._wanted[ref]
            posted = await self._found(team, spot, message)
            _remember(self._posted, ref, posted)
            if not (message.growing and posted.stream and await posted.stream.grow(message.text)):
                await self._settle(team, spot, posted, message)
                await self._lay(team, spot, posted, message)

    # -- streams

    def heard(self, target: str, team: str, user: str) -> None:
        """Learn who is to read the next answer in a thread."""
        _remember(self._readers, target, (team, user))

    async def _grow(
        self, team: Team, spot: Spot, posted: _Posted, message: Message, reader: Reader | None
    ) -> bool:
        """Begin to stream an answer; False: this place, workspace or text takes no stream."""
        if not (message.growing and spot.thread and reader):
            return False
        if "chat_startStream" in team.refused:
            return False
        posted.stream = Stream(
            team,
            spot,
            reader,
            posted.parts,
            lambda number: _carried(posted.delivery, number),
            asyncio.get_running_loop().time,
        )
        return await posted.stream.grow(message.text)

    async def tend(self) -> None:
        """End streams before Slack does, also those to which nothing more comes; for ever."""
        while True:
            await asyncio.sleep(TEND)
            for ref, posted in list(self._posted.items()):
                if posted.stream is not None and posted.stream.due:
                    await self._ripen(Spot.parse(ref), posted)

    async def wind_down(self) -> None:
        """End every stream: nobody will feed it any more. The answers are completed later."""
        growing = [(ref, each) for ref, each in self._posted.items() if each.stream is not None]
        ends = (self._ripen(Spot.parse(ref), each, at_once=True) for ref, each in growing)
        await asyncio.gather(*ends)

    async def _ripen(self, spot: Spot, posted: _Posted, *, at_once: bool = False) -> None:
        """Let an answer go on by edits; its stream is over, and it is not."""
        async with self._lane(spot).turn(1):
            stream = posted.stream
            if stream is None or not (stream.due or at_once):
                return
            team = self._teams.find(spot.team)
            if team is None:
                return
            message = Message(text=stream.text, growing=True)
            try:
                await self._settle(team, spot, posted, message)
                await self._lay(team, spot, posted, message)
            except SurfaceError as error:
                _log.warning("a stream was not ended in time: %s", error)

    async def _settle(self, team: Team, spot: Spot, posted: _Posted, message: Message) -> None:
        """End what is streaming, and take in what was lost, so that the posts can be edited."""
        if posted.stream is not None:
            await posted.stream.end()
            posted.looks = LOST if posted.stream.lost else posted.looks
            posted.stream = None
        if posted.looks == LOST or (posted.looks and not message.growing):
            await self._gather(team, spot, posted)
            posted.looks -= 1
        while posted.left:
            await ended(team, spot.channel, posted.left[-1])
            posted.left.pop()

    # -- files

    async def upload(
        self, target: str, files: Sequence[Path], message: Message, delivery: str
    ) -> str:
        """Post files with a caption as one message, and return its ref."""
        team, place = await self._place(target)
        spot = Spot(team=team.id, channel=place.channel, ts="?", thread=place.thread)
        held = [await self._send_file(team, each) for each in files]
        names = [each.name for each in files]
        blocks = slack_blocks.caption(_clean(message), _mark(delivery), names)
        where = {"channel_id": place.channel, **_threaded(spot)}
        async with self._lane(spot).turn(1):
            await team.call("files.completeUploadExternal", files=held, blocks=blocks, **where)
        ref = await self._shared(team, place, str(held[0]["id"]))
        ref = ref or await self.find(target, delivery)
        if ref is None:
            what = "The file was sent, and no message shows it yet."
            raise SurfaceError(what, certain=False, retry_after=10.0)
        return ref

    async def find(self, target: str, delivery: str) -> str | None:
        """Return the ref of what was posted under `delivery`; None: surely nothing was.

        Raises SurfaceError when that cannot be told.
        """
        team, place = await self._place(target)
        mark, left = _mark(delivery), ""
        async for each in self.messages(team, place):
            left = each["ts"] if _is_left(each, team) else left
            shown = _metadata(each)
            first = shown.get("delivery") == delivery and shown.get("part") == 1
            if first or any(block.get("block_id") == mark for block in each.get("blocks") or ()):
                thread = place.thread
                spot = Spot(team=team.id, channel=place.channel, ts=each["ts"], thread=thread)
                return str(spot)
        if not left or not delivery.startswith("answer:"):
            return None
        # Only a stream that was never ended carries nothing: the answer that was being written.
        ref = str(Spot(team=team.id, channel=place.channel, ts=left, thread=place.thread))
        _remember(self._posted, ref, _Posted(delivery, [left], left=[left]))
        return ref

    # -- places

    async def _place(self, target: str) -> tuple[Team, Place]:
        """Return where a target is; a person's DM is opened."""
        place = Place.parse(target)
        team = self._teams.get(place.team)
        if not place.is_person:
            return team, place
        key = (place.team, place.channel)
        if key not in self._direct:
            opened = await team.call("conversations_open", users=place.channel)
            self._direct[key] = opened["channel"]["id"]
        return team, Place(team=place.team, channel=self._direct[key], thread=place.thread)

    def met(self, team: str, user: str, channel: str) -> None:
        """Learn a person's DM from what came out of it."""
        self._direct[team, user] = channel

    async def channel(self, target: str) -> tuple[Team, Place]:
        """Return the workspace and the real channel of a target; raises SurfaceError."""
        return await self._place(target)

    async def messages(
        self, team: Team, place: Place, since: float = 0.0
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the messages of a place, page by page; raises SurfaceError after too many."""
        method = "conversations_replies" if place.thread else "conversations_history"
        asked: dict[str, Any] = {"channel": place.channel, "limit": PAGE}
        asked |= {"include_all_metadata": True, **({"ts": place.thread} if place.thread else {})}
        if since:
            asked["oldest"] = f"{since:.6f}"
        for _ in range(PAGES):
            found = await team.call(method, **asked)
            for each in found["messages"]:
                if not since or float(each["ts"]) > since:
                    yield each
            asked["cursor"] = (found.get("response_metadata") or {}).get("next_cursor") or ""
            if not asked["cursor"]:
                return
        raise SurfaceError("There is too much in this conversation to look through.")

    # -- parts

    async def _lay(self, team: Team, spot: Spot, posted: _Posted, message: Message) -> None:
        """Make the posts show the message: change, add, take away. `posted` is kept true."""
        refused: Unshowable | None = None
        for parts in slack_blocks.levels(_clean(message, posted.delivery)):
            if not parts:
                raise SurfaceError("There is nothing to show.")
            try:
                await self._lay_parts(team, spot, posted, parts)
                return
            except Unshowable as error:
                _log.warning("a plainer form is tried: %s", error.what)
                refused = error
        assert refused is not None, "there is at least one way to show a message"
        raise refused

    async def _lay_parts(
        self, team: Team, spot: Spot, posted: _Posted, parts: Sequence[Part]
    ) -> None:
        held = posted.parts
        for number, part in enumerate(parts):
            shown = {"blocks": list(part.blocks), "text": part.fallback}
            carried = _carried(posted.delivery, number + 1)
            if number < len(held):
                await self._change(team, spot.channel, held[number], shown, carried)
            else:
                held.append(await self._added(team, spot, posted, shown, carried))
        while len(held) > len(parts):
            await team.call("chat_delete", channel=spot.channel, ts=held[-1])
            held.pop()

    async def _added(
        self,
        team: Team,
        spot: Spot,
        posted: _Posted,
        shown: Mapping[str, Any],
        carried: Mapping[str, Any],
    ) -> str:
        try:
            return await self._add(team, spot, shown, carried)
        except SurfaceError as error:
            posted.looks = posted.looks if error.certain else LOST
            raise

    async def _add(
        self, team: Team, spot: Spot, shown: Mapping[str, Any], carried: Mapping[str, Any]
    ) -> str:
        posted = await team.call(
            "chat_postMessage",
            channel=spot.channel,
            metadata=carried,
            unfurl_links=False,
            unfurl_media=False,
            **_threaded(spot),
            **shown,
        )
        ts = str(posted["ts"])
        _remember(self._looks, (spot.channel, ts), digest(repr(shown)))
        return ts

    async def _change(
        self,
        team: Team,
        channel: str,
        ts: str,
        shown: Mapping[str, Any],
        carried: Mapping[str, Any],
    ) -> None:
        look = digest(repr(shown))
        if self._looks.get((channel, ts)) == look:
            return
        more = {"metadata": carried} if carried["event_payload"]["delivery"] else {}
        await team.call("chat_update", channel=channel, ts=ts, **shown, **more)
        _remember(self._looks, (channel, ts), look)

    async def _found(self, team: Team, spot: Spot, message: Message) -> _Posted:
        """Return what a ref stands for; what this process did not post is looked up.

        A card is one post, and is not looked up.
        """
        known = self._posted.get(str(spot))
        if known is not None or message.card is not None:
            return known or _Posted("", [spot.ts])
        found = _Posted("", [spot.ts])
        await self._gather(team, spot, found)
        return found

    async def _gather(self, team: Team, spot: Spot, posted: _Posted) -> None:
        """Find the posts of a message that are not known here, and take them in."""
        place = Place(team=team.id, channel=spot.channel, thread=spot.thread)
        since = float(posted.parts[0]) - 0.000001
        seen = [each async for each in self.messages(team, place, since)]
        for each in seen:
            if each["ts"] == posted.parts[0] and not posted.delivery:
                posted.delivery = str(_metadata(each).get("delivery", ""))
        others = {
            ts
            for one in self._posted.values()
            if one is not posted and one.stream
            for ts in one.parts
        }
        for each in seen:
            ts, left = str(each["ts"]), _is_left(each, team)
            mine = posted.delivery and _metadata(each).get("delivery") == posted.delivery
            if left and ts not in others:
                posted.left.append(ts)
            if ts not in posted.parts and (mine or ts in posted.left):
                posted.parts.append(ts)
        posted.parts.sort(key=float)

    def _lane(self, spot: Spot) -> _Lane:
        key = (spot.team, spot.channel)
        lane = self._lanes.setdefault(key, _Lane())
        self._lanes.move_to_end(key)
        if len(self._lanes) > LANES:
            idle = next((k for k, each in self._lanes.items() if not each.busy), None)
            if idle is not None:
                del self._lanes[idle]
        return lane

    # -- files

    async def _send_file(self, team: Team, path: Path) -> dict[str, str]:
        """Bring a file to Slack; nobody sees it before the upload is completed."""
        content = await asyncio.to_thread(path.read_bytes)
        length = len(content)
        if not length:
            raise SurfaceError(f"{path.name} is empty, and Slack takes no empty file.")
        ticket = await team.call("files_getUploadURLExternal", filename=path.name, length=length)
        try:
            async with self._session.post(ticket["upload_url"], data=content) as answer:
                if answer.status != 200:
                    what = f"Slack did not take {path.name} (HTTP {answer.status})."
                    raise SurfaceError(what, retry_after=2.0 if answer.status >= 500 else None)
        except (ClientError, TimeoutError) as error:
            what = f"{path.name} could not be sent."
            raise SurfaceError(what, retry_after=2.0) from error
        return {"id": ticket["file_id"], "title": path.name}

    async def _shared(self, team: Team, place: Place, file: str) -> str | None:
        """Return the ref of the message that shows an upload; None: there is none yet."""
        for pause in LOOKS:
            found = await team.call("files_info", file=file)
            shares = found["file"].get("shares") or {}
            for kind in shares.values():
                for each in kind.get(place.channel, ()):
                    ts, thread = str(each["ts"]), place.thread
                    spot = Spot(team=team.id, channel=place.channel, ts=ts, thread=thread)
                    return str(spot)
            await asyncio.sleep(pause)
        return None


def _rank(message: Message) -> int:
    """Cards go before what is only told."""
    return 0 if message.card is not None else 1


def _clean(message: Message, delivery: str = "") -> Message:
    """Return what can be sent; Nod's own words name commands as they are typed here."""
    text, footer = clean(message.text), clean(message.footer)
    if delivery.startswith(OWN) and not message.tasks:
        text, footer = slack_words.typed(text), slack_words.typed(footer)
    return replace(message, text=text, footer=footer)


def _threaded(spot: Spot) -> dict[str, str]:
    return {"thread_ts": spot.thread} if spot.thread else {}


def _carried(delivery: str, number: int) -> dict[str, Any]:
    """Return the metadata of a post: the delivery, and which part of it this is."""
    return {"event_type": EVENT, "event_payload": {"delivery": delivery, "part": number}}


def _is_left(message: Mapping[str, Any], team: Team) -> bool:
    """Say whether a post is a stream of ours that was not ended: all else carries something.

    What the platform notes of Nod, such as that it joined, has a subtype.
    """
    own = message.get("user") == team.speaker.user or message.get("bot_id") == team.speaker.bot
    marked = _metadata(message) or message.get("files") or message.get("subtype")
    return own and not marked


def _metadata(message: Mapping[str, Any]) -> Mapping[str, Any]:
    held = message.get("metadata") or {}
    payload = held.get("event_payload") if held.get("event_type") == EVENT else None
    return payload or {}


def _mark(delivery: str) -> str:
    """Return the block_id (255 characters at most) that tells an upload."""
    return f"nod:{digest(delivery)[:40]}"


def _remember(held: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    held[key] = value
    held.move_to_end(key)
    if len(held) > KNOWN:
        held.popitem(last=False)
