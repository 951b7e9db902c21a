"""A call whose service refuses the credentials waits for a person to connect it, and goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine.errors import NeedsConnection
from engine.events import Event, Kind
from engine.store.base import Store
from engine.tools.base import Result, Risk, Tool, ToolContext, tool
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.world import World, probe, running


@dataclass(slots=True)
class Service:
    """A service that knows us, or does not."""

    knows: bool = False
    asked: list[str] = field(default_factory=list)

    def declare(self, name: str, risk: Risk) -> Tool:
        """Return a tool of the service."""

        async def run(ctx: ToolContext, label: str = "") -> Result:
            """Ask the service.

            Args:
                label: What for.
            """
            ctx.before_act()
            if not self.knows:
                raise NeedsConnection("github", "", "GitHub has not been connected.")
            self.asked.append(label)
            return Result(text=f"{label} done")

        run.__name__ = name
        target = (lambda _arguments: ["github:acme/app"]) if risk is Risk.EXTERNAL else None
        return tool(risk=risk, name=name, target=target)(run)


def _results(facts: list[Event]) -> list[tuple[str, str]]:
    return [(f.body["status"], f.body["content"]) for f in facts if f.kind is Kind.TOOL_FINISHED]


async def _approve_all(world: World, session: str) -> None:
    for prompt in await world.pending(session):
        if prompt.kind == "approval":
            await world.answer(prompt, "once")
    await world.settle()


@pytest.mark.parametrize("risk", [Risk.READ, Risk.EXTERNAL], ids=str)
async def test_a_refused_call_waits_and_goes_on_once_it_is_connected(
    risk: Risk, store: Store, tmp_path: Path
) -> None:
    service = Service()
    model = ScriptedModel([calls(call("ask_github", label="a")), "Done."])
    async with running(store, tmp_path, model, tools=[service.declare("ask_github", risk)]) as w:
        session = await w.open()
        await w.turn(session, "Go")
        await _approve_all(w, session)
        (prompt,) = await w.pending(session)
        assert (prompt.kind, prompt.payload["connector"]) == ("connect", "github")
        assert prompt.payload["why"] == "GitHub has not been connected."
        assert service.asked == []
        service.knows = True
        await w.answer(prompt, "done")
        await w.settle()
        facts = await w.log(session)
    assert service.asked == ["a"]
    assert _results(facts) == [("ok", "a done")]
    assert facts[-1].body["status"] == "completed"


async def test_what_is_refused_again_is_asked_again_and_never_runs_out_of_tries(
    store: Store, tmp_path: Path
) -> None:
    service = Service()
    model = ScriptedModel([calls(call("ask_github", label="a")), "Done."])
    ask = service.declare("ask_github", Risk.EXTERNAL)
    async with running(store, tmp_path, model, tools=[ask]) as world:
        session = await world.open()
        await world.turn(session, "Go")
        await _approve_all(world, session)
        for _ in range(5):
            (prompt,) = await world.pending(session)
            await world.answer(prompt, "done")
            await world.settle()
        service.knows = True
        (prompt,) = await world.pending(session)
        await world.answer(prompt, "done")
        await world.settle()
        facts = await world.log(session)
    assert service.asked == ["a"]
    assert _results(facts) == [("ok", "a done")]


@pytest.mark.parametrize("risk", [Risk.READ, Risk.EXTERNAL], ids=str)
async def test_a_connection_that_is_denied_is_an_error_result_and_the_turn_goes_on(
    risk: Risk, store: Store, tmp_path: Path
) -> None:
    service = Service()
    model = ScriptedModel([calls(call("ask_github", label="a")), "Without it, then."])
    async with running(store, tmp_path, model, tools=[service.declare("ask_github", risk)]) as w:
        session = await w.open()
        await w.turn(session, "Go")
        await _approve_all(w, session)
        (prompt,) = await w.pending(session)
        await w.answer(prompt, "deny", reason="not today")
        await w.settle()
        facts = await w.log(session)
    ((status, content),) = _results(facts)
    assert status == "error" and "github is not connected" in content
    assert facts[-1].body["status"] == "completed"


async def test_reads_refused_together_share_a_card_and_others_keep_their_results(
    store: Store, tmp_path: Path
) -> None:
    service, log = Service(), []
    tools = [service.declare("ask_github", Risk.READ), probe("look", Risk.READ, log)]
    step = calls(
        call("ask_github", label="a"), call("look", label="b"), call("ask_github", label="c")
    )
    async with running(store, tmp_path, ScriptedModel([step, "Done."]), tools=tools) as world:
        session = await world.open()
        await world.turn(session, "Go")
        prompts = await world.pending(session)
        assert len({prompt.payload["card"] for prompt in prompts}) == 1
        service.knows = True
        for prompt in prompts:
            await world.answer(prompt, "done")
        await world.settle()
        facts = await world.log(session)
    assert sorted(service.asked) == ["a", "c"]
    assert [label for what, _, label in log if what == "start"] == ["b"]
    assert [status for status, _ in _results(facts)] == ["ok", "ok", "ok"]


async def test_a_stop_while_it_waits_says_that_nothing_ran(store: Store, tmp_path: Path) -> None:
    service = Service()
    model = ScriptedModel([calls(call("ask_github", label="a")), "Done."])
    ask = service.declare("ask_github", Risk.EXTERNAL)
    async with running(store, tmp_path, model, tools=[ask]) as world:
        session = await world.open()
        await world.turn(session, "Go")
        await _approve_all(world, session)
        await world.stop(session)
        await world.settle()
        facts = await world.log(session)
        assert await world.pending(session) == []
    assert _results(facts) == [("interrupted", "Error: stopped before it ran")]


async def test_it_waits_over_a_restart(store: Store, tmp_path: Path) -> None:
    service = Service()
    ask = service.declare("ask_github", Risk.EXTERNAL)
    first = ScriptedModel([calls(call("ask_github", label="a"))])
    async with running(store, tmp_path, first, tools=[ask]) as world:
        session = await world.open()
        await world.turn(session, "Go")
        await _approve_all(world, session)
    service.knows = True
    async with running(store, tmp_path, ScriptedModel(["Done."]), tools=[ask]) as world:
        (prompt,) = await world.pending(session)
        await world.answer(prompt, "done")
        await world.settle()
        facts = await world.log(session)
    assert service.asked == ["a"]
    assert facts[-1].body["status"] == "completed"


async def test_a_closed_tool_is_neither_offered_nor_run(store: Store, tmp_path: Path) -> None:
    """What nobody has connected, or somebody has muted, is not there for the model."""
    service = Service(knows=True)
    model = ScriptedModel([calls(call("ask_github", label="a")), "Done."])
    tools = [service.declare("ask_github", Risk.READ), probe("look", Risk.READ, [])]
    muted = frozenset({"ask_github"})
    async with running(store, tmp_path, model, tools=tools, closed=muted) as world:
        session = await world.open()
        facts = await world.turn(session, "Go")
    offered: list[Any] = [schema["function"]["name"] for schema in model.requests[0].tools]
    assert offered == ["look"]
    ((status, content),) = _results(facts)
    assert status == "denied" and "no tool named" in content
    assert service.asked == []
