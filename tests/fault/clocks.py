"""Processes whose clocks fire schedules on one store, so that they can be killed; and the proof
that each due time came once.

Each is a whole worker: what it fires, it runs. A fork of a process that has everything imported
makes a new one in a few hundredths of a second.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from engine import people
from engine.canonical import loads
from engine.schedule import schedules
from engine.schedule.alarm import Alarm
from engine.schedule.fires import LATE
from engine.schedule.words import When
from engine.store.base import Row, Store, Tx, parse_queries
from engine.store.opening import open_store
from tests.fakes.scripted import ScriptedModel
from tests.fakes.world import running

__all__ = ["Clocks", "Proof", "add", "clock", "forward", "prove", "settled"]

_FORKS = multiprocessing.get_context("forkserver")


def clock(data: Path) -> Callable[[], float]:
    """Return the time of all processes on `data`: it runs ahead as far as was said."""
    file = data / "ahead"

    def now() -> float:
        return time.time() + (float(file.read_text()) if file.exists() else 0.0)

    return now


def forward(data: Path, seconds: float) -> None:
    """Let time pass at once; only while no process is up."""
    ahead = clock(data)() - time.time() + seconds
    (data / "ahead").write_text(str(ahead))


@dataclass(slots=True)
class Clocks:
    """Some processes on one store; a context manager that kills what is left."""

    url: str
    data: Path
    count: int
    _processes: list[BaseProcess] = field(default_factory=list)

    def __enter__(self) -> Clocks:
        _FORKS.set_forkserver_preload(["tests.fault.clocks", "apscheduler.schedulers.asyncio"])
        self._processes = [self._started() for _ in range(self.count)]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()

    def kill(self, number: int) -> None:
        """SIGKILL one, and wait until it is gone."""
        process = self._processes[number]
        assert process.exitcode is None, "it ended by itself"
        process.kill()
        process.join()

    def restart(self, number: int) -> None:
        """Start another in its place."""
        self._processes[number] = self._started()

    def _started(self) -> BaseProcess:
        process = _FORKS.Process(target=_work, args=(self.url, self.data), daemon=True)
        process.start()
        return process


def _work(url: str, data: Path) -> None:
    asyncio.run(_fire_and_run(url, data))


async def _fire_and_run(url: str, data: Path) -> None:
    store, now = await open_store(url), clock(data)
    shared = store.dialect == "postgres"
    model = ScriptedModel(then="Done.")
    async with running(store, data, model, tools=[], now=now, shared=shared) as world:
        alarm = Alarm(
            store=store,
            now=now,
            tenant="local",
            data=data,
            on_wake=world.dispatcher.enqueue,
            on_prompts=lambda prompts: None,
        )
        async with alarm:
            await asyncio.Event().wait()


# -- what is to come


async def add(store: Store, whens: Sequence[When], now: float, home: str = "slack:T1/C1") -> None:
    """Add a schedule for each; all at once."""

    def work(tx: Tx) -> None:
        people.seed_console(tx, "local", now)
        for when in whens:
            schedules.add(
                tx,
                tenant="local",
                owner=people.CONSOLE,
                title="Look",
                when=when,
                instructions="Look whether all is well.",
                home=home,
                persona="cowork",
                model="practice:test",
                now=now,
            )

    await store.write(work)


async def settled(store: Store, data: Path, limit: float) -> bool:
    """Wait until nothing is due and every run is over, `limit` seconds at most; say whether."""
    now = clock(data)

    def left(tx: Tx) -> int:
        due = tx.all("schedules_due", tenant="local", now=now(), limit=1)
        every = schedules.listed(tx, "local")
        return len(due) + sum(
            tx.one("fire_at_work", schedule=each.id) is not None for each in every
        )

    until = time.monotonic() + limit
    while await store.read(left):
        if time.monotonic() > until:
            return False
        await asyncio.sleep(0.2)
    return True


# -- what came


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What became of every due time."""

    fires: int
    #: Each a sentence: a due time that came twice, never, or otherwise than stated.
    double: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    #: Runs that stood for missed due times, and said so.
    caught_up: int = 0
    #: How the runs ended.
    runs: Counter[str] = field(default_factory=Counter)


_QUERIES = """
-- name: clock_fires
select * from fires order by schedule_id, due
-- name: clock_mail
select session_id, body from mailbox where kind = 'fire'
"""


async def prove(store: Any, now: float) -> Proof:
    """Hold every row against what was due by `now`."""
    store.queries.update(parse_queries([_QUERIES], store.dialect))
    proof: Proof = await store.read(lambda tx: _proof(tx, now))
    return proof


def _proof(tx: Tx, now: float) -> Proof:
    double, lost, caught_up = [], [], 0
    rows = tx.all("clock_fires")
    by_schedule: dict[str, list[Row]] = {}
    for row in rows:
        by_schedule.setdefault(row["schedule_id"], []).append(row)
    for schedule in schedules.listed(tx, "local"):
        due = schedule.when.next_after(schedule.created_at)
        for row in by_schedule.get(schedule.id, []):
            if due is None or row["due"] < due:
                double.append(f"{schedule.id} fired for {row['due']:.3f}, due was {due}")
            elif row["due"] > due:
                lost.append(f"{schedule.id} was due at {due:.3f}, fired for {row['due']:.3f}")
            due = schedule.when.next_after(max(row["due"], row["fired_at"]))
        if due is not None and due <= now:
            lost.append(f"{schedule.id} was due at {due:.3f} and never fired")
    told = Counter[str]()
    for mail in tx.all("clock_mail"):
        told[mail["session_id"]] += 1
        text = loads(mail["body"])["message"]["content"]
        caught_up += "catch-up run" in text
    sessions = Counter(row["session_id"] for row in rows if row["session_id"] is not None)
    double += [f"{each} was fired {n} times" for each, n in (sessions | told).items() if n > 1]
    lost += [f"{each} was opened and told nothing" for each in sessions.keys() - told.keys()]
    double += [f"{each} belongs to no fire" for each in told.keys() - sessions.keys()]
    late = sum(row["fired_at"] - row["due"] > LATE for row in rows if row["session_id"])
    if late != caught_up:
        lost.append(f"{late} fires were late, {caught_up} said so")
    return Proof(
        fires=len(rows),
        double=tuple(double),
        lost=tuple(lost),
        caught_up=caught_up,
        runs=Counter(row["status"] for row in rows),
    )
