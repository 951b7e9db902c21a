"""Wakes: a session is called back at a time it chose, by a mail that starts a turn of its own."""

from __future__ import annotations

from engine import audit, sessions
from engine.clock import mint
from engine.errors import ScheduleError
from engine.sessions import Post, Session, session_from
from engine.store.base import Tx

__all__ = ["add", "wake"]


def add(tx: Tx, session: Session, due: float, note: str, now: float) -> str:
    """Have the session woken at `due`, epoch seconds, with `note`; return the wake's id.

    Raises ScheduleError for a time that is not ahead.
    """
    if due <= now:
        raise ScheduleError(
            f"The time {due:.0f} is not ahead; it is now {now:.0f} (seconds since 1970).",
            "Choose a later time.",
        )
    wake_id = mint("w")
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
