"""Schedules that an event starts, on both stores: once each, under the policy, with what came."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine import inbox, sessions
from engine.canonical import loads
from engine.errors import ScheduleError
from engine.schedule import fires, named, proposals, runs, schedules, wakes
from engine.schedule.policy import DEFAULT
from engine.schedule.schedules import Schedule
from engine.schedule.words import When, understand
from engine.store.base import Store, Tx
from engine.store.opening import open_store
from tests.contract.later import NOW, a_session

LATER = NOW + 100.0


async def planned(store: Store, said: str = "when deploy-done") -> Schedule:
    when, _, policy = proposals.read(said, "UTC", NOW)

    def work(tx: Tx) -> Schedule:
        return schedules.add(
            tx,
            tenant="local",
            owner="console",
            title="Dashboards",
            when=when,
            instructions="Check the dashboards.",
            home="console:main",
            persona="cowork",
            model="practice:test",
            policy=policy,
            now=NOW,
        )

    return await store.write(work)


async def fire(store: Store, key: str = "1", at: float = LATER, name: str = "deploy-done") -> None:
    await store.write(
        lambda tx: named.fire_event(
            tx, "local", name, f"run {key}", key, at, source="hook:h1", taint="hook:x"
        )
    )


async def look(store: Store, data: Path, now: float = LATER) -> list[fires.Fired]:
    """Do what the clock does."""
    rows = await store.read(lambda tx: tx.all("arrivals_due", tenant="local", now=now, limit=99))
    found = []
    for row in rows:
        event, schedule = row["event_id"], row["schedule_id"]
        found.append(
            await store.write(
                lambda tx, event=event, schedule=schedule: fires.start(
                    tx, event, schedule, now, data=data
                )
            )
        )
    return [each for each in found if each is not None]


async def mail(store: Store, session: str | None) -> dict[str, Any]:
    [row] = await store.read(lambda tx: tx.all("mail_waiting", session=session))
    assert row["kind"] == "fire"
    body: dict[str, Any] = loads(row["body"])
    return body


@pytest.mark.parametrize(
    ("said", "event"),
    [
        pytest.param("when deploy-done", "deploy-done", id="when"),
        pytest.param("When Deploy-Done comes", "deploy-done", id="comes"),
        pytest.param("whenever the event ci/main fires", "ci/main", id="whenever"),
        pytest.param("on event a.b:c", "a.b:c", id="on"),
        pytest.param("@event x", "x", id="line"),
        pytest.param("every day at 8", "", id="time"),
    ],
)
def test_an_event_is_said_in_the_place_of_a_time(said: str, event: str) -> None:
    assert understand(said, "UTC", NOW).event == event


def test_an_event_has_no_times() -> None:
    when = When(zone="UTC", cron="@event deploy-done")
    assert (when.next_after(NOW), when.upcoming(NOW)) == (None, [])
    assert str(when) == "Whenever the event deploy-done comes"
    with pytest.raises(ScheduleError):
        understand("when two words", "UTC", NOW)


async def test_an_event_starts_a_run_of_its_own_that_is_told_what_came(
    store: Store, tmp_path: Path
) -> None:
    schedule = await planned(store)
    assert (schedule.enabled, schedule.next_at) == (True, None)
    await fire(store)
    await fire(store)
    [fired] = await look(store, tmp_path)
    assert await look(store, tmp_path) == []
    session = await store.read(lambda tx: sessions.get(tx, str(fired.session)))
    assert (session.origin, session.owner) == ("schedule", "console")
    body = await mail(store, fired.session)
    text = body["message"]["content"]
    assert text.startswith("Check the dashboards.") and "run 1" in text
    assert "because an event came" in text and "asks nothing of you" in text
    assert body["source"]["taint"] == "hook:x"
    [run] = await store.read(lambda tx: runs.history(tx, schedule.id))
    assert (run.status, run.cause) == ("started", "event")


async def test_the_end_of_a_session_starts_what_waits_for_it(store: Store, tmp_path: Path) -> None:
    session = await a_session(store, tmp_path)
    await planned(store, f"when session:{session.id}")
    for status, started in (("parked", 0), ("completed", 1)):
        await store.write(lambda tx, status=status: wakes.turn_ended(tx, session, 1, status, LATER))
        assert len(await look(store, tmp_path)) == started


async def test_the_end_of_a_session_nobody_waits_for_leaves_nothing(
    store: Store, tmp_path: Path
) -> None:
    session = await a_session(store, tmp_path)
    await store.write(lambda tx: wakes.turn_ended(tx, session, 1, "completed", LATER))
    name = wakes.session_event(session.id)
    assert await store.read(lambda tx: named.since(tx, "local", name, 0.0)) is None


async def test_only_its_own_event_starts_it(store: Store, tmp_path: Path) -> None:
    await planned(store)
    await fire(store, name="deploy-done-2")
    assert await look(store, tmp_path) == []


async def test_a_paused_or_removed_schedule_is_not_started(store: Store, tmp_path: Path) -> None:
    schedule = await planned(store)
    await fire(store)
    await store.write(lambda tx: schedules.enable(tx, schedule.id, False, LATER))
    assert await look(store, tmp_path) == []
    await fire(store, "2")
    on = await store.write(lambda tx: schedules.enable(tx, schedule.id, True, LATER))
    assert (on.enabled, await look(store, tmp_path)) == (True, [])
    await fire(store, "3")
    await store.write(lambda tx: schedules.remove(tx, schedule.id, LATER))
    assert await look(store, tmp_path) == []


async def test_events_of_one_moment_are_runs_of_their_own_one_after_another(
    store: Store, tmp_path: Path
) -> None:
    schedule = await planned(store, "when deploy-done, queue")
    for n in range(1, 4):  # within one millisecond, which is how exactly runs are told apart
        await fire(store, str(n), LATER + n / 1e5)
    seen = [each.status for each in await look(store, tmp_path, LATER + 1)]
    assert seen == ["started", "queued", "queued"]
    found = await store.read(lambda tx: runs.history(tx, schedule.id))
    assert len({run.due for run in found}) == 3
    [first] = [run for run in found if run.status == "started"]
    await _over(store, str(first.session))
    waiting = min((run for run in found if run.status == "queued"), key=lambda run: run.due)
    await store.write(lambda tx: tx.run("fire_look", id=waiting.id, look=LATER + 9))
    [session] = await store.write(
        lambda tx: fires.tend(tx, waiting.id, LATER + 9, LATER + 9, data=tmp_path)
    )
    assert "run 2" in (await mail(store, session))["message"]["content"]


async def _over(store: Store, session: str) -> None:
    """Let the run have ended."""

    def work(tx: Tx) -> None:
        row = tx.one("session_get", id=session)
        assert row is not None
        for each in tx.all("mail_waiting", session=session):
            tx.run("mail_entered", id=each["id"], seq=1)
        tx.run("session_release", id=session, epoch=row["epoch"], noted=row["wanted"], state="idle")
        runs.ended(tx, session, "completed", LATER + 5)

    await store.write(work)


async def test_an_event_beside_a_run_at_work_is_left_out_and_said_so(
    store: Store, tmp_path: Path
) -> None:
    schedule = await planned(store)
    for key in "12":
        await fire(store, key)
    assert [each.status for each in await look(store, tmp_path)] == ["started", "skipped"]
    notices = await store.read(lambda tx: tx.all("prompts_pending", tenant="local", limit=9))
    assert [row["kind"] for row in notices] == ["notice"] and schedule.policy == DEFAULT


async def test_quiet_hours_hold_what_came_and_lose_nothing(store: Store, tmp_path: Path) -> None:
    await planned(store, "when deploy-done, quiet 7:00-8:00, queue")  # it is 07:02
    for key in "12":
        await fire(store, key)
    assert [each.status for each in await look(store, tmp_path)] == ["held", "held"]
    assert await look(store, tmp_path) == []
    eight = NOW + 58 * 60
    assert [each.status for each in await look(store, tmp_path, eight)] == ["started", "queued"]


async def test_two_processes_start_one_run_for_each_event(
    store: Store, store_url: str, tmp_path: Path
) -> None:
    schedule = await planned(store, "when deploy-done, queue")
    for n in range(8):
        await fire(store, str(n), LATER + n)
    other = await open_store(store_url)
    try:
        await asyncio.gather(look(store, tmp_path, LATER + 9), look(other, tmp_path, LATER + 9))
        await look(store, tmp_path, LATER + 9)
    finally:
        await other.close()
    found = await store.read(lambda tx: runs.history(tx, schedule.id))
    assert sorted(run.due for run in found) == [LATER + n for n in range(8)]
    assert [run.status for run in found].count("started") == 1


async def test_a_noisy_sender_begins_so_many_runs_an_hour_and_is_told_of_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fires, "IN_AN_HOUR", 2)
    schedule = await planned(store)

    async def came(at: float) -> str:
        await fire(store, f"{at}", at)
        [fired] = await look(store, tmp_path, at)
        if fired.session is not None:
            ended = fired.session
            await store.write(lambda tx: runs.ended(tx, ended, "completed", at))
        return fired.status

    told = [await came(LATER + n) for n in range(5)]
    assert told == ["started", "started", "skipped", "skipped", "skipped"]
    [notice] = await store.read(lambda tx: inbox.pending(tx, "local"))
    assert "events began 2 runs of it within an hour" in notice.payload["text"]
    assert schedule.id in notice.payload["text"]
    assert await came(LATER + 3_601) == "started"
