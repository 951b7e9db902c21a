"""Budgets: how much money, tokens or calls may be spent, and what was spent so far.

What a turn spends is added to one row for each budget and period, in the transaction that stores
its usage, so the sum never grows with the history. It is looked at right before a model call: at
the soft limit a person is asked, at the hard limit the turn ends. Turns that call their models at
the same moment see the same sum, so a limit is passed by at most one call of each turn at work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from engine import audit, inbox, people
from engine.clock import mint
from engine.errors import NodError
from engine.inbox import Person, Prompt
from engine.sessions import Session
from engine.store.base import Row, Tx
from engine.targets import ThreadTarget

__all__ = [
    "PERIODS",
    "SCOPES",
    "UNITS",
    "Budget",
    "Limits",
    "Spent",
    "Standing",
    "amount",
    "answered",
    "card",
    "channel_of",
    "charge",
    "find",
    "for_schedule",
    "listed",
    "over",
    "put",
    "release",
    "remove",
    "schedule_removed",
    "standing",
    "stir",
    "whose",
]

SCOPES = ("tenant", "person", "channel", "schedule")
PERIODS = ("day", "month", "run")
UNITS = ("money", "tokens", "calls")

#: What an extension adds, and what a raise makes of the soft limit, as shares of it.
EXTENSION, RAISE = 0.5, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One budget, as its row says."""

    id: str
    tenant: str
    #: tenant, person, channel or schedule.
    scope: str
    #: The principal, channel (a thread_target's first parts) or schedule; empty for the tenant.
    thing: str
    #: day, month, or run (of a schedule).
    period: str
    #: money (US dollars), tokens or calls.
    unit: str
    soft: float | None
    hard: float | None
    #: The zone in which days and months are counted.
    zone: str
    #: The principal who set it.
    owner: str

    def __str__(self) -> str:
        end = f"stop at {amount(self.hard, self.unit)}" if self.hard is not None else ""
        if self.soft is None:
            return f"{end} a {self.period}"
        return f"{amount(self.soft, self.unit)} a {self.period}{end and f', {end}'}"

    def period_at(self, at: float, session: str) -> str:
        """Return the name of the period that a call of `session` at `at` counts in."""
        if self.period == "run":
            return session
        day = datetime.fromtimestamp(at, ZoneInfo(self.zone))
        return f"{day:%Y-%m-%d}" if self.period == "day" else f"{day:%Y-%m}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a budget is to be: a soft limit, a hard one, or both."""

    unit: str
    period: str
    soft: float | None = None
    hard: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What was spent in one period."""

    calls: int = 0
    tokens: int = 0
    #: US dollars of the calls whose price is known.
    cost: float = 0.0
    #: Calls whose price is unknown.
    unpriced: int = 0

    def of(self, unit: str) -> float:
        """Return how much of a budget in this unit it is."""
        return {"money": self.cost, "tokens": self.tokens, "calls": self.calls}[unit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a budget stands in one period."""

    budget: Budget
    period: str
    spent: Spent
    #: By how much the soft limit was extended for this period.
    extra: float = 0.0

    @property
    def used(self) -> float:
        """What was spent, in the budget's own unit."""
        return self.spent.of(self.budget.unit)

    @property
    def state(self) -> str:
        """Return 'hard' or 'soft' when that limit is reached, else ''."""
        hard, soft = self.budget.hard, self.budget.soft
        if hard is not None and self.used >= hard:
            return "hard"
        return "soft" if soft is not None and self.used >= soft + self.extra else ""


def amount(value: float, unit: str) -> str:
    """Return an amount in words: $1.50, 20,000 tokens, 40 calls."""
    if unit == "money":
        if value >= 1 or round(value, 2) == value:
            return f"${value:,.2f}"
        return f"${Decimal(f'{value:.4g}'):f}"  # four digits, and never an exponent
    return f"{value:,.0f} {unit if value != 1 else unit[:-1]}"


def channel_of(home: str) -> str:
    """Return the channel of a thread_target: it without the part that names a thread."""
    target = ThreadTarget.parse(home)
    if target.surface == "console":
        return "console"
    return str(ThreadTarget(surface=target.surface, path=target.path[:2]))


# -- the rows


