"""The command about hooks: made where only its person reads, listed, and revoked."""

from __future__ import annotations

import secrets
from datetime import datetime
from zoneinfo import ZoneInfo

from bot.commands.base import Command, Context
from bot.markup import code
from connectors.registry import sources
from engine import people
from engine.errors import NodError
from engine.schedule import hooks
from engine.schedule.hooks import Hook
from engine.store.base import Tx

__all__ = ["HOOK"]

#: Surfaces that only whoever runs the process reaches.
_CONSOLE = ("console", "shell")
#: Bytes of a signing key.
KEY = 32


async def _hook(context: Context, given: list[str]) -> str:
    verb, rest = (given[0], given[1:]) if given else ("list", [])
    if verb == "list" and not rest:
        return await _list(context)
    if verb == "add" and rest and rest[1:] in ([], ["signed"]):
        return await _add(context, rest[0], signed=len(rest) == 2)
    if verb in ("revoke", "remove") and len(rest) == 1:
        return await _revoke(context, rest[0].strip("`"))
    raise NodError("/hook was not understood.", f"Write: /hook {HOOK.usage}")


async def _add(context: Context, name: str, *, signed: bool) -> str:
    """Make a hook; its address is told once, and only where nobody else reads."""
    doors = context.doors
    if doors is None:
        raise NodError("A hook needs a running Nod.", "Start `nod serve` first.")
    if name.strip().lower() in sources():
        raise NodError(f"Only connected accounts bring {name}.", "Choose another name.")
    if not await context.store.read(lambda tx: _alone(tx, context)):
        raise NodError(
            "The address of a hook is a secret, and others read here.",
            "Write this to me in a direct message, or at the console.",
        )
    await doors.address("")  # where nothing can be answered, no hook is made
    made, token = await context.store.write(
        lambda tx: hooks.add(
            tx,
            tenant=context.tenant,
            name=name,
            owner=context.person.id,
            signed=signed,
            now=context.house.now(),
        )
    )
    lines = [f"Hook {made.id}: a POST to this address is the event {code(made.name)}."]
    if signed:
        key = secrets.token_hex(KEY)
        try:
            await doors.keep_key(made, key)
        except NodError:
            await context.store.write(lambda tx: _end(tx, context, made))
            raise
        lines.append(f"Its key, for X-Hub-Signature-256 or a signature like Slack's: {code(key)}")
    url = await doors.address(token)
    lines.insert(1, code(url))
    if url.startswith("http://"):
        lines.append(
            "From elsewhere it is reached under the https address that you set as web.url."
        )
    lines.append("This is shown once. Whoever has it can call, so give it to the sender alone.")
    return "\n".join(lines)


def _alone(tx: Tx, context: Context) -> bool:
    """Say whether nobody else reads what is answered here."""
    places = people.places_of(tx, context.tenant, context.person.id)
    return context.surface in _CONSOLE or context.target in places


async def _list(context: Context) -> str:
    found = await context.store.read(lambda tx: hooks.standing(tx, context.tenant))
    return "\n".join(_line(each, context.zone) for each in found) or (
        "There are no hooks. Make one: /hook add deploy-done"
    )


def _line(hook: Hook, zone: str) -> str:
    how = "signed" if hook.secret else "by its address alone"
    last = "never called"
    if hook.last_at is not None:
        at = datetime.fromtimestamp(hook.last_at, ZoneInfo(zone))
        last = f"{hook.calls} call{'' if hook.calls == 1 else 's'}, the last {at:%Y-%m-%d %H:%M}"
    return f"`{hook.id}` {code(hook.name)}, {how}, {last}"


async def _revoke(context: Context, start: str) -> str:
    def work(tx: Tx) -> Hook:
        found = hooks.find(tx, context.tenant, start)
        _end(tx, context, found)
        return found

    found = await context.store.write(work)
    if found.secret and context.doors is not None:
        await context.doors.forget_key(found)
    return f"Hook {found.id} ({found.name}) is revoked: its address answers no more."


def _end(tx: Tx, context: Context, hook: Hook) -> None:
    hooks.revoke(tx, hook, context.person.id, context.house.now())


HOOK = Command(
    name="hook",
    usage="[list | add NAME [signed] | revoke ID]",
    help="addresses under which other systems fire an event, for example: add deploy-done",
    run=_hook,
    most=3,
    role="operator",
)
