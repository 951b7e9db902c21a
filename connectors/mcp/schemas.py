"""Makes a JSON schema that a stranger wrote safe to show to a model and to check arguments with.

Bounded in size and depth, references unfolded, regular expressions out: a pattern of the server's
could hold up the process, and the server checks its own patterns anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.canonical import defused, dumps
from engine.models.schemas import resolve

__all__ = ["Unfit", "clean"]

#: Characters of JSON a schema may have, before and after its references are unfolded.
SIZE = 60_000
DEPTH = 24
#: Characters of one description.
DESCRIPTION = 400

_DROPPED = frozenset(
    "pattern patternProperties format $id $anchor $dynamicRef $dynamicAnchor $comment $vocabulary "
    "examples contentEncoding contentMediaType contentSchema".split()
)
#: Keywords whose keys are names, not keywords.
_NAMED = frozenset({"properties", "dependentSchemas"})
#: Keywords that hold values, not schemas.
_VALUES = frozenset({"enum", "const", "default", "required", "type", "dependentRequired"})


class Unfit(Exception):
    """No model can be shown this schema; says why."""


def clean(schema: Any) -> dict[str, Any]:
    """Return the schema of an object, ready for every provider; raises Unfit."""
    from jsonschema import Draft202012Validator, SchemaError

    if not isinstance(schema, Mapping):
        raise Unfit("its schema is no object")
    try:
        if len(dumps(schema)) > SIZE:
            raise Unfit(f"its schema has more than {SIZE:,} characters")
        made: dict[str, Any] = _cleaned(resolve(schema), 0)
        if len(dumps(made)) > SIZE:
            raise Unfit(f"its schema unfolds to more than {SIZE:,} characters")
    except (RecursionError, TypeError, ValueError):
        raise Unfit("its schema is nested too deeply, or is no JSON") from None
    if made.get("type", "object") != "object":
        raise Unfit("its arguments are no object")
    properties = made.get("properties")
    made |= {"type": "object", "properties": properties if isinstance(properties, dict) else {}}
    try:
        Draft202012Validator.check_schema(made)
    except SchemaError as error:
        raise Unfit(f"its schema is no JSON schema ({error.message[:80]})") from None
    return made


def _cleaned(schema: Any, depth: int) -> Any:
    if depth > DEPTH:
        raise Unfit("its schema is nested too deeply")
    if isinstance(schema, list):
        return [_cleaned(each, depth + 1) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _DROPPED or not isinstance(key, str):
            continue
        if key == "description":
            made[key] = shortened(value, DESCRIPTION) if isinstance(value, str) else ""
        elif key in _VALUES:
            made[key] = value
        elif key in _NAMED and isinstance(value, Mapping):
            made[key] = {str(name): _cleaned(each, depth + 1) for name, each in value.items()}
        else:
            made[key] = _cleaned(value, depth + 1)
    return made


def shortened(text: str, limit: int) -> str:
    """Return outside text on one line for a model: no control characters, at most `limit` long."""
    text = defused(text)
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain if len(plain) <= limit else f"{plain[: limit - 1]}…"
