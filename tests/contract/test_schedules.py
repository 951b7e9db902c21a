"""Schedules on both stores: what is due fires once, in a session of its own, and delays nobody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from engine import audit, inbox, sessions
from engine.canonical import loads
from engine.errors import NodError, ScheduleError, StoreFull, TargetError
from engine.inbox import Prompt
from engine.schedule import fires, runs, schedules, wakes
from engine.schedule.alarm import QUIET, SLEPT, Alarm
from engine.schedule.fires import Fired
from engine.schedule.policy import DEFAULT, Policy
from engine.schedule.schedules import Schedule
from engine.schedule.words import When
from engine.store.base import Store, Tx
from engine.store.sqlite import SqliteStore

TENANT, OWNER = "local", "console"
HOUR, DAY = 3600.0, 86400.0


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


#: A Monday, an hour before the first due time of most schedules here.
START = at("2026-03-02T07:00")
DUE = at("2026-03-02T08:00")


async def added(store: Store, now: float = START, **changes: Any) -> Schedule:
    values: dict[str, Any] = {
        "tenant": TENANT,
        "owner": OWNER,
        "title": "Morning briefing",
        "instructions": "Read the calendar and write the briefing.",
        "home": "console:main",
        "persona": "cowork",
        "model": "practice:rules",
    } | changes
    when = When(
        cron=values.pop("cron", "0 8 * * *"),
        zone=values.pop("zone", "UTC"),
        once=values.pop("once", None),
    )
    return await store.write(lambda tx: schedules.add(tx, now=now, when=when, **values))


async def fired(store: Store, schedule: Schedule, due: float, now: float, data: Path) -> Fired:
    done = await store.write(lambda tx: fires.fire(tx, schedule.id, due, now, data=data))
    assert done is not None
    return done


async def session_of(store: Store, fired: Fired) -> sessions.Session:
    assert fired.session is not None
    session_id = fired.session
    return await store.read(lambda tx: sessions.get(tx, session_id))


async def mail_of(store: Store, session_id: str | None) -> list[tuple[str, Any]]:
    rows = await store.read(lambda tx: tx.all("mail_waiting", session=session_id))
    return [(row["kind"], loads(row["body"])) for row in rows]


async def told(store: Store, session_id: str | None) -> str:
    """Return what the run was told to do."""
    [(kind, body)] = await mail_of(store, session_id)
    assert kind == "fire"
    return str(body["message"]["content"])


async def statuses(store: Store, schedule: Schedule) -> list[str]:
    rows = await store.read(lambda tx: runs.history(tx, schedule.id))
    return [row.status for row in reversed(rows)]


async def notices(store: Store) -> list[str]:
    rows = await store.read(lambda tx: inbox.pending(tx, TENANT))
    return [str(prompt.payload["text"]) for prompt in rows if prompt.kind == "notice"]


async def advance_to(store: Store, session_id: str | None, state: str) -> None:
    """Do to the session's row what a worker does: take it, open a turn, give it up as `state`."""

    def work(tx: Tx) -> None:
        row = tx.one("session_take", id=session_id, worker="w", now=0.0, counted=1)
        assert row is not None
        open_turn = int(state != "idle")
        for mail in tx.all("mail_waiting", session=session_id):
            tx.run("mail_entered", id=mail["id"], seq=1)
        given = {"id": session_id, "epoch": row["epoch"]}
        tx.one(
            "session_advance",
            **given,
            worker="w",
            seq=1,
            turn=1,
            turn_seq=open_turn,
            attempts=0,
            now=START,
        )
        if state != "running":
            assert tx.run("session_release", **given, noted=row["wanted"], state=state)

    await store.write(work)


class Clock:
    def __init__(self, moment: float) -> None:
        self.moment = moment

    def __call__(self) -> float:
        return self.moment


def alarm_on(
    store: Store,
    now: Callable[[], float],
    data: Path,
    woken: Callable[[str], None] = lambda session: None,
    prompts: Callable[[Sequence[Prompt]], None] = lambda prompts: None,
) -> Alarm:
    return Alarm(store=store, now=now, tenant=TENANT, data=data, on_wake=woken, on_prompts=prompts)


# -- the rows


