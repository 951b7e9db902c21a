"""MCP servers in use: a turn calls their tools, and a person adds and switches them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from bot import settings
from bot.app import CONSOLE_PERSON, App
from bot.commands import table as commands
from bot.inbound import answers
from connectors.mcp.house import Servers
from connectors.registry import Secrets
from engine import inbox, people, sessions
from engine.errors import NodError, SettingsError
from engine.events import Kind
from engine.inbox import Person
from engine.schedule import fires, schedules, wakes
from engine.schedule.words import When
from engine.store.base import Store, Tx
from tests.fakes.mcp_server import command
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.world import World, running

ROOT = Path(__file__).parents[2]
OWNER = Person(id=people.CONSOLE, role="owner", name="console")


async def _no_notice(cause: str, title: str, text: str) -> None:
    return None


@asynccontextmanager
async def served(world: World, tmp_path: Path, **more: Any) -> AsyncIterator[Servers]:
    """Yield the server `fake`, ready, with its tools in the world's registry."""
    program, *args = command()
    servers = Servers(
        written={"fake": {"command": program, "args": args, **more}},
        store=world.store,
        tools=world.engine.tools,
        tenant="local",
        data=tmp_path / "mcp-data",
        secrets=Secrets({}, tmp_path / "mcp-data"),
        notify=_no_notice,
    )
    async with servers:
        assert (await servers.check("fake", 20)).state == "ready"
        yield servers