def put(
    tx: Tx,
    tenant: str,
    scope: str,
    thing: str,
    limits: Limits,
    *,
    zone: str,
    by: Person,
    now: float,
) -> Budget:
    """Set a budget, or change the one of the same thing, period and unit; return it.

    What was spent in the period that runs counts. Everybody may set one for themselves and for
    their own schedules, unless somebody else has set it; all others are the owner's. Raises
    NodError.
    """
    _check(scope, limits)
    key = {
        "tenant": tenant,
        "scope": scope,
        "thing": thing,
        "period": limits.period,
        "unit": limits.unit,
    }
    before = tx.one("budget_of", **key)
    _may_set(tx, scope, thing, by, "" if before is None else str(before["owner_id"]))
    tx.run(
        "budget_put",
        **key,
        id=mint("b"),
        soft=limits.soft,
        hard=limits.hard,
        zone=zone,
        owner=by.id,
        now=now,
    )
    row = tx.one("budget_of", **key)
    assert row is not None, "a budget that was just set is there"
    made = _budget(row)
    if before is None:
        _count_back(tx, made, now)
    _note(tx, made, "budgeted", by.id, str(made), now)
    return made


def stir(tx: Tx, tenant: str) -> list[str]:
    """Let turns that are at work see a budget that was just set; return their sessions, to hint."""
    return [str(row["id"]) for row in tx.all("budget_stir", tenant=tenant)]


def _check(scope: str, limits: Limits) -> None:
    if scope not in SCOPES or limits.period not in PERIODS or limits.unit not in UNITS:
        raise NodError("There is no such budget.", "See /help.")
    if (limits.period == "run") and scope != "schedule":
        raise NodError("Only a schedule has runs.", "Write a day or a month.")
    given = [each for each in (limits.soft, limits.hard) if each is not None]
    if not given or min(given) <= 0:
        raise NodError("A budget needs an amount above zero.", "Write for example $5 a day.")
    if limits.soft is not None and limits.hard is not None and limits.hard < limits.soft:
        raise NodError("It would stop before it asks.", "Stop at more than it asks at.")


def _may_set(tx: Tx, scope: str, thing: str, by: Person, owner: str) -> None:
    if by.role == "owner":
        return
    own = scope == "person" and thing == by.id
    if scope == "schedule":
        row = tx.one("schedule_get", id=thing)
        own = row is not None and row["owner_id"] == by.id
    if not own:
        raise NodError("This budget is not yours to set.", "Ask an owner.")
    if owner not in ("", by.id):
        raise NodError("Somebody else has set this budget.", "Ask an owner.")


def _count_back(tx: Tx, budget: Budget, now: float) -> None:
    """Count what was spent in the running period before the budget was there."""
    if budget.period == "run":
        return
    day = datetime.fromtimestamp(now, ZoneInfo(budget.zone))
    since = day.replace(hour=0, minute=0, second=0, microsecond=0)
    if budget.period == "month":
        since = since.replace(day=1)
    row = tx.one(
        "spent_since",
        tenant=budget.tenant,
        scope=budget.scope,
        thing=budget.thing,
        under=f"{budget.thing}{':' if budget.thing == 'console' else '/'}%",
        since=since.timestamp(),
    )
    if row is not None and row["calls"]:
        spent = Spent(
            calls=int(row["calls"]),
            tokens=int(row["tokens"]),
            cost=float(row["cost"]),
            unpriced=int(row["unpriced"]),
        )
        _add(tx, budget, budget.period_at(now, ""), spent, now)


def listed(tx: Tx, tenant: str, by: Person, now: float) -> list[Standing]:
    """Return how the budgets stand that the person may see: all for operators, else their own."""
    found = [_budget(row) for row in tx.all("budget_list", tenant=tenant)]
    rank = inbox.ROLES.index(by.role)
    if rank < inbox.ROLES.index("operator"):
        found = [each for each in found if each.owner == by.id or each.thing == by.id]
    return [_standing(tx, each, each.period_at(now, "")) for each in found]


def find(tx: Tx, tenant: str, start: str) -> Budget:
    """Return the one budget whose id begins with `start`; raises NodError otherwise."""
    prefix = start.strip("`").replace("%", "").replace("_", "")
    if not prefix:
        raise NodError("Say which budget, by its id.", "List them with /budget.")
    rows = tx.all("budget_find", tenant=tenant, prefix=f"{prefix}%")
    if len(rows) != 1:
        what = "More than one budget" if rows else "No budget"
        raise NodError(f"{what} has an id that begins with '{start}'.", "List them with /budget.")
    return _budget(rows[0])


