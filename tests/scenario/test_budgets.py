"""Budgets as people meet them: a card at the soft limit, the end at the hard one, true sums."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.inbound import answers
from bot.inbound.answers import Defaults, House
from engine import budgets, inbox, people
from engine.budgets import Budget, Limits, Standing
from engine.events import Event, Kind
from engine.inbox import Person, Prompt
from engine.models import usage
from engine.models.base import Answer, KeyRejected, ModelUnavailable, Usage
from engine.models.usage import UsageLine
from engine.schedule import fires, runs, schedules
from engine.schedule.policy import Policy
from engine.schedule.words import When
from engine.store.base import Store, Tx
from engine.store.opening import open_store
from engine.tools.base import Risk
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.world import World, opened, probe, running

OWNER = Person(id=people.CONSOLE, role="owner", name="console")
NOON = 1_750_075_200.0  # Mon 16 Jun 2025, 12:00 UTC
DAY = 86_400.0


def said(text: str = "Hello.", cost: float | None = 0.5, tokens: int = 100) -> Answer:
    return Answer(text=text, model="practice:test", cost=cost, usage=Usage(input=tokens, output=10))


async def budget(world: World, scope: str = "tenant", thing: str = "", **limits: Any) -> Budget:
    given = Limits(**{"unit": "money", "period": "day", **limits})
    return await world.store.write(
        lambda tx: budgets.put(
            tx, "local", scope, thing, given, zone="UTC", by=OWNER, now=world.engine.now()
        )
    )


async def stands(world: World) -> list[Standing]:
    now = world.engine.now()
    return await world.store.read(lambda tx: budgets.listed(tx, "local", OWNER, now))


async def press(world: World, prompt: Prompt, answer: Mapping[str, Any]) -> list[str]:
    """Answer as a surface does, and wake what may go on."""
    defaults = Defaults(persona="cowork", model="practice:test", mode="interactive")
    house = House(tenant="local", data=world.engine.data, now=world.engine.now, defaults=defaults)
    _, moved = await world.store.write(
        lambda tx: answers.take(tx, house, prompt, answer, OWNER, "phone")
    )
    for session in moved:
        world.dispatcher.enqueue(session)
    await world.settle()
    return moved


def end(facts: list[Event]) -> tuple[str, str]:
    last = [fact for fact in facts if fact.kind is Kind.TURN_END][-1]
    return last.body["status"], last.body["reason"]


async def test_at_the_soft_limit_the_turn_waits_on_a_card_and_goes_on_when_extended(
    store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([said(), said("Again."), said("Once more.")])
    async with running(store, tmp_path, model) as world:
        await budget(world, soft=0.5)
        session = await world.open()
        assert end(await world.turn(session, "Hi")) == ("completed", "")
        assert end(await world.turn(session, "More")) == ("parked", "")
        [card] = await world.pending(session)
        assert (card.kind, card.payload["title"]) == ("grant", "A budget is used up")
        assert "Spent so far: $0.50 of $0.50" in card.payload["text"]
        await press(world, card, {"kind": "approve"})
        facts = await world.log(session)
        assert end(facts) == ("completed", "")
        [standing] = await stands(world)
        assert (standing.used, standing.extra, standing.budget.soft) == (1.0, 0.25, 0.5)
        assert end(await world.turn(session, "And more")) == ("parked", "")
    assert len(model.requests) == 2


async def test_a_raise_holds_from_then_on(store: Store, tmp_path: Path) -> None:
    async with running(store, tmp_path, ScriptedModel(then=said(cost=0.5))) as world:
        await budget(world, soft=0.5, hard=0.6)
        session = await world.open()
        await world.turn(session, "Hi")
        await world.turn(session, "More")
        [card] = await world.pending(session)
        await press(world, card, {"kind": "approve", "raise": True})
        assert end(await world.log(session)) == ("completed", "")
        [standing] = await stands(world)
        assert (standing.budget.soft, standing.budget.hard) == (1.0, 1.0)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({"kind": "deny", "reason": ""}, id="pressed"),
        pytest.param({"kind": "deny", "silence": True, "reason": "no answer"}, id="silence"),
    ],
)
async def test_no_stops_the_turn(store: Store, tmp_path: Path, answer: Mapping[str, Any]) -> None:
    model = ScriptedModel([said()])
    async with running(store, tmp_path, model) as world:
        await budget(world, soft=0.5)
        session = await world.open()
        await world.turn(session, "Hi")
        await world.turn(session, "More")
        [card] = await world.pending(session)
        await press(world, card, answer)
        assert end(await world.log(session)) == ("interrupted", "")
    assert len(model.requests) == 1


async def test_a_stop_closes_the_card(store: Store, tmp_path: Path) -> None:
    async with running(store, tmp_path, ScriptedModel([said()])) as world:
        await budget(world, soft=0.5)
        session = await world.open()
        await world.turn(session, "Hi")
        await world.turn(session, "More")
        await world.stop(session)
        await world.settle()
        assert end(await world.log(session)) == ("interrupted", "")
        assert await world.pending(session) == []


async def test_at_the_hard_limit_the_turn_ends_with_what_to_do(
    store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([calls(call("look", label="a"))])
    model.steps[0] = Answer(
        text="", calls=model.steps[0].calls, finish="tool_calls", cost=0.5, model="practice:test"
    )
    async with running(store, tmp_path, model) as world:
        made = await budget(world, soft=0.1, hard=0.5)
        session = await world.open()
        facts = await world.turn(session, "Hi")
        assert end(facts) == ("error", "budget")
        [error] = [fact.body for fact in facts if fact.kind is Kind.ERROR]
        assert error["error_type"] == "BudgetSpent"
        assert f"/budget ({made.id})" in error["text"] and "tomorrow" in error["text"]
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("scope", "thing", "counts"),
    [
        pytest.param("tenant", "", True, id="everything"),
        pytest.param("person", "console", True, id="the-person"),
        pytest.param("person", "bo", False, id="another-person"),
        pytest.param("channel", "slack:T1/C1", True, id="the-channel"),
        pytest.param("channel", "slack:T1/C2", False, id="another-channel"),
        pytest.param("schedule", "c1", False, id="no-schedule"),
    ],
)
async def test_a_budget_counts_its_own_sessions_only_also_those_before_it(
    store: Store, tmp_path: Path, scope: str, thing: str, counts: bool
) -> None:
    async with running(store, tmp_path, ScriptedModel(then=said(tokens=90))) as world:
        session = await world.open("slack:T1/C1/17.1")
        await world.turn(session, "Hi")
        await budget(world, scope, thing, unit="tokens", soft=1000)
        await world.turn(session, "More")
        [standing] = await stands(world)
        assert standing.used == (200 if counts else 0)


async def test_a_schedules_run_has_a_budget_of_its_own(store: Store, tmp_path: Path) -> None:
    async with running(store, tmp_path, ScriptedModel(then=said())) as world:
        schedule = await world.store.write(_planned)
        made = await budget(world, "schedule", schedule, unit="calls", period="run", hard=1)
        assert await world.store.read(
            lambda tx: [str(b) for b in budgets.for_schedule(tx, "local", schedule)]
        ) == ["stop at 1 call a run"]
        fired = [await _fired(world, schedule) for _ in range(2)]
        for session in fired:
            assert end(await world.log(session)) == ("completed", "")
        assert end(await world.turn(fired[0], "Go on")) == ("error", "budget")
        rows = await world.store.read(
            lambda tx: [tx.one("spending_get", budget=made.id, period=run) for run in fired]
        )
        assert [row["calls"] for row in rows if row is not None] == [1, 1]


async def _fired(world: World, schedule: str) -> str:
    """Run the schedule to its end and return the run's session."""
    data = world.engine.data
    fired = await world.store.write(
        lambda tx: fires.run_now(tx, schedule, world.engine.now(), data=data)
    )
    assert fired.session is not None
    world.dispatcher.enqueue(fired.session)
    await world.settle()
    return fired.session


