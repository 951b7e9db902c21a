"""The file of a SQLite store: made whole, checked, opened, and its errors put in our own words."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

from engine.clock import mint, system_now
from engine.errors import Conflict, StoreBusy, StoreDamaged, StoreError, StoreFull
from engine.store.schema import RECORD_TABLE, pending

__all__ = ["opened", "opened_read_only", "plain"]

_LEAST = 512  # bytes of the smallest database: one page, sqlite.org/fileformat2.html
_WAL_KEPT = 64 * 1024 * 1024  # bytes the write-ahead log may keep between checkpoints


def opened(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """Open the file for writing, with a schema that is up to date."""
    try:
        if not path.exists():
            _create(path)
        _check_size(path)
        connection = _connect(f"{path.absolute().as_uri()}?mode=rw", busy_seconds)
        try:
            _prepare(connection)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise _named(error, path) from error
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    _migrate(connection)
    for setting in (
        "journal_mode = wal",
        "synchronous = full",
        "foreign_keys = on",
        f"journal_size_limit = {_WAL_KEPT}",
    ):
        connection.execute(f"pragma {setting}").fetchall()


def opened_read_only(path: Path, busy_seconds: float) -> sqlite3.Connection:
    if not path.exists():
        raise StoreError(f"There is no database at {path}.", "Start Nod once; it makes one.")
    _check_size(path)
    try:
        connection = _connect(f"{path.absolute().as_uri()}?mode=ro", busy_seconds)
        try:
            connection.execute("pragma query_only = on")
            if pending("sqlite", _version(connection)):
                raise StoreError(
                    "The database has the schema of an older Nod.", "Start Nod once to update it."
                )
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise _named(error, path) from error
    return connection


def _connect(uri: str, busy_seconds: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri, uri=True, timeout=busy_seconds, isolation_level=None, cached_statements=512
    )
    connection.row_factory = sqlite3.Row
    return connection


def _check_size(path: Path) -> None:
    """Refuse what SQLite would take for a new database: ours appear whole, by `_create`.

    The file is not opened for this: closing any descriptor of it would drop the locks that this
    process's connections hold (sqlite.org/howtocorrupt.html), and the next program to close the
    database would then take the write-ahead log away from under them.
    """
    if path.stat().st_size < _LEAST:
        raise _no_database(path)


def _no_database(path: Path) -> StoreDamaged:
    return StoreDamaged(
        f"The file {path} is no database; it was not changed.",
        "Move it aside and bring back a backup with 'nod restore'.",
    )


def _named(error: sqlite3.Error, path: Path) -> Exception:
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_NOTADB:
        return _no_database(path)
    return plain(error)


def _create(path: Path) -> None:
    """Make a new database beside `path` and put it there whole; one made meanwhile wins."""
    fresh = path.with_name(mint(f".{path.name}.new-"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = _connect(f"{fresh.absolute().as_uri()}?mode=rwc", 0)
        try:
            _migrate(connection)
        finally:
            connection.close()
        with suppress(FileExistsError):
            path.hardlink_to(fresh)
        fresh.unlink()
    except OSError as error:
        raise StoreError(
            f"The database cannot be made at {path} ({error.strerror}).",
            "Check the folder and its permissions.",
        ) from error


def _version(connection: sqlite3.Connection) -> int:
    known = "select 1 from sqlite_master where type = 'table' and name = 'schema_version'"
    if connection.execute(known).fetchone() is None:
        return 0
    row = connection.execute("select max(number) from schema_version").fetchone()
    return int(row[0] or 0)


def _migrate(connection: sqlite3.Connection) -> None:
    """Apply what is missing, each migration in one transaction with its record."""
    steps = pending("sqlite", _version(connection))
    if not steps:
        return
    from sqlite_utils import Database  # only here: its import takes a tenth of a second

    database = Database(connection, execute_plugins=False)
    database.execute(RECORD_TABLE)
    for number, name, statements in steps:
        with database.atomic():
            record = "insert into schema_version (number, name, applied_at) values (?, ?, ?)"
            database.execute(record, (number, name, system_now()))
            for statement in statements:
                database.execute(statement)


def plain(error: sqlite3.Error) -> Exception:
    """Return the error of our own tree that `error` stands for; a programming error as it is."""
    code = getattr(error, "sqlite_errorcode", 0)
    match code & 0xFF:  # the low byte is the primary code, sqlite.org/rescode.html
        case sqlite3.SQLITE_CONSTRAINT if code in _UNIQUE:
            return Conflict(f"{error}.")
        case sqlite3.SQLITE_FULL:
            return StoreFull(
                "The disk is full; nothing of this was stored.", "Free some space and try again."
            )
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return StoreDamaged(
                f"The database file is damaged ({error}); it was not changed.",
                "Move it aside and bring back a backup with 'nod restore'.",
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreBusy(
                "Another program holds the database file.", "Close that program and try again."
            )
        case sqlite3.SQLITE_READONLY:
            return StoreError("The database cannot be written here: it is open for reading only.")
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return StoreError(
                f"The database file cannot be used ({error}).",
                "Check the disk, the folder and its permissions.",
            )
    return error


_UNIQUE = (
    sqlite3.SQLITE_CONSTRAINT_UNIQUE,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
    sqlite3.SQLITE_CONSTRAINT_ROWID,
)
