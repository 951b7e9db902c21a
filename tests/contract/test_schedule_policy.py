"""The rules of a schedule on both stores: missed, overlap, deadline, further tries, quiet hours."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import inbox, sessions
from engine.schedule import fires, runs, schedules
from engine.schedule.policy import DELAYS, WAITING, Policy, Quiet
from engine.schedule.runs import Fire
from engine.schedule.schedules import Schedule
from engine.store.base import Store, Tx
from engine.store.retention import delete_session
from tests.contract.test_schedules import (
    DAY,
    DUE,
    HOUR,
    START,
    TENANT,
    Clock,
    added,
    advance_to,
    alarm_on,
    at,
    fired,
    mail_of,
    notices,
    statuses,
    told,
)

NIGHT = Quiet.parse("22:00-07:00")


async def history(store: Store, schedule: Schedule) -> list[Fire]:
    found = await store.read(lambda tx: runs.history(tx, schedule.id, 99))
    return found[::-1]


async def row_of(store: Store, schedule: Schedule) -> Schedule:
    return await store.read(lambda tx: schedules.get(tx, schedule.id))


async def rung(store: Store, moment: float, data: Path) -> list[str]:
    """Ring the alarm at that moment; return the sessions it woke."""
    woken: list[str] = []
    await alarm_on(store, Clock(moment), data, woken.append).ring()
    return woken


async def end(store: Store, session: str | None, status: str, now: float) -> None:
    """Do what the end of the turn does: the worker is gone after it."""
    await advance_to(store, session, "idle")
    await store.write(lambda tx: runs.ended(tx, str(session), status, now))


# -- missed


async def test_all_that_was_missed_is_made_up_in_order_one_after_another(
    store: Store, tmp_path: Path
) -> None:
    schedule = await added(store, policy=Policy(catch_up="all"))
    back = DUE + 2 * DAY + HOUR
    [first] = await rung(store, back, tmp_path)
    assert await statuses(store, schedule) == ["started", "queued", "queued"]
    text = await told(store, first)
    assert "due Mon 02 Mar 2026, 08:00 (UTC)" in text and "catch-up run" in text
    assert "one of 3 missed times" in text and "not made up" not in text
    assert await rung(store, back + 60, tmp_path) == [], "the first is still at work"
    await end(store, first, "completed", back + 90)
    [second] = await rung(store, back + 90, tmp_path)
    text = await told(store, second)
    assert "due Tue 03 Mar 2026, 08:00 (UTC)" in text and "waited until the run before" in text
    await end(store, second, "error", back + 120)
    [third] = await rung(store, back + 120, tmp_path)
    assert "due Wed 04 Mar 2026, 08:00 (UTC)" in await told(store, third)
    assert [run.cause for run in await history(store, schedule)] == ["catch-up"] * 3
    assert await statuses(store, schedule) == ["completed", "failed", "started"]
    assert (await row_of(store, schedule)).next_at == DUE + 3 * DAY


async def test_what_is_made_up_has_a_limit_and_the_owner_is_told_what_is_left_out(
    store: Store, tmp_path: Path
) -> None:
    schedule = await added(store, cron="* * * * *", policy=Policy(catch_up="all"))
    back = START + 30 * DAY
    woken = await rung(store, back, tmp_path)
    made = await history(store, schedule)
    assert len(woken) == 1 and len(made) == WAITING
    assert [run.due for run in made] == [back - 60.0 * n for n in range(WAITING - 1, -1, -1)]
    assert made[-1].cause == "schedule", "what is due now is not late"
    [text] = await notices(store)
    assert "more than 12 times" in text and "left out" in text


async def test_one_missed_time_is_one_catch_up(store: Store, tmp_path: Path) -> None:
    schedule = await added(store, policy=Policy(catch_up="all"))
    [session] = await rung(store, DUE + HOUR, tmp_path)
    assert "missed times" not in await told(store, session)
    assert await statuses(store, schedule) == ["started"]


async def test_missed_times_wait_for_a_run_at_work_whatever_the_overlap_rule(
    store: Store, tmp_path: Path
) -> None:
    schedule = await added(store, policy=Policy(catch_up="all"))
    busy = await store.write(lambda tx: fires.run_now(tx, schedule.id, START, data=tmp_path))
    assert await rung(store, DUE + DAY + HOUR, tmp_path) == []
    assert await statuses(store, schedule) == ["started", "queued", "queued"]
    await end(store, busy.session, "completed", DUE + DAY + 2 * HOUR)
    [session] = await rung(store, DUE + DAY + 2 * HOUR, tmp_path)
    assert "due Mon 02 Mar 2026, 08:00" in await told(store, session)


# -- overlap


async def test_with_a_queue_each_runs_after_the_other(store: Store, tmp_path: Path) -> None:
    schedule = await added(store, cron="0 * * * *", policy=Policy(overlap="queue"))
    first = await fired(store, schedule, DUE, DUE, tmp_path)
    second = await fired(store, schedule, DUE + HOUR, DUE + HOUR, tmp_path)
    by_hand = await store.write(
        lambda tx: fires.run_now(tx, schedule.id, DUE + HOUR + 5, data=tmp_path)
    )
    assert [second.status, by_hand.status] == ["queued", "queued"]
    assert "08:00 was still at work" in by_hand.note
    assert await notices(store) == []
    await end(store, first.session, "completed", DUE + 2 * HOUR - 60)
    [woken] = await rung(store, DUE + 2 * HOUR - 60, tmp_path)
    assert "due Mon 02 Mar 2026, 09:00" in await told(store, woken)
    await end(store, woken, "completed", DUE + 2 * HOUR - 30)
    [last] = await rung(store, DUE + 2 * HOUR - 30, tmp_path)
    assert "started by hand at Mon 02 Mar 2026, 09:00" in await told(store, last)


async def test_a_full_queue_leaves_out_what_comes_and_says_so(store: Store, tmp_path: Path) -> None:
    schedule = await added(store, cron="* * * * *", now=DUE - 60, policy=Policy(overlap="queue"))
    for n in range(WAITING + 3):
        await fired(store, schedule, DUE + 60 * n, DUE + 60 * n, tmp_path)
    expected = ["started", *["queued"] * WAITING, "skipped", "skipped"]
    assert await statuses(store, schedule) == expected
    [text] = await notices(store)
    assert "12 runs wait already" in text


async def test_a_run_that_waits_for_a_person_gives_way_at_the_next_due_time(
    store: Store, tmp_path: Path
) -> None:
    """What waits behind it begins then, the oldest first, and what is due waits behind that."""
    schedule = await added(store, cron="0 * * * *", policy=Policy(overlap="queue"))
    first = await fired(store, schedule, DUE, DUE, tmp_path)
    await fired(store, schedule, DUE + HOUR, DUE + HOUR, tmp_path)
    await advance_to(store, first.session, "parked")
    assert await rung(store, DUE + HOUR + 60, tmp_path) == [], "its card stays until then"
    third = await fired(store, schedule, DUE + 2 * HOUR, DUE + 2 * HOUR, tmp_path)
    assert (third.status, third.superseded) == ("queued", first.session)
    text = await told(store, third.session)
    assert "due Mon 02 Mar 2026, 09:00" in text and "was stopped for this one" in text
    assert await statuses(store, schedule) == ["superseded", "started", "queued"]


@pytest.mark.parametrize("how", ["pause", "remove"])
async def test_what_waits_ends_with_its_schedule(store: Store, tmp_path: Path, how: str) -> None:
    schedule = await added(store, cron="0 * * * *", policy=Policy(overlap="queue", retries=1))
    first = await fired(store, schedule, DUE, DUE, tmp_path)
    await fired(store, schedule, DUE + HOUR, DUE + HOUR, tmp_path)
    other = await added(store, policy=Policy(retries=1))
    failing = await fired(store, other, DUE, DUE, tmp_path)
    await end(store, failing.session, "error", DUE + 5)

    def stop(tx: Tx) -> None:
        for each in (schedule.id, other.id):
            if how == "pause":
                schedules.enable(tx, each, False, DUE + HOUR)
            else:
                schedules.remove(tx, each, DUE + HOUR)

    await store.write(stop)
    await end(store, first.session, "completed", DUE + 2 * HOUR)
    assert await rung(store, DUE + 3 * HOUR, tmp_path) == []
    assert await statuses(store, schedule) == ["completed", "skipped"]
    assert await statuses(store, other) == ["failed"]


async def test_what_waits_for_a_run_that_is_deleted_begins(store: Store, tmp_path: Path) -> None:
    schedule = await added(store, cron="0 * * * *", policy=Policy(overlap="queue", deadline=600))
    first = await fired(store, schedule, DUE, DUE, tmp_path)
    await fired(store, schedule, DUE + HOUR, DUE + HOUR, tmp_path)
    await taken(store, first.session, DUE)
    await store.write(lambda tx: delete_session(tx, str(first.session), lambda tx, row: None))
    assert len(await rung(store, DUE + HOUR + 60, tmp_path)) == 1
    assert await statuses(store, schedule) == ["failed", "started"]


# -- the deadline


async def taken(store: Store, session: str | None, now: float, worker: str = "w") -> None:
    """Do to the rows what a worker's take does."""

    def work(tx: Tx) -> None:
        tx.run("session_want", id=session)
        row = tx.one("session_take", id=session, worker=worker, now=now, counted=1)
        assert row is not None
        runs.taken(tx, sessions.session_from(row), now)

    await store.write(work)


