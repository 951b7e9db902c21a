"""The store's contract: named queries inside transactions, the same on SQLite and Postgres.

A caller hands in a plain function of a `Tx`; the store runs it in one transaction, off the event
loop, and returns its value once the commit is durable. What the function raises rolls back its
own work only, also when the backend groups several callers into one commit.

Queries live in `queries/*.sql` under `-- name: <name>`; one that must differ stands once more
under `-- name: <name> [postgres]` or `[sqlite]`. Parameters are written `:name`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, Protocol, TypeVar

__all__ = ["Row", "Store", "Tx", "load_migrations", "load_queries", "parse_queries"]

T = TypeVar("T")


class Row(Protocol):
    """One row of a result: columns by name."""

    def __getitem__(self, column: str, /) -> Any: ...


class Tx(Protocol):
    """One open transaction. Only valid inside the function it was handed to.

    A statement that fails fails the work, also when the work swallows the error: Postgres refuses
    what follows it. Where a second row is no error, write `on conflict do nothing` and count.
    """

    def all(self, query: str, /, **params: Any) -> Sequence[Row]:
        """Run the named query and return its rows."""
        ...

    def one(self, query: str, /, **params: Any) -> Row | None:
        """Run the named query and return its first row, or None."""
        ...

    def run(self, query: str, /, **params: Any) -> int:
        """Run the named query and return how many rows it changed."""
        ...

    def many(self, query: str, rows: Sequence[Mapping[str, Any]], /) -> None:
        """Run the named query once for each mapping of parameters."""
        ...


class Store(Protocol):
    """A database with our schema."""

    #: "sqlite" or "postgres".
    dialect: str

    async def write(self, work: Callable[[Tx], T], /) -> T:
        """Run `work` in one transaction; return its value after a durable commit.

        `work` may run more than once (a neighbour in its group failed, a deadlock, a lost
        connection); only its last run counts, so it must not act on anything but the `Tx`.

        Raises what `work` raised (rolled back), StoreFull on a full disk, StoreError when the
        commit failed (then nothing of it is stored).
        """
        ...

    async def read(self, work: Callable[[Tx], T], /) -> T:
        """Run `work` against one consistent snapshot; writes are refused."""
        ...

    async def close(self) -> None:
        """Finish what was accepted, then close. Safe to call twice."""
        ...


_NAME = re.compile(r"^-- name: (?P<name>\w+)(?: \[(?P<dialect>sqlite|postgres)\])?\s*$", re.M)
_PARAM = re.compile(r"(?<![:\w]):([a-z_]\w*)")


def load_queries(dialect: str) -> dict[str, str]:
    """Return every named query of `queries/*.sql` for `dialect`, parameters in its own style."""
    folder = resources.files("engine.store").joinpath("queries")
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=str)
    return parse_queries((file.read_text(encoding="utf-8") for file in files), dialect)


def parse_queries(texts: Iterable[str], dialect: str) -> dict[str, str]:
    """Return the named queries in `texts` by name; the dialect's own form wins.

    Raises ValueError when two queries share a name.
    """
    found: dict[str, str] = {}
    special: set[str] = set()
    for text in texts:
        parts = _NAME.split(text)
        for name, only, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
            if only not in (None, dialect) or (only is None and name in special):
                continue
            if name in found and only is None:
                raise ValueError(f"two queries are named {name}")
            if only is not None:
                special.add(name)
            found[name] = _styled(body.strip().rstrip(";"), dialect)
    return found


def _styled(sql: str, dialect: str) -> str:
    if dialect == "sqlite":
        return sql
    return _PARAM.sub(r"%(\1)s", sql.replace("%", "%%"))


def load_migrations(dialect: str) -> list[tuple[int, str, list[str]]]:
    """Return `(number, name, statements)` of `migrations/NNN_name.sql`, in order.

    A file may hold `{identity}`, which becomes the dialect's auto-numbered primary key.
    """
    identity = {
        "sqlite": "integer primary key autoincrement",
        "postgres": "bigint generated always as identity primary key",
    }[dialect]
    steps = []
    for file in resources.files("engine.store").joinpath("migrations").iterdir():
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            text = re.sub(r"--[^\n]*", "", file.read_text(encoding="utf-8"))
            statements = [s.strip() for s in text.replace("{identity}", identity).split(";")]
            steps.append((int(number), name, [s for s in statements if s]))
    return sorted(steps)