def remove(tx: Tx, budget: Budget, by: Person, now: float) -> None:
    """Remove the budget. Raises NodError when it is neither the person's nor they an owner."""
    if by.role != "owner" and budget.owner != by.id:
        raise NodError("This budget is not yours to remove.", "Ask an owner.")
    tx.run("budget_remove", id=budget.id)
    tx.run("spendings_drop", budget=budget.id)
    _note(tx, budget, "budget removed", by.id, str(budget), now)


def schedule_removed(tx: Tx, tenant: str, schedule: str) -> None:
    """Remove the budgets of a schedule that is removed."""
    for budget in for_schedule(tx, tenant, schedule):
        tx.run("budget_remove", id=budget.id)
        tx.run("spendings_drop", budget=budget.id)


def for_schedule(tx: Tx, tenant: str, schedule: str) -> list[Budget]:
    """Return the budgets of a schedule's own, for those who are shown it; `str()` says each."""
    rows = tx.all("budget_list", tenant=tenant)
    return [_budget(r) for r in rows if r["scope"] == "schedule" and r["thing"] == schedule]


# -- spending


def charge(tx: Tx, session: Session, usages: Iterable[Mapping[str, Any]], now: float) -> None:
    """Add what calls of the session used to every budget they count in.

    In the transaction that stores their usage. Each of `usages` is a fact's body: usage and cost.
    """
    spent = [_spent(each) for each in usages]
    if not spent:
        return
    total = Spent(
        calls=len(spent),
        tokens=sum(each.tokens for each in spent),
        cost=sum(each.cost for each in spent),
        unpriced=sum(each.unpriced for each in spent),
    )
    for budget in _on(tx, session):
        _add(tx, budget, budget.period_at(now, session.id), total, now)


def standing(tx: Tx, session: Session, now: float) -> list[Standing]:
    """Return how every budget stands that the session's next call counts in."""
    return [_standing(tx, each, each.period_at(now, session.id)) for each in _on(tx, session)]


def _on(tx: Tx, session: Session) -> list[Budget]:
    rows = tx.all(
        "budgets_on",
        tenant=session.tenant,
        person=session.owner,
        channel=channel_of(session.home),
        session=session.id,
    )
    return [_budget(row) for row in rows]


def _standing(tx: Tx, budget: Budget, period: str) -> Standing:
    row = tx.one("spending_get", budget=budget.id, period=period)
    if row is None:
        return Standing(budget=budget, period=period, spent=Spent())
    spent = Spent(
        calls=int(row["calls"]),
        tokens=int(row["tokens"]),
        cost=float(row["cost"]),
        unpriced=int(row["unpriced"]),
    )
    return Standing(budget=budget, period=period, spent=spent, extra=float(row["extra"]))


def _spent(body: Mapping[str, Any]) -> Spent:
    usage, cost = body["usage"], body.get("cost")
    return Spent(
        tokens=usage["input"] + usage["output"], cost=cost or 0.0, unpriced=int(cost is None)
    )


def _add(tx: Tx, budget: Budget, period: str, spent: Spent, now: float) -> None:
    tx.run(
        "spending_add",
        tenant=budget.tenant,
        budget=budget.id,
        period=period,
        calls=spent.calls,
        tokens=spent.tokens,
        cost=spent.cost,
        unpriced=spent.unpriced,
        now=now,
    )


# -- the card at the soft limit


def over(found: Sequence[Standing]) -> Standing | None:
    """Return the standing that holds the next call back, a hard limit first; None: it may go."""
    for state in ("hard", "soft"):
        for each in found:
            if each.state == state:
                return each
    return None


def whose(tx: Tx, budget: Budget) -> str:
    """Return in words whom or what the budget is for."""
    if budget.scope == "tenant":
        return "everything"
    if budget.scope == "person":
        person = people.get(tx, budget.tenant, budget.thing)
        return f"@{person.name if person else budget.thing}"
    if budget.scope == "schedule":
        row = tx.one("schedule_get", id=budget.thing)
        return f"the schedule '{row['title'] if row is not None else budget.thing}'"
    return budget.thing


