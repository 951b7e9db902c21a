"""What the model is shown of a tool, and what is made of what it writes."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ToolError
from engine.tools.base import Result, Risk, Tool, ToolContext, tool
from engine.tools.schema import parse_arguments, shrink


@tool(risk=Risk.READ)
async def sample(
    ctx: ToolContext,
    kind: Literal["a", "b"],
    rows: list[list[int]],
    title: str,
    limit: int = 3,
    tags: list[str] | None = None,
    deep: bool = False,
) -> Result:
    """Do a thing.

    And a second paragraph.

    Args:
        kind: Which way.
        rows: Numbers in rows.
        title: A name.
        limit: How many.
    """
    return Result(text="")


@tool(risk=Risk.READ)
async def plain(ctx: ToolContext) -> Result:
    """Take nothing."""
    return Result(text="")


def test_a_schema_holds_types_choices_defaults_and_descriptions_but_not_the_context() -> None:
    function = sample.schema()["function"]
    shown = function["parameters"]["properties"]
    assert function["name"] == "sample"
    assert function["description"] == "Do a thing.\n\nAnd a second paragraph."
    assert set(shown) == {"kind", "rows", "title", "limit", "tags", "deep"}
    assert shown["kind"] == {"description": "Which way.", "enum": ["a", "b"], "type": "string"}
    assert shown["rows"]["items"] == {"type": "array", "items": {"type": "integer"}}
    assert shown["title"] == {"description": "A name.", "type": "string"}
    assert shown["limit"]["default"] == 3
    assert (shown["tags"]["type"], shown["tags"]["items"]) == ("array", {"type": "string"})
    assert function["parameters"]["required"] == ["kind", "rows", "title"]


def test_a_schema_is_made_once() -> None:
    assert sample.schema()["function"]["parameters"] is sample.schema()["function"]["parameters"]


def test_a_tool_without_arguments_has_an_empty_schema() -> None:
    assert plain.schema()["function"]["parameters"] == {"type": "object", "properties": {}}
    assert plain.check({}) == {}


GOOD = {"kind": "a", "rows": [[1]], "title": "t"}


@pytest.mark.parametrize(
    ("more", "name", "value"),
    [
        pytest.param({}, "limit", 3, id="default"),
        pytest.param({"limit": "7"}, "limit", 7, id="number-as-text"),
        pytest.param({"limit": 7.0}, "limit", 7, id="whole-float"),
        pytest.param({"limit": None}, "limit", 3, id="null-for-optional"),
        pytest.param({"tags": None}, "tags", None, id="null-where-allowed"),
        pytest.param({"deep": "true"}, "deep", True, id="truth-as-text"),
        pytest.param({"title": 42}, "title", "42", id="text-as-number"),
    ],
)
def test_harmless_differences_are_taken(more: dict[str, Any], name: str, value: Any) -> None:
    assert sample.check({**GOOD, **more})[name] == value


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param({"kind": "a", "rows": []}, "'title' of sample is missing", id="missing"),
        pytest.param({**GOOD, "path": "x"}, "sample has no argument 'path'", id="extra"),
        pytest.param({**GOOD, "kind": "c"}, "'kind' of sample is wrong", id="choice"),
        pytest.param({**GOOD, "limit": "many"}, "'limit' of sample is wrong", id="no-number"),
        pytest.param({**GOOD, "rows": [[1], "x"]}, "'rows.1' of sample is wrong", id="nested"),
        pytest.param({**GOOD, "title": None}, "'title' of sample is wrong", id="null-required"),
        pytest.param({**GOOD, "limit": 2.5}, "'limit' of sample is wrong", id="half"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ToolError, match=said.replace("(", r"\(")):
        sample.check(arguments)


@pytest.mark.parametrize(
    ("text", "finish", "value"),
    [
        pytest.param("", "tool_calls", {}, id="L-04-empty"),
        pytest.param(" \n", "tool_calls", {}, id="L-04-blank"),
        pytest.param('{"a": 1}', "tool_calls", {"a": 1}, id="object"),
        pytest.param('{"a": 1}', "length", {"a": 1}, id="whole-before-the-cut"),
        pytest.param('{"a": "\\ud800"}', "stop", {"a": "�"}, id="lone-surrogate"),
        pytest.param('{"a": 12345678901234567890}', "stop", {"a": 1.2345678901234567e19}, id="big"),
    ],
)
def test_whole_arguments_are_taken(text: str, finish: str, value: dict[str, Any]) -> None:
    assert parse_arguments(text, finish) == (value, "")


@pytest.mark.parametrize(
    ("text", "finish", "cause"),
    [
        pytest.param('{"a": "lorem ipsum', "length", "cut off", id="D-015-length"),
        pytest.param("", "length", "cut off", id="length-before-the-first-byte"),
        pytest.param('{"n": [4, 5', "tool_calls", "cut off", id="L-05-open-list"),
        pytest.param('{"a": "x', "tool_calls", "cut off", id="open-string"),
        pytest.param('{"a": "x\\u12', "tool_calls", "cut off", id="open-escape"),
        pytest.param('{"a": tr', "tool_calls", "cut off", id="open-word"),
        pytest.param('{"a": "[{"', "stop", "cut off", id="L-05-brackets-inside-a-string"),
        pytest.param('{"rows": [{"v": 1}, {"v": 2}}', "stop", "not valid JSON", id="L-05-order"),
        pytest.param("{'a': 1}", "stop", "not valid JSON", id="D-015-single-quotes"),
        pytest.param('{"a": NaN}', "stop", "not valid JSON", id="nan"),
        pytest.param("[" * 100_000, "stop", "not valid JSON", id="deep"),
        pytest.param('["a"]', "stop", "no JSON object", id="list"),
        pytest.param('"a"', "stop", "no JSON object", id="string"),
    ],
)
def test_unreadable_arguments_are_answered_with_their_cause(
    text: str, finish: str, cause: str
) -> None:
    arguments, fault = parse_arguments(text, finish)
    assert arguments is None
    assert cause in fault
    assert len(fault) < 500


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.none())), st.data())
def test_no_beginning_of_arguments_is_taken_for_the_whole(
    value: dict[str, Any], data: st.DataObject
) -> None:
    text = json.dumps(value)
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    assert parse_arguments(cut, "length")[0] is None
    assert "cut off" in parse_arguments(cut, "tool_calls")[1]


@given(st.text())
def test_junk_is_shrunk_to_200_characters(text: str) -> None:
    assert shrink(text) == text if len(text) <= 200 else True
    assert len(shrink(text * 300)) <= 200


def test_of_unreadable_arguments_only_200_characters_are_told() -> None:
    assert "What arrived: {'a': 1}" in parse_arguments("{'a': 1}", "stop")[1]
    fault = parse_arguments('{"text": "' + "x" * 50_000, "length")[1]
    assert len(fault.partition("What arrived: ")[2]) == 200


def test_shrunk_junk_says_how_long_it_was() -> None:
    assert shrink("x" * 5_000).endswith("… (5,000 characters)")


def test_a_tool_may_straighten_arguments_before_they_are_checked() -> None:
    lenient = Tool(
        name="lenient",
        description="",
        run=sample.run,
        risk=Risk.READ,
        accept=lambda arguments: {**GOOD, **arguments},
    )
    assert lenient.check({"limit": 9})["limit"] == 9
