"""Reads calendars in files: what happens on a day, recurrences and time zones worked out."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from engine.errors import ToolError
from engine.tools.base import Result, Risk, ToolContext, tool
from engine.tools.places import failure, locate, read_whole
from engine.tools.program import run_program

__all__ = ["TOOLS", "events_of", "write_sample"]

#: Bytes of a calendar file, seconds its recurrences may take, and days listed at once.
_MAX_BYTES, _SECONDS, _MOST_DAYS = 20_000_000, 15.0, 366

_EXPAND = Path(__file__).with_name("icalendar_expand.py")


@tool(risk=Risk.READ, paths={"path": "read"}, timeout=_SECONDS + 10)
async def calendar_events(
    ctx: ToolContext, path: str, day: str = "today", days: int = 1, zone: str = ""
) -> Result:
    """List the events of an iCalendar file (.ics), in order.

    Args:
        path: The file; relative paths start in the session's folder.
        day: The first day: today, tomorrow, yesterday, or a date such as 2026-03-01.
        days: How many days.
        zone: The time zone to show, for example Europe/Berlin; empty: the calendar's own.
    """
    real, name = locate(ctx, path), Path(path).name
    day = _checked_day(day)
    _check_zone(zone)
    try:
        data = await asyncio.to_thread(read_whole, real, _MAX_BYTES)
    except OSError as error:
        raise failure(path, error) from error
    text = await events_of(data, name, day=day, days=days, zone=zone, now=ctx.now())
    return Result(text=text, taint=f"calendar:{name}")


async def events_of(data: bytes, name: str, *, day: str, days: int, zone: str, now: float) -> str:
    """Return the events of an iCalendar file in words, in order; raises ToolError.

    `name` is what the calendar is called; `now` says which day is today, epoch seconds.
    """
    day, days = _checked_day(day), max(1, min(days, _MOST_DAYS))
    _check_zone(zone)
    text = data.decode("utf-8-sig", "replace")
    request = {"text": text, "day": day, "days": days, "zone": zone, "now": now}
    return _written(name, days, await _expanded(name, request))


async def _expanded(name: str, request: Mapping[str, Any]) -> dict[str, Any]:
    ended = await run_program(
        [sys.executable, "-I", str(_EXPAND)], limit=_SECONDS, stdin=json.dumps(request)
    )
    if ended.timed_out:
        fault = f"its recurring events take longer than {_SECONDS:.0f} seconds to work out"
    elif ended.exit_code:
        fault = (ended.err.strip().splitlines() or [f"reading ended with {ended.exit_code}"])[-1]
    else:
        found: dict[str, Any] = json.loads(ended.out)
        if "fault" not in found:
            return found
        fault = found["fault"]
    unread = ToolError(
        f"The calendar {name} cannot be read: {fault[:300]}.", "Export it again as an .ics file."
    )
    unread.taint = f"calendar:{name}"  # what is wrong with it is told in its own words
    raise unread


def _checked_day(day: str) -> str:
    word = day.strip().lower()
    if word not in ("today", "tomorrow", "yesterday"):
        try:
            date.fromisoformat(word)
        except ValueError:
            raise ToolError(
                f"Argument 'day' is no day: '{day[:40]}'.", "Write today, or a date as 2026-03-01."
            ) from None
    return word


def _check_zone(zone: str) -> None:
    try:
        ZoneInfo(zone or "UTC")
    except (ValueError, OSError, KeyError):
        raise ToolError(
            f"Argument 'zone' is no time zone: '{zone[:40]}'.", "Write one such as Europe/Berlin."
        ) from None


def _written(name: str, days: int, found: Mapping[str, Any]) -> str:
    first = date.fromisoformat(found["first"])
    events = found["events"]
    span = _long(first)
    span += f" to {_long(first + timedelta(days=days - 1))}" if days > 1 else ""
    count = "1 event" if len(events) == 1 else f"{len(events) or 'no'} events"
    lines = [f"{name}, {span}, times in {found['zone']}: {count}"]
    shown = first
    for event in events:
        start = datetime.fromisoformat(event["start"]).date()
        if start > shown:
            lines.append(f"{_long(start)}:")
            shown = start
        lines.append(_line(event, shown))
    lines += ["[there are more; ask for fewer days]"] if found["more"] else []
    lines += ["[some events of this file are broken and were left out]"] if found["bad"] else []
    return "\n".join(lines)


def _line(event: Mapping[str, Any], day: date) -> str:
    start, end = datetime.fromisoformat(event["start"]), datetime.fromisoformat(event["end"])
    if event["all_day"]:
        when = "all day" if start == end else f"all day, {_short(start)} to {_short(end)}"
    else:
        begins = "" if start.date() == day else f"{_short(start)} "
        ends = "" if end.date() == start.date() else f"{_short(end)} "
        when = f"{begins}{start:%H:%M}" + (f"–{ends}{end:%H:%M}" if end != start else "")
    extra = [f" · {event[key]}" for key in ("where", "about") if event[key]]
    mark = " [cancelled]" if event["cancelled"] else ""
    return f"- {when}  {event['title']}{mark}{''.join(extra)}"


def _long(day: date) -> str:
    return f"{day:%A} {day.day} {day:%B %Y}"


def _short(day: date) -> str:
    return f"{day:%a} {day.day} {day:%b}"


def write_sample(path: Path, today: date, zone: str) -> None:
    """Write the sample calendar to `path`, dated around `today` in the IANA zone `zone`."""
    template = resources.files("connectors").joinpath("samples/calendar.ics")
    text = template.read_text(encoding="utf-8").replace("{zone}", zone)
    for word, shift in (("yesterday", -1), ("today", 0), ("tomorrow", 1), ("week_ago", -7)):
        text = text.replace(f"{{{word}}}", f"{today + timedelta(days=shift):%Y%m%d}")
    staged = path.with_name(path.name + ".new")
    staged.write_bytes(text.replace("\r\n", "\n").replace("\n", "\r\n").encode())
    staged.replace(path)


TOOLS = [calendar_events]
