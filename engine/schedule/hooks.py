"""Hooks: secret paths under which others fire a named event. Of the path only a hash is kept."""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass

from engine import audit
from engine.canonical import digest
from engine.clock import mint
from engine.errors import ScheduleError
from engine.schedule import named
from engine.schedule.wakes import SESSION
from engine.schedule.words import JOB
from engine.store.base import Row, Tx

__all__ = ["Hook", "add", "called", "find", "is_token", "of_token", "revoke", "standing"]

#: Bytes of randomness in a path.
TOKEN = 24
_TOKEN = re.compile(r"[\w-]{32}", re.A)  # what `secrets.token_urlsafe` makes of as many
#: How names of events begin that tell of Nod's own jobs and sessions.
_OWN = (JOB, SESSION)
#: Hooks one tenant has at most.
LIMIT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One hook, as its row says."""

    id: str
    tenant: str
    #: The event it fires.
    name: str
    owner: str
    #: Name under which the key of its signatures is kept; empty: it takes unsigned calls.
    secret: str
    created_at: float
    calls: int
    last_at: float | None


def add(
    tx: Tx, *, tenant: str, name: str, owner: str, signed: bool, now: float
) -> tuple[Hook, str]:
    """Make a hook; return it and its token, which nobody can read again.

    Raises ScheduleError for a name that can be none or is of Nod's own events, and for one hook
    too many.
    """
    event = named.event_name(name)
    if event.startswith(_OWN):
        raise ScheduleError(f"Only Nod itself says {event}.", "Choose a name such as deploy-done.")
    if len(standing(tx, tenant)) >= LIMIT:
        raise ScheduleError(f"There are {LIMIT} hooks already.", "Revoke one: /hook revoke ID")
    token, hook = secrets.token_urlsafe(TOKEN), mint("h")
    tx.run(
        "hook_add",
        id=hook,
        tenant=tenant,
        name=event,
        owner=owner,
        hash=digest(token),
        secret=f"NOD_HOOK_{hook.upper()}" if signed else "",
        now=now,
    )
    entry = audit.Entry(kind="hook", actor=owner, subject=hook, outcome="made")
    audit.append(tx, tenant, audit.tenant_chain(tenant), [entry], now)
    row = tx.one("hook_get", id=hook)
    assert row is not None, "a hook that was just written is there"
    return _hook_from(row), token


def is_token(text: str) -> bool:
    """Say whether it looks like a token, so that what cannot be one asks the store nothing."""
    return _TOKEN.fullmatch(text) is not None


def of_token(tx: Tx, token: str) -> Hook | None:
    """Return the hook of that token, or None; how long it takes tells nothing of the token."""
    asked = digest(token)
    row = tx.one("hook_of_hash", hash=asked)
    kept = "0" * len(asked) if row is None else row["token_hash"]
    same = hmac.compare_digest(asked, kept)
    return _hook_from(row) if row is not None and same else None


def called(tx: Tx, hook: Hook, payload: str, delivery: str, now: float) -> str | None:
    """Fire the hook's event; return its id, None when this delivery was taken before.

    Args:
        delivery: the sender's id of this call; empty: every call counts.

    Raises ScheduleError when the payload is over the limit, or the hook was revoked.
    """
    if not tx.run("hook_called", id=hook.id, now=now):
        raise ScheduleError("This hook was revoked.")
    source = f"hook:{hook.id}"
    key = f"{source}:{digest(delivery) if delivery else mint('k')}"
    return named.fire_event(
        tx, hook.tenant, hook.name, payload, key, now, source=source, taint=f"hook:{hook.name}"
    )


def standing(tx: Tx, tenant: str) -> list[Hook]:
    """Return the hooks that answer, the oldest first."""
    return [_hook_from(row) for row in tx.all("hooks_standing", tenant=tenant)]


def find(tx: Tx, tenant: str, start: str) -> Hook:
    """Return the one hook whose id or name begins so; raises ScheduleError otherwise."""
    found = [
        each
        for each in standing(tx, tenant)
        if start and (each.id.startswith(start) or each.name == start)
    ]
    if len(found) != 1:
        what = "More than one hook" if found else "No hook"
        raise ScheduleError(f"{what} is '{start}'.", "List them with /hook list.")
    return found[0]


def revoke(tx: Tx, hook: Hook, by: str, now: float) -> None:
    """End the hook: its path is answered like one that never was."""
    tx.run("hook_revoke", id=hook.id)
    entry = audit.Entry(kind="hook", actor=by, subject=hook.id, outcome="revoked")
    audit.append(tx, hook.tenant, audit.tenant_chain(hook.tenant), [entry], now)


def _hook_from(row: Row) -> Hook:
    return Hook(
        id=row["id"],
        tenant=row["tenant_id"],
        name=row["name"],
        owner=row["owner_id"],
        secret=row["secret"],
        created_at=row["created_at"],
        calls=row["calls"],
        last_at=row["last_at"],
    )
