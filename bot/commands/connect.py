"""Commands about accounts of services: connect, disconnect, share, and where a connector is off."""

from __future__ import annotations

import asyncio

from bot.commands.base import Command, Context
from bot.connect.connecting import Connecting
from bot.connect.keeping import CONSOLE
from bot.inbound import routing
from bot.markup import code, plain
from connectors import accounts, gates
from connectors.accounts import Account
from connectors.registry import Entry
from engine import people
from engine.errors import NodError
from engine.store.base import Tx
from engine.targets import ThreadTarget
from personas.registry import Personas

__all__ = ["CONNECT"]


def _connecting(context: Context) -> Connecting:
    if context.connecting is None:
        raise NodError("This needs a running Nod.", "Start `nod` or `nod serve` first.")
    return context.connecting


# -- connecting


async def _connect(context: Context, given: list[str]) -> str:
    connecting = _connecting(context)
    if not given:
        return await _listed(context, connecting)
    name = given[0].lower()
    device = given[1:] == ["device"]
    if len(given) == 2 and not device:
        return await _kept(context, connecting, name, given[1])
    place = await context.store.read(lambda tx: _place(tx, context))
    return await connecting.offer(context.person, name, place, device=device)


def _place(tx: Tx, context: Context) -> str:
    """Return where the outcome is told: the thread, or in private when it was asked beside them."""
    if not context.beside:
        return context.target
    found = people.places_of(tx, context.tenant, context.person.id)
    near = (each for each in found if ThreadTarget.parse(each).surface == context.surface)
    return next(near, context.target)


async def _kept(context: Context, connecting: Connecting, name: str, where: str) -> str:
    """Take what `nod connect` read in a shell and put into the vault."""
    if ThreadTarget.parse(context.target).surface not in CONSOLE:
        raise NodError("A key never passes through chat.", f"Write: /connect {name}")
    done = await connecting.adopt(context.person, name, where, context.target)
    return f"{done.title} is connected: {done.text}"


async def _listed(context: Context, connecting: Connecting) -> str:
    """List what there is, the person's accounts and those that others share."""

    def look(tx: Tx) -> tuple[list[Account], list[tuple[str, str]], dict[str, str]]:
        found = [
            each
            for each in accounts.listed(tx, context.tenant)
            if each.shared or each.owner == context.person.id
        ]
        owners = {each.owner: people.get(tx, context.tenant, each.owner) for each in found}
        names = {who: person.name for who, person in owners.items() if person is not None}
        return found, gates.listed(tx, context.tenant), names

    found, off, names = await context.store.read(look)
    lines = [
        line
        for name, entry in sorted(connecting.catalogue.items())
        for line in _lines(context, name, entry, found, off, names)
    ]
    lines.append("Connect one: `/connect NAME`. Its keys and tokens never pass through chat.")
    return "\n".join(lines)


def _lines(
    context: Context,
    name: str,
    entry: Entry,
    found: list[Account],
    off: list[tuple[str, str]],
    names: dict[str, str],
) -> list[str]:
    own = [each for each in found if each.connector == name]
    state = "connected" if own else "open to all" if entry.open else "not connected"
    muted = _spoken([scope for connector, scope in off if connector == name], context)
    lines = [f"**{entry.title}** {code(name)}: {state}{muted}. {plain(entry.about)}"]
    for each in own:
        whose = "yours" if each.owner == context.person.id else f"of {names.get(each.owner, '?')}"
        shared = ", shared with everybody" if each.shared else ""
        bad = "" if each.status == "ok" else f", **to be connected again**: /connect {name}"
        lines.append(f"- {code(each.label)}, {whose}{shared}{bad}")
    return lines


def _spoken(scopes: list[str], context: Context) -> str:
    """Say where it is off, as far as that concerns the person and this place."""
    words = []
    for scope in scopes:
        kind, _, where = scope.partition(":")
        if kind == "person" and where == context.person.id:
            words.append("for you")
        elif kind == "channel" and routing.channel_of(context.target) == where:
            words.append("here")
        elif kind == "persona":
            words.append(f"for persona {where}")
    return f" (off {', '.join(words)})" if words else ""


