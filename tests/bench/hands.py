"""Connectors: what a call costs more than bare aiohttp, paging in constant memory, starting."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp

from connectors import accounts
from connectors.base import Api, Limits, by_page
from connectors.credentials import secret_name
from connectors.registry import CONNECTORS
from connectors.secrets import Secrets
from connectors.vault import make_key_file
from engine import people
from engine.clock import system_now
from engine.store.opening import open_store
from tests.bench import machine
from tests.bench.figure import Figure, percentiles
from tests.bench.process import imported, started
from tests.bench.setting import Setting
from tests.fakes.vendors.desk import Desk, opened

FIGURES = (
    Figure(
        name="connector_call",
        text="a read through a connector's tool, checked, signed, limited, against bare aiohttp",
        original="not measured",
        target={"more_ms": 2.0},
    ),
    Figure(
        name="connector_rate",
        text="reads through a connector's tool, ten at once, against bare aiohttp",
        original="not measured",
        target={"calls_per_s": 250.0},
    ),
    Figure(
        name="connector_paging",
        text="5,000 results of api.pages against 500, peak of what Python allocates",
        original="all of them in a list",
        target={"more_kb": 128.0},
    ),
    Figure(
        name="connector_start",
        text="process start to ready, service, every connector registered and none connected",
        original="1.4 s, 80 MB",
        target={"p50_ms": 800.0, "rss_mb": 60.0, "unused_modules": 0},
    ),
    Figure(
        name="connector_start_all",
        text="the same with an account of every connector",
        original="1.4 s, 80 MB",
        target={"p50_ms": 900.0, "rss_mb": 70.0, "unused_modules": 0},
    ),
)

CALLS, AT_ONCE, STARTS = 600, 10, 9
FEW, MANY = 500, 5_000
FREELY = Limits(per_minute=1e9, at_once=AT_ONCE)
#: What only a call loads, and an MCP server.
UNUSED = (
    "aiohttp aiolimiter stamina feedparser bs4 imap_tools aiosmtplib oauthlib mcp httpx2"
).split()

_SERVER = """
import asyncio
from tests.fakes.vendors.notes import Fake
async def serve():
    async with Fake() as fake:
        print(fake.url, flush=True)
        await asyncio.Event().wait()