async def alive(store: Store, until: float, worker: str = "w") -> None:
    lease = {"tenant": TENANT, "name": f"worker:{worker}", "holder": worker}
    await store.write(lambda tx: tx.run("lease_renew", **lease, now=0.0, until=until))


async def given_up(store: Store, session: str | None, now: float) -> None:
    def work(tx: Tx) -> None:
        row = tx.one("session_get", id=session)
        assert row is not None
        asked = {"id": session, "epoch": row["epoch"], "noted": row["wanted"]}
        assert tx.run("session_release", **asked, state="parked")
        runs.rested(tx, str(session), now)

    await store.write(work)


async def stops(store: Store, session: str | None) -> list[Any]:
    return [body for kind, body in await mail_of(store, str(session)) if kind == "stop"]


async def test_a_deadline_counts_time_at_work_and_not_time_spent_waiting(
    store: Store, tmp_path: Path
) -> None:
    schedule = await added(store, policy=Policy(deadline=1800))
    run = await fired(store, schedule, DUE, DUE, tmp_path)
    await alive(store, until=DUE + 9 * DAY)
    await taken(store, run.session, DUE)
    await given_up(store, run.session, DUE + 1200)  # waits for a person, for a day
    assert await rung(store, DUE + 1800, tmp_path) == []
    await taken(store, run.session, DUE + DAY)
    assert await rung(store, DUE + DAY + 599, tmp_path) == []
    # the next due time is skipped as it is at work; the deadline wakes the run itself
    assert await rung(store, DUE + DAY + 600, tmp_path) == [run.session]
    assert await stops(store, run.session) == [
        {"reason": "it reached its deadline of 30 min at work"}
    ]
    await store.write(lambda tx: runs.ended(tx, str(run.session), "interrupted", DUE + DAY + 601))
    [ended, *_] = await history(store, schedule)
    assert (ended.status, ended.note) == ("failed", "it reached its deadline of 30 min at work")
    assert ended.worked == pytest.approx(1801)
    assert "The run of 'Morning briefing' failed: it reached its deadline of 30 min at work." in (
        await notices(store)
    )


