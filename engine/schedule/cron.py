"""Reads a cron line: is it possible, when does it come next, and what does it say in words. Pure.

Days of the week are crontab's: Sunday is 0 and 7. Where both days are restricted, either will do.
At a change of the clocks a line with fixed hours comes once a day (about then, when its hour does
not exist); one with a wildcard or a range of hours comes in each hour that really passes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from engine.errors import ScheduleError

__all__ = ["Cron", "in_words", "in_zone", "known_zones", "next_fire", "parse", "preview", "zone_of"]

_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    name: str
    low: int
    high: int
    #: Names that stand for numbers, counted from `low`.
    names: tuple[str, ...] = ()
    #: A further form, as a pattern.
    extra: str = ""


_FIELDS = (
    _Field(name="minute", low=0, high=59),
    _Field(name="hour", low=0, high=23),
    _Field(name="day of the month", low=1, high=31, extra=r"l"),
    _Field(name="month", low=1, high=12, names=_MONTHS),
    _Field(name="day of the week", low=0, high=7, names=_DAYS, extra=r"(?:[0-7]|[a-z]{3})#[1-5]"),
)

_ITEM = re.compile(r"(?:\*|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d+))?", re.A)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """A cron line that was checked: five fields, aliases replaced, names in lower case."""

    fields: tuple[str, str, str, str, str]

    def __str__(self) -> str:
        return " ".join(self.fields)

    @property
    def fixed_hours(self) -> bool:
        """Whether the hours are named one by one."""
        return not any(mark in self.fields[1] for mark in "*/-")


@lru_cache(maxsize=512)
def parse(expr: str) -> Cron:
    """Check a cron line of five fields, or an alias such as @daily.

    The last day of a month is L, the second Friday of a month is fri#2.

    Raises ScheduleError, naming what is wrong, also for a line that never comes.
    """
    text = _ALIASES.get(expr.strip().lower(), expr.strip().lower())
    if text.startswith("@"):
        raise ScheduleError(f"'{expr}' is no alias.", f"Known are {', '.join(_ALIASES)}.")
    parts = text.split()
    if len(parts) != 5:
        raise ScheduleError(
            f"'{expr}' has {len(parts)} field{'' if len(parts) == 1 else 's'}, a cron line has 5.",
            "Write minute hour day-of-month month day-of-week, for example: 0 8 * * 1-5.",
        )
    for field, part in zip(_FIELDS, parts, strict=True):
        if not (field.extra and re.fullmatch(field.extra, part)):
            for item in part.split(","):
                _check_item(field, item)
    minute, hour, day, month, weekday = parts
    if "#" in weekday and day != "*":
        raise _clash(text)
    cron = Cron(fields=(minute, hour, day, month, weekday))
    _next(cron, datetime(2000, 1, 1, tzinfo=UTC))  # raises when there is none
    return cron


def _clash(text: str) -> ScheduleError:
    return ScheduleError(
        f"The fields of '{text}' do not go together.", "Write it as two schedules."
    )


def _check_item(field: _Field, item: str) -> None:
    found = _ITEM.fullmatch(item)
    if found is None:
        raise ScheduleError(
            f"'{item}' is no {field.name}.",
            "Write a number, a range such as 1-5, a list such as 1,3 or a step such as */15.",
        )
    for value in (found["first"], found["last"]):
        if value is not None and value not in field.names:
            _check_number(field, value)
    if found["step"] is not None and not 1 <= int(found["step"]) <= field.high:
        raise ScheduleError(
            f"The step of {field.name} '{item}' is out of range.", f"Use 1 to {field.high}."
        )


def _check_number(field: _Field, value: str) -> None:
    if value.isascii() and value.isdecimal() and field.low <= int(value) <= field.high:
        return
    names = f", or {', '.join(field.names)}" if field.names else ""
    raise ScheduleError(
        f"'{value}' is no {field.name}.", f"Use {field.low} to {field.high}{names}."
    )


@lru_cache(maxsize=1)
def known_zones() -> tuple[str, ...]:
    """Return the names of all time zones, in order. Reads files at its first call."""
    return tuple(sorted(available_timezones()))


@lru_cache(maxsize=64)
def zone_of(name: str) -> ZoneInfo:
    """Return the time zone of that name; raises ScheduleError with the nearest known names."""
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError) as error:  # also for '', '../x' and a mere folder
        known = [each for each in known_zones() if "/" in each]
        near = difflib.get_close_matches(name, known, n=2)
        hint = f"Did you mean {' or '.join(near)}?" if near else "Write one such as Europe/Berlin."
        raise ScheduleError(f"There is no time zone '{name[:60]}'.", hint) from error


def next_fire(expr: str, zone: str, after: float) -> float:
    """Return the first moment later than `after` at which the line comes, both epoch seconds.

    Raises ScheduleError for a line or a zone that cannot be.
    """
    cron, place = parse(expr), zone_of(zone)
    at = datetime.fromtimestamp(after, place)
    while True:
        at = _next(cron, at).astimezone(UTC).astimezone(place)
        if not (cron.fixed_hours and _second_pass(at)):
            return at.timestamp()


def _second_pass(at: datetime) -> bool:
    """Whether the clock showed this time once before on the same day."""
    return at.fold == 1 and at.replace(fold=0).utcoffset() != at.utcoffset()


def _next(cron: Cron, after: datetime) -> datetime:
    # Imported only here, since it is slow; it has no types.
    from croniter import (  # type: ignore[import-untyped]
        CroniterBadCronError,
        CroniterBadDateError,
        croniter,
    )

    try:
        found: datetime = croniter(str(cron), after).get_next(datetime)
    except CroniterBadCronError as error:
        raise _clash(str(cron)) from error
    except CroniterBadDateError as error:
        raise ScheduleError(
            f"'{cron}' never comes: no month in it has such a day.", "Choose another day or month."
        ) from error
    return found


def preview(expr: str, zone: str, after: float, n: int = 3) -> Sequence[float]:
    """Return the next `n` moments after `after`, epoch seconds; raises ScheduleError."""
    moments: list[float] = []
    for _ in range(n):
        moments.append(next_fire(expr, zone, moments[-1] if moments else after))
    return moments


def in_words(expr: str, zone: str) -> str:
    """Say the line in plain English: 'At 08:00, Monday through Friday (Europe/Berlin)'.

    Raises ScheduleError for a line or a zone that cannot be.
    """
    # Imported only here, since it is slow; it has no types.
    from cron_descriptor import (  # type: ignore[import-untyped]
        ExpressionDescriptor,
        Options,
    )

    cron, place = parse(expr), zone_of(zone)
    options = Options(
        locale_code="en_US",
        use_24hour_time_format=True,
        verbose=cron.fixed_hours,  # says 'every day', which beside '15 minutes' is only noise
    )
    words = ExpressionDescriptor(str(cron).upper(), options).get_full_description()
    return f"{words} ({place.key})"


def in_zone(at: float, zone: str) -> str:
    """Say a moment as the clock there shows it: 'Mon 02 Mar 2026, 08:00'."""
    return datetime.fromtimestamp(at, zone_of(zone)).strftime("%a %d %b %Y, %H:%M")
