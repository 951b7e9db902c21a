"""To-dos, questions and plans: what models get wrong is straightened, answers become results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.canonical import loads
from engine.errors import ToolError
from engine.events import Kind
from engine.tools import ask as asking
from engine.tools.ask import ask, questions_of
from engine.tools.plan import plan_of, propose_plan
from engine.tools.todo import todo_write
from tests.fakes.context import make_context


@pytest.mark.parametrize(
    ("arguments", "todos"),
    [
        pytest.param(
            {"todos": [{"content": "a", "status": "in_progress"}]},
            [("a", "in_progress")],
            id="plain",
        ),
        pytest.param({"items": ["a"]}, [("a", "pending")], id="T-05-items-and-text"),
        pytest.param(
            {"todos": [{"content": "a", "status": "completed"}]},
            [("a", "done")],
            id="T-05-completed",
        ),
        pytest.param(
            {"todos": [{"content": "a", "status": "blocked"}]},
            [("a", "pending")],
            id="T-05-unknown",
        ),
        pytest.param({"todos": [{"text": "a"}]}, [("a", "pending")], id="other-name"),
        pytest.param({"todos": []}, [], id="empty"),
    ],
)
async def test_a_to_do_list_is_taken_in_every_form_and_becomes_progress(
    tmp_path: Path, arguments: dict[str, Any], todos: list[tuple[str, str]]
) -> None:
    result = await todo_write.run(make_context(tmp_path), **todo_write.check(arguments))
    ((kind, body),) = result.facts
    assert kind is Kind.PROGRESS
    assert [(each["content"], each["status"]) for each in body["todos"]] == todos


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param({}, "'todos' of todo_write is missing", id="missing"),
        pytest.param({"todos": "buy milk"}, "'todos' of todo_write is wrong", id="text"),
        pytest.param({"todos": [], "list": []}, "no argument 'list'", id="extra"),
    ],
)
def test_a_wrong_to_do_list_is_named(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ToolError, match=said):
        todo_write.check(arguments)


def asked(arguments: dict[str, Any]) -> list[dict[str, Any]]:
    questions: list[dict[str, Any]] = questions_of(ask.check(arguments))["questions"]
    return questions


def test_a_single_question_has_options_from_text_or_records() -> None:
    (question,) = asked(
        {
            "question": "Which?",
            "options": ["A", {"label": "B", "description": "the other", "recommended": True}, ""],
            "multi": True,
            "allow_text": False,
        }
    )
    assert question == {
        "key": "Which?",
        "header": "",
        "question": "Which?",
        "options": [
            {"label": "A", "description": "", "recommended": False},
            {"label": "B", "description": "the other", "recommended": True},
        ],
        "multi": True,
        "allow_text": False,
    }


def test_a_group_wins_drops_blanks_and_keeps_four() -> None:
    group = [{"question": " "}, *({"question": f"Q{n}?"} for n in range(6))]
    found = asked({"question": "ignored", "questions": group})
    assert [each["question"] for each in found] == ["Q0?", "Q1?", "Q2?", "Q3?"]


def test_answers_are_keyed_by_header_and_no_key_is_used_twice() -> None:
    group = [{"question": "A?", "header": "Day"}, {"question": "B?", "header": "Day"}, "C?"]
    assert [each["key"] for each in asked({"questions": group})] == ["Day", "Day (2)", "C?"]


def test_a_question_that_leaves_no_way_to_answer_takes_text() -> None:
    assert asked({"question": "Why?", "allow_text": False})[0]["allow_text"] is True


@pytest.mark.parametrize(
    "arguments", [{}, {"question": " "}, {"questions": [{"question": ""}]}, {"options": ["a"]}]
)
def test_nothing_asked_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="No question was asked"):
        ask.check(arguments)


def test_an_argument_of_ask_that_does_not_exist_is_named() -> None:
    with pytest.raises(ToolError, match="no argument 'queston'"):
        ask.check({"question": "A?", "queston": "B?"})


ONE = {"questions": [{"key": "Which?", "question": "Which?"}]}
TWO = {"questions": [{"key": "Day", "question": "A?"}, {"key": "B?", "question": "B?"}]}


@pytest.mark.parametrize(
    ("payload", "answer", "result"),
    [
        pytest.param(ONE, {"answers": {"Which?": "A"}}, {"answer": "A"}, id="choice"),
        pytest.param(ONE, {"answers": {"Which?": ["A", "B"]}}, {"answer": ["A", "B"]}, id="multi"),
        pytest.param(ONE, "neither", {"answer": "neither"}, id="text"),
        pytest.param(
            TWO, {"answers": {"Day": "Mon", "B?": "x"}}, {"answers": {"Day": "Mon", "B?": "x"}},
            id="group",
        ),
        pytest.param(
            TWO, "Mon", {"answers": {"Day": "Mon"}, "not_answered": ["B?"]}, id="D-046"
        ),
        pytest.param(
            TWO, {"answers": {"B?": "x"}, "text": "Mon"}, {"answers": {"Day": "Mon", "B?": "x"}},
            id="both",
        ),
        pytest.param(TWO, {"answers": {"Else": "x"}}, None, id="unknown-key"),
        pytest.param(ONE, "  ", None, id="Q-02-empty"),
        pytest.param(ONE, {}, None, id="nothing"),
    ],
)  # fmt: skip
def test_an_answer_becomes_the_result(payload: Any, answer: Any, result: Any) -> None:
    found = loads(asking.result_text(payload, answer))
    assert found == result or (result is None and found["status"] == "denied")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [(ask, {"question": "A?"}), (propose_plan, {"plan": "Do it."})],
    ids=["ask", "propose_plan"],
)
async def test_where_nobody_can_answer_the_tool_says_so(
    tmp_path: Path, tool: Any, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ToolError, match="here"):
        await tool.run(make_context(tmp_path), **tool.check(arguments))


def test_a_plan_is_offered_in_plan_mode_only_and_is_not_empty() -> None:
    assert propose_plan.modes == {"plan"}
    shown = {"title": "A plan", "plan": "P", "steps": ["a"]}
    assert plan_of(propose_plan.check({"plan": "P", "steps": ["a"]})) == shown
    assert plan_of(propose_plan.check({"plan": "P"})) == {**shown, "steps": []}
    with pytest.raises(ToolError, match="plan is empty"):
        propose_plan.check({"plan": " "})


@pytest.mark.parametrize(
    ("mode", "begins"),
    [
        ("auto", "auto"),
        ("interactive", "interactive"),
        (None, "interactive"),
        ("root", "interactive"),
    ],
)
def test_an_approved_plan_switches_to_the_mode_the_person_chose(mode: Any, begins: str) -> None:
    assert propose_plan.answered is not None
    result = propose_plan.answered({"plan": "P"}, {"kind": "approve", "mode": mode})
    assert loads(result.text)["mode"] == begins
    assert result.facts == ((Kind.SWITCHED, {"mode": begins, "by": "plan"}),)


def test_the_card_of_a_question_holds_all_of_it_and_its_answer_is_the_result() -> None:
    arguments = ask.check({"question": "Which?", "options": ["A", "B"]})
    assert ask.card is not None
    assert ask.answered is not None
    (question,) = ask.card(arguments)["questions"]
    assert [option["label"] for option in question["options"]] == ["A", "B"]
    result = ask.answered(arguments, {"kind": "answer", "answers": {"Which?": "B"}})
    assert loads(result.text) == {"answer": "B"}