async def test_time_at_work_adds_up_over_workers_that_died(store: Store, tmp_path: Path) -> None:
    """Of a worker that died, the time to the last fact it wrote counts; the outage does not."""
    schedule = await added(store, policy=Policy(deadline=1800))
    run = await fired(store, schedule, DUE, DUE, tmp_path)
    await taken(store, run.session, DUE)
    await store.write(
        lambda tx: tx.one(
            "session_advance",
            id=run.session,
            epoch=1,
            worker="w",
            seq=1,
            turn=1,
            turn_seq=1,
            attempts=0,
            now=DUE + 1000,
        )
    )
    assert await rung(store, DUE + 3 * HOUR, tmp_path) == [], "nobody was at work"
    assert await stops(store, run.session) == []
    back = DUE + 4 * HOUR
    await taken(store, run.session, back, worker="v")
    await alive(store, until=back + DAY, worker="v")
    assert await rung(store, back + 799, tmp_path) == []
    assert await rung(store, back + 800, tmp_path) == [run.session]


async def test_without_a_deadline_the_clock_leaves_a_run_alone(
    store: Store, tmp_path: Path
) -> None:
    schedule = await added(store, cron="0 8 1 * *", now=at("2026-02-28T00:00"))
    due = at("2026-03-01T08:00")
    run = await fired(store, schedule, due, due, tmp_path)
    await alive(store, until=due + 99 * DAY)
    await taken(store, run.session, due)
    assert await rung(store, due + 20 * DAY, tmp_path) == []
    assert await stops(store, run.session) == []


