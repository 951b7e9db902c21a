"""Wakes: a session is called back at a time it chose, or when an event comes that it waits for.

The wake is a mail that starts a turn of its own. One whose turn fails is tried again, then told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine import audit, people, sessions
from engine.canonical import digest, loads
from engine.clock import mint
from engine.errors import ScheduleError
from engine.schedule import named, subscriptions
from engine.schedule.notices import tell
from engine.sessions import Post, Session, session_from
from engine.store.base import Row, Tx

__all__ = [
    "SESSION",
    "Wake",
    "add",
    "add_on",
    "cancel",
    "check",
    "count",
    "drop",
    "find",
    "session_event",
    "turn_ended",
    "waiting",
    "wake",
]

#: How the event that a session's turn has ended begins.
SESSION = "session:"
#: Wakes of one session since a person last wrote in it: nobody pays for a loop unseen.
IN_A_ROW = 20
NOTE_LIMIT = 2_000  # characters
#: Seconds an event is waited for when nobody says how long.
PATIENCE = 30 * 86_400.0
#: Seconds until a wake whose turn failed is tried again, once each; then its owner is told.
AGAIN = (60.0, 600.0)
LISTED = 100  # wakes of one list


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """One wake that waits, as its row says."""

    id: str
    tenant: str
    session: str
    #: Whose session it is, and what that is called.
    owner: str
    title: str
    #: Epoch seconds: when it comes; with an event, until when that is waited for.
    due: float
    #: The event it waits for; empty: only for the time.
    event: str
    note: str
    #: How often it was tried and failed.
    tries: int


def add(tx: Tx, session: Session, due: float, note: str, now: float, *, key: str = "") -> str:
    """Have the session woken at `due`, epoch seconds, with `note`; return the wake's id.

    With `key` the same wake is added once. Raises ScheduleError for a time that is not ahead, a
    note that is too long, and after too many wakes since a person wrote.
    """
    return _add(tx, session, due, note, now, key)


def add_on(
    tx: Tx,
    session: Session,
    event: str,
    note: str,
    now: float,
    *,
    until: float | None = None,
    since: float | None = None,
    key: str = "",
) -> str:
    """Have the session woken once when `event` comes, or told at `until` that it did not.

    `since`: an event that came from then on (epoch seconds) counts too. Raises what `add` raises,
    and ScheduleError for a name that can be none.
    """
    name = named.event_name(event)
    came = None
    if since is not None:
        came = named.since(tx, session.tenant, name, since, session.owner)
    due = now + PATIENCE if until is None else until
    return _add(tx, session, due, note, now, key, event=name, came=came)


def _add(
    tx: Tx,
    session: Session,
    due: float,
    note: str,
    now: float,
    key: str,
    *,
    event: str = "",
    came: named.NamedEvent | None = None,
) -> str:
    wake_id = f"w{digest(key)[:12]}" if key else mint("w")
    if key and tx.one("wake_get", id=wake_id) is not None:
        return wake_id
    check(tx, session, due, note, now)
    tx.run(
        "wake_add",
        id=wake_id,
        tenant=session.tenant,
        session=session.id,
        due=due if came is None else now,
        note=note,
        event=event,
        event_id="" if came is None else came.id,
        now=now,
    )
    return wake_id


def check(tx: Tx, session: Session, due: float, note: str, now: float) -> None:
    """Raise ScheduleError when the session cannot be woken so; see `add`."""
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
        _dropped(tx, row["tenant_id"], people.CONSOLE, row["session_id"], "clock", [row], now)
        return None
    session = session_from(owner)
    sessions.post(tx, session, _mail(tx, row, session.owner), now)
    return session.id


def _mail(tx: Tx, row: Row, by: str) -> Post:
    came = named.get(tx, row["event_id"]) if row["event_id"] else None
    source = {"wake": row["id"], "due": row["due"]}
    if came is not None and came.taint:
        source["taint"] = came.taint
    text = f"You asked to be woken now: {row['note']}"
    if row["event"]:
        text = f"You asked to be woken when {row['event']} comes: {row['note']}\n\n"
        text += "It did not come in time." if came is None else named.quoted(came)
    body = {"message": {"role": "user", "content": text}, "source": source}
    again = f":{row['tries']}" if row["tries"] else ""
    return Post(kind="wake", key=f"wake:{row['id']}{again}", by=by, body=body)


# -- looking and ending


def waiting(tx: Tx, tenant: str, owner: str = "") -> list[Wake]:
    """Return the wakes that wait, the nearest first; `owner`: only in this principal's sessions."""
    rows = tx.all("wakes_waiting", tenant=tenant, owner=owner, limit=LISTED)
    return [_wake_from(row) for row in rows]