async def test_a_tool_of_a_server_asks_then_runs_and_taints_the_session(
    store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([calls(call("mcp_fake_add", a=20, b=22)), "It is 42."])
    async with running(store, tmp_path, model) as world, served(world, tmp_path):
        session = await world.open()
        await world.turn(session, "Add them.")
        (prompt,) = await world.pending(session)
        assert prompt.payload["rule_target"] == [], "nothing is known to be a recipient"
        assert "Tool add of the MCP server fake: " in prompt.payload["preview"]
        assert prompt.payload["arguments"] == {"a": 20, "b": 22}
        await world.answer(prompt, "once")
        await world.settle()
        facts = await world.log(session)
    (done,) = [fact for fact in facts if fact.kind is Kind.TOOL_FINISHED]
    assert (done.body["status"], done.body["content"]) == ("ok", "42")
    assert "mcp:fake" in str([fact.body for fact in facts if fact.kind is Kind.TAINTED])


async def test_a_server_s_tools_are_there_however_a_turn_began(
    store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(then="Done.")
    async with running(store, tmp_path, model) as world, served(world, tmp_path):
        now, data = world.engine.now(), world.engine.data

        def later(tx: Tx, session: str) -> list[str]:
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
                now=now,
            )
            run = fires.run_now(tx, made.id, now, data=data)
            due = wakes.add(tx, sessions.get(tx, session), now + 1, "look", now)
            return [str(run.session), str(wakes.wake(tx, due, now + 1))]

        session = await world.open()
        await world.turn(session, "Go.")
        for each in await store.write(lambda tx: later(tx, session)):
            world.dispatcher.enqueue(each)
            await world.settle()
    by_person, by_schedule, by_wake = model.requests
    assert "mcp_fake_add" in json.dumps(by_person.tools)
    assert by_schedule.tools == by_person.tools
    assert by_wake.tools == by_person.tools


async def test_what_the_owner_calls_a_read_asks_only_when_outside_text_is_in_play(
    store: Store, tmp_path: Path
) -> None:
    one, two = calls(call("mcp_fake_add", a=1, b=1)), calls(call("mcp_fake_add", a=2, b=2))
    model = ScriptedModel([one, two, "Done."])
    async with running(store, tmp_path, model) as world, served(world, tmp_path, read=["add"]):
        session = await world.open()
        facts = await world.turn(session, "Add them.")
        assert [f.body["content"] for f in facts if f.kind is Kind.TOOL_FINISHED] == ["2"]
        (prompt,) = await world.pending(session)
    assert prompt.payload["rule_target"] == ["mcp:fake"]
    assert prompt.payload["taint"] == ["mcp:fake"]


async def test_a_standing_rule_lets_a_read_leave_under_outside_text(
    store: Store, tmp_path: Path
) -> None:
    reads = [calls(call("mcp_fake_add", a=n, b=n)) for n in (1, 2, 3)]
    model = ScriptedModel([*reads, "Done."])
    async with running(store, tmp_path, model) as world, served(world, tmp_path, read=["add"]):
        session = await world.open()
        await world.turn(session, "Add them.")
        (prompt,) = await world.pending(session)
        await world.answer(prompt, "always")
        await world.settle()
        assert not await world.pending(session)
        facts = await world.log(session)
    done = [fact.body["content"] for fact in facts if fact.kind is Kind.TOOL_FINISHED]
    assert done == ["2", "4", "6"]


async def test_a_call_that_was_lost_on_its_way_is_asked_about_and_not_repeated(
    store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([calls(call("mcp_fake_crash"))], then="I see.")
    async with running(store, tmp_path, model) as world, served(world, tmp_path):
        session = await world.open()
        await world.turn(session, "Do it.")
        (prompt,) = await world.pending(session)
        await world.answer(prompt, "once")
        await world.settle()
        (outcome,) = await world.pending(session)
        assert (outcome.kind, outcome.payload["tool"]) == ("outcome", "mcp_fake_crash")
        await world.answer(outcome, "happened")
        await world.settle()
        starts = [f for f in await world.log(session) if f.kind is Kind.TOOL_STARTED]
    assert len(starts) == 1


async def test_arguments_of_a_server_s_tool_are_checked_before_anybody_is_asked(
    store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([calls(call("mcp_fake_add", a="x")), "Sorry."])
    async with running(store, tmp_path, model) as world, served(world, tmp_path):
        session = await world.open()
        facts = await world.turn(session, "Add.")
        assert not await world.pending(session)
    (done,) = [fact for fact in facts if fact.kind is Kind.TOOL_FINISHED]
    assert "'b' is a required property" in done.body["content"]


async def test_a_long_result_spills_into_a_file_with_a_handle(store: Store, tmp_path: Path) -> None:
    model = ScriptedModel([calls(call("mcp_fake_giant")), "Long."])
    async with running(store, tmp_path, model) as world:
        async with served(world, tmp_path, read=["giant"]):
            session = await world.open()
            facts = await world.turn(session, "Read it.")
    (done,) = [fact for fact in facts if fact.kind is Kind.TOOL_FINISHED]
    assert len(done.body["content"]) < 25_000
    assert [fact.body["kind"] for fact in facts if fact.kind is Kind.ARTIFACT] == ["spill"]


# -- a running Nod


def _written(tmp_path: Path, text: str) -> dict[str, str]:
    data = tmp_path / "data"
    data.mkdir(exist_ok=True)
    (data / "nod.toml").write_text(text, encoding="utf-8")
    return {"NOD_HOME": str(data), "NOD_MODEL": "practice:rules"}


def _table(name: str = "fake", *flags: str) -> str:
    program, *args = command(*flags)
    return f"[mcp.{name}]\ncommand = {json.dumps(program)}\nargs = {json.dumps(args)}\n"


def app(environ: dict[str, str]) -> App:
    return App(settings.load(environ), environ)


async def said(nod: App, words: str, target: str = "console:main") -> str:
    return await commands.run(nod.context.of(OWNER, target), "mcp", words)


async def test_a_server_of_nod_toml_is_listed_checked_and_switched(tmp_path: Path) -> None:
    async with app(_written(tmp_path, _table())) as nod:
        assert (await said(nod, "check fake")).startswith("`fake` ready, ")
        shown = await said(nod, "show fake")
        assert "- `add` asks" in shown
        assert "Every model call carries about " in shown
        running = nod._mcp._held["fake"].task
        assert await said(nod, "tool fake add read") == "`add` of fake: read."
        assert nod._mcp._held["fake"].task is running, "it is not started anew for that"
        assert await said(nod, "tool fake add off") == "`add` of fake: switched off."
        assert "mcp_fake_add" not in nod._tools.group("mcp:fake")
        assert (await said(nod, "off fake")).startswith("fake is off")
        assert nod._tools.group("mcp:fake") == ()
        assert await said(nod, "list") == "`fake` off"
        assert (await said(nod, "on fake")).startswith("`fake` ready, ")
        assert "mcp_fake_add" not in nod._tools.group("mcp:fake")
        with pytest.raises(NodError, match=r"stands in nod\.toml"):
            await said(nod, "add fake https://mcp.example.org/mcp")
        with pytest.raises(NodError, match="No command added"):
            await said(nod, "remove fake")


async def test_a_program_added_from_chat_starts_only_after_the_card_with_its_command(
    tmp_path: Path,
) -> None:
    words = " ".join(command())
    async with app(_written(tmp_path, "")) as nod:
        told = await said(nod, f"add mine -- {words}", "slack:T1/C1/1.2")
        assert "the card asks first" in told
        (prompt,) = await nod.store.read(lambda tx: inbox.pending(tx, "local"))
        assert prompt.kind == "grant"
        assert prompt.payload["text"] == words
        assert await said(nod, "list") == "No MCP server is set up. Add one: /mcp add NAME URL"
        member = Person(id="p_member", role="operator", name="Bo")
        house = nod.context.house
        with pytest.raises(NodError, match="owner"):
            await nod.store.write(
                lambda tx: answers.take(tx, house, prompt, {"kind": "approve"}, member, "slack")
            )
        await nod.store.write(
            lambda tx: answers.take(tx, house, prompt, {"kind": "approve"}, OWNER, "slack")
        )
        nod.context.poke()
        async with asyncio.timeout(20):
            while "mcp_mine_add" not in nod._tools.group("mcp:mine"):
                await asyncio.sleep(0.02)
        assert (await said(nod, "remove mine")).startswith("mine is removed")
        assert nod._tools.group("mcp:mine") == ()


async def test_a_program_added_at_the_machine_needs_no_card_and_is_there_after_a_restart(
    tmp_path: Path,
) -> None:
    environ = _written(tmp_path, "")
    async with app(environ) as nod:
        told = await said(nod, f"add mine --read add -- {' '.join(command())}", "shell:nod")
        assert told.startswith("`mine` ready, ")
        assert "- `add` read" in told
    async with app(environ) as nod:
        assert "mcp_mine_add" in nod._tools.group("mcp:mine")


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        pytest.param("add", "not understood", id="nothing"),
        pytest.param("add my_server https://x.example/", "is no name", id="name"),
        pytest.param("add far ftp://x", "must begin with https", id="scheme"),
        pytest.param("add far", "either 'command' or 'url'", id="neither"),
        pytest.param("add x --env T=sk-1 -- ls", "never values", id="a-value"),
        pytest.param("add x --nope -- ls", "not understood", id="option"),
        pytest.param("show nope", "no MCP server 'nope'", id="unknown"),
        pytest.param("tool nope add read", "no MCP server 'nope'", id="unknown-of-tool"),
    ],
)
async def test_what_is_not_understood_is_said(words: str, fault: str, tmp_path: Path) -> None:
    async with app(_written(tmp_path, "")) as nod:
        with pytest.raises(NodError, match=fault):
            await said(nod, words)


async def test_a_server_that_is_not_shared_is_for_owners_only(tmp_path: Path) -> None:
    async with app(_written(tmp_path, f"{_table()}shared = false\n")) as nod:
        await said(nod, "check fake")
        now = nod.context.house.now()

        def look(tx: Tx) -> list[bool]:
            member = people.add_person(
                tx, "local", "slack", "U1", name="Bo", role="member", by=people.CONSOLE, now=now
            )
            closed = []
            for number, owner in enumerate((people.CONSOLE, member.id)):
                opened = nod.context.house.open(tx, f"console:of-{number}", owner, now)
                closed.append("mcp_fake_add" in nod._closed(tx, sessions.get(tx, opened)))
            return closed

        assert await nod.store.write(look) == [False, True]
        gates_off = "off mcp:fake for me"
        await commands.run(nod.context.of(OWNER, "console:main"), "connectors", gates_off)
        assert await nod.store.write(look) == [True, True]


async def test_only_an_owner_looks_after_servers(tmp_path: Path) -> None:
    async with app(_written(tmp_path, "")) as nod:
        operator = Person(id="p1", role="operator", name="Bo")
        with pytest.raises(NodError, match="needs the role owner"):
            await commands.run(nod.context.of(operator, "console:main"), "mcp", "list")


async def test_a_wrong_table_stops_the_start_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"\[mcp\.fake\]: there is no setting 'comand'"):
        async with app(_written(tmp_path, "[mcp.fake]\ncomand = 'x'\n")):
            pass


