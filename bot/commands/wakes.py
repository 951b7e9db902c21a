"""The command that shows when Nod goes on by itself in which session, and calls that off."""

from __future__ import annotations

from bot.commands.base import Command, Context
from bot.markup import code, cut, plain
from engine import people
from engine.errors import NodError, ScheduleError
from engine.schedule import wakes
from engine.schedule.cron import in_zone
from engine.schedule.wakes import Wake
from engine.store.base import Tx

__all__ = ["WAKES"]


async def _wakes(context: Context, given: list[str]) -> str:
    if given and (len(given) != 2 or given[0] != "cancel"):
        raise NodError("/wakes was not understood.", f"Write: /wakes {WAKES.usage}")
    if given:
        return await context.store.write(lambda tx: _cancel(tx, context, given[1].strip("`")))
    lines = await context.store.read(lambda tx: _lines(tx, context))
    return "\n".join(lines) or "Nothing is to go on by itself."


def _lines(tx: Tx, context: Context) -> list[str]:
    zone = people.zone_of(tx, context.tenant, context.person.id) or context.zone
    whose = "" if context.person.role in ("operator", "owner") else context.person.id
    found = wakes.waiting(tx, context.tenant, whose)
    more = [f"These are the next {wakes.LISTED}."] if len(found) == wakes.LISTED else []
    return [*(_line(each, zone) for each in found), *more]


def _line(wake: Wake, zone: str) -> str:
    at = in_zone(wake.due, zone)
    when = f"when {code(wake.event)} comes, until {at}" if wake.event else at
    tried = f", tried {wake.tries} times" if wake.tries else ""
    return (
        f"`{wake.id}` {when}, in session {wake.session}{tried}: {cut(plain(wake.note), 100, 1)[0]}"
    )


def _cancel(tx: Tx, context: Context, start: str) -> str:
    found = wakes.find(tx, context.tenant, start)
    if not _may(context, found):
        raise ScheduleError("This wake is in somebody else's session.", "Ask them, or an owner.")
    if not wakes.cancel(tx, found, context.person.id, context.house.now()):
        raise ScheduleError("This wake has come.")
    return f"Wake {found.id} is called off: session {found.session} does not go on by itself."


def _may(context: Context, wake: Wake) -> bool:
    return wake.owner == context.person.id or context.person.role in ("operator", "owner")


WAKES = Command(
    name="wakes",
    usage="[cancel ID]",
    help="when I go on by myself, at a time or on an event, and calling that off",
    run=_wakes,
    most=2,
)
