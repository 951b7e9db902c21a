"""Deletes sessions with their folders, on request and by retention; audit and usage rows stay."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Iterable
from pathlib import Path

from bot.settings import Settings
from engine import audit
from engine.clock import Now
from engine.errors import NodError, StoreError
from engine.inbox import DAY
from engine.schedule import wakes
from engine.store.backup import DATABASE, backup, restore
from engine.store.base import Row, Store, Tx
from engine.store.opening import open_store, sqlite_path
from engine.store.retention import RetentionPolicy, apply_retention, delete_session

__all__ = ["back_up", "bring_back", "delete", "keep"]

_log = logging.getLogger(__name__)


async def delete(store: Store, data: Path, session: str, by: str, now: float) -> bool:
    """Delete one session and its folder; False: there is none of that id."""

    def note(tx: Tx, row: Row) -> None:
        _note(tx, row, by, now)

    gone = await store.write(lambda tx: delete_session(tx, session, note))
    await asyncio.to_thread(_remove_folders, data, [session] if gone else [])
    return gone


async def back_up(settings: Settings, archive: Path, now: float) -> str:
    """Write the archive and return what to say. Raises what `backup` raises."""
    path = sqlite_path(settings.store)
    store = await open_store(settings.store, read_only=path is not None)
    try:
        manifest = await backup(store, settings.data, archive, now)
    finally:
        await store.close()
    return f"Backed up to {archive}: {len(manifest.members)} files, schema {manifest.schema}."


async def bring_back(settings: Settings, archive: Path, now: float, replace: bool) -> str:
    """Restore the archive as the data folder and return what to say. Raises like `restore`."""
    if sqlite_path(settings.store) != settings.data / DATABASE:
        raise StoreError(
            f"A backup is restored as the data folder, and the store is {settings.store_shown}.",
            "Unset 'store' (NOD_STORE), or set NOD_HOME to a new folder.",
        )
    aside = await restore(archive, settings.data, now, replace=replace)
    kept = f" What was there is kept in {aside}." if aside is not None else ""
    return f"Restored to {settings.data}.{kept} Start `nod`: cards that waited can be answered."


async def keep(store: Store, settings: Settings, now: Now) -> None:
    """Once a day, delete the finished sessions that are past their time; runs until cancelled."""
    age = settings.retention_days * DAY
    policy = RetentionPolicy(person=age, schedule=age)
    while True:
        try:
            moment = now()
            gone = await apply_retention(
                store, policy, moment, lambda tx, row: _note(tx, row, "clock", now())
            )
            await asyncio.to_thread(_remove_folders, settings.data, gone)
        except NodError as error:
            _log.warning("retention: %s It tries again tomorrow.", error)
        await asyncio.sleep(DAY)


def _note(tx: Tx, row: Row, by: str, now: float) -> None:
    """Say on the tenant's chain that the session was deleted, by whom, and its chain's head."""
    wakes.drop(tx, row, by, now)
    head = tx.one("audit_head", chain=row["id"])
    outcome = f"{head['n']}:{head['hash']}" if head is not None else ""
    entry = audit.Entry(kind="deleted", actor=by, subject=row["id"], outcome=outcome)
    audit.append(tx, row["tenant_id"], audit.tenant_chain(row["tenant_id"]), [entry], now)


def _remove_folders(data: Path, sessions: Iterable[str]) -> None:
    for session in sessions:
        shutil.rmtree(data / "sessions" / session, ignore_errors=True)
