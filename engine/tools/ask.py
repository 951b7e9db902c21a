"""Asks the person: up to four questions on one card, with options, free text, or both.

The tool is never run: its call is a prompt, and `result_text` turns the answer into its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired

from typing_extensions import TypedDict

from engine.canonical import dumps
from engine.errors import ToolError
from engine.tools.base import Result, Risk, ToolContext, tool

__all__ = ["TOOLS", "questions_of", "result_text"]

#: Questions on one card, options of a question, and characters of its heading.
_MOST, _MOST_OPTIONS, _HEADER = 4, 20, 24

_SINGLE = ("question", "options", "multi", "allow_text", "header")


class Option(TypedDict):
    """One answer to choose."""

    label: str
    description: NotRequired[str]
    recommended: NotRequired[bool]


class Question(TypedDict):
    """One question of a group."""

    question: str
    header: NotRequired[str]
    options: NotRequired[list[Option]]
    multi: NotRequired[bool]
    allow_text: NotRequired[bool]


def questions_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the prompt's payload: {"questions": [{key, header, question, options, multi,
    allow_text}]}; `key` names the answer, each option has label, description, recommended.

    A group wins over the single form. Blank questions are dropped, those after the fourth too.
    Raises ToolError when none is left.
    """
    group = arguments.get("questions")
    given = group if isinstance(group, list) and group else [arguments]
    asked: list[dict[str, Any]] = []
    for each in given:
        found = _question(each)
        if found["question"] and len(asked) < _MOST:
            found["key"] = _free(found["header"] or found["question"], asked)
            asked.append(found)
    if not asked:
        raise ToolError("No question was asked.", "Give `question`, or a list of `questions`.")
    return {"questions": asked}


def result_text(payload: Mapping[str, Any], answer: Mapping[str, Any] | str) -> str:
    """Return the tool result for an answer to `payload` (of `questions_of`), as JSON text.

    `answer` is plain text, which answers the first question, or a mapping with `answers`
    (key -> label, text, or list of them) and `text`. Says which questions are left open.
    """
    asked = payload["questions"]
    given: Mapping[str, Any] = {"text": answer} if isinstance(answer, str) else answer
    values = {key: value for key, value in (given.get("answers") or {}).items() if value}
    text = str(given.get("text") or "").strip()
    if text:
        values.setdefault(asked[0]["key"], text)
    answers = {each["key"]: values[each["key"]] for each in asked if each["key"] in values}
    if not answers:
        return dumps({"error": "The question was not answered.", "status": "denied"})
    if len(asked) == 1:
        return dumps({"answer": answers[asked[0]["key"]]})
    open_ = [each["key"] for each in asked if each["key"] not in answers]
    return dumps({"answers": answers, **({"not_answered": open_} if open_ else {})})


def _question(given: Any) -> dict[str, Any]:
    if isinstance(given, str):
        given = {"question": given}
    if not isinstance(given, Mapping):
        given = {}
    options = given.get("options")
    options = [_option(each) for each in options] if isinstance(options, list) else []
    options = [each for each in options if each["label"]][:_MOST_OPTIONS]
    return {
        "header": str(given.get("header") or "").strip()[:_HEADER],
        "question": str(given.get("question") or "").strip(),
        "options": options,
        "multi": given.get("multi") is True,
        # Without options text is the only way to answer.
        "allow_text": given.get("allow_text") is not False or not options,
    }


def _option(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        given = {"label": given}
    return {
        "label": str(given.get("label") or "").strip(),
        "description": str(given.get("description") or "").strip(),
        "recommended": given.get("recommended") is True,
    }


def _free(key: str, asked: list[dict[str, Any]]) -> str:
    """Return `key`, with a number when an earlier question has it."""
    taken = {each["key"] for each in asked}
    names = [key, *(f"{key} ({n})" for n in range(2, _MOST + 1))]
    return next(name for name in names if name not in taken)


def _accept(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Bring every form into one: the group. What is no argument stays, to be refused by name."""
    asked = questions_of(arguments)["questions"]
    rest = {k: v for k, v in arguments.items() if k not in (*_SINGLE, "questions")}
    return {**rest, "questions": [{k: v for k, v in q.items() if k != "key"} for q in asked]}


def _card(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"title": "A question", **questions_of(arguments)}


def _answered(arguments: Mapping[str, Any], answer: Mapping[str, Any]) -> Result:
    return Result(text=result_text(questions_of(arguments), answer))


@tool(risk=Risk.CONTROL, asks="question", accept=_accept, card=_card, answered=_answered)
async def ask(
    ctx: ToolContext,
    question: str = "",
    options: list[Option] | None = None,
    multi: bool = False,
    allow_text: bool = True,
    header: str = "",
    questions: list[Question] | None = None,
) -> Result:
    """Ask the person, and wait for the answer. Ask only what you cannot find out yourself.

    Args:
        question: One question.
        options: Answers to choose from, the recommended one marked.
        multi: Several options may be chosen.
        allow_text: An answer in the person's own words is welcome.
        header: A short name for the question, one or two words.
        questions: Up to four questions asked at once, instead of the single one.
    """
    raise ToolError("Nobody can be asked here.", "Go on with what you know, and say so.")


TOOLS = [ask]
