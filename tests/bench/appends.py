"""How many facts a second reach the disk, each in a commit that its writer waits for."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.bench import machine
from tests.bench.figure import Figure
from tests.bench.setting import Model, Setting
from tests.fakes.world import World

FIGURES = (
    Figure(
        name="appends_1_writer",
        text="durable appends per second, 1 writer",
        original="whole-file rewrites",
        target={"per_s": 1_000},
    ),
    Figure(
        name="appends_100_writers",
        text="durable appends per second, 100 writers",
        original="whole-file rewrites",
        target={"per_s": 10_000},
    ),
)

SECONDS = 2.0


async def measure(setting: Setting) -> dict[str, dict[str, Any]]:
    """Return what was measured, by figure."""
    async with setting.world(Model(lambda _: "")) as world:
        await _appended(world, 10, 0.3)  # a warm-up
        seconds = SECONDS / 4 if setting.quick else SECONDS
        return {
            "appends_1_writer": await _appended(world, 1, seconds),
            "appends_100_writers": await _appended(world, 100, seconds),
        }


async def _appended(world: World, writers: int, seconds: float) -> dict[str, Any]:
    sessions = [await world.open() for _ in range(writers)]
    began, cpu, commits = time.perf_counter(), time.process_time(), world.store.commits
    ends = began + seconds
    made = sum(await asyncio.gather(*(_write(world, each, ends) for each in sessions)))
    seconds = time.perf_counter() - began
    return {
        "per_s": round(made / seconds),
        "cpu_us": round((time.process_time() - cpu) / made * 1e6, 1),
        "commits_per_s": round((world.store.commits - commits) / seconds),
        "load": machine.load(),
    }


async def _write(world: World, session: str, ends: float) -> int:
    """Append facts one after the other until `ends`; return how many."""
    count = 0
    while time.perf_counter() < ends:
        count += 1
        fact = {
            "tenant": "local",
            "session": session,
            "seq": count,
            "kind": "notice",
            "turn": 0,
            "iteration": 0,
            "call": None,
            "at": world.engine.now(),
            "body": '{"text":"something happened"}',
        }
        await world.store.write(lambda tx, fact=fact: tx.many("log_add", [fact]))
    return count
