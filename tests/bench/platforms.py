"""Nod on each platform, through its library over sockets: how soon people see that it heard.

The platform runs in a process of its own. The model answers in this process, so that a figure is
of Nod and the library.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from time import perf_counter, process_time
from typing import Any

from bot import settings as reading
from bot.cards import token_key
from bot.surfaces.base import Inbound, Receipt, Surface
from bot.surfaces.table import PLATFORMS
from engine import people
from engine.models.base import Answer, Delta, Request
from engine.store.base import Store, Tx
from engine.store.opening import open_store
from engine.tools.base import Risk
from engine.tools.box import standard_tools
from engine.turn.state import Limits
from tests.bench import machine
from tests.bench.figure import Figure, percentiles
from tests.bench.platform import WORKING, Platform, platform
from tests.bench.process import started
from tests.bench.setting import Setting
from tests.bench.stands import ANSWER, SEND, WAIT, WORK
from tests.fakes.chat import chatting
from tests.fakes.ground import grounded
from tests.fakes.scripted import call, calls
from tests.fakes.world import probe

#: What is measured on each platform: name, text, what the original takes, target. Acknowledged is
#: an event when Slack's envelope is answered, when Telegram is asked for what comes after it, and,
#: as Discord is told nothing, when it is stored.
_ROWS: tuple[tuple[str, str, str, Mapping[str, float]], ...] = (
    ("ack", "event to acknowledgement", "", {"p50_ms": 5.0, "p99_ms": 50.0}),
    ("ack_busy", "the same, with 200 turns at work", "", {"p50_ms": 5.0, "p99_ms": 50.0}),
    ("sign", "event to first visible sign", "131 ms", {"p50_ms": 20.0}),
    ("sign_busy", "the same, with 200 turns at work", "", {"p50_ms": 20.0}),
    ("press", "press of Approve to the start of the tool", "", {}),
    ("in", "messages a second in: 200 at once, each stored and acknowledged", "", {}),
    ("out", "messages a second out: 200 answers at once", "", {}),
)

FIGURES = (
    *(
        Figure(
            name=f"{platform}_{name}",
            text=f"{platform.capitalize()}: {text}",
            original=original or "not measured",
            target=target,
        )
        for platform in PLATFORMS
        for name, text, original, target in _ROWS
    ),
    Figure(
        name="platforms_memory",
        text="process start to connected to Slack, Telegram and Discord",
        original="not measured",
        target={"rss_mb": 150.0},
    ),
)

EVENTS, BURST, PRESSES, STARTS = 120, 200, 60, 5
#: Seconds one model call takes: of a turn at work, and of an answer that is waited for.
STEP, LATE = 1.0, 3.0


async def measure(setting: Setting) -> dict[str, dict[str, Any]]:
    """Return what was measured, by figure."""
    found: dict[str, dict[str, Any]] = {}
    for name in PLATFORMS:
        async with platform(name) as outside, _nod(setting, name, outside) as nod:
            found |= await _measured(setting, name, outside, nod)
    return {**found, "platforms_memory": await _memory(setting)}


class _Nod:
    """What this process notes: when events were stored, and when a tool started."""

    def __init__(self) -> None:
        self.stored: dict[str, float] = {}
        #: When the tools started that a turn at work calls, and the one that needs a nod.
        self.looks = _Times()
        self.starts = _Times()


class _Times(list[Any]):
    """A probe's record that keeps the moments of its starts."""

    def append(self, entry: Any, /) -> None:
        if entry[0] == "start":
            super().append(perf_counter())


class _Watched:
    """A surface whose events are noted when they were stored."""

    def __init__(self, surface: Surface, nod: _Nod) -> None:
        self._surface = surface
        self._nod = nod

    async def start(self, intake: Callable[[Inbound], Awaitable[Receipt]]) -> None:
        async def take(event: Inbound) -> Receipt:
            receipt = await intake(event)
            self._nod.stored[event.event] = perf_counter()
            return receipt

        await self._surface.start(take)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._surface, name)


