"""Many turns at once, while the model takes its time."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.bench.figure import Figure
from tests.bench.setting import Model, Setting, ended

FIGURES = (
    Figure(
        name="at_once_50",
        text="50 turns at once, model latency 0.5 s",
        original="4.5 s",
        target={"p50_ms": 700.0},
    ),
    Figure(
        name="at_once_500",
        text="500 turns at once, model latency 0.5 s",
        original="not measured",
        target={"p50_ms": 1500.0},
    ),
)

LATENCY = 0.5  # seconds


async def measure(setting: Setting) -> dict[str, dict[str, Any]]:
    """Return what was measured, by figure."""
    async with setting.world(Model(lambda _: "Nothing new.", latency=LATENCY)) as world:

        async def crowd(turns: int) -> None:
            await asyncio.gather(*(world.say(each, "Hello?") for each in sessions[:turns]))
            await world.settle(60.0)
            await ended(world, sessions[:1])

        sessions = [await world.open() for _ in range(500)]
        await crowd(50)  # a warm-up
        return {
            f"at_once_{turns}": await setting.timed(
                world.store, setting.times(9), lambda _, turns=turns: crowd(turns)
            )
            for turns in (50, 500)
        }
