"""The command that puts work on the clock: typed as people say it, confirmed on a card."""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from bot.commands import listings, unclear, zones
from bot.commands.base import Command, Context
from bot.inbound import routing
from bot.inbound.answers import show_in
from bot.surfaces.links import link
from connectors.sources import check_event
from engine import people
from engine.errors import ScheduleError, Unclear
from engine.schedule import fires, proposals, runs, schedules
from engine.schedule.cron import zone_of
from engine.schedule.policy import clause, split
from engine.schedule.proposals import Proposal
from engine.schedule.schedules import Schedule
from engine.schedule.words import understand
from engine.store.base import Tx

__all__ = ["SCHEDULE"]

_EXAMPLES = (
    "Write for example: `/schedule every weekday at 8: morning briefing to #standup`, "
    "`/schedule tomorrow 17:30: remind me to call Bo`, `/schedule 0 8 * * 1-5: read the log`. "
    "See /help for the rest."
)
#: Runs of one history.
RUNS = 20

#: The time ends at the first colon that a space or the end follows: 17:30 has none.
_SAID = re.compile(r"(?P<when>.*?):(?:\s+(?P<what>.*))?", re.S)
_PLACE = re.compile(
    r"(?P<what>.*?)\s+to\s+(?P<place>here|#[\w.-]+|<#\w+(?:\|[^>]*)?>"
    r"|(?:slack|telegram|discord|console):[^\s/]+(?:/[^\s/]+)*)\s*",
    re.S,
)


async def _schedule(context: Context, given: list[str]) -> str:
    verb, _, rest = (given[0] if given else "list").partition(" ")
    act = _ACTS.get(verb.lower())
    if act is not None:
        return await act(context, rest.strip())
    return await _asked(context, given[0])


# -- making one


async def _asked(context: Context, said: str, changes: Schedule | None = None) -> str:
    """`every weekday at 8: morning briefing to #standup`: answered with a card."""
    try:
        return await _understood(context, said, changes)
    except Unclear as error:
        if changes is not None:
            raise
        return await _offered(context, said, error)


async def _offered(context: Context, said: str, why: Unclear) -> str:
    """Say what is not clear, and show a card on which the model can be asked."""

    def work(tx: Tx) -> None:
        show_in(tx, unclear.offer(tx, context, said, why), context.target, context.house.now())

    await context.store.write(work)
    context.poke()
    return f"{why} Or press Ask Nod on the card: Nod then proposes what you mean."


async def _understood(context: Context, said: str, changes: Schedule | None) -> str:
    found = _SAID.fullmatch(said.strip())
    if found is None:
        raise Unclear("I do not see when, and what to do.", _EXAMPLES)
    when, what = found["when"].strip(), (found["what"] or "").strip()

    def work(tx: Tx) -> str:
        place = _PLACE.fullmatch(what)
        report_to = _place(tx, context, place["place"]) if place else ""
        task = place["what"] if place else what
        if changes is None:
            return _begun(tx, context, zones.typed(context, when, task, report_to))
        keeps = changes.report_to if place is None else report_to
        return _propose(tx, context, _changed(tx, context, changes, when, task, keeps))

    text = await context.store.write(work)
    context.poke()
    return text


def _begun(tx: Tx, context: Context, said: Mapping[str, str]) -> str:
    now = context.house.now()
    if zones.is_needed(tx, context, said["when"]):
        show_in(tx, zones.ask(tx, context, said), context.target, now)
        return "First tell me, this once, where you are: on the card. Then it goes on by itself."
    made = zones.proposal(context.tenant, said, _zone(tx, context), now)
    return _propose(tx, context, made)


def _changed(
    tx: Tx, context: Context, before: Schedule, typed: str, task: str, report_to: str
) -> Proposal:
    """Return what the schedule would be; what was not said stays."""
    now = context.house.now()
    when, rules = split(typed)
    return Proposal(
        tenant=before.tenant,
        owner=before.owner,
        home=before.home,
        persona=before.persona,
        model=before.model,
        when=understand(when, before.zone, now) if when else before.when,
        said=when or before.cron or _moment(before),
        policy=replace(before.policy, **rules),
        instructions=task or before.instructions,
        title=before.title,
        report_to=report_to,
        changes=before.id,
    )


def _moment(once: Schedule) -> str:
    """Return the one moment of a schedule as it could be typed."""
    at = datetime.fromtimestamp(once.when.once or 0.0, zone_of(once.zone))
    return f"{at:%Y-%m-%d %H:%M}"


def _propose(tx: Tx, context: Context, proposal: Proposal) -> str:
    now = context.house.now()
    _check(tx, context, proposal)
    prompt = proposals.propose(tx, proposal, now)
    show_in(tx, prompt, context.target, now)
    return f"I understood: {proposal.when}. Nothing is scheduled before you confirm the card."


