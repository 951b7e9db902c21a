"""Runs of a schedule with a real worker: unattended, stopped in time, tried and taken up again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine import people
from engine.events import Event, Kind
from engine.models.base import ModelUnavailable
from engine.schedule import fires, runs, schedules
from engine.schedule.alarm import Alarm
from engine.schedule.policy import DEFAULT, Policy
from engine.schedule.runs import Fire
from engine.schedule.words import When
from engine.store.base import Store
from engine.tools.base import Risk
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.world import World, opened, probe, running

NOW = 1_750_057_320.0  # Mon 16 Jun 2025, 07:02 UTC
FAILURE = ModelUnavailable("The model cannot be reached.")


class Clock:
    def __init__(self) -> None:
        self.moment = NOW

    def __call__(self) -> float:
        return self.moment


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def scheduled(store: Store, policy: Policy = DEFAULT) -> str:
    made = await store.write(
        lambda tx: schedules.add(
            tx,
            tenant="local",
            owner=people.CONSOLE,
            title="Briefing",
            when=When(zone="UTC", cron="0 8 * * *"),
            instructions="Brief us.",
            home="console:main",
            persona="cowork",
            model="practice:test",
            policy=policy,
            now=NOW,
        )
    )
    return made.id


async def begun(world: World, schedule: str) -> str:
    """Run it now and hint the worker; return the run's session."""
    now, data = world.engine.now(), world.engine.data
    run = await world.store.write(lambda tx: fires.run_now(tx, schedule, now, data=data))
    assert run.session is not None, run
    world.dispatcher.enqueue(run.session)
    return run.session


async def ring(world: World) -> None:
    await Alarm(
        store=world.store,
        now=world.engine.now,
        tenant="local",
        data=world.engine.data,
        on_wake=world.dispatcher.enqueue,
        on_prompts=lambda prompts: None,
    ).ring()


async def history(store: Store, schedule: str) -> list[Fire]:
    return await store.read(lambda tx: runs.history(tx, schedule))


def bodies(facts: list[Event], kind: Kind) -> list[Any]:
    return [fact.body for fact in facts if fact.kind is kind]


