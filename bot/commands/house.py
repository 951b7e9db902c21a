"""Commands about the house: rules, files, personas, people, pairing, channels and what is set."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from bot import pairing
from bot.commands.base import Command, Context
from bot.inbound import routing
from bot.inbound.answers import show_in
from bot.markup import code
from engine import inbox, people, sessions
from engine.errors import NodError, PromptError, SessionError
from engine.inbox import ROLES
from engine.permissions import rules
from engine.permissions.rules import StandingRule
from engine.schedule import digests, leaving
from engine.schedule.cron import zone_of
from engine.store.base import Tx
from personas.registry import Personas

__all__ = ["HOUSE"]

#: Files and rules of one list.
LISTED = 50
#: Surfaces that only whoever runs the process reaches.
_CONSOLE = ("console", "shell")


# -- standing rules


async def _rules(context: Context, given: list[str]) -> str:
    if len(given) == 2 and given[0] == "revoke":
        return await context.store.write(lambda tx: _revoke(tx, context, given[1]))
    if given not in ([], ["list"]):
        raise NodError("/rules was not understood.", "Write: /rules, or /rules revoke ID")
    found = await context.store.read(lambda tx: _standing(tx, context))
    lines = [_rule_line(each, context.zone) for each in found[:LISTED]]
    return "\n".join(lines) or "No standing rules: everything with consequences is asked."


def _standing(tx: Tx, context: Context) -> list[StandingRule]:
    """Return the rules that hold now and that the person may see: their own, or an owner all."""
    now = context.house.now()
    return [
        each
        for each in rules.list_rules(tx, context.tenant)
        if each.revoked_at is None
        and (each.expires_at is None or each.expires_at > now)
        and (each.uses_left is None or each.uses_left > 0)
        and (each.principal == context.person.id or context.person.role == "owner")
    ]


def _rule_line(each: StandingRule, zone: str) -> str:
    targets = ", ".join(code(target) for target in each.rule.target)
    until = ""
    if each.expires_at is not None:
        until = f", until {datetime.fromtimestamp(each.expires_at, ZoneInfo(zone)):%Y-%m-%d}"
    left = f", {each.uses_left} uses left" if each.uses_left is not None else ""
    where = f", in session {each.session}" if each.session else ""
    where = f", in runs of schedule {each.schedule}" if each.schedule else where
    return f"`{each.rule.id}` {each.rule.tool} to {targets}{until}{left}{where}"


def _revoke(tx: Tx, context: Context, start: str) -> str:
    found = [each for each in _standing(tx, context) if each.rule.id.startswith(start.strip("`"))]
    if len(found) != 1 or not start:
        what = "No rule" if not found else "More than one rule"
        raise NodError(f"{what} has an id that begins with '{start}'.", "See /rules.")
    rules.revoke(tx, context.tenant, found[0].rule.id, context.house.now())
    return f"Rule {found[0].rule.id} is revoked: it is asked again from now."


# -- files, personas, sessions


async def _files(context: Context, given: list[str]) -> str:
    session = await context.store.read(context.session)
    folder = sessions.files_of(context.house.data, session.id)
    found = await asyncio.to_thread(_sizes, folder)
    if not found:
        return "This session has no files yet."
    lines = [f"{code(name)} {size:,} bytes" for name, size in found[:LISTED]]
    left = len(found) - LISTED
    return "\n".join([*lines, *([f"… and {left} more"] if left > 0 else [])])


def _sizes(folder: Path) -> list[tuple[str, int]]:
    files = [each for each in folder.rglob("*") if each.is_file() and not each.is_symlink()]
    return sorted((str(each.relative_to(folder)), each.stat().st_size) for each in files)


async def _persona(context: Context, given: list[str]) -> str:
    known = await asyncio.to_thread(Personas.load, context.house.data / "personas")
    if not given:
        session = await context.store.read(context.session)
        return f"Persona {session.persona}. There are: {', '.join(known.names())}."
    if context.person.role != "owner":
        raise NodError("Only an owner may choose the persona.", "Ask an owner.")
    known.require(given[0])
    context.own_thread()
    defaults = replace(context.house.defaults, persona=given[0])
    house = replace(context.house, defaults=defaults)
    now = context.house.now()
    await context.store.write(lambda tx: house.open(tx, context.target, context.person.id, now))
    return f"A new session begins here, with the persona {given[0]}. `/back` goes back."


async def _back(context: Context, given: list[str]) -> str:
    def work(tx: Tx) -> str:
        found = routing.before(tx, context.house, context.target)
        if found is None:
            raise SessionError("There is no session before this one here.", "Just write.")
        session = sessions.get(tx, found)
        if session.owner != context.person.id and context.person.role == "member":
            raise SessionError("That session belongs to somebody else.", "Ask them, or an owner.")
        sessions.bind(tx, context.tenant, context.target, found, context.house.now())
        return f"We go on with {session.title or 'the session before'} ({found})."

    return await context.store.write(work)


# -- people and places


async def _hand(context: Context, given: list[str]) -> str:
    person = " ".join(given[1:])
    said = await context.store.write(lambda tx: _handed(tx, context, given[0], person))
    context.poke()
    return said


def _handed(tx: Tx, context: Context, start: str, name: str) -> str:
    """Show a card to another person who may answer it, where they read alone."""
    prompt = inbox.find(tx, context.tenant, start.strip("`"))
    if prompt.status != "pending" or not inbox.may_see(prompt, context.person):
        raise PromptError("This card is not open, or not yours.", "See /inbox.")
    word = name.removeprefix("@").casefold()
    everybody = people.listed(tx, context.tenant)
    found = [each for each in everybody if word in (each.id, each.name.casefold())]
    if len(found) != 1:
        raise NodError(f"There is no one person '{name}'.", "See who is known with /whoami.")
    places = people.places_of(tx, context.tenant, found[0].id)
    if not inbox.may_answer(prompt, found[0]) or not places:
        raise PromptError(
            f"{found[0].name} may not answer this, or has never written to me alone.",
            "Choose somebody else.",
        )
    show_in(tx, prompt, places[0], context.house.now())
    return f"{found[0].name} has the card too. Who answers first decides."


async def _pair(context: Context, given: list[str]) -> str:
    if context.surface not in _CONSOLE:
        raise NodError("A pairing code is shown at the console only.", "Run there: nod pair")
    made = await context.store.write(
        lambda tx: pairing.offer(tx, context.tenant, context.house.now())
    )
    return (
        f"{made}\nSend this to Nod in a direct message within {pairing.MINUTES} minutes. "
        "Whoever does is its owner there, so show it to nobody."
    )


async def _role(context: Context, given: list[str]) -> str:
    person, role = given
    if role not in ROLES:
        raise NodError(f"There is no role '{role}'.", f"Choose one of: {', '.join(ROLES)}.")
    if person == people.CONSOLE:
        raise NodError("Whoever runs Nod stays its owner.")
    by, now = context.person.id, context.house.now()

    def work(tx: Tx) -> list[str]:
        people.set_role(tx, context.tenant, person, role, by=by, now=now)
        return leaving.rest(tx, context.tenant, person, by, now) if role == "guest" else []

    rested = await context.store.write(work)
    told = f" At rest from now on: {', '.join(rested)} of theirs." if rested else ""
    return f"{person} is {role} from now on.{told}"


async def _settings(context: Context, given: list[str]) -> str:
    if len(given) == 2 and given[0] == "zone":
        return await context.store.write(lambda tx: _set_zone(tx, context, given[1]))
    if given:
        if context.person.role not in ("operator", "owner"):
            raise NodError("Changing this needs the role operator.", "Ask an owner.")
        return await context.store.write(lambda tx: _set(tx, context, given))
    here = await context.store.read(
        lambda tx: routing.mention_needed(tx, context.tenant, context.target)
    )
    mine = await context.store.read(
        lambda tx: people.zone_of(tx, context.tenant, context.person.id)
    )
    lines = [f"{name}: {code(value)}" for name, value in context.settings]
    lines.append(f"your zone: {code(mine or context.zone)}{'' if mine else ' (not set)'}")
    lines.append(f"mention in this channel's threads: {'needed' if here else 'not needed'}")
    return "\n".join(lines)


def _set(tx: Tx, context: Context, given: Sequence[str]) -> str:
    now = context.house.now()
    if len(given) == 2 and given[0] == "name" and re.fullmatch(r"#[\w.-]+", given[1]):
        place = routing.set_name(tx, context.tenant, context.target, given[1], now)
        return f"{given[1]} is {code(place)} from now, for schedules that report there."
    if len(given) != 2 or given[0] != "mention" or given[1] not in ("on", "off"):
        raise NodError(
            "/settings was not understood.",
            "Write: /settings zone Europe/Berlin, name #standup, or mention on|off",
        )
    needed = given[1] == "on"
    channel = routing.set_mention(tx, context.tenant, context.target, needed, now)
    told = "must mention me" if needed else "need not mention me"
    return f"In {channel}, replies in my threads {told}."


def _set_zone(tx: Tx, context: Context, name: str) -> str:
    """Everybody says for themselves in which zone the times they write are meant."""
    zone = zone_of(name).key
    me, now = context.person.id, context.house.now()
    people.set_zone(tx, context.tenant, me, zone, now)
    digests.move(tx, context.tenant, me, zone, now)
    return f"Times you write are read in {zone} from now. Schedules that are there keep theirs."


HOUSE = (
    Command(
        name="rules",
        usage="[list | revoke ID]",
        help="what needs no asking, and ending it",
        run=_rules,
        most=2,
    ),
    Command(name="files", usage="", help="the files of this thread's session", run=_files),
    Command(
        name="persona",
        usage="[NAME]",
        help="who answers here, or a new session with another",
        run=_persona,
        most=1,
    ),
    Command(name="back", usage="", help="go on with the session before", run=_back),
    Command(
        name="settings",
        usage="[zone NAME | name #PLACE | mention on|off]",
        help="what is set: your time zone, what this place is called, whether to mention Nod here",
        run=_settings,
        most=2,
    ),
    Command(
        name="hand",
        usage="ID PERSON",
        help="show a card to somebody else who may answer it",
        run=_hand,
        least=2,
        most=None,
    ),
    Command(
        name="role",
        usage="PERSON guest|member|operator|owner",
        help="say what somebody may do",
        run=_role,
        least=2,
        most=2,
        role="owner",
    ),
    Command(
        name="pair",
        usage="",
        help="make the code that joins a chat account to the owner",
        run=_pair,
        role="owner",
    ),
)