# -- further tries


async def test_a_run_that_ended_with_an_error_is_tried_again_in_its_own_session(
    store: Store, tmp_path: Path
) -> None:
    schedule = await added(store, policy=Policy(retries=2))
    run = await fired(store, schedule, DUE, DUE, tmp_path)
    now = DUE
    for n in range(2):
        await end(store, run.session, "error", now)
        [waiting] = await history(store, schedule)
        assert waiting.status == "retrying"
        assert f"({n + 1} of 2)" in waiting.note
        assert await notices(store) == [], "it is not given up"
        assert await rung(store, now + DELAYS[n] - 1, tmp_path) == []
        assert await rung(store, now + DELAYS[n], tmp_path) == [run.session]
        now += DELAYS[n]
        [(kind, body)] = await mail_of(store, run.session)
        assert kind == "fire", "nobody is watching"
        assert f"This is try {n + 2}" in body["message"]["content"]
        assert "do not repeat it" in body["message"]["content"]
    await end(store, run.session, "error", now)
    assert await statuses(store, schedule) == ["failed"]
    assert await notices(store) == [
        "The run of 'Morning briefing' failed: it ended with an error, after 3 tries."
    ]
    [failed] = await history(store, schedule)
    assert failed.tries == 2


async def test_a_try_that_succeeds_is_the_end_of_it(store: Store, tmp_path: Path) -> None:
    schedule = await added(store, policy=Policy(retries=3))
    run = await fired(store, schedule, DUE, DUE, tmp_path)
    await end(store, run.session, "error", DUE)
    await rung(store, DUE + 60, tmp_path)
    await end(store, run.session, "completed", DUE + 90)
    [done] = await history(store, schedule)
    assert (done.status, done.tries, done.note) == ("completed", 1, "")
    assert await rung(store, DUE + 4 * HOUR, tmp_path) == []


@pytest.mark.parametrize("status", ["interrupted", "max_iterations", "budget"])
async def test_only_an_error_is_tried_again(store: Store, tmp_path: Path, status: str) -> None:
    schedule = await added(store, policy=Policy(retries=3))
    run = await fired(store, schedule, DUE, DUE, tmp_path)
    await end(store, run.session, status, DUE)
    assert await statuses(store, schedule) == ["failed"]


async def test_many_who_see_a_try_due_begin_it_once(store: Store, tmp_path: Path) -> None:
    schedule = await added(store, policy=Policy(retries=1))
    run = await fired(store, schedule, DUE, DUE, tmp_path)
    await end(store, run.session, "error", DUE)
    work = [
        store.write(lambda tx: fires.tend(tx, run.fire, DUE + 60, DUE + 60, data=tmp_path))
        for _ in range(8)
    ]
    assert sorted(await asyncio.gather(*work)) == [*[[]] * 7, [run.session]]
    assert len(await mail_of(store, run.session)) == 1


async def test_the_next_due_time_takes_the_place_of_a_further_try(
    store: Store, tmp_path: Path
) -> None:
    schedule = await added(store, cron="* * * * *", now=DUE - 60, policy=Policy(retries=1))
    run = await fired(store, schedule, DUE, DUE, tmp_path)
    await end(store, run.session, "error", DUE + 30)
    after = await fired(store, schedule, DUE + 60, DUE + 60, tmp_path)
    assert after.status == "started"
    first, _ = await history(store, schedule)
    assert (first.status, "not tried again" in first.note) == ("failed", True)
    assert await rung(store, DUE + 91, tmp_path) == []


async def test_a_person_who_takes_it_up_decides_how_it_ends(store: Store, tmp_path: Path) -> None:
    schedule = await added(store, policy=Policy(retries=1))
    run = await fired(store, schedule, DUE, DUE, tmp_path)
    await end(store, run.session, "error", DUE)
    await taken(store, run.session, DUE + 30)
    assert await rung(store, DUE + 60, tmp_path) == [], "their turn is at work"
    await store.write(lambda tx: runs.ended(tx, str(run.session), "completed", DUE + 99))
    assert await statuses(store, schedule) == ["completed"]
    assert await rung(store, DUE + HOUR, tmp_path) == []


