"""What model calls cost, and the usage rows people are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.models.base import Usage
from engine.models.catalogue import Price
from engine.store.base import Row, Tx

__all__ = ["UsageLine", "by_day", "by_model", "cost"]

_MILLION = 1_000_000


def cost(usage: Usage, price: Price | None) -> float | None:
    """Return US dollars for one call; None when the price is unknown."""
    if price is None:
        return None
    read = price.input if price.cache_read is None else price.cache_read
    write = price.input if price.cache_write is None else price.cache_write
    fresh = max(0, usage.input - usage.cache_read - usage.cache_write)
    dollars = (
        fresh * price.input
        + usage.cache_read * read
        + usage.cache_write * write
        + usage.output * price.output
    )
    return dollars / _MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageLine:
    """Usage summed over one day or one model."""

    #: Days since 1970-01-01 in the zone asked for, or the model's id.
    key: int | str
    calls: int
    input: int
    output: int
    cache_read: int
    #: US dollars of the calls whose price is known.
    cost: float
    #: Calls whose price is unknown.
    unpriced: int


def by_day(tx: Tx, tenant: str, since: float, until: float, offset: float = 0.0) -> list[UsageLine]:
    """Return a line a day, oldest first. `offset`: seconds the zone is ahead of UTC."""
    rows = tx.all("usage_by_day", tenant=tenant, since=since, until=until, offset=offset)
    return _lines(rows)


def by_model(tx: Tx, tenant: str, since: float, until: float) -> list[UsageLine]:
    """Return a line a model, the dearest first."""
    return _lines(tx.all("usage_by_model", tenant=tenant, since=since, until=until))


def _lines(rows: Sequence[Row]) -> list[UsageLine]:
    return [
        UsageLine(
            key=row["key"],
            calls=int(row["calls"]),
            input=int(row["input_tokens"]),
            output=int(row["output_tokens"]),
            cache_read=int(row["cache_read"]),
            cost=float(row["cost"]),
            unpriced=int(row["unpriced"]),
        )
        for row in rows
    ]
