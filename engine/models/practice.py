"""The practice model: fixed rules, no intelligence, for the demo and for trying Nod without a key.

It can do one thing, the morning briefing, and says of everything else what it is. What it needs to
know it takes from `key: value` lines in the user's message: `repo`, `calendar`, `report to`.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from engine.models.base import Answer, Delta, Message, RawCall, Request, Usage
from engine.models.content import estimate

__all__ = ["PracticeModel"]

WHAT_IT_IS = (
    "I am Nod's practice model: fixed rules, not an AI. I only know the morning briefing. "
    "To talk to a real model, set a key such as OPENAI_API_KEY or ANTHROPIC_API_KEY, or start "
    "Ollama, and start Nod again."
)

#: Tool -> the argument it takes from the message, as (line's key, argument's name).
READERS: dict[str, tuple[str, str]] = {
    "calendar_events": ("calendar", "path"),
    "git_log": ("repo", "repo"),
    "git_branches": ("repo", "repo"),
    "read_file": ("repo", "path"),  # a history that was written down, where there is no git
}
HEADINGS = {
    "calendar_events": "Today's events",
    "git_log": "Recent commits",
    "git_branches": "Branches",
    "read_file": "Recent commits",
}
#: Characters of each result that go into the briefing.
EXCERPT = 2_000

_LINE = re.compile(r"^[ \t*-]*(repo|calendar|report to)[ \t]*:[ \t]*(.+?)[ \t]*$", re.I | re.M)

#: The number `read_file` puts before each line.
_NUMBERED = re.compile(r"^ *\d+\t", re.M)

Rule = Callable[["_Turn"], Answer | None]


class PracticeModel:
    """Implements `Model` with a table of rules: the first that has an answer gives it."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Answer, None]:
        """Yield the answer's text as one delta, then the answer."""
        turn = _Turn(request)
        answer = next(made for rule in RULES if (made := rule(turn)) is not None)
        if answer.text:
            yield Delta(text=answer.text)
        yield answer


class _Turn:
    """The open turn, read once: what was asked, what was called, and what came of it."""

    def __init__(self, request: Request) -> None:
        self.model = request.model
        self.offered = {
            tool["function"]["name"]: tool["function"].get("parameters") or {}
            for tool in request.tools
        }
        start = max((i for i, m in enumerate(request.messages) if m["role"] == "user"), default=0)
        # a line said in between steers; the turn began with the message before the first call
        while start > 0 and any(m["role"] == "tool" for m in request.messages[start - 1 : start]):
            start = max(
                (i for i in range(start) if request.messages[i]["role"] == "user"), default=0
            )
        self.asked = _text(request.messages[start]) if request.messages else ""
        self.input = sum(map(estimate, request.messages))
        self.given = {k.lower(): v for k, v in _LINE.findall(self.asked)}
        self.results = _results(request.messages[start:])

    def answer(self, text: str = "", calls: Sequence[tuple[str, dict[str, Any]]] = ()) -> Answer:
        """Return an answer that says `text` and makes `calls`."""
        raw = tuple(
            RawCall(provider_id=f"call_{n}", name=name, arguments=json.dumps(arguments))
            for n, (name, arguments) in enumerate(calls)
        )
        written = len(text) + sum(len(call.arguments) for call in raw)
        return Answer(
            text=text,
            calls=raw,
            finish="tool_calls" if raw else "stop",
            usage=Usage(input=self.input, output=written // 4),
            model=self.model,
            cost=0.0,
        )

    def arguments(self, tool: str, wanted: Mapping[str, str]) -> dict[str, Any]:
        """Return `wanted` narrowed to what the tool takes."""
        takes = self.offered[tool].get("properties") or {}
        return {key: value for key, value in wanted.items() if key in takes}


def _not_a_briefing(turn: _Turn) -> Answer | None:
    wanted = "report to" in turn.given or "briefing" in turn.asked.lower()
    return None if wanted and READERS.keys() & turn.offered.keys() else turn.answer(WHAT_IT_IS)


def _read(turn: _Turn) -> Answer | None:
    if any(name in turn.results for name in READERS):
        return None
    calls = [
        (name, turn.arguments(name, {argument: turn.given[key]} if key in turn.given else {}))
        for name, (key, argument) in READERS.items()
        if name in turn.offered and _fits(name, turn.given.get("repo", ""))
    ]
    return turn.answer("I read the calendar and the repository.", calls)


def _fits(tool: str, repo: str) -> bool:
    """Say whether the tool can read what `repo` names: a text file, or a repository."""
    is_text = repo.endswith(".txt")
    return tool == "calendar_events" or is_text == (tool == "read_file")


def _write(turn: _Turn) -> Answer | None:
    if "write_file" in turn.results or "write_file" not in turn.offered:
        return None
    arguments = turn.arguments("write_file", {"path": "briefing.md", "content": _briefing(turn)})
    return turn.answer("I write the briefing.", [("write_file", arguments)])


def _send(turn: _Turn) -> Answer | None:
    target = turn.given.get("report to")
    if target is None or "send_message" in turn.results or "send_message" not in turn.offered:
        return None
    arguments = turn.arguments("send_message", {"target": target, "text": _briefing(turn)})
    return turn.answer(
        f"The briefing is ready; I send it to {target}.", [("send_message", arguments)]
    )


def _finish(turn: _Turn) -> Answer | None:
    sent = turn.results.get("send_message")
    if sent is None:
        return turn.answer("The briefing is written.")
    if re.search(r"denied|refused|not sent|stopped|error", sent, re.I):
        return turn.answer(
            f"I did not send the briefing: {_first_line(sent)} It is kept as a file."
        )
    return turn.answer("The briefing is written and sent.")


#: Asked in this order at every model call.
RULES: tuple[Rule, ...] = (_not_a_briefing, _read, _write, _send, _finish)


def _briefing(turn: _Turn) -> str:
    parts = ["# Morning briefing"]
    for name, heading in HEADINGS.items():
        if name in turn.results:
            body = _NUMBERED.sub("", turn.results[name].strip()) or "Nothing."
            parts += [f"## {heading}", body[:EXCERPT]]
    return "\n\n".join([*parts, "_Put together by rules, not by an AI._"])


def _results(messages: Sequence[Message]) -> dict[str, str]:
    """Return tool name -> result of the calls in `messages`, the last of each name."""
    names = {
        call["id"]: call["function"]["name"]
        for message in messages
        for call in message.get("tool_calls") or ()
    }
    return {
        names[message["tool_call_id"]]: _text(message)
        for message in messages
        if message["role"] == "tool" and message["tool_call_id"] in names
    }


def _text(message: Message) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text") or "" for part in content)


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0][:200]
