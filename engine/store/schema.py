"""Which migrations a database still needs; one written by a newer Nod is refused."""

from __future__ import annotations

from engine.errors import SchemaTooNew
from engine.store.base import load_migrations

__all__ = ["RECORD_TABLE", "newest", "pending"]

#: One row per applied migration; written in the same transaction as the migration itself.
RECORD_TABLE = """
create table if not exists schema_version (
  number integer primary key,
  name text not null,
  applied_at double precision not null
)
"""


def newest() -> int:
    """Return the number of the last migration this Nod knows."""
    return load_migrations("sqlite")[-1][0]


def pending(dialect: str, current: int) -> list[tuple[int, str, list[str]]]:
    """Return the `(number, name, statements)` that follow `current`, in order.

    Raises SchemaTooNew when `current` is beyond the last migration known here.
    """
    steps = load_migrations(dialect)
    if current > steps[-1][0]:
        raise SchemaTooNew(
            f"The store has schema {current}; this Nod knows schemas up to {steps[-1][0]}.",
            "Install the Nod that wrote it, or a newer one; the store was not touched.",
        )
    return [step for step in steps if step[0] > current]
