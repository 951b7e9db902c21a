"""Reads what open models write into their text: reasoning as <think>, calls as tags or JSON."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from typing import Any

from engine.canonical import dumps
from engine.models.base import RawCall

__all__ = ["OpenText", "salvage"]

_OPEN, _CLOSE = "<think>", "</think>"
#: Where a call may begin in the middle of text.
_TAGS = ("<tool_call>", "<function=", "[TOOL_CALLS]")
_SEGMENT = re.compile(
    r"<tool_call>(.*?)(?:</tool_call>|\Z)|\[TOOL_CALLS\](.*)\Z|(<function=.*?(?:</function>|\Z))",
    re.S,
)
_FUNCTION = re.compile(r"<function=([^>\s]+)>(.*?)(?:</function>|\Z)", re.S)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>", re.S)
_FENCE = re.compile(r"```(?:json)?\s*\n(.*)\n```", re.S)
_SHORTHAND = re.compile(r"([A-Za-z_][\w.-]*)\s*(\(.*\)|\{.*\})", re.S)


class OpenText:
    """Splits a stream of text into what is said and what is thought, and holds back calls.

    What may be the beginning of a call is not shown before the answer is complete.

    Args:
        offered: names of the tools the model was sent; without any, no call is looked for.
    """

    def __init__(self, offered: Iterable[str]) -> None:
        self._offered = frozenset(offered)
        names = [name + bracket for name in self._offered for bracket in "({"]
        self._openers = ("{", "[", "```", *names) if self._offered else ()
        self._held = ""
        #: start (undecided), think, text, or hold (maybe a call: until the end).
        self._state = "start"
        self._answer_follows = False

    def feed(self, text: str) -> tuple[str, str]:
        """Take text in; return what can be shown of it, as (text, reasoning)."""
        self._held += text
        said, thought, before = "", "", ""
        while before != self._state:
            before = self._state
            if before == "start":
                self._begin()
            elif before == "think":
                thought += self._think()
            elif before == "text":
                said += self._say()
        return said, thought

    def end(self, *, seek: bool) -> tuple[str, str, tuple[RawCall, ...]]:
        """Return what was held back, as (text, reasoning, calls); `seek`: look for calls."""
        held, self._held = self._held, ""
        if self._state == "think":
            return "", held, ()
        text, calls = salvage(held, self._offered) if seek else (held, ())
        return text, "", calls

    def _begin(self) -> None:
        begun = self._held.lstrip()
        if begun.startswith(_OPEN):
            self._held, self._state = begun[len(_OPEN) :], "think"
        elif begun.startswith(self._openers):
            self._state = "hold"
        elif not any(opener.startswith(begun) for opener in (_OPEN, *self._openers)):
            self._held = begun if self._answer_follows else self._held
            self._state = "text"

    def _think(self) -> str:
        thought, closed, rest = self._held.partition(_CLOSE)
        if closed:
            self._held, self._state, self._answer_follows = rest, "start", True
            return thought
        return self._release(len(self._held) - _partial(self._held, (_CLOSE,)))

    def _say(self) -> str:
        if not self._offered:
            return self._release(len(self._held))
        begins = [at for tag in _TAGS if (at := self._held.find(tag)) >= 0]
        if begins:
            self._state = "hold"
            return self._release(min(begins))
        return self._release(len(self._held) - _partial(self._held, _TAGS))

    def _release(self, size: int) -> str:
        released, self._held = self._held[:size], self._held[size:]
        return released


def salvage(text: str, offered: Iterable[str]) -> tuple[str, tuple[RawCall, ...]]:
    """Return `text` without the tool calls written in it, and those calls.

    A call must name an offered tool; prose, and JSON that is no call, are left alone.
    """
    names = frozenset(offered)
    if not names:
        return text, ()
    calls: list[RawCall] = []

    def cut(segment: re.Match[str]) -> str:
        inner = next(group for group in segment.groups() if group is not None)
        found = _functions(inner, names) if "<function=" in inner else _values(inner, names)
        calls.extend(found)
        return "" if found else segment[0]

    rest = _SEGMENT.sub(cut, text)
    if calls:
        return rest.strip(), tuple(calls)
    whole = _whole(text.strip(), names)
    return ("", tuple(whole)) if whole else (text, ())


def _whole(text: str, names: frozenset[str]) -> list[RawCall]:
    fenced = _FENCE.fullmatch(text)
    found = _values(fenced[1] if fenced else text, names)
    shorthand = _SHORTHAND.fullmatch(text)
    if found or not shorthand or shorthand[1] not in names:
        return found
    arguments = _object(shorthand[2].removeprefix("(").removesuffix(")")) or _keywords(text)
    return [_call(shorthand[1], arguments)] if arguments is not None else []


def _values(text: str, names: frozenset[str]) -> list[RawCall]:
    """Read `text` as one JSON value that is a call, or a list of calls."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    read = [_from(each, names) for each in (value if isinstance(value, list) else [value])]
    good = [call for call in read if call is not None]
    return good if len(good) == len(read) else []


def _from(value: Any, names: frozenset[str]) -> RawCall | None:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or value.get("name") not in names:
        return None
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        arguments = _object(arguments or "{}")
    return _call(value["name"], arguments) if isinstance(arguments, dict) else None


def _functions(text: str, names: frozenset[str]) -> list[RawCall]:
    return [
        _call(name, {key: _scalar(value) for key, value in _PARAMETER.findall(body)})
        for name, body in _FUNCTION.findall(text)
        if name in names
    ]


def _scalar(text: str) -> Any:
    """Read a parameter's text: JSON where it is a number, a flag, a list or an object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, str) else value


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _keywords(text: str) -> dict[str, Any] | None:
    """Read `name(key="value", n=3)`."""
    try:
        node = ast.parse(text, mode="eval").body
        if not isinstance(node, ast.Call) or node.args or not node.keywords:
            return None
        return {str(each.arg): ast.literal_eval(each.value) for each in node.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _call(name: str, arguments: dict[str, Any]) -> RawCall:
    return RawCall(provider_id="", name=name, arguments=dumps(arguments))


def _partial(text: str, tags: Iterable[str]) -> int:
    """Return how many characters at the end of `text` may be the beginning of a tag."""
    sizes = (
        size
        for tag in tags
        for size in range(min(len(tag) - 1, len(text)), 0, -1)
        if text.endswith(tag[:size])
    )
    return max(sizes, default=0)
