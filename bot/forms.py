"""What a press opens before it counts: a form for a reason, an answer, or a call's arguments.

A form is made from the prompt and the tool's own schema, and read back against both, so a surface
keeps nothing between showing it and getting it back.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bot import cards
from bot.markup import visible
from engine import inbox, people
from engine.errors import PromptError
from engine.inbox import Prompt
from engine.store.base import Store, Tx
from engine.tools.base import Tool

__all__ = ["Field", "FieldError", "Filled", "Form", "Forms"]

#: Options a platform's menu takes (Discord: 25).
CHOICES = 25
#: Characters from which on a text gets a field of several lines.
LONG = 60


class FieldError(PromptError):
    """What stands in one field cannot be; `name` says in which."""

    def __init__(self, name: str, what: str, fix: str = "") -> None:
        super().__init__(what, fix)
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One thing to fill in."""

    name: str
    label: str
    #: text, long (several lines), number, flag, choice, or json.
    kind: str
    #: What stands in it at first; a flag is "true" or "false".
    value: str = ""
    choices: tuple[str, ...] = ()
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What is asked, and everything the prompt holds."""

    title: str
    fields: tuple[Field, ...]
    #: The whole prompt as text, nothing cut.
    full: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What a form came back with, as a press carries it."""

    text: str = ""
    arguments: Mapping[str, Any] | None = None


class Forms:
    """Makes forms for buttons, and reads them back. Everything may raise PromptError."""

    def __init__(
        self, store: Store, tenant: str, key: bytes, tool: Callable[[str], Tool | None]
    ) -> None:
        """`key` signs buttons; `tool` finds a tool by its name."""
        self._store = store
        self._tenant = tenant
        self._key = key
        self._tool = tool

    async def open(self, platform: str, person: str, token: str) -> Form:
        """Return what the button asks for, for somebody who may press it.

        `person` is their id on the platform.
        """
        press, prompt = await self._prompt(platform, person, token)
        title = visible(str(prompt.payload.get("tool") or prompt.payload.get("title") or "Nod"))
        fields: tuple[Field, ...] = ()
        if press.answer == "edit":
            fields = await self._fields(prompt)
        elif press.answer == "answer":
            fields = _asked(prompt)
        elif press.answer == "deny":
            label = "Why, or what to do instead"
            fields = (Field(name="reason", label=label, kind="long", required=False),)
        return Form(title=title, fields=fields, full=cards.full_text(prompt))

    async def read(
        self, platform: str, person: str, token: str, values: Mapping[str, str]
    ) -> Filled:
        """Return what the form says. An argument that has no value in `values` stays as it was.

        Raises FieldError when a value cannot be read as what its field is.
        """
        press, prompt = await self._prompt(platform, person, token)
        if press.answer == "answer":
            return Filled(arguments=_answers(prompt, values))
        if press.answer != "edit":
            return Filled(text=values.get("reason", ""))
        changed = dict(prompt.payload["arguments"])
        for field in await self._fields(prompt):
            if field.name in values and values[field.name] != field.value:
                changed[field.name] = _value(field, values[field.name])
        return Filled(arguments=changed)

    async def _prompt(self, platform: str, person: str, token: str) -> tuple[cards.Press, Prompt]:
        press = cards.read_token(token, self._key)

        def look(tx: Tx) -> Prompt:
            prompt = inbox.get(tx, press.prompt)
            who = people.person_of(tx, self._tenant, platform, person)
            if who is None or not inbox.may_answer(prompt, who):
                raise PromptError("This is not yours to answer.", "Ask whoever it is shown to.")
            if prompt.status != "pending":
                raise PromptError("This was decided already.", "See `/inbox`.")
            return prompt

        return press, await self._store.read(look)

    async def _fields(self, prompt: Prompt) -> tuple[Field, ...]:
        """Return a field for every argument, in the order of the tool's schema."""
        arguments: Mapping[str, Any] = prompt.payload.get("arguments") or {}
        tool = self._tool(str(prompt.payload.get("tool", "")))
        schema = await asyncio.to_thread(tool.schema) if tool else {}
        parameters = schema.get("function", {}).get("parameters", {})
        declared: Mapping[str, Any] = parameters.get("properties", {})
        required = parameters.get("required", ())
        names = [*declared, *(name for name in arguments if name not in declared)]
        return tuple(
            _field(name, declared.get(name, {}), arguments.get(name), name in required)
            for name in names
        )


def _asked(prompt: Prompt) -> tuple[Field, ...]:
    """Return a field for every question: a choice where one of few options is all it takes."""
    questions = prompt.payload["questions"]
    return tuple(_question(f"q{n}", each, len(questions) == 1) for n, each in enumerate(questions))


def _question(name: str, question: Mapping[str, Any], required: bool) -> Field:
    label = visible(str(question["question"]))
    labels = [visible(str(each["label"])) for each in question.get("options") or ()]
    many = question.get("multi") or len(labels) > CHOICES
    if labels and not many and not question.get("allow_text"):
        return Field(
            name=name, label=label, kind="choice", choices=tuple(labels), required=required
        )
    if labels:
        several = "; several: 1, 2" if question.get("multi") else ""
        numbered = ", ".join(f"{n} {each}" for n, each in enumerate(labels, 1))
        label = f"{label} ({numbered}{several})"
    return Field(name=name, label=label, kind="long", required=required)


def _answers(prompt: Prompt, values: Mapping[str, str]) -> dict[str, Any]:
    """Return what was answered, by each question's name; what was left empty is left out."""
    found: dict[str, Any] = {}
    for number, question in enumerate(prompt.payload["questions"]):
        said = values.get(f"q{number}", "").strip()
        try:
            answered = cards.answer_to(question, said)
        except PromptError as error:
            raise FieldError(f"q{number}", error.what, error.fix) from error
        if said:
            found[cards.name_of(question)] = answered
    if not found:
        raise FieldError("q0", "There is no answer in it.", "Answer at least one question.")
    return found


def _field(name: str, declared: Mapping[str, Any], value: Any, required: bool) -> Field:
    """Return the field of one argument; its kind follows the schema, else the value."""
    label = name.replace("_", " ").capitalize()
    shown = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    choices = tuple(str(each) for each in declared.get("enum", ()))
    kind = "choice" if choices else _KINDS.get(str(declared.get("type") or _type(value)), "json")
    if kind == "text" and (len(shown) > LONG or "\n" in shown):
        kind = "long"
    return Field(name=name, label=label, kind=kind, value=shown, choices=choices, required=required)


_KINDS = {"string": "text", "integer": "number", "number": "number", "boolean": "flag"}


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else "string" * isinstance(value, str)


def _value(field: Field, text: str) -> Any:
    if field.kind in ("text", "long", "choice"):
        return text
    if not text.strip() and not field.required:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        wanted = {"number": "a number", "flag": "true or false"}.get(field.kind, "JSON")
        raise FieldError(field.name, f"{field.label} must be {wanted}.") from error
