"""Slack's Web API for a person's token, as far as our connector uses it; docs.slack.dev.

One channel with a thread. It refuses in Slack's way, 200 and `ok: false`: unknown arguments, a
channel by its name, texts over 40,000 characters, metadata that is none, a reaction there already.
"""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import Any

from aiohttp import web

from tests.fakes.vendors.cases import Case
from tests.fakes.vendors.service import Refused, Service

__all__ = ["ACTS", "MANY", "READS", "Fake"]

_C = {"channel": "C0000000001"}
READS = (
    Case(tool="slack_search", arguments={"query": "checkout"}, gives="checkout fails"),
    Case(tool="slack_channels", arguments={"words": "aler"}, gives="C0000000001"),
    Case(tool="slack_read", arguments=_C, gives="checkout fails"),
    Case(tool="slack_read", arguments={**_C, "thread": "1700000000.000100"}, gives="On it"),
    Case(tool="slack_people", arguments={"words": "bo"}, gives="U0000000002"),
)
ACTS = (
    Case(
        tool="slack_send",
        arguments={**_C, "text": "Rolled back.", "thread": "1700000000.000100"},
        gives='"ts"',
        target=("slack:C0000000001/1700000000.000100",),
        method="POST",
    ),
    Case(
        tool="slack_react",
        arguments={**_C, "ts": "1700000000.000100", "emoji": ":eyes:"},
        gives="eyes",
        target=("slack:C0000000001/1700000000.000100",),
        method="POST",
    ),
)
MANY = Case(tool="slack_people", arguments={"limit": 10_000}, gives="U0000010001")

_BOOLS = {"unfurl_links": bool, "unfurl_media": bool}


