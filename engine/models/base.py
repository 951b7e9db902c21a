"""The model layer's words: a request, what streams back, and how a model can fail.

ModelError
├── ModelUnavailable     rate limit, overload, network, stall: worth another try, then a fallback
├── ModelRefused         the request itself is wrong: not worth another try
│   ├── ContextTooLong   more than the window holds
│   └── KeyRejected      no key, or the provider does not take it
└── UnknownModel         the id names no provider we have
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.errors import NodError

__all__ = [
    "Answer",
    "ContextTooLong",
    "Delta",
    "KeyRejected",
    "Model",
    "ModelError",
    "ModelRefused",
    "ModelUnavailable",
    "RawCall",
    "Request",
    "UnknownModel",
    "Usage",
]

#: One message in canonical OpenAI chat shape.
Message = Mapping[str, Any]


class ModelError(NodError):
    """A model call failed."""


class ModelUnavailable(ModelError):
    """Rate limit, overload, network or stall; `retry_after` is in seconds, None when not told."""

    def __init__(self, what: str, fix: str = "", retry_after: float | None = None) -> None:
        super().__init__(what, fix)
        self.retry_after = retry_after


class ModelRefused(ModelError):
    """The provider will not take this request, however often it is sent."""


class ContextTooLong(ModelRefused):
    """The request is larger than the model's window."""


class KeyRejected(ModelRefused):
    """No key, or the provider does not accept it."""


class UnknownModel(ModelError):
    """The model id names no provider we have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one model call. `input` counts the whole prompt side, cached parts included."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One model call. `messages` is what is sent, already fitted to the model by the view."""

    model: str  # provider:model; a bare id means openai
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    #: Stable per session: lets a provider route to a warm prompt cache.
    session: str = ""
    #: Tried in order when `model` stays unavailable.
    fallbacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A piece of a streaming answer."""

    text: str = ""
    reasoning: str = ""
    #: What the provider has told of the call's usage by now; the Answer has the whole.
    usage: Usage | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawCall:
    """A tool call as the model wrote it: arguments unparsed."""

    provider_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The end of a stream: the whole answer of one model call."""

    text: str
    calls: tuple[RawCall, ...] = ()
    reasoning: str = ""
    #: 'stop', 'tool_calls', 'length' (cut off) or 'refusal'.
    finish: str = "stop"
    usage: Usage = field(default_factory=Usage)
    #: The id that answered; differs from the request's after a fallback.
    model: str = ""
    #: Goes back, byte for byte, to the provider that made it and to no other.
    provider_data: Mapping[str, Any] = field(default_factory=dict)
    #: US dollars; None: price unknown.
    cost: float | None = None
    #: Sentences people should see, for example that a fallback model answered.
    notices: tuple[str, ...] = ()


class Model(Protocol):
    """Streams one model call. Ends with exactly one Answer; raises ModelError."""

    def stream(self, request: Request) -> AsyncGenerator[Delta | Answer, None]:
        """Yield deltas, then the Answer. Closing the iterator cuts the connection at once."""
        ...
