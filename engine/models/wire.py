"""What the wire protocols share: who speaks when, ids of calls, arguments, data URLs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.canonical import digest
from engine.models.base import Message
from engine.models.catalogue import Entry

__all__ = [
    "ANSWER_TOKENS",
    "CallIds",
    "Options",
    "alternating",
    "arguments_object",
    "data_url",
    "max_tokens",
]

#: The most tokens one answer is given; more only lengthens a runaway.
ANSWER_TOKENS = 32_000

_ACCEPTED = {
    "any": re.compile(r"[A-Za-z0-9_-]{1,40}"),  # OpenAI: at most 40; Anthropic: these letters
    "9": re.compile(r"[A-Za-z0-9]{9}"),  # Mistral: exactly nine
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a call says beside its messages and tools."""

    entry: Entry
    session: str = ""
    #: Parameters this endpoint refused before.
    without: frozenset[str] = field(default_factory=frozenset)


class CallIds:
    """Maps our call ids to ids a provider accepts, for one request.

    The provider's own id comes back to it; another provider's call gets one derived from ours,
    which is the same each time. An id is used once a request, since providers repeat theirs.
    """

    def __init__(self, entry: Entry) -> None:
        self._provider = entry.provider.name
        self._style = entry.provider.call_ids
        self._given: dict[str, str] = {}
        self._used: set[str] = set()

    def call(self, call: Mapping[str, Any], message: Message) -> str:
        """Return the wire id of a call in an assistant message."""
        ours, theirs = call["id"], call.get("provider_id") or ""
        own = (message.get("model") or "").partition(":")[0] == self._provider
        if own and theirs not in self._used and _ACCEPTED[self._style].fullmatch(theirs):
            made = theirs
        else:
            made = self._derived(ours)
        self._used.add(made)
        self._given[ours] = made
        return made

    def result(self, ours: str) -> str:
        """Return the wire id a tool result answers."""
        return self._given.get(ours) or self._derived(ours)

    def _derived(self, ours: str) -> str:
        return digest(ours)[:9] if self._style == "9" else f"call_{digest(ours)[:24]}"


def arguments_object(text: str) -> dict[str, Any]:
    """Return a call's arguments as an object; what is none is wrapped."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"value": value}


def data_url(url: str) -> tuple[str, str]:
    """Return (media type, base64) of a data URL."""
    head, _, data = url.partition(",")
    return head.removeprefix("data:").partition(";")[0].lower(), data


def max_tokens(entry: Entry) -> int | None:
    """Return the limit of an answer in tokens, or None to leave it to the provider."""
    return min(entry.max_output, ANSWER_TOKENS) if entry.max_output else None


def alternating(messages: Sequence[Message]) -> list[Message]:
    """Return `messages` with neighbouring user messages joined, and one before the first answer."""
    made: list[Message] = []
    for message in messages:
        last = made[-1]["role"] if made else "system"
        role = message["role"]
        if role == last == "user":
            made[-1] = {"role": "user", "content": _join(made[-1]["content"], message["content"])}
            continue
        if last == "system" and role in ("assistant", "tool"):
            made.append({"role": "user", "content": "(continued)"})
        made.append(message)
    return made


def _join(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
