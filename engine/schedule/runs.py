"""The rows of runs: how each ended and what it cost, its time at work, and its further tries.

A run is at work while a worker has its session. That time adds up over parking, restarts and
tries; of a worker that died, it counts up to the last fact it wrote.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine import audit, sessions
from engine.canonical import digest
from engine.errors import ScheduleError
from engine.schedule import notices
from engine.schedule.cron import in_zone
from engine.schedule.policy import DEFAULT, Policy, Quiet, length
from engine.sessions import Post, Session
from engine.store.base import Row, Tx

__all__ = ["Fire", "again", "drop", "ended", "finish", "give_up", "history", "overdue", "rested"]
__all__ += ["taken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """One time a schedule came due, as its row says."""

    id: str
    schedule: str
    due: float
    #: When its run began.
    fired_at: float
    #: None when no run was started.
    session: str | None
    #: queued, started, retrying, or its end: skipped, superseded, completed, failed
    status: str
    #: schedule, catch-up, manual
    cause: str
    note: str
    #: Epoch seconds; None: it has not ended, or never began.
    ended_at: float | None
    #: Seconds at work, as far as they are counted.
    worked: float
    #: Tries after the first.
    tries: int
    #: thread_target in which it was at work; empty: none.
    thread: str
    #: US dollars; None: no price is known, or no model was called.
    cost: float | None
    #: Calls of models whose price is unknown.
    unpriced: int


def history(tx: Tx, schedule: str, limit: int = 20) -> list[Fire]:
    """Return the times the schedule came due, the latest first; also after its removal."""
    return [
        Fire(
            id=row["id"],
            schedule=row["schedule_id"],
            due=row["due"],
            fired_at=row["fired_at"],
            session=row["session_id"],
            status=row["status"],
            cause=row["cause"],
            note=row["note"],
            ended_at=row["ended_at"],
            worked=row["worked"],
            tries=row["tries"],
            thread=row["thread"],
            cost=row["cost"],
            unpriced=row["unpriced"],
        )
        for row in tx.all("fires_of", schedule=schedule, limit=limit)
    ]


# -- time at work


def taken(tx: Tx, session: Session, now: float) -> None:
    """Start the clock of a run whose session a worker has just taken.

    To be called in that transaction, with the session as it was taken.
    """
    row = tx.one("fire_of_session", session=session.id)
    if row is None or row["status"] != "started":
        return
    worked = _worked(row, session.updated_at)
    limit = row["deadline"]
    look = None if limit is None else now + max(0.0, limit - worked)
    tx.run("fire_clocked", id=row["id"], worked=worked, since=now, look=look)


def rested(tx: Tx, session: str, now: float) -> None:
    """Stop the clock: the worker gives the session up in this transaction."""
    row = tx.one("fire_of_session", session=session)
    if row is not None and row["work_since"] is not None:
        tx.run("fire_clocked", id=row["id"], worked=_worked(row, now), since=None, look=None)


def _worked(row: Row, until: float) -> float:
    """Return the seconds at work up to `until`."""
    since = row["work_since"]
    return float(row["worked"]) + (0.0 if since is None else max(0.0, until - since))


def overdue(tx: Tx, fire: Row, now: float) -> str | None:
    """Stop a run that has been at work for as long as it may; return its session.

    None: it has not, since its worker died meanwhile; whoever takes it up sets the clock anew.
    """
    row = tx.one("fire_of_session", session=fire["session_id"])
    found = tx.one("session_get", id=fire["session_id"])
    if row is None or found is None or row["deadline"] is None:
        return None
    session = sessions.session_from(found)
    asked = {"tenant": session.tenant, "worker": session.worker or "", "now": now}
    alive = tx.one("worker_alive", **asked) is not None
    left = row["deadline"] - _worked(row, now if alive else session.updated_at)
    if not alive or left > 0:
        tx.run("fire_look", id=row["id"], look=now + left if alive else None)
        return None
    reason = f"it reached its deadline of {length(row['deadline'])} at work"
    key = f"deadline:{row['id']}/{row['tries']}"
    stop = Post(kind="stop", key=key, by="clock", body={"reason": reason})
    sessions.post(tx, session, stop, now)
    tx.run("fire_stopping", id=row["id"], note=reason)
    return session.id


# -- ends


def ended(tx: Tx, session: str, status: str, now: float) -> None:
    """Record how a turn of a fired session ended, and tell the owner when the run failed.

    To be called in the transaction that writes TURN_END, with its status, or "budget". A run that
    only parked has not ended, nor one that is to be tried again; turns after its end change
    nothing.
    """
    row = tx.one("fire_of_session", session=session)
    if row is None or status == "parked":
        return
    if status == "completed":
        finish(tx, row, "completed", "", now)
        return
    late = status == "interrupted" and row["status"] == "started" and row["note"]
    note = late or _ENDINGS.get(status, status)
    if status == "error" and _try_later(tx, row, note, now):
        return
    note += f", after {row['tries'] + 1} tries" if row["tries"] else ""
    finish(tx, row, "failed", note, now)
    if late or status != "interrupted":
        _tell(tx, row, note, now)


_ENDINGS = {
    "interrupted": "it was stopped",
    "max_iterations": "it reached the limit of steps for one turn",
    "error": "it ended with an error",
    "budget": "its budget is spent",
}


def finish(tx: Tx, row: Row, status: str, note: str, now: float) -> None:
    """End a run, once, and let the next that waits for it begin."""
    tx.run("schedule_lock", id=row["schedule_id"])
    worked = _worked(row, now)
    tx.run("fire_ended", id=row["id"], status=status, note=note, worked=worked, now=now)
    queued = tx.one("fire_queued", schedule=row["schedule_id"])
    if queued is not None:
        tx.run("fire_look", id=queued["id"], look=now)


def give_up(tx: Tx, fire_id: str, cause: str, now: float) -> None:
    """End a run that the clock could not see to, and tell the owner of its schedule."""
    row = tx.one("fire_get", id=fire_id)
    if row is None:
        return
    finish(tx, row, "failed", cause, now)
    found = tx.one("schedule_get", id=row["schedule_id"])
    if found is not None:
        _tell(tx, row, cause.rstrip("."), now, found)


def _tell(tx: Tx, row: Row, note: str, now: float, schedule: Row | None = None) -> None:
    """Tell whoever owns the schedule; the same again only when they have seen it."""
    whose = schedule or row
    same = f"fire:{row['schedule_id']}/{digest(note)[:8]}/"
    told = tx.one("notice_open", tenant=row["tenant_id"], prefix=f"{same}%")
    if whose["owner_id"] and told is None:
        notices.tell(
            tx,
            row["tenant_id"],
            whose["owner_id"],
            subject=f"{same}{row['id']}",
            title=f"Schedule: {whose['title']}",
            text=f"The run of '{whose['title']}' failed: {note}.",
            now=now,
            session=row["session_id"],
        )


def drop(tx: Tx, schedule: str, why: str, now: float) -> None:
    """End what has not begun, or waits for its next try: its schedule does not go on."""
    for row in tx.all("fires_unbegun", schedule=schedule):
        status = "skipped" if row["status"] == "queued" else "failed"
        tx.run("fire_ended", id=row["id"], status=status, note=why, worked=row["worked"], now=now)


# -- further tries


def _policy(row: Row) -> Policy:
    """Return what is asked here of the policy of the run's schedule; none when it is gone."""
    if row["zone"] is None:
        return DEFAULT
    return Policy(retries=row["retries"], quiet=Quiet.parse(row["quiet"]))


