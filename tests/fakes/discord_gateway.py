"""Discord's gateway: sessions opened, resumed or forgotten, and the events sent in them."""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

__all__ = ["APPLICATION", "GUILD", "ROLE", "Gateway", "Json", "member", "stamp"]

APPLICATION, GUILD, ROLE = "1000000000000000001", "1000000000000000002", "1000000000000000004"

#: The privileged intent: what messages say.
CONTENT = 1 << 15

Json = dict[str, Any]


@dataclass
class _Session:
    """A gateway session: what was sent in it can be had again."""

    id: str
    intents: int
    seq: int = 0
    sent: list[Json] = field(default_factory=list)
    socket: web.WebSocketResponse | None = None


class Gateway:
    """The socket bots listen at."""

    me: Json
    channels: dict[str, Json]

    def __init__(self, token: str) -> None:
        self.token = token
        #: Whether the switch of the privileged intent is on.
        self.content_allowed = True
        #: The servers Nod is in, by id: their name, and the role that stands for Nod there.
        self.guilds: dict[str, Json] = {GUILD: {"name": "The Ferry", "role": ROLE}}
        #: Channels that Nod may not see.
        self.hidden: set[str] = set()
        self.identified: list[Json] = []
        self.resumed = 0
        self.changed = asyncio.Condition()
        self.port = 0
        self._sessions: dict[str, _Session] = {}
        self._numbers = itertools.count(1)

    @property
    def gateway_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/gateway/"

    async def drop(self, *, forget: bool = False) -> None:
        """Cut every connection; a session that is forgotten cannot be resumed."""
        for session in list(self._sessions.values()):
            socket, session.socket = session.socket, None
            if forget:
                del self._sessions[session.id]
            if socket is not None:
                await socket.close(code=WSCloseCode.SERVICE_RESTART)

    async def dispatch(self, kind: str, data: Json) -> None:
        """Send an event to whoever listens; a session that may be resumed gets it later."""
        place = self.channels.get(str(data.get("channel_id", "")), {})
        if {place.get("id"), place.get("parent_id")} & self.hidden:
            return
        for session in list(self._sessions.values()):
            session.seq += 1
            frame = {"op": 0, "t": kind, "s": session.seq, "d": self._allowed(session, kind, data)}
            session.sent.append(frame)
            if session.socket is not None and not session.socket.closed:
                await session.socket.send_str(json.dumps(frame))

    def _allowed(self, session: _Session, kind: str, data: Json) -> Json:
        if not kind.startswith("MESSAGE_") or session.intents & CONTENT or "guild_id" not in data:
            return data
        if any(each["id"] == self.me["id"] for each in data.get("mentions", ())):
            return data
        return {**data, "content": "", "attachments": [], "components": []}

    async def gateway(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str(json.dumps({"op": 10, "d": {"heartbeat_interval": 45_000}}))
        session: _Session | None = None
        async for message in socket:
            if message.type is not WSMsgType.TEXT:
                break
            frame = json.loads(message.data)
            match frame["op"]:
                case 1:
                    await socket.send_str(json.dumps({"op": 11}))
                case 2:
                    session = await self._identify(socket, frame["d"])
                case 6:
                    session = await self._resume(socket, frame["d"])
        if session is not None and session.socket is socket:
            session.socket = None
        return socket

    async def _identify(self, socket: web.WebSocketResponse, data: Json) -> _Session | None:
        if data["token"] != self.token:
            await socket.close(code=4004, message=b"Authentication failed.")
            return None
        if data["intents"] & CONTENT and not self.content_allowed:
            await socket.close(code=4014, message=b"Disallowed intent(s).")
            return None
        self.identified.append({key: value for key, value in data.items() if key != "token"})
        session = _Session(f"session-{next(self._numbers)}", data["intents"], socket=socket)
        self._sessions[session.id] = session
        ready = {
            "v": 10, "user": self.me, "session_id": session.id, "shard": [0, 1],
            "resume_gateway_url": self.gateway_url,
            "guilds": [{"id": each, "unavailable": True} for each in self.guilds],
            "application": {"id": APPLICATION, "flags": 1 << 19}, "private_channels": [],
        }  # fmt: skip
        created = [("GUILD_CREATE", self._guild(each)) for each in self.guilds]
        for kind, body in (("READY", ready), *created):
            session.seq += 1
            await socket.send_str(json.dumps({"op": 0, "t": kind, "s": session.seq, "d": body}))
        async with self.changed:
            self.changed.notify_all()
        return session

    async def _resume(self, socket: web.WebSocketResponse, data: Json) -> _Session | None:
        session = self._sessions.get(data["session_id"])
        if session is None or data["token"] != self.token:
            await socket.send_str(json.dumps({"op": 9, "d": False}))
            return None
        self.resumed += 1
        session.socket = socket
        for frame in [each for each in session.sent if each["s"] > data["seq"]]:
            await socket.send_str(json.dumps(frame))
        session.seq += 1
        done = {"op": 0, "t": "RESUMED", "s": session.seq, "d": {}}
        await socket.send_str(json.dumps(done))
        return session

    def _guild(self, guild: str) -> Json:
        every = [each for each in self.channels.values() if each.get("guild_id") == guild]
        inside = [e for e in every if not {e["id"], e.get("parent_id")} & self.hidden]
        name, own = self.guilds[guild]["name"], self.guilds[guild]["role"]
        role = {"id": own, "name": "Nod", "permissions": "0", "tags": {"bot_id": self.me["id"]}}
        everyone = {"id": guild, "name": "@everyone", "permissions": "0"}
        more: Json = {
            "color": 0,
            "hoist": False,
            "managed": True,
            "mentionable": True,
            "position": 0,
        }
        more |= {"flags": 0, "colors": {"primary_color": 0}}
        return {
            "id": guild, "name": name, "owner_id": "1", "unavailable": False, "icon": None,
            "roles": [{**role, **more}, {**everyone, **more}], "emojis": [], "stickers": [],
            "channels": [each for each in inside if each["type"] == 0],
            "threads": [each for each in inside if each["type"] == 11],
            "members": [{**member(self.me), "roles": [own]}], "member_count": 3,
            "features": [], "voice_states": [], "presences": [], "stage_instances": [],
            "guild_scheduled_events": [], "verification_level": 0, "nsfw_level": 0,
            "default_message_notifications": 1, "explicit_content_filter": 0, "mfa_level": 0,
            "preferred_locale": "en-US", "premium_tier": 0, "system_channel_flags": 0,
            "afk_timeout": 0, "large": False, "premium_progress_bar_enabled": False,
        }  # fmt: skip


def member(user: Json) -> Json:
    """Return a user as a member of the server."""
    same = {"joined_at": stamp(), "deaf": False, "mute": False, "flags": 0, "roles": []}
    return {"user": user, **same}


def stamp() -> str:
    """Return the time as Discord writes it."""
    return datetime.now(UTC).isoformat()
