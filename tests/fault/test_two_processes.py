"""Two processes on one store: a frozen owner changes nothing once it is thawed, a press at any
moment is taken, and on SQLite the second start is refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from engine import sessions
from engine.store.base import Store, Tx
from engine.store.opening import open_store
from tests.fault.child import Spec
from tests.fault.forks import LIMIT, Fork
from tests.fault.outside import lines_of
from tests.fault.proof import faults, log_of, with_queries

#: Seconds by which the clock jumps while a worker is frozen: its lease (30 s) has lapsed, and the
#: time in which a call it started may act (10 s) and go on (60 s) is over.
JUMP = 120.0
#: The server ends what a frozen worker holds; 10 s where nothing else is set.
QUICK = {"idle_in_transaction_session_timeout": "200ms"}


async def _dry(fork: Fork, spec: Spec) -> list[str]:
    """Return the edges of a turn in which nothing happens."""
    assert await fork.run(spec) == 0, (spec.folder / "stderr").read_text()
    return (spec.folder / "edges").read_text().splitlines()


def _spec(url: str, data: Path, name: str, **options: Any) -> Spec:
    folder = data / name
    folder.mkdir()
    return Spec(url=url, data=str(folder), thread=f"console:{name}", **options)


def _picture(tx: Tx, spec: Spec) -> tuple[Any, ...]:
    """Return all that the store and the outside say of the session."""
    session = sessions.find_thread(tx, "local", spec.thread)
    assert session is not None
    prompts = [(row["id"], row["answer"]) for row in tx.all("prompts_of", session=session)]
    calls = [
        (row["id"], row["status"], row["attempt"]) for row in tx.all("calls_of", session=session)
    ]
    effects = [lines_of(spec.folder / name) for name in ("effects", "writes")]
    return (sessions.get(tx, session), log_of(tx, session), prompts, calls, effects)


async def _proven(store: Store, spec: Spec) -> tuple[Any, ...]:
    def both(tx: Tx) -> tuple[list[str], tuple[Any, ...]]:
        return faults(tx, spec), _picture(tx, spec)

    found, picture = await store.read(both)
    assert found == [], spec
    return picture


async def _freeze(forks: tuple[Fork, Fork], store: Store, spec: Spec, at: int) -> bool:
    """Freeze the first worker at an edge, let time pass and another finish, and thaw the first.

    False when the worker came to its end before that edge: how many commits housekeeping adds to a
    turn depends on what ran before.
    """
    first, second = forks
    if await first.run(replace(spec, at=at, act="stop")) is not None:
        await _proven(store, spec)
        return False
    (Path(spec.data) / "clock").write_text(str(JUMP))
    assert await second.run(spec) == 0, (spec.folder / "stderr").read_text()
    before = await _proven(store, spec)
    first.thaw()
    await first.ended()
    assert await _proven(store, spec) == before, f"the thawed worker changed something, edge {at}"
    return True


@pytest.mark.timeout(240)  # two processes and a timeout of the server for each of some 30 edges
async def test_a_worker_frozen_at_a_commit_and_thawed_after_a_takeover_changes_nothing(
    new_postgres_url: Callable[..., str], tmp_path: Path
) -> None:
    async def lane(number: int, url: str) -> None:
        store = with_queries(await open_store(url))
        async with Fork() as first, Fork() as second:
            names = await _dry(second, _spec(url, tmp_path, f"dry{number}"))
            commits = [n for n, name in enumerate(names, 1) if name.startswith("commit")]
            frozen = 0
            for at in commits[number::2]:
                spec = _spec(url, tmp_path, f"frozen{at}", sees=at % 4 < 2)
                frozen += await _freeze((first, second), store, spec, at)
            assert frozen >= len(commits[number::2]) - 2, "edges at the end may be missed, no more"
        await store.close()

    await asyncio.gather(*(lane(n, new_postgres_url(**QUICK)) for n in range(2)))


async def test_a_second_start_on_sqlite_is_refused_with_a_sentence(tmp_path: Path) -> None:
    spec = _spec(f"sqlite:///{tmp_path / 'nod.db'}", tmp_path, "one")
    async with Fork() as first, Fork() as second:
        assert await first.run(replace(spec, at=10, act="stop")) is None
        holder = first.stopped
        assert await second.run(spec) != 0
        said = (spec.folder / "stderr").read_text()
        assert f"Another Nod (process {holder}) is at work on {spec.data}." in said
        first.thaw()
        assert await first.ended() == 0
        store = with_queries(await open_store(spec.url))
        await _proven(store, spec)
        await store.close()


async def test_a_process_that_closes_the_sqlite_file_leaves_it_whole_for_those_that_have_it_open(
    tmp_path: Path,
) -> None:
    """Whoever closes last removes the write-ahead log; nobody may believe to be last too early."""
    url = f"sqlite:///{tmp_path / 'nod.db'}"
    store = with_queries(await open_store(url))
    async with Fork() as fork:
        for name in ("one", "two"):
            spec = _spec(url, tmp_path, name)
            assert await fork.run(spec) == 0
            assert (tmp_path / "nod.db-wal").exists()
            await _proven(store, spec)
    await store.close()


def _until_parked(names: list[str]) -> range:
    """Return the numbers of the edges at which a person may first press."""
    return range(1, names.index("commit answer: before") + 1)


@pytest.mark.timeout(120)  # one process for each of some 20 edges
async def test_on_sqlite_an_answer_pressed_at_any_edge_of_parking_is_taken(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'nod.db'}"
    pressed = 0
    async with Fork() as fork:
        names = await _dry(fork, _spec(url, tmp_path, "dry"))
        store = with_queries(await open_store(url))
        for at in _until_parked(names):
            spec = _spec(url, tmp_path, f"press{at}")
            code = await fork.run(replace(spec, at=at, act="press"))
            assert code == 0, (at, (spec.folder / "stderr").read_text())
            await _proven(store, spec)
            pressed += any(line["told"] == "pressed" for line in _told(spec))
        await store.close()
    assert pressed >= 5, "hardly any press met an open prompt"


@pytest.mark.timeout(240)  # two processes for each of some 20 edges
async def test_on_postgres_an_answer_from_another_process_at_any_edge_of_parking_is_taken(
    new_postgres_url: Callable[..., str], tmp_path: Path
) -> None:
    url = new_postgres_url()
    store = with_queries(await open_store(url))
    pressed = 0
    async with Fork() as owner, Fork() as presser:
        names = await _dry(presser, _spec(url, tmp_path, "dry"))
        visible = names.index("commit model+card: before") + 1
        with psycopg.connect(url, autocommit=True) as watch:
            for at in range(visible, _until_parked(names).stop):
                spec = _spec(url, tmp_path, f"press{at}")
                stopped = replace(spec, at=at, act="stop", answers=False)
                assert await owner.run(stopped) is None
                before = len(_told(spec))
                presser.start(spec)
                pressed += await _pressed(spec, before, watch)
                owner.thaw()
                codes = await owner.ended(), await presser.ended()
                assert codes == (0, 0), (at, (spec.folder / "stderr").read_text())
                await _proven(store, spec)
    await store.close()
    assert pressed >= 5, "hardly any press met an open prompt"


async def _pressed(spec: Spec, before: int, watch: psycopg.Connection[Any]) -> bool:
    """Wait until the press was taken, or waits for what the frozen owner holds, or found nothing.

    Returns whether it was taken while the owner was frozen.
    """
    waiting = b"select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        told = _told(spec)[before:]
        if any(line["told"] == "answer" for line in told):
            return True
        looked = [line["pending"] for line in told if line["told"] == "looked"]
        row = watch.execute(waiting).fetchone()
        if looked == [0] or (row is not None and row[0]):
            return False
        await asyncio.sleep(0.01)
    raise AssertionError("the presser does nothing")


def _told(spec: Spec) -> list[dict[str, Any]]:
    lines = (spec.folder / "told").read_text().splitlines()
    return [json.loads(line) for line in lines]
