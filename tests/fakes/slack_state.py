"""What the fake Slack holds: workspaces, channels, posts, files, triggers, views."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.guides.slack import SCOPES
from tests.fakes.markup import Refused

__all__ = ["App", "Channel", "File", "Post", "Team", "world_file"]


@dataclass(slots=True, kw_only=True)
class Post:
    """One message as it is shown now."""

    ts: str
    user: str
    bot: str = ""
    text: str = ""
    blocks: list[Any] = field(default_factory=list)
    thread: str = ""
    metadata: Any = None
    files: list[Any] = field(default_factory=list)
    subtype: str = ""
    edits: int = 0
    reactions: list[str] = field(default_factory=list)
    parent: str = ""
    #: When it began to be streamed, and was appended to (seconds of `App.clock`); 0: it is not.
    streaming: float = 0.0
    fed: float = 0.0

    def shown(self, with_metadata: bool) -> dict[str, Any]:
        """Return the message object."""
        shown: dict[str, Any] = {"type": "message", "user": self.user, "ts": self.ts}
        shown |= {"text": self.text, "blocks": self.blocks}
        if self.thread:
            shown |= {"thread_ts": self.thread}
            if self.thread != self.ts:
                shown |= {"parent_user_id": self.parent}
        if self.bot:
            shown["bot_id"] = self.bot
        if self.files:
            shown["files"] = self.files
        if self.subtype:
            shown["subtype"] = self.subtype
        if with_metadata and self.metadata:
            shown["metadata"] = self.metadata
        return shown

    def is_streaming(self, app: App) -> bool:
        """Say whether text may be appended to it still."""
        young = app.clock() - self.streaming < app.stream_age
        return self.streaming > 0 and young and app.clock() - self.fed < app.stream_quiet

    def is_broken(self, app: App) -> bool:
        """Say whether Slack had to end it: it looks broken until it is edited."""
        return self.streaming > 0 and not self.is_streaming(app)

    def rows(self, label: str) -> int:
        """Return how many buttons have the label."""
        return sum(each["text"]["text"] == label for _, each in self.buttons())

    def buttons(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return (block_id, element) of every button."""
        return _buttons(self.blocks)


