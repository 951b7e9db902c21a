"""What only a store on a server can meet: a restart, a deadlock, an answer that never comes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from engine.errors import StoreError
from engine.store.base import Tx
from engine.store.opening import open_store
from engine.store.postgres import PostgresStore
from tests.contract.test_store import add, names, with_queries


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[Any]:
    opened = await PostgresStore.open(postgres_url)
    with_queries(opened)
    yield opened
    await opened.close()


def end_backends(url: str) -> None:
    """Cut every other connection to the server, as a restart does."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
            "where pid <> pg_backend_pid() and backend_type = 'client backend'"
        )


async def test_a_restart_of_the_server_in_the_middle_heals(
    store: Any, postgres_server: Any
) -> None:
    await store.write(add("t1"))
    running, go = threading.Event(), threading.Event()
    runs: list[int] = []

    def interrupted(tx: Tx) -> int:
        runs.append(1)
        tx.run("t_add", name="t2", value="1", at=1.0)
        running.set()
        assert go.wait(30)
        return tx.run("t_add", name="t3", value="1", at=1.0)

    writing = asyncio.ensure_future(store.write(interrupted))
    assert await asyncio.to_thread(running.wait, 10)
    await asyncio.to_thread(postgres_server.stop)
    reading = [asyncio.ensure_future(store.read(names)) for _ in range(4)]
    go.set()
    await asyncio.to_thread(postgres_server.ensure_postgres_running)
    assert await writing == 1
    assert len(runs) == 2, "the work ran once more, from the start"
    await asyncio.gather(*reading)
    assert await store.read(names) == ["t1", "t2", "t3"]


async def test_connections_lost_while_idle_are_made_anew(store: Any, postgres_url: str) -> None:
    await asyncio.to_thread(end_backends, postgres_url)
    writes = await asyncio.gather(*(store.write(add(f"t{n}")) for n in range(8)))
    assert writes == [1] * 8


async def test_a_connection_lost_at_the_commit_is_an_unknown_outcome(
    store: Any, postgres_url: str
) -> None:
    def cut() -> None:
        store.before_commit = None
        end_backends(postgres_url)

    store.before_commit = cut
    with pytest.raises(StoreError, match="whether it was stored is unknown"):
        await store.write(add("t1"))
    assert await store.read(names) == []


async def test_a_deadlock_is_run_again_and_both_finish(store: Any) -> None:
    await store.write(add("t1"))
    await store.write(add("t2"))
    meeting = threading.Barrier(2)
    runs: list[str] = []

    def crossed(first: str, second: str, tx: Tx) -> None:
        runs.append(first)
        tx.run("t_set", name=first, value=first)
        if len(runs) <= 2:
            meeting.wait(10)
        tx.run("t_set", name=second, value=first)

    await asyncio.gather(
        store.write(lambda tx: crossed("t1", "t2", tx)),
        store.write(lambda tx: crossed("t2", "t1", tx)),
    )
    assert len(runs) >= 3  # once more at least: two that meet may meet again


async def test_a_server_that_stays_away_is_told_after_the_patience(postgres_url: str) -> None:
    store: Any = await PostgresStore.open(postgres_url, threads=1, patience=0.2)
    with_queries(store)
    store.url = "postgresql://nod:hunter2@127.0.0.1:9/nod"
    await asyncio.to_thread(end_backends, postgres_url)
    with pytest.raises(StoreError, match="cannot be reached"):
        await store.read(names)
    await store.close()


UNREACHABLE = [
    pytest.param("postgresql://nod:hunter2@127.0.0.1:9/nod", "127.0.0.1:9", id="refused"),
    pytest.param("postgresql://nod@127.0.0.1:9/nod?password=hunter2", "127.0.0.1", id="query"),
    pytest.param("postgresql://nod:hunter2@127.0.0.1:port/nod", "reached", id="no-port"),
    pytest.param("postgresql://nod:hunter2@[::1/nod", "malformed", id="malformed"),
    pytest.param("postgresql://nod:hunter2@127.0.0.1:9/nod?nope=1", "malformed", id="unknown"),
]


@pytest.mark.parametrize(("url", "said"), UNREACHABLE)
async def test_a_server_out_of_reach_is_named_without_the_password(url: str, said: str) -> None:
    with pytest.raises(StoreError, match=said) as caught:
        await open_store(url)
    shown: BaseException | None = caught.value
    while shown is not None:
        assert "hunter2" not in str(shown)
        shown = None if shown.__suppress_context__ else shown.__context__


async def test_a_frozen_worker_does_not_keep_its_locks(store: Any) -> None:
    """The server ends a session that is idle inside a transaction."""
    store.queries["t_limits"] = (
        "select current_setting('idle_in_transaction_session_timeout') as idle, "
        "current_setting('statement_timeout') as statement"
    )
    row = await store.read(lambda tx: tx.one("t_limits"))
    assert (row["idle"], row["statement"]) == ("10s", "30s")
