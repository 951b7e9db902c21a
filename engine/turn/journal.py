"""The transactions of a worker: take a session, commit what happened in it, give it up.

One call of `commit` is one transaction. It is conditional on the session's epoch, so a worker that
lost the session writes nothing; an intent is conditional on the stop mark, so nothing starts after
a stop was accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine import budgets, inbox
from engine.canonical import dumps, loads
from engine.errors import Fenced
from engine.events import Event, Kind
from engine.permissions import rules
from engine.schedule import runs
from engine.sessions import Session, session_from
from engine.store.base import Row, Tx
from engine.turn.project import project
from engine.turn.state import Call, Limits, Mail, Reply, State, fold

__all__ = [
    "Batch",
    "Committed",
    "RightsLost",
    "RuleSpent",
    "StopSeen",
    "Taken",
    "commit",
    "event_from",
    "look",
    "take",
]


class StopSeen(Exception):
    """A stop was accepted after the worker last looked; its intent was not written."""


class RuleSpent(Exception):
    """The standing rule that allowed the call has run out or was revoked."""


class RightsLost(Exception):
    """The person who allowed the call may not do so any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A session this worker may now advance."""

    session: Session
    state: State
    #: `wanted` as of this transaction; given back at release.
    noted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one commit writes."""

    facts: Sequence[Event]
    #: The calls the facts touched, as they are after them.
    calls: Sequence[Call]
    #: Give the session up as 'idle' or 'parked'; empty: keep it.
    release: str = ""
    #: The call with consequences whose intent is among the facts.
    intent: Call | None = None
    #: The last log place of an open turn's start, or 0 when none is open.
    turn_seq: int = 0
    #: Kept at what take made it while nothing but the opening was written.
    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What the worker learns from its commit."""

    noted: int
    stop_mark: int
    released: bool = False
    #: Set when something came in since `noted`: everything that waits to enter.
    inbound: tuple[tuple[Mail, ...], tuple[Reply, ...]] | None = None
    #: The tenant has budgets, so what is spent is to be weighed; a look does not say.
    budgeted: bool = True


def event_from(row: Row) -> Event:
    """Return the fact of a `log` row."""
    return Event(
        session=row["session_id"],
        kind=Kind(row["kind"]),
        seq=row["seq"],
        turn=row["turn"],
        iteration=row["iteration"],
        call=row["call_id"],
        at=row["at"],
        body=loads(row["body"]),
    )


def take(
    tx: Tx, session_id: str, worker: str, now: float, limits: Limits, *, counted: bool = True
) -> Taken | None:
    """Take the session if nobody alive has it and something waits; None otherwise.

    `counted`: an attempt that nothing takes back is one in which the worker died.
    """
    row = tx.one("session_take", id=session_id, worker=worker, now=now, counted=int(counted))
    if row is None:
        return None
    session = session_from(row)
    if session.origin == "schedule":
        runs.taken(tx, session, now)
    state = State(session=session.id, limits=limits, turn=session.turn)
    if session.turn_seq:
        facts = tx.all("log_since", session=session.id, seq=session.turn_seq)
        state = fold(state, map(event_from, facts))
    mail, replies = _inbound(tx, session.id)
    state = replace(state, mail=mail, replies=replies)
    return Taken(session=session, state=state, noted=session.wanted)


def commit(
    tx: Tx, session: Session, batch: Batch, noted: int, stop_mark: int, now: float
) -> Committed:
    """Write a batch under the session's epoch.

    Raises Fenced when another worker has the session, StopSeen when an intent meets a stop the
    worker has not seen, RuleSpent or RightsLost when what allowed it is gone. Then nothing is
    written.
    """
    last = batch.facts[-1] if batch.facts else None
    row = tx.one(
        "session_advance",
        id=session.id,
        epoch=session.epoch,
        worker=session.worker,
        seq=last.seq if last else session.seq,
        turn=last.turn if last else session.turn,
        turn_seq=batch.turn_seq,
        attempts=batch.attempts,
        now=now,
    )
    if row is None:
        raise Fenced(f"Another worker has session {session.id}.")
    if batch.intent is not None:
        if row["stop_mark"] != stop_mark:
            raise StopSeen
        _authorise(tx, session, batch.intent)
    if batch.facts:
        tx.many("log_add", [_log_row(session, fact) for fact in batch.facts])
        project(tx, session, batch.facts, batch.calls, now)
        if row["budgeted"]:
            used = [fact.body for fact in batch.facts if "usage" in fact.body]
            budgets.charge(tx, session, used, now)
    if batch.release and _release(tx, session, batch.release, noted):
        if session.origin == "schedule":
            runs.rested(tx, session.id, now)
        return Committed(noted=noted, stop_mark=row["stop_mark"], released=True)
    inbound = None if row["wanted"] == noted else _inbound(tx, session.id)
    return Committed(
        noted=row["wanted"],
        stop_mark=row["stop_mark"],
        inbound=inbound,
        budgeted=bool(row["budgeted"]),
    )


def look(tx: Tx, session: Session) -> Committed:
    """Return what has come in, writing nothing; raises Fenced when the session was taken."""
    row = tx.one("session_get", id=session.id)
    if row is None or row["epoch"] != session.epoch:
        raise Fenced(f"Another worker has session {session.id}.")
    return Committed(
        noted=row["wanted"], stop_mark=row["stop_mark"], inbound=_inbound(tx, session.id)
    )


def _authorise(tx: Tx, session: Session, call: Call) -> None:
    """Take a use of the rule, or read the rights of the person, that allow this start."""
    step = str((call.verdict or {}).get("step", ""))
    if call.decided and call.decision is not None:
        prompt = inbox.get(tx, call.decision["prompt"])
        if inbox.standing_votes(tx, prompt) < prompt.needs:
            raise RightsLost("the person who allowed this may not do so any more")
    elif step.startswith("rule:") and not rules.take_use(tx, step.removeprefix("rule:")):
        raise RuleSpent("the standing rule that allowed this has run out")


def _release(tx: Tx, session: Session, state: str, noted: int) -> bool:
    return bool(
        tx.run("session_release", id=session.id, epoch=session.epoch, noted=noted, state=state)
    )


def _inbound(tx: Tx, session: str) -> tuple[tuple[Mail, ...], tuple[Reply, ...]]:
    mail = tuple(
        Mail(
            id=row["id"],
            kind=row["kind"],
            by=row["principal_id"],
            at=row["at"],
            body=loads(row["body"]),
        )
        for row in tx.all("mail_waiting", session=session)
    )
    replies = tuple(
        Reply(
            prompt=row["id"],
            kind=row["kind"],
            call=row["call_id"],
            hash=row["arguments_hash"],
            needs=row["needs"],
            answer=loads(row["answer"]),
            by=row["resolved_by"],
            surface=row["resolved_on"],
            at=row["resolved_at"],
        )
        for row in tx.all("replies_waiting", session=session)
    )
    return mail, replies


def _log_row(session: Session, fact: Event) -> dict[str, Any]:
    return {
        "tenant": session.tenant,
        "session": session.id,
        "seq": fact.seq,
        "kind": fact.kind.value,
        "turn": fact.turn,
        "iteration": fact.iteration,
        "call": fact.call,
        "at": fact.at,
        "body": dumps(fact.body),
    }
