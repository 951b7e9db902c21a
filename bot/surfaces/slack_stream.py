"""Streams one answer to Slack while it is written, in as many streams as its limits ask for.

Slack takes 12,000 characters a stream: the answer goes on in a next one. And Slack ends a stream
about five minutes after its start, or when nothing comes for some minutes; what it ended looks
broken. Before that the stream is ended here, and the answer goes on by edits. Whatever goes wrong,
the whole of it comes as an edit at the end, so a stream can lose nothing.
https://docs.slack.dev/reference/methods/chat.startStream
https://github.com/slackapi/python-slack-sdk/issues/1859
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from bot.render.slack import flowing
from bot.surfaces.base import MORE, SurfaceError
from bot.surfaces.slack_places import Spot
from bot.surfaces.slack_teams import Team
from engine.canonical import clean

__all__ = ["Reader", "Stream", "ended"]

#: Seconds of one stream, and those without a word in it; characters of it, or of one append.
AGE, QUIET, CHARS = 240.0, 100.0, 11_000
#: Why a workspace takes no streams at all; whatever else is refused concerns one answer.
_NEVER = ("unknown_method", "missing_scope", "not_allowed_token_type", "method_not_supported")

_FENCE = re.compile(r"^ {0,3}(?:```|~~~)[^\n]*$", re.MULTILINE)

#: Who is written to: the team and id of the person, which Slack wants in channels.
Reader = tuple[str, str]


class Stream:
    """The answer that is being written in a thread. Used by one lane.

    Args:
        parts: the ts of the posts it is in; begun ones are added.
        metadata: returns what a post carries, by its number.
        now: a clock of the loop, in seconds.
    """

    def __init__(
        self,
        team: Team,
        spot: Spot,
        reader: Reader,
        parts: list[str],
        metadata: Callable[[int], Mapping[str, Any]],
        now: Callable[[], float],
    ) -> None:
        self._team = team
        self._spot = spot
        self._reader = reader
        self._parts = parts
        self._metadata = metadata
        self._now = now
        #: The answer as it was given last.
        self.text = ""
        #: Slack may have begun a stream and its answer did not come.
        self.lost = False
        #: How much of the answer Slack has, and of it, in this stream.
        self._sent, self._here = "", 0
        #: When this stream began, and when words came last.
        self._since, self._fed = 0.0, 0.0
        self._open = False

    @property
    def due(self) -> bool:
        """It is time to end the stream that is open, before Slack does."""
        now = self._now()
        return self._open and (now - self._since >= AGE or now - self._fed >= QUIET)

    async def grow(self, text: str) -> bool:
        """Send what is new of the answer; False: it cannot be streamed, or no longer.

        Raises SurfaceError when nobody knows whether a first post was made.
        """
        self.text = text
        whole = flowing(clean(text).removesuffix(MORE))
        if self.due or not whole.startswith(self._sent):
            return False
        try:
            if not self._parts:
                await self._start(_piece(whole, CHARS) or whole[:CHARS])
            while new := whole[len(self._sent) :]:
                await self._send(new)
        except SurfaceError as error:
            if not self._parts and not error.certain:
                raise
            if any(code in error.what for code in _NEVER):
                self._team.refused.add("chat_startStream")
            return False
        return bool(self._parts)

    async def _send(self, new: str) -> None:
        piece = _piece(new, CHARS - self._here)
        if self._open and not piece:
            await self.end()
        if self._open:
            await self._append(piece)
        else:
            await self._start(_piece(new, CHARS) or new[:CHARS])

    async def _start(self, piece: str) -> None:
        again = "```\n" if _is_code(self._sent) else ""
        team, person = self._reader
        try:
            begun = await self._team.call(
                "chat_startStream",
                channel=self._spot.channel,
                thread_ts=self._spot.thread,
                recipient_team_id=team,
                recipient_user_id=person,
                markdown_text=again + piece,
            )
        except SurfaceError as error:
            self.lost = not error.certain
            raise
        self._parts.append(str(begun["ts"]))
        self._open, self._here, self._since = True, len(again) + len(piece), self._now()
        self._fed = self._since
        self._sent += piece

    async def _append(self, piece: str) -> None:
        ts = self._parts[-1]
        try:
            await self._team.call(
                "chat_appendStream", channel=self._spot.channel, ts=ts, markdown_text=piece
            )
        except SurfaceError as error:
            if "message_not_in_streaming_state" in error.what:
                self._open = False  # Slack ended it
            raise
        self._fed = self._now()
        self._sent += piece
        self._here += len(piece)

    async def end(self) -> None:
        """End the stream that is open. Raises SurfaceError when Slack could not be asked."""
        if not self._open:
            return
        number = len(self._parts)
        close = "\n```" if _is_code(self._sent) else ""
        more = {"markdown_text": close} if close else {}
        channel, ts = self._spot.channel, self._parts[-1]
        await ended(self._team, channel, ts, metadata=self._metadata(number), **more)
        self._open, self._here = False, 0


async def ended(team: Team, channel: str, ts: str, **more: Any) -> None:
    """End a stream, also one that Slack has ended already; raises SurfaceError."""
    try:
        await team.call("chat_stopStream", channel=channel, ts=ts, **more)
    except SurfaceError as error:
        if not error.certain or error.retry_after is not None:
            raise


def _piece(text: str, room: int) -> str:
    """Return what of the text fits: all, or whole lines; empty: not even one."""
    return text if len(text) <= room else text[: text.rfind("\n", 0, max(0, room)) + 1]


def _is_code(text: str) -> bool:
    """Say whether the text ends inside a fence."""
    return len(_FENCE.findall(text)) % 2 == 1
