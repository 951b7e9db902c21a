"""Where a figure is measured: an empty store and folder, how often, and the stopwatch."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from engine.events import Kind
from engine.models.base import Answer, Delta, Request
from engine.store.opening import open_store
from engine.tools.base import Risk, Tool
from engine.tools.box import standard_tools
from tests.bench import machine
from tests.bench.figure import percentiles
from tests.fakes.scripted import call, calls
from tests.fakes.world import World, probe, running

__all__ = ["Model", "Setting", "ended", "four_calls", "turn"]

SYNCS = 60  # samples of the disk before and after each measurement


@dataclass(slots=True)
class Setting:
    """What the command line asked for."""

    #: An empty folder on the disk that is measured.
    folder: Path
    #: A Postgres server; empty: SQLite in `folder`.
    server: str = ""
    quick: bool = False
    _places: int = 0

    def times(self, full: int) -> int:
        """Return how often to measure."""
        return max(3, full // 6) if self.quick else full

    def place(self) -> tuple[Path, str]:
        """Return an empty data folder, and the address of an empty store."""
        self._places += 1
        data = self.folder / f"data-{self._places}"
        data.mkdir(parents=True)
        if not self.server:
            return data, f"sqlite:///{data / 'nod.db'}"
        return data, self._schema(f"bench_{self._places}")

    @asynccontextmanager
    async def world(self, model: Any, **options: Any) -> AsyncIterator[World]:
        """A world at work on an empty store, with the standard tools and two of our own."""
        data, url = self.place()
        async with self.world_at(data, url, model, **options) as world:
            yield world

    @asynccontextmanager
    async def world_at(
        self, data: Path, url: str, model: Any, **options: Any
    ) -> AsyncIterator[World]:
        """A world at work on the store at `url`."""
        store = await open_store(url)
        try:
            async with running(store, data, model, tools=_tools(), **options) as world:
                yield world
        finally:
            await store.close()

    async def timed(
        self, store: Any, times: int, work: Callable[[int], Awaitable[float | None]]
    ) -> dict[str, Any]:
        """Do `work` that often, one after the other; return times, CPU, commits and syncs.

        Work that times itself returns its seconds. CPU is of this process, all threads.
        """
        syncs, samples = machine.sync_times(self.folder, SYNCS), []
        gc.collect()
        commits, cpu = store.commits, time.process_time()
        for number in range(times):
            began = time.perf_counter()
            own = await work(number)
            samples.append(time.perf_counter() - began if own is None else own)
        cpu, commits = time.process_time() - cpu, store.commits - commits
        syncs += machine.sync_times(self.folder, SYNCS)
        measured = percentiles(samples)
        sync, each = percentiles(syncs)["p50_ms"], round(commits / times, 2)
        return {
            **measured,
            "cpu_ms": round(cpu / times * 1e3, 3),
            "commits": each,
            "sync_p50_ms": sync,
            "p50_without_sync_ms": round(measured["p50_ms"] - each * sync, 3),
            "runs": times,
            "load": machine.load(),
        }

    def _schema(self, name: str) -> str:
        import psycopg  # only here: an extra

        with psycopg.connect(self.server, autocommit=True) as admin:
            admin.execute(f"drop schema if exists {name} cascade".encode())
            admin.execute(f"create schema {name}".encode())
        joint = "&" if "?" in self.server else "?"
        return f"{self.server}{joint}options={quote(f'-csearch_path={name}')}"


class Model:
    """A model in this process that answers by a function of the request, and keeps nothing."""

    def __init__(self, answer: Callable[[Request], Answer | str], latency: float = 0.0) -> None:
        self._answer = answer
        self._latency = latency

    async def stream(self, request: Request) -> AsyncIterator[Delta | Answer]:
        """Yield the answer after `latency` seconds."""
        if self._latency:
            await asyncio.sleep(self._latency)
        given = self._answer(request)
        yield Answer(text=given) if isinstance(given, str) else given


def four_calls(request: Request) -> Answer | str:
    """Answer as in a turn of four model calls with eight read-only calls: three, three, two."""
    step, at = 0, len(request.messages) - 1
    while request.messages[at]["role"] != "user":
        step += request.messages[at]["role"] == "assistant"
        at -= 1
    if step == 3:
        return "Done."
    labels = "abc" if step < 2 else "ab"
    return calls(*(call("look", label=f"{label}{step}") for label in labels))


async def turn(world: World, session: str) -> None:
    """Say something and wait until the session rests and all of it is saved."""
    await world.say(session, "What is new since yesterday?")
    await world.settle(60.0)


async def ended(world: World, sessions: Iterable[str], status: str = "completed") -> None:
    """Make sure that the last turn of each session ended so: what failed is quick, too."""
    for session in sessions:
        last = (await world.log(session))[-1]
        assert last.kind is Kind.TURN_END and last.body["status"] == status, last


def _tools() -> list[Tool]:
    ours = [probe("look", Risk.READ, _Forgetful()), probe("tell", Risk.EXTERNAL, _Forgetful())]
    return [*standard_tools(), *ours]


class _Forgetful(list[tuple[str, str, str]]):
    """A probe's record that keeps nothing."""

    def append(self, entry: tuple[str, str, str], /) -> None:
        pass
