"""Discord on localhost: its HTTP API and its gateway, servers, and hands to drive it.

It refuses what Discord refuses, keeps to the three seconds of an interaction, shows a nonce only to
whoever posts or listens, and forgets what was said while nobody listened.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.fakes import discord_rules as rules
from tests.fakes.discord_gateway import APPLICATION, GUILD, ROLE, Gateway, Json, member, stamp
from tests.fakes.markup import Refused

__all__ = ["APPLICATION", "GENERAL", "GUILD", "ROLE", "TOKEN", "FakeDiscord", "Pressed", "discord"]

TOKEN = "MTAwMDE.G-fake.not-a-real-token-at-all"
GENERAL = "1000000000000000003"

#: Seconds for a first answer, and for which a nonce is enforced.
WINDOW, ENFORCED = 3.0, 300.0

#: What every answer says of the room for more; without it, clients send one request at a time.
#: https://discord.com/developers/docs/topics/rate-limits#header-format
_ROOM = {
    "X-RateLimit-Limit": "1000",
    "X-RateLimit-Remaining": "999",
    "X-RateLimit-Reset-After": "1.000",
}

_EPOCH = 1_420_070_400_000
_STATUS = {"10003": 404, "10008": 404, "10062": 404, "10015": 404, "50001": 403, "50013": 403}


@dataclass
class Pressed:
    """One interaction, and how it was answered."""

    id: str
    token: str
    kind: int
    at: float
    channel: str
    user: Json
    message: Json | None = None
    #: (type, data) of the first answer.
    answers: list[tuple[int, Json]] = field(default_factory=list)
    #: What was said to this person only, as it reads now.
    told: list[Json] = field(default_factory=list)
    #: Contents of the files that came along.
    files: list[bytes] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return [rules.text_of(each) for each in self.told]

    @property
    def kinds(self) -> list[int]:
        return [kind for kind, _ in self.answers]


@dataclass
class _Failure:
    method: str
    path: str
    status: int
    body: Any
    headers: Mapping[str, str]
    left: int
    #: What was asked is done all the same.
    after: bool = False


class FakeDiscord(Gateway):
    """A server with a channel, more of them when asked for, and whoever writes there."""

    def __init__(self) -> None:
        super().__init__(TOKEN)
        self.window = WINDOW
        self.permissions = (1 << 53) - 1
        #: Channels in which Nod may read and not write.
        self.silent: set[str] = set()
        self.users: dict[str, Json] = {}
        self.channels: dict[str, Json] = {}
        self.posts: dict[str, dict[str, Json]] = {}
        self.files: dict[str, bytes] = {}
        self.interactions: dict[str, Pressed] = {}
        self.commands: list[Json] = []
        #: (method, path) of every request, what was refused, who was pinged, what was previewed.
        self.requests: list[tuple[str, str]] = []
        self.refused: list[str] = []
        #: (method, path, body) of what was carried out, in order; and what came in a pause.
        self.done: list[tuple[str, str, Any]] = []
        self.impatient: list[tuple[str, str]] = []
        #: channel -> when it takes requests again.
        self._throttled: dict[str, float] = {}
        self.warned: set[str] = set()
        self.pinged: list[str] = []
        self.unfurled: list[str] = []
        self.typed: list[str] = []
        self._nonces: dict[tuple[str, str], tuple[float, str]] = {}
        self._failures: list[_Failure] = []
        self._last = 0
        self.me = self.user("nod", bot=True, id=APPLICATION)
        self.general = self.channel("general", GENERAL)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api/v10"

    # -- hands

    def user(self, name: str, *, bot: bool = False, id: str = "") -> Json:
        """Make a person, or a bot."""
        made: Json = {
            "id": id or self._id(),
            "username": name,
            "global_name": name.title(),
            "discriminator": "0",
            "avatar": None,
            "bot": bot,
        }
        self.users[made["id"]] = made
        return made

    def guild(self, name: str) -> str:
        """Make another server, which Nod is in from its next connection on; return its id."""
        made = self._id()
        self.guilds[made] = {"name": name, "role": self._id()}
        return made

    async def invite(self, guild: str) -> None:
        """Tell those who are connected that Nod is in a server."""
        await self.dispatch("GUILD_CREATE", self._guild(guild))

    def channel(self, name: str, id: str = "", guild: str = GUILD) -> str:
        """Make a channel of a server; return its id."""
        made: Json = {
            "id": id or self._id(),
            "type": 0,
            "name": name,
            "guild_id": guild,
            "position": 0,
        }
        made |= {"permission_overwrites": [], "nsfw": False, "parent_id": None, "topic": None}
        made |= {"last_message_id": None, "rate_limit_per_user": 0}
        self.channels[made["id"]] = made
        self.posts[made["id"]] = {}
        return str(made["id"])

    def direct(self, user: Json) -> str:
        """Return the channel of a person's direct messages with Nod."""
        for each in self.channels.values():
            if each["type"] == 1 and each["recipients"][0]["id"] == user["id"]:
                return str(each["id"])
        made: Json = {"id": self._id(), "type": 1, "recipients": [user], "last_message_id": None}
        self.channels[made["id"]] = made
        self.posts[made["id"]] = {}
        return str(made["id"])

    async def say(
        self,
        channel: str,
        user: Json,
        text: str,
        *,
        files: Sequence[tuple[str, str, bytes]] = (),
        reply_to: Json | None = None,
        everyone: bool = False,
        **more: Any,
    ) -> Json:
        """Write a message as somebody; `<@id>` in it mentions."""
        message = self._message(channel, user, text, **more)
        message["attachments"] = [self._attachment(*each) for each in files]
        message["mention_everyone"] = everyone
        if reply_to is not None:
            message |= {"type": 19, "referenced_message": reply_to}
            message["message_reference"] = {"message_id": reply_to["id"], "channel_id": channel}
        await self._tell(message)
        return message

    async def branch(self, message: Json, name: str) -> str:
        """Open a thread at a message, as a person does; return its id."""
        body = {"name": name, "auto_archive_duration": 4320}
        await self._thread(message["channel_id"], message["id"], body)
        return str(message["id"])

    async def change(self, message: Json, text: str) -> None:
        """Change what somebody wrote."""
        message |= {"content": text, "edited_timestamp": stamp()}
        await self.dispatch("MESSAGE_UPDATE", self._seen(message))

    async def press(self, message: Json, label: str, user: Json, custom_id: str = "") -> Pressed:
        """Press a button of a message by its label, or one with a custom_id of one's own."""
        buttons = [each for each in rules.every(message["components"]) if each["type"] == 2]
        named = [each["custom_id"] for each in buttons if each["label"] == label]
        data = {"component_type": 2, "custom_id": custom_id or named[0]}
        return await self._interact(3, message["channel_id"], user, data, message)

    async def submit(self, opened: Pressed, values: Mapping[str, str], user: Json) -> Pressed:
        """Fill the modal that a press opened; what is not in `values` stays as it was shown."""
        modal, parts = opened.answers[0][1], list[Json]()
        for part in modal["components"]:
            if part["type"] != 18:
                continue
            inside, name = part["component"], part["component"]["custom_id"]
            if inside["type"] == 3:
                was = [each["value"] for each in inside["options"] if each.get("default")]
                chosen = [values[name]] if name in values else was
                filled: Json = {"type": 3, "custom_id": name, "values": chosen}
            else:
                said = values.get(name, inside.get("value", ""))
                filled = {"type": 4, "custom_id": name, "value": said}
            parts.append({"type": 18, "id": len(parts) + 1, "component": {**filled, "id": 99}})
        data = {"custom_id": modal["custom_id"], "components": parts}
        return await self._interact(5, opened.channel, user, data, opened.message)

    async def command(
        self, channel: str, user: Json, name: str, words: str = "", **fields: str
    ) -> Pressed:
        """Give a command that the application has told of, with its words, or its fields."""
        given = {**({"words": words} if words else {}), **fields}
        return await self._interact(2, channel, user, self._commanded(name, given))

    async def complete(
        self, channel: str, user: Json, name: str, typed: str, option: str = "words"
    ) -> list[Json]:
        """Type at an option of a command; return what is offered."""
        data = self._commanded(name, {option: typed}, focused=option)
        found = await self._interact(4, channel, user, data)
        await self.until(lambda: bool(found.answers))
        return list(found.answers[0][1]["choices"])

    def fail(
        self,
        method: str,
        path: str,
        status: int,
        body: Any = None,
        *,
        times: int = 1,
        after: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Answer the next requests whose path matches with a failure; `after` they are done."""
        self._failures.append(_Failure(method, path, status, body, headers or {}, times, after))

    def throttle(self, channel: str, seconds: float) -> None:
        """Take nothing for a channel for so long; whoever was told so must not ask before."""
        self._throttled[channel] = time.monotonic() + seconds
        self.warned.discard(channel)

    async def again(self, message: Json) -> None:
        """Tell of a message a second time."""
        await self.dispatch("MESSAGE_CREATE", self._seen(message))

    def shown(self, channel: str) -> list[str]:
        """Return what Nod's messages in a channel show now."""
        own = [each for each in self.of(channel) if each["author"]["id"] == self.me["id"]]
        return [rules.text_of(each) for each in own if each["type"] != 21]

    def of(self, channel: str) -> list[Json]:
        """Return the messages of a channel, in order."""
        return list(self.posts.get(channel, {}).values())

    async def until(self, holds: Callable[[], Any], limit: float = 10.0) -> Any:
        """Wait until `holds()`; it is asked again whenever something changed."""
        async with asyncio.timeout(limit), self.changed:
            return await self.changed.wait_for(holds)

    # -- what there is

    def _id(self) -> str:
        self._last = max(self._last + 1, (int(time.time() * 1000) - _EPOCH) << 22)
        return str(self._last)

    def _message(self, channel: str, user: Json, text: str, **more: Any) -> Json:
        named = [self.users[each] for each in re.findall(r"<@!?(\d+)>", text) if each in self.users]
        message = {
            "id": self._id(), "channel_id": channel, "author": user, "content": text, "type": 0,
            "timestamp": stamp(), "edited_timestamp": None, "tts": False, "pinned": False,
            "mention_everyone": False, "mentions": named, "attachments": [], "embeds": [],
            "mention_roles": re.findall(r"<@&(\d+)>", text), "components": [], "flags": 0, **more,
        }  # fmt: skip
        self.posts[channel][message["id"]] = message
        self.channels[channel]["last_message_id"] = message["id"]
        return message

    def _attachment(self, name: str, kind: str, content: bytes) -> Json:
        made = self._id()
        self.files[made] = content
        url = f"http://127.0.0.1:{self.port}/files/{made}/{name}"
        found = {"id": made, "filename": name, "size": len(content), "url": url, "proxy_url": url}
        voice = {"duration_secs": 1.0, "waveform": "AAAA"} if kind.startswith("audio/") else {}
        return {**found, "content_type": kind, **voice}

    def _seen(self, message: Json) -> Json:
        """Return a message as the gateway tells of it."""
        channel = self.channels[message["channel_id"]]
        if "guild_id" not in channel:
            return dict(message)
        member = {"roles": [], "joined_at": stamp(), "deaf": False, "mute": False, "flags": 0}
        return {**message, "guild_id": channel["guild_id"], "member": member}

    async def _tell(self, message: Json) -> None:
        await self.dispatch("MESSAGE_CREATE", self._seen(message))
        async with self.changed:
            self.changed.notify_all()

    def _commanded(self, name: str, given: Mapping[str, str], focused: str = "") -> Json:
        known = next(each for each in self.commands if each["name"] == name)
        options = {each["name"]: each for each in known.get("options", ())}
        made: list[Json] = []
        for option, value in given.items():
            kind = options[option]["type"]
            if kind == 7 and self.channels[value]["type"] not in options[option]["channel_types"]:
                raise ValueError(f"the picker does not offer the channel {value}")
            each: Json = {"type": kind, "name": option, "value": value}
            if focused:
                assert options[option].get("autocomplete"), f"{option} is not completed"
                each["focused"] = option == focused
            made.append(each)
        missing = [each for each, o in options.items() if o.get("required") and each not in given]
        assert focused or not missing, f"the app asks for {missing} first"
        return {"id": known["id"], "name": name, "type": 1, **({"options": made} if made else {})}

    async def _interact(
        self, kind: int, channel: str, user: Json, data: Json, message: Json | None = None
    ) -> Pressed:
        made = Pressed(
            id=self._id(),
            token=f"interaction-token-{next(self._numbers)}",
            kind=kind,
            at=time.monotonic(),
            channel=channel,
            user=user,
            message=message,
        )
        self.interactions[made.id] = made
        place = self.channels[channel]
        event: Json = {
            "id": made.id, "application_id": APPLICATION, "type": kind, "token": made.token,
            "version": 1, "channel": place, "channel_id": channel, "data": data,
            "attachment_size_limit": 10 * 1024 * 1024, "entitlements": [], "locale": "en-US",
            "authorizing_integration_owners": {}, "app_permissions": str(self.permissions),
        }  # fmt: skip
        if message is not None:
            event["message"] = message
        if "guild_id" in place:
            told = {**member(user), "permissions": "0"}
            event |= {"guild_id": place["guild_id"], "member": told}
        else:
            event["user"] = user
        await self.dispatch("INTERACTION_CREATE", event)
        return made

    # -- the HTTP API

    async def _api(self, request: web.Request) -> web.Response:
        answer = await self._asked(request)
        for name, value in _ROOM.items():
            answer.headers.setdefault(name, value)
        return answer

    async def _asked(self, request: web.Request) -> web.Response:
        path, method = "/" + request.match_info["path"], request.method
        self.requests.append((method, path))
        if request.headers.get("Authorization") != f"Bot {self.token}":
            return _json({"message": "401: Unauthorized", "code": 0}, 401)
        failure = self._failing(method, path)
        if failure is not None and not failure.after:
            return _json(failure.body, failure.status, failure.headers)
        if (held := self._held_back(method, path)) is not None:
            return held
        try:
            body, files = await _read(request)
            answer = await self._routed(method, path, body, files, request.query)
        except Refused as error:
            self.refused.append(str(error))
            code, _, text = str(error).partition(": ")
            return _json({"message": text, "code": int(code)}, _STATUS.get(code, 400))
        self.done.append((method, path, body))
        async with self.changed:
            self.changed.notify_all()
        if failure is not None:
            return _json(failure.body, failure.status, failure.headers)
        return web.Response(status=204) if answer is None else _json(answer)

    def _held_back(self, method: str, path: str) -> web.Response | None:
        found = re.match(r"/channels/(\d+)/", path)
        channel = found[1] if found and method != "GET" else ""
        left = self._throttled.get(channel, 0.0) - time.monotonic()
        if left <= 0:
            return None
        if channel in self.warned:
            self.impatient.append((method, path))
        self.warned.add(channel)
        body = {"message": "You are being rate limited.", "retry_after": left, "global": False}
        return _json(body, 429, {"Via": "1.1 google", "Retry-After": str(int(left) + 1)})

    def _failing(self, method: str, path: str) -> _Failure | None:
        for each in self._failures:
            if each.method == method and re.search(each.path, path) and each.left:
                each.left -= 1
                return each
        return None

    async def _routed(
        self,
        method: str,
        path: str,
        body: Any,
        files: Sequence[tuple[str, bytes]],
        query: Mapping[str, str],
    ) -> Any:
        for pattern, act in self._routes.items():
            wanted, _, shape = pattern.partition(" ")
            found = re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", shape), path)
            if found and wanted == method:
                return await act(self, body=body, files=files, query=query, **found.groupdict())
        raise Refused("0: 404: Not Found")

    async def _users_me(self, **_: Any) -> Json:
        return {**self.me, "verified": True, "mfa_enabled": True, "flags": 0}

    async def _application(self, **_: Any) -> Json:
        flags = (1 << 19) if self.content_allowed else 0
        return {
            "id": APPLICATION, "name": "Nod", "description": "", "icon": None, "flags": flags,
            "bot_public": True, "bot_require_code_grant": False, "owner": self.me, "team": None,
            "summary": "", "verify_key": "0" * 64, "rpc_origins": [],
        }  # fmt: skip

    async def _guilds(self, **_: Any) -> list[Json]:
        return [
            {"id": each, "name": known["name"], "permissions": str(self.permissions)}
            for each, known in self.guilds.items()
        ]

    async def _set_commands(self, body: Any, **_: Any) -> list[Json]:
        rules.check_commands(body)
        self.commands = [{**each, "id": self._id()} for each in body]
        same = {"application_id": APPLICATION, "version": "1", "default_member_permissions": None}
        return [{**each, **same} for each in self.commands]

    async def _get_channel(self, channel: str, **_: Any) -> Json:
        return self._known(channel)

    async def _open_direct(self, body: Any, **_: Any) -> Json:
        return self.channels[self.direct(self.users[body["recipient_id"]])]

    async def _typing(self, channel: str, **_: Any) -> None:
        self._writable(channel)
        self.typed.append(channel)

    async def _history(self, channel: str, query: Mapping[str, str], **_: Any) -> list[Json]:
        self._known(channel)
        found = [each for each in self.of(channel) if int(each["id"]) > int(query.get("after", 0))]
        before = int(query.get("before", 2**63))
        newest = [each for each in reversed(found) if int(each["id"]) < before]
        return newest[: int(query.get("limit", 50))]

    async def _get_message(self, channel: str, message: str, **_: Any) -> Json:
        return self._post(channel, message)

    async def _create(self, channel: str, body: Any, files: Any, **_: Any) -> Json:
        self._writable(channel)
        self._judge(body, len(files))
        nonce = (channel, str(body.get("nonce")))
        if body.get("enforce_nonce") and nonce in self._nonces:
            at, made = self._nonces[nonce]
            if time.monotonic() - at < ENFORCED:
                return self._post(channel, made)
        message = self._message(channel, self.me, body.get("content") or "")
        message |= {"components": body.get("components", []), "flags": body.get("flags", 0)}
        message["attachments"] = [
            self._attachment(name, "application/octet-stream", content) for name, content in files
        ]
        if "message_reference" in body:
            message |= {
                "type": 19,
                "message_reference": {**body["message_reference"], "channel_id": channel},
            }
        if "nonce" in body:
            self._nonces[nonce] = (time.monotonic(), message["id"])
        told = {**message, "nonce": body.get("nonce")}
        await self.dispatch("MESSAGE_CREATE", self._seen(told))
        return told

    async def _rewrite(self, channel: str, message: str, body: Any, **_: Any) -> Json:
        found = self._post(channel, message)
        if found["author"]["id"] != self.me["id"]:
            raise Refused("50005: Cannot edit a message authored by another user")
        self._judge(body, 0, was=found["flags"] or 1 << 30)
        found |= {key: body[key] for key in ("content", "components", "flags") if key in body}
        found["edited_timestamp"] = stamp()
        await self.dispatch("MESSAGE_UPDATE", self._seen(found))
        return found

    async def _delete(self, channel: str, message: str, **_: Any) -> None:
        found = self._post(channel, message)
        if found["author"]["id"] != self.me["id"]:
            if self.channels[channel]["type"] == 1:
                raise Refused("50003: Cannot execute action on a DM channel")
            if not self.permissions & 1 << 13:  # MANAGE_MESSAGES
                raise Refused("50013: Missing Permissions")
        del self.posts[channel][message]

    async def _thread(self, channel: str, message: str, body: Any, **_: Any) -> Json:
        self._writable(channel)
        start = self._post(channel, message)
        if message in self.channels:
            raise Refused("160004: A thread has already been created for this message")
        if not 1 <= len(body["name"]) <= 100 or not body["name"].strip():
            raise rules.form("name", "Must be between 1 and 100 in length.")
        if body["auto_archive_duration"] not in (60, 1440, 4320, 10080):
            raise rules.form("auto_archive_duration", "is not one of the durations")
        metadata: Json = {"archived": False, "auto_archive_duration": 4320, "locked": False}
        metadata["archive_timestamp"] = stamp()
        made = {
            "id": message, "type": 11, "name": body["name"], "owner_id": "1",
            "guild_id": self.channels[channel]["guild_id"],
            "parent_id": channel, "thread_metadata": metadata, "message_count": 0,
            "member_count": 1, "rate_limit_per_user": 0, "last_message_id": None, "flags": 0,
        }  # fmt: skip
        self.channels[message], self.posts[message] = made, {}
        await self.dispatch("THREAD_CREATE", {**made, "newly_created": True})
        self._message(message, self.me, "", type=21, referenced_message=start)
        return made

    async def _callback(self, interaction: str, token: str, body: Any, **_: Any) -> None:
        found = self.interactions.get(interaction)
        late = found is not None and time.monotonic() - found.at > self.window
        if found is None or found.token != token or late:
            raise Refused("10062: Unknown interaction")
        if found.answers:
            raise Refused("40060: Interaction has already been acknowledged.")
        kind, data = body["type"], body.get("data", {})
        rules.check_callback(kind, found.kind, data)
        if kind == 4:
            self._tell_privately(found, data)
        found.answers.append((kind, data))

    async def _follow(self, token: str, body: Any, files: Any, **_: Any) -> Json:
        found = self._answered(token)
        self._judge(body, len(files))
        found.files += [content for _, content in files]
        return self._tell_privately(found, body)

    async def _original(self, token: str, body: Any, **_: Any) -> Json:
        found = self._answered(token)
        self._judge(body, 0)
        return self._tell_privately(found, body)

    def _answered(self, token: str) -> Pressed:
        for each in self.interactions.values():
            if each.token == token and each.answers:
                return each
        raise Refused("10015: Unknown Webhook")

    def _tell_privately(self, found: Pressed, body: Json) -> Json:
        put_off = bool(found.answers) and found.answers[0][1].get("flags", 0) & rules.PRIVATE
        if not (body.get("flags", 0) & rules.PRIVATE or put_off):
            raise rules.form("flags", "the fake takes private answers only")
        self.pinged += rules.pinged(body)
        message = {"id": self._id(), "content": "", "components": [], **body}
        found.told.append(message)
        return {**message, "type": 0, "channel_id": found.channel, "author": self.me}

    def _judge(self, body: Json, files: int, was: int = 0) -> None:
        rules.check_message(body, files, was=was)
        self.pinged += rules.pinged(body)
        self.unfurled += rules.unfurled(body, was)

    def _known(self, channel: str) -> Json:
        if channel not in self.channels:
            raise Refused("10003: Unknown Channel")
        if self._among(channel, self.hidden):
            raise Refused("50001: Missing Access")
        return self.channels[channel]

    def _writable(self, channel: str) -> None:
        self._known(channel)
        if self._among(channel, self.silent):
            raise Refused("50013: Missing Permissions")

    def _among(self, channel: str, ids: set[str]) -> bool:
        return bool({channel, self.channels[channel].get("parent_id")} & ids)

    def _post(self, channel: str, message: str) -> Json:
        self._known(channel)
        if message not in self.posts[channel]:
            raise Refused("10008: Unknown Message")
        return self.posts[channel][message]

    _routes: Mapping[str, Any] = {
        "GET /users/@me": _users_me,
        "GET /users/@me/guilds": _guilds,
        "GET /oauth2/applications/@me": _application,
        "GET /applications/@me": _application,
        "PUT /applications/{application}/commands": _set_commands,
        "GET /channels/{channel}": _get_channel,
        "POST /users/@me/channels": _open_direct,
        "POST /channels/{channel}/typing": _typing,
        "GET /channels/{channel}/messages": _history,
        "POST /channels/{channel}/messages": _create,
        "GET /channels/{channel}/messages/{message}": _get_message,
        "PATCH /channels/{channel}/messages/{message}": _rewrite,
        "DELETE /channels/{channel}/messages/{message}": _delete,
        "POST /channels/{channel}/messages/{message}/threads": _thread,
        "POST /interactions/{interaction}/{token}/callback": _callback,
        "POST /webhooks/{application}/{token}": _follow,
        "PATCH /webhooks/{application}/{token}/messages/@original": _original,
    }

    async def _file(self, request: web.Request) -> web.Response:
        content = self.files.get(request.match_info["id"])
        return web.Response(status=404) if content is None else web.Response(body=content)

    def application(self) -> web.Application:
        """Return the server."""
        app = web.Application(client_max_size=30_000_000)
        app.router.add_get("/gateway/", self.gateway)
        app.router.add_get("/files/{id}/{name}", self._file)
        app.router.add_route("*", "/api/v10/{path:.*}", self._api)
        return app


def _json(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Answer with exactly `application/json`: with a charset, the library takes it for text."""
    given = {"Content-Type": "application/json", **(headers or {})}
    return web.Response(body=json.dumps(body).encode(), status=status, headers=given)


async def _read(request: web.Request) -> tuple[Any, list[tuple[str, bytes]]]:
    if request.content_type != "multipart/form-data":
        raw = await request.read()
        try:
            return (json.loads(raw) if raw else None), []
        except ValueError as error:
            raise Refused("50109: The request body contains invalid JSON.") from error
    body: Any = None
    files: list[tuple[str, bytes]] = []
    async for part in await request.multipart():
        if part.name == "payload_json":  # type: ignore[union-attr]
            body = json.loads(await part.text())  # type: ignore[union-attr]
        else:
            files.append((part.filename or "", bytes(await part.read())))  # type: ignore[union-attr]
    return body, files


@asynccontextmanager
async def discord(ports: Iterable[int] = (0,)) -> AsyncIterator[FakeDiscord]:
    """A Discord that listens; at the end it must have pinged nobody and shown no preview."""
    fake = FakeDiscord()
    runner = web.AppRunner(fake.application(), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", next(iter(ports)))
    await site.start()
    fake.port = runner.addresses[0][1]
    try:
        yield fake
    finally:
        await fake.drop()
        await runner.cleanup()
    assert fake.pinged == []
    assert fake.unfurled == []
