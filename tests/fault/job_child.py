"""A Nod that starts a job and waits for it, and can be killed at one moment of that.

`python -m tests.fault.job_child URL DATA MOMENT` plays the first life; the test plays the second.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from engine.clock import system_now
from engine.models.base import Answer, Request
from engine.sandbox import jobs as sandbox
from engine.schedule import job_tools as declared
from engine.schedule.alarm import Alarm
from engine.schedule.job_watch import JobWatch
from engine.store.base import Store
from engine.store.opening import open_store
from tests.fakes.jobs import pid_in
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.world import World, running

__all__ = ["COMMAND", "MOMENTS", "life"]

#: Counts its starts, tells its process, waits to be let go, and ends with a code of its own.
COMMAND = (
    "echo start >> starts; echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done; "
    "echo built; exit 7"
)
#: Where the first life ends: before the job is started, right after, and when the turn is over.
MOMENTS = ("before", "after", "waiting")


def script(request: Request) -> Answer | str:
    """Start the job, have oneself woken when it ends, and say what came of it."""
    said = str(request.messages)
    if "job_start" not in said:
        return calls(call("job_start", command=COMMAND))
    if "wake_on" not in said:
        job = said.split("Started as ")[1].split(";")[0]
        return calls(call("wake_on", job=job, note="tell Ana"))
    return "Told Ana." if "exit code 7" in said else "I wait."


@asynccontextmanager
async def life(store: Store, data: Path) -> AsyncIterator[World]:
    """A Nod with its clock and its watch over jobs."""

    def due() -> None:
        alarm.nudge()

    watch = JobWatch(store=store, now=system_now, tenant="local", data=data, alone=True, on_due=due)
    tools = declared.job_tools(store, "UTC", watch.nudge)
    model = ScriptedModel(then=script)
    async with running(store, data, model, tools=tools) as world:
        alarm = Alarm(
            store=store,
            now=system_now,
            tenant="local",
            data=data,
            on_wake=world.dispatcher.enqueue,
            on_prompts=lambda prompts: None,
        )
        async with alarm, watch:
            yield world


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def _first(url: str, data: Path, moment: str) -> None:
    begin = sandbox.begin

    def begin_and_die(task: sandbox.Task) -> None:
        if moment == "after":
            begin(task)
        _die()

    if moment != "waiting":
        sandbox.begin = begin_and_die
    store = await open_store(url)
    async with life(store, data) as world:
        session = await world.open()
        await world.turn(session, "Build it.")
        [prompt] = await world.pending(session)
        await world.answer(prompt, "once")
        await world.settle()
        await pid_in(data / "sessions" / session / "files" / "pid")
        _die()


if __name__ == "__main__":
    asyncio.run(_first(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
