"""MCP servers: what a call through Nod costs more than through the SDK, and what starting costs."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

from engine.canonical import dumps
from engine.store.opening import open_store
from tests.bench import machine
from tests.bench.figure import Figure, percentiles
from tests.bench.process import started
from tests.bench.setting import Setting
from tests.fakes.mcp_house import McpHouse, fake, house
from tests.fakes.mcp_server import command

FIGURES = (
    Figure(
        name="mcp_call",
        text="a call of a tool of a server over stdio, arguments checked, result made",
        original="not measured",
        target={"more_ms": 1.0},
    ),
    Figure(
        name="mcp_ready",
        text="from Nod's start to a server's tools, the SDK not yet imported",
        original="not measured",
        target={},
    ),
    Figure(
        name="mcp_start",
        text="process start to ready with three servers set up, one of them hung",
        original="hangs until the hung one answers",
        target={"p50_ms": 800.0},
    ),
)

CALLS, STARTS = 600, 9


async def measure(setting: Setting) -> dict[str, dict[str, Any]]:
    """Return what was measured, by figure."""
    began = time.perf_counter()
    async with _served(setting) as nod:
        ready = time.perf_counter() - began
        return {
            "mcp_call": await _call(setting, nod),
            "mcp_ready": {"ms": round(ready * 1e3, 1), "load": machine.load()},
            "mcp_start": await _start(setting),
        }


@asynccontextmanager
async def _served(setting: Setting) -> AsyncIterator[McpHouse]:
    data, url = setting.place()
    store = await open_store(url)
    try:
        async with house(store, data, fake=fake()) as nod:
            await nod.ready()
            yield nod
    finally:
        await store.close()


async def _call(setting: Setting, nod: McpHouse) -> dict[str, Any]:
    """Time both ways in turns, so that what else runs here weighs on both alike."""
    from mcp import Client, StdioServerParameters

    program, *args = command()
    server = StdioServerParameters(command=program, args=args, env=dict(os.environ))
    samples: dict[str, list[float]] = {"bare": [], "ours": []}
    async with Client(server, cache=None) as bare:
        await bare.list_tools()

        async def plain() -> None:
            await bare.call_tool("add", {"a": 1, "b": 2})

        async def through() -> None:
            await nod.call("mcp_fake_add", a=1, b=2)

        for _ in range(setting.times(CALLS)):
            samples["bare"].append(await _timed(plain))
            samples["ours"].append(await _timed(through))
    ours, bare_ms = percentiles(samples["ours"]), percentiles(samples["bare"])["p50_ms"]
    more = round(median(samples["ours"]) * 1e3 - bare_ms, 3)
    return {**ours, "bare_p50_ms": bare_ms, "more_ms": more, "load": machine.load()}


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def _start(setting: Setting) -> dict[str, Any]:
    data, url = setting.place()
    _write(data)
    environ = {"NOD_HOME": str(data), "NOD_STORE": url, "NOD_MODEL": "practice:rules"}
    await started(["serve"], environ)  # the warm-up
    starts = [await started(["serve"], environ) for _ in range(setting.times(STARTS))]
    return {
        **percentiles([each.seconds for each in starts]),
        "cpu_ms": sorted(each.cpu_ms for each in starts)[len(starts) // 2],
        "rss_mb": max(each.rss_mb for each in starts),
        "runs": len(starts),
        "load": machine.load(),
    }


def _write(data: Path) -> None:
    flags: dict[str, list[str]] = {"one": [], "two": [], "hung": ["--hang-at-start"]}
    tables = []
    for name, given in flags.items():
        program, *args = command(*given)
        tables.append(f"[mcp.{name}]\ncommand = {dumps(program)}\nargs = {dumps(args)}\n")
    (data / "nod.toml").write_text("".join(tables), encoding="utf-8")
