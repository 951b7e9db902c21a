"""Turns what is appended to a console thread, and the events of its session, into printed text.

Knows no terminal: text leaves through `write`, always without control characters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bot.markup import plain, visible
from bot.surfaces.console import shown
from engine.events import Event, Kind

__all__ = ["Feed"]

#: Characters of a streamed answer kept to be compared with its final form.
STREAM = 200_000


class Feed:
    """What one terminal shows of one thread.

    Args:
        write: prints text; a newline follows it.
        live: answers are shown while they are written, line by line.
    """

    def __init__(self, write: Callable[[str], None], *, live: bool) -> None:
        self._write = write
        self._live = live
        self._deliveries: dict[str, str] = {}
        self._stream: tuple[str, int, int] = ("", 0, 0)
        self._text = ""
        self._printed = 0  # characters of the streamed text that are on the screen
        #: Names of the tools at work, by call.
        self._tools: dict[str, str] = {}
        self._todos: list[Mapping[str, Any]] = []
        #: A turn is open and not parked.
        self.busy = False
        #: How the last turn ended or parked; empty: none has since the thread was entered.
        self.ended = ""

    def entry(self, entry: Mapping[str, Any]) -> None:
        """Show a line of the thread's file."""
        if entry["op"] == "post":
            self._deliveries[entry["ref"]] = entry["delivery"]
            self._post(entry)
        elif entry["op"] == "edit":
            progress = self._deliveries.get(entry["ref"], "").endswith(".progress")
            if not (progress and self._live):  # the status line shows it
                self._write(plain(shown(entry)))

    def _post(self, entry: Mapping[str, Any]) -> None:
        delivery, text = entry["delivery"], plain(shown(entry))
        if self._live and delivery.endswith(".progress"):
            return
        said = plain(self._text)
        if said and delivery == "answer:{}/{}/{}".format(*self._stream) and text.startswith(said):
            rest = text[self._printed :]
            if rest.strip():
                self._write(rest)
        else:
            self._write(text)
        if delivery.startswith("answer:"):
            self._begin(("", 0, 0))

    def event(self, event: Event) -> None:
        """Take an event of the thread's session."""
        follow = _FOLLOW.get(event.kind)
        if follow is not None:
            follow(self, event)

    def status(self) -> str:
        """Return what is going on, as one line; empty: nothing."""
        if not self.busy:
            return ""
        tail = plain(self._text)[self._printed :].replace("\n", " ")[-60:]
        done = sum(each["status"] == "done" for each in self._todos)
        now = next((t["content"] for t in self._todos if t["status"] == "in_progress"), "")
        parts = [", ".join(dict.fromkeys(self._tools.values()))]
        parts += [f"{done}/{len(self._todos)} {now}"] if self._todos else []
        said = " · ".join(visible(part) for part in [*parts, tail] if part)
        return said or "at work"

    def _begin(self, stream: tuple[str, int, int]) -> None:
        self._stream, self._text, self._printed = stream, "", 0

    def _delta(self, event: Event) -> None:
        stream = (event.session, event.turn, event.iteration)
        if stream != self._stream:
            self._begin(stream)
        if not self._live or len(self._text) > STREAM:
            return
        self._text += event.body["text"]
        said = plain(self._text)
        end = said.rfind("\n")
        if end > self._printed:
            self._write(said[self._printed : end])
            self._printed = end + 1

    def _turn_start(self, event: Event) -> None:
        self.busy, self._todos = True, []
        self._tools.clear()

    def _turn_end(self, event: Event) -> None:
        self.busy = False
        self.ended = event.body["status"]
        self._tools.clear()

    def _proposed(self, event: Event) -> None:
        self.busy = True
        if event.call:
            self._tools[event.call] = str(event.body.get("name", "")) or "a tool"

    def _finished(self, event: Event) -> None:
        self._tools.pop(event.call or "", None)

    def _progress(self, event: Event) -> None:
        self._todos = list(event.body["todos"])


_FOLLOW: Mapping[Kind, Callable[[Feed, Event], None]] = {
    Kind.ASSISTANT_DELTA: Feed._delta,
    Kind.TURN_START: Feed._turn_start,
    Kind.TURN_END: Feed._turn_end,
    Kind.TOOL_PROPOSED: Feed._proposed,
    Kind.TOOL_FINISHED: Feed._finished,
    Kind.PROGRESS: Feed._progress,
}
