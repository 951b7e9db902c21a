"""The command that shows what was used: today, this month, by model, schedule and person."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from bot.commands import budgets as budget_commands
from bot.commands import usage_text
from bot.commands.base import Command, Context
from engine import people
from engine.canonical import digest, dumps
from engine.clock import mint
from engine.errors import NodError
from engine.inbox import DAY
from engine.models import usage
from engine.models.usage import UsageLine
from engine.store.base import Tx

__all__ = ["USAGE"]

#: Days that bars are shown for, and lines of a table in a chat.
DAYS, LINES = 14, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What was used, as the person may see it."""

    totals: Sequence[UsageLine]
    #: Each with its heading.
    tables: Sequence[tuple[str, Sequence[UsageLine]]]
    days: Sequence[UsageLine]
    budgets: Sequence[str]
    #: thread_target where a picture goes; empty: nowhere.
    place: str


async def _usage(context: Context, given: list[str]) -> str:
    if given:
        return await _since(context, given[0])
    found = await context.store.read(lambda tx: _look(tx, context))
    parts = ["\n".join(f"{line.key}: {usage_text.summed(line)}" for line in found.totals)]
    for heading, lines in found.tables:
        more = [f"… {len(lines) - LINES} more: nod usage"] if len(lines) > LINES else []
        parts.append(_fenced([*usage_text.table(lines[:LINES], heading), *more]))
    if found.days:
        parts.append(_fenced([f"The last {DAYS} days", *usage_text.bars(found.days)]))
    if found.budgets:
        parts.append("\n".join(["Budgets:", *found.budgets]))
    if found.place and found.days:
        parts.append(await _plot(context, found))
    return "\n\n".join(parts)


async def _since(context: Context, said: str) -> str:
    days = _days(said)
    now = context.house.now()
    lines = await context.store.read(
        lambda tx: usage.by(tx, "model", context.tenant, now - days * DAY, now + 1, _whose(context))
    )
    return _fenced(usage_text.table(lines, "model"))


def _days(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 3650:
        raise NodError(f"'{text}' is no number of days.", "Write 1 to 3650.")
    return int(text)


def _whose(context: Context) -> str:
    """Return whose usage the person may see: their own, or, empty, everybody's."""
    return "" if context.person.role in ("operator", "owner") else context.person.id


def _look(tx: Tx, context: Context) -> _Found:
    tenant, zone, now, whose = context.tenant, context.zone, context.house.now(), _whose(context)
    day, month = usage.begun(now, zone)
    until = now + 1
    at = datetime.fromtimestamp(now, ZoneInfo(zone))
    kinds = ["model", "schedule"] if whose else ["model", "schedule", "person"]
    tables = [(kind, usage.by(tx, kind, tenant, month, until, whose)) for kind in kinds]
    return _Found(
        totals=[
            usage.total(tx, tenant, day, until, whose, f"Today, {at:%a %d %b} ({zone})"),
            usage.total(tx, tenant, month, until, whose, f"{at:%B}"),
        ],
        tables=[(f"{kind}, {at:%B}", lines) for kind, lines in tables if lines],
        days=_each_day(tx, tenant, now, zone, whose),
        budgets=budget_commands.lines(tx, context),
        place=_place(tx, context),
    )


def _each_day(tx: Tx, tenant: str, now: float, zone: str, whose: str) -> list[UsageLine]:
    """Return a line for each of the last days since the first call, also for those without one."""
    since, names = usage.days_until(now, zone, DAYS)
    found = {each.key: each for each in usage.by_day(tx, tenant, since, now + 1, zone, whose)}
    first = next((at for at, name in enumerate(names) if name in found), DAYS)
    return [found.get(name, UsageLine(key=name)) for name in names[first:]]


def _place(tx: Tx, context: Context) -> str:
    """Return where the person reads alone on this platform: what was spent is not for all."""
    if context.surface == "console":
        return ""
    places = people.places_of(tx, context.tenant, context.person.id)
    return next((each for each in places if each.startswith(f"{context.surface}:")), "")


async def _plot(context: Context, found: _Found) -> str:
    """Draw the chart and write the delivery row that the presenter uploads it for; say so."""
    from bot.commands import usage_plot

    name = f"plots/usage-{digest(context.person.id)[:12]}.png"
    lines = [replace(each, key=each.key[5:]) for each in found.days]  # the month and day
    title = f"What Nod used in the last {DAYS} days"
    try:
        await asyncio.to_thread(usage_plot.draw, lines, title, context.house.data / name)
    except OSError as error:
        return f"The chart could not be written: {error.strerror or error}."
    now = context.house.now()
    await context.store.write(
        lambda tx: tx.run(
            "delivery_add",
            id=mint("d"),
            tenant=context.tenant,
            session="",
            kind="show",
            subject=f"usage:{mint('')}",
            destination=found.place,
            part=1,
            payload=dumps({"text": "What was used, by day.", "file": name}),
            status="open",
            attempted=None,
            now=now,
        )
    )
    context.poke()
    return "A chart comes in our private messages."


def _fenced(lines: Iterable[str]) -> str:
    """Return lines so that their columns stay below each other."""
    return "\n".join(["```", *lines, "```"])


USAGE = Command(
    name="usage",
    usage="[DAYS]",
    help="what was used: today, this month, by model, schedule and person",
    run=_usage,
    most=1,
)
