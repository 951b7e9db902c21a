"""What model calls cost, and the sums of usage that people are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from engine.models.base import Usage
from engine.models.catalogue import Price
from engine.store.base import Row, Tx

__all__ = ["KINDS", "UsageLine", "begun", "by", "by_day", "cost", "days_until", "total"]

#: What usage is summed by, each with its query; by_day is apart.
KINDS = {
    "model": "usage_by_model",
    "schedule": "usage_by_schedule",
    "person": "usage_by_person",
}

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
    """Usage summed over one day, model, schedule or person."""

    #: The day as 2026-11-29, the model's id, the schedule's title or the person's name.
    key: str
    calls: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    #: US dollars of the calls whose price is known.
    cost: float = 0.0
    #: Calls whose price is unknown.
    unpriced: int = 0
    #: Calls that were stopped or failed, so that their tokens are estimates.
    estimated: int = 0

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.input + self.output


def by(
    tx: Tx, kind: str, tenant: str, since: float, until: float, person: str = ""
) -> list[UsageLine]:
    """Return a line a model, schedule or person (one of KINDS), the dearest first.

    `person`: only what the sessions of this principal used; empty: of all.
    """
    rows = tx.all(KINDS[kind], tenant=tenant, since=since, until=until, person=person)
    return [_line(str(row["key"]), [row]) for row in rows]


def by_day(
    tx: Tx, tenant: str, since: float, until: float, zone: str, person: str = ""
) -> list[UsageLine]:
    """Return a line for each day of the zone on which models were called, oldest first."""
    rows = tx.all("usage_by_quarter", tenant=tenant, since=since, until=until, person=person)
    days: dict[str, list[Row]] = {}
    for row in rows:  # zones differ from each other by whole quarters of an hour
        at = datetime.fromtimestamp(int(row["key"]) * _QUARTER, ZoneInfo(zone))
        days.setdefault(f"{at:%Y-%m-%d}", []).append(row)
    return [_line(day, found) for day, found in days.items()]


_QUARTER = 900  # seconds


def total(
    tx: Tx, tenant: str, since: float, until: float, person: str = "", key: str = ""
) -> UsageLine:
    """Return all usage of that time as one line, called `key`."""
    rows = tx.all("usage_by_model", tenant=tenant, since=since, until=until, person=person)
    return _line(key, rows)


def begun(now: float, zone: str) -> tuple[float, float]:
    """Return when this day and this month began in the zone, epoch seconds."""
    day = _midnight(now, zone)
    return day.timestamp(), day.replace(day=1).timestamp()


def days_until(now: float, zone: str, count: int) -> tuple[float, list[str]]:
    """Return when the first of the last `count` days began (epoch seconds), and all their names.

    Today is the last. Counted on the calendar: a day may have 23 or 25 hours.
    """
    today = _midnight(now, zone)
    days = [today - timedelta(days=back) for back in reversed(range(count))]
    return days[0].timestamp(), [f"{day:%Y-%m-%d}" for day in days]


def _midnight(now: float, zone: str) -> datetime:
    day = datetime.fromtimestamp(now, ZoneInfo(zone))
    return day.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)


def _line(key: str, rows: Sequence[Row]) -> UsageLine:
    def summed(column: str) -> int:
        return sum(int(row[column]) for row in rows)

    return UsageLine(
        key=key,
        calls=summed("calls"),
        input=summed("input_tokens"),
        output=summed("output_tokens"),
        cache_read=summed("cache_read"),
        cost=sum(float(row["cost"]) for row in rows),
        unpriced=summed("unpriced"),
        estimated=summed("estimated"),
    )
