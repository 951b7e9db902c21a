"""Opens the store a setting names: one file for SQLite, or the address of a Postgres server."""

from __future__ import annotations

from pathlib import Path

from engine.errors import SettingsError, StoreError
from engine.store.base import Store
from engine.store.sqlite import SqliteStore

__all__ = ["open_store", "sqlite_path"]


async def open_store(url: str, *, read_only: bool = False) -> Store:
    """Open the store at `url` and bring its schema up to date.

    Args:
        url: a path, `sqlite:///relative.db`, `sqlite:////absolute.db`, or `postgresql://…`.
        read_only: SQLite only: change nothing, not even the schema.

    Raises SettingsError for another kind of address or a missing driver, and what the backends
    raise: StoreDamaged, StoreBusy, StoreFull, SchemaTooNew, StoreError.
    """
    path = sqlite_path(url)
    if path is not None:
        return await SqliteStore.open(path, read_only=read_only)
    try:
        from engine.store.postgres import PostgresStore  # only here: an extra, and slow to import
    except ImportError as error:
        raise SettingsError(
            "The store is on Postgres, but its driver is not installed.",
            "Run: pip install 'nod-coworker[postgres]'",
        ) from error
    if read_only:
        raise StoreError("Opening for reading only is for SQLite files.")
    return await PostgresStore.open(url)


def sqlite_path(url: str) -> Path | None:
    """Return the file `url` names, or None when it names a Postgres server.

    Raises SettingsError when it is neither.
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        return Path(url).expanduser()
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        return Path(rest[1:]).expanduser()
    if scheme in ("postgresql", "postgres"):
        return None
    raise SettingsError(
        f"A store cannot be opened at an address of the kind '{scheme}://'.",
        "Write a path, sqlite:////path/to/nod.db, or postgresql://user@host/database.",
    )
