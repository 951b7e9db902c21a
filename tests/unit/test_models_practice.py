"""The practice model runs the morning briefing by rules and says what it is otherwise."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from engine.models.base import Answer, Request
from engine.models.practice import PracticeModel

PROMPT = """Prepare my morning briefing.

repo: /home/ana/shop
calendar: /home/ana/work.ics
report to: console:team
"""


def tool(name: str, *arguments: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {each: {"type": "string"} for each in arguments}}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    tool("calendar_events", "path", "day"),
    tool("git_log", "repo", "path"),
    tool("git_branches", "repo"),
    tool("read_file", "path"),
    tool("send_message", "target", "text"),
    tool("write_file", "path", "content"),
]


async def ask(messages: Sequence[Any], tools: Sequence[Any] = TOOLS) -> Answer:
    request = Request(model="practice:rules", messages=messages, tools=tools)
    *deltas, answer = [each async for each in PracticeModel().stream(request)]
    assert isinstance(answer, Answer)
    assert "".join(delta.text for delta in deltas) == answer.text
    return answer


def record(messages: list[Any], answer: Answer, *results: str) -> None:
    calls = [
        {"id": f"c{len(messages)}-{n}", "function": {"name": c.name, "arguments": c.arguments}}
        for n, c in enumerate(answer.calls)
    ]
    messages.append({"role": "assistant", "content": answer.text, "tool_calls": calls})
    for call, result in zip(calls, results, strict=True):
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


def called(answer: Answer) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, json.loads(call.arguments)) for call in answer.calls]


@pytest.mark.parametrize(
    ("sent", "last"),
    [
        pytest.param("Sent to console:team.", "The briefing is written and sent.", id="sent"),
        pytest.param(
            "Denied by @ana: not today.\nDo not try another way.",
            "I did not send the briefing: Denied by @ana: not today. It is kept as a file.",
            id="denied",
        ),
    ],
)
async def test_the_briefing_is_read_written_sent_and_ended(sent: str, last: str) -> None:
    messages: list[Any] = [{"role": "system", "content": "S"}, {"role": "user", "content": PROMPT}]
    answer = await ask(messages)
    assert called(answer) == [
        ("calendar_events", {"path": "/home/ana/work.ics"}),
        ("git_log", {"repo": "/home/ana/shop"}),
        ("git_branches", {"repo": "/home/ana/shop"}),
    ]
    record(messages, answer, "09:00 Stand-up", "a1b2 Fix the till", "* main")
    answer = await ask(messages)
    ((name, arguments),) = called(answer)
    assert name == "write_file" and arguments["path"] == "briefing.md"
    for part in ("# Morning briefing", "09:00 Stand-up", "a1b2 Fix the till", "* main", "not by"):
        assert part in arguments["content"]
    record(messages, answer, "Written.")
    answer = await ask(messages)
    assert called(answer) == [
        ("send_message", {"target": "console:team", "text": arguments["content"]})
    ]
    record(messages, answer, sent)
    answer = await ask(messages)
    assert answer.text == last and not answer.calls and answer.finish == "stop"


async def test_a_history_in_a_text_file_is_read_instead_of_a_repository() -> None:
    prompt = PROMPT.replace("/home/ana/shop", "sample/history.txt")
    answer = await ask([{"role": "user", "content": prompt}])
    assert [name for name, _ in called(answer)] == ["calendar_events", "read_file"]


async def test_only_tools_that_are_offered_are_called() -> None:
    answer = await ask([{"role": "user", "content": PROMPT}], [tool("git_log", "repo")])
    assert [call.name for call in answer.calls] == ["git_log"]


async def test_without_lines_no_argument_is_invented() -> None:
    answer = await ask([{"role": "user", "content": "The morning briefing, please."}])
    assert all(arguments == {} for _, arguments in called(answer))


async def test_a_later_turn_starts_anew() -> None:
    messages: list[Any] = [{"role": "user", "content": PROMPT}]
    answer = await ask(messages)
    record(messages, answer, "a", "b", "c")
    messages += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": PROMPT}]
    assert len((await ask(messages)).calls) == 3


async def test_a_line_said_in_between_does_not_lose_the_task() -> None:
    messages: list[Any] = [{"role": "user", "content": PROMPT}]
    record(messages, await ask(messages), "a", "b", "c")
    messages.append({"role": "user", "content": "hurry"})
    assert [call.name for call in (await ask(messages)).calls] == ["write_file"]


@pytest.mark.parametrize(
    ("text", "tools"),
    [("What is 2 + 2?", TOOLS), (PROMPT, []), ("", TOOLS)],
    ids=["other", "no-tools", "empty"],
)
async def test_anything_else_is_told_what_this_is(text: str, tools: Sequence[Any]) -> None:
    answer = await ask([{"role": "user", "content": text}], tools)
    assert "not an AI" in answer.text and "OPENAI_API_KEY" in answer.text and not answer.calls
