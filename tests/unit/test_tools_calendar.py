"""Calendars in files: recurrences, zones, all-day and cancelled events, and broken files."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from connectors import icalendar as calendars
from connectors.icalendar import calendar_events, write_sample
from engine.errors import ToolError
from engine.tools.base import ToolContext
from tests.fakes.context import make_context


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    """It is Monday, 2 March 2026, 08:00 UTC."""
    return make_context(tmp_path)


def event(*lines: str) -> str:
    return "\n".join(["BEGIN:VEVENT", "UID:u@x", "DTSTAMP:20260101T000000Z", *lines, "END:VEVENT"])


def calendar(*events: str) -> str:
    return "\n".join(["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:x", *events, "END:VCALENDAR", ""])


async def listed(ctx: ToolContext, text: str, **arguments: Any) -> list[str]:
    (ctx.cwd / "c.ics").write_text(text)
    checked = calendar_events.check({"path": "c.ics", **arguments})
    return (await calendar_events.run(ctx, **checked)).text.split("\n")


async def test_the_sample_is_a_day_around_today(ctx: ToolContext) -> None:
    write_sample(ctx.cwd / "c.ics", date(2026, 3, 2), "Europe/Berlin")
    result = await calendar_events.run(ctx, path="c.ics", days=2)
    assert result.taint == "calendar:c.ics"
    assert result.text.split("\n") == [
        "c.ics, Monday 2 March 2026 to Tuesday 3 March 2026, times in Europe/Berlin: 7 events",
        "- all day  Release day: version 2.4 · Code freeze at noon. Ana holds the checklist.",
        "- 09:15–09:30  Stand-up · Team channel",
        "- 11:00–11:45  Design review: retry after a lost connection · Room 4",
        "- 12:30–13:30  Lunch with the new supplier [cancelled]",
        "- 15:00–15:30  Call with the customer in Porto · They ask for the figures of last week.",
        "Tuesday 3 March 2026:",
        "- 09:15–09:30  Stand-up · Team channel",
        "- 10:00–11:30  Planning",
    ]


@pytest.mark.parametrize(
    ("lines", "arguments", "shown"),
    [
        pytest.param(
            ["DTSTART:20260302T220000Z", "SUMMARY:Late"], {"zone": "America/New_York"},
            "- 17:00  Late", id="utc-shown-in-a-zone",
        ),
        pytest.param(
            ["DTSTART:20260302T090000", "SUMMARY:Here"], {"zone": "Asia/Tokyo"},
            "- 09:00  Here", id="floating-is-local",
        ),
        pytest.param(
            ["DTSTART;TZID=Europe/Berlin:20260105T090000", "RRULE:FREQ=WEEKLY;BYDAY=MO",
             "DURATION:PT30M", "SUMMARY:Weekly"], {"zone": "Europe/Berlin"},
            "- 09:00–09:30  Weekly", id="weekly",
        ),
        pytest.param(
            ["DTSTART;TZID=Europe/Berlin:20260105T090000", "RRULE:FREQ=WEEKLY",
             "SUMMARY:After the clocks change"], {"zone": "Europe/Berlin", "day": "2026-03-30"},
            "- 09:00  After the clocks change", id="summer-time",
        ),
        pytest.param(
            ["DTSTART;VALUE=DATE:20260301", "DTEND;VALUE=DATE:20260304", "SUMMARY:Fair"], {},
            "- all day, Sun 1 Mar to Tue 3 Mar  Fair", id="several-days",
        ),
        pytest.param(
            ["DTSTART:20260301T230000Z", "DTEND:20260302T010000Z", "SUMMARY:Night"], {},
            "- Sun 1 Mar 23:00–Mon 2 Mar 01:00  Night", id="over-midnight",
        ),
        pytest.param(["DTSTART:20260302T090000Z"], {}, "- 09:00  (no title)", id="no-title"),
        pytest.param(
            ["DTSTART:20260302T090000Z", "SUMMARY:a\\nb\x1b[31m"], {}, "- 09:00  a b [31m",
            id="control-characters",
        ),
        pytest.param(
            ["DTSTART:20260303T090000Z", "SUMMARY:T"], {"day": "Tomorrow"}, "- 09:00  T",
            id="tomorrow",
        ),
    ],
)  # fmt: skip
async def test_an_event_is_shown_as_meant(
    ctx: ToolContext, lines: list[str], arguments: dict[str, Any], shown: str
) -> None:
    assert (await listed(ctx, calendar(event(*lines)), **arguments))[1:] == [shown]


async def test_a_moved_and_a_cancelled_occurrence_replace_the_regular_one(ctx: ToolContext) -> None:
    series = ["DTSTART:20260301T090000Z", "RRULE:FREQ=DAILY", "SUMMARY:Daily"]
    moved = ["RECURRENCE-ID:20260302T090000Z", "DTSTART:20260302T110000Z", "SUMMARY:Moved"]
    off = ["RECURRENCE-ID:20260303T090000Z", "DTSTART:20260303T090000Z", "STATUS:CANCELLED",
           "SUMMARY:Daily"]  # fmt: skip
    text = calendar(event(*series, "EXDATE:20260304T090000Z"), event(*moved), event(*off))
    assert (await listed(ctx, text, days=4))[1:] == [
        "- 11:00  Moved",
        "Tuesday 3 March 2026:",
        "- 09:00  Daily [cancelled]",
        "Thursday 5 March 2026:",
        "- 09:00  Daily",
    ]


async def test_an_empty_day_is_said(ctx: ToolContext) -> None:
    assert await listed(ctx, calendar()) == ["c.ics, Monday 2 March 2026, times in UTC: no events"]


async def test_one_broken_event_does_not_hide_the_others(ctx: ToolContext) -> None:
    good = event("DTSTART:20260302T090000Z", "SUMMARY:Good")
    bad = event("DTSTART:whenever", "SUMMARY:Bad").replace("u@x", "v@x")
    lines = await listed(ctx, calendar(bad, good))
    assert lines[1:] == ["- 09:00  Good", "[some events of this file are broken and were left out]"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("<html>Please sign in</html>", id="web-page"),
        pytest.param("\x00\xff\xfe", id="binary"),
        pytest.param(calendar()[:-16], id="cut-off"),
        pytest.param(event("DTSTART:20260302T090000Z"), id="no-calendar"),
    ],
)
async def test_a_file_that_is_no_calendar_is_named_with_the_cause(
    ctx: ToolContext, text: str
) -> None:
    with pytest.raises(
        ToolError, match=r"calendar c\.ics cannot be read: it is no iCalendar"
    ) as unread:
        await listed(ctx, text)
    assert unread.value.taint == "calendar:c.ics", "a fault may be told in the file's own words"


async def test_a_rule_without_end_is_ended(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calendars, "_SECONDS", 1.5)
    text = calendar(event("DTSTART:19000101T000000Z", "RRULE:FREQ=SECONDLY", "SUMMARY:x"))
    with pytest.raises(ToolError, match=r"c\.ics cannot be read: its recurring events take longer"):
        await listed(ctx, text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param({"day": "someday"}, "'day' is no day", id="day"),
        pytest.param({"zone": "Mars/North"}, "'zone' is no time zone", id="zone"),
        pytest.param({"zone": "../../etc/passwd"}, "'zone' is no time zone", id="hostile-zone"),
        pytest.param({"path": "gone.ics"}, r"gone\.ics does not exist", id="missing"),
        pytest.param({"path": "../x.ics"}, "not in a directory", id="outside"),
    ],
)
async def test_a_wrong_argument_is_named(
    ctx: ToolContext, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(ToolError, match=said):
        await listed(ctx, calendar(), **arguments)
