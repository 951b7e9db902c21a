"""A backup made while Nod writes holds one moment; a restore is whole or changes nothing."""

from __future__ import annotations

import asyncio
import io
import os
import sqlite3
import tarfile
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.canonical import digest, dumps, loads
from engine.errors import SchemaTooNew, StoreBusy, StoreDamaged, StoreError
from engine.store.backup import backup, restore
from engine.store.lock import AdvanceLock
from engine.store.postgres import PostgresStore
from engine.store.schema import newest
from engine.store.sqlite import SqliteStore
from tests.contract.test_store import add, names, with_queries

NOW = 1_700_000_000.0
LETTER = b"Dear Ana,\n" * 1000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "sessions/s1/files/in").mkdir(parents=True)
    (folder / "sessions/s1/files/in/letter.txt").write_bytes(LETTER)
    (folder / "sessions/s1/files/run.sh").write_text("echo hi")
    (folder / "sessions/s1/files/run.sh").chmod(0o700)
    (folder / "sessions/s1/files/passwd").symlink_to("/etc/passwd")
    (folder / "button.key").write_bytes(bytes(range(32)))
    (folder / "vault.json").write_text("not for a backup")
    return folder


@pytest.fixture
async def store(data: Path) -> AsyncIterator[Any]:
    opened = await SqliteStore.open(data / "nod.db")
    with_queries(opened)
    yield opened
    await opened.close()


@pytest.fixture
async def archive(store: Any, data: Path, tmp_path: Path) -> Path:
    await store.write(add("t1"))
    path = tmp_path / "nod.tar.gz"
    await backup(store, data, path, NOW)
    return path


async def restored_names(folder: Path) -> list[str]:
    opened = await SqliteStore.open(folder / "nod.db")
    with_queries(opened)
    found = await opened.read(names)
    await opened.close()
    return found


