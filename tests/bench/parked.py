"""What parked turns cost: to park, to keep, to answer, and to start again with."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from engine.models.base import Answer, Request
from tests.bench.figure import Figure, percentiles
from tests.bench.process import started
from tests.bench.setting import Model, Setting, ended
from tests.fakes.scripted import call, calls
from tests.fakes.world import World

FEW, MANY = 1_000, 10_000

FIGURES = (
    Figure(
        name="parking_few",
        text="parking one turn, with 1,000 parked",
        original="116 ms",
        target={"p50_ms": 4.0},
    ),
    Figure(
        name="parking_many",
        text="parking one turn, with 10,000 parked",
        original="not measured",
        target={"p50_ms": 4.0},
    ),
    Figure(
        name="answer_few",
        text="answer to finished turn, with 1,000 parked",
        original="121 ms",
        target={"p50_ms": 10.0},
    ),
    Figure(
        name="answer_many",
        text="answer to finished turn, with 10,000 parked",
        original="not measured",
        target={"p50_ms": 10.0},
    ),
    Figure(
        name="parked_memory",
        text="memory per parked turn, with 10,000 parked by this process",
        original="150 KB, one thread and one shell process of 270 KB",
        target={"bytes_per_turn": 1024, "more_threads": 0, "processes": 0},
    ),
    Figure(
        name="restart",
        text="restart to ready, 10,000 parked; a real process, interpreter included",
        original="nothing resumes by itself",
        target={"p50_ms": 500.0},
    ),
)

AT_ONCE = 100
WARM_UP = 400
STARTS = 9


async def measure(setting: Setting) -> dict[str, dict[str, Any]]:
    """Return what was measured, by figure.

    A quick run parks a tenth of what it says; what is bounded then weighs ten times as much.
    """
    few, many = (FEW // 10, MANY // 10) if setting.quick else (FEW, MANY)
    data, url = setting.place()
    found: dict[str, dict[str, Any]] = {}
    async with setting.world_at(data, url, Model(_answer)) as world:
        await _warm_up(world)
        before = _Kept.now()
        parked = await _park(world, few)
        found["parking_few"], found["answer_few"] = await _one_by_one(setting, world, parked, few)
        parked = await _park(world, many - few)
        found["parked_memory"] = _Kept.now().since(before, many)
        found["parking_many"], found["answer_many"] = await _one_by_one(
            setting, world, parked, many
        )
        await _shown(world)
    found["restart"] = await _restart(setting, data, url, many)
    return found


def _answer(request: Request) -> Answer | str:
    if request.messages[-1]["role"] == "tool":
        return "Told them."
    return calls(call("tell", label="console:team"))


async def _park(world: World, turns: int) -> list[str]:
    """Park that many turns, each in a session of its own, some at a time; return the sessions."""
    parked: list[str] = []
    while len(parked) < turns:
        wave = [await world.open() for _ in range(min(AT_ONCE, turns - len(parked)))]
        await asyncio.gather(*(world.say(each, "Tell the team.") for each in wave))
        await world.settle(60.0)
        parked += wave
    return parked


async def _warm_up(world: World) -> None:
    """Fill every cache that is bounded, so that it is not counted as a parked turn's."""
    for session in await _park(world, WARM_UP):
        (prompt,) = await world.pending(session)
        await world.answer(prompt, "once")
    await world.settle(60.0)


async def _one_by_one(
    setting: Setting, world: World, parked: Sequence[str], count: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what parking one more turn takes, and what answering one of `parked` takes."""
    times = setting.times(150)
    sessions = [await world.open() for _ in range(times)]
    chosen = random.Random(1).sample(parked, times)
    prompts = [prompt for each in chosen for prompt in await world.pending(each)]

    async def park(number: int) -> None:
        await world.say(sessions[number], "Tell the team.")
        await world.settle()

    async def answer(number: int) -> None:
        await world.answer(prompts[number], "once")
        await world.settle()

    parking = await setting.timed(world.store, times, park)
    await ended(world, sessions, "parked")
    answering = await setting.timed(world.store, times, answer)
    await ended(world, chosen)
    return {**parking, "parked": count}, {**answering, "parked": count}


async def _shown(world: World) -> None:
    """Note every log as shown, as the presenter of a whole Nod would have."""

    def note(tx: Any) -> int:
        rows = tx.all("sessions_unpresented", tenant="local", after="", limit=1000)
        for row in rows:
            tx.run("session_presented", id=row["id"], seq=1_000)
        return len(rows)

    while await world.store.write(note):
        pass


async def _restart(setting: Setting, data: Path, url: str, parked: int) -> dict[str, Any]:
    environ = {"NOD_HOME": str(data), "NOD_STORE": url, "NOD_MODEL": "practice:rules"}
    starts = [await started(["serve"], environ) for _ in range(setting.times(STARTS))]
    return {
        **percentiles([each.seconds for each in starts]),
        "cpu_ms": sorted(each.cpu_ms for each in starts)[len(starts) // 2],
        "parked": parked,
        "runs": len(starts),
    }


class _Kept:
    """What this process holds after a full collection."""

    def __init__(self, rss: int, threads: int, processes: int) -> None:
        self.rss, self.threads, self.processes = rss, threads, processes

    @classmethod
    def now(cls) -> _Kept:
        gc.collect()
        process = psutil.Process()
        children = len(process.children(recursive=True))
        return cls(process.memory_info().rss, process.num_threads(), children)

    def since(self, before: _Kept, turns: int) -> dict[str, Any]:
        """Return what each of `turns` parked turns added."""
        return {
            "bytes_per_turn": round((self.rss - before.rss) / turns),
            "rss_mb": round(self.rss / 1e6, 1),
            "rss_before_mb": round(before.rss / 1e6, 1),
            "more_threads": self.threads - before.threads,
            "processes": self.processes,
            "parked": turns,
        }
