"""Reasoning and calls that open models write as text are told apart, however they are cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.models.opentext import OpenText, salvage

OFFERED = ("read_file", "search")

CALLS = [
    pytest.param('<tool_call>{"name":"search","arguments":{"q":"a"}}</tool_call>', id="tag"),
    pytest.param('<tool_call>\n{"name":"search","parameters":{"q":"a"}}\n', id="tag-unclosed"),
    pytest.param('{"name":"search","arguments":{"q":"a"}}', id="bare"),
    pytest.param('[{"name":"search","arguments":{"q":"a"}}]', id="array"),
    pytest.param('{"name":"search","arguments":"{\\"q\\":\\"a\\"}"}', id="stringified"),
    pytest.param('```json\n{"name":"search","arguments":{"q":"a"}}\n```', id="fenced"),
    pytest.param('{"tool_calls":[{"function":{"name":"search","arguments":{"q":"a"}}}]}', id="oai"),
    pytest.param('search({"q": "a"})', id="name-args"),
    pytest.param('search{"q": "a"}', id="name-braces"),
    pytest.param('search(q="a")', id="name-keywords"),
    pytest.param('[TOOL_CALLS] [{"name":"search","arguments":{"q":"a"}}]', id="mistral"),
    pytest.param(
        "<function=search>\n<parameter=q>\na\n</parameter>\n</function>", id="qwen-function"
    ),
    pytest.param(
        "<tool_call><function=search><parameter=q>a</parameter></function></tool_call>",
        id="qwen-nested",
    ),
]


@pytest.mark.parametrize("text", CALLS)
def test_a_written_call_is_found(text: str) -> None:
    rest, calls = salvage(text, OFFERED)
    assert rest == ""
    assert [(c.name, json.loads(c.arguments)) for c in calls] == [("search", {"q": "a"})]


def test_nested_braces_and_text_around_tags() -> None:
    text = 'Let me look. <tool_call>{"name":"search","arguments":{"q":{"a":{"b":"}"}}}}</tool_call>'
    rest, (call,) = salvage(text, OFFERED)
    assert rest == "Let me look."
    assert json.loads(call.arguments) == {"q": {"a": {"b": "}"}}}


def test_several_tags_are_several_calls() -> None:
    one = '<tool_call>{"name":"search","arguments":{}}</tool_call>'
    assert len(salvage(one + one, OFFERED)[1]) == 2


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("I would search(for it) in the file.", id="prose"),
        pytest.param('{"name":"Ann","arguments":{"x":1}}', id="not-offered"),
        pytest.param('{"name":"search","age":3}', id="no-arguments"),
        pytest.param('{"total": 3}', id="plain-json"),
        pytest.param('[{"name":"search","arguments":{}}, 3]', id="half-a-list"),
        pytest.param('Use {"name":"search","arguments":{}} like this.', id="json-in-prose"),
        pytest.param('<tool_call>{"name":"rm","arguments":{}}</tool_call>', id="tag-not-offered"),
        pytest.param('search({"q": ', id="cut-off"),
        pytest.param("[" * 5000, id="deep"),
    ],
)
def test_what_is_no_call_is_left_alone(text: str) -> None:
    assert salvage(text, OFFERED) == (text, ())


def test_without_tools_nothing_is_salvaged() -> None:
    text = '{"name":"search","arguments":{}}'
    assert salvage(text, ()) == (text, ())
    open_text = OpenText(())
    assert open_text.feed(text) == (text, "")


def run(text: str, sizes: list[int], offered: tuple[str, ...] = OFFERED) -> tuple[str, str, int]:
    """Feed `text` in chunks; return what was said, thought, and how many calls were found."""
    reader, said, thought, at = OpenText(offered), "", "", 0
    for size in [*sizes, len(text)]:
        new_said, new_thought = reader.feed(text[at : at + size])
        said, thought, at = said + new_said, thought + new_thought, at + size
    last, late, calls = reader.end(seek=True)
    return said + last, thought + late, len(calls)


@given(st.lists(st.integers(1, 9), max_size=60))
def test_cutting_a_stream_anywhere_changes_nothing(sizes: list[int]) -> None:
    call = '<tool_call>{"name":"search","arguments":{}}</tool_call>'
    assert run(f"<think>\nhm < 3</think>\n\nOK < 4 {call}", sizes) == ("OK < 4 ", "\nhm < 3", 1)
    assert run("a <think>b</think> c", sizes) == ("a <think>b</think> c", "", 0)
    assert run("searching for it", sizes) == ("searching for it", "", 0)


def test_an_unclosed_thought_is_no_answer() -> None:
    assert run("<think>and then", [3]) == ("", "and then", 0)


def test_plain_text_is_shown_at_once() -> None:
    reader = OpenText(OFFERED)
    assert reader.feed("Hello") == ("Hello", "")
    assert reader.feed(" <to")[0] == " "
    assert reader.feed("day")[0] == "<today"
