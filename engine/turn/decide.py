"""Says what comes next in a session: a pure function of its state and the time.

The order of the questions is the order of their urgency: a stop, then answers that came in, then
the open turn, then mail that waits for the next turn.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.canonical import argument_hash, digest
from engine.events import Event, Kind
from engine.turn import state as states
from engine.turn.state import Call, Mail, Reply, State

__all__ = [
    "CallModel",
    "Judge",
    "LookUp",
    "Put",
    "Raise",
    "Release",
    "Run",
    "Step",
    "Undo",
    "Wait",
    "decide",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Append these facts; nothing else has to happen."""

    facts: tuple[Event, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Let policy judge these calls."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Raise:
    """Ask a person about these calls: what each calls for, or `kind` 'outcome' or 'connect'."""

    calls: tuple[Call, ...]
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallModel:
    """Call the model; without tools for the closing word."""

    tools: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Run these calls: several READs together, or exactly one of anything else."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp:
    """A start without a result: look whether it took effect."""

    call: Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """Restore the files the last turn changed, as `mail` asks."""

    mail: Mail


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Another worker's start may still take effect; look again at `until` (epoch seconds)."""

    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Nothing to do: give the session up as 'idle' or 'parked'."""

    state: str


#: Starts of one call that a look-up shows had no effect; after that only a person starts it again.
ATTEMPTS = 3

Step = Put | Judge | Raise | CallModel | Run | LookUp | Undo | Wait | Release


def decide(state: State, now: float, gone: Collection[str] = ()) -> Step:
    """Return the next step of a session.

    Args:
        state: the fold of its log, with its waiting mail and replies.
        now: the present moment, epoch seconds.
        gone: workers known to be dead, so that their starts can be judged at once.
    """
    stop = next((mail for mail in state.mail if mail.kind == "stop"), None)
    if stop is not None:
        return Put(facts=_enter_stop(state, stop, now))
    if state.replies:
        return Put(facts=_enter_reply(state, state.replies[0], now))
    switch = next((mail for mail in state.mail if mail.kind == "switch"), None)
    if switch is not None:
        body = {**switch.body, "by": switch.by, "mail": switch.id}
        return Put(facts=(_fact(state, Kind.SWITCHED, now, body),))
    if state.open:
        refused = [mail for mail in state.mail if mail.kind in ("undo", "retry")]
        if refused:
            return Put(facts=tuple(_refuse(state, mail, now) for mail in refused))
        return _decide_open(state, now, gone)
    return _decide_loose(state, now, gone) or _decide_mail(state, now)


# -- the open turn


def _decide_open(state: State, now: float, gone: Collection[str]) -> Step:
    if state.stopped:
        return Put(facts=_interrupt(state, now))
    if state.error:
        return Put(facts=(*_close_calls(state, now), _end(state, now, "error")))
    if not state.answered:
        return _before_model(state, now)
    if state.closing:
        return Put(facts=(_end(state, now, "max_iterations"),))
    if not state.calls:
        return _after_answer(state, now)
    return _decide_calls(state, now, gone)


def _before_model(state: State, now: float) -> Step:
    if state.held:
        return Release(state="parked") if state.parked else Put(facts=(_end(state, now, "parked"),))
    entered = _enter_messages(state, now)
    if entered:
        return Put(facts=entered)
    if state.closing and not state.told:
        return Put(facts=(_note(state, now, _CLOSING[state.closing], "closing"),))
    if not state.closing and state.repeats >= state.limits.repeats_warn and not state.warned:
        return Put(facts=(_note(state, now, _REPEATED.format(n=state.repeats), "repeat"),))
    return CallModel(tools=not state.closing)


_CLOSING = {
    "iterations": "You have reached the limit of steps for one turn.",
    "repeat": "You made the same calls with the same results again and again.",
    "failures": "Every call failed, many times in a row.",
}
_CLOSING = {
    why: f"{what} No tools are available any more. Tell the person in a few sentences what was "
    "done, what is left, and what they can do next."
    for why, what in _CLOSING.items()
}
_REPEATED = (
    "You have made the same calls {n} times in a row with the same results. Doing it again will "
    "give the same: take another way, or answer with what you have."
)


def _after_answer(state: State, now: float) -> Step:
    """The model asked for nothing: the turn ends, unless somebody spoke meanwhile."""
    if any(mail.kind in ("message", "note") for mail in state.mail):
        return Put(facts=(_iteration_end(state, now),))
    return Put(facts=(_end(state, now, "completed"),))


def _decide_calls(state: State, now: float, gone: Collection[str]) -> Step:
    faulty = tuple(c for c in state.calls if c.fault and not c.done)
    if faulty:
        facts = tuple(_finish(state, c, now, "error", _error(c.fault)) for c in faulty)
        return Put(facts=facts)
    unjudged = tuple(c for c in state.calls if c.status == "proposed")
    if unjudged:
        return Judge(calls=unjudged)
    unasked = tuple(c for c in state.calls if c.status == "waiting" and not c.prompt)
    if unasked:
        return Raise(calls=unasked)
    unconnected = tuple(c for c in state.calls if c.found == "refused" and not c.connect_prompt)
    if unconnected:
        return Raise(calls=unconnected, kind="connect")
    for place, call in enumerate(state.calls):
        if not call.done:
            return _decide_call(state, place, call, now, gone)
    return Put(facts=(_iteration_end(state, now),))


def _decide_call(state: State, place: int, call: Call, now: float, gone: Collection[str]) -> Step:
    if call.status == "waiting" or call.found == "refused":
        return Release(state="parked") if state.parked else Put(facts=(_end(state, now, "parked"),))
    if call.status == "denied":
        return Put(facts=(_finish(state, call, now, "denied", _denial(call)),))
    if call.found == "unconnected":
        text = _UNCONNECTED.format(**(call.lacks or {}))
        return Put(facts=(_finish(state, call, now, "error", _error(text)),))
    if call.asks:
        return Run(calls=(call,))  # the answer is its result
    if call.status in ("started", "unknown") and not call.harmless:
        return _decide_unknown(state, call, now, gone)
    if call.risk != "read":
        return Run(calls=(call,))
    together = [call]
    for other in state.calls[place + 1 :]:
        ready = other.status in _MAY_RUN and other.found not in _CONNECTION
        if other.done or other.risk != "read" or not ready:
            break
        together.append(other)
    return Run(calls=tuple(together))


#: States of a READ that may run beside others; 'unknown' after its connection was made.
_MAY_RUN = frozenset({"allowed", "started", "unknown"})
#: What is found of a call that waits for a connection, or will get none.
_CONNECTION = frozenset({"refused", "unconnected"})
_UNCONNECTED = (
    "{title} is not connected, and the person did not connect it. Nothing was done. Go on "
    "without it, and say what that leaves open."
)


def _decide_unknown(
    state: State, call: Call, now: float, gone: Collection[str], *, loose: bool = False
) -> Step:
    """A call with consequences was started and has no result. It is never simply repeated."""
    if call.status == "started" or call.found == "":
        start = call.start
        over = 0.0 if start is None else start.act_by + start.limit
        if start is not None and start.worker not in gone and now < over:
            return Wait(until=over)
        return LookUp(call=call)
    asked = call.outcome_prompt or call.connect_prompt
    if call.found == "did_not" and not loose and (call.attempts < ATTEMPTS or asked):
        return Run(calls=(call,))
    if call.found == "cannot_tell":
        if not call.outcome_prompt:
            return Raise(calls=(call,), kind="outcome")
        if loose:
            return Release(state="idle")
        return Release(state="parked") if state.parked else Put(facts=(_end(state, now, "parked"),))
    known = "looked_up" if call.found == "happened" and not call.outcome_prompt else call.found
    text = _OUTCOME[known].format(name=call.name)
    if loose:
        return Put(facts=(_note(state, now, text, "outcome", call=call.id),))
    status = {"happened": "ok", "leave": "error", "did_not": "error"}.get(call.found, "unknown")
    return Put(facts=(_finish(state, call, now, status, text),))


_OUTCOME = {
    "looked_up": "A look-up shows that {name} took effect. What it returned is lost.",
    "happened": "A person confirmed that {name} took effect. What it returned is lost.",
    "did_not": "{name} did not take effect.",
    "leave": "{name} did not take effect, and a person decided to leave it so.",
    "unknowable": (
        "Nobody knows whether {name} took effect. Treat it as done, do not repeat it, and say so."
    ),
}


# -- outside a turn


def _decide_loose(state: State, now: float, gone: Collection[str]) -> Step | None:
    for call in state.loose:
        step = _decide_unknown(state, call, now, gone, loose=True)
        if not isinstance(step, Release):
            return step
    return None


def _decide_mail(state: State, now: float) -> Step:
    notes = [mail for mail in state.mail if mail.kind == "note"]
    if notes:
        return Put(facts=tuple(_enter(state, mail, now) for mail in notes))
    for mail in state.mail:
        if mail.kind == "undo":
            return Undo(mail=mail)
    starters = [m for m in state.mail if m.kind in ("message", "retry", "fire", "wake")]
    return Put(facts=_open(state, starters, now)) if starters else Release(state="idle")


def _open(state: State, starters: list[Mail], now: float) -> tuple[Event, ...]:
    """Open a turn: people's messages together; a fire or a wake is a turn of its own."""
    first = starters[0]
    chosen = [m for m in starters if m.kind == "message"] if first.kind == "message" else [first]
    started = states.State(
        session=state.session, turn=state.turn + 1, iteration=1, limits=state.limits
    )
    body = {
        "by": first.by,
        "attended": first.kind in ("message", "retry"),
        "cause": first.kind,
        "loose": [states.carried(call) for call in state.loose],
    }
    start = _fact(started, Kind.TURN_START, now, body)
    return (start, *(_enter(started, mail, now) for mail in chosen))


def _enter_messages(state: State, now: float) -> tuple[Event, ...]:
    """Steering: what people said meanwhile enters between iterations."""
    said = [mail for mail in state.mail if mail.kind in ("message", "note")]
    return tuple(_enter(state, mail, now) for mail in said)


def _refuse(state: State, mail: Mail, now: float) -> Event:
    text = f"There is a turn at work, so {mail.kind} is refused. Stop it first, or wait."
    return _fact(state, Kind.NOTICE, now, {"text": text, "mail": mail.id})


def _enter(state: State, mail: Mail, now: float) -> Event:
    body = {
        "message": mail.body["message"],
        "source": mail.body.get("source", {}),
        "cause": mail.kind,
        "by": mail.by,
        "mail": mail.id,
    }
    return _fact(state, Kind.MESSAGE, now, body)


# -- stop


def _enter_stop(state: State, stop: Mail, now: float) -> tuple[Event, ...]:
    """A stop enters with every message older than itself; none of them starts a turn."""
    older = [m for m in state.mail if m.id < stop.id and m.kind in _HELD]
    body = {"by": stop.by, "mail": stop.id, "reason": stop.body.get("reason", "stopped")}
    return (
        *(_enter_silently(state, mail, now) for mail in older),
        _fact(state, Kind.STOPPED, now, body),
    )


#: Mail that a later stop keeps from starting a turn.
_HELD = frozenset({"message", "note", "retry", "fire", "wake"})


def _enter_silently(state: State, mail: Mail, now: float) -> Event:
    entered = _enter(state, mail, now)
    return replace(entered, body={**entered.body, "held": True})


def _interrupt(state: State, now: float) -> tuple[Event, ...]:
    """Every call gets a result; one that may have happened is followed up outside the turn."""
    body = {"iterations": state.iteration, "by": state.stopped}
    if state.stop_reason:
        body["reason"] = state.stop_reason
    return (
        *_close_calls(state, now),
        _fact(state, Kind.INTERRUPTED, now, body),
        _end(state, now, "interrupted"),
    )


def _close_calls(state: State, now: float) -> tuple[Event, ...]:
    """Give every call without a result one that says what is known of it."""
    facts = []
    for call in state.calls:
        if call.done:
            continue
        if call.outcome_prompt:
            text = _OUTCOME["unknowable"].format(name=call.name)
            facts.append(_finish(state, call, now, "unknown", text))
        elif call.status in ("started", "unknown") and not (call.harmless or call.lacks):
            text = _error("stopped while running; it may have happened")
            facts.append(_finish(state, call, now, "unknown", text, loose=True))
        else:
            facts.append(_finish(state, call, now, "interrupted", _error("stopped before it ran")))
    return tuple(facts)


# -- answers


def _enter_reply(state: State, reply: Reply, now: float) -> tuple[Event, ...]:
    call = state.call(reply.call)
    decided = _fact(state, Kind.DECIDED, now, _decided_body(reply), call=reply.call)
    edited = reply.answer["kind"] == "edit" and call is not None and call.hash == reply.hash
    if not edited or call is None:
        return (decided,)
    arguments: Mapping[str, Any] = reply.answer["arguments"]
    body: dict[str, Any] = {
        "arguments": arguments,
        "hash": argument_hash(call.name, arguments),
        "before": call.arguments,
    }
    if reply.needs > 1:
        body["again"] = True  # one person's word: what they made of it needs all its votes
    return (decided, _fact(state, Kind.EDITED, now, body, call=call.id))


def _decided_body(reply: Reply) -> dict[str, Any]:
    return {
        "prompt": reply.prompt,
        "kind": reply.kind,
        "answer": reply.answer,
        "hash": reply.hash,
        "by": reply.by,
        "surface": reply.surface,
        "at": reply.at,
    }


# -- facts


def _iteration_end(state: State, now: float) -> Event:
    calls = [f"{call.hash}:{call.result}" for call in state.calls]
    signature = digest("\n".join(calls))[:16] if calls else ""
    return _fact(
        state,
        Kind.ITERATION_END,
        now,
        {"signature": signature, "closing": _closing(state, signature)},
    )


def _closing(state: State, signature: str) -> str:
    same = bool(signature) and signature == state.signature
    failed = bool(state.calls) and all(call.status == "failed" for call in state.calls)
    if same and state.repeats + 1 >= state.limits.repeats_end:
        return "repeat"
    if failed and state.failures + 1 >= state.limits.failures_end:
        return "failures"
    return "iterations" if state.iteration >= state.limits.iterations else ""


def _end(state: State, now: float, status: str) -> Event:
    body = {"status": status, "iterations": state.iteration, "reason": state.closing}
    return _fact(state, Kind.TURN_END, now, body)


def _finish(
    state: State, call: Call, now: float, status: str, content: str, *, loose: bool = False
) -> Event:
    body: dict[str, Any] = {"name": call.name, "status": status, "content": content}
    if loose:
        body["loose"] = True
    return _fact(state, Kind.TOOL_FINISHED, now, body, call=call.id)


def _denial(call: Call) -> str:
    """What the model reads of a refusal: by policy, by a person, or by silence."""
    decision, verdict = call.decision, call.verdict or {}
    if decision is None or verdict.get("answer") == "refuse":
        return _error(f"refused: {verdict.get('reason', '')}")
    answer = decision["answer"]
    if answer.get("silence"):
        return _error(
            "denied: no answer came in time. Do not do this another way; a substitute needs a "
            "nod of its own."
        )
    reason = answer.get("reason", "")
    if not reason:
        return _error(f"denied by {decision['by']}. Do not do this another way.")
    return _error(f"denied by {decision['by']}, who says instead: {reason}")


def _error(text: str) -> str:
    return f"Error: {text}"


def _note(state: State, now: float, text: str, cause: str, call: str | None = None) -> Event:
    """A word of the runtime to the model; only the runtime can write this form."""
    message = {"role": "user", "content": f"<nod-note>{text}</nod-note>"}
    body = {"message": message, "cause": cause, "by": "nod", "mail": None}
    return _fact(state, Kind.MESSAGE, now, body, call=call)


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
