"""The command that says how much may be spent: typed as people say it, listed, removed."""

from __future__ import annotations

import re
import shlex

from bot.commands.base import Command, Context
from bot.markup import code, plain
from engine import budgets, people
from engine.budgets import Limits, Standing, amount
from engine.errors import NodError
from engine.models.base import ModelError
from engine.schedule import schedules
from engine.store.base import Tx

__all__ = ["BUDGET", "lines"]

_EXAMPLES = (
    "Write for example: /budget me $5 a day, /budget all $50 a month, stop at $80, "
    "/budget here 200k tokens a day, /budget schedule ID stop at $0.50 a run"
)
_NUMBER = (
    r"(?:\$\s?\d[\d,]*(?:\.\d+)?|\d[\d,]*(?:\.\d+)?[km]?(?:\s?(?:usd|dollars?|tokens?|calls?)))"
)
_SAID = re.compile(
    rf"(?:(?P<soft>{_NUMBER}))?"
    rf"(?:,?\s*(?:and\s+)?stop at (?P<first>{_NUMBER}))?"
    r"\s+(?:a|an|per|each|every)\s+(?P<period>day|month|run)"
    rf"(?:,?\s*(?:and\s+)?stop at (?P<hard>{_NUMBER}))?",
    re.IGNORECASE,
)
_UNITS = {"usd": "money", "dollar": "money", "token": "tokens", "call": "calls"}
_THOUSANDS = {"k": 1_000, "m": 1_000_000}


async def _budget(context: Context, given: list[str]) -> str:
    verb, _, rest = (given[0] if given else "list").partition(" ")
    if verb == "list" and not rest:
        found = await context.store.read(lambda tx: lines(tx, context))
        return "\n".join(found) or f"There are no budgets. {_EXAMPLES}"
    if verb == "remove":
        start = _unquoted(rest)
        told, moved = await context.store.write(lambda tx: _remove(tx, context, start))
        return _gone_on(context, told, moved)
    said = f"{verb} {rest}" if verb != "set" else _unquoted(rest)
    told, moved = await context.store.write(lambda tx: _set(tx, context, said.strip()))
    return _gone_on(context, told, moved)


def _gone_on(context: Context, told: str, moved: list[str]) -> str:
    """Wake what is to look at its budgets again; return what is told."""
    for session in moved:
        context.enqueue(session)
    context.poke()  # cards may have been decided
    return told


def _unquoted(said: str) -> str:
    """Return what a shell quoted as it was meant."""
    try:
        return " ".join(shlex.split(said))
    except ValueError:  # an apostrophe in prose is no quote
        return said


def lines(tx: Tx, context: Context) -> list[str]:
    """Return a line for each budget the person may see, with how it stands now."""
    found = budgets.listed(tx, context.tenant, context.person, context.house.now())
    return [_line(tx, each) for each in found]


def _line(tx: Tx, found: Standing) -> str:
    budget = found.budget
    line = f"{budget.id}  {plain(budgets.whose(tx, budget))}: {budget}"
    if budget.period == "run":
        return line
    extra = f", extended by {amount(found.extra, budget.unit)}" if found.extra else ""
    state = {"hard": ", used up: turns end", "soft": ", used up: turns ask", "": ""}[found.state]
    line += f" · {found.period}: {amount(found.used, budget.unit)}{extra}{state}"
    if budget.unit == "money" and found.spent.unpriced:
        line += f" · {found.spent.unpriced} calls of unknown price are not counted"
    return line


def _remove(tx: Tx, context: Context, start: str) -> tuple[str, list[str]]:
    """Remove a budget; return what is told, and the sessions that waited for it."""
    budget, now = budgets.find(tx, context.tenant, start), context.house.now()
    budgets.remove(tx, budget, context.person, now)
    told = f"The budget of {budget} for {plain(budgets.whose(tx, budget))} is removed."
    return told, budgets.release(tx, budget, context.person, context.surface, now)


