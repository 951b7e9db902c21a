"""The eight assertions the spine is accepted by, each as a person would notice it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine import inbox, people
from engine.events import Kind
from engine.models.base import Request
from engine.store.base import Store
from engine.tools.base import Risk
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.world import HOME, probe, running

PNG = "data:image/png;base64,iVBORw0KGgo="


def _sent_text(request: Request) -> str:
    return str(request.messages)


async def test_acceptance_1_a_model_without_vision_is_told_of_an_image_and_the_log_keeps_it(
    store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(["I cannot see it."])
    async with running(store, tmp_path, model) as world:
        session = await world.open()
        facts = await world.turn(
            session,
            [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": PNG}},
            ],
        )
    assert "[image attachment — not viewable by this model]" in _sent_text(model.requests[0])
    assert PNG not in _sent_text(model.requests[0])
    said = next(fact for fact in facts if fact.kind is Kind.MESSAGE)
    assert PNG in str(said.body["message"])


async def test_acceptance_2_reads_start_together_and_the_write_alone_after_them(
    store: Store, tmp_path: Path
) -> None:
    log: list[tuple[str, str, str]] = []
    gate = asyncio.Event()
    tools = [probe("look", Risk.READ, log, gate), probe("put", Risk.EXTERNAL, log)]
    batch = calls(*(call("look", label=n) for n in "abc"), call("put", label="w"))
    model = ScriptedModel([batch, "Done."])
    async with running(store, tmp_path, model, tools=tools) as world:
        session = await world.open(mode="auto")
        await world.say(session, "Go.")
        async with asyncio.timeout(5):
            while sum(1 for what, _, _ in log if what == "start") < 3:
                await asyncio.sleep(0.001)
        assert [entry for entry in log if entry[1] == "put"] == []
        gate.set()
        await world.settle()
    assert [entry[0] for entry in log[:3]] == ["start"] * 3
    assert [entry[0] for entry in log[3:6]] == ["end"] * 3
    assert log[6:] == [("start", "put", "w"), ("end", "put", "w")]


async def test_acceptance_2_a_read_after_a_write_sees_what_it_wrote(
    store: Store, tmp_path: Path
) -> None:
    batch = calls(
        call("write_file", path="note.txt", content="first words"),
        call("read_file", path="note.txt"),
    )
    model = ScriptedModel([batch, "Done."])
    async with running(store, tmp_path, model) as world:
        session = await world.open()
        facts = await world.turn(session, "Write, then read.")
    results = [fact for fact in facts if fact.kind is Kind.TOOL_FINISHED]
    assert [fact.body["name"] for fact in results] == ["write_file", "read_file"]
    assert "first words" in results[1].body["content"]


async def test_acceptance_3_a_stop_during_the_first_call_answers_the_second_too(
    store: Store, tmp_path: Path
) -> None:
    log: list[tuple[str, str, str]] = []
    gate = asyncio.Event()
    tools = [probe("put", Risk.EXTERNAL, log, gate)]
    model = ScriptedModel([calls(call("put", label="1"), call("put", label="2"))])
    async with running(store, tmp_path, model, tools=tools) as world:
        session = await world.open(mode="auto")
        await world.say(session, "Go.")
        async with asyncio.timeout(5):
            while not log:
                await asyncio.sleep(0.001)
        await world.stop(session)
        await world.settle(limit=1.5)
        facts = await world.log(session)
    assert log == [("start", "put", "1")]
    results = {f.call: f.body for f in facts if f.kind is Kind.TOOL_FINISHED}
    assert len(results) == 2
    first, second = results.values()
    assert "it may have happened" in first["content"]
    assert second["status"] == "interrupted" and second["content"].startswith("Error")
    interrupted = next(fact for fact in facts if fact.kind is Kind.INTERRUPTED)
    assert interrupted.body["iterations"] == 1
    assert [f.body["status"] for f in facts if f.kind is Kind.TURN_END] == ["interrupted"]


async def test_acceptance_4_a_write_outside_is_refused_and_a_chained_command_asks(
    store: Store, tmp_path: Path
) -> None:
    batch = calls(
        call("write_file", path="/etc/hosts", content="x"),
        call("run_shell", command="ls && curl evil"),
    )
    model = ScriptedModel([batch, "Done."])
    async with running(store, tmp_path, model, allowlist=("ls", "curl")) as world:
        session = await world.open()
        facts = await world.turn(session, "Go.")
        pending = await world.pending(session)
    refused = next(fact for fact in facts if fact.kind is Kind.TOOL_FINISHED)
    assert refused.body["status"] == "denied"
    assert "not in a writable directory" in refused.body["content"]
    assert [prompt.payload["tool"] for prompt in pending] == ["run_shell"]
    assert pending[0].payload["arguments"]["command"] == "ls && curl evil"


async def _parked_send(world: Any) -> tuple[str, inbox.Prompt]:
    session = await world.open("console:fired", origin="schedule")
    await world.say(session, "Morning briefing.", kind="fire")
    await world.settle()
    (prompt,) = await world.pending(session)
    return session, prompt


SEND = calls(call("send_message", target="console:standup", text="Good morning"))


async def test_acceptance_5_an_unattended_send_parks_and_another_surface_continues_it(
    store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([SEND, "Posted."])
    async with running(store, tmp_path, model) as world:
        session, prompt = await _parked_send(world)
        assert prompt.kind == "approval"
        assert prompt.payload["target"] == ["console:standup"]
        assert world.delivery.sent == []
        facts = await world.log(session)
        assert facts[-1].kind is Kind.TURN_END and facts[-1].body["status"] == "parked"
        resolution = await world.answer(prompt, "once", surface="phone")
        assert resolution.status == "resolved"
        await world.settle()
        facts = await world.log(session)
    assert [sent.text for sent in world.delivery.sent] == ["Good morning"]
    assert facts[-1].body["status"] == "completed"
    assert sum(1 for fact in facts if fact.kind is Kind.TURN_START) == 1


async def test_acceptance_6_a_new_worker_continues_a_parked_turn_and_the_call_runs_once(
    store: Store, tmp_path: Path
) -> None:
    """The process is really killed in tests/fault; here nothing of the first worker is left."""
    async with running(store, tmp_path, ScriptedModel([SEND])) as first:
        session, prompt = await _parked_send(first)
        delivery = first.delivery
    model = ScriptedModel(["Posted."])
    async with running(store, tmp_path, model, delivery=delivery) as second:
        await second.answer(prompt, "once")
        await second.settle()
        facts = await second.log(session)
    assert len(delivery.sent) == 1
    assert facts[-1].body["status"] == "completed"


async def test_acceptance_7_raising_the_same_prompt_twice_returns_the_same_row(
    store: Store, tmp_path: Path
) -> None:
    prompt = inbox.Prompt(
        id="", tenant="local", session=None, kind="grant", subject="s1/folder", deadline=9e12
    )
    first = await store.write(lambda tx: inbox.ask(tx, prompt))
    second = await store.write(lambda tx: inbox.ask(tx, prompt))
    assert first.id == second.id
    assert len(await store.read(lambda tx: inbox.pending(tx, "local"))) == 1


async def test_acceptance_8_a_run_stuck_on_an_approval_delays_no_other(
    store: Store, tmp_path: Path
) -> None:
    def step(request: Request) -> Any:
        return SEND if "post it" in _sent_text(request) else "All quiet."

    model = ScriptedModel(then=step)
    async with running(store, tmp_path, model) as world:
        stuck = await world.open("console:a", origin="schedule")
        others = [await world.open(f"console:b{n}", origin="schedule") for n in range(5)]
        await world.say(stuck, "post it", kind="fire")
        for other in others:
            await world.say(other, "go", kind="fire")
        await world.settle()
        assert len(await world.pending(stuck)) == 1
        for other in others:
            facts = await world.log(other)
            assert facts[-1].body["status"] == "completed"


@pytest.mark.parametrize("home", [HOME])
async def test_the_home_thread_needs_no_nod(store: Store, tmp_path: Path, home: str) -> None:
    """The derived rule: sending to the thread in which a person opened the session."""
    model = ScriptedModel([calls(call("send_message", target=home, text="Hi")), "Done."])
    async with running(store, tmp_path, model) as world:
        session = await world.open(home)
        await world.turn(session, "Say hi.")
        assert await world.pending(session) == []
    assert [sent.target for sent in world.delivery.sent] == [home]
    assert people.CONSOLE == "console"
