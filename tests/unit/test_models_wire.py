"""Who speaks when, and ids of calls, as each provider takes them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from engine.models.catalogue import Catalogue
from engine.models.wire import CallIds, Options, alternating, arguments_object
from tests.unit.test_models_content import IMAGE

CATALOGUE = Catalogue.load()


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def call(ours: str, theirs: str = "") -> dict[str, Any]:
    return {"id": ours, "provider_id": theirs, "function": {"name": "t", "arguments": "{}"}}


def test_neighbouring_user_messages_are_joined() -> None:
    text = {"type": "text", "text": "a"}
    assert alternating([user("a"), user("b")]) == [user("a\n\nb")]
    assert alternating([user("a"), user([IMAGE])]) == [user([text, IMAGE])]
    spread = [user("a"), {"role": "assistant", "content": "x"}, user("b")]
    assert alternating(spread) == spread


def test_a_conversation_that_begins_with_an_answer_gets_a_user_message() -> None:
    made = alternating([{"role": "system", "content": "s"}, {"role": "assistant", "content": "x"}])
    assert [each["role"] for each in made] == ["system", "user", "assistant"]


@pytest.mark.parametrize(
    ("provider", "pattern"),
    [("openai", r"[A-Za-z0-9_-]{1,40}"), ("mistral", r"[A-Za-z0-9]{9}")],
)
def test_a_foreign_call_gets_a_stable_id_the_provider_takes(provider: str, pattern: str) -> None:
    entry = CATALOGUE.entry(f"{provider}:m")
    ours = "s0abcdefghjkmnpq-999-150-63-and-longer"
    ids = CallIds(entry)
    made = ids.call(call(ours, "toolu_1"), {"model": "anthropic:x"})
    assert re.fullmatch(pattern, made) and ids.result(ours) == made
    assert CallIds(entry).call(call(ours), {"model": "gemini:y"}) == made


def test_a_provider_gets_its_own_id_back_but_never_twice() -> None:
    ids = CallIds(CATALOGUE.entry("openai:gpt-4o"))
    own = {"model": "openai:gpt-5"}
    first, second = ids.call(call("a", "call_0"), own), ids.call(call("b", "call_0"), own)
    assert first == "call_0" and second != "call_0"
    assert (ids.result("a"), ids.result("b")) == (first, second)


def test_an_id_the_provider_would_refuse_is_replaced() -> None:
    ids = CallIds(CATALOGUE.entry("openai:gpt-4o"))
    assert re.fullmatch(r"call_\w{24}", ids.call(call("a", "x" * 41), {"model": "openai:m"}))


@pytest.mark.parametrize(
    ("text", "value"),
    [("", {}), ('{"a": 1}', {"a": 1}), ("[1]", {"value": [1]}), ("no", {"value": "no"})],
)
def test_arguments_are_always_an_object(text: str, value: dict[str, Any]) -> None:
    assert arguments_object(text) == value


def test_options_leave_nothing_out_by_default() -> None:
    assert Options(entry=CATALOGUE.entry("gpt-4o")).without == frozenset()