async def test_a_schedule_is_found_by_the_start_of_its_id(store: Store) -> None:
    schedule = await added(store)
    assert schedule.next_at == DUE
    assert await store.read(lambda tx: schedules.find(tx, TENANT, schedule.id[:6])) == schedule
    assert await store.read(lambda tx: schedules.listed(tx, TENANT)) == [schedule]
    for start in ("", "%", "zzz"):
        with pytest.raises(ScheduleError, match="/schedule list"):
            await store.read(lambda tx, start=start: schedules.find(tx, TENANT, start))


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        pytest.param({"cron": "0 0 31 2 *"}, ScheduleError, "never comes", id="impossible"),
        pytest.param({"zone": "local"}, ScheduleError, "no time zone 'local'", id="zone"),
        pytest.param({"title": " "}, ScheduleError, "needs a title", id="title"),
        pytest.param({"title": "x" * 121}, ScheduleError, "121 characters", id="long-title"),
        pytest.param({"instructions": ""}, ScheduleError, "instructions", id="instructions"),
        pytest.param({"home": "nowhere"}, TargetError, "no thread target", id="home"),
        pytest.param({"report_to": "#general"}, TargetError, "no thread target", id="report-to"),
    ],
)
async def test_what_cannot_be_is_refused_and_nothing_stored(
    store: Store, changes: dict[str, Any], error: type[NodError], said: str
) -> None:
    with pytest.raises(error, match=said):
        await added(store, **changes)
    assert await store.read(lambda tx: schedules.listed(tx, TENANT)) == []


async def test_listing_moves_no_due_time(store: Store) -> None:
    """C-06: also when it is read after the due time."""
    schedule = await added(store)
    await store.read(lambda tx: schedules.listed(tx, TENANT))
    assert (await store.read(lambda tx: schedules.get(tx, schedule.id))).next_at == DUE


async def test_one_that_was_off_over_its_due_time_does_not_catch_up(store: Store) -> None:
    schedule = await added(store)
    off = await store.write(lambda tx: schedules.enable(tx, schedule.id, False, START))
    assert (off.enabled, off.next_at) == (False, None)
    on = await store.write(lambda tx: schedules.enable(tx, schedule.id, True, DUE + HOUR))
    assert (on.enabled, on.next_at) == (True, DUE + DAY)


async def test_a_removed_schedule_keeps_its_fires_and_never_fires(
    store: Store, tmp_path: Path
) -> None:
    schedule = await added(store)
    await fired(store, schedule, DUE, DUE, tmp_path)
    await store.write(lambda tx: schedules.remove(tx, schedule.id, DUE))
    again = await store.write(
        lambda tx: fires.fire(tx, schedule.id, DUE + DAY, DUE + DAY, data=tmp_path)
    )
    assert again is None
    assert await statuses(store, schedule) == ["started"]


# -- firing


async def test_a_run_gets_a_session_of_its_own_and_knows_what_it_is(
    store: Store, tmp_path: Path
) -> None:
    schedule = await added(store, zone="Europe/Berlin", report_to="slack:T1/C1")
    due = at("2026-03-02T07:00")  # 08:00 in Berlin
    assert (
        await store.write(lambda tx: schedules.enable(tx, schedule.id, False, 0.0))
    ).next_at is None
    await store.write(lambda tx: schedules.enable(tx, schedule.id, True, due - HOUR))
    run = await fired(store, schedule, due, due + 1, tmp_path)
    session = await session_of(store, run)
    assert session.home == f"console:{schedule.id}-20260302-0800"
    assert session.title == "Morning briefing, Mon 02 Mar 2026"
    assert (session.origin, session.home_open, session.owner) == ("schedule", False, OWNER)
    assert session.wanted > session.seen
    found = await store.read(lambda tx: sessions.find_thread(tx, TENANT, session.home))
    assert found == session.id
    text = await told(store, session.id)
    assert text.startswith("Read the calendar and write the briefing.\n\n")
    assert "due Mon 02 Mar 2026, 08:00 (Europe/Berlin)" in text
    assert text.endswith("\nreport to: slack:T1/C1")
    assert "catch-up" not in text
    after = await store.read(lambda tx: schedules.get(tx, schedule.id))
    assert (after.last_due, after.next_at) == (due, due + DAY)
    assert await store.read(lambda tx: audit.verify(tx, TENANT)) == []


async def test_on_a_chat_platform_the_home_keeps_its_session(store: Store, tmp_path: Path) -> None:
    schedule = await added(store, home="slack:T1/D1")
    session = await session_of(store, await fired(store, schedule, DUE, DUE, tmp_path))
    assert session.home == "slack:T1/D1"
    assert await store.read(lambda tx: sessions.find_thread(tx, TENANT, "slack:T1/D1")) is None


