"""Turns with a model in this process: short, with tools, in a new session, on a long history."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from engine.models.base import Request
from tests.bench.figure import Figure
from tests.bench.setting import Model, Setting, ended, four_calls, turn

FIGURES = (
    Figure(
        name="turn_one_call",
        text="turn, 1 model call, no tool, saved",
        original="3.3 ms",
        target={"p50_ms": 1.5},
    ),
    Figure(
        name="turn_four_calls",
        text="turn, 4 model calls, 8 read-only calls, saved",
        original="33 ms",
        target={"p50_ms": 5.0},
    ),
    Figure(
        name="new_session",
        text="new session, from its first message to its first model call",
        original="39 ms",
        target={"p50_ms": 3.0},
    ),
    Figure(
        name="turn_long_history",
        text="the 1-call turn on a history of 2,000 messages",
        original="14.0 ms",
        target={"p50_ms": 3.0},
    ),
    Figure(
        name="turn_long_history_cold",
        text="the same, the first turn after a restart: the log is read once",
        original="14.0 ms",
        target={"p50_ms": 14.0},
    ),
)

WARM_UP = 30
MESSAGES = 2000
#: A message of the long history: about what people and models write.
LINE = "We moved the review to Thursday; Ana sends the numbers, and I write the summary. " * 3


async def measure(setting: Setting) -> dict[str, dict[str, Any]]:
    """Return what was measured, by figure."""
    warm, cold = await _long_history(setting)
    return {
        "turn_one_call": await _turn(setting, Model(lambda _: "Nothing new."), 400),
        "turn_four_calls": await _turn(setting, Model(four_calls), 150),
        "new_session": await _new_session(setting),
        "turn_long_history": warm,
        "turn_long_history_cold": cold,
    }


async def _turn(setting: Setting, model: Model, times: int) -> dict[str, Any]:
    """Each turn is the first of its session."""
    async with setting.world(model) as world:
        for _ in range(WARM_UP):
            await turn(world, await world.open())
        times = setting.times(times)
        sessions = [await world.open() for _ in range(times)]
        measured = await setting.timed(world.store, times, lambda n: turn(world, sessions[n]))
        await ended(world, sessions)
        return measured


async def _new_session(setting: Setting) -> dict[str, Any]:
    called: list[float] = []

    def answer(request: Request) -> str:
        called.append(time.perf_counter())
        return "Hello."

    async with setting.world(Model(answer)) as world:

        async def begin(number: int) -> float:
            began = time.perf_counter()
            await world.say(await world.open(), "Hello?")
            await world.settle()
            return called[-1] - began

        for number in range(WARM_UP):
            await begin(number)
        return await setting.timed(world.store, setting.times(300), begin)


async def _long_history(setting: Setting) -> tuple[dict[str, Any], dict[str, Any]]:
    data, url = setting.place()
    model = Model(lambda _: LINE)
    async with setting.world_at(data, url, model) as world:
        session = await world.open()
        for _ in range(MESSAGES // 2):
            await world.say(session, LINE)
            await world.settle()
        warm = await setting.timed(world.store, setting.times(200), lambda _: turn(world, session))
        await ended(world, [session])
    return warm, await _cold(setting, data, url, model, session)


async def _cold(
    setting: Setting, data: Path, url: str, model: Model, session: str
) -> dict[str, Any]:
    """Restart before each turn: a new store and engine, which has taken a turn elsewhere."""
    samples: list[dict[str, Any]] = []
    for _ in range(setting.times(20)):
        async with setting.world_at(data, url, model) as world:
            for _ in range(WARM_UP):
                await turn(world, await world.open())
            samples.append(await setting.timed(world.store, 1, lambda _: turn(world, session)))
    return {name: _middle([each[name] for each in samples], name) for name in samples[0]} | {
        "runs": len(samples)
    }


def _middle(values: list[float], name: str) -> float:
    part = {"p95_ms": 0.95, "p99_ms": 0.99}.get(name, 0.5)
    return sorted(values)[int(len(values) * part)]