# -- quiet hours


async def test_what_is_due_in_quiet_hours_is_one_run_at_their_end(
    store: Store, tmp_path: Path
) -> None:
    schedule = await added(store, cron="0 * * * *", now=DUE, policy=Policy(quiet=NIGHT))
    evening, morning = at("2026-03-02T22:00"), at("2026-03-03T07:00")
    for hour in range(14):  # 09:00 to 22:00
        session = await rung(store, DUE + HOUR * (hour + 1), tmp_path)
        if session:
            await end(store, session[0], "completed", DUE + HOUR * (hour + 1) + 5)
    held = await row_of(store, schedule)
    assert (held.held_from, held.next_at) == (evening, morning)
    assert await rung(store, at("2026-03-03T03:00"), tmp_path) == []
    [session] = await rung(store, morning, tmp_path)
    text = await told(store, session)
    assert "due Mon 02 Mar 2026, 22:00 (UTC)" in text
    assert "Quiet hours held it, and what came due in them, until Tue 03 Mar 2026, 07:00" in text
    assert "catch-up" not in text
    after = await row_of(store, schedule)
    assert (after.held_from, after.next_at) == (None, morning + HOUR)
    assert (await history(store, schedule))[-1].due == evening


async def test_quiet_hours_are_those_of_the_zone_of_the_schedule(
    store: Store, tmp_path: Path
) -> None:
    """23:00 in New York, in the night in which the clock is put forward."""
    schedule = await added(
        store,
        cron="0 23 * * *",
        zone="America/New_York",
        now=at("2026-03-07T20:00"),
        policy=Policy(quiet=NIGHT),
    )
    due, morning = at("2026-03-08T04:00"), at("2026-03-08T11:00")  # UTC: 7 h later, not 8
    assert schedule.next_at == due
    assert await rung(store, due, tmp_path) == []
    assert (await row_of(store, schedule)).next_at == morning


async def test_a_moment_in_quiet_hours_is_held_and_not_lost(store: Store, tmp_path: Path) -> None:
    due = at("2026-03-02T23:00")
    schedule = await added(store, cron="", once=due, policy=Policy(quiet=NIGHT))
    assert await rung(store, due, tmp_path) == []
    assert len(await rung(store, at("2026-03-03T07:00"), tmp_path)) == 1
    assert not (await row_of(store, schedule)).enabled


async def test_a_person_may_run_it_in_quiet_hours(store: Store, tmp_path: Path) -> None:
    schedule = await added(store, policy=Policy(quiet=NIGHT))
    night = at("2026-03-02T23:00")
    run = await store.write(lambda tx: fires.run_now(tx, schedule.id, night, data=tmp_path))
    assert run.status == "started"


@pytest.mark.parametrize("catch_up", ["once", "skip", "all"])
async def test_what_was_missed_and_found_at_night_waits_for_the_morning_or_is_left_out(
    store: Store, tmp_path: Path, catch_up: str
) -> None:
    policy = Policy(quiet=NIGHT, catch_up=catch_up)
    schedule = await added(store, cron="0 21 * * *", policy=policy)
    assert await rung(store, at("2026-03-02T23:30"), tmp_path) == []
    if catch_up == "skip":
        assert await statuses(store, schedule) == ["skipped"]
        return
    [session] = await rung(store, at("2026-03-03T07:00"), tmp_path)
    assert "due Mon 02 Mar 2026, 21:00" in await told(store, session)


async def test_missed_times_of_one_night_are_one_of_those_made_up(
    store: Store, tmp_path: Path
) -> None:
    policy = Policy(quiet=NIGHT, catch_up="all")
    schedule = await added(store, cron="0 */2 * * *", now=at("2026-03-02T19:00"), policy=policy)
    await rung(store, at("2026-03-03T09:00"), tmp_path)
    made = [f"{run.due:.0f}" for run in await history(store, schedule)]
    assert made == [f"{at(f'2026-03-0{day}'):.0f}" for day in ("2T20:00", "2T22:00", "3T08:00")]