async def test_many_who_see_one_due_time_fire_it_once(store: Store, tmp_path: Path) -> None:
    """C-11: as two processes on one store do."""
    schedule = await added(store)
    work = [
        store.write(lambda tx: fires.fire(tx, schedule.id, DUE, DUE, data=tmp_path))
        for _ in range(8)
    ]
    done = [each for each in await asyncio.gather(*work) if each is not None]
    assert len(done) == 1
    assert await statuses(store, schedule) == ["started"]
    assert len(await store.read(lambda tx: sessions.listed(tx, TENANT))) == 1


@pytest.mark.parametrize(
    ("cron", "more"),
    [pytest.param("0 8 * * *", False, id="one"), pytest.param("*/5 * * * *", True, id="many")],
)
async def test_what_was_missed_while_down_is_one_run_that_says_so(
    store: Store, tmp_path: Path, cron: str, more: bool
) -> None:
    schedule = await added(store, cron=cron)
    back = at("2026-03-02T10:57")
    woken: list[str] = []
    alarm = alarm_on(store, lambda: back, tmp_path, woken.append)
    await alarm.ring()
    await alarm.ring()
    assert len(woken) == 1
    text = await told(store, woken[0])
    assert "catch-up run: it begins late, at Mon 02 Mar 2026, 10:57" in text
    assert ("all due times that were missed" in text) is more
    after = await store.read(lambda tx: schedules.get(tx, schedule.id))
    assert after.next_at is not None
    assert after.next_at > back


async def test_catch_up_runs_only_what_was_due(store: Store, tmp_path: Path) -> None:
    """C-09: restart at 10:57 with jobs at 08:00, 09:00, 17:00 and 19:30."""
    titles = ("0 8 * * *", "0 9 * * *", "0 17 * * *", "30 19 * * *")
    for cron in titles:
        await added(store, cron=cron, title=cron)
    for moment in ("2026-03-02T10:57", "2026-03-02T10:58", "2026-03-02T16:59"):
        await alarm_on(store, Clock(at(moment)), tmp_path).ring()
    found = await store.read(lambda tx: sessions.listed(tx, TENANT))
    assert sorted(each.title[:9] for each in found) == ["0 8 * * *", "0 9 * * *"]


async def test_one_that_does_not_catch_up_says_what_it_left_out(
    store: Store, tmp_path: Path
) -> None:
    schedule = await added(store, policy=Policy(catch_up="skip"))
    run = await fired(store, schedule, DUE, DUE + HOUR, tmp_path)
    assert (run.status, run.session) == ("skipped", None)
    [text] = await notices(store)
    assert "due Mon 02 Mar 2026, 08:00 (UTC) was skipped: Nod was not running" in text
    on_time = await fired(store, schedule, DUE + DAY, DUE + DAY + 5, tmp_path)
    assert on_time.status == "started"


async def test_while_a_run_is_at_work_the_next_is_skipped_and_said_once(
    store: Store, tmp_path: Path
) -> None:
    schedule = await added(store, cron="* * * * *", now=DUE - 60)
    first = await fired(store, schedule, DUE, DUE, tmp_path)
    waiting = await fired(store, schedule, DUE + 60, DUE + 60, tmp_path)
    await advance_to(store, first.session, "running")
    at_work = await fired(store, schedule, DUE + 120, DUE + 120, tmp_path)
    assert [waiting.status, at_work.status] == ["skipped", "skipped"]
    [text] = await notices(store)
    assert text.endswith("the run of Mon 02 Mar 2026, 08:00 was still at work.")
    await store.write(lambda tx: runs.ended(tx, str(first.session), "completed", DUE + 150))
    assert (await fired(store, schedule, DUE + 180, DUE + 180, tmp_path)).status == "started"
    assert await statuses(store, schedule) == ["completed", "skipped", "skipped", "started"]


async def test_a_parked_run_is_stopped_for_the_next(store: Store, tmp_path: Path) -> None:
    schedule = await added(store)
    first = await fired(store, schedule, DUE, DUE, tmp_path)
    await advance_to(store, first.session, "parked")
    second = await fired(store, schedule, DUE + DAY, DUE + DAY, tmp_path)
    assert second.superseded == first.session
    assert await mail_of(store, first.session) == [("stop", {"reason": "superseded"})]
    stopped = await session_of(store, first)
    assert stopped.stop_mark == 1
    assert stopped.wanted > stopped.seen
    assert "was stopped for this one" in await told(store, second.session)
    assert await statuses(store, schedule) == ["superseded", "started"]
    # its turn ends as interrupted, later
    await store.write(lambda tx: runs.ended(tx, stopped.id, "interrupted", DUE + DAY))
    assert await statuses(store, schedule) == ["superseded", "started"]


