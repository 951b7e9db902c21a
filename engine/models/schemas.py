"""Tool schemas and names in the form each provider takes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from engine.canonical import digest, dumps

__all__ = ["resolve", "wire_name", "wire_tools"]

#: OpenAI, Anthropic and Gemini take letters, digits, _ and -, 64 at most; Gemini no digit first.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")

#: How deep a reference is followed into itself before it becomes a plain object.
_DEPTH = 2

#: Parts a schema may unfold to; a few references that point at each other would fill the memory.
_PARTS = 20_000

#: What Gemini's function declarations take: a part of OpenAPI 3.0.
_GEMINI_KEYS = frozenset(
    "type format description nullable enum items properties required anyOf minimum maximum "
    "minItems maxItems minLength maxLength pattern title".split()
)
_GEMINI_FORMATS = frozenset({"enum", "date-time", "float", "double", "int32", "int64"})


def wire_name(name: str) -> str:
    """Return a name every provider takes: `name` itself, or a shortened one with a digest."""
    if _NAME.fullmatch(name):
        return name
    letters = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if not letters or not (letters[0].isalpha() or letters[0] == "_"):
        letters = f"t_{letters}"
    return f"{letters[:55]}_{digest(name)[:8]}"


def wire_tools(tools: Iterable[Mapping[str, Any]], protocol: str) -> list[dict[str, Any]]:
    """Return OpenAI function schemas with names, references and keywords the protocol takes."""
    made = []
    for tool in tools:
        function = tool["function"]
        parameters = _object(resolve(function.get("parameters") or {}))
        if protocol == "gemini":
            parameters = _gemini(parameters)
        elif protocol == "anthropic":
            # no alternatives are taken at the top level; the engine checks arguments anyway
            parameters = {k: v for k, v in parameters.items() if k not in _ALTERNATIVES}
        named = {
            "name": wire_name(function["name"]),
            "description": function.get("description") or "",
            "parameters": parameters,
        }
        made.append({"type": "function", "function": named})
    return made


_ALTERNATIVES = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else")


def resolve(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return `schema` with every local $ref replaced by what it points to, and no $defs.

    Full JSON pointers are followed; recursion is cut with a plain object; a reference that points
    nowhere becomes a plain object, too, and so does all that is left after 20,000 parts.
    """
    top = {k: v for k, v in schema.items() if k not in ("$defs", "definitions", "$schema")}
    if '"$ref"' not in dumps(top):
        return top
    made: dict[str, Any] = _resolve(top, schema, (), iter(range(_PARTS)))
    return made


def _resolve(
    value: Any, root: Mapping[str, Any], trail: tuple[str, ...], room: Iterator[int]
) -> Any:
    if isinstance(value, Mapping):
        if next(room, None) is None:
            return {"type": "object"}
        pointer = value.get("$ref")
        if isinstance(pointer, str):
            if trail.count(pointer) >= _DEPTH:
                return {"type": "object"}
            beside = {k: v for k, v in value.items() if k != "$ref"}
            target = _point(root, pointer)
            return _resolve({**target, **beside}, root, (*trail, pointer), room)
        return {k: _resolve(v, root, trail, room) for k, v in value.items()}
    if isinstance(value, list):
        return [_resolve(each, root, trail, room) for each in value]
    return value


def _point(root: Mapping[str, Any], pointer: str) -> Mapping[str, Any]:
    found: Any = root
    if not pointer.startswith("#"):
        return {"type": "object"}
    for step in pointer[1:].split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and step in found:
            found = found[step]
        elif isinstance(found, Sequence) and step.isdigit() and int(step) < len(found):
            found = found[int(step)]
        else:
            return {"type": "object"}
    return found if isinstance(found, Mapping) else {"type": "object"}


def _object(schema: dict[str, Any]) -> dict[str, Any]:
    """Make the top an object with properties, as every provider demands."""
    return {**schema, "type": "object", "properties": schema.get("properties") or {}}


def _gemini(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return {"type": "string"}
    cleaned: dict[str, Any] = {}
    for key, value in _plain_types(schema).items():
        if key not in _GEMINI_KEYS:
            continue
        if key == "properties":
            cleaned[key] = {name: _gemini(each) for name, each in value.items()}
        elif key == "items":
            cleaned[key] = _gemini(value)
        elif key == "anyOf":
            cleaned[key] = [_gemini(each) for each in value]
        elif key != "format" or value in _GEMINI_FORMATS:
            cleaned[key] = value
    if cleaned.get("type") == "array":
        cleaned.setdefault("items", {"type": "string"})
    if "properties" in cleaned and "required" in cleaned:
        cleaned["required"] = [r for r in cleaned["required"] if r in cleaned["properties"]]
    return cleaned


def _plain_types(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Say unions, constants and null in OpenAPI 3.0's words."""
    made = dict(schema)
    if "oneOf" in made and "anyOf" not in made:
        made["anyOf"] = made.pop("oneOf")
    if "const" in made:
        made["enum"] = [made.pop("const")]
    if "enum" in made and not all(isinstance(each, str) for each in made["enum"]):
        made.pop("enum")  # only texts are taken
    if "anyOf" in made:
        options = [o for o in made["anyOf"] if o.get("type") != "null"]
        made |= {"nullable": True} if len(options) < len(made["anyOf"]) else {}
        made["anyOf"] = options
        if len(options) == 1:
            made.pop("anyOf")
            made = {**_plain_types(options[0]), **made}
    kinds = made.get("type")
    if isinstance(kinds, list):
        real = [kind for kind in kinds if kind != "null"]
        made |= {"nullable": True} if len(real) < len(kinds) else {}
        made["type"] = real[0] if len(real) == 1 else "string"
    return made
