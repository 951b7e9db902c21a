"""Tool schemas and names as providers take them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from engine.models.schemas import resolve, wire_name, wire_tools

LONG = "mcp__very-long-plugin-name-devtools__performance_analyze_insight_by_selector"


@pytest.mark.parametrize("name", ["read_file", "git-log", "_x", "A1"])
def test_a_good_name_stays(name: str) -> None:
    assert wire_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(LONG, id="M-01-long"),
        pytest.param("time.get-now", id="M-02-dot"),
        pytest.param("user/update", id="M-02-slash"),
        pytest.param("Create Share", id="M-02-space"),
        pytest.param("2fa_check", id="M-02-digit"),
        pytest.param("", id="empty"),
        pytest.param("größe", id="umlaut"),
    ],
)
def test_a_bad_name_becomes_a_good_stable_one(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", wire_name(name))
    assert wire_name(name) == wire_name(name)


def test_two_long_names_do_not_clash() -> None:
    assert wire_name(LONG) != wire_name(LONG + "_2")
    assert wire_name("a.b") != wire_name("a/b")


def pointer(ref: str, **defs: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": {"$ref": ref}}, "$defs": defs}


@pytest.mark.parametrize(
    ("schema", "x"),
    [
        pytest.param(
            pointer("#/$defs/Kind", Kind={"enum": ["a"]}), {"enum": ["a"]}, id="M-03-defs"
        ),
        pytest.param(
            pointer("#/$defs/Foo/properties/bar", Foo={"properties": {"bar": {"type": "string"}}}),
            {"type": "string"},
            id="M-03-deep",
        ),
        pytest.param(pointer("#/$defs/No"), {"type": "object"}, id="dangling"),
        pytest.param(pointer("http://x/y"), {"type": "object"}, id="remote"),
    ],
)
def test_references_are_resolved(schema: dict[str, Any], x: dict[str, Any]) -> None:
    made = resolve(schema)
    assert made["properties"]["x"] == x
    assert "$defs" not in made


def test_a_reference_into_properties_keeps_items() -> None:
    schema = {
        "properties": {
            "headers": {"type": "object"},
            "all": {"type": "array", "items": {"$ref": "#/properties/headers"}},
        }
    }
    assert resolve(schema)["properties"]["all"]["items"] == {"type": "object"}


@pytest.mark.parametrize("protocol", ["openai", "anthropic", "gemini"])
def test_a_self_reference_ends(protocol: str) -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    schema = {"properties": {"n": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}
    tool = {"type": "function", "function": {"name": "t", "parameters": schema}}
    (made,) = wire_tools([tool], protocol)
    assert "$ref" not in str(made) and "$defs" not in str(made)


def test_a_tool_property_named_like_a_keyword_survives() -> None:
    text = {"type": "string"}
    schema = {
        "properties": {"definitions": text, "format": {"$ref": "#/$defs/T"}},
        "$defs": {"T": text},
    }
    tool = {"type": "function", "function": {"name": "t", "parameters": schema}}
    for protocol in ("openai", "anthropic", "gemini"):
        (made,) = wire_tools([tool], protocol)
        assert set(made["function"]["parameters"]["properties"]) == {"definitions", "format"}


def test_gemini_gets_its_own_words() -> None:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "when": {"type": ["string", "null"], "format": "uri"},
            "kind": {"const": "a"},
            "level": {"enum": [1, 2], "type": "integer"},
            "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "list": {"type": "array"},
        },
        "required": ["when", "gone"],
    }
    (made,) = wire_tools([{"function": {"name": "t", "parameters": schema}}], "gemini")
    assert made["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "when": {"type": "string", "nullable": True},
            "kind": {"enum": ["a"]},
            "level": {"type": "integer"},
            "maybe": {"type": "integer", "nullable": True},
            "list": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["when"],
    }


def test_anthropic_gets_an_object_without_alternatives_on_top() -> None:
    schema = {"anyOf": [{"required": ["a"]}], "properties": {"a": {"type": "string"}}}
    (made,) = wire_tools([{"function": {"name": "t", "parameters": schema}}], "anthropic")
    assert made["function"]["parameters"] == {
        "type": "object",
        "properties": {"a": {"type": "string"}},
    }
    assert made["function"]["description"] == ""
