"""Deletes sessions, one by one in a cascade; what was spent and what was decided stays on record.

Files are not touched: the caller removes the folders of the returned sessions after the commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from engine.store.base import Row, Store, Tx

__all__ = ["NoteDeleted", "RetentionPolicy", "apply_retention", "delete_session"]

#: Adds the "deleted" row to the audit; called with the session's row before anything is gone.
NoteDeleted = Callable[[Tx, Row], None]

#: Everything a session leaves behind, in the order it goes: votes are found through prompts.
_CASCADE = (
    "retention_votes",
    "retention_queue",
    "retention_fires",
    "retention_threads",
    "retention_log",
    "retention_mailbox",
    "retention_calls",
    "retention_prompts",
    "retention_deliveries",
    "retention_rules",
    "retention_wakes",
    "retention_watched",
    "retention_subscriptions",
    "retention_jobs",
    "retention_artifacts",
    "retention_grants",
    "retention_sessions",
)

#: What belongs to no session, and goes at the age of a person's.
_LOOSE = (
    "retention_loose_mail",
    "retention_loose_events",
    "retention_loose_votes",
    "retention_loose_prompts",
    "retention_loose_deliveries",
    "retention_loose_fires",
    "retention_loose_spendings",
)

_PAGE = 100  # sessions looked up at once


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """How long a finished session is kept after its last change, in seconds; None: for good."""

    #: Sessions that a person opened.
    person: float | None = None
    #: Sessions that a schedule opened, or a watch that was removed since.
    schedule: float | None = None


async def apply_retention(
    store: Store, policy: RetentionPolicy, now: float, note_deleted: NoteDeleted
) -> list[str]:
    """Delete the sessions that are finished and older than `policy` allows; return their ids.

    A session is finished when no turn is open, nothing waits for it or is still to be shown, and
    nothing is to wake it. Each goes in a transaction of its own, so nobody waits for long. What
    came in and was shown outside of all sessions goes at the same age.
    """
    deleted: list[str] = []
    ages = {"person": policy.person, "schedule": policy.schedule, "watch": policy.schedule}
    for origin, age in ages.items():
        if age is not None:
            deleted += await _delete_before(store, origin, now - age, note_deleted)
    if policy.person is not None:
        await store.write(partial(_delete_loose, now - policy.person))
    return deleted


def _delete_loose(before: float, tx: Tx) -> None:
    for query in _LOOSE:
        tx.run(query, before=before)


async def _delete_before(
    store: Store, origin: str, before: float, note_deleted: NoteDeleted
) -> list[str]:
    deleted: list[str] = []
    after = ""
    while page := await store.read(partial(_finished, origin, before, after)):
        for session in page:
            deleted += await store.write(partial(_delete_idle, session, before, note_deleted))
        after = page[-1]
    return deleted


def _finished(origin: str, before: float, after: str, tx: Tx) -> list[str]:
    rows = tx.all("retention_finished", origin=origin, before=before, after=after, limit=_PAGE)
    return [row["id"] for row in rows]


def _delete_idle(session: str, before: float, note_deleted: NoteDeleted, tx: Tx) -> list[str]:
    """Delete the session unless someone came back to it since; return the ids that went."""
    if not tx.run("retention_claim", session=session, before=before):
        return []
    return [session] if delete_session(tx, session, note_deleted) else []


def delete_session(tx: Tx, session: str, note_deleted: NoteDeleted) -> bool:
    """Delete the session and all that belongs to it; return False when there is none.

    Its usage and audit rows stay, and `note_deleted` adds a row about it. A worker that is
    advancing the session finds its row gone and stops. Remove its folder after the commit.
    """
    row = tx.one("retention_session", session=session)
    if row is None:
        return False
    note_deleted(tx, row)
    for query in _CASCADE:
        tx.run(query, session=session)
    return True