async def test_an_answer_just_before_the_next_run_counts(store: Store, tmp_path: Path) -> None:
    """The parked run has something to do again, so it is at work and not stopped."""
    schedule = await added(store)
    first = await fired(store, schedule, DUE, DUE, tmp_path)
    await advance_to(store, first.session, "parked")
    await store.write(lambda tx: tx.run("session_want", id=first.session))
    second = await fired(store, schedule, DUE + DAY, DUE + DAY, tmp_path)
    assert (second.status, second.superseded) == ("skipped", None)


async def test_a_run_that_left_no_word_does_not_block_the_next(
    store: Store, tmp_path: Path
) -> None:
    """A stop may come before the turn began: then there is no end of a turn."""
    schedule = await added(store)
    first = await fired(store, schedule, DUE, DUE, tmp_path)
    await advance_to(store, first.session, "idle")
    second = await fired(store, schedule, DUE + DAY, DUE + DAY, tmp_path)
    assert (second.status, second.superseded) == ("started", None)
    assert await statuses(store, schedule) == ["failed", "started"]


@pytest.mark.parametrize(
    ("status", "recorded", "said"),
    [
        pytest.param("completed", "completed", [], id="completed"),
        pytest.param("parked", "started", [], id="parked-is-no-end"),
        pytest.param("interrupted", "failed", [], id="stopped-by-a-person"),
        pytest.param(
            "error",
            "failed",
            ["The run of 'Morning briefing' failed: it ended with an error."],
            id="C-14-error",
        ),
        pytest.param(
            "max_iterations",
            "failed",
            ["The run of 'Morning briefing' failed: it reached the limit of steps for one turn."],
            id="cap",
        ),
    ],
)
async def test_the_end_of_the_turn_is_the_end_of_the_run(
    store: Store, tmp_path: Path, status: str, recorded: str, said: list[str]
) -> None:
    schedule = await added(store)
    run = await fired(store, schedule, DUE, DUE, tmp_path)
    await store.write(lambda tx: runs.ended(tx, str(run.session), status, DUE + 60))
    assert await statuses(store, schedule) == [recorded]
    assert await notices(store) == said
    if status != "parked":  # a person goes on talking in the run's thread
        await store.write(lambda tx: runs.ended(tx, str(run.session), "error", DUE + 99))
        assert await statuses(store, schedule) == [recorded]


async def test_run_now_leaves_the_due_times_alone(store: Store, tmp_path: Path) -> None:
    schedule = await added(store)
    first = await store.write(lambda tx: fires.run_now(tx, schedule.id, START + 1, data=tmp_path))
    assert "started by hand at Mon 02 Mar 2026, 07:00 (UTC)" in await told(store, first.session)
    busy = await store.write(lambda tx: fires.run_now(tx, schedule.id, START + 9, data=tmp_path))
    assert (busy.status, busy.session) == ("skipped", None)
    assert await notices(store) == []
    await store.write(lambda tx: runs.ended(tx, str(first.session), "completed", START))
    again = await store.write(lambda tx: fires.run_now(tx, schedule.id, START + 20, data=tmp_path))
    homes = [(await session_of(store, run)).home for run in (first, again)]
    assert homes == [f"console:{schedule.id}-20260302-0700{end}" for end in ("", "-2")]
    assert (await store.read(lambda tx: schedules.get(tx, schedule.id))).next_at == DUE


# -- the alarm


async def test_ten_due_at_once_are_not_delayed_by_one_that_is_stuck(
    store: Store, tmp_path: Path
) -> None:
    all_ten = [await added(store, title=f"Job {n}") for n in range(10)]
    first = await fired(store, all_ten[0], DUE, DUE, tmp_path)
    await advance_to(store, first.session, "running")  # and there it stays
    woken: list[str] = []
    await alarm_on(store, Clock(DUE + DAY), tmp_path, woken.append).ring()
    assert len(woken) == 9
    assert await statuses(store, all_ten[0]) == ["started", "skipped"]