def _try_later(tx: Tx, row: Row, note: str, now: float) -> bool:
    """Have the clock try the run once more; False: it was tried as often as it may be."""
    policy = _policy(row)
    delay = policy.delay(row["tries"])
    if delay is None:
        return False
    try:
        at = policy.begins(now + delay, row["zone"])
        when = in_zone(at, row["zone"])
    except ScheduleError:  # a zone may vanish with an update; the turn must end all the same
        return False
    told = f"{note}; tried again {when} ({row['tries'] + 1} of {policy.retries})"
    tx.run("fire_clocked", id=row["id"], worked=_worked(row, now), since=None, look=None)
    tx.run("fire_retrying", id=row["id"], note=told, look=at)
    return True


def again(tx: Tx, fire: Row, now: float) -> str | None:
    """Try a run once more, in its own session, where what was done is known; return the session.

    None: it is gone, or a person has taken it up meanwhile, and how their turn ends decides.
    """
    found = tx.one("session_get", id=fire["session_id"])
    if found is None:
        finish(tx, fire, "failed", "its session was deleted", now)
        return None
    session = sessions.session_from(found)
    if session.turn_seq or session.wanted > session.seen:
        tx.run("fire_again", id=fire["id"], tries=fire["tries"])
        return None
    tries = fire["tries"] + 1
    if not tx.run("fire_again", id=fire["id"], tries=tries):
        return None  # another run has taken its place
    text = (
        f"<nod-note>The run ended with an error. This is try {tries + 1}: go on where it was "
        "broken off. What is done is done: do not repeat it. Nobody is watching.</nod-note>"
    )
    source = {"schedule": fire["schedule_id"], "fire": fire["id"], "try": tries}
    body = {"message": {"role": "user", "content": text}, "source": source}
    mail = Post(kind="fire", key=f"fire:{fire['id']}/{tries}", by=session.owner, body=body)
    sessions.post(tx, session, mail, now)
    entry = audit.Entry(
        kind="fired",
        actor="clock",
        rule="retry",
        subject=fire["schedule_id"],
        outcome=fire["id"],
    )
    audit.append(tx, session.tenant, session.id, [entry], now)
    return session.id
