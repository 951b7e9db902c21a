"""Standing rules as rows: made by a person, read before judging, used up with the intent.

What a rule covers is decided in `matching.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.canonical import dumps, loads
from engine.clock import mint
from engine.errors import PromptError
from engine.permissions.base import Rule
from engine.permissions.matching import RULED
from engine.store.base import Row, Tx
from engine.tools.base import Risk

__all__ = [
    "StandingRule",
    "list_rules",
    "live_rules",
    "make_rule",
    "of_schedule",
    "revoke",
    "take_use",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingRule:
    """A rule as it is kept, for the person who looks after it."""

    rule: Rule
    #: None: it holds in all sessions of the principal.
    session: str | None
    principal: str
    uses_left: int | None
    expires_at: float | None
    #: Labels of the outside text that was in play and was named when the rule was made.
    made_under: tuple[str, ...]
    created_at: float
    revoked_at: float | None
    #: Holds only in runs of this schedule, and ends with it or its instructions.
    schedule: str | None = None


def live_rules(tx: Tx, tenant: str, session: str, principal: str, now: float) -> tuple[Rule, ...]:
    """Return the rules of `principal` that hold in `session` at `now`, oldest first."""
    rows = tx.all("rules_live", tenant=tenant, session=session, principal=principal, now=now)
    return tuple(_rule(row) for row in rows)


def make_rule(
    tx: Tx,
    *,
    tenant: str,
    session: str | None,
    principal: str,
    tool: str,
    risk: Risk,
    target: Iterable[str],
    uses: int | None,
    expires_at: float | None,
    taint: Iterable[str],
    made_under: Iterable[str],
    now: float,
    schedule: str | None = None,
) -> Rule:
    """Keep the rule "this tool, to exactly this set, needs no asking" and return it.

    `uses` is how often, `expires_at` until when (seconds since the epoch); only a rule that ends
    with its `schedule` may go without (None). `taint` is what the
    session's log holds; each label must be among `made_under`, the labels the card named. Raises
    PromptError when no such rule can be.
    """
    pinned, named = tuple(sorted(set(target))), set(made_under)
    ends = _ends(uses, expires_at, now, schedule)
    if fault := _fault(tool, risk, pinned, ends, sorted(set(taint) - named)):
        raise PromptError(fault, "Allow it once instead.")
    rule = Rule(id=mint("r_"), tool=tool, target=pinned)
    tx.run(
        "rule_add",
        id=rule.id,
        tenant=tenant,
        session=session,
        schedule=schedule,
        principal=principal,
        tool=rule.tool,
        target=dumps(pinned),
        uses=uses,
        expires_at=expires_at,
        made_under=dumps(sorted(named)),
        now=now,
    )
    return rule


def take_use(tx: Tx, rule_id: str) -> bool:
    """Use the rule once; False when it is used up or revoked.

    Belongs in the transaction of the intent it lets through, so that no use is lost or counted
    twice.
    """
    return tx.run("rule_use", id=rule_id) == 1


def revoke(tx: Tx, tenant: str, rule_id: str, now: float) -> bool:
    """End a rule; False when there is none that still stands."""
    return tx.run("rule_revoke", tenant=tenant, id=rule_id, now=now) == 1


def list_rules(tx: Tx, tenant: str) -> list[StandingRule]:
    """Return every rule of the tenant, also the ended ones, oldest first."""
    return [_standing(row) for row in tx.all("rules_listed", tenant=tenant)]


def of_schedule(tx: Tx, schedule: str) -> list[StandingRule]:
    """Return the rules that hold in the runs of this schedule, and nowhere else."""
    return [_standing(row) for row in tx.all("rules_of_schedule", schedule=schedule)]


def _standing(row: Row) -> StandingRule:
    return StandingRule(
        rule=_rule(row),
        session=row["session_id"],
        principal=row["principal_id"],
        uses_left=row["uses_left"],
        expires_at=row["expires_at"],
        made_under=tuple(loads(row["made_under"])),
        created_at=row["created_at"],
        revoked_at=row["revoked_at"],
        schedule=row["schedule_id"],
    )


def _ends(uses: int | None, expires_at: float | None, now: float, schedule: str | None) -> bool:
    """Tell whether the rule has an end, and has not come to it."""
    if uses is None or expires_at is None:
        return bool(schedule)
    return uses >= 1 and expires_at > now


def _fault(tool: str, risk: Risk, target: Sequence[str], ends: bool, unnamed: Sequence[str]) -> str:
    if risk not in RULED:
        return f"{tool} is asked about each time: no standing rule covers it."
    if not target or not all(each.strip() for each in target):
        return "This call names no recipient, so there is nothing a standing rule could pin."
    if not ends:
        return "A standing rule needs a number of uses and a time in the future at which it ends."
    if unnamed:
        return f"The session holds outside text that was not named: {', '.join(unnamed)}."
    return ""


def _rule(row: Row) -> Rule:
    return Rule(id=row["id"], tool=row["tool"], target=tuple(loads(row["target"])))
