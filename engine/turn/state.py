"""The open turn's facts as one frozen value, and `apply`, which adds one fact to it. No I/O.

A call's states:

    proposed ─► allowed | denied | waiting ─► started ─► finished | failed | unknown
                                                 ▲                            │
                                                 └── attempt n + 1 ───────────┘

`done` is another matter: the call has its result, so the model may be called once all are done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeVar

from engine.canonical import digest
from engine.events import Event, Kind

__all__ = ["Call", "Limits", "Mail", "Reply", "Start", "State", "apply", "fold"]

#: Risks whose calls change nothing outside, so running one again is safe.
HARMLESS = frozenset({"read", "control"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a turn that goes on and on is ended, in iterations."""

    iterations: int = 150
    #: Equal iterations in a row (same calls, same results): a word to the model, then the end.
    repeats_warn: int = 3
    repeats_end: int = 5
    #: Iterations in a row in which every call failed.
    failures_end: int = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """One mailbox row that has not entered the log."""

    id: int
    #: message, stop, retry, undo, switch, note, fire, wake
    kind: str
    by: str
    at: float
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A prompt that was resolved and whose answer has not entered the log."""

    prompt: str
    kind: str
    call: str | None
    hash: str
    #: Votes a yes needs.
    needs: int = 1
    answer: Mapping[str, Any]
    by: str
    surface: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A committed intent: who started the call, and until when its fate is open."""

    worker: str
    attempt: int
    #: No first byte leaves after this; the effect is over `limit` seconds later.
    act_by: float
    limit: float
    witness: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One proposed call and everything the log says of it."""

    id: str
    turn: int
    iteration: int
    #: Order within the iteration, from 0.
    place: int
    name: str
    arguments: Mapping[str, Any]
    hash: str
    risk: str
    #: 'question' or 'plan' when the call is a prompt; its answer is its result.
    asks: str = ""
    #: Why it cannot run as the model wrote it; empty: it can.
    fault: str = ""
    #: Edits by a person so far; part of the approval's subject.
    revision: int = 0
    status: str = "proposed"
    verdict: Mapping[str, Any] | None = None
    #: The open or last prompt of this call, and when it was raised.
    prompt: str = ""
    asked_at: float | None = None
    decision: Mapping[str, Any] | None = None
    attempts: int = 0
    start: Start | None = None
    started_at: float | None = None
    finished_at: float | None = None
    #: What is known of a start without a result: '' (not looked yet), happened, did_not, leave
    #: (did not, and shall not), cannot_tell (a person is asked), unknowable (nobody knows),
    #: refused (for want of a connection; a person is asked), unconnected (and will not be).
    found: str = ""
    outcome_prompt: str = ""
    #: The connection a refused start lacked: {connector, account, why, person,
    #: title}; then its prompt.
    lacks: Mapping[str, Any] | None = None
    connect_prompt: str = ""
    done: bool = False
    result: str = ""  # digest of the result, for the repeat detector

    @property
    def harmless(self) -> bool:
        """True when running it again changes nothing."""
        return self.risk in HARMLESS

    @property
    def decided(self) -> bool:
        """True when a person's yes stands for exactly these arguments."""
        yes = self.decision is not None and self.decision["answer"]["kind"] in _YES
        return yes and self.decision is not None and self.decision["hash"] == self.hash


