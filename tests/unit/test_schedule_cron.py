"""Cron lines: what is refused, when they come around changes of the clocks, and their words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ScheduleError
from engine.schedule.cron import in_words, in_zone, next_fire, parse, preview, zone_of

NEW_YORK, LONDON, HOWE = "America/New_York", "Europe/London", "Australia/Lord_Howe"
#: New York; London; 30 minutes; at midnight; south, at midnight; no changes at all.
ZONES = (NEW_YORK, LONDON, HOWE, "Africa/Cairo", "America/Santiago", "Asia/Kolkata")


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def shown(expr: str, zone: str, after: str, n: int) -> list[str]:
    moments = preview(expr, zone, at(after, zone), n)
    return [
        datetime.fromtimestamp(each, ZoneInfo(zone)).strftime("%d %H:%M %z") for each in moments
    ]


def days(expr: str, n: int = 7) -> list[str]:
    # 2026-03-01 was a Sunday.
    return [in_zone(each, "UTC")[:3] for each in preview(expr, "UTC", at("2026-03-01T13:00"), n)]


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        pytest.param("0 2 * * 0", ["Sun"] * 3, id="C-01-sunday-is-0"),
        pytest.param("0 2 * * 7", ["Sun"] * 3, id="C-02-sunday-is-7"),
        pytest.param("30 7 * * 4", ["Thu"] * 3, id="C-01-thursday-is-4"),
        pytest.param("0 9 * * 1", ["Mon"] * 3, id="monday-is-1"),
        pytest.param("0 9 * * 1-5", ["Mon", "Tue", "Wed", "Thu", "Fri", "Mon"], id="C-01-weekdays"),
        pytest.param("0 9 * * 6,0", ["Sat", "Sun", "Sat", "Sun"], id="C-01-weekend"),
        pytest.param(
            "15 10,12 * * 1,7", ["Mon", "Mon", "Sun", "Sun", "Mon"], id="C-02-mon-and-sun"
        ),
        pytest.param("0 9 * * 5-7", ["Fri", "Sat", "Sun", "Fri"], id="C-02-range-to-7"),
        pytest.param("0 9 * * MON,sun", ["Mon", "Sun", "Mon"], id="names"),
    ],
)
def test_days_of_the_week_are_those_of_crontab(expr: str, expected: list[str]) -> None:
    assert days(expr, len(expected)) == expected


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        pytest.param(
            "0 8 * * 1-5", "At 08:00, Monday through Friday (Europe/Berlin)", id="weekdays"
        ),
        pytest.param("0 9 * * 0", "At 09:00, only on Sunday (Europe/Berlin)", id="sunday-is-0"),
        pytest.param("0 9 * * 7", "At 09:00, only on Sunday (Europe/Berlin)", id="sunday-is-7"),
        pytest.param("0 9 * * 1", "At 09:00, only on Monday (Europe/Berlin)", id="monday-is-1"),
        pytest.param("0 9 * * 6", "At 09:00, only on Saturday (Europe/Berlin)", id="saturday-is-6"),
        pytest.param("0 9 * * 5-7", "At 09:00, Friday through Sunday (Europe/Berlin)", id="to-7"),
        pytest.param(
            "0 9 13 * 5", "At 09:00, on day 13 of the month, or on Friday (Europe/Berlin)", id="or"
        ),
        pytest.param("@daily", "At 00:00, every day (Europe/Berlin)", id="alias"),
        pytest.param("*/15 * * * *", "Every 15 minutes (Europe/Berlin)", id="step"),
        pytest.param("0 9 L * *", "At 09:00, on the last day of the month (Europe/Berlin)", id="L"),
        pytest.param(
            "0 9 * * fri#2", "At 09:00, on the second Friday of the month (Europe/Berlin)", id="nth"
        ),
    ],
)
def test_a_line_is_said_in_plain_english(expr: str, expected: str) -> None:
    assert in_words(expr, "Europe/Berlin") == expected


@pytest.mark.parametrize(
    ("expr", "said"),
    [
        pytest.param("", "has 0 fields", id="empty"),
        pytest.param("0 9 * *", "has 4 fields", id="4-fields"),
        pytest.param("0 0 9 * * *", "has 6 fields", id="6-fields"),
        pytest.param("0 0 31 2 *", "never comes", id="february-31"),
        pytest.param("0 0 31 4,6 *", "never comes", id="no-such-day-in-either"),
        pytest.param("60 * * * *", "'60' is no minute. Use 0 to 59", id="minute"),
        pytest.param("0 24 * * *", "'24' is no hour. Use 0 to 23", id="hour"),
        pytest.param("0 0 0 * *", "'0' is no day of the month", id="day-0"),
        pytest.param("0 0 * 13 *", "'13' is no month", id="month"),
        pytest.param("0 0 * * 8", "'8' is no day of the week. Use 0 to 7, or sun", id="weekday"),
        pytest.param("0 0 * * moo", "'moo' is no day of the week", id="no-name"),
        pytest.param("mon * * * *", "'mon' is no minute", id="name-in-the-wrong-place"),
        pytest.param("*/0 * * * *", "out of range", id="step-0"),
        pytest.param("*/70 * * * *", "out of range", id="step-too-wide"),
        pytest.param("1- * * * *", "'1-' is no minute", id="open-range"),
        pytest.param("R * * * *", "'r' is no minute", id="random"),
        pytest.param("0 9 ? * 1", "'?' is no day of the month", id="question-mark"),
        pytest.param("٣ * * * *", "is no minute", id="other-digits"),
        pytest.param("@reboot", "is no alias. Known are @yearly", id="alias"),
        pytest.param("0 9 1 * fri#2", "do not go together", id="nth-and-day"),
        pytest.param("0 9 L,15 * *", "'l' is no day of the month", id="last-in-a-list"),
    ],
)
def test_a_line_that_cannot_be_is_refused_with_its_cause(expr: str, said: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        parse(expr)
    assert said in str(refused.value)
    assert refused.value.fix


@pytest.mark.parametrize(
    ("zone", "said"),
    [
        pytest.param("Europe/Berln", "Did you mean Europe/Berlin", id="misspelt"),
        pytest.param("local", "There is no time zone 'local'", id="local"),
        pytest.param("", "Write one such as Europe/Berlin", id="empty"),
        pytest.param("Europe", "There is no time zone 'Europe'", id="a-folder"),
        pytest.param("../etc/passwd", "There is no time zone", id="a-path"),
        pytest.param("a\0b", "There is no time zone", id="zero-byte"),
    ],
)
def test_an_unknown_zone_is_refused_and_the_nearest_named(zone: str, said: str) -> None:
    with pytest.raises(ScheduleError, match=said):
        zone_of(zone)


@pytest.mark.parametrize(
    ("expr", "zone", "after", "expected"),
    [
        pytest.param(
            "30 2 * * *",
            NEW_YORK,
            "2026-03-06T12:00",
            ["07 02:30 -0500", "08 03:00 -0400", "09 02:30 -0400"],
            id="spring-an-hour-that-is-not",
        ),
        pytest.param(
            "30 * * * *",
            NEW_YORK,
            "2026-03-08T00:45",
            ["08 01:30 -0500", "08 03:30 -0400", "08 04:30 -0400"],
            id="spring-every-hour",
        ),
        pytest.param(
            "0 2,3 * * *",
            NEW_YORK,
            "2026-03-08T00:45",
            ["08 03:00 -0400", "09 02:00 -0400"],
            id="spring-two-that-fall-together",
        ),
        pytest.param(
            "30 1 * * *",
            NEW_YORK,
            "2026-10-31T12:00",
            ["01 01:30 -0400", "02 01:30 -0500"],
            id="autumn-once",
        ),
        pytest.param(
            "30 * * * *",
            NEW_YORK,
            "2026-11-01T00:45",
            ["01 01:30 -0400", "01 01:30 -0500", "01 02:30 -0500"],
            id="autumn-every-real-hour",
        ),
        pytest.param(
            "30 1 * * *",
            LONDON,
            "2026-03-28T12:00",
            ["29 02:00 +0100", "30 01:30 +0100"],
            id="london-spring",
        ),
        pytest.param(
            "30 1 * * *",
            LONDON,
            "2026-10-24T12:00",
            ["25 01:30 +0100", "26 01:30 +0000"],
            id="london-autumn-once",
        ),
        pytest.param(
            "15 2 * * *",
            HOWE,
            "2026-10-03T12:00",
            ["04 02:30 +1100", "05 02:15 +1100"],
            id="lord-howe-spring-30-minutes",
        ),
        pytest.param(
            "45 1 * * *",
            HOWE,
            "2026-04-04T12:00",
            ["05 01:45 +1100", "06 01:45 +1030"],
            id="lord-howe-autumn-once",
        ),
        pytest.param(
            "*/15 * * * *",
            HOWE,
            "2026-04-05T01:29",
            [
                "05 01:30 +1100",
                "05 01:45 +1100",
                "05 01:30 +1030",
                "05 01:45 +1030",
                "05 02:00 +1030",
            ],
            id="lord-howe-autumn-every-real-quarter",
        ),
        pytest.param(
            "0 0 * * *",
            "America/Santiago",
            "2026-09-05T12:00",
            ["06 01:00 -0300", "07 00:00 -0300"],
            id="a-midnight-that-is-not",
        ),
    ],
)
def test_a_change_of_the_clocks_neither_drops_nor_doubles(
    expr: str, zone: str, after: str, expected: list[str]
) -> None:
    assert shown(expr, zone, after, len(expected)) == expected


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        pytest.param("0 9 13 * 5", ["06", "13", "20"], id="the-13th-or-a-friday"),
        pytest.param("0 9 15 * 1", ["02", "09", "15", "16"], id="the-15th-or-a-monday"),
        pytest.param("@daily", ["02", "03", "04"], id="alias"),
        pytest.param("0 9 L * *", ["31"], id="last-day"),
        pytest.param("0 9 * * 5#2", ["13"], id="second-friday"),
        pytest.param("0 9 * * fri#2", ["13"], id="second-friday-by-name"),
    ],
)
def test_a_line_comes_on_the_days_that_crontab_users_expect(expr: str, expected: list[str]) -> None:
    moments = preview(expr, "UTC", at("2026-03-01T13:00"), len(expected))
    assert [in_zone(each, "UTC")[4:6] for each in moments] == expected


def test_a_midnight_run_a_little_late_does_not_skip_the_day_of_the_change() -> None:
    """C-03: the last run was seven seconds late on the day before the clocks went forward."""
    late = at("2022-03-13T00:00:07", "US/Pacific")
    assert in_zone(next_fire("0 0 * * *", "US/Pacific", late), "US/Pacific")[:6] == "Mon 14"


def test_a_moment_that_is_due_now_is_not_the_next() -> None:
    due = at("2026-03-02T08:00")
    assert next_fire("0 8 * * *", "UTC", due) == due + 86400
    assert next_fire("0 8 * * *", "UTC", due - 0.5) == due


def changes(zone: str, first: int, last: int) -> list[datetime]:
    """Return noon UTC of each day in these years on which the zone's offset changed."""
    place, day = ZoneInfo(zone), datetime(first, 1, 1, 12, tzinfo=UTC)
    found = []
    while day.year <= last:
        following = day + timedelta(days=1)
        if day.astimezone(place).utcoffset() != following.astimezone(place).utcoffset():
            found.append(following)
        day = following
    return found