def _buttons(blocks: list[Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [
        (block["block_id"], each)
        for block in blocks
        if block["type"] == "actions"
        for each in block["elements"]
    ]


@dataclass(slots=True, kw_only=True)
class Channel:
    """A channel, or a DM (its id begins with D)."""

    id: str
    members: set[str]
    posts: dict[str, Post] = field(default_factory=dict)
    archived: bool = False
    #: The workspace it lies in, where the app is installed for a whole organization.
    workspace: str = ""

    def add(self, ts: str, *, thread: str = "", **given: Any) -> Post:
        """Add a post; the first answer makes a thread of its root."""
        parent = ""
        if thread and thread in self.posts:
            self.posts[thread].thread = thread
            parent = self.posts[thread].user
        given.pop("bot", None) if not given.get("bot") else None
        post = Post(ts=ts, thread=thread, parent=parent, **given)
        self.posts[ts] = post
        return post

    @property
    def of_nod(self) -> list[Post]:
        """The posts of the bot."""
        return [each for each in self.posts.values() if each.user.startswith("UBOT")]


@dataclass(slots=True, kw_only=True)
class Team:
    """A workspace with the app in it; or an organization that it was installed for as a whole."""

    id: str
    name: str
    token: str
    bot_user: str
    bot: str
    users: dict[str, str] = field(default_factory=dict)
    #: The time zones of those whose profile tells one.
    zones: dict[str, str] = field(default_factory=dict)
    channels: dict[str, Channel] = field(default_factory=dict)
    scopes: set[str] = field(default_factory=lambda: set(SCOPES))
    revoked: bool = False
    #: The workspaces of an organization; empty: it is none.
    workspaces: tuple[str, ...] = ()
    #: Those an admin did not add the app to.
    withheld: set[str] = field(default_factory=set)

    def within(self, workspace: str) -> str:
        """Return the workspace that something happens in."""
        return workspace or (self.workspaces or (self.id,))[0]


@dataclass(slots=True, kw_only=True)
class File:
    """A file on Slack."""

    id: str
    team: str
    name: str
    length: int
    media: str = "text/plain"
    content: bytes | None = None
    shared: bool = False
    shares: dict[str, Any] = field(default_factory=dict)
    #: What is served instead of the content: (status, type, bytes).
    instead: tuple[int, str, bytes] | None = None
    subtype: str = ""

    def shown(self, app: App) -> dict[str, Any]:
        """Return the file object."""
        address = f"{app.url}/files/{self.id}"
        shown = {"id": self.id, "name": self.name, "mimetype": self.media, "size": self.length}
        shown |= {"url_private": address, "url_private_download": address}
        return {**shown, **({"subtype": self.subtype} if self.subtype else {})}


class App:
    """Everything the fake holds. `FakeSlack` serves it and adds the controls."""

    def __init__(self) -> None:
        self.url = ""
        self.teams: dict[str, Team] = {}
        self.files: dict[str, File] = {}
        #: (user, channel, text) that only one person saw.
        self.whispers: list[tuple[str, str, str]] = []
        self.statuses: list[tuple[str, str, str]] = []
        #: (channel, thread) that shows a status now; what the bot posts there clears it.
        self.busy: set[tuple[str, str]] = set()
        self.suggested: list[list[str]] = []
        self.homes: dict[str, Any] = {}
        #: view id -> view as it is open now.
        self.views: dict[str, Any] = {}
        self.share_delay = 0.0
        #: Seconds after which a stream ends by itself, and after the last word in it.
        self.stream_age, self.stream_quiet = 300.0, 180.0
        #: Seconds by which the clock of streams is ahead.
        self.ahead = 0.0
        #: Messages of one page at most.
        self.page = 999
        self._numbers = itertools.count(1)
        self._ticks = itertools.count(1)
        self._triggers: dict[str, tuple[str, float]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.changes = asyncio.Condition()

    def tick(self) -> str:
        """Return the ts of a new post: later than all before."""
        return f"{int(time.time())}.{next(self._ticks):06d}"

    def clock(self) -> float:
        """Return the time by which streams end (seconds)."""
        return time.monotonic() + self.ahead

    def number(self) -> int:
        """Return a number nobody else has."""
        return next(self._numbers)

    def need(self, team: Team, scope: str) -> None:
        """Raise Refused when the workspace's token lacks the scope."""
        if scope and scope not in team.scopes:
            raise Refused(f"missing_scope:{scope}")

    def direct(self, team: str, user: str) -> Channel:
        """Return the DM of a person and the bot."""
        channels, bot = self.teams[team].channels, self.teams[team].bot_user
        name = f"D{user[1:]}"
        return channels.setdefault(name, Channel(id=name, members={user, bot}))

    def trigger(self, user: str) -> str:
        """Return a trigger id: good once, for 3 s."""
        made = f"{self.number()}.trigger"
        self._triggers[made] = (user, time.monotonic())
        return made

    def use_trigger(self, trigger: str) -> str:
        """Return whose trigger it is; raises Refused."""
        if trigger not in self._triggers:
            raise Refused("exchanged_trigger_id")
        user, at = self._triggers.pop(trigger)
        if time.monotonic() - at > 3:
            raise Refused("expired_trigger_id")
        return user

    def open_view(self, user: str, view: Mapping[str, Any]) -> dict[str, Any]:
        """Keep a view that was opened."""
        made = {**view, "id": f"V{self.number()}", "hash": f"h{self.number()}", "user": user}
        self.views[made["id"]] = made
        return made

    def new_file(self, team: Team, name: str, length: int) -> File:
        """Return a file whose content is still to come."""
        file = File(id=f"F{self.number()}", team=team.id, name=name, length=length)
        self.files[file.id] = file
        return file

    def later(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run something that Slack does after its answer."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End what is still to be done."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def posted(self, team: Team, channel: Channel, post: Post) -> None:
        """Told when the bot posted."""
        raise NotImplementedError

    def changed(self, team: Team, channel: Channel, post: Post, before: Mapping[str, Any]) -> None:
        """Told when the bot changed a post."""
        raise NotImplementedError


def world_file(app: App, file: str) -> File:
    """Return a file; raises Refused."""
    if file not in app.files:
        raise Refused("file_not_found")
    return app.files[file]
