"""Lists what happens in a calendar in a span of days. Run as a program.

A recurrence rule can be written whose work has no end, so this runs apart, where it can be ended;
what it imports stays out of the main process. Reads a JSON request on stdin, prints JSON. Imports
nothing of ours: it is started by its file name, isolated.
"""

from __future__ import annotations

import json
import resource
import sys
from datetime import date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import icalendar
import recurring_ical_events  # type: ignore[import-untyped]

#: Bytes of memory the program may take, events it lists, and characters kept of a text.
_MEMORY, _MOST, _TEXT = 1_500_000_000, 1_000, 300


def expand(request: dict[str, Any]) -> dict[str, Any]:
    """Return {zone, first, events, more, bad} for {text, day, days, zone, now}, or {fault}.

    `more`: there are more events than are listed; `bad`: some could not be read.
    """
    try:
        calendar = icalendar.Calendar.from_ical(request["text"])
    except (ValueError, IndexError, KeyError) as error:
        return {"fault": f"it is no iCalendar file ({_short(error)})"}
    if calendar.name != "VCALENDAR" or not request["text"].rstrip().endswith("END:VCALENDAR"):
        return {"fault": "it is no iCalendar file, or was cut off: END:VCALENDAR is missing"}
    zone = ZoneInfo(request["zone"]) if request["zone"] else _zone_of(calendar)
    first = _first(request["day"], datetime.fromtimestamp(request["now"], zone).date())
    bad = any(each.errors for each in calendar.walk("VEVENT"))
    found, skipped = _between(calendar, _midnight(first, zone), request["days"])
    events = [_event(each, zone) for each in found]
    events.sort(key=lambda event: (event["at"], not event["all_day"], event["title"]))
    return {
        "zone": str(zone),
        "first": first.isoformat(),
        "events": events[:_MOST],
        "more": len(events) > _MOST,
        "bad": bad or skipped,
    }


def _between(calendar: Any, start: datetime, days: int) -> tuple[list[Any], bool]:
    """Return the events of the span, and whether broken ones had to be left out."""
    end = _midnight(start.date() + timedelta(days=days), start.tzinfo)
    try:
        return list(recurring_ical_events.of(calendar).between(start, end)), False
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        query = recurring_ical_events.of(calendar, skip_bad_series=True)
        return list(query.between(start, end)), True


def _midnight(day: date, zone: Any) -> datetime:
    return datetime.combine(day, time(), zone)


def _zone_of(calendar: Any) -> ZoneInfo:
    """Return the zone the calendar names for itself, else UTC."""
    try:
        return ZoneInfo(str(calendar.get("X-WR-TIMEZONE", "UTC")))
    except (ValueError, OSError, KeyError):
        return ZoneInfo("UTC")


def _first(day: str, today: date) -> date:
    near = {"today": 0, "tomorrow": 1, "yesterday": -1}
    return today + timedelta(days=near[day]) if day in near else date.fromisoformat(day)


def _event(event: Any, zone: ZoneInfo) -> dict[str, Any]:
    start = event["DTSTART"].dt
    end = event["DTEND"].dt if "DTEND" in event else start
    all_day = not isinstance(start, datetime)
    if all_day:  # the end of an all-day event is the day after its last
        end = max(start, end - timedelta(days=1))
    start, end = _local(start, zone), _local(end, zone)
    return {
        "at": start.timestamp(),
        "start": start.isoformat(),
        "end": end.isoformat(),
        "all_day": all_day,
        "title": _short(event.get("SUMMARY", "")) or "(no title)",
        "where": _short(event.get("LOCATION", "")),
        "about": _short(event.get("DESCRIPTION", "")),
        "cancelled": str(event.get("STATUS", "")).upper() == "CANCELLED",
    }


def _local(moment: date, zone: ZoneInfo) -> datetime:
    """Return `moment` in `zone`; one without a zone is meant where the reader is."""
    if not isinstance(moment, datetime):
        return _midnight(moment, zone)
    return moment.astimezone(zone) if moment.tzinfo else moment.replace(tzinfo=zone)


def _short(text: object) -> str:
    """Return `text` on one line, without control characters, cut."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return line if len(line) <= _TEXT else line[: _TEXT - 1] + "…"


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    sys.stdout.write(json.dumps(expand(json.load(sys.stdin))))