async def test_nobody_watches_a_run_nor_its_further_tries(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    """And a finished call is not repeated: the try goes on in the same conversation."""
    log: list[tuple[str, str, str]] = []
    tools = [probe("note", Risk.WRITE_LOCAL, log)]
    model = ScriptedModel([calls(call("note", label="a")), FAILURE, "All done."])
    async with running(store, tmp_path, model, tools=tools, now=clock) as world:
        schedule = await scheduled(store, Policy(retries=1))
        session = await begun(world, schedule)
        await world.settle()
        [prompt] = await world.pending(session)
        assert prompt.payload["attended"] is False
        await world.answer(prompt, "once")
        await world.settle()
        [run] = await history(store, schedule)
        assert (run.status, run.session) == ("retrying", session)
        clock.moment += 60
        await ring(world)
        await world.settle()
        [run] = await history(store, schedule)
        assert (run.status, run.tries) == ("completed", 1)
        facts = await world.log(session)
        assert [each["attended"] for each in bodies(facts, Kind.TURN_START)] == [False, False]
        assert [each["status"] for each in bodies(facts, Kind.TURN_END)] == [
            "parked",
            "error",
            "completed",
        ]
    assert log == [("start", "note", "a"), ("end", "note", "a")]
    assert "This is try 2" in str(model.requests[-1].messages[-1]["content"])
    assert "note a done" in str(model.requests[-1].messages), "it knows what was done"


async def test_a_failed_model_call_is_a_failed_run(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    async with running(store, tmp_path, ScriptedModel([FAILURE]), now=clock) as world:
        schedule = await scheduled(store)
        await begun(world, schedule)
        await world.settle()
        [run] = await history(store, schedule)
        assert (run.status, run.note) == ("failed", "it ended with an error")
        [notice] = [each for each in await world.pending() if each.subject.endswith(f"/{run.id}")]
        assert "it ended with an error" in notice.payload["text"]


async def test_at_its_deadline_a_run_ends_with_a_status_and_a_word(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    gate, log = asyncio.Event(), list[tuple[str, str, str]]()
    tools = [probe("wait", Risk.READ, log, gate)]
    model = ScriptedModel([calls(call("wait", label="a"))])
    async with running(store, tmp_path, model, tools=tools, now=clock) as world:
        schedule = await scheduled(store, Policy(deadline=1800))
        session = await begun(world, schedule)
        async with asyncio.timeout(10):
            while not log:
                await asyncio.sleep(0)
        clock.moment += 1799
        await ring(world)
        assert (await history(store, schedule))[0].status == "started"
        await store.write(  # as the worker does while it is at work
            lambda tx: tx.run(
                "lease_renew",
                tenant="local",
                name=f"worker:{world.engine.worker}",
                holder=world.engine.worker,
                now=clock(),
                until=clock() + 30,
            )
        )
        clock.moment += 1
        await ring(world)
        await world.settle()
        facts = await world.log(session)
        reason = "it reached its deadline of 30 min at work"
        assert [each["reason"] for each in bodies(facts, Kind.INTERRUPTED)] == [reason]
        assert [each["status"] for each in bodies(facts, Kind.TURN_END)] == ["interrupted"]
        assert [each["status"] for each in bodies(facts, Kind.TOOL_FINISHED)] == ["interrupted"]
        [run] = await history(store, schedule)
        assert (run.status, run.note, run.worked) == ("failed", reason, 1800)


async def test_a_run_left_by_a_crash_is_taken_up_again_and_ends(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    """The first worker never comes back; it was at work for nothing that was written."""
    options: dict[str, Any] = {"now": clock}
    async with opened(store, tmp_path, ScriptedModel(), worker="gone", **options) as first:
        schedule = await scheduled(store, Policy(deadline=600))
        now, data = clock(), first.engine.data
        fired = await store.write(lambda tx: fires.run_now(tx, schedule, now, data=data))
        session = str(fired.session)
        row = await store.write(
            lambda tx: tx.one("session_take", id=session, worker="gone", now=NOW, counted=1)
        )
        assert row is not None
    clock.moment += 3_000
    async with running(store, tmp_path, ScriptedModel(["Done."]), **options) as second:
        second.dispatcher.enqueue(session)
        await ring(second)
        await second.settle()
        [run] = await history(store, schedule)
        assert (run.status, run.session) == ("completed", session)
        assert run.worked < 600


async def test_each_run_has_its_whole_transcript(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    async with running(store, tmp_path, ScriptedModel(["One.", "Two."]), now=clock) as world:
        schedule = await scheduled(store)
        for text in ("One.", "Two."):
            session = await begun(world, schedule)
            await world.settle()
            said = [each["message"] for each in bodies(await world.log(session), Kind.MESSAGE)]
            assert "Brief us." in said[0]["content"]
            answers = bodies(await world.log(session), Kind.ASSISTANT_MESSAGE)
            assert [each["message"]["content"] for each in answers] == [text]
            clock.moment += 1
        assert len({run.session for run in await history(store, schedule)}) == 2


async def test_the_run_that_waits_begins_as_soon_as_the_one_before_has_ended(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    """The alarm hears of the end and does not wait for its next look."""
    hold = asyncio.Event()
    model = ScriptedModel(["One.", "Two."], hold=hold)
    async with running(store, tmp_path, model, now=clock) as world:
        schedule = await scheduled(store, Policy(overlap="queue"))
        alarm = Alarm(
            store=store,
            now=clock,
            tenant="local",
            data=tmp_path,
            on_wake=world.dispatcher.enqueue,
            on_prompts=lambda prompts: None,
            bus=world.engine.bus,
        )
        async with alarm:
            await begun(world, schedule)
            await asyncio.wait_for(model.streamed.wait(), 10)
            clock.moment += 1
            now, data = clock(), tmp_path
            second = await store.write(lambda tx: fires.run_now(tx, schedule, now, data=data))
            assert second.status == "queued"
            with world.engine.bus.subscribe() as heard:
                hold.set()
                async with asyncio.timeout(10):
                    ends = 0
                    while ends < 2:
                        ends += (await heard.next()).kind is Kind.TURN_END
        await world.settle()
        runs_of = await history(store, schedule)
        assert [run.status for run in runs_of] == ["completed", "completed"]