async def test_a_new_day_begins_at_nothing(store: Store, tmp_path: Path) -> None:
    clock = [NOON]
    model = ScriptedModel(then=said())
    async with running(store, tmp_path, model, now=lambda: clock[0]) as world:
        await budget(world, hard=0.5)
        session = await world.open()
        await world.turn(session, "Hi")
        assert end(await world.turn(session, "More")) == ("error", "budget")
        clock[0] += DAY
        assert end(await world.turn(session, "And now?")) == ("completed", "")


async def test_one_answer_is_for_all_cards_of_the_budget(store: Store, tmp_path: Path) -> None:
    async with running(store, tmp_path, ScriptedModel(then=said(cost=0.01))) as world:
        threads = [await world.open(f"console:t{n}") for n in range(4)]
        await budget(world, soft=0.04)
        for session in threads:
            await world.turn(session, "Hi")
        for session in threads:
            await world.say(session, "More")
        await world.settle()
        cards = await world.pending()
        assert len(cards) == 4
        moved = await press(world, cards[0], {"kind": "approve", "raise": True})
        assert sorted(moved) == sorted(threads)
        assert await world.pending() == []
        for session in threads:
            assert end(await world.log(session)) == ("completed", "")


async def test_many_turns_at_once_pass_a_limit_by_one_call_each_at_most(
    store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(then=said(), latency=0.01)
    async with running(store, tmp_path, model) as world:
        threads = [await world.open(f"console:t{n}") for n in range(8)]
        await budget(world, unit="calls", hard=20)
        for _ in range(5):
            for session in threads:
                await world.say(session, "Go")
            await world.settle()
        [standing] = await stands(world)
    assert standing.used == len(model.requests)
    assert 20 <= len(model.requests) < 20 + len(threads)


async def test_reads_in_a_row_are_weighed_before_each_call(store: Store, tmp_path: Path) -> None:
    """Without a budget what was read rides in the last commit; with one, each call is counted."""
    look = calls(call("todo_write", todos=[]))
    model = ScriptedModel(then=Answer(text="", calls=look.calls, finish="tool_calls", cost=0.1))
    async with running(store, tmp_path, model) as world:
        await budget(world, unit="calls", hard=2)
        assert end(await world.turn(await world.open(), "Go")) == ("error", "budget")
    assert len(model.requests) == 2


async def test_a_model_without_a_price_is_told_of_once_and_still_counts(
    store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(then=said(cost=None))
    async with running(store, tmp_path, model) as world:
        await budget(world, soft=5)
        await budget(world, unit="calls", hard=2)
        session = await world.open(model="openai:no-such-model-yet")
        await world.turn(session, "Hi")
        facts = await world.turn(session, "More")
        told = [fact.body["text"] for fact in facts if fact.kind is Kind.NOTICE]
        assert len(told) == 1 and "No price is known for openai:no-such-model-yet" in told[0]
        assert end(await world.turn(session, "Still")) == ("error", "budget")


async def test_a_parked_turn_is_taken_up_by_another_worker(store: Store, tmp_path: Path) -> None:
    async with running(store, tmp_path, ScriptedModel([said()])) as world:
        await budget(world, soft=0.5)
        session = await world.open()
        await world.turn(session, "Hi")
        await world.turn(session, "More")
    async with opened(store, tmp_path, ScriptedModel([said("Here.")])) as world:
        async with world.dispatcher:
            [card] = await world.pending(session)
            await press(world, card, {"kind": "approve"})
            assert end(await world.log(session)) == ("completed", "")


async def test_a_member_may_answer_only_what_they_set_themselves(
    store: Store, tmp_path: Path
) -> None:
    def join(tx: Tx) -> Person:
        person = {"name": "Bo", "role": "member", "by": people.CONSOLE, "now": NOON}
        return people.add_person(tx, "local", "slack", "U2", **person)

    async with running(store, tmp_path, ScriptedModel(then=said())) as world:
        bo = await world.store.write(join)
        session = await world.open(owner=bo.id)
        await budget(world, soft=0.5)
        await world.turn(session, "Hi")
        await world.turn(session, "More")
        [card] = await world.pending(session)
        assert not inbox.may_answer(card, bo)
        assert card.payload["attended"] is False  # so it goes to the owner, not only the thread
        own = Limits(unit="money", period="month", soft=0.1)
        with pytest.raises(Exception, match="not yours"):
            await world.store.write(
                lambda tx: budgets.put(tx, "local", "tenant", "", own, zone="UTC", by=bo, now=NOON)
            )
        await world.store.write(
            lambda tx: budgets.put(tx, "local", "person", bo.id, own, zone="UTC", by=bo, now=NOON)
        )


# -- calls that gave no answer


async def spent(world: World) -> UsageLine:
    return await world.store.read(lambda tx: usage.total(tx, "local", 0, 9e12))


async def test_a_stopped_stream_leaves_an_estimate(store: Store, tmp_path: Path) -> None:
    hold = asyncio.Event()
    model = ScriptedModel(["A long story about a fox."], chunk=5, hold=hold)
    async with running(store, tmp_path, model) as world:
        session = await world.open()
        await world.say(session, "Tell me")
        await model.streamed.wait()
        await world.stop(session)
        await world.settle()
        line = await spent(world)
        assert (line.calls, line.estimated) == (1, 1)
        assert line.output > 0 and line.input > 0


@pytest.mark.parametrize(
    ("error", "made"),
    [
        pytest.param(ModelUnavailable("It is away."), 1, id="it-was-called"),
        pytest.param(KeyRejected("There is no key."), 0, id="nothing-was-called"),
    ],
)
async def test_a_failed_call_counts_as_a_call(
    store: Store, tmp_path: Path, error: Exception, made: int
) -> None:
    async with running(store, tmp_path, ScriptedModel([error])) as world:
        await world.turn(await world.open(), "Hi")
        line = await spent(world)
        assert (line.calls, line.estimated, line.tokens) == (made, made, 0)


def _planned(tx: Tx) -> str:
    made = schedules.add(
        tx,
        tenant="local",
        owner=people.CONSOLE,
        title="Briefing",
        when=When(zone="UTC", cron="0 8 * * *"),
        instructions="Brief us.",
        home="console:main",
        persona="cowork",
        model="practice:test",
        policy=Policy(retries=3),
        now=NOON,
    )
    return made.id


async def test_a_run_whose_budget_is_spent_has_failed_and_is_not_tried_again(
    store: Store, tmp_path: Path
) -> None:
    async with running(store, tmp_path, ScriptedModel(then=said())) as world:
        schedule = await world.store.write(_planned)
        await budget(world, unit="calls", hard=1)
        await world.turn(await world.open(), "Spend it")
        await _fired(world, schedule)
        [run] = await world.store.read(lambda tx: runs.history(tx, schedule))
        assert (run.status, run.note) == ("failed", "its budget is spent")


async def test_two_workers_on_one_store_share_one_sum(postgres_url: str, tmp_path: Path) -> None:
    model = ScriptedModel(then=said())
    first, second = await open_store(postgres_url), await open_store(postgres_url)
    try:
        async with (
            running(first, tmp_path / "a", model, shared=True) as one,
            running(second, tmp_path / "b", model, shared=True) as two,
        ):
            await budget(one, unit="calls", hard=20)
            worlds = (one, two)
            threads = [await one.open(f"console:t{n}") for n in range(6)]
            for _ in range(6):
                for number, session in enumerate(threads):
                    await worlds[number % 2].say(session, "Go")
                for world in worlds:
                    await world.settle()
            [standing] = await stands(one)
        assert standing.used == len(model.requests)
        assert 20 <= len(model.requests) < 20 + len(threads)
    finally:
        await first.close()
        await second.close()


async def test_one_call_more_is_one_call_more(sqlite_store: Store, tmp_path: Path) -> None:
    async with running(sqlite_store, tmp_path, ScriptedModel(then=said())) as world:
        await budget(world, unit="calls", soft=1)
        session = await world.open()
        await world.turn(session, "Hi")
        await world.turn(session, "More")
        [card] = await world.pending(session)
        assert card.payload["budget"]["extend"] == "Go on: 1 call more today"
        await press(world, card, {"kind": "approve"})
        assert end(await world.log(session)) == ("completed", "")


async def test_a_schedule_takes_its_budgets_with_it(store: Store, tmp_path: Path) -> None:
    async with running(store, tmp_path, ScriptedModel()) as world:
        schedule = await world.store.write(_planned)
        await budget(world, "schedule", schedule, unit="calls", hard=1)
        kept = await budget(world, unit="calls", hard=1)
        await world.store.write(lambda tx: schedules.remove(tx, schedule, NOON))
        assert [each.budget for each in await stands(world)] == [kept]


async def test_a_budget_set_in_the_middle_of_a_turn_holds_at_its_next_call(
    store: Store, tmp_path: Path
) -> None:
    log: list[tuple[str, str, str]] = []
    gate = asyncio.Event()
    look = calls(call("look", label="a"))
    model = ScriptedModel([look])
    async with running(
        store, tmp_path, model, tools=[probe("look", Risk.READ, log, gate)]
    ) as world:
        session = await world.open()
        await world.say(session, "Look")
        async with asyncio.timeout(5):
            while not log:
                await asyncio.sleep(0.01)
        await budget(world, unit="calls", hard=1)
        for at_work in await world.store.write(lambda tx: budgets.stir(tx, "local")):
            world.dispatcher.enqueue(at_work)
        gate.set()
        await world.settle()
        assert end(await world.log(session)) == ("error", "budget")


@pytest.mark.parametrize(
    ("change", "goes_on"),
    [
        pytest.param("removed", True, id="removed"),
        pytest.param("raised", True, id="raised"),
        pytest.param("kept", False, id="set-anew-and-still-used-up"),
    ],
)
async def test_turns_that_wait_for_a_budget_look_again_when_it_is_changed_or_removed(
    store: Store, tmp_path: Path, change: str, goes_on: bool
) -> None:
    async with running(store, tmp_path, ScriptedModel(then=said(cost=0.5))) as world:
        made = await budget(world, soft=0.5)
        session = await world.open()
        await world.turn(session, "Hi")
        assert end(await world.turn(session, "More")) == ("parked", "")
        [card] = await world.pending(session)

        def alter(tx: Tx) -> list[str]:
            if change == "removed":
                budgets.remove(tx, made, OWNER, NOON)
            else:
                given = Limits(unit="money", period="day", soft=5.0 if change == "raised" else 0.5)
                budgets.put(tx, "local", "tenant", "", given, zone="UTC", by=OWNER, now=NOON)
            return budgets.release(tx, made, OWNER, "phone", NOON)

        [moved] = await store.write(alter)
        world.dispatcher.enqueue(moved)
        await world.settle()
        status, _ = end(await world.log(session))
        assert (status == "completed") == goes_on
        waiting = await world.pending(session)
        assert len(waiting) == (0 if goes_on else 1) and card.id not in {p.id for p in waiting}