def count(tx: Tx, session: str) -> int:
    """Return how many wakes wait in a session."""
    return len(tx.all("wakes_waiting_in", session=session))


def find(tx: Tx, tenant: str, start: str) -> Wake:
    """Return the one wake that waits whose id begins so; raises ScheduleError otherwise."""
    prefix = start.replace("%", "").replace("_", "")
    if not prefix:
        raise ScheduleError("Say which wake, by its id.", "See /wakes.")
    rows = tx.all("wake_find", tenant=tenant, prefix=f"{prefix}%")
    if len(rows) != 1:
        what = "More than one wake" if rows else "No wake"
        raise ScheduleError(f"{what} has an id that begins with '{start}'.", "See /wakes.")
    return _wake_from(rows[0])


def cancel(tx: Tx, found: Wake, by: str, now: float) -> bool:
    """End the wake before it comes; False: it has come."""
    if not tx.run("wake_claim", id=found.id, status="cancelled"):
        return False
    entry = audit.Entry(kind="wake", actor=by, subject=found.id, outcome="cancelled")
    audit.append(tx, found.tenant, audit.tenant_chain(found.tenant), [entry], now)
    return True


def drop(tx: Tx, session: Row, by: str, now: float) -> None:
    """Say of the wakes that wait in a session that it is deleted, and they with it."""
    rows = tx.all("wakes_waiting_in", session=session["id"])
    if rows:
        owner = session["owner_id"]
        _dropped(tx, session["tenant_id"], owner, session["id"], by, rows, now)


def _dropped(
    tx: Tx, tenant: str, owner: str, session: str, by: str, rows: Sequence[Row], now: float
) -> None:
    entries = [
        audit.Entry(kind="dropped", actor=by, subject=row["id"], outcome=session) for row in rows
    ]
    audit.append(tx, tenant, audit.tenant_chain(tenant), entries, now)
    notes = "; ".join(str(row["note"]) for row in rows)
    tell(
        tx,
        tenant,
        owner,
        subject=f"dropped:{rows[0]['id']}",
        title="A wake was dropped",
        text=f"Session {session} is deleted, so this will not be done: {notes}",
        now=now,
    )


def _wake_from(row: Row) -> Wake:
    return Wake(
        id=row["id"],
        tenant=row["tenant_id"],
        session=row["session_id"],
        owner=row["owner_id"],
        title=row["title"],
        due=row["due"],
        event=row["event"],
        note=row["note"],
        tries=row["tries"],
    )


# -- what became of it


def session_event(session: str) -> str:
    """Return the name of the event that a session's turn has ended."""
    return f"{SESSION}{session}"


def turn_ended(tx: Tx, session: Session, turn: int, status: str, now: float) -> None:
    """Fire what waits for this session's end; try a wake again whose turn failed.

    To be called in the transaction that writes TURN_END, with its status.
    """
    if status == "parked":
        return
    name = session_event(session.id)
    if tx.one("event_awaited", tenant=session.tenant, event=name) is not None:
        named.fire_event(
            tx, session.tenant, name, f"Its turn {turn}: {status}.", str(turn), now, source=name
        )
    if status == "error":
        mail = tx.one("wake_of_turn", session=session.id, turn=turn)
        source = {} if mail is None else loads(mail["body"]).get("source", {})
        if "wake" in source:
            _failed(tx, session, source["wake"], now)
        elif "watch" in source:
            subscriptions.failed(tx, session, source["watch"], now)


def _failed(tx: Tx, session: Session, wake_id: str, now: float) -> None:
    row = tx.one("wake_get", id=wake_id)
    if row is None:
        return
    if row["tries"] < len(AGAIN):
        tx.run("wake_again", id=wake_id, due=now + AGAIN[row["tries"]])
    elif tx.run("wake_failed", id=wake_id):
        tell(
            tx,
            session.tenant,
            session.owner,
            subject=f"wake:{wake_id}",
            title="A wake failed",
            text=f"It was tried {len(AGAIN) + 1} times: {row['note']}",
            now=now,
            session=session.id,
            retry=True,
        )