async def test_a_further_try_and_a_queue_wait_for_the_morning_too(
    store: Store, tmp_path: Path
) -> None:
    late = at("2026-03-02T21:30")
    policy = Policy(quiet=NIGHT, retries=2, overlap="queue")
    schedule = await added(store, cron="30 21 * * *", policy=policy)
    run = await fired(store, schedule, late, late, tmp_path)
    by_hand = await store.write(lambda tx: fires.run_now(tx, schedule.id, late + 60, data=tmp_path))
    assert by_hand.status == "queued"
    await end(store, run.session, "error", late + 29 * 60 + 30)  # its next try would be at 22:00
    [first, _] = await history(store, schedule)
    assert "tried again Tue 03 Mar 2026, 07:00" in first.note
    morning = at("2026-03-03T07:00")
    assert await rung(store, morning, tmp_path) == [run.session]
    night = at("2026-03-03T23:00")
    await end(store, run.session, "completed", night)
    assert await rung(store, night, tmp_path) == []
    assert len(await rung(store, at("2026-03-04T07:00"), tmp_path)) == 1


async def test_a_change_of_rules_leaves_held_what_is_held(store: Store, tmp_path: Path) -> None:
    due = at("2026-03-02T23:00")
    schedule = await added(store, cron="0 23 * * *", policy=Policy(quiet=NIGHT))
    await rung(store, due, tmp_path)

    def change(tx: Tx, **changes: Any) -> Schedule:
        given = {"title": "x", "when": schedule.when, "instructions": "y", "report_to": ""}
        rules = {"policy": Policy(quiet=NIGHT, retries=1), "now": due + HOUR}
        return schedules.change(tx, schedule.id, **given | rules | changes)

    held = await store.write(change)
    assert (held.held_from, held.next_at) == (due, at("2026-03-03T07:00"))
    freed = await store.write(lambda tx: change(tx, policy=Policy()))
    assert (freed.held_from, freed.next_at) == (due, due + HOUR)
    other = replace(schedule.when, cron="0 12 * * *")
    moved = await store.write(lambda tx: change(tx, when=other))
    assert (moved.held_from, moved.next_at) == (None, at("2026-03-03T12:00"))


async def test_a_zone_that_vanished_ends_what_waits_and_no_turn(
    store: Store, tmp_path: Path
) -> None:
    """A zone may vanish with an update of the time zone data."""
    policy = Policy(quiet=NIGHT, retries=1, overlap="queue")
    schedule = await added(store, policy=policy)
    run = await fired(store, schedule, DUE, DUE, tmp_path)
    await store.write(lambda tx: fires.run_now(tx, schedule.id, DUE + 5, data=tmp_path))
    given = {"title": "x", "cron": "0 8 * * *", "once": None, "instructions": "y", "report_to": ""}
    rules = schedules.fields_of(policy) | {"next": DUE + DAY, "held": None, "now": DUE}
    gone = {"id": schedule.id, "zone": "Atlantis/Capital"}
    await store.write(lambda tx: tx.run("schedule_change", **given, **rules, **gone))
    await end(store, run.session, "error", DUE + 60)
    assert await statuses(store, schedule) == ["failed", "queued"], "it ends without another try"
    assert await rung(store, DUE + 60, tmp_path) == []
    assert await statuses(store, schedule) == ["failed", "failed"]
    told_of = await notices(store)
    assert any("no time zone 'Atlantis/Capital'" in text for text in told_of)


async def test_the_same_failure_is_told_again_only_once_it_was_seen(
    store: Store, tmp_path: Path
) -> None:
    schedule = await added(store)

    async def failing(day: int, how: str) -> None:
        due = DUE + day * DAY
        run = await fired(store, schedule, due, due, tmp_path)
        await end(store, run.session, how, due)

    for day in range(3):
        await failing(day, "error")
    assert len(await notices(store)) == 1
    await failing(3, "max_iterations")
    assert len(await notices(store)) == 2
    owner = inbox.Person(id="ana", role="owner")
    for each in await store.read(lambda tx: inbox.pending(tx, TENANT)):
        await store.write(
            lambda tx, id=each.id: inbox.resolve(tx, id, {"kind": "seen"}, owner, "", DUE + 9 * DAY)
        )
    await failing(4, "error")
    assert len(await notices(store)) == 1
    assert (await statuses(store, schedule)).count("failed") == 5
