"""Wakes: a session is called back at a time it chose, by a mail that starts a turn of its own."""

from __future__ import annotations

from engine import audit, sessions
from engine.canonical import digest
from engine.clock import mint
from engine.errors import ScheduleError
from engine.sessions import Post, Session, session_from
from engine.store.base import Tx

__all__ = ["add", "wake"]

#: Wakes of one session since a person last wrote in it: nobody pays for a loop unseen.
IN_A_ROW = 20
NOTE_LIMIT = 2_000  # characters


def add(tx: Tx, session: Session, due: float, note: str, now: float, *, key: str = "") -> str:
    """Have the session woken at `due`, epoch seconds, with `note`; return the wake's id.

    With `key` the same wake is added once. Raises ScheduleError for a time that is not ahead, a
    note that is too long, and after too many wakes since a person wrote.
    """
    wake_id = f"w{digest(key)[:12]}" if key else mint("w")
    if key and tx.one("wake_get", id=wake_id) is not None:
        return wake_id
    if due <= now:
        raise ScheduleError(
            f"The time {due:.0f} is not ahead; it is now {now:.0f} (seconds since 1970).",
            "Choose a later time.",
        )
    if len(note) > NOTE_LIMIT:
        raise ScheduleError(
            f"The note has {len(note)} characters, {NOTE_LIMIT} are the limit.", "Shorten it."
        )
    row = tx.one("wakes_in_a_row", session=session.id)
    if row is not None and row["n"] >= IN_A_ROW:
        raise ScheduleError(
            f"This session was to be woken {IN_A_ROW} times since a person wrote in it.",
            "Say how it stands and let the person decide.",
        )
    tx.run("wake_add", id=wake_id, tenant=session.tenant, session=session.id, due=due, note=note)
    return wake_id


def wake(tx: Tx, wake_id: str, now: float) -> str | None:
    """Post the wake into its session and return the session's id, to be woken.

    None when another has done it, or when the session is gone: then the wake is dropped, and the
    audit says so. Raises SessionError when the session's mailbox is full; the wake stays due.
    """
    row = tx.one("wake_get", id=wake_id)
    if row is None:
        return None
    owner = tx.one("session_get", id=row["session_id"])
    if not tx.run("wake_claim", id=wake_id, status="dropped" if owner is None else "fired"):
        return None
    if owner is None:
        tenant = row["tenant_id"]
        entry = audit.Entry(
            kind="dropped", actor="clock", subject=wake_id, outcome=row["session_id"]
        )
        audit.append(tx, tenant, audit.tenant_chain(tenant), [entry], now)
        return None
    session = session_from(owner)
    message = {"role": "user", "content": f"You asked to be woken now: {row['note']}"}
    body = {"message": message, "source": {"wake": wake_id, "due": row["due"]}}
    sessions.post(
        tx, session, Post(kind="wake", key=f"wake:{wake_id}", by=session.owner, body=body), now
    )
    return session.id
