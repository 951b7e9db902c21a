"""Between a tool and the model's text: the schema it is shown, and the check of what it wrote.

The only module that uses aisuite for tools. aisuite and pydantic take 0.4 s to import, so they
are imported when the first schema is made, not before.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from engine.canonical import dumps, loads
from engine.errors import ToolError
from engine.tools.base import Run, Tool

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["describe", "parse_arguments", "shrink", "validate"]

#: Characters of an unreadable argument text that may be kept in the history.
JUNK_LIMIT = 200
#: Faults of one call that are told, and characters of each.
FAULTS, FAULT_CHARS = 3, 200

_CUT_OFF = (
    "The arguments of this call were cut off before they ended, so it was not run. "
    "Send less at once: split the content over several smaller calls."
)
_ONE_OBJECT = "Send one JSON object with the arguments by name."
_NOT_JSON = (
    "The arguments of this call are not valid JSON ({why}), so it was not run. " + _ONE_OBJECT
)
_NO_OBJECT = "The arguments of this call are no JSON object, so it was not run. " + _ONE_OBJECT


def describe(tool: Tool) -> dict[str, Any]:
    """Return the OpenAI function schema of `tool`. The same object each time: do not change it."""
    parameters = tool.parameters if tool.parameters is not None else _reflect(tool.run)[1]
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def validate(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return `arguments` checked and complete with defaults, as plain JSON values.

    Harmless differences are taken ("3" for 3, null for an optional value); an argument the tool
    does not have, a missing or a malformed one raises ToolError, which names it.
    """
    from pydantic import ValidationError

    given = dict(tool.accept(arguments) if tool.accept else arguments)
    if tool.parameters is not None:
        return _against_schema(tool, tool.parameters, given)
    model = _reflect(tool.run)[0]
    for name, field in model.model_fields.items():
        if given.get(name, ...) is None and not field.is_required():
            del given[name]
    try:
        return model.model_validate(given).model_dump()
    except ValidationError as error:
        faults = [_fault(tool, model, each) for each in error.errors()[:FAULTS]]
        raise ToolError(" ".join(faults), "Call it again with the arguments mended.") from None


def _against_schema(tool: Tool, schema: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return `given` as JSON schema takes it: not completed; a null nobody asked for goes."""
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(schema)
    faults = list(islice(validator.iter_errors(given), FAULTS))
    if faults:
        required = schema.get("required", ())
        given = {k: v for k, v in given.items() if v is not None or k in required}
        faults = list(islice(validator.iter_errors(given), FAULTS))
    if not faults:
        return given
    told = [
        f"Argument '{_place(each.path)}' of {tool.name} is wrong: {_cut(each.message)}."
        for each in faults
    ]
    raise ToolError(" ".join(told), "Call it again with the arguments mended.")


def _place(path: Iterable[Any]) -> str:
    return ".".join(str(part) for part in path) or "(all)"


def _cut(message: str) -> str:
    return message if len(message) <= FAULT_CHARS else f"{message[: FAULT_CHARS - 1]}…"


def parse_arguments(text: str, finish: str) -> tuple[dict[str, Any] | None, str]:
    """Parse the argument text of a call; returns (arguments, "") or (None, what is wrong).

    `finish` is why the model stopped; 'length' means it ran out of room. Broken text is never
    mended: what a model did not finish writing, it did not ask for.
    """
    if not text.strip():
        return (None, _CUT_OFF) if finish == "length" else ({}, "")
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_int=_integer)
        value = loads(dumps(value))
    except json.JSONDecodeError as error:
        cut = finish == "length" or _ended_early(text.rstrip(), error)
        why = f"{error.msg} at character {error.pos + 1}"
        return None, _told(_CUT_OFF if cut else _NOT_JSON.format(why=why), text)
    except (ValueError, TypeError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        return None, _told(_NOT_JSON.format(why=why), text)
    if not isinstance(value, dict):
        return None, _told(_NO_OBJECT, text)
    return value, ""


def _told(fault: str, text: str) -> str:
    return f"{fault} What arrived: {shrink(text)}"


def shrink(text: str) -> str:
    """Return `text`, or its beginning and a note of its size, in at most 200 characters.

    Unreadable arguments enter the history only in this form: a model that sees them whole
    learns to write them.
    """
    if len(text) <= JUNK_LIMIT:
        return text
    note = f"… ({len(text):,} characters)"
    return text[: JUNK_LIMIT - len(note)] + note


#: Kept as long as its function: a connector's or a server's go when others take their place.
_known: WeakKeyDictionary[Run, tuple[type[BaseModel], dict[str, Any]]] = WeakKeyDictionary()


def _reflect(run: Run) -> tuple[type[BaseModel], dict[str, Any]]:
    """Return what `_reflected` makes, made once."""
    found = _known.get(run)
    if found is None:
        found = _known[run] = _reflected(run)
    return found


def _reflected(run: Run) -> tuple[type[BaseModel], dict[str, Any]]:
    """Return the model that checks arguments of `run`, and their JSON schema."""
    from aisuite import Tools  # type: ignore[import-untyped]
    from pydantic import ConfigDict

    shown = Tools([_without_context(run)])
    entry = shown._tools[run.__name__]
    checked: type[BaseModel] = entry["param_model"]
    strict = ConfigDict(extra="forbid", coerce_numbers_to_str=True, validate_default=True)
    model = type(checked.__name__, (checked,), {"model_config": strict, "__module__": __name__})
    parameters: dict[str, Any] = entry["spec"]["parameters"]
    _restore_title(checked, parameters)
    return model, parameters


def _without_context(run: Run) -> Callable[..., None]:
    """Return a callable with the name, docstring and parameters of `run`, except the first."""
    signature = inspect.signature(run)
    hints = typing.get_type_hints(run)
    kept = list(signature.parameters.values())[1:]

    def shown() -> None: ...

    shown.__name__, shown.__doc__ = run.__name__, inspect.getdoc(run)
    typed = [each.replace(annotation=hints[each.name]) for each in kept]
    shown.__signature__ = signature.replace(parameters=typed)  # type: ignore[attr-defined]
    return shown


def _restore_title(model: type[BaseModel], parameters: dict[str, Any]) -> None:
    """Put back a parameter named `title`: aisuite strips every key of that name."""
    if "title" in model.model_fields:
        whole = model.model_json_schema()["properties"]["title"]
        whole.pop("title", None)
        parameters.setdefault("properties", {})["title"] = whole


def _fault(tool: Tool, model: type[BaseModel], error: Mapping[str, Any]) -> str:
    path = ".".join(str(part) for part in error["loc"]) or "(all)"
    if error["type"] == "extra_forbidden":
        names = ", ".join(model.model_fields) or "none"
        return f"{tool.name} has no argument '{path}'; its arguments: {names}."
    if error["type"] == "missing":
        return f"Argument '{path}' of {tool.name} is missing."
    wanted = error["msg"][0].lower() + error["msg"][1:]
    return f"Argument '{path}' of {tool.name} is wrong: {wanted}, not {repr(error['input'])[:80]}."


def _ended_early(text: str, error: json.JSONDecodeError) -> bool:
    """Tell whether `text` is the beginning of something that could still have become JSON."""
    rest = text[error.pos :]
    if not rest or error.msg.startswith("Unterminated string"):
        return True
    if "escape" in error.msg:
        return len(rest) < len("\\u0000")
    return any(word.startswith(rest) for word in ("true", "false", "null", "-"))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")


def _integer(digits: str) -> int | float:
    """Integers beyond 64 bits become floats: nothing that stores them takes more."""
    return int(digits) if len(digits) < 19 else float(digits)