async def _disconnect(context: Context, given: list[str]) -> str:
    connecting = _connecting(context)
    name, label = given[0].lower(), " ".join(given[1:])

    def work(tx: Tx) -> tuple[Account, int]:
        found = accounts.find(tx, context.tenant, context.person.id, name, label)
        now = context.house.now()
        return found, accounts.disconnect(tx, found, by=context.person.id, now=now)

    account, ended = await context.store.write(work)
    told = await connecting.forget(account)
    parts = [f"{name} ({account.label}) is disconnected and its secret forgotten."]
    if ended:
        parts.append(f"{ended} standing rule{'s' if ended > 1 else ''} on it ended.")
    if not told:
        parts.append("Its service was not told: end Nod's access in its settings, too.")
    return " ".join(parts)


# -- sharing


async def _share(context: Context, given: list[str]) -> str:
    return await _shared(context, given, True)


async def _unshare(context: Context, given: list[str]) -> str:
    return await _shared(context, given, False)


async def _shared(context: Context, given: list[str], shared: bool) -> str:
    name, label = given[0].lower(), " ".join(given[1:])

    def work(tx: Tx) -> Account:
        found = accounts.find(tx, context.tenant, context.person.id, name, label)
        now = context.house.now()
        accounts.share(tx, found, shared, by=context.person.id, now=now)
        return found

    account = await context.store.write(work)
    whose = "everybody's sessions may use, acting as you" if shared else "only your sessions use"
    return f"{name} ({account.label}) is now one that {whose}."


# -- switching


async def _connectors(context: Context, given: list[str]) -> str:
    if not given:
        return await _off(context)
    usage = "Write: /connectors off NAME here, for me, or persona NAME; and on again"
    if given[0] not in ("on", "off") or len(given) < 3:
        raise NodError("/connectors was not understood.", usage)
    name = given[1].lower()
    scope = _scope(context, given[2:], usage)
    known = name in _connecting(context).catalogue or name.startswith("mcp:")
    if not known:
        raise NodError(f"There is no connector '{plain(name)[:40]}'.", "See /connect.")
    if given[0] == "off" and scope.startswith("persona:"):
        personas = await asyncio.to_thread(Personas.load, context.house.data / "personas")
        personas.require(given[3])
    done = gates.shut if given[0] == "off" else gates.open_again
    now, by = context.house.now(), context.person.id
    changed = await context.store.write(
        lambda tx: done(tx, context.tenant, name, scope, by=by, now=now)
    )
    kind, _, where = scope.partition(":")
    place = {"person": "in your sessions", "persona": f"for the persona {where}"}.get(kind, "here")
    means = "no tools, and no events of it" if given[0] == "off" else "its tools and events"
    already = "" if changed else " already"
    return f"{name} is{already} {given[0]} {place}: {means}."


def _scope(context: Context, words: list[str], usage: str) -> str:
    """Return the scope a person may switch. Raises NodError: not theirs, or not understood."""
    role = context.person.role
    if words == ["here"]:
        if role == "member" and ThreadTarget.parse(context.target).surface not in CONSOLE:
            raise NodError("What is off in a channel is off for everybody.", "Ask an operator.")
        return gates.scope_of("channel", routing.channel_of(context.target))
    if words in (["for", "me"], ["me"]):
        return gates.scope_of("person", context.person.id)
    if len(words) == 2 and words[0] == "persona":
        if role != "owner":
            raise NodError("Only an owner switches what a persona has.", "Ask an owner.")
        return gates.scope_of("persona", words[1])
    raise NodError("/connectors was not understood.", usage)


async def _off(context: Context) -> str:
    found = await context.store.read(lambda tx: gates.listed(tx, context.tenant))
    lines = [f"- {code(name)} is off: {code(scope)}" for name, scope in found]
    return "\n".join(lines) or "No connector is switched off anywhere."


CONNECT = (
    Command(
        name="connect",
        usage="[NAME]",
        help="your apps, or connect one; you get a private link",
        run=_connect,
        most=2,
    ),
    Command(
        name="disconnect",
        usage="NAME [ACCOUNT]",
        help="forget an account, and the rules on it",
        run=_disconnect,
        least=1,
        most=None,
    ),
    Command(
        name="share",
        usage="NAME [ACCOUNT]",
        help="let everybody's sessions use an account of yours",
        run=_share,
        least=1,
        most=None,
    ),
    Command(
        name="unshare",
        usage="NAME [ACCOUNT]",
        help="keep an account to your own sessions again",
        run=_unshare,
        least=1,
        most=None,
    ),
    Command(
        name="connectors",
        usage="[on|off NAME here|for me|persona NAME]",
        help="switch an app off or on somewhere",
        run=_connectors,
        most=5,
    ),
)
