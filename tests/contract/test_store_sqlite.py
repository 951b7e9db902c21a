"""What only a store in one file can meet: damage, a full disk, another holder, a lost commit."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine.errors import (
    SchemaTooNew,
    SettingsError,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
)
from engine.store.base import Tx
from engine.store.lock import AdvanceLock
from engine.store.opening import open_store, sqlite_path
from engine.store.sqlite import SqliteStore
from tests.contract.test_store import add, names, with_queries


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nod.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[Any]:
    opened = await SqliteStore.open(path)
    with_queries(opened)
    yield opened
    await opened.close()


def garbage(path: Path) -> None:
    path.write_bytes(b"this was never a database" * 400)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def torn_header(path: Path) -> None:
    asyncio.run(make(path))
    content = path.read_bytes()
    path.write_bytes(content[:16] + b"\xff" * 84 + content[100:])


def truncated(path: Path) -> None:
    asyncio.run(make(path))
    os.truncate(path, path.stat().st_size // 2)


def torn_schema(path: Path) -> None:
    asyncio.run(make(path))
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3000)


async def make(path: Path) -> None:
    await (await SqliteStore.open(path)).close()


@pytest.mark.parametrize("read_only", [False, True], ids=["to-write", "to-read"])
@pytest.mark.parametrize("damage", [garbage, empty, torn_header, truncated, torn_schema])
async def test_a_damaged_file_is_named_and_never_changed(
    path: Path, damage: Any, read_only: bool
) -> None:
    await asyncio.to_thread(damage, path)
    before = path.read_bytes()
    with pytest.raises(StoreDamaged, match="nod restore"):
        await SqliteStore.open(path, read_only=read_only)
    assert path.read_bytes() == before


async def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot be made at"):
        await SqliteStore.open(tmp_path / "file" / "nod.db")


async def test_a_new_store_leaves_only_its_own_files(path: Path, store: Any) -> None:
    assert {entry.name for entry in path.parent.iterdir()} == {
        "nod.db",
        "nod.db-wal",
        "nod.db-shm",
    }


async def test_a_file_held_by_another_program_is_busy(path: Path) -> None:
    await make(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("pragma locking_mode = exclusive")
    other.execute("begin exclusive")
    try:
        with pytest.raises(StoreBusy, match="Another program"):
            await SqliteStore.open(path, busy_seconds=0.01)
    finally:
        other.close()


async def test_the_live_write_connection_waits_for_the_disk(store: Any) -> None:
    assert await store.synchronous() == 2


async def test_waiting_works_share_a_commit(store: Any) -> None:
    before = store.commits
    await asyncio.gather(*(store.write(add(f"t{n:03}")) for n in range(100)))
    assert store.commits - before <= 10
    assert len(await store.read(names)) == 100


async def test_a_full_disk_says_so_loses_nothing_and_passes(store: Any) -> None:
    await store.write(add("t1"))
    store.queries["t_limit"] = "pragma max_page_count = 1"  # as small as the file is now
    await store.write(lambda tx: tx.all("t_limit"))
    works = [add(f"t_full{n}", "x" * 100_000) for n in range(5)]
    results = await asyncio.gather(*map(store.write, works), return_exceptions=True)
    assert [type(result) for result in results] == [StoreFull] * 5
    assert await store.read(names) == ["t1"]
    store.queries["t_limit"] = "pragma max_page_count = 1000000"
    await store.write(lambda tx: tx.all("t_limit"))
    assert await store.write(works[0]) == 1


DISK = """
import asyncio, resource, sys
from engine.errors import StoreError
from engine.store.sqlite import SqliteStore
from tests.contract.test_store import add, names, with_queries

async def main():
    store = await SqliteStore.open(sys.argv[1])
    with_queries(store)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    acknowledged = []
    for n in range(200):
        try:
            await store.write(add(f"t{n:03}", "x" * 10_000))
            acknowledged.append(f"t{n:03}")
        except StoreError as error:
            print(type(error).__name__)
            break
    assert await store.read(names) == acknowledged, "what failed must not be seen"
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    await store.write(add("t_after"))
    await store.close()
    print(len(acknowledged))

