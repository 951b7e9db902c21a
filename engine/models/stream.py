"""Folds the pieces of a stream into deltas and an answer, and watches that content keeps coming."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.canonical import clean
from engine.models.base import Answer, Delta, ModelRefused, ModelUnavailable, RawCall, Usage
from engine.models.opentext import OpenText

__all__ = ["CallPiece", "Fold", "Pace", "Piece", "paced"]

#: Characters one answer may have, calls and reasoning included; far above any model's limit.
ANSWER_LIMIT = 4_000_000
#: Calls one answer may make.
CALL_LIMIT = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds a stream may be silent. Only content counts: a keep-alive does not reset it."""

    #: Until the first token; models that think in secret need long.
    first: float = 120.0
    #: Between two tokens.
    between: float = 60.0


@dataclass(slots=True)
class CallPiece:
    """A part of a tool call; parts with the same index belong together."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class Piece:
    """What one chunk of any wire protocol said."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[CallPiece, ...] = ()
    #: 'stop', 'tool_calls', 'length', 'refusal'; empty: goes on.
    finish: str = ""
    usage: Usage | None = None
    #: What must go back to the provider as it is; later keys win.
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_content(self) -> bool:
        """Whether this shows that the model is at work."""
        return bool(self.text or self.reasoning or self.calls)


async def paced(pieces: AsyncIterator[Piece], pace: Pace, who: str) -> AsyncGenerator[Piece, None]:
    """Pass pieces on; raises ModelUnavailable when no content comes in time."""
    loop = asyncio.get_running_loop()
    allowed = pace.first
    deadline = loop.time() + allowed
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                piece = await anext(pieces)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            if loop.time() < deadline:
                raise  # not ours: the connection's own
            raise ModelUnavailable(
                f"{who} sent nothing for {allowed:g} s; the stream was cut.", "Try again."
            ) from error
        yield piece
        if piece.is_content:
            allowed = pace.between
            deadline = loop.time() + allowed


class Fold:
    """Collects one stream.

    Args:
        who: the model's id, for error texts and the answer.
        names: the name on the wire -> the tool's own name.
        open_text: set when the model may write reasoning and calls as text.
    """

    def __init__(
        self, who: str, names: Mapping[str, str], open_text: OpenText | None = None
    ) -> None:
        self._who = who
        self._names = names
        self._open = open_text
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []
        self._size = 0
        self.finish = ""
        self.usage: Usage | None = None
        self.data: dict[str, Any] = {}

    def add(self, piece: Piece) -> Delta | None:
        """Take one piece in; returns what people may see of it."""
        for part in piece.calls:
            self._add_call(part)
        self.finish = piece.finish or self.finish
        self.usage = piece.usage or self.usage
        self.data.update(piece.data)
        text, reasoning = piece.text, piece.reasoning
        if self._open is not None and text:
            text, thought = self._open.feed(text)
            reasoning += thought
        return self._show(text, reasoning)

    def end(self) -> tuple[Delta | None, Answer]:
        """Return what was held back, and the answer; raises ModelUnavailable when it is none."""
        if not self.finish:
            raise ModelUnavailable(
                f"{self._who} stopped in the middle of its answer.", "The connection broke; retry."
            )
        last, calls = None, tuple(self._raw(call) for call in self._calls)
        if self._open is not None:
            text, reasoning, salvaged = self._open.end(seek=not calls)
            last = self._show(text, reasoning)
            calls = calls or salvaged
        text, finish = "".join(self._text), self.finish
        if calls and finish == "stop":
            finish = "tool_calls"
        if not calls and not text.strip() and finish != "refusal":
            raise self._empty(finish)
        answer = Answer(
            text=clean(text),
            calls=calls,
            reasoning=clean("".join(self._reasoning)),
            finish="stop" if finish == "tool_calls" and not calls else finish,
            usage=self.usage or Usage(),
            model=self._who,
        )
        return last, answer

    def _show(self, text: str, reasoning: str) -> Delta | None:
        if not text and not reasoning:
            return None
        self._grow(len(text) + len(reasoning))
        if text:
            self._text.append(text)
        if reasoning:
            self._reasoning.append(reasoning)
        return Delta(text=clean(text), reasoning=clean(reasoning), usage=self.usage)

    def _add_call(self, part: CallPiece) -> None:
        call = next((c for c in reversed(self._calls) if c.index == part.index), None)
        # some gateways number every call 0 and tell them apart by id alone
        if call is None or (part.id and call.id and part.id != call.id and part.name):
            if len(self._calls) >= CALL_LIMIT:
                raise ModelRefused(f"{self._who} made more than {CALL_LIMIT} calls at once.")
            call = _Call(part.index)
            self._calls.append(call)
        call.id = call.id or part.id
        call.name = call.name or part.name
        call.arguments.append(part.arguments)
        self._grow(len(part.arguments))

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > ANSWER_LIMIT:
            raise ModelRefused(
                f"{self._who} wrote more than {ANSWER_LIMIT} characters; it was cut."
            )

    def _raw(self, call: _Call) -> RawCall:
        if not call.name:
            raise ModelUnavailable(f"{self._who} made a call without a name.", "Try again.")
        # a tool without parameters streams no arguments at all
        arguments = "".join(call.arguments)
        return RawCall(
            provider_id=call.id,
            name=self._names.get(call.name, call.name),
            arguments=clean(arguments) if arguments.strip() else "{}",
        )

    def _empty(self, finish: str) -> Exception:
        if finish == "length":
            return ModelRefused(
                f"{self._who} used up its whole answer on thinking.",
                "Raise max_output in the model catalogue, or choose another model.",
            )
        return ModelUnavailable(f"{self._who} gave an empty answer.", "Try again.")


class _Call:
    __slots__ = ("arguments", "id", "index", "name")

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