class _Model:
    """Answers by what was said last."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Answer, None]:
        said = next(m["content"] for m in reversed(request.messages) if m["role"] == "user")
        last = request.messages[-1]["role"]
        if WORK in said:
            await asyncio.sleep(STEP)
            yield calls(call("look", label=str(len(request.messages))))
        elif SEND in said and last != "tool":
            yield calls(call("tell", label="console:team"))
        else:
            if WAIT in said:
                await asyncio.sleep(LATE)
            yield Answer(text=ANSWER)


@asynccontextmanager
async def _nod(setting: Setting, name: str, outside: Platform) -> AsyncIterator[_Nod]:
    """A whole Nod in this process, connected to the platform."""
    data, url = setting.place()
    nod = _Nod()
    tools = [
        *standard_tools(),
        probe("look", Risk.READ, nod.looks),
        probe("tell", Risk.EXTERNAL, nod.starts),
    ]
    config = PLATFORMS[name].config(
        reading.load({**outside.environ, "NOD_HOME": str(data)}),
        lambda secret: outside.environ.get(secret, ""),
    )
    async with AsyncExitStack() as stack:
        store = await open_store(url)
        stack.push_async_callback(store.close)
        await _let_in(store, name, outside.people)
        told = await stack.enter_async_context(grounded(data, store, token_key(data)))
        surface = _Watched(PLATFORMS[name].made(config, told.ground), nod)
        limits = Limits(iterations=1_000_000)
        await stack.enter_async_context(
            chatting(store, data, _Model(), surfaces=[surface], tools=tools, limits=limits)
        )
        await outside.asked("connected")
        yield nod


async def _let_in(store: Store, name: str, ids: Sequence[str]) -> None:
    def work(tx: Tx) -> None:
        given: dict[str, Any] = {"role": "operator", "by": "", "now": 1.0}
        for id in ids:
            people.add_person(tx, "local", name, id, name=id, **given)

    await store.write(work)


async def _measured(
    setting: Setting, name: str, outside: Platform, nod: _Nod
) -> dict[str, dict[str, Any]]:
    await outside.asked("events", 20)  # a warm-up: people are known, connections open
    idle = await _events(setting, outside, nod)
    presses = await _presses(setting, outside, nod)
    burst = await _burst(outside, nod)
    await _work(outside, nod)
    busy = await _events(setting, outside, nod)
    found = {"ack": idle[0], "sign": idle[1], "ack_busy": busy[0], "sign_busy": busy[1]}
    found |= {"press": presses, "in": burst[0], "out": burst[1]}
    return {f"{name}_{row}": measured for row, measured in found.items()}


async def _events(
    setting: Setting, outside: Platform, nod: _Nod
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return how soon each event was acknowledged, and a sign seen."""
    times = setting.times(EVENTS)
    cpu = process_time()
    events = await outside.asked("events", times)
    more = {
        "cpu_ms": round((process_time() - cpu) / times * 1e3, 2),
        "runs": times,
        "load": machine.load(),
    }
    acked = [(each["acked"] or nod.stored[each["event"]]) - each["began"] for each in events]
    signed = [each["signed"] - each["began"] for each in events]
    return {**percentiles(acked), **more}, {**percentiles(signed), **more}


async def _work(outside: Platform, nod: _Nod) -> None:
    """Return when two hundred turns are at work."""
    await outside.asked("work", WORKING)
    async with asyncio.timeout(60):
        while len(nod.looks) < 2 * WORKING:
            await asyncio.sleep(0.05)


async def _presses(setting: Setting, outside: Platform, nod: _Nod) -> dict[str, Any]:
    times = setting.times(PRESSES)
    pressed = await outside.asked("presses", times)
    started = [began - at for at, began in zip(pressed, nod.starts, strict=True)]
    return {**percentiles(started), "runs": times, "load": machine.load()}


async def _burst(outside: Platform, nod: _Nod) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return how many messages a second came in, and how many answers went out."""
    seen = await outside.asked("burst", BURST)
    stored = max(nod.stored[event] for event in seen["events"])
    came = max(seen["acked"], stored) - seen["began"]
    went = seen["last"] - seen["first"]
    return (
        {"per_s": round(BURST / came), "runs": BURST, "load": machine.load()},
        {"per_s": round((BURST - 1) / went), "runs": BURST, "load": machine.load()},
    )


async def _memory(setting: Setting) -> dict[str, Any]:
    """A real process, from its start to connected to all."""
    data, url = setting.place()
    environ = {"NOD_HOME": str(data), "NOD_STORE": url, "NOD_MODEL": "practice:rules"}
    async with AsyncExitStack() as stack:
        outside = [await stack.enter_async_context(platform(name)) for name in PLATFORMS]
        for each in outside:
            environ |= each.environ
        times = setting.times(STARTS) + 1  # the first is the warm-up
        starts = [await started(["serve"], environ) for _ in range(times)]
        for each in outside:
            await each.asked("connected")
    return {
        **percentiles([each.seconds for each in starts[1:]]),
        "cpu_ms": sorted(each.cpu_ms for each in starts[1:])[len(starts) // 2 - 1],
        "rss_mb": max(each.rss_mb for each in starts[1:]),
        "runs": len(starts) - 1,
        "load": machine.load(),
    }