asyncio.run(main())
"""


async def test_a_write_the_system_refuses_loses_nothing_acknowledged(path: Path) -> None:
    done = await asyncio.to_thread(_python, DISK, str(path))
    kind, count = done.stdout.split()
    assert kind == "StoreError"
    store = await SqliteStore.open(path)
    with_queries(store)
    assert len(await store.read(names)) == int(count) + 1
    await store.close()


KILLED = """
import asyncio, os, signal, sys
from engine.store.sqlite import SqliteStore
from tests.contract.test_store import add, with_queries

async def main():
    store = await SqliteStore.open(sys.argv[1])
    with_queries(store)
    await store.write(add("t1"))
    setattr(store, sys.argv[2], lambda: os.kill(os.getpid(), signal.SIGKILL))
    await store.write(add("t2"))

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("edge", "kept"),
    [("before_commit", ["t1"]), ("after_commit", ["t1", "t2"])],
)
async def test_a_kill_around_a_commit_keeps_all_or_nothing_of_it(
    path: Path, edge: str, kept: list[str]
) -> None:
    done = await asyncio.to_thread(_python, KILLED, str(path), edge, check=False)
    assert done.returncode == -signal.SIGKILL
    store = await SqliteStore.open(path)
    with_queries(store)
    assert await store.read(names) == kept
    await store.close()


async def test_callers_beyond_the_limit_wait_their_turn(store: Any) -> None:
    results = await asyncio.gather(*(store.write(add(f"t{n:04}")) for n in range(5000)))
    assert results == [1] * 5000


async def test_a_store_opened_for_reading_reads_beside_its_writer(store: Any, path: Path) -> None:
    beside: Any = await SqliteStore.open(path, read_only=True)
    with_queries(beside)
    await store.write(add("t1"))
    assert await beside.read(names) == ["t1"]
    with pytest.raises(StoreError, match="reading only"):
        await beside.write(add("t2"))
    await beside.close()


async def test_a_store_opened_for_reading_makes_nothing(path: Path) -> None:
    with pytest.raises(StoreError, match="no database"):
        await SqliteStore.open(path, read_only=True)
    assert list(path.parent.iterdir()) == []


async def test_a_store_opened_for_reading_refuses_a_newer_schema(store: Any, path: Path) -> None:
    await store.write(lambda tx: tx.run("t_newer", number=99))
    with pytest.raises(SchemaTooNew):
        await SqliteStore.open(path, read_only=True)


async def test_a_transaction_is_of_no_use_outside_its_work(store: Any) -> None:
    kept: list[Tx] = []
    await store.write(kept.append)
    with pytest.raises(sqlite3.ProgrammingError, match="thread"):
        kept[0].all("t_names", like="")


ADDRESSES = [
    pytest.param("nod.db", Path("nod.db"), id="path"),
    pytest.param("sqlite:///data/nod.db", Path("data/nod.db"), id="relative"),
    pytest.param("sqlite:////data/nod.db", Path("/data/nod.db"), id="absolute"),
    pytest.param("~/nod.db", Path.home() / "nod.db", id="home"),
    pytest.param("postgresql://u@h/d", None, id="server"),
]


@pytest.mark.parametrize(("url", "expected"), ADDRESSES)
def test_an_address_names_a_file_or_a_server(url: str, expected: Path | None) -> None:
    assert sqlite_path(url) == expected


async def test_a_missing_driver_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "engine.store.postgres", raising=False)
    with pytest.raises(SettingsError, match=r"pip install 'nod-coworker\[postgres\]'"):
        await open_store("postgresql://localhost/nod")


HOLDER = """
import sys
from pathlib import Path
from engine.store.lock import AdvanceLock
lock = AdvanceLock.take(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_told_who_holds_the_store(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreBusy, match=rf"process {holder.pid}\).*nod approve"):
            AdvanceLock.take(tmp_path)
        holder.kill()
        holder.wait(10)
        AdvanceLock.take(tmp_path).release()


def test_a_lock_that_was_released_can_be_taken_again(tmp_path: Path) -> None:
    lock = AdvanceLock.take(tmp_path)
    with pytest.raises(StoreBusy, match=str(os.getpid())):
        AdvanceLock.take(tmp_path)
    lock.release()
    lock.release()
    AdvanceLock.take(tmp_path).release()


def _python(code: str, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        check=check,
        timeout=50,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
