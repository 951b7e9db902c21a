"""`nod connect` and `nod connections`: an app is connected from a shell, its key typed unseen."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import NodError, StoreBusy

if TYPE_CHECKING:
    from bot.connect.connecting import Connecting
    from bot.settings import Settings
    from connectors.base import Key
    from engine.store.base import Store, Tx

__all__ = ["connect", "lines"]

TENANT, PLACE = "local", "console:main"

Say = Callable[[str], None]


def connect(
    name: Annotated[str, typer.Argument(help="The app, for example github; see nod connections.")],
    key: Annotated[
        bool, typer.Option("--key", help="With a key: typed unseen, or on stdin.")
    ] = False,
    device: Annotated[
        bool, typer.Option("--device", help="With a code to enter elsewhere.")
    ] = False,
) -> None:
    """Connect an app for yourself: a link for this machine's browser, a key, or a code."""
    from bot import settings

    found = settings.load()
    settings.make_data_folder(found)
    asyncio.run(_connect(found, os.environ, name.lower(), key=key, device=device, say=typer.echo))


async def _connect(
    settings: Settings,
    environ: Mapping[str, str],
    name: str,
    *,
    key: bool,
    device: bool,
    say: Say,
) -> None:
    """Connect through the Nod at work, else in this process."""
    from bot.app import socket_path
    from bot.shell import reach, socket

    kept = await asyncio.to_thread(_typed, settings, environ, name) if key else ""
    words = " ".join(each for each in (name, kept or ("device" if device else "")) if each)
    try:
        if socket_path(settings).exists():
            try:
                say(await reach.command(settings, environ, "connect", words, PLACE))
                return
            except socket.NotRunning:
                pass
        await _here(settings, environ, name, kept, device=device, say=say)
    finally:
        if kept:
            await asyncio.to_thread(_drop, settings, environ, kept)


def _typed(settings: Settings, environ: Mapping[str, str], name: str) -> str:
    """Ask for the fields of a key, and put them into the vault under the name that is returned."""
    from connectors.base import Key
    from connectors.credentials import secret_name
    from connectors.registry import load, secrets_of
    from engine.clock import mint, system_now

    key = next((each for each in load(name).auth if isinstance(each, Key)), None)
    if key is None:
        raise NodError(f"{name} takes no keys.", f"Run: nod connect {name}")
    kept = mint("k")
    entry = {"kind": "key", **_fields(key), "at": system_now()}
    secrets_of(environ, settings.data).set(secret_name(kept), json.dumps(entry))
    return kept


def _fields(key: Key) -> dict[str, str]:
    """Return what is typed, or each line of stdin in the order of the fields."""
    held = {}
    for each in key.fields:
        if not sys.stdin.isatty():
            held[each.name] = sys.stdin.readline().rstrip("\r\n")
            continue
        if each.hint:
            typer.echo(each.hint)
        given = typer.prompt(
            f"{each.title}{' (not shown)' if each.secret else ''}",
            hide_input=each.secret,
            default="" if each.optional else None,
            show_default=False,
        )
        held[each.name] = str(given)
    return held


def _drop(settings: Settings, environ: Mapping[str, str], kept: str) -> None:
    """Forget what was typed, if nobody took it over."""
    from connectors.credentials import secret_name
    from connectors.registry import secrets_of

    secrets_of(environ, settings.data).delete(secret_name(kept))


async def _here(
    settings: Settings,
    environ: Mapping[str, str],
    name: str,
    kept: str,
    *,
    device: bool,
    say: Say,
) -> None:
    """Connect in this process, which answers the browser until it is done."""
    from engine import people
    from engine.clock import system_now

    async with _opened(settings, environ) as (store, connecting):
        person = await store.write(lambda tx: people.seed_console(tx, TENANT, system_now()))
        if kept:
            done = await connecting.adopt(person, name, kept, PLACE)
            say(f"{done.title} is connected: {done.text}")
            return
        say(await connecting.offer(person, name, PLACE, device=device))
        say("I wait here until it is done; Ctrl-C leaves.")
        say(await connecting.outcome())


@asynccontextmanager
async def _opened(
    settings: Settings, environ: Mapping[str, str]
) -> AsyncIterator[tuple[Store, Connecting]]:
    from contextlib import AsyncExitStack

    from bot import cards
    from bot.hands import Hands
    from bot.inbound.answers import Defaults, House
    from bot.web.address import Web
    from bot.web.counts import Counts
    from connectors.registry import secrets_of
    from engine.clock import system_now
    from engine.store.lock import AdvanceLock
    from engine.store.opening import open_store, sqlite_path
    from engine.tools.base import Registry

    async def ready() -> tuple[bool, Mapping[str, str]]:
        return True, {}

    async with AsyncExitStack() as stack:
        if sqlite_path(settings.store) is not None:
            try:
                lock = AdvanceLock.take(settings.data)
            except StoreBusy as error:
                raise NodError("Nod is just starting or stopping.", "Try again.") from error
            stack.callback(lock.release)
        store = await open_store(settings.store)
        stack.push_async_callback(store.close)
        hands = await stack.enter_async_context(
            Hands(
                store=store,
                secrets=secrets_of(environ, settings.data),
                tools=Registry(),
                now=system_now,
                tenant=TENANT,
                options=settings.connectors,
            )
        )
        defaults = Defaults(persona=settings.persona, model=settings.model, mode=settings.mode)
        web = await stack.enter_async_context(Web(settings.web, Counts(), ready))
        connecting = hands.connecting(
            house=House(tenant=TENANT, data=settings.data, now=system_now, defaults=defaults),
            key=await asyncio.to_thread(cards.token_key, settings.data),
            web=web,
            enqueue=lambda session: None,  # what was written is found at the next start
            poke=lambda: None,
        )
        yield store, await stack.enter_async_context(connecting)


def lines(tx: Tx) -> list[str]:
    """Return a line for each account, and for each place where a connector is off."""
    from connectors import accounts, gates
    from engine import people

    found = []
    for each in accounts.listed(tx, TENANT):
        owner = people.get(tx, TENANT, each.owner)
        shared = ", shared" if each.shared else ""
        bad = "" if each.status == "ok" else ", to be connected again"
        whose = owner.name if owner else each.owner
        found.append(f"{each.connector}  {each.label}  of {whose}{shared}{bad}")
    found += [f"{name}  off for {scope}" for name, scope in gates.listed(tx, TENANT)]
    return found or ["Nothing is connected. Connect an app with: nod connect NAME"]
