"""What the fake provider is told, what it remembers, and checks all its protocols share."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Broken", "Reply", "Service", "check_schema", "demand", "sse"]

NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


class Broken(Exception):
    """The request is malformed; the text is the service's."""


@dataclass
class Reply:
    """One answer, or one failure."""

    text: str = ""
    reasoning: str = ""
    #: (name, arguments as JSON text) of each call, made at once.
    calls: tuple[tuple[str, str], ...] = ()
    finish: str = ""
    input: int = 100
    output: int = 20
    cached: int = 40
    status: int = 200
    said: str = "No."
    headers: Mapping[str, str] = field(default_factory=dict)
    #: stall, ping (alive but silent), cut, truncate, malformed, error: after `after` events.
    fault: str = ""
    after: int = 2


@dataclass
class Service:
    """What kind of service this is, and what it has handed out."""

    #: Whether a key is needed.
    keyed: bool = True
    #: Whether images and PDFs are taken.
    vision: bool = True
    pdf: bool = True
    #: Whether reasoning must come back with its calls (DeepSeek's rule).
    reasons: bool = False
    #: Pattern of call ids the service takes.
    ids: str = r"[a-zA-Z0-9_-]{1,40}"
    #: Whether a user message may stand right after a tool result.
    user_after_tool: bool = True
    #: Parameters it has never heard of.
    unknown: frozenset[str] = frozenset()
    #: Whether it tells the usage.
    tells_usage: bool = True
    models: tuple[str, ...] = ()
    #: Signature -> what it signs; reasoning by call id.
    signed: dict[str, str] = field(default_factory=dict)
    counter: int = 0

    def next(self, prefix: str) -> str:
        """Return a new id."""
        self.counter += 1
        return f"{prefix}{self.counter}"


def demand(condition: object, said: str) -> None:
    """Refuse the request unless the condition holds."""
    if not condition:
        raise Broken(said)


def check_schema(schema: Any) -> None:
    """Refuse references and anything that is no object at the top."""
    demand(isinstance(schema, dict) and schema.get("type") == "object", "schema must be an object")
    demand("$ref" not in json.dumps(schema), "unresolved $ref in schema")


def sse(value: Any, event: str = "") -> bytes:
    """Return one server-sent event."""
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()


def pieces(text: str, size: int = 7) -> list[str]:
    """Cut text as a stream would."""
    return [text[at : at + size] for at in range(0, len(text), size)]
