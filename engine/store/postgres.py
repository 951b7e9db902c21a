"""The Postgres backend: a few threads, each with one connection that mends itself.

A work may run more than once: when the server reports a deadlock, or when the connection is lost
before the commit was sent. Once the commit was sent, a lost connection is an unknown outcome.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg.adapt import Buffer, Dumper
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row

from engine.clock import system_now
from engine.errors import Conflict, StoreBusy, StoreError, StoreFull
from engine.store.base import Tx, load_queries
from engine.store.lane import Job, Lane, Outcome, outcome
from engine.store.schema import RECORD_TABLE, pending

__all__ = ["PostgresStore"]

T = TypeVar("T")

_THREADS = 4  # connections
_LIMIT = 4096  # works accepted and unfinished; further callers wait
_ATTEMPTS = 5  # runs of one work that meets deadlocks or lost connections
_CONNECT = 5  # seconds for one attempt to connect
_PATIENCE = 30.0  # seconds to go on trying to reach a server that went away
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # seconds between two attempts to connect
_PREPARED = 512  # statements kept prepared on each connection
_MIGRATION_LOCK = 6_443_108  # any number, the same for all who migrate

_READ = "begin isolation level repeatable read read only"
_WRITE = "begin isolation level read committed"

#: Limits that the URL or the server may set otherwise (`?options=-cstatement_timeout%3D60s`).
#: A frozen worker must not keep its row locks: idle inside a transaction means frozen.
_LIMITS = """
select set_config(name, value, false)
from (values ('statement_timeout', '30s'), ('idle_in_transaction_session_timeout', '10s'))
  as wished (name, value)