def _set(tx: Tx, context: Context, said: str) -> tuple[str, list[str]]:
    """Set what was said; return what is told, and the sessions that are to look at it."""
    scope, thing, rest = _thing(tx, context, said)
    limits = understood(rest)
    budget = budgets.put(
        tx,
        context.tenant,
        scope,
        thing,
        limits,
        zone=context.zone,
        by=context.person,
        now=context.house.now(),
    )
    told = f"{budget} for {plain(budgets.whose(tx, budget))} ({budget.id}), in {budget.zone}."
    waited = budgets.release(tx, budget, context.person, context.surface, context.house.now())
    return f"{told}{_unpriced(context, limits)}", waited + budgets.stir(tx, context.tenant)


def _unpriced(context: Context, limits: Limits) -> str:
    model = context.house.defaults.model
    try:
        known = context.catalogue.entry(model).price is not None
    except ModelError:
        known = True
    if limits.unit != "money" or known:
        return ""
    return (
        f"\nNo price is known for {code(model)}, so its calls are not counted in dollars: set a "
        "price in the model catalogue, or a budget in tokens or calls."
    )


def _thing(tx: Tx, context: Context, said: str) -> tuple[str, str, str]:
    """Return whom or what the budget is for, and the rest of what was said."""
    word, _, rest = said.partition(" ")
    if word in ("all", "everything"):
        return "tenant", "", rest
    if word == "me":
        return "person", context.person.id, rest
    if word == "here":
        return "channel", budgets.channel_of(context.target), rest
    if word == "schedule":
        start, _, rest = rest.strip().partition(" ")
        return "schedule", schedules.find(tx, context.tenant, start).id, rest
    if re.match(r"[a-z]+:\S", word):
        return "channel", budgets.channel_of(word), rest
    if re.match(r"[$\d]|stop\b", word):
        raise NodError("I do not see for whom this budget is.", _EXAMPLES)
    name = word.removeprefix("@")
    known = people.listed(tx, context.tenant)
    found = [each for each in known if name == each.id or name.casefold() == each.name.casefold()]
    if len(found) != 1:
        what = "Several people are" if found else "Nobody is"
        raise NodError(f"{what} called {plain(name)[:40]}.", f"See /whoami. {_EXAMPLES}")
    return "person", found[0].id, rest


def understood(said: str) -> Limits:
    """Return the limits in "$5 a day, stop at $8"; raises NodError when it is none."""
    found = _SAID.fullmatch(said.strip())
    if found is None or (found["first"] and found["hard"]):
        raise NodError("I do not see how much may be spent, and in what time.", _EXAMPLES)
    soft = _read(found["soft"]) if found["soft"] else None
    hard = found["first"] or found["hard"]
    stop = _read(hard) if hard else None
    units = {each[1] for each in (soft, stop) if each is not None}
    if len(units) != 1:
        raise NodError("A budget is in one unit: dollars, tokens or calls.", _EXAMPLES)
    return Limits(
        unit=units.pop(),
        period=found["period"].lower(),
        soft=soft[0] if soft else None,
        hard=stop[0] if stop else None,
    )


def _read(said: str) -> tuple[float, str]:
    """Return a number and its unit."""
    text = said.lower().replace(",", "").replace(" ", "")
    if text.startswith("$"):
        return float(text[1:]), "money"
    number = re.match(r"([\d.]+)([km]?)(usd|dollar|token|call)", text)
    assert number is not None, "the pattern of a budget lets nothing else through"
    return float(number[1]) * _THOUSANDS.get(number[2], 1), _UNITS[number[3]]


BUDGET = Command(
    name="budget",
    usage="[list | WHO AMOUNT a day|month|run, stop at AMOUNT | remove ID]",
    help="how much may be spent: WHO is me, all, here, @PERSON or schedule ID",
    run=_budget,
    most=1,
    whole=True,
)
