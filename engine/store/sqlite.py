"""The SQLite backend: one writer thread that groups commits, and two that read snapshots.

Each commit is synced to the disk before its callers are told. Waiting works share one commit.
When one of them raises, the group runs again with a savepoint for each, and only that one is lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from engine.errors import StoreError
from engine.store.base import Tx, load_queries
from engine.store.lane import Job, Lane, Outcome, outcome
from engine.store.sqlite_file import opened, opened_read_only, plain

__all__ = ["SqliteStore"]

T = TypeVar("T")

_GROUP = 256  # works in one commit
_LIMIT = 4096  # works accepted and unfinished; further callers wait
_READERS = 2  # threads, each with its own connection
_BUSY = 5.0  # seconds another program may hold the file before we give up


class SqliteStore:
    """A store in one file. Made by `open`; belongs to the event loop in which it was opened."""

    dialect = "sqlite"

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        #: How many commits the write connection has made.
        self.commits = 0
        #: Called in the writer thread right before and after each commit; for fault tests. What
        #: the first raises fails the commit.
        self.before_commit: Callable[[], None] | None = None
        self.after_commit: Callable[[], None] | None = None
        #: The named queries, as they are sent.
        self.queries = load_queries(self.dialect)
        self._writer: Lane[Tx] = Lane(name="nod-write", group=_GROUP, limit=_LIMIT)
        self._readers: Lane[Tx] = Lane(name="nod-read", group=1, limit=_LIMIT)

    @classmethod
    async def open(
        cls, path: Path | str, *, read_only: bool = False, busy_seconds: float = _BUSY
    ) -> SqliteStore:
        """Open the file, make it when it is missing, and bring its schema up to date.

        Read-only: nothing is made or changed, and `write` raises StoreError.

        Raises StoreDamaged, SchemaTooNew, StoreBusy (another program held the file for
        `busy_seconds`), StoreFull or StoreError. A damaged file is never changed.
        """
        store = cls(Path(path), read_only=read_only)
        try:
            if not read_only:
                await store._writer.start(lambda: _Writer(store, busy_seconds))
            await store._readers.start(lambda: _Reader(store, busy_seconds), _READERS)
        except BaseException:
            await store.close()
            raise
        return store

    def write(self, work: Callable[[Tx], T], /) -> Coroutine[Any, Any, T]:
        """Run `work` in one transaction; see `Store.write`."""
        if self.read_only:
            raise StoreError("The store was opened for reading only.")
        return self._writer.submit(work)

    def read(self, work: Callable[[Tx], T], /) -> Coroutine[Any, Any, T]:
        """Run `work` against one snapshot; see `Store.read`."""
        return self._readers.submit(work)

    async def synchronous(self) -> int:
        """Return `pragma synchronous` of the live write connection; 2 is FULL."""

        def asked(tx: Tx) -> int:
            row = tx.one("store_durability")
            assert row is not None
            return int(row["synchronous"])

        return await self.write(asked)

    async def close(self) -> None:
        """Finish what was accepted, then close. Safe to call twice."""
        await self._readers.close()
        await self._writer.close()


class _SqliteTx:
    """Named queries on one connection, inside the transaction its server has begun."""

    __slots__ = ("_connection", "_execute", "_executemany", "_failure", "_queries")

    _execute: Callable[..., sqlite3.Cursor]
    _executemany: Callable[..., sqlite3.Cursor]

    def __init__(self, connection: sqlite3.Connection, queries: Mapping[str, str]) -> None:
        self._connection = connection
        self._queries = queries
        self._begin()

    def _begin(self) -> None:
        self._execute = self._connection.execute
        self._executemany = self._connection.executemany
        #: The first failed statement of the present work.
        self._failure: Exception | None = None

    def all(self, query: str, /, **params: Any) -> Sequence[sqlite3.Row]:
        try:
            return self._execute(self._queries[query], params).fetchall()
        except sqlite3.Error as error:
            self._fail(error)

    def one(self, query: str, /, **params: Any) -> sqlite3.Row | None:
        try:
            row: sqlite3.Row | None = self._execute(self._queries[query], params).fetchone()
            return row
        except sqlite3.Error as error:
            self._fail(error)

    def run(self, query: str, /, **params: Any) -> int:
        try:
            return self._execute(self._queries[query], params).rowcount
        except sqlite3.Error as error:
            self._fail(error)

    def many(self, query: str, rows: Sequence[Mapping[str, Any]], /) -> None:
        try:
            self._executemany(self._queries[query], rows)
        except sqlite3.Error as error:
            self._fail(error)

    def _fail(self, error: sqlite3.Error) -> NoReturn:
        """Refuse all that follows, as Postgres does: SQLite may have ended the transaction."""
        failure = plain(error)
        self._failure = failure
        self._execute = self._executemany = self._refuse
        raise failure from error.__cause__ if failure is error else error

    def _refuse(self, *_: object) -> NoReturn:
        assert self._failure is not None
        raise self._failure

    def outcome(self, job: Job) -> Outcome:
        """Run one job; one that swallowed a failed statement has failed."""
        done = outcome(job, self)
        if self._failure is not None:
            done = (done[0], None, done[2] or self._failure)
            self._begin()
        return done


class _Writer:
    """Owns the write connection; a group of works is one commit."""

    def __init__(self, store: SqliteStore, busy_seconds: float) -> None:
        self._store = store
        self._connection = opened(store.path, busy_seconds)
        self._tx = _SqliteTx(self._connection, store.queries)

    def serve(self, jobs: Sequence[Job]) -> Sequence[Outcome]:
        """Run the jobs in one transaction; where one fails, once more with each on its own.

        Savepoints are for that second run only: nearly every group succeeds, and each statement
        is a chance for a busy event loop to keep this thread waiting for the interpreter.
        """
        try:
            outcomes = self._together(jobs)
            if outcomes[-1][2] is not None:
                self._roll_back()
                if len(jobs) == 1:
                    return outcomes
                outcomes = self._apart(jobs)
            self._commit()
            return outcomes
        except BaseException as error:  # noqa: BLE001  # broad: nothing of the group is stored
            self._roll_back()
            return [(future, None, _group_failure(error)) for _, future in jobs]

    def _together(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run the jobs in a new transaction; stop after the first that fails."""
        self._connection.execute("begin immediate")
        outcomes = []
        for job in jobs:
            done = self._tx.outcome(job)
            outcomes.append(done)
            if done[2] is not None:
                break
        return outcomes

    def _apart(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run the jobs in a new transaction, each in a savepoint that its failure rolls back."""
        execute = self._connection.execute
        execute("begin immediate")
        outcomes = []
        for job in jobs:
            execute("savepoint work")
            done = self._tx.outcome(job)
            if done[2] is not None:
                if not self._connection.in_transaction:  # SQLite gave up the whole group
                    raise done[2]
                execute("rollback to work")
            execute("release work")
            outcomes.append(done)
        return outcomes

    def _commit(self) -> None:
        store = self._store
        if store.before_commit is not None:
            store.before_commit()
        self._connection.execute("commit")
        store.commits += 1
        if store.after_commit is not None:
            store.after_commit()

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # the next BEGIN tells what is wrong
                self._connection.execute("rollback")

    def close(self) -> None:
        self._connection.close()


class _Reader:
    """Owns a read-only connection; each work sees one snapshot."""

    def __init__(self, store: SqliteStore, busy_seconds: float) -> None:
        self._connection = opened_read_only(store.path, busy_seconds)
        self._tx = _SqliteTx(self._connection, store.queries)

    def serve(self, jobs: Sequence[Job]) -> Sequence[Outcome]:
        return [self._snapshot(job) for job in jobs]

    def _snapshot(self, job: Job) -> Outcome:
        self._connection.execute("begin")
        try:
            return self._tx.outcome(job)
        finally:
            self._connection.execute("rollback")

    def close(self) -> None:
        self._connection.close()


def _group_failure(error: BaseException) -> BaseException:
    """Return a new error for one caller of a group that could not be stored."""
    told: BaseException = plain(error) if isinstance(error, sqlite3.Error) else error
    if isinstance(told, StoreError):
        told = type(told)(told.what, told.fix)
    else:
        told = StoreError(f"The commit failed ({told}); nothing of it is stored.")
    told.__cause__ = error
    return told
