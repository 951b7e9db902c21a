"""The ten security invariants, each as a test for the parts that exist.

What later parts add to each:

1.  The surfaces of the chat platforms, each with its own identity check.
2.  Votes of several people on one card, on platforms.
3.  tests/fault kills real processes at every edge; connectors bring their own look-ups.
4.  test_canary.py: what opens apps and MCP servers; platform tokens in the logs of their libraries.
5.  Redelivery by Slack, Telegram and Discord.
6.  Unknown people on platforms, and the access card.
7.  Memory and credentials of several people.
8.  Cards and errors in platform threads.
9.  Deadlines of unattended runs.
10. Wakes and subscriptions.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from engine import audit, inbox, people
from engine.errors import PromptError, ToolError
from engine.events import Kind
from engine.models.base import ModelRefused
from engine.store.base import Store
from engine.tools.base import Result, Risk, ToolContext, tool
from engine.tools.box import standard_tools
from engine.turn.state import Limits
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.world import probe, running

SEND = calls(call("send_message", target="console:standup", text="Hello"))
CANARY = "sk-canary-0123456789abcdef"


async def _rows(store: Store, chain: str) -> list[dict[str, Any]]:
    def read(tx: Any) -> list[dict[str, Any]]:
        return [{k: row[k] for k in row.keys()} for row in tx.all("audit_chain", chain=chain)]

    return await store.read(read)


async def test_invariant_1_no_consequential_call_runs_without_a_decision_record(
    store: Store, tmp_path: Path
) -> None:
    """The record names the rule or the person, the surface, and the argument hash."""
    write = calls(
        call("write_file", path="a.txt", content="x"),
        call("send_message", target="console:standup", text="Hello"),
    )
    async with running(store, tmp_path, ScriptedModel([write, "Done."])) as world:
        session = await world.open()
        await world.turn(session, "Go")
        (prompt,) = await world.pending(session)
        await world.answer(prompt, "once", surface="phone")
        await world.settle()
    rows = await _rows(store, session)
    started = [row for row in rows if row["kind"] == "started"]
    assert [(row["rule"], row["actor"], row["surface"]) for row in started] == [
        ("own_root", "nod", ""),
        ("default", people.CONSOLE, "phone"),
    ]
    for row in started:
        before = [r for r in rows[: row["n"] - 1] if r["subject"] == row["subject"]]
        assert {"proposed", "judged"} <= {r["kind"] for r in before}
        assert row["arguments_hash"] and row["arguments_hash"] == before[-1]["arguments_hash"]
    decided = next(row for row in rows if row["kind"] == "decided")
    assert (decided["actor"], decided["surface"]) == (people.CONSOLE, "phone")
    assert decided["arguments_hash"] == started[1]["arguments_hash"]
    assert await store.read(lambda tx: audit.verify(tx, "local")) == []


async def test_invariant_1_a_changed_audit_row_is_found(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with running(sqlite_store, tmp_path, ScriptedModel(["Hello."])) as world:
        session = await world.open()
        await world.say(session, "Hi")
        await world.stop(session)
        await world.settle()
    with sqlite3.connect(tmp_path / "nod.db") as direct:
        direct.execute("update audit set actor = 'somebody' where chain = ?", (session,))
    direct.close()
    (fault,) = await sqlite_store.read(lambda tx: audit.verify(tx, "local"))
    assert session in fault and "changed" in fault


async def test_invariant_2_a_decision_authorises_one_argument_hash(
    store: Store, tmp_path: Path
) -> None:
    async with running(store, tmp_path, ScriptedModel([SEND])) as world:
        session = await world.open()
        await world.turn(session, "Go")
        (prompt,) = await world.pending(session)
        person = inbox.Person(id=people.CONSOLE, role="owner")
        with pytest.raises(PromptError, match="changed"):
            await store.write(
                lambda tx: inbox.resolve(
                    tx, prompt.id, {"kind": "once"}, person, "x", 1.0, expect_hash="another"
                )
            )
        assert len(await world.pending(session)) == 1


async def test_invariant_2_the_same_words_in_the_next_turn_need_a_nod_of_their_own(
    store: Store, tmp_path: Path
) -> None:
    async with running(store, tmp_path, ScriptedModel([SEND, "Done.", SEND])) as world:
        session = await world.open()
        await world.turn(session, "Go")
        (prompt,) = await world.pending(session)
        await world.answer(prompt, "once")
        await world.settle()
        await world.turn(session, "Again")
        (again,) = await world.pending(session)
    assert again.id != prompt.id
    assert len(world.delivery.sent) == 1


async def test_invariant_3_two_presses_at_once_run_the_call_once(
    store: Store, tmp_path: Path
) -> None:
    async with running(store, tmp_path, ScriptedModel([SEND, "Done."])) as world:
        session = await world.open()
        await world.turn(session, "Go")
        (prompt,) = await world.pending(session)
        presses = [world.answer(prompt, "once", surface=f"s{n}") for n in range(8)]
        statuses = [resolution.status for resolution in await asyncio.gather(*presses)]
        await world.settle()
    assert sorted(statuses) == ["already"] * 7 + ["resolved"]
    assert len(world.delivery.sent) == 1


async def test_invariant_4_no_secret_reaches_prompts_the_store_or_a_child(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    model = ScriptedModel(
        [calls(call("run_shell", command="env; printenv OPENAI_API_KEY")), "Done."]
    )
    async with running(store, tmp_path, model) as world:
        session = await world.open()
        await world.turn(session, "Show the environment")
        (prompt,) = await world.pending(session)
        await world.answer(prompt, "once")
        await world.settle()
        facts = await world.log(session)
    result = next(fact for fact in facts if fact.kind is Kind.TOOL_FINISHED)
    assert "PATH=" in result.body["content"]
    assert CANARY not in str([fact.body for fact in facts])
    assert CANARY not in str([request.messages for request in model.requests])
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert CANARY.encode() not in file.read_bytes()
    assert os.environ["OPENAI_API_KEY"] == CANARY


async def test_invariant_5_a_redelivered_message_is_a_no_op_also_for_the_next_worker(
    store: Store, tmp_path: Path
) -> None:
    body = {"message": {"role": "user", "content": "Hi"}}
    async with running(store, tmp_path, ScriptedModel(["Hello."])) as first:
        session = await first.open()
        assert await first.post(session, "message", body, key="event:E1")
        await first.settle()
    async with running(store, tmp_path, ScriptedModel([])) as second:
        assert not await second.post(session, "message", body, key="event:E1")
        await second.settle()
        facts = await second.log(session)
    assert sum(fact.kind is Kind.TURN_START for fact in facts) == 1


async def test_invariant_7_an_artifact_of_another_session_is_out_of_reach(
    store: Store, tmp_path: Path
) -> None:
    @tool(risk=Risk.READ, result_budget=2_000)
    async def dump(ctx: ToolContext) -> Result:
        """Dump."""
        (ctx.cwd / "long.txt").write_text("private words")
        return Result(text="private words\n" * 1_000)

    tools = [*standard_tools(), dump]
    async with running(
        store, tmp_path, ScriptedModel([calls(call("dump")), "Done."]), tools=tools
    ) as world:
        mine = await world.open("console:mine")
        facts = await world.turn(mine, "Read")
        handle = next(fact.body["id"] for fact in facts if fact.kind is Kind.ARTIFACT)
        folder = tmp_path / "sessions" / mine / "files"
    steal = calls(
        call("read_artifact", id=handle),
        call("read_artifact", id=f"call:{mine}-1-1-0"),
        call("read_file", path=str(folder / "long.txt")),
    )
    async with running(store, tmp_path, ScriptedModel([steal, "Done."])) as world:
        theirs = await world.open("console:theirs")
        facts = await world.turn(theirs, "Read it")
    results = [fact.body for fact in facts if fact.kind is Kind.TOOL_FINISHED]
    assert len(results) == 3
    assert [body for body in results if "private words" in body["content"]] == []
    assert {body["status"] for body in results} <= {"error", "denied"}


@pytest.mark.parametrize("what", ["prompt", "error", "stop", "cap"])
async def test_invariant_8_every_prompt_error_stop_and_cap_is_a_fact_of_its_session(
    store: Store, tmp_path: Path, what: str
) -> None:
    """What is a fact is shown: the presenter follows the log."""
    scripts: dict[str, Any] = {
        "prompt": ScriptedModel([SEND]),
        "error": ScriptedModel([ModelRefused("No key.", "Set OPENAI_API_KEY.")]),
        "stop": ScriptedModel([SEND]),
        "cap": ScriptedModel([calls(call("look", label="a")), "Enough."]),
    }
    expected = {
        "prompt": Kind.PERMISSION_REQUIRED,
        "error": Kind.ERROR,
        "stop": Kind.INTERRUPTED,
        "cap": Kind.TURN_END,
    }
    tools = [probe("look", Risk.READ, [])] if what == "cap" else None
    limits = Limits(iterations=1)
    async with running(store, tmp_path, scripts[what], tools=tools, limits=limits) as world:
        session = await world.open()
        await world.turn(session, "Go")
        if what == "stop":
            await world.stop(session)
            await world.settle()
        facts = await world.log(session)
    assert expected[what] in [fact.kind for fact in facts]
    if what == "cap":
        assert facts[-1].body["status"] == "max_iterations"


@pytest.mark.parametrize(
    ("step", "status"),
    [
        pytest.param("Hello.", "completed", id="answer"),
        pytest.param(ModelRefused("No."), "error", id="error"),
        pytest.param(SEND, "parked", id="waiting-with-a-deadline"),
    ],
)
async def test_invariant_9_every_turn_ends(
    store: Store, tmp_path: Path, step: Any, status: str
) -> None:
    async with running(store, tmp_path, ScriptedModel([step])) as world:
        session = await world.open()
        facts = await world.turn(session, "Go")
        assert facts[-1].kind is Kind.TURN_END
        assert facts[-1].body["status"] == status
        for prompt in await world.pending(session):
            assert prompt.deadline > prompt.created_at


async def test_invariant_9_a_turn_that_fails_in_our_own_code_is_ended_and_shown(
    store: Store, tmp_path: Path
) -> None:
    """It is tried again first: after three times its turn ends with an error."""
    async with running(store, tmp_path, ScriptedModel(then=ToolError("odd"))) as world:
        session = await world.open()
        await world.say(session, "Go")
        facts = await world.log(session)
        async with asyncio.timeout(20):
            while not facts or facts[-1].kind is not Kind.TURN_END:
                await asyncio.sleep(0.05)
                facts = await world.log(session)
    assert facts[-1].body["status"] == "error"
    assert any(fact.kind is Kind.ERROR for fact in facts)


async def test_invariant_10_what_waits_is_there_for_the_next_worker(
    store: Store, tmp_path: Path
) -> None:
    """Messages accepted while a turn runs, and cards, outlive the worker."""
    hold = asyncio.Event()
    async with running(store, tmp_path, ScriptedModel(["never"], hold=hold)) as first:
        busy, parked = await first.open("console:busy"), await first.open("console:parked")
        await first.say(busy, "one")
        await first.say(busy, "two")
    texts: list[str] = []

    def step(request: Any) -> str:
        texts.append(str(request.messages))
        return "Answered."

    async with running(store, tmp_path, ScriptedModel(then=step)) as second:
        await second.settle()
        facts = await second.log(busy)
        assert await second.log(parked) == []
    assert "one" in texts[-1] and "two" in texts[-1]
    assert facts[-1].body["status"] == "completed"
