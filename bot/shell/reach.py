"""Gets a command to whoever may carry it out: the process at work, else this one for a moment."""

from __future__ import annotations

from collections.abc import Mapping

from bot.app import house_of, socket_path
from bot.commands import table as commands
from bot.commands.table import Context
from bot.picking import load_catalogue, pick
from bot.settings import Settings, make_data_folder
from bot.shell import socket
from bot.surfaces.console import thread_name
from engine import people
from engine.clock import system_now
from engine.errors import NodError, StoreBusy
from engine.store.lock import AdvanceLock
from engine.store.opening import open_store, sqlite_path
from engine.targets import ThreadTarget

__all__ = ["command"]

#: What makes sense while nothing is at work: it is stored, and the next start goes on from it.
ALONE = frozenset(
    {
        *("approve", "deny", "answer", "edit", "schedule", "budget", "jobs", "mode", "model"),
        *("new", "delete", "pair"),
    }
)


async def command(
    settings: Settings, environ: Mapping[str, str], name: str, arguments: str, thread: str
) -> str:
    """Carry out a command as the person at the console and return what it says.

    `thread` is the thread_target it is given in. Raises NodError: no such place, what the command
    refused, or that it needs a Nod at work.
    """
    if ThreadTarget.parse(thread).surface == "console":
        thread_name(thread)
    if socket_path(settings).exists() or name not in ALONE:
        try:
            return await socket.ask(socket_path(settings), name, arguments, thread)
        except socket.NotRunning:
            if name not in ALONE:
                raise
    make_data_folder(settings)
    if sqlite_path(settings.store) is None:
        return await _alone(settings, environ, name, arguments, thread)
    try:
        lock = AdvanceLock.take(settings.data)
    except StoreBusy as error:
        raise NodError("Nod is just starting or stopping.", "Try again in a moment.") from error
    try:
        return await _alone(settings, environ, name, arguments, thread)
    finally:
        lock.release()


async def _alone(
    settings: Settings, environ: Mapping[str, str], name: str, arguments: str, thread: str
) -> str:
    catalogue = load_catalogue(settings)
    picked = await pick(settings, environ, catalogue)
    store = await open_store(settings.store)
    try:
        house = house_of(settings, picked, system_now)
        person = await store.write(lambda tx: people.seed_console(tx, house.tenant, house.now()))
        context = Context(
            store=store,
            house=house,
            catalogue=catalogue,
            enqueue=lambda session: None,  # what was written is found at the next start
            poke=lambda: None,
            zone=settings.zone,
        )
        return await commands.run(context.of(person, thread), name, arguments)
    finally:
        await store.close()
