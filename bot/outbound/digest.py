"""The daily digest: what ran, what waits, what failed and what it cost, said by the house itself.

It is written as delivery rows in the transaction that takes it, so it is posted once, by whichever
process, also after a crash. Cards that wait and were not yet shown where the digest goes are shown
below it, with their buttons.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from zoneinfo import ZoneInfo

from bot.commands.base import Command, Context
from bot.commands.listings import spoken
from bot.commands.usage_text import dollars, money
from bot.inbound.answers import show_in
from bot.markup import code, cut, plain
from engine import people
from engine.canonical import dumps
from engine.clock import mint
from engine.errors import NodError
from engine.inbox import DAY
from engine.models.usage import UsageLine
from engine.schedule import digests
from engine.schedule.cron import in_zone
from engine.schedule.digests import Run, Told
from engine.schedule.words import time_of_day
from engine.store.base import Tx

__all__ = ["DIGEST", "post", "text"]

#: Lines of each part, and cards shown below it; the commands list the rest.
LINES, CARDS = 8, 5
_CUT = 160  # characters of what went wrong

#: Ends of a run that were not as they should be.
_FAILED = frozenset({"failed", "skipped"})


def post(
    tx: Tx, principal: str, now: float, *, tenant: str, place: Callable[[Tx, str], str]
) -> None:
    """Write the digest that is due for the person, if there is anything to say.

    `place` returns the thread_target in which somebody reads alone.
    """
    due = digests.claim(tx, tenant, principal, now)
    who = people.get(tx, tenant, principal)
    if due is None or who is None or who.role != "owner":
        return
    told = digests.tell(tx, tenant, who, due.last_at, now)
    if told.empty:
        return
    where = place(tx, principal)
    tx.run(
        "delivery_add",
        id=mint("d"),
        tenant=tenant,
        session="",
        kind="show",
        subject=f"digest:{principal}/{due.next_at:.0f}",
        destination=where,
        part=1,
        payload=dumps({"text": text(told, due.zone)}),
        status="open",
        attempted=None,
        now=now,
    )
    firsts = [prompt for group in told.waiting for prompt in group][:CARDS]
    for number, prompt in enumerate(firsts, 1):
        show_in(tx, prompt, where, now + number / 1000)  # rows are shown in the order of their time


def text(told: Told, zone: str) -> str:
    """Return the digest in Markdown."""
    if told.empty:
        return "There is nothing to tell: nothing ran, nothing waits, nothing was spent."
    day = datetime.fromtimestamp(told.until, ZoneInfo(zone))
    parts = [f"**What Nod did until {day:%A, %d %B, %H:%M}**"]
    ran, waiting = list(_ran(told)), list(_waiting(told))
    failed, cost = list(_failed(told, zone)), list(_cost(told))
    for heading, lines in (("Ran", ran), ("Waits", waiting), ("Failed", failed), ("Cost", cost)):
        if lines:
            more = [f"- … and {len(lines) - LINES} more"] if len(lines) > LINES else []
            parts.append("\n".join([f"**{heading}**", *lines[:LINES], *more]))
    return "\n\n".join(parts)


def _ran(told: Told) -> Iterator[str]:
    """Yield a line for each schedule, then one for all that people asked."""
    titles: dict[str, list[Run]] = {}
    for run in told.runs:
        titles.setdefault(run.title, []).append(run)
    for title, runs in titles.items():
        ends = Counter(run.status for run in runs)
        said = ", ".join(f"{n} {_STATUS.get(status, status)}" for status, n in ends.items())
        cost = sum(run.cost for run in runs)
        yield f"- {plain(title)}: {said}" + (f", {dollars(cost)}" if cost else "")
    if told.turns:
        yield f"- {_many(told.turns, 'turn')} in {_many(told.sessions, 'conversation')}"


_STATUS = {"started": "at work or waiting", "retrying": "to be tried again", "queued": "in line"}


def _waiting(told: Told) -> Iterator[str]:
    for group in told.waiting:
        first = group[0]
        title = first.payload.get("title") or first.payload.get("tool") or first.kind
        rows = f" ({len(group)} rows)" if len(group) > 1 else ""
        age = spoken(told.until - first.created_at)
        yield f"- {plain(str(title))}{rows}, for {age}: {code(f'/inbox {first.id}')}"


def _failed(told: Told, zone: str) -> Iterator[str]:
    for run in told.runs:
        if run.status in _FAILED:
            note = plain(cut(run.note, _CUT, 1)[0])
            yield f"- {plain(run.title)}, {in_zone(run.due, zone)}: {run.status}, {note}"
    for each in told.errors:
        what = plain(cut(each.text, _CUT, 1)[0])
        yield f"- In {plain(each.home)}, {in_zone(each.at, zone)}: {what}"


def _cost(told: Told) -> Iterator[str]:
    for line in told.usage:
        words = (_many(line.calls, "call"), f"{line.tokens:,} tokens", _paid(line))
        yield f"- {plain(line.key)}: {', '.join(words)}"
    for budget in told.spent:
        yield f"- Used up: {plain(budget)}"


def _paid(line: UsageLine) -> str:
    return "price unknown" if line.unpriced == line.calls else money(line)


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


# -- the command


_AT = re.compile(r"(?:at\s+)?(?P<time>\d{1,2}(?::\d\d)?(?: ?[ap]m)?)", re.IGNORECASE)


async def _command(context: Context, given: list[str]) -> str:
    said = " ".join(given)
    if said == "now":
        return await context.store.read(lambda tx: _now(tx, context))
    if not said:
        return await context.store.read(lambda tx: _state(tx, context))
    minute = None if said == "off" else _minute(said)
    told = await context.store.write(partial(_set, context=context, minute=minute))
    context.poke()
    return told


def _minute(said: str) -> int:
    found = _AT.fullmatch(said)
    if found is None:
        raise NodError("/digest was not understood.", "Write: /digest at 18:00, off, or now")
    hour, minute = time_of_day(found["time"].lower())
    return hour * 60 + minute


def _set(tx: Tx, *, context: Context, minute: int | None) -> str:
    zone = people.zone_of(tx, context.tenant, context.person.id) or context.zone
    digests.put(tx, context.tenant, context.person.id, minute, zone, context.house.now())
    return _state(tx, context)


def _state(tx: Tx, context: Context) -> str:
    found = digests.get(tx, context.tenant, context.person.id)
    if found is None or found.next_at is None:
        return "You get no daily digest. Switch it on with `/digest at 18:00`."
    at = f"{found.minute // 60:02}:{found.minute % 60:02}"
    upcoming = in_zone(found.next_at, found.zone)
    return f"Your digest comes daily at {at} ({found.zone}), next {upcoming}, if there is anything."


def _now(tx: Tx, context: Context) -> str:
    """Return the digest of the last day; the one that is due comes all the same."""
    now = context.house.now()
    told = digests.tell(tx, context.tenant, context.person, now - DAY, now)
    zone = people.zone_of(tx, context.tenant, context.person.id) or context.zone
    return text(told, zone)


DIGEST = Command(
    name="digest",
    usage="[at TIME | off | now]",
    help="a daily word on what ran, what waits, what failed and what it cost",
    run=_command,
    most=2,
    role="owner",
)
