"""Writes what a worker decided: facts into the log, and what each leaves in the tables beside it.

One call of `commit` is one transaction. It is conditional on the session's epoch, so a worker that
lost the session writes nothing; an intent is conditional on the stop mark, so nothing starts after
a stop was accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine import audit, inbox, people
from engine.artifacts import ArtifactRow, artifact_add
from engine.canonical import dumps, loads
from engine.clock import mint
from engine.errors import Fenced
from engine.events import Event, Kind
from engine.permissions import rules
from engine.schedule import schedules
from engine.sessions import Session, session_from
from engine.store.base import Row, Tx
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


def take(tx: Tx, session_id: str, worker: str, now: float, limits: Limits) -> Taken | None:
    """Take the session if nobody alive has it and something waits; None otherwise."""
    row = tx.one("session_take", id=session_id, worker=worker, now=now)
    if row is None:
        return None
    session = session_from(row)
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
        _project(tx, session, batch, now)
    if batch.release and _release(tx, session, batch.release, noted):
        return Committed(noted=noted, stop_mark=row["stop_mark"], released=True)
    if row["wanted"] == noted:
        return Committed(noted=noted, stop_mark=row["stop_mark"])
    return Committed(
        noted=row["wanted"], stop_mark=row["stop_mark"], inbound=_inbound(tx, session.id)
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
        person = people.get(tx, session.tenant, call.decision["by"])
        if person is None or not inbox.may_answer(prompt, person):
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


# -- what facts leave in the tables beside the log


def _project(tx: Tx, session: Session, batch: Batch, now: float) -> None:
    entries: list[audit.Entry] = []
    for fact in batch.facts:
        projection = _PROJECT.get(fact.kind)
        if projection is not None:
            projection(tx, session, fact)
        entry = _AUDIT.get(fact.kind)
        if entry is not None:
            entries.append(entry(fact))
    if batch.calls:
        tx.many("call_put", [_call_row(session, call) for call in batch.calls])
    audit.append(tx, session.tenant, session.id, entries, now)


def _call_row(session: Session, call: Call) -> dict[str, Any]:
    start = call.start
    return {
        "id": call.id,
        "tenant": session.tenant,
        "session": session.id,
        "turn": call.turn,
        "iteration": call.iteration,
        "place": call.place,
        "name": call.name,
        "risk": call.risk,
        "hash": call.hash,
        "status": call.status,
        "attempt": call.attempts,
        "worker": start.worker if start else None,
        "act_by": start.act_by if start else None,
        "started": call.started_at,
        "finished": call.finished_at,
    }


def _turn_start(tx: Tx, session: Session, fact: Event) -> None:
    answer_row(tx, session, fact.turn, 1, fact.at)


def _turn_end(tx: Tx, session: Session, fact: Event) -> None:
    if session.origin == "schedule" and fact.body["status"] != "parked":
        schedules.run_ended(tx, session.id, fact.body["status"], fact.at)


def answer_row(tx: Tx, session: Session, turn: int, iteration: int, now: float) -> None:
    """Write the delivery row of an answer before any of it is shown."""
    tx.run(
        "delivery_add",
        id=mint("d"),
        tenant=session.tenant,
        session=session.id,
        kind="show",
        subject=f"answer:{session.id}/{turn}/{iteration}",
        destination=session.home,
        part=1,
        payload="{}",
        status="open",
        attempted=None,
        now=now,
    )


def _message(tx: Tx, session: Session, fact: Event) -> None:
    if fact.body.get("mail") is not None:
        tx.run("mail_entered", id=fact.body["mail"], seq=fact.seq)


def _assistant_message(tx: Tx, session: Session, fact: Event) -> None:
    usage = fact.body.get("usage")
    if usage is None:
        return
    tx.run(
        "usage_add",
        id=f"u{session.id}-{fact.seq}",
        tenant=session.tenant,
        session=session.id,
        principal=session.owner,
        turn=fact.turn,
        iteration=fact.iteration,
        purpose=fact.body.get("purpose", "turn"),
        model=fact.body.get("model", ""),
        input=usage["input"],
        output=usage["output"],
        cache_read=usage["cache_read"],
        cache_write=usage["cache_write"],
        cost=fact.body.get("cost"),
        at=fact.at,
    )


def _prompt_raised(tx: Tx, session: Session, fact: Event) -> None:
    prompt: Mapping[str, Any] = fact.body["prompt"]
    inbox.ask(
        tx,
        inbox.Prompt(
            id=prompt["id"],
            tenant=session.tenant,
            session=session.id,
            kind=prompt["kind"],
            subject=prompt["subject"],
            call=fact.call,
            turn=fact.turn,
            hash=prompt.get("hash", ""),
            payload=prompt["payload"],
            needs=prompt.get("needs", 1),
            approvers=prompt["approvers"],
            created_at=fact.at,
            remind_at=prompt["remind_at"],
            deadline=prompt["deadline"],
        ),
    )


def _decided(tx: Tx, session: Session, fact: Event) -> None:
    tx.run("prompt_entered", id=fact.body["prompt"], seq=fact.seq)


def _tool_started(tx: Tx, session: Session, fact: Event) -> None:
    delivery = fact.body.get("delivery")
    if delivery is not None:
        tx.run(
            "delivery_add",
            id=mint("d"),
            tenant=session.tenant,
            session=session.id,
            kind="act",
            subject=f"act:{fact.call}/{fact.body['attempt']}",
            destination=delivery,
            part=1,
            payload="{}",
            status="sending",
            attempted=fact.at,
            now=fact.at,
        )


def _artifact(tx: Tx, session: Session, fact: Event) -> None:
    body = fact.body
    measured = ArtifactRow(
        id=body["id"],
        session=session.id,
        call=fact.call,
        kind=body["kind"],
        name=body["name"],
        media_type=body["media_type"],
        path=body["path"],
        bytes=body["bytes"],
        digest=body["digest"],
        taint=tuple(body["taint"]),
        created_at=fact.at,
    )
    artifact_add(
        tx,
        measured,
        tenant=session.tenant,
        session=session.id,
        call=fact.call,
        taint=measured.taint,
        now=fact.at,
    )


def _stopped(tx: Tx, session: Session, fact: Event) -> None:
    _message(tx, session, fact)
    answer = dumps({"kind": "stopped", "reason": fact.body.get("reason", "stopped")})
    tx.run(
        "prompt_close",
        session=session.id,
        answer=answer,
        by=fact.body["by"],
        now=fact.at,
        seq=fact.seq,
    )


def _switched(tx: Tx, session: Session, fact: Event) -> None:
    _message(tx, session, fact)
    for name in ("mode", "model"):
        if name in fact.body:
            tx.run(f"session_{name}", id=session.id, value=fact.body[name])
    for name in ("roots", "custom"):
        if name in fact.body:
            tx.run(f"session_{name}", id=session.id, value=dumps(fact.body[name]))


def _tainted(tx: Tx, session: Session, fact: Event) -> None:
    tx.run("session_taint", id=session.id, value=dumps(fact.body["labels"]))


_PROJECT = {
    Kind.TURN_START: _turn_start,
    Kind.TURN_END: _turn_end,
    Kind.MESSAGE: _message,
    Kind.NOTICE: _message,
    Kind.ASSISTANT_MESSAGE: _assistant_message,
    Kind.PERMISSION_REQUIRED: _prompt_raised,
    Kind.QUESTION_REQUESTED: _prompt_raised,
    Kind.PLAN_PROPOSED: _prompt_raised,
    Kind.DECIDED: _decided,
    Kind.TOOL_STARTED: _tool_started,
    Kind.ARTIFACT: _artifact,
    Kind.STOPPED: _stopped,
    Kind.SWITCHED: _switched,
    Kind.TAINTED: _tainted,
}


# -- the audit row of a fact


def _audit_proposed(fact: Event) -> audit.Entry:
    body = fact.body
    return audit.Entry(
        kind="proposed", actor="nod", subject=fact.call or "", arguments_hash=body["hash"]
    )


def _audit_verdict(fact: Event) -> audit.Entry:
    body = fact.body
    return audit.Entry(
        kind="judged",
        actor="nod",
        rule=body["step"],
        subject=fact.call or "",
        arguments_hash=body["hash"],
        outcome=body["answer"],
    )


def _audit_started(fact: Event) -> audit.Entry:
    body = fact.body
    return audit.Entry(
        kind="started",
        actor=body["by"],
        surface=body["surface"],
        rule=body["rule"],
        subject=fact.call or "",
        arguments_hash=body["hash"],
        outcome=f"attempt {body['attempt']}",
    )


def _audit_unknown(fact: Event) -> audit.Entry:
    return audit.Entry(
        kind="looked_up", actor="nod", subject=fact.call or "", outcome=fact.body["found"]
    )


def _audit_finished(fact: Event) -> audit.Entry:
    return audit.Entry(
        kind="finished", actor="nod", subject=fact.call or "", outcome=fact.body["status"]
    )


def _audit_stopped(fact: Event) -> audit.Entry:
    return audit.Entry(kind="stopped", actor=fact.body["by"])


def _audit_switched(fact: Event) -> audit.Entry:
    changed = ", ".join(sorted(set(fact.body) & {"mode", "model", "roots", "custom"}))
    return audit.Entry(kind="switched", actor=fact.body["by"], outcome=changed)


_AUDIT = {
    Kind.TOOL_PROPOSED: _audit_proposed,
    Kind.VERDICT: _audit_verdict,
    Kind.TOOL_STARTED: _audit_started,
    Kind.UNKNOWN: _audit_unknown,
    Kind.TOOL_FINISHED: _audit_finished,
    Kind.STOPPED: _audit_stopped,
    Kind.SWITCHED: _audit_switched,
}