def _zone(tx: Tx, context: Context) -> str:
    """Return the zone the person said, else their profile's, else the one that is set for all."""
    said = people.zone_of(tx, context.tenant, context.person.id)
    return said or context.profile_zone or context.zone


def _place(tx: Tx, context: Context, said: str) -> str:
    """Return the thread_target that was named; raises ScheduleError when it is not known."""
    return "" if said == "here" else routing.meant(tx, context.tenant, context.target, said)


async def _add(context: Context, rest: str) -> str:
    """`add "0 8 * * 1-5" what to do`, with options: the exact form, for scripts.

    Whoever runs the process gets it at once; in chat it is a card like any other.
    """
    given = _words(rest)
    if len(given) < 2:
        raise ScheduleError("/schedule add was not understood.", f"Write: {_usage()}")
    options, words = _options(given[1:], *_MADE)

    def work(tx: Tx) -> str:
        zone = _one(options, "zone") or _zone(tx, context)
        when, said, policy = proposals.read(given[0], zone, context.house.now())
        proposal = Proposal(
            tenant=context.tenant,
            owner=context.person.id,
            home=context.target,
            persona=context.house.defaults.persona,
            model=context.house.defaults.model,
            when=when,
            said=said,
            policy=replace(policy, **_rules(options)),
            instructions=" ".join(words),
            title=_one(options, "title"),
            report_to=_one(options, "report-to"),
            read=tuple(str(_readable(context, path)) for path in options["read"]),
        )
        return _exact(tx, context, proposal)

    said = await context.store.write(work)
    context.poke()  # it may be due before what the clock waits for
    return said


async def _set(context: Context, rest: str) -> str:
    """`set ID` with options and what to do: the exact form of `edit`; what is not said stays."""
    given = _words(rest)
    if len(given) < 2:
        raise ScheduleError("/schedule set was not understood.", f"Write: {_usage()}")
    options, words = _options(given[1:], "when", "title", "report-to")

    def work(tx: Tx) -> str:
        before = _own(tx, context, given[0])
        place = _one(options, "report-to") or before.report_to
        typed, task = _one(options, "when"), " ".join(words)
        made = _changed(tx, context, before, typed, task, place)
        policy = replace(made.policy, **_rules(options))
        title = _one(options, "title") or made.title
        return _exact(tx, context, replace(made, policy=policy, title=title))

    said = await context.store.write(work)
    context.poke()
    return said


def _exact(tx: Tx, context: Context, proposal: Proposal) -> str:
    """Do at once what whoever runs the process asks for; ask on a card everywhere else."""
    if context.surface != "console":
        return _propose(tx, context, proposal)
    return _made(tx, context, proposal)


def _check(tx: Tx, context: Context, proposal: Proposal) -> None:
    """Raise ScheduleError when it waits for an event that cannot come."""
    if proposal.when.event:
        check_event(tx, context.tenant, proposal.owner, proposal.when.event)


def _made(tx: Tx, context: Context, proposal: Proposal) -> str:
    now = context.house.now()
    _check(tx, context, proposal)
    made = proposals.begin(tx, proposal, context.person, now)
    line = f" ({made.cron})" if made.cron and not made.when.event else ""
    coming = proposals.coming(made.when, made.policy, now, 1) if made.cron else []
    upcoming = f" Next: {coming[0]}." if coming else ""
    rules = f" Rules: {made.policy}." if str(made.policy) else ""
    where = made.report_to or made.home
    return f"Schedule {made.id}: {made.when}{line}.{upcoming} It reports to {where}.{rules}"


#: Options of a schedule that is made.
_MADE = ("title", "zone", "report-to", "read")

#: How an option of the exact form is said as a clause.
_RULES = {
    "catch-up": "catch up",
    "overlap": "overlap",
    "deadline": "deadline",
    "retry": "retry",
    "quiet": "quiet",
}