where current_setting(name) = '0'
"""

_REARM = "select"  # the cheapest statement there is

#: What passes when the work is run once more.
_PASSING = (pg.SerializationFailure, pg.DeadlockDetected)

#: What libpq does about a peer that is silent; milliseconds for the last, seconds before.
_SOCKET: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


class PostgresStore:
    """A store on a Postgres server. Belongs to the event loop in which it was opened."""

    dialect = "postgres"

    def __init__(self, url: str, *, patience: float) -> None:
        self.url = url
        #: Seconds to go on trying to reach a server that went away.
        self.patience = patience
        #: Called in the connection's thread right before and after each commit; for fault tests.
        #: What the first raises fails the commit.
        self.before_commit: Callable[[], None] | None = None
        self.after_commit: Callable[[], None] | None = None
        self.closing = threading.Event()
        #: The named queries, as they are sent.
        self.queries = load_queries(self.dialect)
        self._lines: list[_Line] = []
        self._lane: Lane[_Line] = Lane(name="nod-postgres", group=1, limit=_LIMIT)

    @classmethod
    async def open(
        cls, url: str, *, threads: int = _THREADS, patience: float = _PATIENCE
    ) -> PostgresStore:
        """Connect `threads` times and bring the schema up to date.

        The tables live in the first schema of the search path; the URL may name another:
        `?options=-csearch_path%3Dnod`.

        Raises SchemaTooNew, or StoreError when the server cannot be reached. No text of an error
        holds the password.
        """
        store = cls(url, patience=patience)
        try:
            await store._lane.start(store._line, threads)
        except BaseException:
            await store.close()
            raise
        return store

    def _line(self) -> _Line:
        line = _Line(self)
        self._lines.append(line)
        return line

    @property
    def commits(self) -> int:
        """How many commits the connections have made."""
        return sum(line.commits for line in self._lines)

    def write(self, work: Callable[[Tx], T], /) -> Coroutine[Any, Any, T]:
        """Run `work` in one transaction, READ COMMITTED; see `Store.write`."""
        return self._lane.submit(lambda line: line.again(lambda: line.write(work)))

    def read(self, work: Callable[[Tx], T], /) -> Coroutine[Any, Any, T]:
        """Run `work` against one snapshot; see `Store.read`."""
        return self._lane.submit(lambda line: line.again(lambda: line.read(work)))

    async def close(self) -> None:
        """Finish what was accepted, then close. Safe to call twice."""
        self.closing.set()
        await self._lane.close()


class _PostgresTx:
    """Named queries on one connection, inside the transaction its line has begun."""

    __slots__ = ("_cursor", "_queries", "failure")

    def __init__(self, connection: psycopg.Connection[DictRow], queries: Mapping[str, str]) -> None:
        self._cursor = connection.cursor()
        self._queries = queries
        #: The first failed statement; the server refuses all that follow it.
        self.failure: Exception | None = None

    def all(self, query: str, /, **params: Any) -> Sequence[DictRow]:
        self._execute(query, params)
        return self._cursor.fetchall()

    def one(self, query: str, /, **params: Any) -> DictRow | None:
        self._execute(query, params)
        return self._cursor.fetchone()

    def run(self, query: str, /, **params: Any) -> int:
        self._execute(query, params)
        return self._cursor.rowcount

    def many(self, query: str, rows: Sequence[Mapping[str, Any]], /) -> None:
        try:
            self._cursor.executemany(self._queries[query], rows)
            # It ends with a Flush, which disarms the server's limit for a client that is idle
            # inside a transaction, so a frozen one would keep its locks; a statement rearms it.
            self._cursor.execute(_REARM)
        except psycopg.Error as error:
            self._fail(error)

    def _execute(self, query: str, params: Mapping[str, Any]) -> None:
        try:
            self._cursor.execute(self._queries[query], params)
        except psycopg.Error as error:
            self._fail(error)

    def _fail(self, error: psycopg.Error) -> NoReturn:
        failure = _plain(error)
        self.failure = self.failure or failure
        raise failure from error.__cause__ if failure is error else error


class _Line:
    """Owns one connection, and makes a new one when it is lost."""

    def __init__(self, store: PostgresStore) -> None:
        self.commits = 0
        self._store = store
        self._connection = _connect(store.url)
        try:
            _migrate(self._connection)
        except BaseException:
            self._connection.close()
            raise

    def serve(self, jobs: Sequence[Job]) -> Sequence[Outcome]:
        return [outcome(job, self) for job in jobs]

    def close(self) -> None:
        self._connection.close()

    def again(self, once: Callable[[], T]) -> T:
        """Call `once`, and call it again after what passes: a deadlock, a lost connection."""
        left = _ATTEMPTS
        while True:
            left -= 1
            if self._connection.closed:
                self._reconnect()
            try:
                return once()
            except psycopg.OperationalError as error:
                if not left or not (self._connection.closed or isinstance(error, _PASSING)):
                    raise StoreError(
                        f"The database could not do it ({_first_line(error)})."
                    ) from error

    def read(self, work: Callable[[Tx], T]) -> T:
        self._connection.execute(_READ)
        try:
            value = self._done(work)
            self._connection.execute("commit")  # a rollback makes psycopg drop what is prepared
        except BaseException:
            self._roll_back()
            raise
        return value

    def write(self, work: Callable[[Tx], T]) -> T:
        self._connection.execute(_WRITE)
        try:
            value = self._done(work)
            self._commit()
        except BaseException:
            self._roll_back()
            raise
        return value

    def _done(self, work: Callable[[Tx], T]) -> T:
        tx = _PostgresTx(self._connection, self._store.queries)
        value = work(tx)
        if tx.failure is not None:  # the work swallowed it; COMMIT would silently roll back
            raise tx.failure
        return value

    def _commit(self) -> None:
        store = self._store
        if store.before_commit is not None:
            _called(store.before_commit)
        try:
            self._connection.execute("commit")
        except psycopg.Error as error:
            if self._connection.closed:
                raise StoreError(
                    "The connection to the database was lost during a commit; "
                    "whether it was stored is unknown."
                ) from error
            raise _plain(error) from error
        self.commits += 1
        if store.after_commit is not None:
            store.after_commit()

    def _roll_back(self) -> None:
        with suppress(psycopg.Error):  # a connection that is lost has rolled back
            self._connection.execute("rollback")

    def _reconnect(self) -> None:
        """Connect again, with growing pauses, until it works or the patience is over."""
        deadline = time.monotonic() + self._store.patience
        pause = _FIRST_PAUSE
        while True:
            try:
                self._connection = _connect(self._store.url)
                return
            except StoreError:
                if time.monotonic() + pause > deadline or self._store.closing.wait(pause):
                    raise
            pause = min(2 * pause, _LONGEST_PAUSE)


class _BoolAsInteger(Dumper):
    """Our columns hold 0 and 1, as they must on SQLite."""

    oid = psycopg.adapters.types["int2"].oid

    def dump(self, value: bool) -> Buffer | None:
        return b"1" if value else b"0"


def _connect(url: str) -> psycopg.Connection[DictRow]:
    """Open one connection that commits synchronously; raises StoreError without a password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        raise StoreError(
            "The address of the database is malformed.",
            "Write postgresql://user:password@host:5432/database.",
        ) from None  # its text would show the address, password included
    try:
        connection = psycopg.connect(
            url,
            autocommit=True,  # transactions are begun by hand, each with its isolation
            row_factory=dict_row,
            prepare_threshold=0,
            connect_timeout=_CONNECT,
            **_SOCKET,
        )
        connection.prepared_max = _PREPARED
        connection.adapters.register_dumper(bool, _BoolAsInteger)
        connection.execute("set synchronous_commit = on")
        connection.execute(_LIMITS)
    except psycopg.Error as error:
        place = f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}"
        why = _first_line(error).replace(str(parts.get("password") or "\0"), "…")
        raise StoreError(
            f"The database at {place} cannot be reached ({why}).",
            "Check that it runs and that the address in the settings is right.",
        ) from None
    return connection


