"""Turns a model's answer into facts: our own call ids, parsed arguments, faults said plainly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.canonical import argument_hash, clean, dumps
from engine.errors import ToolError
from engine.events import Event, Kind
from engine.models.base import Answer, Delta, RawCall, Usage
from engine.sessions import Session
from engine.tools.schema import parse_arguments
from engine.turn.ports import Engine
from engine.turn.state import Call, State

__all__ = ["CALLS_LIMIT", "Pieces", "as_run", "call_id", "facts", "partial"]

#: Calls one answer may make; the rest are answered with a fault.
CALLS_LIMIT = 64

#: Hours after which an approval is late, and the model is told.
LATE = 1.0


@dataclass(slots=True)
class Pieces:
    """What has streamed so far; kept when the stream is cut."""

    text: str = ""
    reasoning: str = ""
    #: What the provider has told of the call's usage so far.
    usage: Usage | None = None

    def add(self, delta: Delta) -> None:
        """Take in a delta."""
        self.usage = delta.usage or self.usage
        self.text += delta.text
        self.reasoning += delta.reasoning


def call_id(session: str, turn: int, iteration: int, place: int) -> str:
    """Return our id of a call: unique for good, whatever the provider called it."""
    return f"{session}-{turn}-{iteration}-{place}"


def facts(
    engine: Engine, session: Session, state: State, answer: Answer, *, tools: bool
) -> list[Event]:
    """Return the facts of a whole answer. Without tools on offer, calls are ignored."""
    now = engine.now()
    calls = answer.calls if tools else ()
    read = [
        _Read.of(engine, session, state, place, raw, answer.finish)
        for place, raw in enumerate(calls)
    ]
    body = {
        "message": _message(answer, read),
        "finish": answer.finish,
        "model": answer.model,
        "usage": {
            "input": answer.usage.input,
            "output": answer.usage.output,
            "cache_read": answer.usage.cache_read,
            "cache_write": answer.usage.cache_write,
        },
        "cost": answer.cost,
        "purpose": "closing" if state.closing else "turn",
    }
    made = [_fact(state, Kind.ASSISTANT_MESSAGE, now, body)]
    made += [_fact(state, Kind.TOOL_PROPOSED, now, each.body, each.id) for each in read]
    made += [_fact(state, Kind.NOTICE, now, {"text": text}) for text in answer.notices]
    return made


def partial(state: State, pieces: Pieces, now: float, finish: str) -> list[Event]:
    """Return the fact of an answer that was cut: what was shown is kept, without calls."""
    message: dict[str, Any] = {"role": "assistant", "content": clean(pieces.text)}
    if pieces.reasoning:
        message["reasoning"] = clean(pieces.reasoning)
    return [_fact(state, Kind.ASSISTANT_MESSAGE, now, {"message": message, "finish": finish})]


def as_run(call: Call) -> str:
    """Return the lines that tell the model what a person made of the call, and how late."""
    told = ""
    if call.decided and call.decision is not None and call.asked_at is not None and not call.asks:
        hours = (call.decision["at"] - call.asked_at) / 3600
        if hours >= LATE:
            told = f"[It waited {hours:.0f} hours for a nod. What it rests on may have changed.]\n"
    if call.revision:
        told += f"[The arguments were changed by a person. What ran: {dumps(call.arguments)}]\n"
    return told


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """A call as we read it."""

    id: str
    provider_id: str
    body: Mapping[str, Any]

    @classmethod
    def of(
        cls, engine: Engine, session: Session, state: State, place: int, raw: RawCall, finish: str
    ) -> _Read:
        arguments, fault = _arguments(engine, raw, finish, place)
        declared = engine.tools.get(raw.name)
        body = {
            "place": place,
            "name": raw.name,
            "arguments": arguments,
            "hash": argument_hash(raw.name, arguments),
            "risk": declared.risk.value if declared else "unknown",
            "asks": declared.asks if declared else "",
            "fault": fault,
        }
        made = call_id(session.id, state.turn, state.iteration, place)
        return cls(id=made, provider_id=raw.provider_id, body=body)


def _arguments(
    engine: Engine, raw: RawCall, finish: str, place: int
) -> tuple[Mapping[str, Any], str]:
    """Return what can be run, or nothing and the fault; cut or broken text is never repaired."""
    if place >= CALLS_LIMIT:
        return {}, f"Only {CALLS_LIMIT} calls are taken at once. Make the rest in the next step."
    arguments, fault = parse_arguments(raw.arguments, finish)
    declared = engine.tools.get(raw.name)
    if arguments is None or declared is None:
        return arguments or {}, fault
    try:
        return declared.check(arguments), ""
    except ToolError as error:
        return arguments, str(error)


def _message(answer: Answer, read: Sequence[_Read]) -> dict[str, Any]:
    text = clean(answer.text)
    message: dict[str, Any] = {"role": "assistant", "content": text if text.strip() else None}
    if answer.reasoning:
        message["reasoning"] = clean(answer.reasoning)
    if answer.provider_data:
        message["provider_data"] = dict(answer.provider_data)
    if answer.model:
        message["model"] = answer.model
    if read:
        message["tool_calls"] = [
            {
                "id": each.id,
                "type": "function",
                "provider_id": each.provider_id,
                "function": {
                    "name": clean(each.body["name"]),
                    "arguments": dumps(each.body["arguments"]),
                },
            }
            for each in read
        ]
    return message


def _fact(
    state: State, kind: Kind, now: float, body: Mapping[str, Any], call: str | None = None
) -> Event:
    return Event(
        session=state.session,
        kind=kind,
        turn=state.turn,
        iteration=state.iteration,
        call=call,
        at=now,
        body=body,
    )
