"""When, as people type it: what is surely understood, and what is refused instead of guessed."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ScheduleError
from engine.schedule.cron import in_zone
from engine.schedule.words import understand

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


def at(text: str, zone: str = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


#: A Sunday afternoon.
NOW = at("2026-11-29T16:20")


@pytest.mark.parametrize(
    ("said", "cron"),
    [
        pytest.param("every weekday at 8", "0 8 * * 1-5", id="C-01-weekday"),
        pytest.param("Every weekday at 8:30 am", "30 8 * * 1-5", id="half"),
        pytest.param("every day at 17:05", "5 17 * * *", id="day"),
        pytest.param("daily 9am", "0 9 * * *", id="daily"),
        pytest.param("at 8 every weekday", "0 8 * * 1-5", id="time-first"),
        pytest.param("every day at 12 am", "0 0 * * *", id="midnight-is-12-am"),
        pytest.param("every day at noon", "0 12 * * *", id="noon"),
        pytest.param("every day at 8 and 17", "0 8,17 * * *", id="twice"),
        pytest.param("weekends at 10", "0 10 * * 0,6", id="C-01-weekends"),
        pytest.param("every sunday at 2", "0 2 * * 0", id="C-01-sunday-is-0"),
        pytest.param("every thu at 7:30", "30 7 * * 4", id="C-01-thursday-is-4"),
        pytest.param("mondays at 9", "0 9 * * 1", id="plural"),
        pytest.param("every mon, wed and friday at 9", "0 9 * * 1,3,5", id="list"),
        pytest.param("every 15 minutes", "*/15 * * * *", id="minutes"),
        pytest.param("hourly", "0 * * * *", id="hourly"),
        pytest.param("every 2 hours", "0 */2 * * *", id="hours"),
        pytest.param("every month on the 1st at 9", "0 9 1 * *", id="month"),
        pytest.param("the last day of the month at 16:00", "0 16 l * *", id="last-day"),
        pytest.param("first monday of every month at 9", "0 9 * * 1#1", id="first-monday"),
        pytest.param("0 8 * * 1-5", "0 8 * * 1-5", id="cron"),
        pytest.param("0 8 * * mon-fri", "0 8 * * mon-fri", id="cron-names"),
        pytest.param("@daily", "0 0 * * *", id="alias"),
    ],
)
def test_a_rhythm_becomes_its_cron_line(said: str, cron: str) -> None:
    when = understand(said, BERLIN, NOW)
    assert (when.cron, when.once, when.zone) == (cron, None, BERLIN)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        pytest.param("tomorrow 17:30", "Mon 30 Nov 2026, 17:30", id="tomorrow"),
        pytest.param("tomorrow at 8", "Mon 30 Nov 2026, 08:00", id="tomorrow-at"),
        pytest.param("today at 6pm", "Sun 29 Nov 2026, 18:00", id="today"),
        pytest.param("17:30", "Sun 29 Nov 2026, 17:30", id="time-alone"),
        pytest.param("in 2 hours", "Sun 29 Nov 2026, 18:20", id="hours"),
        pytest.param("in 90 minutes", "Sun 29 Nov 2026, 17:50", id="minutes"),
        pytest.param("in an hour", "Sun 29 Nov 2026, 17:20", id="an-hour"),
        pytest.param("in 1 minute", "Sun 29 Nov 2026, 16:21", id="C-08-a-minute-ahead"),
        pytest.param("in a week", "Sun 06 Dec 2026, 16:20", id="week"),
        pytest.param("on friday at 9", "Fri 04 Dec 2026, 09:00", id="weekday"),
        pytest.param("2026-12-24 08:00", "Thu 24 Dec 2026, 08:00", id="date"),
        pytest.param("2026-12-24T08:00", "Thu 24 Dec 2026, 08:00", id="iso"),
    ],
)
def test_one_moment_is_counted_from_now_by_code(said: str, shown: str) -> None:
    """C-13: relative times are never left to a model."""
    when = understand(said, BERLIN, NOW)
    assert when.once is not None
    assert (in_zone(when.once, BERLIN), when.cron) == (shown, "")
    assert str(when) == f"Once, {shown} ({BERLIN})"
    assert when.upcoming(NOW) == [shown]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        pytest.param("today at 16:15", "past: in Europe/Berlin it is now Sun 29", id="C-08-past"),
        pytest.param("16:20", "is past", id="C-08-exactly-now"),
        pytest.param("2026-02-30 08:00", "There is no day 2026-02-30", id="no-such-day"),
        pytest.param("sunday at 9", "Today is Sunday", id="today-or-in-a-week"),
        pytest.param("every weekday", "names no time of day", id="no-time"),
        pytest.param("every 7 minutes", "does not fit evenly", id="uneven"),
        pytest.param("every 5 hours", "does not fit evenly", id="uneven-hours"),
        pytest.param("every day at 25:00", "no time of day", id="25-o-clock"),
        pytest.param("every day at 13pm", "no time of day", id="13-pm"),
        pytest.param("every day at 8:00 and 9:30", "different minutes", id="two-minutes"),
        pytest.param("every month on the 31st at 8", "Not every month", id="31st"),
        pytest.param("0 0 31 2 *", "never comes", id="impossible-cron"),
        pytest.param("0 0 8 * * 1", "6 fields", id="six-fields"),
        pytest.param("every day at 8 Mars/Base", "no time zone 'Mars/Base'", id="no-zone"),
        pytest.param("@often", "is no alias", id="no-alias"),
        *(
            pytest.param(said, "do not surely understand", id=said.replace(" ", "-") or "nothing")
            for said in (
                "",
                "8",
                "soon",
                "tonight",
                "next monday 9am",
                "every other tuesday at 8",
                "every weekday except friday at 8",
                "every weekday at 8 or 9",
                "8 o clock each working day",
                "twice a day",
                "last friday of every month at 16:00",
                "10/11 9:00",
                "tomorrow",
                "in two hours",
                "in 0.5 hours",
            )
        ),
    ],
)
def test_what_is_not_sure_is_refused(said: str, why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        understand(said, BERLIN, NOW)


def test_a_refusal_shows_how_to_write_it() -> None:
    with pytest.raises(ScheduleError) as caught:
        understand("when the moon is full", BERLIN, NOW)
    examples = caught.value.fix.removeprefix("Write for example: ").rstrip(".").split("; ")
    assert len(examples) >= 3
    for example in examples:
        understand(example, BERLIN, NOW)


@pytest.mark.parametrize("named", ["Asia/Tokyo", "in Asia/Tokyo", ", in Asia/Tokyo"])
def test_a_zone_can_be_named_with_the_time(named: str) -> None:
    assert (
        understand(f"every day at 8 {named}".replace(" ,", ","), BERLIN, NOW).zone == "Asia/Tokyo"
    )
    assert understand("0 8 * * * UTC", BERLIN, NOW).zone == "UTC"


@pytest.mark.parametrize(
    ("now", "said", "expected"),
    [
        pytest.param("2026-03-08T00:30", "in 2 hours", "08 03:30 -0400", id="forward-hours-pass"),
        pytest.param("2026-03-07T12:00", "in 1 day", "08 12:00 -0400", id="forward-a-day"),
        pytest.param("2026-10-31T12:00", "in 1 day", "01 12:00 -0500", id="back-a-day"),
        pytest.param("2026-11-01T00:30", "in 1 hour", "01 01:30 -0400", id="back-first-pass"),
        pytest.param("2026-11-01T00:30", "in 2 hours", "01 01:30 -0500", id="back-second-pass"),
        pytest.param("2026-10-31T12:00", "tomorrow 1:30", "01 01:30 -0400", id="back-the-first"),
    ],
)
def test_one_moment_around_a_change_of_the_clocks(now: str, said: str, expected: str) -> None:
    once = understand(said, NEW_YORK, at(now, NEW_YORK)).once
    assert once is not None
    shown = datetime.fromtimestamp(once, ZoneInfo(NEW_YORK)).strftime("%d %H:%M %z")
    assert shown == expected


def test_an_hour_that_the_clock_skips_is_refused() -> None:
    with pytest.raises(ScheduleError, match="never shows Sun 08 Mar 2026, 02:30"):
        understand("tomorrow 2:30", NEW_YORK, at("2026-03-07T12:00", NEW_YORK))


@given(st.text(max_size=40))
def test_whatever_is_typed_is_understood_or_refused(said: str) -> None:
    try:
        when = understand(said, BERLIN, NOW)
    except ScheduleError:
        return
    assert when.next_after(NOW) is not None


@given(st.integers(1, 9_999), st.sampled_from(["minutes", "hours"]))
def test_what_passes_until_then_is_what_was_said(n: int, unit: str) -> None:
    once = understand(f"in {n} {unit}", BERLIN, NOW).once
    assert once == NOW + timedelta(**{unit: n}).total_seconds()