async def test_a_server_that_hangs_holds_up_neither_the_start_nor_an_answer(
    tmp_path: Path,
) -> None:
    environ = _written(tmp_path, _table("hung", "--hang-at-start"))
    async with asyncio.timeout(20), app(environ) as nod:
        await nod.console.say("console:main", CONSOLE_PERSON, "Hello")
        file = tmp_path / "data" / "console" / "main.jsonl"
        while not file.exists() or len(file.read_text("utf-8").splitlines()) < 2:
            await asyncio.sleep(0.02)
        assert "starting" in await said(nod, "list")


async def test_a_server_that_goes_on_failing_is_told_of_once_over_restarts_until_that_is_seen(
    tmp_path: Path,
) -> None:
    async def pending(nod: App) -> list[str]:
        found = await nod.store.read(lambda tx: inbox.pending(tx, "local"))
        return [each.payload["title"] for each in found if each.kind == "notice"]

    title = "The MCP server fake does not work"
    environ = _written(tmp_path, _table("fake", "--die-at-start"))
    for _ in range(2):
        async with app(environ) as nod:
            assert "failing" in await said(nod, "check fake")
            async with asyncio.timeout(20):
                while not nod._mcp._held["fake"].link._told or nod._mcp._work:
                    await asyncio.sleep(0.02)
            assert (await pending(nod)).count(title) == 1


async def test_a_killed_nod_leaves_no_server_behind(tmp_path: Path) -> None:
    environ = _written(tmp_path, _table("fake", "--deaf"))
    process = subprocess.Popen(
        [sys.executable, "-m", "bot.cli", "serve"],
        env={**os.environ, **environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(30):
            while not (started := _servers_of(tmp_path)):
                await asyncio.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    async with asyncio.timeout(10):
        while any(each.is_running() and each.status() != "zombie" for each in started):
            await asyncio.sleep(0.05)


def _servers_of(tmp_path: Path) -> list[psutil.Process]:
    """Return the fake servers whose home is in the folder."""
    found = []
    for each in psutil.process_iter():
        try:
            if each.environ().get("HOME", "").startswith(str(tmp_path)):
                if "mcp_server.py" in " ".join(each.cmdline()):
                    found.append(each)
        except (psutil.Error, OSError):
            continue
    return found
