"""Work that was dropped, but lives on in a thread nobody can cancel, has no effect any more."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from engine.events import Kind
from engine.store.base import Store
from engine.tools.base import LookUp, Outcome, Result, Risk, Tool, ToolContext, tool
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.world import running


class Slow:
    """A tool whose thread is about to act when its call is dropped."""

    def __init__(self) -> None:
        self.began, self.go_on, self.ended = (threading.Event() for _ in range(3))
        self.effects = 0

    def declare(self) -> Tool:
        """Return the tool; its look-up sees the truth of the moment."""

        async def look_up(ctx: ToolContext, arguments: object, seen: object) -> Outcome:
            return Outcome(found=LookUp.HAPPENED if self.effects else LookUp.DID_NOT)

        async def slow(ctx: ToolContext) -> Result:
            """Act, after a while."""
            await asyncio.to_thread(self._work, ctx)
            return Result(text="acted")

        return tool(risk=Risk.EXTERNAL, look_up=look_up)(slow)

    def _work(self, ctx: ToolContext) -> None:
        self.began.set()
        self.go_on.wait(10)
        try:
            ctx.before_act()
            self.effects += 1
        finally:
            self.ended.set()


async def test_a_call_that_was_stopped_before_it_acted_does_not_act_later(
    sqlite_store: Store, tmp_path: Path
) -> None:
    """The look-up said that it did not happen; it must stay so."""
    slow = Slow()
    model = ScriptedModel([calls(call("slow"))])
    async with running(sqlite_store, tmp_path, model, tools=[slow.declare()]) as world:
        session = await world.open(mode="auto")
        await world.say(session, "Go.")
        await asyncio.to_thread(slow.began.wait, 10)
        await world.stop(session)
        await world.settle()
        facts = await world.log(session)
        told = [fact.body["message"]["content"] for fact in facts if fact.kind is Kind.MESSAGE]
        assert "slow did not take effect" in told[-1]
        slow.go_on.set()
        await asyncio.to_thread(slow.ended.wait, 10)
    assert slow.effects == 0