def _rules(options: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the fields of a policy that the options set; raises ScheduleError."""
    given = [(said, _one(options, name)) for name, said in _RULES.items()]
    return dict(clause(f"{said} {value}") for said, value in given if value)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # an apostrophe in prose is no quote
        return text.split()


def _options(given: list[str], *names: str) -> tuple[dict[str, list[str]], list[str]]:
    """Split `--name value` pairs off the front; `names` are allowed, and those of rules."""
    options: dict[str, list[str]] = {name: [] for name in (*names, *_RULES)}
    rest = list(given)
    while rest and rest[0].startswith("--"):
        name = rest.pop(0)[2:]
        if name not in options or not rest:
            fix = f"There are: {', '.join(f'--{known} VALUE' for known in options)}."
            raise ScheduleError(f"'--{name}' was not understood.", fix)
        options[name].append(rest.pop(0))
    return options, rest


def _one(options: Mapping[str, list[str]], name: str) -> str:
    return options[name][-1] if options[name] else ""


def _readable(context: Context, path: str) -> Path:
    """Return a file or folder that runs may read: an owner's to give."""
    if context.person.role != "owner":
        raise ScheduleError("Only an owner may give a schedule folders to read.", "Ask an owner.")
    found = Path(path)
    if not found.is_absolute() or not found.exists():
        raise ScheduleError(f"There is no {path}.", "Write its whole path, from / on.")
    return found.resolve()


# -- looking


async def _list(context: Context, rest: str) -> str:
    found = await context.store.read(lambda tx: schedules.listed(tx, context.tenant))
    return "\n".join(listings.schedule_lines([each for each in found if _may(context, each)]))


async def _show(context: Context, rest: str) -> str:
    def look(tx: Tx) -> str:
        found = _own(tx, context, rest)
        latest = runs.history(tx, found.id, 3)
        allowed = [
            f"{each.rule.tool} to {', '.join(each.rule.target)}"
            for each in proposals.standing(tx, found.id)
        ]
        budget = proposals.budget(tx, context.tenant, found.id)
        told = listings.schedule_told(
            found, latest, allowed, context.house.now(), budget=budget, link=link
        )
        return "\n".join(told)

    return await context.store.read(look)


async def _history(context: Context, rest: str) -> str:
    def look(tx: Tx) -> str:
        found = _own(tx, context, rest)
        return "\n".join(listings.fire_lines(runs.history(tx, found.id, RUNS), found.zone, link))

    return await context.store.read(look)


# -- steering


def _own(tx: Tx, context: Context, start: str) -> Schedule:
    """Return the schedule, when the person may steer it."""
    found = schedules.find(tx, context.tenant, start.strip("`"))
    if not _may(context, found):
        raise ScheduleError("This schedule belongs to somebody else.", "Ask them, or an owner.")
    return found


def _may(context: Context, schedule: Schedule) -> bool:
    return schedule.owner == context.person.id or context.person.role in ("operator", "owner")


async def _run(context: Context, rest: str) -> str:
    def work(tx: Tx) -> fires.Fired:
        found = _own(tx, context, rest)
        return fires.run_now(tx, found.id, context.house.now(), data=context.house.data)

    fired = await context.store.write(work)
    for session in filter(None, (fired.session, fired.superseded)):
        context.enqueue(session)
    context.poke()
    if fired.status == "skipped":
        return f"Not started: {fired.note}."
    if fired.status == "queued":
        return f"It begins when that has ended: {fired.note}."
    return f"'{fired.schedule.title}' runs now, in session {fired.session}."


def _switch(enabled: bool) -> Callable[[Context, str], Awaitable[str]]:
    async def act(context: Context, rest: str) -> str:
        def work(tx: Tx) -> str:
            found = _own(tx, context, rest)
            now = context.house.now()
            changed = schedules.enable(tx, found.id, enabled, now)
            if not enabled:
                return f"Schedule {found.id} is paused. `/schedule resume {found.id}` goes on."
            if changed.when.event:
                return f"Schedule {found.id} goes on: {changed.when}."
            (upcoming,) = proposals.coming(changed.when, changed.policy, now, 1)
            return f"Schedule {found.id} goes on: next {upcoming}."

        said = await context.store.write(work)
        context.poke()
        return said

    return act


async def _edit(context: Context, rest: str) -> str:
    """`edit ID every day at 9`, `edit ID: other words`, or both: a card, like for a new one."""
    start, space, said = rest.partition(" ")
    if not space:
        raise ScheduleError("/schedule edit was not understood.", f"Write: {_usage()}")
    found = await context.store.read(lambda tx: _own(tx, context, start.rstrip(":")))
    if start.endswith(":"):
        said = f": {said}"
    return await _asked(context, said if _SAID.fullmatch(said) else f"{said}:", found)


async def _remove(context: Context, rest: str) -> str:
    def work(tx: Tx) -> str:
        found = _own(tx, context, rest)
        schedules.remove(tx, found.id, context.house.now())
        return f"Schedule {found.id} is removed."

    return await context.store.write(work)


_ACTS: Mapping[str, Callable[[Context, str], Awaitable[str]]] = {
    "list": _list,
    "add": _add,
    "show": _show,
    "history": _history,
    "run": _run,
    "pause": _switch(False),
    "resume": _switch(True),
    "edit": _edit,
    "set": _set,
    "remove": _remove,
    "delete": _remove,
}


def _usage() -> str:
    return f"/schedule {SCHEDULE.usage}"


SCHEDULE = Command(
    name="schedule",
    usage="WHEN[, RULE …]: WHAT [to PLACE] | list | show ID | run ID | pause ID | resume ID "
    "| history ID | edit ID [WHEN][, RULE …][: WHAT] | remove ID "
    '| add "WHEN" [--title T] [--zone Z] [--report-to TARGET] [--read PATH] [--RULE VALUE] WHAT '
    '| set ID [--when "WHEN"] [--title T] [--report-to TARGET] [--RULE VALUE] [WHAT]',
    help="work at set times, for example: every weekday at 8: morning briefing to #standup",
    run=_schedule,
    most=None,
    whole=True,
)