async def test_one_that_cannot_fire_is_switched_off_and_said_and_the_others_run(
    store: Store, tmp_path: Path
) -> None:
    """A zone may vanish with an update of the time zone data."""
    good = await added(store, title="Fine")
    await store.write(
        lambda tx: tx.run(
            "schedule_add",
            tenant=TENANT,
            owner=OWNER,
            cron="0 8 * * *",
            zone="Atlantis/Capital",
            instructions="x",
            home="console:main",
            report_to="",
            persona="cowork",
            model="m",
            **schedules.fields_of(DEFAULT),
            next=DUE,
            once=None,
            now=START,
            id="zoneless",
            title="Lost",
        )
    )
    woken: list[str] = []
    alarm = alarm_on(store, Clock(DUE), tmp_path, woken.append)
    following = await alarm.ring()
    assert len(woken) == 1
    assert await statuses(store, good) == ["started"]
    lost = await store.read(lambda tx: schedules.get(tx, "zoneless"))
    assert (lost.enabled, lost.next_at) == (False, None)
    [text] = await notices(store)
    assert text.startswith("'Lost' could not be started: There is no time zone 'Atlantis/Capital'")
    assert text.endswith("It is switched off.")
    assert following == DUE + DAY


async def test_the_alarm_rings_for_the_nearest_row_by_itself(store: Store, tmp_path: Path) -> None:
    schedule = await added(store)
    offset = DUE - 0.2 - time.time()
    woken: asyncio.Queue[str] = asyncio.Queue()
    async with alarm_on(store, lambda: time.time() + offset, tmp_path, woken.put_nowait):
        session = await asyncio.wait_for(woken.get(), 10)
        assert time.time() + offset >= DUE
    assert (await store.read(lambda tx: sessions.get(tx, session))).title.startswith("Morning")
    assert await statuses(store, schedule) == ["started"]


async def test_a_nudge_makes_it_see_what_was_added(store: Store, tmp_path: Path) -> None:
    clock, woken = Clock(START), asyncio.Queue[str]()
    async with alarm_on(store, clock, tmp_path, woken.put_nowait) as alarm:
        await added(store)
        clock.moment = DUE
        alarm.nudge()
        await asyncio.wait_for(woken.get(), 10)
    assert woken.empty()


async def test_two_alarms_on_one_store_fire_each_due_time_once(
    store: Store, tmp_path: Path
) -> None:
    every = [await added(store, title=f"Job {n}") for n in range(10)]
    woken: list[str] = []
    alarms = [alarm_on(store, Clock(DUE), tmp_path, woken.append) for _ in range(2)]
    await asyncio.gather(*(alarm.ring() for alarm in alarms))
    assert len(woken) == len(set(woken)) == 10
    for schedule in every:
        assert await statuses(store, schedule) == ["started"]


async def test_what_the_store_refused_stays_due(sqlite_store: Store, tmp_path: Path) -> None:
    schedule = await added(sqlite_store)
    woken: list[str] = []
    alarm = alarm_on(sqlite_store, Clock(DUE), tmp_path, woken.append)

    def full() -> None:
        raise StoreFull("The disk is full.")

    assert isinstance(sqlite_store, SqliteStore)
    sqlite_store.before_commit = full
    assert await alarm.ring() is None  # nothing else waits; the rescan looks again
    assert (woken, await statuses(sqlite_store, schedule)) == ([], [])
    sqlite_store.before_commit = None
    assert await alarm.ring() == DUE + DAY
    assert await statuses(sqlite_store, schedule) == ["started"]


async def test_a_wake_comes_once_and_into_its_session(store: Store, tmp_path: Path) -> None:
    run = await fired(store, await added(store), DUE, DUE, tmp_path)
    session = await session_of(store, run)
    await advance_to(store, session.id, "idle")
    wake = await store.write(lambda tx: wakes.add(tx, session, DUE + 60, "look at CI", DUE))
    woken: list[str] = []
    alarm = alarm_on(store, Clock(DUE + 60), tmp_path, woken.append)
    await alarm.ring()
    await alarm.ring()
    assert woken == [session.id]
    [(kind, body)] = await mail_of(store, session.id)
    assert kind == "wake"
    assert body["message"]["content"] == "You asked to be woken now: look at CI"
    assert body["source"] == {"wake": wake, "due": DUE + 60}


