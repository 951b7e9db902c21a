"""The rules of a schedule as people write them, and quiet hours around changes of the clocks."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ScheduleError, Unclear
from engine.schedule.policy import DEFAULT, DELAYS, Policy, Quiet, split
from engine.schedule.proposals import coming
from engine.schedule.words import When

NEW_YORK, HOWE = "America/New_York", "Australia/Lord_Howe"


def at(text: str, zone: str = "UTC", fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def quiet(text: str) -> Quiet:
    found = Quiet.parse(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("said", "time", "fields"),
    [
        pytest.param("every weekday at 8", "every weekday at 8", {}, id="no-rule"),
        pytest.param(
            "every weekday at 8, catch up all, queue, deadline 30 min, retry 3, quiet 22:00-7:00",
            "every weekday at 8",
            {
                "catch_up": "all",
                "overlap": "queue",
                "deadline": 1800.0,
                "retries": 3,
                "quiet": Quiet(start=1320, end=420),
            },
            id="all-of-them",
        ),
        pytest.param(
            "Every Mon, Wed and Fri at 8, Europe/Berlin; Retry 2 times",
            "Every Mon, Wed and Fri at 8, Europe/Berlin",
            {"retries": 2},
            id="commas-in-the-time",
        ),
        pytest.param("missed runs skip", "", {"catch_up": "skip"}, id="a-rule-alone"),
        pytest.param("catch-up once", "", {"catch_up": "once"}, id="hyphen"),
        pytest.param("overlap skip", "", {"overlap": "skip"}, id="skip"),
        pytest.param("overlap queue", "", {"overlap": "queue"}, id="queue"),
        pytest.param("deadline 2h", "", {"deadline": 7200.0}, id="hours"),
        pytest.param("deadline 90 minutes", "", {"deadline": 5400.0}, id="minutes"),
        pytest.param("no deadline, no retry, no quiet", "", {
            "deadline": None, "retries": 0, "quiet": None,
        }, id="back-to-none"),
        pytest.param("quiet 10pm to 7am", "", {"quiet": Quiet(start=1320, end=420)}, id="pm-am"),
        pytest.param("quiet hours 12-13:30", "", {"quiet": Quiet(start=720, end=810)}, id="noon"),
    ],
)  # fmt: skip
def test_rules_follow_the_time(said: str, time: str, fields: dict[str, Any]) -> None:
    assert split(said) == (time, fields)


@pytest.mark.parametrize(
    ("said", "error", "says"),
    [
        pytest.param("every day at 8, skip", Unclear, "surely understand 'skip'", id="skip-what"),
        pytest.param("retry for ever", Unclear, "'retry for ever'", id="for-ever"),
        pytest.param("retry 3, and mail me", Unclear, "'and mail me'", id="something-else-after"),
        pytest.param("deadline 5", Unclear, "'deadline 5'", id="no-unit"),
        pytest.param("deadline 30 s", Unclear, "'deadline 30 s'", id="seconds"),
        pytest.param("deadline 0 min", ScheduleError, "1 min to 24 h", id="no-time"),
        pytest.param("deadline 25 h", ScheduleError, "1 min to 24 h", id="more-than-a-day"),
        pytest.param("retry 6", ScheduleError, "0 to 5", id="many"),
        pytest.param("quiet 8-8", ScheduleError, "leaves no time", id="all-day"),
        pytest.param("quiet 22-25", ScheduleError, "'25' is no time of day", id="no-time-of-day"),
        pytest.param("quiet at night", Unclear, "'quiet at night'", id="night"),
        pytest.param("queue, overlap skip", ScheduleError, "second time", id="twice"),
        pytest.param("catch up 3", Unclear, "'catch up 3'", id="number"),
    ],
)
def test_a_rule_that_is_not_sure_is_refused(
    said: str, error: type[ScheduleError], says: str
) -> None:
    with pytest.raises(error, match=says) as refused:
        split(said)
    assert type(refused.value) is error


def test_a_refusal_shows_how_to_write_it() -> None:
    with pytest.raises(Unclear, match="catch up all, queue, deadline 30 min, retry 3"):
        split("retry often")


policies = st.builds(
    Policy,
    catch_up=st.sampled_from(["once", "skip", "all"]),
    overlap=st.sampled_from(["skip", "queue"]),
    deadline=st.none() | st.integers(1, 1440).map(lambda n: n * 60.0),
    retries=st.integers(0, 5),
    quiet=st.none()
    | st.tuples(st.integers(0, 1439), st.integers(0, 1439))
    .filter(lambda pair: pair[0] != pair[1])
    .map(lambda pair: Quiet(start=pair[0], end=pair[1])),
)


@given(policies)
def test_what_a_policy_says_is_read_back_as_it_is(policy: Policy) -> None:
    time, fields = split(f"every day at 8, {policy}" if str(policy) else "every day at 8")
    assert (time, Policy(**fields)) == ("every day at 8", policy)
    assert Quiet.parse(str(policy.quiet or "")) == policy.quiet


@given(policies)
def test_each_rule_is_told_set_or_not(policy: Policy) -> None:
    assert [label for label, _ in policy.told()] == [label for label, _ in DEFAULT.told()]
    assert all(rule for _, rule in policy.told())


def test_the_counts_and_delays_are_told() -> None:
    told = dict(Policy(retries=3, deadline=1800, quiet=quiet("22:00-07:00")).told())
    assert told["After an error"].startswith("tried again after 1 min, 5 min, 15 min;")
    assert told["Deadline"].startswith("stopped after 30 min at work; waiting")
    assert told["Quiet hours"].startswith("22:00-07:00:")
    assert [Policy(retries=2).delay(n) for n in range(3)] == [*DELAYS[:2], None]


# -- quiet hours


@pytest.mark.parametrize(
    ("hours", "inside", "outside"),
    [
        pytest.param("22:00-07:00", ["22:00", "00:00", "06:59"], ["07:00", "21:59"], id="night"),
        pytest.param("12:00-13:30", ["12:00", "13:29"], ["11:59", "13:30"], id="noon"),
        pytest.param("00:00-06:00", ["00:00", "05:59"], ["06:00", "23:59"], id="midnight"),
        pytest.param("18:00-00:00", ["18:00", "23:59"], ["00:00", "17:59"], id="to-midnight"),
    ],
)
def test_quiet_hours_are_those_of_the_clock_there(
    hours: str, inside: list[str], outside: list[str]
) -> None:
    for text in inside + outside:
        moment = at(f"2026-03-02T{text}", NEW_YORK)
        assert quiet(hours).holds(moment, NEW_YORK) is (text in inside), text


@pytest.mark.parametrize(
    ("hours", "zone", "due", "ends"),
    [
        pytest.param(
            "22:00-07:00",
            NEW_YORK,
            at("2026-03-07T23:00", NEW_YORK),
            "2026-03-08T07:00-04:00",
            id="the-short-night-is-an-hour-shorter",
        ),
        pytest.param(
            "22:00-07:00",
            NEW_YORK,
            at("2026-10-31T23:00", NEW_YORK),
            "2026-11-01T07:00-05:00",
            id="the-long-night-is-an-hour-longer",
        ),
        pytest.param(
            "22:00-02:30",
            NEW_YORK,
            at("2026-03-08T01:00", NEW_YORK),
            "2026-03-08T03:00-04:00",
            id="an-end-that-the-clock-skips",
        ),
        pytest.param(
            "22:00-01:30",
            NEW_YORK,
            at("2026-11-01T01:15", NEW_YORK, fold=1),
            "2026-11-01T01:30-05:00",
            id="an-end-that-comes-twice-second-pass",
        ),
        pytest.param(
            "22:00-07:00",
            HOWE,
            at("2026-04-04T23:00", HOWE),
            "2026-04-05T07:00+10:30",
            id="thirty-minutes",
        ),
    ],
)
def test_quiet_hours_end_when_the_clock_says_so(
    hours: str, zone: str, due: float, ends: str
) -> None:
    assert Policy(quiet=quiet(hours)).begins(due, zone) == datetime.fromisoformat(ends).timestamp()


@given(
    start=st.integers(0, 1439),
    hours=st.integers(1, 1380),
    zone=st.sampled_from([NEW_YORK, "Europe/London", HOWE, "Africa/Cairo", "Asia/Kolkata"]),
    after=st.integers(int(at("2024-01-01T00:00")), int(at("2034-01-01T00:00"))),
)
def test_what_is_held_begins_at_the_first_minute_that_is_not_quiet(
    start: int, hours: int, zone: str, after: int
) -> None:
    held = Quiet(start=start, end=(start + hours) % 1440)
    begins = Policy(quiet=held).begins(after, zone)
    assert not held.holds(begins, zone)
    assert after <= begins <= after + 26 * 3600
    assert begins == after or held.holds(begins - 60, zone)


# -- the next times, and the last


@pytest.mark.parametrize(
    ("cron", "hours", "shown"),
    [
        pytest.param(
            "0 8 * * *",
            "22:00-07:00",
            ["Mon 02 Mar 2026, 08:00", "Tue 03 Mar 2026, 08:00", "Wed 04 Mar 2026, 08:00"],
            id="never-held",
        ),
        pytest.param(
            "0 23 * * *",
            "22:00-07:00",
            [
                "Tue 03 Mar 2026, 07:00 (due Mon 02 Mar 2026, 23:00)",
                "Wed 04 Mar 2026, 07:00 (due Tue 03 Mar 2026, 23:00)",
                "Thu 05 Mar 2026, 07:00 (due Wed 04 Mar 2026, 23:00)",
            ],
            id="always-held",
        ),
        pytest.param(
            "0 */8 * * *",
            "22:00-07:00",
            [
                "Mon 02 Mar 2026, 08:00",
                "Mon 02 Mar 2026, 16:00",
                "Tue 03 Mar 2026, 07:00 (due Tue 03 Mar 2026, 00:00)",
            ],
            id="one-run-for-all-of-the-night",
        ),
    ],
)
def test_the_next_times_are_those_at_which_it_begins(
    cron: str, hours: str, shown: list[str]
) -> None:
    when, now = When(zone="UTC", cron=cron), at("2026-03-02T07:30")
    assert coming(when, Policy(quiet=quiet(hours)), now) == shown


def test_a_moment_in_quiet_hours_is_shown_with_its_due_time() -> None:
    when = When(zone="UTC", once=at("2026-03-02T23:00"))
    held = coming(when, Policy(quiet=quiet("22:00-07:00")), at("2026-03-02T20:00"))
    assert held == ["Tue 03 Mar 2026, 07:00 (due Mon 02 Mar 2026, 23:00)"]


@pytest.mark.parametrize(
    ("cron", "days"),
    [
        pytest.param("* * * * *", 1, id="each-minute"),
        pytest.param("*/5 * * * *", 3, id="five-minutes"),
        pytest.param("0 8 * * *", 3, id="fewer-than-asked"),
        pytest.param("0 8 1 * *", 900, id="months"),
        pytest.param("0 8 29 2 *", 4000, id="leap-days"),
        pytest.param("0-9 8 * * *", 2, id="a-few-each-day"),
    ],
)
def test_the_last_missed_times_are_the_latest_in_order(cron: str, days: int) -> None:
    when, until = When(zone=NEW_YORK, cron=cron), at("2026-03-10T10:57", NEW_YORK)
    since = when.next_after(until - days * 86_400)
    assert since is not None
    everything, moment = [since], when.next_after(since)
    while moment is not None and moment <= until:
        everything.append(moment)
        moment = when.next_after(moment)
    assert when.latest(since, until, 12) == (everything[-12:], len(everything) > 12)


def test_a_year_of_missed_minutes_is_not_walked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    when, until = When(zone="UTC", cron="* * * * *"), at("2026-03-10T10:57")
    steps: list[float] = []
    walk = When.next_after

    def counted(self: When, moment: float) -> float | None:
        steps.append(moment)
        return walk(self, moment)

    monkeypatch.setattr(When, "next_after", counted)
    found, more = when.latest(until - 365 * 86_400, until, 12)
    assert (found[-1], len(found), more) == (until, 12, True)
    assert len(steps) < 100
