"""Turns through the OpenAI client and the router, over loopback HTTP to a fake provider."""

from __future__ import annotations

from typing import Any

from engine.models.catalogue import Catalogue
from engine.models.router import Router
from tests.bench.figure import Figure
from tests.bench.provider import TOOLS, provider
from tests.bench.setting import Setting, ended

FIGURES = (
    Figure(
        name="http_one_call",
        text="turn, 1 model call, through the OpenAI client over loopback HTTP",
        original="15 ms",
        target={"p50_ms": 5.0},
    ),
    Figure(
        name="http_four_calls",
        text="turn, 4 model calls, 8 read-only calls, through the OpenAI client",
        original="98 ms",
        target={"p50_ms": 20.0},
    ),
)

MODEL = "openai:gpt-5.2"
WARM_UP = 20


async def measure(setting: Setting) -> dict[str, dict[str, Any]]:
    """Return what was measured, by figure."""
    async with provider() as environ:
        router = Router(Catalogue.load(), environ)
        try:
            return {
                "http_one_call": await _turn(setting, router, "What is new?", 200),
                "http_four_calls": await _turn(setting, router, TOOLS, 80),
            }
        finally:
            await router.aclose()


async def _turn(setting: Setting, router: Router, text: str, times: int) -> dict[str, Any]:
    async with setting.world(router) as world:

        async def one(session: str) -> None:
            await world.say(session, text)
            await world.settle(60.0)

        for _ in range(WARM_UP):
            await one(await world.open(model=MODEL))
        times = setting.times(times)
        sessions = [await world.open(model=MODEL) for _ in range(times)]
        measured = await setting.timed(world.store, times, lambda n: one(sessions[n]))
        await ended(world, sessions)
        return measured
