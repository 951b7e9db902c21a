"""A strict Slack on localhost: Web API, Socket Mode, signed HTTP requests, files, OAuth.

It refuses what Slack refuses, sends the bot its own posts and edits as events like Slack does, and
notes how long each acknowledgement took. Controls: say, edit, press, submit, command, open_home,
redeliver, disconnect, fail, revoke.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from aiohttp import ClientSession, ClientTimeout, WSMsgType, web

from tests.fakes.markup import Refused
from tests.fakes.slack_state import App, Channel, File, Post, Team
from tests.fakes.slack_streams import METHODS

__all__ = ["Ack", "FakeSlack"]

APP_TOKEN, SECRET = "xapp-1-fake", "shhh"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """What the app answered."""

    ok: bool
    payload: Any = None
    seconds: float = 0.0
    status: int = 200


@dataclass(slots=True, kw_only=True)
class _Failure:
    method: str
    error: str
    status: int
    retry_after: str
    #: Carried out all the same, and then the connection breaks.
    after: bool
    times: int


class FakeSlack(App):
    """An async context manager. `T1` is there, with ana, ben and two channels."""

    def __init__(self) -> None:
        super().__init__()
        self.add_team("T1", "Acme")
        #: Every call: (method, team, arguments).
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        #: Answers that came to a response_url: (user, message).
        self.responses: list[tuple[str, Any]] = []
        self.acks: list[Ack] = []
        self.sockets: list[web.WebSocketResponse] = []
        self.opened = 0
        #: Set: requests are sent there instead of into sockets.
        self.request_url = ""
        #: Seconds the app has to acknowledge.
        self.limit = 3.0
        #: Answers no ping of a socket.
        self.deaf = False
        #: False: apps.connections.open refuses the token.
        self.app_token_good = True
        self.oauth_codes: dict[str, str] = {}
        #: Methods that are carried out and never answered.
        self.mute: set[str] = set()
        #: Posts and edits of the bot that came back as events, and were acknowledged.
        self.echoed = 0
        self._failures: list[_Failure] = []
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._sent: list[tuple[str, Any]] = []
        self._respond: dict[str, str] = {}

    async def __aenter__(self) -> FakeSlack:
        served = web.Application(client_max_size=50_000_000)
        served.router.add_post("/api/{method}", self._api)
        served.router.add_get("/api/{method}", self._api)
        served.router.add_get("/link", self._link)
        served.router.add_post("/upload/{file}", self._upload)
        served.router.add_get("/files/{file}", self._download)
        served.router.add_post("/respond/{id}", self._response)
        self._runner = web.AppRunner(served, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self._client = ClientSession(timeout=ClientTimeout(total=20))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        for socket in self.sockets:
            await socket.close()
        await self._client.close()
        await self._runner.cleanup()

    @property
    def base_url(self) -> str:
        return f"{self.url}/api/"

    def add_team(self, id: str, name: str) -> Team:
        """Add a workspace with the app installed."""
        team = Team(id=id, name=name, token=f"xoxb-{id}", bot_user=f"UBOT{id}", bot=f"BBOT{id}")
        team.users = {"UANA": "ana", "UBEN": "ben", team.bot_user: "nod"}
        for channel in ("CGEN", "CSTAND"):
            team.channels[channel] = Channel(id=channel, members={*team.users})
        self.teams[id] = team
        return team

    def add_org(self, id: str, name: str, *workspaces: str) -> Team:
        """Add an organization with the app installed for all of it; CGEN lies in the first."""
        team = self.add_team(id, name)
        team.workspaces = workspaces
        for channel, workspace in zip(team.channels.values(), workspaces, strict=True):
            channel.workspace = workspace
        return team

    # -- the Web API

    async def _api(self, request: web.Request) -> web.StreamResponse:
        name, given = request.match_info["method"], await _arguments(request)
        failure = self._failure(name)
        if failure is not None and not failure.after:
            return self._failed(failure, request)
        try:
            team, answer = self._called(name, request, given)
        except Refused as refused:
            code, _, detail = str(refused).partition(":")
            body: dict[str, Any] = {"ok": False, "error": code.strip()}
            if code == "missing_scope":
                body |= {"needed": detail, "provided": ""}
            elif detail:
                body["response_metadata"] = {"messages": [detail.strip()]}
            return web.json_response(body)
        await self._notice()
        if name in self.mute:
            await asyncio.sleep(3600)
        if failure is not None:
            return self._failed(failure, request)
        scopes = ",".join(sorted(team.scopes)) if team else ""
        return web.json_response({"ok": True, **answer}, headers={"x-oauth-scopes": scopes})

    def _called(
        self, name: str, request: web.Request, given: dict[str, Any]
    ) -> tuple[Team | None, Any]:
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        token = bearer or str(given.pop("token", ""))
        if name == "apps.connections.open":
            return None, self._connection(token)
        if name == "oauth.v2.access":
            return None, self._oauth(given)
        team = next((each for each in self.teams.values() if each.token == token), None)
        self.calls.append((name, team.id if team else "", given))
        if team is None:
            raise Refused("invalid_auth")
        if team.revoked:
            raise Refused("token_revoked")
        if name not in METHODS:
            raise Refused("unknown_method")
        work, scope, needed, takes_json = METHODS[name]
        self.need(team, scope)
        is_json = request.content_type == "application/json"
        if is_json and not takes_json:
            raise Refused("invalid_form_data")
        if any(not given.get(each) for each in needed):
            raise Refused(f"invalid_arguments: missing one of {needed}")
        return team, work(self, team, given)

    def _connection(self, token: str) -> dict[str, Any]:
        if token != APP_TOKEN or not self.app_token_good:
            raise Refused("invalid_auth")
        if len([each for each in self.sockets if not each.closed]) >= 10:
            raise Refused("too_many_websockets")
        self.opened += 1
        return {"url": f"{self.url.replace('http', 'ws', 1)}/link?ticket={self.opened}"}

    def _oauth(self, given: Mapping[str, Any]) -> dict[str, Any]:
        team = self.oauth_codes.pop(str(given.get("code")), None)
        if team is None:
            raise Refused("invalid_code")
        found = self.teams[team]
        who = {"id": found.id, "name": found.name}
        whole = bool(found.workspaces)
        return {
            "access_token": found.token,
            "token_type": "bot",
            "team": None if whole else who,
            "enterprise": who if whole else None,
            "is_enterprise_install": whole,
        }

    def fail(
        self,
        method: str,
        error: str = "",
        *,
        status: int = 200,
        retry_after: str = "",
        after: bool = False,
        times: int = 1,
    ) -> None:
        """Let the next calls of a method fail: with an error, a status, or a broken connection."""
        failure = _Failure(
            method=method,
            error=error,
            status=status,
            retry_after=retry_after,
            after=after,
            times=times,
        )
        self._failures.append(failure)

    def _failure(self, name: str) -> _Failure | None:
        found = next((each for each in self._failures if each.method == name), None)
        if found is not None:
            found.times -= 1
            if found.times <= 0:
                self._failures.remove(found)
        return found

    def _failed(self, failure: _Failure, request: web.Request) -> web.StreamResponse:
        if not failure.error and failure.status == 200:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        headers = {"Retry-After": failure.retry_after} if failure.retry_after else {}
        body = {"ok": False, "error": failure.error}
        return web.json_response(body, status=failure.status, headers=headers)

    # -- files

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        file = self.files[request.match_info["file"]]
        content = await request.read()
        if len(content) != file.length:
            return web.Response(status=400, text="wrong length")
        file.content = content
        return web.Response(text=f"OK - {len(content)}")

    async def _download(self, request: web.Request) -> web.StreamResponse:
        file = self.files[request.match_info["file"]]
        team = self.teams[file.team]
        known = request.headers.get("Authorization") == f"Bearer {team.token}"
        if file.instead is not None:
            status, media, content = file.instead
            return web.Response(status=status, content_type=media, body=content)
        if not known or "files:read" not in team.scopes:
            return web.Response(
                content_type="text/html", text="<!DOCTYPE html><html>Sign in</html>"
            )
        return web.Response(content_type=file.media, body=file.content)

    # -- Socket Mode

    async def _link(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(autoping=not self.deaf)
        await socket.prepare(request)
        self.sockets.append(socket)
        count = len([each for each in self.sockets if not each.closed])
        await socket.send_json({"type": "hello", "num_connections": count})
        await self._notice()
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                answer = json.loads(message.data)
                waiting = self._waiting.pop(answer["envelope_id"], None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer.get("payload"))
        return socket

    async def disconnect(self, reason: str = "refresh_requested") -> None:
        """Ask the app to connect again; "" just cuts the connection."""
        for socket in [each for each in self.sockets if not each.closed]:
            if reason:
                await socket.send_json({"type": "disconnect", "reason": reason})
            else:
                await socket.close()

    async def connected(self, times: int = 1) -> None:
        """Wait until the app has opened that many sockets, and one is open."""
        await self.until(
            lambda: len(self.sockets) >= times and any(not each.closed for each in self.sockets)
        )

    # -- sending to the app

    async def send(self, kind: str, payload: Any, retry: int = 0) -> Ack:
        """Send a request and wait for its acknowledgement; kinds as in Socket Mode."""
        self._sent.append((kind, payload))
        began = time.monotonic()
        if self.request_url:
            ack = await self._signed(kind, payload, retry)
        else:
            ack = await self._enveloped(kind, payload, retry)
        ack = Ack(
            ok=ack.ok, payload=ack.payload, seconds=time.monotonic() - began, status=ack.status
        )
        self.acks.append(ack)
        return ack

    async def redeliver(self, last: int = 1) -> Ack:
        """Send one of the last requests again, as Slack does when it was not acknowledged."""
        kind, payload = self._sent[-last]
        return await self.send(kind, payload, retry=1)

    async def _enveloped(self, kind: str, payload: Any, retry: int) -> Ack:
        socket = next((each for each in reversed(self.sockets) if not each.closed), None)
        if socket is None:
            return Ack(ok=False)
        envelope = f"e{self.number()}"
        waiting = asyncio.get_running_loop().create_future()
        self._waiting[envelope] = waiting
        message = {"envelope_id": envelope, "type": kind, "payload": payload}
        message |= {"retry_attempt": retry, "retry_reason": "timeout" if retry else ""}
        try:
            await socket.send_json({**message, "accepts_response_payload": True})
            async with asyncio.timeout(self.limit):
                return Ack(ok=True, payload=await waiting)
        except (TimeoutError, ConnectionError):
            return Ack(ok=False)

    async def _signed(self, kind: str, payload: Any, retry: int) -> Ack:
        if kind == "slash_commands":
            body, content = urlencode(payload), "application/x-www-form-urlencoded"
        elif kind == "interactive":
            body = urlencode({"payload": json.dumps(payload)})
            content = "application/x-www-form-urlencoded"
        else:
            body, content = json.dumps(payload), "application/json"
        headers = {"Content-Type": content, **sign(body)}
        if retry:
            headers |= {"X-Slack-Retry-Num": str(retry), "X-Slack-Retry-Reason": "http_timeout"}
        timeout = ClientTimeout(total=self.limit)
        try:
            async with self._client.post(
                self.request_url, data=body, headers=headers, timeout=timeout
            ) as answer:
                text = await answer.text()
                shown = json.loads(text) if text[:1] == "{" else (text or None)
                return Ack(ok=answer.status == 200, payload=shown, status=answer.status)
        except (TimeoutError, ConnectionError):
            return Ack(ok=False, status=0)

    def event(self, team: str, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return the payload of an event; it happens in `event["team"]`, else in the team."""
        found = self.teams[team]
        where = found.within(str(event.get("team") or ""))
        authorization = {"user_id": found.bot_user, "is_bot": True}
        authorization |= {"team_id": where, "is_enterprise_install": bool(found.workspaces)}
        authorization |= {"enterprise_id": team if found.workspaces else None}
        return {
            "type": "event_callback",
            "team_id": where,
            "context_team_id": where,
            "api_app_id": "A1",
            "event": dict(event),
            "event_id": f"Ev{self.number()}",
            "event_time": int(time.time()),
            "authorizations": [authorization],
        }

    def _pressed(self, team: Team, user: str, workspace: str) -> dict[str, Any]:
        """Return who pressed or filled in, and where: a payload of an organization has no team."""
        who = {"id": user, "name": team.users.get(user, user), "team_id": team.within(workspace)}
        if not team.workspaces:
            return {"team": {"id": team.id, "domain": "x"}, "enterprise": None, "user": who}
        enterprise = {"id": team.id, "name": team.name}
        return {"team": None, "enterprise": enterprise, "is_enterprise_install": True, "user": who}

    # -- what people do

    async def say(
        self,
        text: str,
        *,
        user: str = "UANA",
        channel: str = "CGEN",
        team: str = "T1",
        thread: str = "",
        files: list[File] | None = None,
        kinds: tuple[str, ...] = (),
        **more: Any,
    ) -> Post:
        """Write a post; a mention of the bot comes as two events, unless `kinds` says which."""
        found = self.teams[team]
        more.setdefault("team", found.within(str(more.pop("workspace", ""))))
        place = self.direct(team, user) if channel == "DM" else found.channels[channel]
        text = text.replace("@nod", f"<@{found.bot_user}>")
        shown = [file.shown(self) for file in files or ()]
        post = place.add(self.tick(), user=user, text=text, thread=thread, files=shown)
        post.subtype = more.pop("subtype", "file_share" if shown else "")
        mentioned = found.bot_user in text and place.id[0] != "D"
        for kind in kinds or (("app_mention", "message") if mentioned else ("message",)):
            await self.send("events_api", self.event(team, _event(kind, place, post, more)))
        return post

    async def direct_say(self, text: str, **more: Any) -> Post:
        """Write to the bot in a DM."""
        return await self.say(text, channel="DM", **more)

    async def edit(self, post: Post, channel: str, text: str, team: str = "T1") -> Ack:
        """Change a post; an equal text stands for a link preview that came."""
        place = self.teams[team].channels[channel]
        before = post.shown(False)
        now = {**before, "text": text.replace("@nod", f"<@{self.teams[team].bot_user}>")}
        if text != post.text:
            now["edited"] = {"user": post.user, "ts": self.tick()}
        post.text = now["text"]
        kind = {"type": "message", "subtype": "message_changed", "hidden": True}
        changed = {**kind, "message": now, "previous_message": before}
        where = {"channel": place.id, "ts": self.tick(), "channel_type": _kind(place)}
        return await self.send("events_api", self.event(team, {**changed, **where}))

    def file(
        self, name: str, media: str, content: bytes, team: str = "T1", subtype: str = ""
    ) -> File:
        """Put a file on Slack, to be sent with `say`."""
        file = self.new_file(self.teams[team], name, len(content))
        file.media, file.content, file.subtype = media, content, subtype
        return file

    async def press(
        self,
        label: str,
        post: Post | None = None,
        *,
        user: str = "UANA",
        channel: str = "",
        team: str = "T1",
        row: int = 0,
        value: str = "",
        action_id: str = "",
    ) -> Ack:
        """Press a button by its label: of a post, or of the user's Home; `row` of several."""
        blocks = post.blocks if post else self.homes[user]["blocks"]
        block_id, button = _buttons(blocks, label)[row]
        action = {"type": "button", "block_id": block_id, "action_ts": self.tick()}
        action |= {"action_id": action_id or button["action_id"]}
        action |= {"value": value or button["value"], "text": button["text"]}
        return await self.send(
            "interactive", self._action(action, post, user=user, channel=channel, team=team)
        )

    def _action(
        self, action: Mapping[str, Any], post: Post | None, *, user: str, channel: str, team: str
    ) -> dict[str, Any]:
        body = {
            "type": "block_actions",
            **self._pressed(self.teams[team], user, ""),
            "api_app_id": "A1",
            "trigger_id": self.trigger(user),
            "actions": [action],
        }
        if post is None:
            return {**body, "container": {"type": "view", "view_id": f"VHOME{user}"}}
        respond = f"r{self.number()}"
        self._respond[respond] = user
        place = next(
            each.id
            for each in self.teams[team].channels.values()
            if post.ts in each.posts and channel in ("", each.id)
        )
        container = {"type": "message", "message_ts": post.ts, "channel_id": place}
        if post.thread:
            container["thread_ts"] = post.thread
        return {
            **body,
            "container": container,
            "channel": {"id": place, "name": "x"},
            "message": post.shown(False),
            "response_url": f"{self.url}/respond/{respond}",
        }

    async def submit(
        self, values: Mapping[str, str], *, user: str = "UANA", team: str = "T1"
    ) -> Ack:
        """Send the newest form this user has open."""
        view = [each for each in self.views.values() if each["user"] == user][-1]
        state = {}
        for block in view["blocks"]:
            if block["type"] == "input":
                state[block["block_id"]] = {"value": _filled(block, values)}
        unknown = set(values) - set(state)
        assert not unknown, f"the form has no {unknown}, only {set(state)}"
        body = {
            "type": "view_submission",
            **self._pressed(self.teams[team], user, ""),
            "api_app_id": "A1",
            "trigger_id": self.trigger(user),
            "view": {**view, "state": {"values": state}},
        }
        ack = await self.send("interactive", body)
        if ack.ok and (ack.payload or {}).get("response_action") is None:
            del self.views[view["id"]]
        return ack

    async def command(
        self, text: str, *, user: str = "UANA", channel: str = "CGEN", team: str = "T1"
    ) -> Ack:
        """Type `/nod text`."""
        found = self.teams[team]
        place = self.direct(team, user) if channel == "DM" else found.channels[channel]
        respond = f"r{self.number()}"
        self._respond[respond] = user
        payload = {
            "command": "/nod",
            "text": text,
            "team_id": found.within(place.workspace),
            **({"enterprise_id": team} if found.workspaces else {}),
            "is_enterprise_install": str(bool(found.workspaces)).lower(),
            "channel_id": place.id,
            "user_id": user,
            "user_name": found.users.get(user, user),
            "api_app_id": "A1",
            "trigger_id": self.trigger(user),
            "response_url": f"{self.url}/respond/{respond}",
        }
        return await self.send("slash_commands", payload)

    async def open_home(self, user: str = "UANA", team: str = "T1") -> Ack:
        """Open the Home."""
        event = {"type": "app_home_opened", "user": user, "tab": "home", "channel": f"D{user[1:]}"}
        return await self.send("events_api", self.event(team, event))

    async def _response(self, request: web.Request) -> web.StreamResponse:
        user = self._respond.get(request.match_info["id"])
        if user is None:
            return web.Response(status=404)
        self.responses.append((user, await request.json()))
        await self._notice()
        return web.Response(text="ok")

    # -- what the bot did comes back as events

    def posted(self, team: Team, channel: Channel, post: Post) -> None:
        self.busy.discard((channel.id, post.thread))
        self.later(self._echo(team, _event("message", channel, post, {})))

    def changed(self, team: Team, channel: Channel, post: Post, before: Mapping[str, Any]) -> None:
        now = {**post.shown(False), "edited": {"user": post.user, "ts": self.tick()}}
        event = {"type": "message", "subtype": "message_changed", "message": now}
        event |= {"previous_message": before, "channel": channel.id, "ts": self.tick()}
        self.later(self._echo(team, event))

    async def _echo(self, team: Team, event: Mapping[str, Any]) -> None:
        sent = len(self._sent)
        if self.request_url or any(not each.closed for each in self.sockets):
            payload = self.event(team.id, event)
            await (self._signed if self.request_url else self._enveloped)("events_api", payload, 0)
            self.echoed += 1
        assert len(self._sent) >= sent

    # -- waiting

    async def _notice(self) -> None:
        async with self.changes:
            self.changes.notify_all()

    async def until(self, holds: Any, limit: float = 8.0) -> None:
        """Wait until `holds()`; it is asked again whenever something changed."""
        async with asyncio.timeout(limit):
            while not holds():
                async with self.changes:
                    try:
                        async with asyncio.timeout(0.05):
                            await self.changes.wait()
                    except TimeoutError:
                        continue

    def posts_per_delivery(self) -> set[int]:
        """Return how often each part of each delivery was posted: {1} is once."""
        counts: dict[tuple[str, int], int] = {}
        for team in self.teams.values():
            for channel in team.channels.values():
                for post in channel.of_nod:
                    if post.metadata:
                        held = post.metadata["event_payload"]
                        key = (held["delivery"], held["part"])
                        counts[key] = counts.get(key, 0) + 1
        return set(counts.values())

    def called(self, method: str) -> list[dict[str, Any]]:
        """Return the arguments of every call of a method."""
        return [given for name, _, given in self.calls if name == method]


