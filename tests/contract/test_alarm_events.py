"""The clock and what comes from elsewhere, on both stores: handed over in time, once, none lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine import people
from engine.errors import ScheduleError
from engine.events import Bus, Event, Kind
from engine.inbox import Person
from engine.schedule import hooks, named, promises, schedules, subscriptions, wakes
from engine.schedule.alarm import Alarm
from engine.schedule.promises import Asked
from engine.schedule.subscriptions import Line
from engine.schedule.words import When
from engine.store.base import Store, Tx
from engine.store.opening import open_store
from tests.contract.later import NOW, a_session

EVENT = "deploy-done"
MANY = 20


class Clock:
    def __init__(self, moment: float) -> None:
        self.moment = moment

    def __call__(self) -> float:
        return self.moment


def an_alarm(store: Store, clock: Clock, data: Path, woken: list[str]) -> Alarm:
    return Alarm(
        store=store,
        now=clock,
        tenant="local",
        data=data,
        on_wake=woken.append,
        on_prompts=lambda prompts: None,
    )


def a_watch(tx: Tx, data: Path, source: str = f"event:{EVENT}") -> str:
    asked = Asked(
        tenant="local",
        owner=people.CONSOLE,
        home="console:main",
        persona="cowork",
        model="practice:test",
        source=source,
        task="Say so.",
        window=30.0,
    )
    prompt = promises.ask_watch(tx, asked, NOW)
    promises.keep(tx, prompt, Person(id=people.CONSOLE, role="owner"), NOW, data=data)
    return subscriptions.listed(tx, "local")[-1].session


def a_schedule(tx: Tx) -> None:
    schedules.add(
        tx,
        tenant="local",
        owner=people.CONSOLE,
        title="Dashboards",
        when=When(zone="UTC", cron=f"@event {EVENT}"),
        instructions="Check them.",
        home="console:main",
        persona="cowork",
        model="practice:test",
        now=NOW,
    )


async def fire(store: Store, key: str = "1", at: float = NOW) -> str | None:
    return await store.write(lambda tx: named.fire_event(tx, "local", EVENT, "{}", key, at))


async def test_one_event_reaches_all_that_wait_for_it_in_time_and_once(
    store: Store, tmp_path: Path
) -> None:
    waiting = await a_session(store, tmp_path)
    await store.write(lambda tx: wakes.add_on(tx, waiting, EVENT, "look", NOW))
    watching = await store.write(lambda tx: a_watch(tx, tmp_path))
    await store.write(a_schedule)
    clock, woken = Clock(NOW), list[str]()
    alarm = an_alarm(store, clock, tmp_path, woken)
    await alarm.ring()
    assert woken == []
    for _ in range(2):
        await fire(store)
        assert await alarm.ring() == NOW + 30  # what the watch gathers
    assert len(woken) == 2 and waiting.id in woken and watching not in woken
    clock.moment += 30
    await alarm.ring()
    await alarm.ring()
    assert len(woken) == 3 and woken[-1] == watching


async def test_what_came_while_nothing_was_at_work_is_handed_over_at_the_start(
    store: Store, tmp_path: Path
) -> None:
    watching = await store.write(lambda tx: a_watch(tx, tmp_path, "slack:T1/C1"))
    line = Line(who="bo", text="checkout down", taint="channel:slack:T1/C1")
    await store.write(lambda tx: subscriptions.hear(tx, "local", "slack:T1/C1", line, NOW))
    woken: list[str] = []
    await an_alarm(store, Clock(NOW + 9_999), tmp_path, woken).ring()
    assert woken == [watching]


async def test_two_clocks_hand_over_every_event_once(
    store: Store, store_url: str, tmp_path: Path
) -> None:
    for _ in range(MANY):
        session = await a_session(store, tmp_path)
        await store.write(lambda tx, s=session: wakes.add_on(tx, s, EVENT, "look", NOW))
    woken: list[str] = []
    other = await open_store(store_url)
    try:
        clocks = [an_alarm(each, Clock(NOW), tmp_path, woken) for each in (store, other)]
        await asyncio.gather(*(fire(each, "same") for each in (store, other)))
        await asyncio.gather(*(clock.ring() for clock in clocks))
        await asyncio.gather(*(clock.ring() for clock in clocks))
    finally:
        await other.close()
    assert len(woken) == len(set(woken)) == MANY


async def test_one_that_cannot_be_handed_over_holds_no_other_and_stays_due(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        session = await a_session(store, tmp_path)
        await store.write(lambda tx, s=session: wakes.add(tx, s, NOW + 1, "look", NOW))
    broken = session.id
    real, woken, clock = wakes.wake, list[str](), Clock(NOW + 1)

    def failing(tx: Tx, wake: str, now: float) -> str | None:
        row = tx.one("wake_get", id=wake)
        if row is not None and row["session_id"] == broken:
            raise RuntimeError("a fault of this one")
        return real(tx, wake, now)

    alarm = an_alarm(store, clock, tmp_path, woken)
    with monkeypatch.context() as patched:
        patched.setattr("engine.schedule.alarm.wakes.wake", failing)
        await alarm.ring()
    assert len(woken) == 1 and broken not in woken
    await alarm.ring()
    assert woken[-1] == broken


async def test_when_nothing_can_be_handed_over_the_clock_does_not_spin(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        session = await a_session(store, tmp_path)
        await store.write(lambda tx, s=session: wakes.add(tx, s, NOW + 1, "look", NOW))

    def failing(tx: Tx, wake: str, now: float) -> str | None:
        raise RuntimeError("a fault of each")

    monkeypatch.setattr("engine.schedule.alarm.BATCH", 2)
    monkeypatch.setattr("engine.schedule.alarm.wakes.wake", failing)
    assert await an_alarm(store, Clock(NOW + 1), tmp_path, []).ring() is None  # the rescan's


async def test_the_end_of_a_session_that_another_waits_for_is_heard_at_once(
    store: Store, tmp_path: Path
) -> None:
    waited, other = await a_session(store, tmp_path), await a_session(store, tmp_path)
    name, woken, bus = wakes.session_event(waited.id), asyncio.Queue[str](), Bus()
    await store.write(lambda tx: wakes.add_on(tx, other, name, "go on", NOW))
    await store.write(lambda tx: wakes.add(tx, other, NOW - 1, "look", NOW - 2))
    alarm = Alarm(
        store=store,
        now=lambda: NOW,
        tenant="local",
        data=tmp_path,
        on_wake=woken.put_nowait,
        on_prompts=lambda prompts: None,
        bus=bus,
    )
    async with alarm, asyncio.timeout(10):
        assert await woken.get() == other.id  # it has looked, and would next in half a minute
        await store.write(lambda tx: wakes.turn_ended(tx, waited, 1, "completed", NOW))
        bus.publish(Event(session=waited.id, kind=Kind.TURN_END, body={"status": "completed"}))
        assert await woken.get() == other.id


# -- hooks


async def test_a_hook_is_found_by_its_token_until_it_is_revoked(store: Store) -> None:
    hook, token = await store.write(
        lambda tx: hooks.add(
            tx, tenant="local", name="Deploy-Done", owner="console", signed=False, now=NOW
        )
    )
    assert (hook.name, hook.secret) == (EVENT, "")
    assert await store.read(lambda tx: hooks.of_token(tx, token)) == hook
    for wrong in ("", token[:-1], token.swapcase(), hook.id):
        assert await store.read(lambda tx, wrong=wrong: hooks.of_token(tx, wrong)) is None
    await store.write(lambda tx: hooks.revoke(tx, hook, "console", NOW))
    assert await store.read(lambda tx: hooks.of_token(tx, token)) is None


async def test_calls_of_one_delivery_in_two_processes_count_once(
    store: Store, store_url: str
) -> None:
    hook, _ = await store.write(
        lambda tx: hooks.add(tx, tenant="local", name=EVENT, owner="console", signed=False, now=NOW)
    )
    other = await open_store(store_url)
    try:
        told = await asyncio.gather(
            *(
                each.write(lambda tx: hooks.called(tx, hook, "{}", "run 7", NOW))
                for each in (store, other) * 4
            )
        )
    finally:
        await other.close()
    assert len([each for each in told if each is not None]) == 1


async def test_there_is_a_limit_to_hooks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(hooks, "LIMIT", 1)

    def make(tx: Tx) -> object:
        return hooks.add(tx, tenant="local", name="x", owner="console", signed=True, now=NOW)

    await store.write(make)
    with pytest.raises(ScheduleError, match="1 hooks already"):
        await store.write(make)


@pytest.mark.parametrize("name", ["job:j1", "Session:s1"])
async def test_nobody_else_says_what_nod_says_of_its_own_work(store: Store, name: str) -> None:
    made = {"tenant": "local", "owner": "console", "signed": False, "now": NOW}
    with pytest.raises(ScheduleError, match="Only Nod itself says"):
        await store.write(lambda tx: hooks.add(tx, name=name, **made))