_YES = frozenset({"once", "always", "edit", "answer", "approve"})


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What deciding looks at. Everything but `mail` and `replies` is a fold over the log."""

    session: str
    limits: Limits = field(default_factory=Limits)
    turn: int = 0
    open: bool = False
    parked: bool = False
    attended: bool = True
    iteration: int = 0
    #: The model has answered in this iteration.
    answered: bool = False
    calls: tuple[Call, ...] = ()
    #: Why the turn is being brought to its end: '', iterations, repeat, failures, budget.
    closing: str = ""
    #: The tool-less closing call was told about.
    told: bool = False
    error: str = ""
    stopped: str = ""  # who stopped the open turn
    stop_reason: str = ""  # why, unless simply stopped
    held: str = ""  # the open prompt that asks whether more may be spent
    repeats: int = 0
    failures: int = 0
    signature: str = ""
    warned: bool = False
    #: Calls of ended turns whose outcome is not known yet.
    loose: tuple[Call, ...] = ()
    mail: tuple[Mail, ...] = ()
    replies: tuple[Reply, ...] = ()

    def call(self, call_id: str | None) -> Call | None:
        """Return the call of that id, in the open iteration or loose, or None."""
        for each in (*self.calls, *self.loose):
            if each.id == call_id:
                return each
        return None


V = TypeVar("V", State, Call)

#: Of each class: what reads all its fields, and what writes each.
_FIELDS = {
    cls: (attrgetter(*cls.__slots__), [getattr(cls, name).__set__ for name in cls.__slots__])
    for cls in (State, Call)
}


def _changed(value: V, **fields: Any) -> V:
    """Return `dataclasses.replace(value, **fields)`, at a third of its cost: every fact needs it.

    Raises AttributeError when there is no such field.
    """
    cls = type(value)
    read, writers = _FIELDS[cls]
    copy = object.__new__(cls)
    for write, held in zip(writers, read(value), strict=True):
        write(copy, held)
    for name, new in fields.items():
        object.__setattr__(copy, name, new)
    return copy


def fold(state: State, facts: Iterable[Event]) -> State:
    """Apply every fact in order."""
    for fact in facts:
        state = apply(state, fact)
    return state


def apply(state: State, fact: Event) -> State:
    """Return the state after `fact`. Facts that deciding does not look at change nothing."""
    change = _APPLY.get(fact.kind)
    return state if change is None else change(state, fact)


def _turn_start(state: State, fact: Event) -> State:
    carried = tuple(_call_from(each) for each in fact.body.get("loose", ()))
    return State(
        session=state.session,
        limits=state.limits,
        turn=fact.turn,
        open=True,
        iteration=1,
        attended=bool(fact.body.get("attended", True)),
        loose=carried,
        mail=state.mail,
        replies=state.replies,
    )


def _message(state: State, fact: Event) -> State:
    told = state.told or fact.body.get("cause") == "closing"
    warned = state.warned or fact.body.get("cause") == "repeat"
    mail = _without_mail(state, fact.body.get("mail"))
    loose = state.loose
    if fact.body.get("cause") == "outcome":
        loose = tuple(call for call in loose if call.id != fact.call)
    return _changed(state, mail=mail, told=told, warned=warned, loose=loose)


def _assistant_message(state: State, fact: Event) -> State:
    return _changed(state, answered=True)


def _tool_proposed(state: State, fact: Event) -> State:
    body = fact.body
    call = Call(
        id=fact.call or "",
        turn=fact.turn,
        iteration=fact.iteration,
        place=body["place"],
        name=body["name"],
        arguments=body["arguments"],
        hash=body["hash"],
        risk=body["risk"],
        asks=body.get("asks", ""),
        fault=body.get("fault", ""),
    )
    return _changed(state, calls=(*state.calls, call))


def _verdict(state: State, fact: Event) -> State:
    answer = fact.body["answer"]

    def change(call: Call) -> Call:
        if answer == "refuse":
            return _changed(call, verdict=fact.body, status="denied")
        allowed = not call.asks and (answer == "allow" or call.decided)
        return _changed(call, verdict=fact.body, status="allowed" if allowed else "waiting")

    return _with_call(state, fact.call, change)


def _prompt_raised(state: State, fact: Event) -> State:
    prompt = fact.body["prompt"]
    if prompt["kind"] == "grant":  # the only one a turn raises: to spend more
        return _changed(state, held=prompt["id"])

    def change(call: Call) -> Call:
        if prompt["kind"] == "outcome":
            return _changed(call, outcome_prompt=prompt["id"])
        if prompt["kind"] == "connect":
            return _changed(call, connect_prompt=prompt["id"])
        return _changed(call, prompt=prompt["id"], asked_at=fact.at, status="waiting")

    return _with_call(state, fact.call, change)


def _decided(state: State, fact: Event) -> State:
    body = fact.body
    replies = tuple(r for r in state.replies if r.prompt != body["prompt"])

    def change(call: Call) -> Call:
        if body["kind"] == "outcome":
            found = {"run": "did_not", "leave": "leave", "happened": "happened"}
            return _changed(call, found=found.get(body["answer"]["kind"], "unknowable"))
        if body["kind"] == "connect":
            done = body["answer"]["kind"] == "done"
            return _changed(call, found="did_not" if done else "unconnected")
        if body["hash"] != call.hash:
            return call
        yes = body["answer"]["kind"] in _YES
        return _changed(call, decision=body, status="allowed" if yes else "denied")

    if body["prompt"] == state.held:
        stopped = "" if body["answer"]["kind"] in _YES else body["by"]
        return _changed(state, replies=replies, parked=False, held="", stopped=stopped)
    return _changed(_with_call(state, fact.call, change), replies=replies, parked=False)


def _edited(state: State, fact: Event) -> State:
    def change(call: Call) -> Call:
        decision, prompt = call.decision, call.prompt
        if fact.body.get("again"):
            decision, prompt = None, ""
        elif decision is not None:
            decision = {**decision, "hash": fact.body["hash"]}
        return _changed(
            call,
            prompt=prompt,
            arguments=fact.body["arguments"],
            hash=fact.body["hash"],
            revision=call.revision + 1,
            verdict=None,
            decision=decision,
            status="proposed",
        )

    return _with_call(state, fact.call, change)


def _tool_started(state: State, fact: Event) -> State:
    body = fact.body
    start = Start(
        worker=body["worker"],
        attempt=body["attempt"],
        act_by=body["act_by"],
        limit=body["limit"],
        witness=body.get("witness"),
    )

    def change(call: Call) -> Call:
        return _changed(
            call,
            status="started",
            attempts=body["attempt"],
            start=start,
            started_at=fact.at,
            found="",
            outcome_prompt="",
            lacks=None,
            connect_prompt="",
        )

    return _with_call(state, fact.call, change)


def _unknown(state: State, fact: Event) -> State:
    body = fact.body

    def change(call: Call) -> Call:
        return _changed(call, status="unknown", found=body["found"], lacks=body.get("lacks"))

    return _with_call(state, fact.call, change)


def _tool_finished(state: State, fact: Event) -> State:
    status = fact.body["status"]
    mark = digest(f"{status}\n{fact.body['content']}")[:16]

    def change(call: Call) -> Call:
        ended = {"status": _STATUS[status], "finished_at": fact.at}
        return _changed(call, done=True, result=mark, **ended)

    changed = _with_call(state, fact.call, change)
    if not fact.body.get("loose"):
        return changed
    call = state.call(fact.call)
    kept = () if call is None else (_changed(call, status="unknown", found=""),)
    return _changed(changed, loose=(*changed.loose, *kept))


#: What a TOOL_FINISHED says -> the call's state.
_STATUS = {
    "ok": "finished",
    "error": "failed",
    "denied": "denied",
    "interrupted": "failed",
    "unknown": "unknown",
}


def _iteration_end(state: State, fact: Event) -> State:
    signature = fact.body["signature"]
    same = bool(signature) and signature == state.signature
    failed = bool(state.calls) and all(call.status == "failed" for call in state.calls)
    return _changed(
        state,
        iteration=state.iteration + 1,
        answered=False,
        calls=(),
        signature=signature,
        repeats=state.repeats + 1 if same else 1,
        warned=state.warned and same,
        failures=state.failures + 1 if failed else 0,
        closing=fact.body.get("closing", ""),
    )


def _turn_end(state: State, fact: Event) -> State:
    if fact.body["status"] == "parked":
        return _changed(state, parked=True)
    return _changed(
        state,
        open=False,
        parked=False,
        calls=(),
        answered=False,
        error="",
        stopped="",
        stop_reason="",
        held="",
    )


def _error(state: State, fact: Event) -> State:
    closing = "budget" if fact.body.get("error_type") == "BudgetSpent" else state.closing
    return _changed(state, error=fact.body["text"], closing=closing)


def _stopped(state: State, fact: Event) -> State:
    loose = tuple(_changed(c, found="unknowable") if c.outcome_prompt else c for c in state.loose)
    reason = fact.body.get("reason", "stopped")
    return _changed(
        state,
        loose=loose,
        mail=_without_mail(state, fact.body.get("mail")),
        stop_reason=reason if state.open and reason != "stopped" else "",
        stopped=(fact.body["by"] or "nod") if state.open else "",
        parked=False,
        held="",
    )


def _entered(state: State, fact: Event) -> State:
    return _changed(state, mail=_without_mail(state, fact.body.get("mail")))


def _without_mail(state: State, mail_id: int | None) -> tuple[Mail, ...]:
    if mail_id is None or not state.mail:
        return state.mail
    return tuple(mail for mail in state.mail if mail.id != mail_id)


def _with_call(state: State, call_id: str | None, change: Callable[[Call], Call]) -> State:
    if any(call.id == call_id for call in state.calls):
        calls = tuple(change(call) if call.id == call_id else call for call in state.calls)
        return _changed(state, calls=calls)
    if any(call.id == call_id for call in state.loose):
        loose = tuple(change(call) if call.id == call_id else call for call in state.loose)
        return _changed(state, loose=loose)
    return state


def carried(call: Call) -> dict[str, Any]:
    """Return a loose call as JSON, for the TURN_START that carries it on."""
    fields = {name: getattr(call, name) for name in Call.__slots__ if name != "start"}
    start = None if call.start is None else {n: getattr(call.start, n) for n in Start.__slots__}
    return {**fields, "start": start}


def _call_from(data: Mapping[str, Any]) -> Call:
    start = data.get("start")
    return Call(**{**data, "start": None if start is None else Start(**start)})


_APPLY: Mapping[Kind, Callable[[State, Event], State]] = {
    Kind.TURN_START: _turn_start,
    Kind.MESSAGE: _message,
    Kind.ASSISTANT_MESSAGE: _assistant_message,
    Kind.TOOL_PROPOSED: _tool_proposed,
    Kind.VERDICT: _verdict,
    Kind.PERMISSION_REQUIRED: _prompt_raised,
    Kind.QUESTION_REQUESTED: _prompt_raised,
    Kind.PLAN_PROPOSED: _prompt_raised,
    Kind.DECIDED: _decided,
    Kind.EDITED: _edited,
    Kind.TOOL_STARTED: _tool_started,
    Kind.UNKNOWN: _unknown,
    Kind.TOOL_FINISHED: _tool_finished,
    Kind.ITERATION_END: _iteration_end,
    Kind.TURN_END: _turn_end,
    Kind.ERROR: _error,
    Kind.STOPPED: _stopped,
    Kind.SWITCHED: _entered,
    Kind.NOTICE: _entered,
}