def card(tx: Tx, found: Standing, subject: str, attended: bool) -> dict[str, Any]:
    """Return the payload of the card that asks whether more may be spent."""
    budget, unit = found.budget, found.budget.unit
    assert budget.soft is not None, "only a soft limit asks"
    extra, raised = EXTENSION * budget.soft, max(RAISE * budget.soft, found.used * 1.5)
    if unit != "money":
        extra, raised = math.ceil(extra), math.ceil(raised)
    when = {"day": "today", "month": "this month", "run": "in this run"}[budget.period]
    limit = amount(budget.soft + found.extra, unit)
    text = f"Spent so far: {amount(found.used, unit)} of {limit}."
    if budget.hard is not None:
        text += f" At {amount(budget.hard, unit)} turns end."
    return {
        "card": subject,
        "title": "A budget is used up",
        "text": f"{text} Nothing goes on here before somebody answers.",
        "facts": [["Budget", f"{budget} for {whose(tx, budget)}"], ["Counted", found.period]],
        "attended": attended,
        "budget": {
            "id": budget.id,
            "period": found.period,
            "extra": extra,
            "raised": raised,
            "extend": f"Go on: {amount(extra, unit)} more {when}",
            "raise": f"Raise it to {amount(raised, unit)} a {budget.period}",
        },
    }


def answered(tx: Tx, prompt: Prompt, by: Person, now: float) -> list[str]:
    """Do what a yes on the card means, for all cards about this budget; return their sessions."""
    asked, answer = prompt.payload["budget"], prompt.answer or {}
    row = tx.one("budget_get", id=asked["id"])
    if answer["kind"] != "approve":
        return []
    if row is not None:
        found = _standing(tx, _budget(row), asked["period"])
        _more(tx, found, asked, bool(answer.get("raise")), by, now)
    return _let_go(tx, prompt.tenant, asked["id"], answer, by, prompt.resolved_on, now)


def release(tx: Tx, budget: Budget, by: Person, surface: str, now: float) -> list[str]:
    """Let turns that wait on a card look again: their budget was changed or removed.

    Return their sessions, to be woken; one that is over the new limit asks anew.
    """
    answer = {"kind": "approve", "raise": True}
    return _let_go(tx, budget.tenant, budget.id, answer, by, surface, now)


def _let_go(
    tx: Tx,
    tenant: str,
    budget: str,
    answer: Mapping[str, Any],
    by: Person,
    surface: str,
    now: float,
) -> list[str]:
    moved = []
    for row in tx.all("budget_cards", tenant=tenant, prefix=f"budget:{budget}:%"):
        waiting = inbox.prompt_from(row)
        if inbox.may_answer(waiting, by):
            inbox.resolve(tx, waiting.id, answer, by, surface, now)
            moved += [waiting.session] if waiting.session else []
    return moved


def _more(
    tx: Tx, found: Standing, asked: Mapping[str, Any], lifts: bool, by: Person, now: float
) -> None:
    """Raise the budget for good, or let more be spent in this period, counted from now."""
    budget, soft = found.budget, found.budget.soft or 0.0
    if lifts:
        hard = None if budget.hard is None else max(budget.hard, asked["raised"])
        tx.run("budget_limits", id=budget.id, soft=asked["raised"], hard=hard)
        _note(tx, budget, "budget raised", by.id, amount(asked["raised"], budget.unit), now)
        return
    extra = max(found.used - soft, found.extra) + asked["extra"]
    tx.run("spending_extend", budget=budget.id, period=found.period, extra=extra)
    _note(tx, budget, "budget extended", by.id, amount(asked["extra"], budget.unit), now)


def _note(tx: Tx, budget: Budget, kind: str, by: str, outcome: str, now: float) -> None:
    entry = audit.Entry(kind=kind, actor=by, subject=budget.id, outcome=outcome)
    audit.append(tx, budget.tenant, audit.tenant_chain(budget.tenant), [entry], now)


def _budget(row: Row) -> Budget:
    return Budget(
        id=row["id"],
        tenant=row["tenant_id"],
        scope=row["scope"],
        thing=row["thing"],
        period=row["period"],
        unit=row["unit"],
        soft=row["soft"],
        hard=row["hard"],
        zone=row["zone"],
        owner=row["owner_id"],
    )
