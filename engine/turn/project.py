"""What each fact leaves in the tables beside the log, and on the audit. For the journal only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine import audit, inbox
from engine.artifacts import ArtifactRow, artifact_add
from engine.canonical import dumps
from engine.clock import mint
from engine.events import Event, Kind
from engine.schedule import runs, wakes
from engine.sessions import Session, roots_json
from engine.store.base import Tx
from engine.turn.state import Call

__all__ = ["answer_row", "project"]


def project(
    tx: Tx, session: Session, facts: Sequence[Event], calls: Iterable[Call], now: float
) -> None:
    """Write what `facts` leave behind; `calls` are those they touched, as they are now."""
    entries: list[audit.Entry] = []
    for fact in facts:
        projection = _PROJECT.get(fact.kind)
        if projection is not None:
            projection(tx, session, fact)
        entry = _AUDIT.get(fact.kind)
        if entry is not None:
            entries.append(entry(fact))
    rows = [_call_row(session, call) for call in calls]
    if rows:
        tx.many("call_put", rows)
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
        spent = fact.body.get("reason") == "budget"  # a further try would end the same way
        runs.ended(tx, session.id, "budget" if spent else fact.body["status"], fact.at)
    wakes.turn_ended(tx, session, fact.turn, fact.body["status"], fact.at)
    if fact.body["status"] == "error":  # what its cards ask about has its result by now
        reason = "the turn ended with an error"
        _close_prompts(tx, session, fact, reason=reason, by="nod", turn=fact.turn)


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


def _usage(tx: Tx, session: Session, fact: Event) -> None:
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
        estimated=int(fact.body.get("estimated", False)),
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
    reason = fact.body.get("reason", "stopped")
    _close_prompts(tx, session, fact, reason=reason, by=fact.body["by"])


def _close_prompts(
    tx: Tx, session: Session, fact: Event, *, reason: str, by: str, turn: int | None = None
) -> None:
    """Answer what is open, of one turn or of all, so that nobody presses in vain."""
    tx.run(
        "prompt_close" if turn is None else "prompt_close_turn",
        session=session.id,
        answer=dumps({"kind": "stopped", "reason": reason}),
        by=by,
        now=fact.at,
        seq=fact.seq,
        **({} if turn is None else {"turn": turn}),
    )


def _switched(tx: Tx, session: Session, fact: Event) -> None:
    _message(tx, session, fact)
    for name in ("mode", "model"):
        if name in fact.body:
            tx.run(f"session_{name}", id=session.id, value=fact.body[name])
    if "custom" in fact.body:
        tx.run("session_custom", id=session.id, value=dumps(fact.body["custom"]))
    if "root" in fact.body:  # the worker has added it to the roots it knows
        tx.run("session_roots", id=session.id, value=roots_json(session.roots))


def _tainted(tx: Tx, session: Session, fact: Event) -> None:
    tx.run("session_taint", id=session.id, value=dumps(fact.body["labels"]))


_PROJECT = {
    Kind.TURN_START: _turn_start,
    Kind.TURN_END: _turn_end,
    Kind.MESSAGE: _message,
    Kind.NOTICE: _message,
    Kind.ASSISTANT_MESSAGE: _usage,
    Kind.SPENT: _usage,
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
    changed = ", ".join(sorted(set(fact.body) & {"mode", "model", "root", "custom"}))
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
