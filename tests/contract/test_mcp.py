"""MCP servers as Nod keeps them: started, watched, healed, never waited for too long.

The servers are real processes, or real HTTP servers of the SDK; see `tests/fakes/mcp_server.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from connectors.http import Unsure
from connectors.mcp import link as mcp_link
from connectors.mcp.ports import State
from engine.errors import ToolError
from engine.store.base import Store
from engine.store.opening import open_store
from engine.tools.base import Risk
from tests.fakes.mcp_house import fake, house


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(str(tmp_path / "nod.db"))
    yield opened
    await opened.close()


async def test_a_server_s_tools_are_there_and_can_be_called(store: Store, tmp_path: Path) -> None:
    async with house(store, tmp_path, fake=fake()) as nod:
        await nod.ready()
        assert "mcp_fake_add" in nod.names()
        result = await nod.call("mcp_fake_add", a=1, b=2)
        assert (result.text, result.ok, result.taint) == ("3", True, "mcp:fake")


async def test_arguments_are_checked_against_the_server_s_schema(
    store: Store, tmp_path: Path
) -> None:
    async with house(store, tmp_path, fake=fake()) as nod:
        await nod.ready()
        with pytest.raises(ToolError, match=r"Argument 'a' of mcp_fake_add is wrong"):
            await nod.call("mcp_fake_add", a="one", b=2)
        with pytest.raises(ToolError, match="'b' is a required property"):
            await nod.call("mcp_fake_add", a=1)


async def test_a_tool_asks_unless_the_owner_says_that_it_reads(
    store: Store, tmp_path: Path
) -> None:
    async with house(store, tmp_path, fake=fake(read=["add"])) as nod:
        await nod.ready()
        add, send = nod.tools.get("mcp_fake_add"), nod.tools.get("mcp_fake_send")
        assert add and send
        assert (add.risk, send.risk) == (Risk.READ, Risk.EXTERNAL)
        assert add.egress
        assert add.egress({}) == "mcp:fake"


async def test_what_is_excluded_is_not_offered(store: Store, tmp_path: Path) -> None:
    async with house(store, tmp_path, fake=fake(include=["a*", "send"], exclude=["ask"])) as nod:
        await nod.ready()
        assert [n for n in nod.names() if "resource" not in n and "prompt" not in n] == [
            "mcp_fake_add",
            "mcp_fake_send",
        ]


async def test_several_calls_run_at_once(store: Store, tmp_path: Path) -> None:
    async with house(store, tmp_path, fake=fake()) as nod:
        await nod.ready()
        began = asyncio.get_running_loop().time()
        results = await asyncio.gather(*(nod.call("mcp_fake_slow") for _ in range(4)))
        assert [each.text for each in results] == ["at last"] * 4
        assert asyncio.get_running_loop().time() - began < 4 * 0.2


async def test_a_call_that_hangs_ends_in_time_and_the_server_is_of_use_after_it(
    store: Store, tmp_path: Path
) -> None:
    async with house(store, tmp_path, fake=fake(timeout=1, read=["hang", "add"])) as nod:
        await nod.ready()
        with pytest.raises(ToolError, match="did not answer within 1 s"):
            await nod.call("mcp_fake_hang")
        assert (await nod.call("mcp_fake_add", a=1, b=1)).text == "2"
        told = json.loads((await nod.call("mcp_fake_calls")).text)
        assert told["cancelled"] == 1, "the server was not told that nobody waits any more"


async def test_whether_a_hung_call_took_effect_is_not_guessed(store: Store, tmp_path: Path) -> None:
    async with house(store, tmp_path, fake=fake(timeout=1)) as nod:
        await nod.ready()
        with pytest.raises(Unsure):
            await nod.call("mcp_fake_hang")


async def test_a_cancelled_call_leaves_the_server_of_use(store: Store, tmp_path: Path) -> None:
    async with house(store, tmp_path, fake=fake()) as nod:
        await nod.ready()
        call = asyncio.create_task(nod.call("mcp_fake_hang"))
        await asyncio.sleep(0.2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await nod.call("mcp_fake_add", a=2, b=2)).text == "4"
        assert nod.state() == State.READY


async def test_a_server_that_dies_in_a_call_is_started_again(store: Store, tmp_path: Path) -> None:
    async with house(store, tmp_path, fake=fake()) as nod:
        await nod.ready()
        with pytest.raises(Unsure, match="failed while it worked"):
            await nod.call("mcp_fake_crash")
        await nod.until(lambda: nod.state() != State.READY)
        assert "mcp_fake_add" in nod.names(), "a model loses no tool while a server is mended"
        await nod.ready()
        assert (await nod.call("mcp_fake_add", a=1, b=2)).text == "3"
        assert not nod.told.notices, "one fall that mended itself is no news"


async def test_a_call_while_the_server_is_down_does_nothing_and_says_why(
    store: Store, tmp_path: Path
) -> None:
    down = tmp_path / "down"
    async with house(store, tmp_path, fake=fake("--die-if", str(down))) as nod:
        await nod.ready()
        down.touch()
        with pytest.raises(Unsure):
            await nod.call("mcp_fake_crash")
        with pytest.raises(ToolError, match=r"is failing: .*\. .* Nothing was done"):
            await nod.call("mcp_fake_add", a=1, b=2)
        down.unlink()
        assert (await nod.servers.check("fake", 20)).state == State.READY


async def test_a_call_right_after_a_fall_waits_for_the_server(store: Store, tmp_path: Path) -> None:
    async with house(store, tmp_path, fake=fake()) as nod:
        await nod.ready()
        with pytest.raises(Unsure):
            await nod.call("mcp_fake_crash")
        assert (await nod.call("mcp_fake_add", a=1, b=2)).text == "3"


async def test_the_owner_is_told_once_in_an_episode_with_the_last_lines(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_link, "PAUSES", (0.01,))
    async with house(store, tmp_path, fake=fake("--die-at-start")) as nod:
        await nod.until(lambda: nod.link()._failures >= 4)
        ((cause, text),) = nod.told.notices
    assert cause == "mcp/fake"
    printed = text.partition("It printed:\n")[2].splitlines()
    assert printed[-1] == "line 39 of a long complaint"
    assert len(printed) <= 20


async def test_recovery_ends_the_episode(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_link, "PAUSES", (0.01,))
    monkeypatch.setattr(mcp_link, "STEADY", 0.2)
    async with house(store, tmp_path, fake=fake()) as nod:
        for _ in range(2):
            await nod.ready()
            with pytest.raises(Unsure):
                await nod.call("mcp_fake_crash")
            await nod.until(lambda: nod.state() != State.READY)
        await nod.until(lambda: len(nod.told.notices) == 2)
        assert nod.told.notices[-1] == ("mcp/fake", "")


async def test_a_program_that_is_not_there_is_not_tried_again_and_again(
    store: Store, tmp_path: Path
) -> None:
    async with house(store, tmp_path, fake={"command": "no-such-program"}) as nod:
        await nod.until(lambda: nod.state() == State.BROKEN)
        (status,) = nod.servers.status()
        assert "there is no program 'no-such-program' here" in status.trouble
        await nod.until(lambda: bool(nod.told.notices))


async def test_a_server_that_hangs_at_its_start_holds_up_nobody(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_link, "START", 1.0)
    hung, good = fake("--hang-at-start"), fake()
    async with house(store, tmp_path, hung=hung, fake=good) as nod:
        await nod.ready()
        assert (await nod.call("mcp_fake_add", a=1, b=2)).text == "3"
        await nod.until(lambda: nod.state("hung") == State.FAILING)
        assert "did not answer within 1 s" in nod.link("hung").why


async def test_tools_are_there_at_once_after_a_restart_and_a_call_waits_for_the_server(
    store: Store, tmp_path: Path
) -> None:
    async with house(store, tmp_path, fake=fake()) as nod:
        await nod.ready()
        await nod.until(lambda: (tmp_path / "data/mcp/fake.json").exists())
        before = nod.names()
    async with house(store, tmp_path, fake=fake()) as nod:
        assert nod.state() != State.READY
        assert nod.names() == before
        assert (await nod.call("mcp_fake_add", a=1, b=2)).text == "3"


async def test_another_program_under_the_name_takes_no_tools_over(
    store: Store, tmp_path: Path
) -> None:
    async with house(store, tmp_path, fake=fake()) as nod:
        await nod.ready()
        await nod.until(lambda: (tmp_path / "data/mcp/fake.json").exists())
    async with house(store, tmp_path, fake=fake("--hang-at-start")) as nod:
        assert nod.names() == []


async def test_a_list_that_changes_is_taken_in(store: Store, tmp_path: Path) -> None:
    async with house(store, tmp_path, fake=fake()) as nod:
        await nod.ready()
        await nod.call("mcp_fake_grow")
        await nod.until(lambda: "mcp_fake_grown" in nod.names())
        assert (await nod.call("mcp_fake_grown")).text == "grown"


async def test_hostile_names_and_schemas_become_safe_or_are_left_out(
    store: Store, tmp_path: Path
) -> None:
    async with house(store, tmp_path, fake=fake("--hostile")) as nod:
        await nod.ready()
        (status,) = nod.servers.status()
        offered = {each.own: each.name for each in status.tools if each.name}
        left = {each.own: each.said for each in status.tools if not each.name}
        assert len(set(offered.values())) == len(offered)
        assert all(name[:9] == "mcp_fake_" and len(name) <= 64 for name in offered.values())
        assert left == {
            "twice": "the server names two tools so",
            "bomb": "its schema is nested too deeply",
            "odd": left["odd"],
            "deep": "its schema is nested too deeply",
        }
        assert left["odd"].startswith("its schema is no JSON schema")
        loud = nod.tools.get(offered["loud"])
        assert loud
        assert len(loud.description) < 1_200
        assert "\x1b" not in loud.description
        assert "<nod-note>" not in loud.description
        assert "\n" not in loud.description
        refs = nod.tools.get(offered["refs"])
        assert refs and refs.parameters
        assert "$ref" not in json.dumps(refs.parameters)
        assert refs.parameters["properties"]["kind"]["enum"] == ["a", "b"]
        pattern = nod.tools.get(offered["pattern"])
        assert pattern
        assert pattern.check({"x": "a" * 40 + "!"}), "the server checks its own patterns"


async def test_a_list_against_the_protocol_says_where(store: Store, tmp_path: Path) -> None:
    async with house(store, tmp_path, fake=fake("--wrong-list")) as nod:
        await nod.until(lambda: nod.state() == State.FAILING)
        assert "does not follow the protocol (tools." in nod.link().why


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        pytest.param("fail", "The board is closed.", id="an-error-of-the-tool"),
        pytest.param("structured", '{"answer":42}', id="structured"),
        pytest.param("junk", "after the junk", id="junk-between-messages"),
        pytest.param("linked", "[Resource one: memo://one]\n[memo://two]\nCall Ana.", id="links"),
    ],
)
async def test_what_a_tool_gives_becomes_text(
    tool: str, text: str, store: Store, tmp_path: Path
) -> None:
    async with house(store, tmp_path, fake=fake()) as nod:
        await nod.ready()
        result = await nod.call(f"mcp_fake_{tool}")
        assert (result.text, result.ok) == (text, tool != "fail")
        assert nod.state() == State.READY


async def test_a_server_that_asks_for_more_is_refused_and_goes_on(
    store: Store, tmp_path: Path
) -> None:
    async with house(store, tmp_path, fake=fake()) as nod:
        await nod.ready()
        assert (await nod.call("mcp_fake_ask")).text == "asked"
        async with asyncio.timeout(5):
            while json.loads((await nod.call("mcp_fake_calls")).text)["refused"] < 3:
                await asyncio.sleep(0.05)


async def test_a_refused_call_did_nothing(store: Store, tmp_path: Path) -> None:
    async with house(store, tmp_path, fake=fake()) as nod:
        await nod.ready()
        with pytest.raises(ToolError, match="refused the call: no such board"):
            await nod.call("mcp_fake_refuse")


async def test_a_giant_result_is_bounded_and_an_endless_one_ends_the_connection(
    store: Store, tmp_path: Path
) -> None:
    async with house(store, tmp_path, fake=fake()) as nod:
        await nod.ready()
        assert len((await nod.call("mcp_fake_giant")).text) < 2_000_100
        with pytest.raises(Unsure):
            await nod.call("mcp_fake_endless")
        assert (await nod.call("mcp_fake_add", a=1, b=2)).text == "3"


async def test_a_server_that_floods_is_cut_off_and_holds_up_nobody(
    store: Store, tmp_path: Path
) -> None:
    async with house(store, tmp_path, flood=fake(), fake=fake()) as nod:
        await nod.ready("flood")
        await nod.ready()
        flooding = asyncio.create_task(nod.call("mcp_flood_flood"))
        async with asyncio.timeout(10):
            assert (await nod.call("mcp_fake_add", a=1, b=2)).text == "3"
        with pytest.raises(Unsure):
            await flooding
        await nod.ready("flood")


async def test_a_picture_is_kept_as_a_file_of_the_session(store: Store, tmp_path: Path) -> None:
    async with house(store, tmp_path, fake=fake()) as nod:
        await nod.ready()
        first, second = [await nod.call("mcp_fake_picture") for _ in range(2)]
        (one,), (two,) = first.artifacts, second.artifacts
        assert one.path.read_bytes() == b"\x89PNG fake"
        assert one.path != two.path
        assert one.path.is_relative_to(nod.ctx.cwd)
        assert first.text == "[image/png, 9 bytes, kept as mcp/image.png]"


async def test_resources_and_prompts_are_of_use(store: Store, tmp_path: Path) -> None:
    async with house(store, tmp_path, fake=fake()) as nod:
        await nod.ready()
        listed = await nod.call("mcp_fake_list_resources")
        assert listed.text == "memo://one The first memo.\nmemo://{name} memo"
        read = await nod.call("mcp_fake_read_resource", uri="memo://one")
        assert (read.text, read.taint) == ("[memo://one]\nBuy milk.", "mcp:fake")
        assert (await nod.call("mcp_fake_list_prompts")).text == "greet(who)"
        got = await nod.call("mcp_fake_get_prompt", name="greet", arguments={"who": "Ana"})
        assert got.text == "user:\nGreet Ana."


async def test_a_rule_pins_the_recipients_the_owner_named_and_the_tool_as_it_is(
    store: Store, tmp_path: Path
) -> None:
    async with house(store, tmp_path, fake=fake(targets={"send": ["to", "cc"]})) as nod:
        await nod.ready()
        send, add = nod.tools.get("mcp_fake_send"), nod.tools.get("mcp_fake_add")
        assert send and add
        one = send.targets({"to": ["b@x", "a@x"], "text": "hi"}, "")
        assert one[1:] == ("to=a@x", "to=b@x")
        assert one[0].startswith("mcp:fake/send#")
        more = send.targets({"to": ["a@x", "b@x"], "cc": "c@x", "text": "hi"}, "")
        assert set(more) - set(one) == {"cc=c@x"}
        assert send.targets({"text": "hi"}, "") == ()
        assert add.targets({"a": 1, "b": 2}, "") == ()


async def test_a_child_gets_its_own_secrets_and_no_other_variable(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-servers")
    secrets = {"BOARD_TOKEN": "tok-for-the-board"}
    table = fake("--tell", "BOARD_TOKEN", env=["BOARD_TOKEN"])
    async with house(store, tmp_path, secrets, fake=table) as nod:
        await nod.ready()
        given = json.loads((await nod.call("mcp_fake_environment")).text)
        assert given.keys() - {"PWD", "LC_CTYPE", "OLDPWD", "SHLVL", "_"} == {
            "PATH",
            "LC_ALL",
            "HOME",
            "TERM",
            "NOD_PROCESS",
            "BOARD_TOKEN",
        }
        assert given["BOARD_TOKEN"] == "[secret]", "it has it, and nobody is told"
        with pytest.raises(Unsure):
            await nod.call("mcp_fake_crash")
        await nod.until(lambda: bool(nod.link().printed))
        assert nod.link().printed.splitlines()[0] == "BOARD_TOKEN=[secret]"


async def test_a_missing_secret_is_named_and_nothing_is_started(
    store: Store, tmp_path: Path
) -> None:
    async with house(store, tmp_path, fake=fake(env=["BOARD_TOKEN"])) as nod:
        await nod.until(lambda: nod.state() == State.BROKEN)
        assert "nod secrets set BOARD_TOKEN" in nod.link().why


async def test_a_stop_leaves_no_process_of_a_server_behind(store: Store, tmp_path: Path) -> None:
    async with house(store, tmp_path, fake=fake("--deaf")) as nod:
        await nod.ready()
        pids = json.loads((await nod.call("mcp_fake_spawn")).text)
        assert all(psutil.pid_exists(each) for each in pids)
    assert not [pid for pid in pids if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
