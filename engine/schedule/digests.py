"""When a person's daily digest comes, and what there is to tell in it: rows only, no words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine import budgets, inbox, people
from engine.canonical import loads
from engine.inbox import Prompt
from engine.models import usage
from engine.models.usage import UsageLine
from engine.schedule.cron import next_fire
from engine.store.base import Row, Tx

__all__ = ["Digest", "Error", "Run", "Told", "begin", "claim", "get", "move", "put", "tell"]

#: When it comes unless somebody says otherwise, minute of the day: 18:00.
EVENING = 18 * 60
#: Runs, errors and cards that one digest looks at.
LIMIT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """When the digest of one person comes, as its row says."""

    principal: str
    #: Of the day, in the zone.
    minute: int
    zone: str
    #: Epoch seconds; None: it is switched off.
    next_at: float | None
    #: Until when the last one told.
    last_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a schedule."""

    title: str
    #: As in `runs.Fire`.
    status: str
    note: str
    session: str | None
    #: Epoch seconds when it was due.
    due: float
    #: US dollars; 0 when no price is known.
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """A turn that no schedule began and that ended with an error."""

    session: str
    home: str
    text: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What happened from `since` to `until`, and what waits now."""

    since: float
    until: float
    runs: Sequence[Run] = ()
    #: Turns that no schedule began, and in how many sessions.
    turns: int = 0
    sessions: int = 0
    errors: Sequence[Error] = ()
    #: Prompts that wait, those of one card together, the oldest first.
    waiting: Sequence[Sequence[Prompt]] = ()
    #: By model, the dearest first.
    usage: Sequence[UsageLine] = ()
    #: Budgets that are used up now, in words.
    spent: Sequence[str] = ()

    @property
    def empty(self) -> bool:
        """True when there is nothing to say."""
        return not (self.runs or self.turns or self.errors or self.waiting or self.usage)


def get(tx: Tx, tenant: str, principal: str) -> Digest | None:
    """Return when the person's digest comes; None: nobody ever said, and none does."""
    row = tx.one("digest_get", tenant=tenant, principal=principal)
    return None if row is None else _digest(row)


def put(tx: Tx, tenant: str, principal: str, minute: int | None, zone: str, now: float) -> Digest:
    """Have the digest come daily at this minute of the day, or never (None); return it."""
    before = get(tx, tenant, principal)
    kept = EVENING if before is None else before.minute
    tx.run(
        "digest_put",
        tenant=tenant,
        principal=principal,
        minute=kept if minute is None else minute,
        zone=zone,
        next=None if minute is None else _next(minute, zone, now),
        now=now,
    )
    found = get(tx, tenant, principal)
    assert found is not None, "a row that was just written is there"
    return found


def begin(tx: Tx, tenant: str, principal: str, zone: str, now: float) -> None:
    """Let the digest come in the evening, unless the person has ever said when, or not at all.

    `zone` is the house's; a zone the person named goes before it.
    """
    if get(tx, tenant, principal) is None:
        own = people.zone_of(tx, tenant, principal)
        put(tx, tenant, principal, EVENING, own or zone, now)


def move(tx: Tx, tenant: str, principal: str, zone: str, now: float) -> None:
    """The person lives in another zone from now on."""
    found = get(tx, tenant, principal)
    if found is not None and found.next_at is not None:
        put(tx, tenant, principal, found.minute, zone, now)


def claim(tx: Tx, tenant: str, principal: str, now: float) -> Digest | None:
    """Take the digest that is due and set the next; None: it is not due, or another has it.

    What is returned is the row before: `last_at` is where this one begins.
    """
    found = get(tx, tenant, principal)
    if found is None or found.next_at is None or found.next_at > now:
        return None
    following = _next(found.minute, found.zone, now)
    claimed = tx.run(
        "digest_claim",
        tenant=tenant,
        principal=principal,
        due=found.next_at,
        next=following,
        now=now,
    )
    return found if claimed else None


def tell(tx: Tx, tenant: str, who: inbox.Person, since: float, until: float) -> Told:
    """Return what happened in that time, and what waits that `who` may see."""
    asked: Mapping[str, object] = {"tenant": tenant, "since": since, "until": until}
    turned = tx.one("digest_turns", **asked)
    runs = [_run(row) for row in tx.all("digest_fires", **asked, limit=LIMIT)]
    fired = {run.session for run in runs}
    errors = [_error(row) for row in tx.all("digest_errors", **asked, limit=LIMIT)]
    waiting = [each for each in inbox.pending(tx, tenant, LIMIT) if inbox.may_see(each, who)]
    return Told(
        since=since,
        until=until,
        runs=runs,
        turns=0 if turned is None else int(turned["turns"]),
        sessions=0 if turned is None else int(turned["sessions"]),
        errors=[each for each in errors if each.session not in fired],
        waiting=list(inbox.choices(waiting).values()),
        usage=usage.by(tx, "model", tenant, since, until),
        spent=[
            f"{each.budget} for {budgets.whose(tx, each.budget)}"
            for each in budgets.listed(tx, tenant, who, until)
            if each.state
        ],
    )


def _next(minute: int, zone: str, after: float) -> float:
    return next_fire(f"{minute % 60} {minute // 60} * * *", zone, after)


def _digest(row: Row) -> Digest:
    return Digest(
        principal=row["principal_id"],
        minute=row["minute"],
        zone=row["zone"],
        next_at=row["next_at"],
        last_at=row["last_at"],
    )


def _run(row: Row) -> Run:
    return Run(
        title=row["title"] or "a removed schedule",
        status=row["status"],
        note=row["note"],
        session=row["session_id"],
        due=row["due"],
        cost=float(row["cost"] or 0.0),
    )


def _error(row: Row) -> Error:
    body = loads(row["body"])
    return Error(session=row["session_id"], home=row["home"], text=body["text"], at=row["at"])