@pytest.mark.parametrize("zone", ZONES)
def test_fixed_hours_come_exactly_once_on_every_day_around_ten_years_of_changes(zone: str) -> None:
    place = ZoneInfo(zone)
    for change in changes(zone, 2024, 2033):
        first = (change - timedelta(days=2)).astimezone(place).date()
        for hour, minute in ((0, 0), (0, 30), (1, 30), (2, 15), (3, 0), (23, 30)):
            midnight = datetime(first.year, first.month, first.day, tzinfo=place)
            moment, came = midnight.timestamp() - 1, []
            for _ in range(5):
                following = next_fire(f"{minute} {hour} * * *", zone, moment)
                assert following > moment
                moment = following
                came.append(datetime.fromtimestamp(moment, place).date())
            assert came == [first + timedelta(days=n) for n in range(5)], (zone, change, hour)


@pytest.mark.parametrize(
    ("zone", "expr"),
    [
        pytest.param(NEW_YORK, "30 2 * * *", id="new-york"),
        pytest.param(LONDON, "30 1 * * *", id="london"),
        pytest.param(HOWE, "45 1 * * *", id="lord-howe"),
        pytest.param("Africa/Cairo", "0 0 * * *", id="cairo"),
        pytest.param("America/Santiago", "30 0 * * *", id="santiago"),
    ],
)
def test_fixed_hours_come_exactly_once_a_day_for_ten_years(zone: str, expr: str) -> None:
    place, moment = ZoneInfo(zone), at("2024-01-01T00:00", zone) - 1
    day = datetime(2024, 1, 1, tzinfo=place).date()
    for n in range(3653):
        moment = next_fire(expr, zone, moment)
        assert datetime.fromtimestamp(moment, place).date() == day + timedelta(days=n)


@given(
    minute=st.integers(0, 59),
    hour=st.sampled_from(["*", "*/2", "0-3", "1", "0,2", "23"]),
    zone=st.sampled_from(ZONES),
    after=st.integers(int(at("2024-01-01T00:00")), int(at("2034-01-01T00:00"))),
)
def test_the_next_moment_is_the_first_that_matches(
    minute: int, hour: str, zone: str, after: int
) -> None:
    """Against the definition: walk minute by minute and compare what the clock shows."""
    expr, place = f"{minute} {hour} * * *", ZoneInfo(zone)
    found = next_fire(expr, zone, after)
    assert after < found <= after + 2 * 86400
    hours = {
        "*": range(24),
        "*/2": range(0, 24, 2),
        "0-3": range(4),
        "1": (1,),
        "0,2": (0, 2),
        "23": (23,),
    }[hour]
    wild = any(mark in hour for mark in "*/-")
    step = after - after % 60 + 60
    while step < found:
        wall = datetime.fromtimestamp(step, place)
        if wall.minute == minute and wall.hour in hours:
            assert not wild and wall.fold == 1, f"{wall} matches {expr} and was passed over"
        step += 60
