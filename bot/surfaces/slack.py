"""The surface of Slack: Socket Mode or HTTP, through Bolt, in any number of workspaces.

Slack ► Bolt (signature, workspace, own posts) ► slack_door ► intake       ► acknowledged
presenter ► slack_sending ► slack_blocks, bot/render ► slack_teams ► Web API
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientTimeout, web
from slack_bolt.adapter.aiohttp import to_aiohttp_response, to_bolt_request
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.app.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.response import BoltResponse
from slack_sdk.errors import SlackClientError

from bot.surfaces import slack_words
from bot.surfaces.base import Capabilities, Line, Message, Receipt, Said, SurfaceError
from bot.surfaces.config import Ground, Owned, SlackConfig
from bot.surfaces.slack_door import Door, Take
from bot.surfaces.slack_faults import Lost, fault_of
from bot.surfaces.slack_installing import Installer
from bot.surfaces.slack_places import Place, Spot
from bot.surfaces.slack_sending import Sender
from bot.surfaces.slack_teams import Team, Teams, client_of
from engine.errors import NodError

__all__ = ["SlackSurface"]

EVENTS = "/slack/events"
#: Seconds of one request; between pings of the socket, whose silence for half of it ends it.
TIMEOUT, PING = 20.0, 5.0
#: Owned threads whose history is read after a gap, the latest first; seconds it reaches back.
THREADS, BACK = 200, 7 * 86_400.0
#: DMs whose last post is remembered, to put a sign on it; threads with a status.
LAST = 2_000
#: Seconds the ends of open streams may take at a stop.
CLOSING = 3.0

_CAPABILITIES = Capabilities(
    text_limit=12_000,
    buttons=25,
    value_bytes=2_000,
    file_bytes=1_000_000_000,
    edit_every=1.2,  # chat.update: some 50 a minute and workspace; merged, and paced by Slack
    small_text=True,
    sign_fades=90.0,  # a status is cleared after two minutes
    modals=True,
    reactions=True,
    threads=True,
    look_up=True,
)

_log = logging.getLogger(__name__)


class SlackSurface:
    """Implements `Surface`."""

    name = "slack"
    capabilities = _CAPABILITIES

    def __init__(self, config: SlackConfig, ground: Ground) -> None:
        self._config = config
        self._ground = ground
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: ClientSession | None = None
        self._socket: Any = None
        self._installer: Installer | None = None
        self._listening = False
        #: target of a DM -> (channel, ts) of the last post in it.
        self._last: OrderedDict[str, tuple[str, str]] = OrderedDict()
        #: (team, channel, thread) where a status is shown that no post has cleared.
        self._stated: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    # -- connecting

    async def start(self, intake: Take) -> None:
        """Connect every workspace and begin to take events. Raises SurfaceError."""
        self._check()
        self._session = ClientSession(timeout=ClientTimeout(total=TIMEOUT))
        self._teams = Teams(self._config, self._ground, self._session)
        self._sender = Sender(self._teams, self._session)
        await self._teams.connect()
        self._after(self._sender.tend())
        self._door = Door(
            teams=self._teams,
            ground=self._ground,
            session=self._session,
            base_url=self._config.base_url,
            intake=intake,
            met=self._sender.met,
            after=self._after,
            sign=self._sign,
        )
        app = self._bolt(self._session)
        if self._config.client_secret:
            self._installer = Installer(self._config, self._ground, self._teams, self._session)
            await self._installer.start()
        if self._config.mode == "http":
            await self._listen(app)
        else:
            await self._connect(app)

    def _check(self) -> None:
        if self._config.mode == "http" and not self._config.signing_secret:
            raise SurfaceError("Slack in HTTP mode needs a signing secret.", _SET_SECRET)
        if self._config.mode != "http" and not self._config.app_token:
            raise SurfaceError("Slack in Socket Mode needs an app token.", _SET_APP)

    def _bolt(self, session: ClientSession) -> AsyncApp:
        # Bolt hands arguments over by name and would take a method's `self` for one of them.
        async def authorize(
            enterprise_id: str | None, team_id: str | None, is_enterprise_install: bool | None
        ) -> Any:  # it takes None, its types do not say so
            ids = (team_id, enterprise_id)
            return self._authorized(*(reversed(ids) if is_enterprise_install else ids))

        async def take(body: Mapping[str, Any]) -> BoltResponse:
            return await self._door.take(body)

        app = AsyncApp(
            name="nod",
            logger=logging.getLogger("bot.surfaces.slack.bolt"),
            client=client_of(self._config.base_url, "", session),
            signing_secret=self._config.signing_secret,
            authorize=authorize,
            request_verification_enabled=self._config.mode == "http",
        )
        app.middleware(take)
        return app

    def _authorized(self, *ids: str | None) -> AuthorizeResult | None:
        """Say who Nod is in a workspace; one it is not installed in gets nothing."""
        team = self._teams.find(*ids)
        if team is None:
            self._ground.counts.add("nod_refused_total", surface="slack", reason="workspace")
            return None
        return AuthorizeResult(
            enterprise_id=None,
            team_id=team.id,
            bot_token=team.token,
            bot_user_id=team.speaker.user,
            bot_id=team.speaker.bot,
        )

    async def _listen(self, app: AsyncApp) -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            answered = await app.async_dispatch(await to_bolt_request(request))
            if answered.status == 401:
                self._ground.counts.add("nod_refused_total", surface="slack", reason="signature")
            return await to_aiohttp_response(answered)

        await self._ground.web.add("POST", EVENTS, answer)
        self._listening = True
        self._after(self._catch_up())

    async def _connect(self, app: AsyncApp) -> None:
        handler = AsyncSocketModeHandler(
            app, self._config.app_token, logger=app.logger, ping_interval=PING
        )
        client: Any = handler.client  # the SDK leaves half of its methods without types
        self._socket = client
        client.message_listeners.append(self._heard)
        try:  # a wrong token must end the start; `connect` alone would try it for ever
            client.wss_uri = await client.issue_new_wss_url()
        except (SlackClientError, OSError, TimeoutError) as error:
            fault = fault_of(error, "apps_connections_open")
            if isinstance(fault, Lost):
                raise SurfaceError(
                    f"The app token is not accepted. {fault.what}", _SET_APP
                ) from error
            raise fault from error
        await client.connect()

    async def _heard(self, client: Any, message: Mapping[str, Any], raw: str | None) -> None:
        """After every new connection, read what was said meanwhile."""
        if message.get("type") != "hello":
            return
        count = int(message.get("num_connections") or 1)
        if count > 1:
            _log.warning("Slack shares events out over %d connections of this app", count)
        self._after(self._catch_up())

    async def stop(self) -> None:
        """Take nothing more, and close everything."""
        if self._listening:
            self._ground.web.remove("POST", EVENTS)
            self._listening = False
        if self._installer is not None:
            self._installer.stop()
            self._installer = None
        client, self._socket = self._socket, None
        if client is not None:
            await client.close()
        if self._session is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSING):
                    await self._sender.wind_down()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _after(self, work: Coroutine[Any, Any, None]) -> None:
        """Own a task; what goes wrong in it is told in the log and changes nothing."""
        task = asyncio.ensure_future(_quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # cancelled before it began

    # -- out

    async def post(self, target: str, message: Message, delivery: str) -> str:
        """Post a message; its metadata carries the delivery."""
        return self._shown(await self._out().post(target, message, delivery))

    async def edit(self, ref: str, message: Message) -> None:
        """Replace what the message shows, in as many posts as it takes."""
        await self._out().edit(ref, message)
        if not (message.growing or message.card or message.tasks):
            await self._clear(Spot.parse(ref))

    async def upload(
        self, target: str, files: Sequence[Path], message: Message, delivery: str
    ) -> str:
        """Post files as one message."""
        return self._shown(await self._out().upload(target, files, message, delivery))

    async def find(self, target: str, delivery: str) -> str | None:
        """Return the ref of what was posted under `delivery`; None: surely nothing was."""
        return await self._out().find(target, delivery)

    async def erase(self, target: str, event: str) -> bool:
        """Return False: with a bot's token only the bot's own posts are deleted (chat.delete)."""
        return False

    async def typing(self, target: str) -> None:
        """Show the status line of the thread; a DM outside of threads has none."""
        place = Place.parse(target)
        if place.thread:
            team, found = await self._out().channel(target)
            if await self._status(team, found):
                return
            await self._react(team, found.channel, place.thread)
        elif target in self._last:
            channel, ts = self._last[target]
            await self._react(self._teams.get(place.team), channel, ts)

    async def history(self, target: str, since: float) -> list[Line]:
        """Return what was written in the thread, or DM, since then; oldest first."""
        team, place = await self._out().channel(target)
        posts = self._sender.messages(team, place, since)
        lines = [await self._line(team, place, each) async for each in posts]
        return sorted(lines, key=lambda line: line.at)

    async def _line(self, team: Team, place: Place, post: Mapping[str, Any]) -> Line:
        user, ts = str(post.get("user") or ""), str(post["ts"])
        own = user == team.speaker.user or post.get("bot_id") == team.speaker.bot
        thread = place.thread if own else ""
        return Line(
            ref=str(Spot(team=team.id, channel=place.channel, ts=ts, thread=thread)),
            at=float(ts),
            by="" if own else await team.name_of(user),
            text=slack_words.said(post, team.speaker.user, team.names),
            author="" if own else f"{team.id}/{user}",
        )

    def _out(self) -> Sender:
        if self._session is None:
            raise SurfaceError("Slack is not connected.", retry_after=5.0)
        return self._sender

    def _shown(self, ref: str) -> str:
        spot = Spot.parse(ref)
        self._stated.pop((spot.team, spot.channel, spot.thread), None)  # Slack cleared it
        return ref

    # -- signs

    async def _sign(self, said: Said, receipt: Receipt) -> None:
        """Show at once that the message was taken."""
        _, channel, ts = said.event.split("/")
        found, user = said.person.id.split("/", 1)
        self._out().heard(said.target, self._teams.get(found).homes.get(user, found), user)
        if said.direct:
            self._last[said.target] = (channel, ts)
            self._last.move_to_end(said.target)
            if len(self._last) > LAST:
                self._last.popitem(last=False)
        team, place = await self._out().channel(said.target)
        if not (place.thread and await self._status(team, place)):
            await self._react(team, channel, ts)

    async def _status(self, team: Team, place: Place) -> bool:
        """Set the status of a thread; False: this workspace has none."""
        key = (team.id, place.channel, place.thread)
        shown = await self._set(team, *key[1:], "is at work…")
        if shown:
            self._stated[key] = None
            if len(self._stated) > LAST:
                self._stated.popitem(last=False)
        return shown

    async def _clear(self, spot: Spot) -> None:
        """Take the status away: Slack does it after a post, and not after an edit."""
        key = (spot.team, spot.channel, spot.thread)
        team = self._teams.find(spot.team)
        if team is not None and key in self._stated:
            del self._stated[key]
            await self._set(team, *key[1:], "")

    async def _set(self, team: Team, channel: str, thread: str, status: str) -> bool:
        return await self._tried(
            team,
            "assistant_threads_setStatus",
            channel_id=channel,
            thread_ts=thread,
            status=status,
        )

    async def _react(self, team: Team, channel: str, ts: str) -> None:
        await self._tried(team, "reactions_add", channel=channel, timestamp=ts, name="eyes")

    async def _tried(self, team: Team, method: str, **arguments: Any) -> bool:
        """Call what is only a sign; what a workspace does not allow is not asked for again."""
        if method in team.refused:
            return False
        try:
            await team.call(method, **arguments)
        except SurfaceError as error:
            if "already_reacted" in error.what:
                return True
            if "missing_scope" in error.what or "unknown_method" in error.what:
                team.refused.add(method)
            return False
        return True

    # -- what was missed

    async def _catch_up(self) -> None:
        """Read the history of owned threads since a message from them was last taken."""
        owned = await self._ground.owned("slack:")
        for each in sorted(owned, key=lambda one: -one.last_at)[:THREADS]:
            try:
                await self._read(each)
            except SurfaceError as error:
                _log.warning("what was said in %s was not read: %s", each.target, error)
                if error.retry_after:
                    await asyncio.sleep(error.retry_after)

    async def _read(self, owned: Owned) -> None:
        team, place = await self._out().channel(owned.target)
        since = max(owned.last_at, self._ground.now() - BACK)
        found = [each async for each in self._sender.messages(team, place, since)]
        for each in sorted(found, key=lambda one: float(one["ts"])):
            await self._door.post(team, {**each, "channel": place.channel})


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except NodError as error:
        _log.warning("%s", error)
    except Exception as error:  # noqa: BLE001  # broad: a task's border; payloads stay out of logs
        _log.error("something shown on Slack failed: %s", type(error).__name__)


_SET_SECRET = "Set SLACK_SIGNING_SECRET; it is on the app's page Basic Information."
_SET_APP = "Set SLACK_APP_TOKEN to a token that begins with xapp-, with scope connections:write."