def _migrate(connection: psycopg.Connection[DictRow]) -> None:
    """Apply what is missing, each migration in one transaction with its record."""
    if not pending("postgres", _version(connection)):
        return
    connection.execute("select pg_advisory_lock(%s)", (_MIGRATION_LOCK,))
    try:
        connection.execute(RECORD_TABLE)
        for number, name, statements in pending("postgres", _version(connection)):
            with connection.transaction():
                connection.execute("set local statement_timeout = 0")
                connection.execute(
                    "insert into schema_version (number, name, applied_at) values (%s, %s, %s)",
                    (number, name, system_now()),
                )
                for statement in statements:
                    connection.execute(statement.encode(), prepare=False)
    finally:
        connection.execute("select pg_advisory_unlock(%s)", (_MIGRATION_LOCK,))


def _version(connection: psycopg.Connection[DictRow]) -> int:
    known = connection.execute(
        "select 1 as yes from pg_tables "
        "where schemaname = current_schema() and tablename = 'schema_version'"
    ).fetchone()
    if known is None:
        return 0
    row = connection.execute("select max(number) as number from schema_version").fetchone()
    return int(row["number"] or 0) if row else 0


def _called(hook: Callable[[], None]) -> None:
    try:
        hook()
    except Exception as error:  # broad: whatever stops a commit fails it
        raise StoreError(f"The commit failed ({error}); nothing of it is stored.") from error


def _plain(error: psycopg.Error) -> Exception:
    """Return the error of our own tree that `error` stands for; any other as it is."""
    match error:
        case pg.UniqueViolation():
            return Conflict(f"{error.diag.message_primary}.")
        case pg.DiskFull():
            return StoreFull(
                "The disk of the database is full; nothing of this was stored.",
                "Free some space and try again.",
            )
        case pg.ReadOnlySqlTransaction():
            return StoreError("The database cannot be written here: it is open for reading only.")
        case pg.QueryCanceled() | pg.LockNotAvailable():
            return StoreBusy("The database did not answer in time.", "Try again in a moment.")
    return error


def _first_line(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0]