def sign(body: str, secret: str = SECRET, at: float | None = None) -> dict[str, str]:
    """Return the headers Slack signs a request with."""
    stamp = str(int(time.time() if at is None else at))
    mac = hmac.new(secret.encode(), f"v0:{stamp}:{body}".encode(), hashlib.sha256).hexdigest()
    return {"X-Slack-Signature": f"v0={mac}", "X-Slack-Request-Timestamp": stamp}


async def _arguments(request: web.Request) -> dict[str, Any]:
    if request.content_type == "application/json":
        return dict(await request.json())
    text = await request.text()
    given: dict[str, Any] = dict(parse_qsl(text, keep_blank_values=True))
    return {**request.query, **given}


def _kind(channel: Channel) -> str:
    return {"D": "im", "G": "group"}.get(channel.id[0], "channel")


def _event(kind: str, channel: Channel, post: Post, more: Mapping[str, Any]) -> dict[str, Any]:
    shown = {**post.shown(False), "type": kind, "channel": channel.id, **more}
    if kind == "message":
        return {**shown, "channel_type": _kind(channel), "event_ts": post.ts}
    shown.pop("subtype", None)  # a mention never has one
    return {**shown, "event_ts": post.ts}


def _buttons(blocks: list[Any], label: str) -> list[tuple[str, Mapping[str, Any]]]:
    buttons = [
        (block.get("block_id", ""), each)
        for block in blocks
        if block["type"] == "actions"
        for each in block["elements"]
    ]
    found = [each for each in buttons if each[1]["text"]["text"] == label]
    assert found, f"no button {label!r}, only {[b['text']['text'] for _, b in buttons]}"
    return found


def _filled(block: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    element, name = block["element"], block["block_id"]
    if element["type"] == "static_select":
        first = (element.get("initial_option") or {}).get("value")
        chosen = values.get(name, first)
        known = [each["value"] for each in element["options"]]
        assert chosen is None or chosen in known, f"{chosen} is none of {known}"
        return {"type": "static_select", "selected_option": chosen and {"value": chosen}}
    text = values.get(name, element.get("initial_value"))
    assert text or block.get("optional"), f"{name} must be filled in"
    return {"type": element["type"], "value": text}
