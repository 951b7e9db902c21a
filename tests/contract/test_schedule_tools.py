"""What a model does about later, on both stores: it proposes and a person confirms; it sleeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bot.inbound import answers
from bot.inbound.answers import Defaults, House
from engine import inbox, people
from engine.events import Event, Kind
from engine.schedule import fires, schedules, wakes
from engine.schedule.tools import schedule_tools
from engine.sessions import get
from engine.store.base import Store
from engine.tools import messages
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.world import World, running

NOW = 1_750_057_320.0  # Mon 16 Jun 2025, 07:02 UTC
ANA = inbox.Person(id=people.CONSOLE, role="owner", name="ana")


def results(facts: list[Event]) -> list[tuple[str, str]]:
    done = [fact.body for fact in facts if fact.kind is Kind.TOOL_FINISHED]
    return [(body["status"], str(body["content"])) for body in done]


def asking(**arguments: Any) -> Any:
    given = {"when": "every weekday at 8", "instructions": "Brief us."} | arguments
    return calls(call("propose_schedule", **given))


def sending(target: str) -> Any:
    return calls(call("send_message", target=target, text="Good morning."))


def world(store: Store, data: Path, *steps: Any) -> Any:
    model = ScriptedModel([*steps], then="Done.")
    tools = [*schedule_tools(store, "UTC"), *messages.TOOLS]
    return running(store, data, model, tools=tools, now=lambda: NOW)


async def take(made: World, prompt: inbox.Prompt, answer: dict[str, Any]) -> None:
    house = House(
        tenant="local",
        data=made.engine.data,
        now=lambda: NOW,
        defaults=Defaults(persona="cowork", model="practice:test", mode="interactive"),
    )
    _, moved = await made.store.write(
        lambda tx: answers.take(tx, house, prompt, answer, ANA, "console")
    )
    for session in moved:
        made.dispatcher.enqueue(session)
    await made.settle()


async def test_what_the_model_proposes_waits_for_a_person_and_the_model_is_told(
    store: Store, tmp_path: Path
) -> None:
    async with world(store, tmp_path, asking(report_to="slack:T1/C1")) as made:
        session = await made.open()
        facts = await made.turn(session, "Brief us every weekday at 8")
        [(status, text)] = results(facts)
        assert status == "ok" and '"scheduled":false' in text
        assert [f.body["status"] for f in facts if f.kind is Kind.TURN_END] == ["completed"]
        assert await store.read(lambda tx: schedules.listed(tx, "local")) == []
        [prompt] = await made.pending(session)
        await take(made, prompt, {"kind": "approve"})
        [schedule] = await store.read(lambda tx: schedules.listed(tx, "local"))
        assert (schedule.cron, schedule.report_to) == ("0 8 * * 1-5", "slack:T1/C1")
        notes = [f for f in await made.log(session) if "confirmed schedule" in str(f.body)]
        assert [note.kind for note in notes] == [Kind.MESSAGE]


@pytest.mark.parametrize("mode", ["discuss", "plan", "interactive", "auto"])
async def test_no_mode_schedules_without_a_person(store: Store, tmp_path: Path, mode: str) -> None:
    async with world(store, tmp_path, asking()) as made:
        session = await made.open(mode=mode)
        await made.turn(session, "Go")
        assert len(await made.pending(session)) == 1
        assert await store.read(lambda tx: schedules.listed(tx, "local")) == []


async def test_times_are_read_in_the_zone_of_the_person(store: Store, tmp_path: Path) -> None:
    await store.write(lambda tx: people.set_zone(tx, "local", people.CONSOLE, "Asia/Tokyo", NOW))
    async with world(store, tmp_path, asking()) as made:
        session = await made.open()
        await made.turn(session, "Go")
        [prompt] = await made.pending(session)
        assert prompt.payload["schedule"]["zone"] == "Asia/Tokyo"


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        pytest.param(
            "propose_schedule", {"when": "now and then"}, "do not surely understand", id="when"
        ),
        pytest.param("propose_schedule", {"when": "today 7:00"}, "it is now Mon", id="C-08-past"),
        pytest.param("propose_schedule", {"report_to": "#x"}, "no thread target", id="place"),
        pytest.param("sleep_until", {"time": "every day at 8"}, "propose_schedule", id="rhythm"),
        pytest.param("sleep_until", {"time": "today 7:00"}, "it is now Mon", id="C-08-sleep"),
        pytest.param("sleep_until", {"note": "x" * 2_001}, "2000 are the limit", id="long-note"),
    ],
)
async def test_what_cannot_be_is_told_to_the_model(
    store: Store, tmp_path: Path, name: str, arguments: dict[str, Any], says: str
) -> None:
    given = {
        "propose_schedule": {"when": "every day at 8", "instructions": "Brief us."},
        "sleep_until": {"time": "in 2 hours", "note": "look"},
    }[name] | arguments
    async with world(store, tmp_path, calls(call(name, **given))) as made:
        session = await made.open()
        [(status, text)] = results(await made.turn(session, "Go"))
        assert status == "error" and says in text
        assert await made.pending(session) == []


async def test_a_session_that_sleeps_is_woken_with_its_note(store: Store, tmp_path: Path) -> None:
    sleep = calls(call("sleep_until", time="in 2 hours", note="look at CI"))
    async with world(store, tmp_path, sleep) as made:
        session = await made.open()
        [(status, text)] = results(await made.turn(session, "Look later"))
        assert (status, text) == ("ok", "You are woken at Mon 16 Jun 2025, 09:02 (UTC).")
        [row] = await store.read(
            lambda tx: tx.all("wakes_due", tenant="local", now=NOW + 7_200, limit=9)
        )
        assert await store.write(lambda tx: wakes.wake(tx, row["id"], NOW + 7_200)) == session
        made.dispatcher.enqueue(session)
        await made.settle()
        facts = await made.log(session)
        said = [str(f.body["message"]["content"]) for f in facts if f.kind is Kind.MESSAGE]
        assert any("You asked to be woken now: look at CI" in each for each in said)
        assert [f.body["status"] for f in facts if f.kind is Kind.TURN_END] == ["completed"] * 2


async def test_a_session_cannot_wake_itself_for_ever(store: Store, tmp_path: Path) -> None:
    many = [
        calls(call("sleep_until", time="in 2 hours", note=f"try {n}"))
        for n in range(wakes.IN_A_ROW + 1)
    ]
    async with world(store, tmp_path, *many) as made:
        session = await made.open()
        found = results(await made.turn(session, "Go"))
        statuses = [status for status, _ in found]
        assert statuses == ["ok"] * wakes.IN_A_ROW + ["error"]
        assert "since a person wrote" in found[-1][1]


async def test_the_same_call_made_again_adds_no_second_wake(store: Store, tmp_path: Path) -> None:
    async with world(store, tmp_path) as made:
        session = await made.open()
        row = await store.read(lambda tx: get(tx, session))
        ids = [
            await store.write(lambda tx: wakes.add(tx, row, NOW + 60, "look", NOW, key="c1"))
            for _ in range(2)
        ]
        assert ids[0] == ids[1]


@pytest.mark.parametrize(
    ("ruled", "target", "asked"),
    [
        pytest.param(True, "slack:T1/C1", 0, id="exactly-there"),
        pytest.param(True, "slack:T1/C2", 1, id="elsewhere"),
        pytest.param(False, "slack:T1/C1", 1, id="not-chosen"),
    ],
)
async def test_a_run_posts_unasked_only_where_its_card_said_so(
    store: Store, tmp_path: Path, ruled: bool, target: str, asked: int
) -> None:
    async with world(store, tmp_path, asking(report_to="slack:T1/C1")) as made:
        session = await made.open()
        await made.turn(session, "Brief us every weekday at 8")
        [prompt] = await made.pending(session)
        await take(made, prompt, {"kind": "approve", **({"rule": True} if ruled else {})})
        assert isinstance(made.engine.model, ScriptedModel)
        made.engine.model.steps.append(sending(target))
        [schedule] = await store.read(lambda tx: schedules.listed(tx, "local"))
        run = await store.write(lambda tx: fires.run_now(tx, schedule.id, NOW, data=tmp_path))
        made.dispatcher.enqueue(str(run.session))
        await made.settle()
        assert len(await made.pending(str(run.session))) == asked
        assert [each.target for each in made.delivery.sent] == [target] * (1 - asked)
