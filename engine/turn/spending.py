"""Weighs the next model call against the budgets, and says what a call used that gave no answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine import budgets, inbox, people
from engine.budgets import Standing
from engine.clock import mint
from engine.events import Event, Kind
from engine.inbox import DEADLINE, REMINDER
from engine.models import content
from engine.models.base import ModelError, Request, Usage
from engine.models.usage import cost
from engine.sessions import Session
from engine.store.base import Tx
from engine.turn.ingest import Pieces
from engine.turn.ports import Engine
from engine.turn.state import State

__all__ = ["SPENT", "lost", "spent_in", "weigh"]

#: What the ERROR of a turn that a hard limit ended is called.
SPENT = "BudgetSpent"


def spent_in(facts: Sequence[Event]) -> bool:
    """Say whether a model call is among the facts."""
    return any("usage" in fact.body for fact in facts)


def weigh(engine: Engine, session: Session, state: State, tx: Tx) -> list[tuple[Kind, Any]]:
    """Return the facts that hold the next model call back, or go before it; mostly none.

    At a hard limit an ERROR, at a soft one the card. A NOTICE tells, at the first such call of a
    period, of a budget in money that cannot count a model whose price is unknown.
    """
    now = engine.now()
    found = budgets.standing(tx, session, now)
    first = budgets.over(found)
    if first is None:
        return [(Kind.NOTICE, {"text": text}) for text in _uncounted(engine, session, found)]
    if first.state == "hard":
        return [(Kind.ERROR, {"text": _ended(tx, first), "error_type": SPENT})]
    return [(Kind.PERMISSION_REQUIRED, {"prompt": _asked(tx, session, state, first, now)})]


def _ended(tx: Tx, found: Standing) -> str:
    budget = found.budget
    limit = budgets.amount(budget.hard or 0.0, budget.unit)
    for_whom = budgets.whose(tx, budget)
    when = {"day": "tomorrow", "month": "next month", "run": "the next run"}[budget.period]
    return (
        f"The budget for {for_whom} is spent: {budgets.amount(found.used, budget.unit)} of {limit} "
        f"a {budget.period}. Wait for {when}, or have it raised: see /budget ({budget.id})."
    )


def _asked(tx: Tx, session: Session, state: State, found: Standing, now: float) -> dict[str, Any]:
    """Return the prompt; where the person of the session may not answer, it goes to the owner."""
    subject = f"budget:{found.budget.id}:{session.id}/{state.turn}/{mint('')}"
    approvers = {
        "role": "owner",
        "person": session.owner,
        "own_suffices": found.budget.owner == session.owner,
    }
    prompt = inbox.Prompt(
        id=mint("p"),
        tenant=session.tenant,
        session=session.id,
        kind="grant",
        subject=subject,
        approvers=approvers,
    )
    person = people.get(tx, session.tenant, session.owner)
    able = person is not None and inbox.may_answer(prompt, person)
    return {
        "id": prompt.id,
        "kind": prompt.kind,
        "subject": subject,
        "payload": budgets.card(tx, found, subject, state.attended and able),
        "approvers": approvers,
        "remind_at": now + REMINDER,
        "deadline": now + DEADLINE,
    }


def _uncounted(engine: Engine, session: Session, found: Sequence[Standing]) -> list[str]:
    if not any(each.budget.unit == "money" and not each.spent.unpriced for each in found):
        return []
    try:
        entry = engine.catalogue.entry(session.model)
    except ModelError:
        return []  # the call itself says so
    if entry.price is not None:
        return []
    return [
        f"No price is known for {entry.id}, so its calls are not counted in the budget in dollars. "
        "Set a price in the model catalogue, or a budget in tokens or calls."
    ]


def lost(
    engine: Engine, request: Request | None, pieces: Pieces, why: str
) -> dict[str, Any] | None:
    """Return the body of the SPENT fact of a call that was stopped or failed; None: none was made.

    What the provider told is taken; the rest is estimated. A call that failed before its first
    token counts as a call, without tokens: no provider asks money for it.
    """
    if request is None:
        return None
    entry = engine.catalogue.entry(request.model)
    told = pieces.usage or Usage()
    usage = Usage()
    if why == "stopped" or pieces.text or pieces.reasoning:
        sent = told.input or sum(map(content.estimate, request.messages))
        said = (len(pieces.text) + len(pieces.reasoning) + 3) // 4
        usage = Usage(
            input=sent,
            output=max(told.output, said),
            cache_read=told.cache_read,
            cache_write=told.cache_write,
        )
    return {
        "usage": {
            "input": usage.input,
            "output": usage.output,
            "cache_read": usage.cache_read,
            "cache_write": usage.cache_write,
        },
        "cost": cost(usage, entry.price) if usage != Usage() else 0.0,
        "model": entry.id,
        "purpose": why,
        "estimated": True,
    }