async def test_a_restored_folder_holds_rows_and_files(archive: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert await restore(archive, home, NOW) is None
    assert await restored_names(home) == ["t1"]
    files = home / "sessions/s1/files"
    assert (files / "in/letter.txt").read_bytes() == LETTER
    assert os.access(files / "run.sh", os.X_OK)
    assert sorted(p.name for p in files.iterdir()) == ["in", "run.sh"], "links are left out"
    assert (home / "button.key").read_bytes() == bytes(range(32)), "old cards must still answer"
    assert not (home / "vault.json").exists()


async def test_an_archive_is_for_its_owner_only_and_lists_its_members(
    store: Any, data: Path, tmp_path: Path
) -> None:
    path = tmp_path / "nod.tar.gz"
    manifest = await backup(store, data, path, NOW)
    assert path.stat().st_mode & 0o077 == 0
    assert (manifest.schema, manifest.made_at) == (newest(), NOW)
    assert manifest.members["sessions/s1/files/in/letter.txt"] == digest(LETTER)
    assert {p.name for p in tmp_path.iterdir()} == {"data", "nod.tar.gz"}


async def test_a_backup_while_writes_go_on_is_one_moment(
    store: Any, data: Path, tmp_path: Path
) -> None:
    """Each write adds two rows; a snapshot never holds one of them alone."""
    for n in range(20):
        await store.write(add(f"t_large{n}", "x" * 200_000))
    done = asyncio.Event()
    written = 0

    async def write() -> None:
        nonlocal written
        while not done.is_set():
            pair = [f"t_a{written:05}", f"t_b{written:05}"]
            rows = [{"name": name, "value": "v", "at": 0.0} for name in pair]
            await store.write(lambda tx, rows=rows: tx.many("t_add", rows))
            written += 1

    writing = asyncio.ensure_future(write())
    await backup(store, data, tmp_path / "nod.tar.gz", NOW)
    done.set()
    await writing
    assert written > 1, "writers were held up"
    await restore(tmp_path / "nod.tar.gz", tmp_path / "home", NOW)
    found = await restored_names(tmp_path / "home")
    pairs = [name[3:] for name in found if name[:3] in ("t_a", "t_b")]
    assert {n: pairs.count(n) for n in pairs} == dict.fromkeys(pairs, 2)


async def test_an_existing_file_is_not_overwritten(store: Any, data: Path, archive: Path) -> None:
    before = archive.read_bytes()
    with pytest.raises(StoreError, match="already"):
        await backup(store, data, archive, NOW)
    assert archive.read_bytes() == before


async def test_a_backup_that_cannot_be_written_leaves_nothing(store: Any, data: Path) -> None:
    with pytest.raises(StoreError, match="could not be written"):
        await backup(store, data, data / "missing" / "nod.tar.gz", NOW)
    assert not (data / "missing").exists()


async def test_postgres_is_told_its_own_tool(postgres_url: str, tmp_path: Path) -> None:
    store = await PostgresStore.open(postgres_url, threads=1)
    with pytest.raises(StoreError, match="pg_dump --format=custom"):
        await backup(store, tmp_path, tmp_path / "nod.tar.gz", NOW)
    await store.close()


async def test_a_folder_in_use_is_refused_then_set_aside_when_told(
    archive: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "nod.db").write_text("the old one")
    with pytest.raises(StoreError, match="not empty"):
        await restore(archive, home, NOW)
    assert (home / "nod.db").read_text() == "the old one"
    aside = await restore(archive, home, NOW, replace=True)
    assert aside is not None
    assert (aside / "nod.db").read_text() == "the old one"
    assert await restored_names(home) == ["t1"]


async def test_a_folder_at_work_is_refused(archive: Path, tmp_path: Path) -> None:
    lock = AdvanceLock.take(tmp_path / "home")
    with pytest.raises(StoreBusy):
        await restore(archive, tmp_path / "home", NOW)
    lock.release()


Members = list[tuple[tarfile.TarInfo, bytes]]


def rewrite(archive: Path, change: Callable[[Members], Members]) -> None:
    """Write the archive anew with changed members."""
    with tarfile.open(archive) as tar:
        members = [(m, tar.extractfile(m).read()) for m in tar]  # type: ignore[union-attr]
    with tarfile.open(archive, "w:gz") as tar:
        for member, content in change(members):
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def listed(members: Members, **changes: Any) -> Members:
    """The members with a manifest that fits them, and `changes` in it."""
    manifest = loads(members[-1][1])
    manifest["members"] = {m.name: digest(content) for m, content in members[:-1]}
    return [*members[:-1], (members[-1][0], dumps({**manifest, **changes}).encode())]


def changed_file(members: Members) -> Members:
    return [(m, c.replace(b"Ana", b"Eve")) for m, c in members]


def lost_file(members: Members) -> Members:
    return [(m, c) for m, c in members if not m.name.endswith("letter.txt")]


def lost_manifest(members: Members) -> Members:
    return members[:-1]


def traversal(name: str) -> Callable[[Members], Members]:
    return lambda members: listed([(tarfile.TarInfo(name), b"gotcha"), *members])


def link(members: Members) -> Members:
    entry = tarfile.TarInfo("sessions/s1/link")
    entry.type, entry.linkname = tarfile.SYMTYPE, "/etc"
    return [(entry, b""), *members]


def damaged_database(members: Members) -> Members:
    (entry, content), *rest = members
    return listed([(entry, content[:4096] + b"\xff" * 100 + content[4196:]), *rest])


def newer(members: Members) -> Members:
    return listed(members, schema=newest() + 1)


def newer_format(members: Members) -> Members:
    return listed(members, format=2)


def secretly_newer(members: Members) -> Members:
    """The manifest says an older schema than the database has."""
    (entry, content), *rest = members
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(content[:18] + b"\x01\x01" + content[20:])  # no WAL in memory
        connection.execute("insert into schema_version values (99, 'later', 0)")
        connection.commit()
        return listed([(entry, connection.serialize()), *rest])


REFUSED = [
    pytest.param(changed_file, StoreDamaged, id="changed"),
    pytest.param(lost_file, StoreDamaged, id="lost-file"),
    pytest.param(lost_manifest, StoreDamaged, id="lost-manifest"),
    pytest.param(traversal("../evil"), StoreDamaged, id="parent"),
    pytest.param(traversal("sessions/../../evil"), StoreDamaged, id="parent-inside"),
    pytest.param(traversal("/tmp/evil"), StoreDamaged, id="absolute"),
    pytest.param(traversal("evil"), StoreDamaged, id="foreign"),
    pytest.param(link, StoreDamaged, id="link"),
    pytest.param(damaged_database, StoreDamaged, id="damaged-database"),
    pytest.param(newer, SchemaTooNew, id="newer"),
    pytest.param(newer_format, SchemaTooNew, id="newer-format"),
    pytest.param(secretly_newer, SchemaTooNew, id="secretly-newer"),
]


@pytest.mark.parametrize(("change", "error"), REFUSED)
async def test_an_archive_that_is_not_right_changes_nothing(
    archive: Path, tmp_path: Path, change: Callable[[Members], Members], error: type[Exception]
) -> None:
    rewrite(archive, change)
    await _refused(archive, tmp_path, error)


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99], ids=["empty", "half", "nearly-whole"])
async def test_an_archive_that_is_cut_off_changes_nothing(
    archive: Path, tmp_path: Path, keep: float
) -> None:
    os.truncate(archive, int(archive.stat().st_size * keep))
    await _refused(archive, tmp_path, StoreDamaged)


async def test_a_file_that_is_no_archive_changes_nothing(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(os.urandom(10_000))
    await _refused(archive, tmp_path, StoreDamaged)


async def _refused(archive: Path, tmp_path: Path, error: type[Exception]) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "keep.txt").write_text("mine")
    with pytest.raises(error):
        await restore(archive, home, NOW, replace=True)
    assert {p.name for p in tmp_path.iterdir()} == {"data", "home", archive.name}
    assert (home / "keep.txt").read_text() == "mine"