class Fake(Service):
    """The vendor, with one workspace."""

    unauthorized = MappingProxyType({"ok": False, "error": "invalid_auth"})

    def routes(self) -> None:
        first = {"ts": "1700000000.000100", "user": "U0000000002", "text": "The checkout fails"}
        self.messages = [first]
        self.replies = [first, {"ts": "1700000001.000100", "user": "U0000000001", "text": "On it"}]
        self.reacted: set[tuple[str, str]] = set()
        self.uploads: dict[str, bytes] = {}
        for method, handler in (
            ("auth.test", self._me),
            ("search.messages", self._search),
            ("conversations.list", self._channels),
            ("conversations.history", self._history),
            ("conversations.replies", self._thread),
            ("users.list", self._people),
            ("files.getUploadURLExternal", self._place),
            ("files.info", self._file),
            ("conversations.info", self._about),
            ("kept/F2", self._kept),
        ):
            self.on("GET", f"/{method}", handler)
        for method, handler in (
            ("chat.postMessage", self._post),
            ("reactions.add", self._react),
            ("files.completeUploadExternal", self._complete),
        ):
            self.on("POST", f"/{method}", handler)
        self.on("POST", "/upload/{id}", self._take, open=True)

    def who(self, request: web.Request) -> str:
        try:
            return super().who(request)
        except Refused as refused:
            raise Refused(200, refused.body) from None

    async def _me(self, request: web.Request) -> Any:
        where = {"team": "Acme", "url": "https://acme-ops.slack.com/"}
        return {"ok": True, **where, "user": self.who(request)}

    async def _search(self, request: web.Request) -> Any:
        if not 1 <= int(request.query.get("count", 20)) <= 100:
            raise _refused("invalid_arguments")
        channel = {"id": "C0000000001", "name": "alerts"}
        link = "https://acme.slack.com/archives/C0000000001/p1700000000000100"
        match = {**self.messages[0], "username": "bo", "channel": channel, "permalink": link}
        return {"ok": True, "messages": {"matches": [match], "total": 1}}

    async def _channels(self, request: web.Request) -> Any:
        channel = {"id": "C0000000001", "name": "alerts", "purpose": {"value": "What breaks"}}
        return {"ok": True, "channels": [channel], "response_metadata": {"next_cursor": ""}}

    async def _history(self, request: web.Request) -> Any:
        self._channel(request.query["channel"])
        return self._said(request, self.messages[::-1])

    async def _thread(self, request: web.Request) -> Any:
        self._channel(request.query["channel"])
        if request.query.get("ts") != "1700000000.000100":
            raise _refused("thread_not_found")
        return self._said(request, self.replies)

    def _said(self, request: web.Request, found: list[dict[str, Any]]) -> Any:
        oldest = float(request.query.get("oldest") or 0)
        kept = [each for each in found if float(each["ts"]) > oldest]
        if request.query.get("include_all_metadata") != "true":
            kept = [{k: v for k, v in each.items() if k != "metadata"} for each in kept]
        return {"ok": True, "messages": kept, "has_more": False}

    async def _people(self, request: web.Request) -> Any:
        size, first = int(request.query.get("limit", 100)), int(request.query.get("cursor") or 0)
        if size > 1_000:
            raise _refused("limit_required")
        people = [
            {"id": f"U{n:010d}", "name": f"bo{n}", "real_name": f"Bo {n}", "tz": "Europe/Berlin"}
            for n in range(2, 10_002)
        ]
        following = str(first + size) if len(people) > first + size else ""
        page = people[first : first + size]
        return {"ok": True, "members": page, "response_metadata": {"next_cursor": following}}

    async def _place(self, request: web.Request) -> Any:
        if int(request.query["length"]) < 1:
            raise _refused("length_too_short")
        return {"ok": True, "file_id": "F1", "upload_url": f"{self.url}/upload/F1"}

    async def _file(self, request: web.Request) -> Any:
        places = {"F2": f"{self.url}/kept/F2", "F3": "https://drive.example/F3"}
        if request.query["file"] not in places:
            raise _refused("file_not_found")
        file = {"id": request.query["file"], "name": "plan.txt"}
        return {"ok": True, "file": file | {"url_private_download": places[file["id"]]}}

    async def _about(self, request: web.Request) -> Any:
        self._channel(request.query["channel"])
        return {"ok": True, "channel": {"id": "C0000000001", "name": "alerts"}}

    async def _kept(self, request: web.Request) -> Any:
        return web.Response(body=b"the plan")

    async def _take(self, request: web.Request) -> Any:
        if "Authorization" in request.headers:
            raise _refused("the address is the key; no token belongs here")
        self.uploads[request.match_info["id"]] = await request.read()
        return web.Response(text="OK")

    # -- acts

    async def _post(self, request: web.Request) -> Any:
        kinds = {"channel": str, "text": str, "metadata": dict, "thread_ts": str, **_BOOLS}
        given = await self._given(request, kinds)
        self._channel(given["channel"])
        if len(given["text"]) > 40_000:
            raise _refused("msg_too_long")
        metadata = given["metadata"]
        if set(metadata) != {"event_type", "event_payload"}:
            raise _refused("metadata_must_be_sent_from_app")
        ts = f"{time.time():.6f}"
        message = {"ts": ts, "user": "U0000000001", "text": given["text"], "metadata": metadata}
        (self.replies if given.get("thread_ts") else self.messages).append(message)
        self.acts.append(given)
        return {"ok": True, "channel": given["channel"], "ts": ts}

    async def _react(self, request: web.Request) -> Any:
        given = await self._given(request, {"channel": str, "timestamp": str, "name": str})
        self._channel(given["channel"])
        mark = (given["timestamp"], given["name"])
        if ":" in given["name"]:
            raise _refused("invalid_name")
        if mark in self.reacted:
            raise _refused("already_reacted")
        self.reacted.add(mark)
        self.acts.append(given)
        return {"ok": True}

    async def _complete(self, request: web.Request) -> Any:
        kinds = {"files": list, "channel_id": str, "initial_comment": str, "thread_ts": str}
        given = await self._given(request, kinds)
        if any(each["id"] not in self.uploads for each in given["files"]):
            raise _refused("file_not_found")
        self.acts.append(given)
        return {"ok": True, "files": [{"id": each["id"]} for each in given["files"]]}

    async def _given(self, request: web.Request, kinds: dict[str, type]) -> dict[str, Any]:
        given: dict[str, Any] = await request.json()
        for name, value in given.items():
            if name not in kinds or not isinstance(value, kinds[name]):
                raise _refused("invalid_arguments")
        return given

    def _channel(self, channel: str) -> None:
        if channel != "C0000000001":
            raise _refused("channel_not_found")


def _refused(why: str) -> Refused:
    return Refused(200, {"ok": False, "error": why})