asyncio.run(serve())
"""
_NOTE = {"book": "a/b c", "number": 1}


async def measure(setting: Setting) -> dict[str, dict[str, Any]]:
    """Return what was measured, by figure."""
    async with _worked(setting) as (desk, bare):
        found = {
            "connector_call": await _call(setting, desk, bare),
            "connector_rate": await _rate(setting, desk, bare),
            "connector_paging": await _paging(desk),
        }
    found["connector_start"] = await _start(setting, connected=False)
    found["connector_start_all"] = await _start(setting, connected=True)
    return found


@dataclass(slots=True)
class _Elsewhere:
    """A server that another process runs."""

    url: str


@asynccontextmanager
async def _worked(setting: Setting) -> AsyncIterator[tuple[Desk, Callable[[], Awaitable[None]]]]:
    """A desk, and the same read with aiohttp alone; the server is a process of its own."""
    data, url = setting.place()
    store = await open_store(url)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SERVER, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    place = (await process.stdout.readline()).decode().strip()
    service: Any = _Elsewhere(place)
    headers = {"Authorization": "Bearer token-1"}
    try:
        async with (
            opened("notes", service, store, data, limits=FREELY) as desk,
            aiohttp.ClientSession(headers=headers) as session,
        ):
            await desk.connect()

            async def bare() -> None:
                async with session.get(f"{place}/books/a%2Fb%20c/notes/1") as answer:
                    assert await answer.json() == {"text": "green tea"}

            yield desk, bare
    finally:
        process.terminate()
        await process.wait()
        await store.close()


async def _call(
    setting: Setting, desk: Desk, bare: Callable[[], Awaitable[None]]
) -> dict[str, Any]:
    """Time both in turns, so that what else runs here weighs on both alike."""
    samples: dict[str, list[float]] = {"bare": [], "ours": []}
    for _ in range(setting.times(CALLS)):
        samples["bare"].append(await _timed(bare))
        samples["ours"].append(await _timed(lambda: _read(desk)))
    bare_ms = percentiles(samples["bare"])["p50_ms"]
    more = round(median(samples["ours"]) * 1e3 - bare_ms, 3)
    ours = percentiles(samples["ours"])
    return {**ours, "bare_p50_ms": bare_ms, "more_ms": more, "load": machine.load()}


async def _rate(
    setting: Setting, desk: Desk, bare: Callable[[], Awaitable[None]]
) -> dict[str, Any]:
    count = setting.times(CALLS) * 2
    took = {
        name: await _timed(lambda do=do: _together(do, count))  # type: ignore[misc]
        for name, do in {"bare": bare, "ours": lambda: _read(desk)}.items()
    }
    return {
        "calls_per_s": round(count / took["ours"], 1),
        "bare_calls": round(count / took["bare"], 1),
        "load": machine.load(),
    }


async def _paging(desk: Desk) -> dict[str, Any]:
    """Consume the pages as a tool may, that looks at each item and keeps none."""
    peaks = {most: 0 for most in (FEW, MANY)}
    await _consumed(desk, FEW)  # what is loaded and kept once
    for most in peaks:
        gc.collect()
        tracemalloc.start()
        began = time.perf_counter()
        assert await _consumed(desk, most) == most
        seconds = time.perf_counter() - began
        peaks[most] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return {
        "few_kb": round(peaks[FEW] / 1e3, 1),
        "many_kb": round(peaks[MANY] / 1e3, 1),
        "more_kb": round((peaks[MANY] - peaks[FEW]) / 1e3, 1),
        "many_seconds": round(seconds, 2),
    }


async def _consumed(desk: Desk, most: int) -> int:
    (account,) = await desk.store.read(lambda tx: accounts.listed(tx, "local"))
    connector = desk.connectors._added["notes"]
    api = Api(connector, desk.connectors._ground("notes"), account, desk.ctx)
    query = {"q": "many", "size": 100, "page": 1}
    pages = api.pages("/notes", query=query, paging=by_page("page", "size"), most=most)
    count = 0
    async for _ in pages:
        count += 1
    return count


async def _read(desk: Desk) -> None:
    assert (await desk.call("notes_read", _NOTE)).ok


async def _together(work: Callable[[], Awaitable[None]], count: int) -> None:
    """Do it `count` times, AT_ONCE at a time."""

    async def some() -> None:
        for _ in range(count // AT_ONCE):
            await work()

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def plant(data: Path, url: str) -> None:
    """Connect an account of every connector."""
    store = await open_store(url)
    try:
        now = system_now()
        await store.write(lambda tx: people.seed_console(tx, "local", now))
        made = [
            await store.write(
                lambda tx, name=name: accounts.add(  # type: ignore[misc]
                    tx, "local", name, "ana", people.CONSOLE, now=now
                )
            )
            for name in CONNECTORS
        ]
    finally:
        await store.close()
    make_key_file(data / "vault.key")
    secrets = Secrets({"PATH": os.defpath}, data)
    for each in made:
        secrets.set(secret_name(each.id), json.dumps({"kind": "key", "token": "not-a-token"}))


async def _start(setting: Setting, *, connected: bool) -> dict[str, Any]:
    data, url = setting.place()
    if connected:
        await plant(data, url)
    environ = {"NOD_HOME": str(data), "NOD_STORE": url, "NOD_MODEL": "practice:rules"}
    first = await started(["serve"], environ, ["-X", "importtime"])  # also the warm-up
    modules = imported(first.said)
    unused = sorted(name for name in UNUSED if name in modules)
    starts = [await started(["serve"], environ) for _ in range(setting.times(STARTS))]
    return {
        **percentiles([each.seconds for each in starts]),
        "cpu_ms": sorted(each.cpu_ms for each in starts)[len(starts) // 2],
        "rss_mb": max(each.rss_mb for each in starts),
        "modules": len(modules),
        "unused_modules": len(unused),
        "unused": unused,
        "runs": len(starts),
        "load": machine.load(),
    }
