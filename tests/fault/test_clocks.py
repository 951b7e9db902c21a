"""Clocks that are killed: each due time comes once, and what was missed is caught up as stated."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from engine.schedule.words import When
from engine.store.opening import open_store
from tests.fault.clocks import Clocks, Proof, add, clock, forward, prove, settled

MINUTELY = When(cron="* * * * *", zone="UTC")
#: Seconds until all is over: the sessions of a killed worker wait for the others' look at leases.
LIMIT = 90.0


def once(at: float) -> When:
    return When(cron="", zone="UTC", once=at)


#: One that comes due while the run before is at work is skipped; one whose worker was killed three
#: times has failed, and says so.
OVER = {"completed", "skipped", "failed"}


def all_is_well(proof: Proof, fires: int) -> None:
    assert (proof.double, proof.lost) == ((), ())
    assert proof.fires >= fires
    assert proof.runs.keys() <= OVER, proof.runs
    assert proof.runs["completed"] >= fires / 2


async def test_two_processes_on_one_store_fire_each_due_time_once(
    new_postgres_url: Callable[..., str], tmp_path: Path
) -> None:
    url = new_postgres_url()
    store, now = await open_store(url), clock(tmp_path)
    try:
        with Clocks(url, tmp_path, 2):
            chance, begin = random.Random(1), now() + 1.0
            await add(store, [once(begin + chance.random() * 3) for _ in range(200)], now())
            await asyncio.sleep(begin + 3 - now())
            assert await settled(store, tmp_path, LIMIT)
        all_is_well(await prove(store, now()), 200)
    finally:
        await store.close()


async def test_one_of_two_killed_at_any_moment_loses_and_doubles_nothing(
    new_postgres_url: Callable[..., str], tmp_path: Path
) -> None:
    url = new_postgres_url()
    store, now, chance = await open_store(url), clock(tmp_path), random.Random(2)
    try:
        with Clocks(url, tmp_path, 2) as clocks:
            for number in range(6):
                begin = now() + 0.2
                await add(store, [once(begin + chance.random()) for _ in range(20)], now())
                await asyncio.sleep(0.2 + chance.random())
                clocks.kill(number % 2)
                clocks.restart(number % 2)
            await asyncio.sleep(max(0.0, begin + 1.0 - now()))
            assert await settled(store, tmp_path, LIMIT)
        all_is_well(await prove(store, now()), 120)
    finally:
        await store.close()


async def test_what_all_processes_missed_is_caught_up_once_and_says_so(
    store_url: str, tmp_path: Path
) -> None:
    """One process on SQLite, two on Postgres; killed in the middle of firing, and late again."""
    store, now, chance = await open_store(store_url), clock(tmp_path), random.Random(3)
    count = 2 if store.dialect == "postgres" else 1
    await add(store, [MINUTELY] * 20, now())
    try:
        for _ in range(3):
            forward(tmp_path, 330.0)
            with Clocks(store_url, tmp_path, count):
                await asyncio.sleep(0.3 + chance.random())
        with Clocks(store_url, tmp_path, count):
            assert await settled(store, tmp_path, LIMIT)
        proof = await prove(store, now() - 60.0)
        all_is_well(proof, 20)
        assert proof.caught_up >= 20
    finally:
        await store.close()