async def test_a_wake_in_the_past_is_refused(store: Store, tmp_path: Path) -> None:
    """C-08: five minutes ago, and exactly now."""
    session = await session_of(store, await fired(store, await added(store), DUE, DUE, tmp_path))
    for due in (DUE - 300, DUE):
        with pytest.raises(ScheduleError, match=f"it is now {DUE:.0f}"):
            await store.write(lambda tx, due=due: wakes.add(tx, session, due, "x", DUE))


async def test_a_wake_whose_session_is_gone_is_dropped_and_audited(
    store: Store, tmp_path: Path
) -> None:
    wake = {"id": "w1", "tenant": TENANT, "session": "gone", "due": DUE, "note": "x"}
    new = {"event": "", "event_id": "", "now": START}
    await store.write(lambda tx: tx.run("wake_add", **wake, **new))
    woken: list[str] = []
    await alarm_on(store, Clock(DUE), tmp_path, woken.append).ring()
    assert woken == []
    chain = audit.tenant_chain(TENANT)
    rows = await store.read(lambda tx: tx.all("audit_chain", chain=chain))
    assert (rows[0]["kind"], rows[0]["subject"], rows[0]["outcome"]) == ("dropped", "w1", "gone")
    assert [row["kind"] for row in rows[1:]] == ["asked"]  # a notice says so


async def asked(store: Store, session: str, deadline: float, remind: float | None = None) -> str:
    prompt = Prompt(
        id=f"p{session}",
        tenant=TENANT,
        session=session,
        kind="approval",
        subject=f"{session}/1",
        approvers={"role": "owner"},
        created_at=START,
        remind_at=remind,
        deadline=deadline,
    )
    return (await store.write(lambda tx: inbox.ask(tx, prompt))).id


async def test_after_a_start_no_prompt_expires_for_an_hour(store: Store, tmp_path: Path) -> None:
    run = await fired(store, await added(store), DUE, DUE, tmp_path)
    await advance_to(store, run.session, "parked")
    prompt = await asked(store, str(run.session), deadline=DUE + 60)
    clock, seen, woken = Clock(DUE + 2 * HOUR), list[Prompt](), list[str]()
    alarm = alarm_on(store, clock, tmp_path, woken.append, seen.extend)
    assert await alarm.ring() == clock.moment + QUIET
    assert (seen, woken) == ([], [])
    await awake(alarm, clock, QUIET)
    assert [(each.id, each.status) for each in seen] == [(prompt, "resolved")]
    assert seen[0].answer == {"kind": "deny", "silence": True, "reason": "no answer"}
    assert woken == [run.session]


async def awake(alarm: Alarm, clock: Clock, seconds: float) -> None:
    """Let the time pass as it does where nothing sleeps: the alarm looks again and again."""
    until = clock.moment + seconds
    while clock.moment < until:
        clock.moment = min(until, clock.moment + SLEPT)
        await alarm.ring()


async def test_after_a_machine_slept_no_prompt_expires_for_an_hour(
    store: Store, tmp_path: Path
) -> None:
    """What was pressed meanwhile has not come in yet; a laptop has no start in the morning."""
    run = await fired(store, await added(store), DUE, DUE, tmp_path)
    await advance_to(store, run.session, "parked")
    prompt = await asked(store, str(run.session), deadline=DUE + 5 * HOUR)
    clock, seen = Clock(DUE), list[Prompt]()
    alarm = alarm_on(store, clock, tmp_path, prompts=seen.extend)
    await awake(alarm, clock, 2 * HOUR)
    clock.moment += 8 * HOUR
    assert await alarm.ring() == clock.moment + QUIET
    await awake(alarm, clock, QUIET - 1)
    assert seen == []
    await awake(alarm, clock, 1)
    assert [each.id for each in seen] == [prompt]


async def test_a_reminder_comes_once_and_wakes_nobody(store: Store, tmp_path: Path) -> None:
    run = await fired(store, await added(store), DUE, DUE, tmp_path)
    prompt = await asked(store, str(run.session), deadline=DUE + 7 * DAY, remind=DUE + HOUR)
    seen, woken = list[Prompt](), list[str]()
    alarm = alarm_on(store, Clock(DUE + HOUR), tmp_path, woken.append, seen.extend)
    await alarm.ring()
    await alarm.ring()
    assert [(each.id, each.status) for each in seen] == [(prompt, "pending")]
    assert woken == []


async def test_nothing_is_due_and_nothing_waits(store: Store, tmp_path: Path) -> None:
    assert await alarm_on(store, Clock(START), tmp_path).ring() is None
