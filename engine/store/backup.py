"""One archive of a SQLite store and its files, made while Nod works; and the way back.

nod-backup.tar.gz
├── nod.db            a snapshot of the database
├── button.key        the key that signs the buttons of cards, so that old cards still answer
├── sessions/ …       the files of every session, and the other kept folders
└── manifest.json     schema, time, and the SHA-256 of every member before it

A store on Postgres is backed up with Postgres' own tool, pg_dump.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import io
import os
import shutil
import sqlite3
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from engine.canonical import dumps, loads
from engine.errors import SchemaTooNew, StoreDamaged, StoreError, StoreFull
from engine.store.base import Store
from engine.store.lock import AdvanceLock
from engine.store.schema import newest, pending
from engine.store.sqlite import SqliteStore
from engine.store.sqlite_file import plain

__all__ = ["DATABASE", "FILES", "FOLDERS", "Manifest", "backup", "restore"]

#: The name of the database in the archive and in a restored data folder.
DATABASE = "nod.db"

#: The folders of the data folder that hold what sessions made or showed.
FOLDERS = ("sessions", "artifacts", "console")

#: Single files that are kept; a secret among them is as safe as the archive, which is private.
FILES = ("button.key",)

_MANIFEST = "manifest.json"
_FORMAT = 1
_PAGES = 512  # database pages copied in one step
_BLOCK = 1024 * 1024  # bytes
_IN_MEMORY = 8 * 1024 * 1024  # bytes of one file held in memory while it is hashed


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What an archive holds."""

    format: int
    schema: int
    #: Seconds since the epoch.
    made_at: float
    #: Path in the archive -> SHA-256, hex.
    members: dict[str, str]


async def backup(store: Store, data: Path, archive: Path, now: float) -> Manifest:
    """Write the store and the files under `data` to a new file `archive`; return its manifest.

    The database is one snapshot; files are taken as they are found after it. Symbolic links are
    left out. Writers are not held up. The archive appears under its name whole or not at all.

    Raises StoreError when `archive` exists or the store is on Postgres, and StoreFull.
    """
    if not isinstance(store, SqliteStore):
        raise StoreError(
            "A store on Postgres is backed up with Postgres' own tool.",
            "Run: pg_dump --format=custom --file=nod.dump <the store's address>; and back with: "
            "pg_restore --clean --if-exists --dbname=<the store's address> nod.dump. "
            f"Copy {', '.join((*FILES, *FOLDERS))} of {data} beside it.",
        )
    return await asyncio.to_thread(_backup, store.path, data, archive, now)


async def restore(archive: Path, data: Path, now: float, *, replace: bool = False) -> Path | None:
    """Unpack `archive` as the data folder `data`.

    A data folder that is not empty is refused unless `replace`; then it is renamed, not deleted,
    and its new path is returned. `data` changes in one rename, after everything was checked.

    Raises StoreDamaged (the archive is cut off, changed, or holds a path that leads out of it),
    SchemaTooNew, StoreBusy (a Nod is at work there), StoreFull or StoreError.
    """
    return await asyncio.to_thread(_restore, archive, data, now, replace)


def _backup(database: Path, data: Path, archive: Path, now: float) -> Manifest:
    if archive.exists():
        raise StoreError(f"There is a file at {archive} already.", "Choose another name.")
    partial = archive.with_name(f".{archive.name}.{os.getpid()}.partial")
    try:
        with (
            _told("The backup could not be written"),
            tempfile.TemporaryDirectory(prefix=".nod-backup-", dir=archive.parent) as folder,
        ):
            snapshot = Path(folder) / DATABASE
            schema = _snapshot(database, snapshot)
            with _new_private(partial) as file:
                manifest = _write(file, snapshot, schema, data, now)
                file.flush()
                os.fsync(file.fileno())
            partial.rename(archive)
            _sync_folder(archive.parent)
    finally:
        partial.unlink(missing_ok=True)
    return manifest


def _snapshot(database: Path, to: Path) -> int:
    """Copy the database page by page into `to`; return its schema's number."""
    uri = f"{database.absolute().as_uri()}?mode=ro"
    with (
        closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as source,
        closing(sqlite3.connect(to)) as target,
    ):
        source.execute("begin")  # without it, each write meanwhile starts the copy anew
        schema = int(source.execute("select max(number) from schema_version").fetchone()[0])
        source.backup(target, pages=_PAGES)
    return schema


def _write(file: IO[bytes], snapshot: Path, schema: int, data: Path, now: float) -> Manifest:
    members: dict[str, str] = {}
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=3) as tar:
        for name, path in [(DATABASE, snapshot), *_files(data)]:
            digest = _add(tar, name, path, now)
            if digest is not None:
                members[name] = digest
        manifest = Manifest(format=_FORMAT, schema=schema, made_at=now, members=members)
        text = dumps(asdict(manifest)).encode()
        tar.addfile(_entry(_MANIFEST, len(text), 0o600, now), io.BytesIO(text))
    return manifest


def _files(data: Path) -> Iterator[tuple[str, Path]]:
    yield from ((name, data / name) for name in FILES)
    for name in FOLDERS:
        for folder, _, files in os.walk(data / name):  # does not follow links
            for file in sorted(files):
                path = Path(folder, file)
                yield path.relative_to(data).as_posix(), path


def _add(tar: tarfile.TarFile, name: str, path: Path, now: float) -> str | None:
    """Add a copy of the file, taken first, for it may grow; None when it is gone or no file."""
    if path.is_symlink() or not path.is_file():
        return None
    hashed = hashlib.sha256()
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as copy:
        try:
            with path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode & 0o777
                while block := file.read(_BLOCK):
                    hashed.update(block)
                    copy.write(block)
        except FileNotFoundError:
            return None
        size = copy.tell()
        copy.seek(0)
        tar.addfile(_entry(name, size, mode, now), copy)
    return hashed.hexdigest()


def _entry(name: str, size: int, mode: int, now: float) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = size, mode, int(now)
    return entry


def _restore(archive: Path, data: Path, now: float, replace: bool) -> Path | None:
    if not archive.is_file():
        raise StoreError(f"There is no backup at {archive}.", "Check the name.")
    data = data.absolute()
    occupied = data.exists() and any(entry.name != "nod.lock" for entry in data.iterdir())
    if occupied and not replace:
        raise StoreError(
            f"The data folder {data} is not empty; it was not changed.",
            "Name another folder, or say --replace to set this one aside.",
        )
    lock = AdvanceLock.take(data)  # nobody starts there meanwhile
    fresh = data.with_name(f".{data.name}.{os.getpid()}.restoring")
    try:
        with _told("The backup could not be restored"):
            fresh.mkdir(mode=0o700)
            _unpack(archive, fresh)
            _check_database(fresh / DATABASE)
            return _swap(fresh, data, now)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        lock.release()


def _unpack(archive: Path, to: Path) -> None:
    """Unpack every member below `to` and compare it with the manifest."""
    found: dict[str, str] = {}
    manifest: Manifest | None = None
    try:
        with tarfile.open(archive, mode="r|gz") as tar:
            for entry in tar:
                source = tar.extractfile(entry) if entry.isreg() else None
                if source is None or manifest is not None or not _safe(entry.name):
                    raise _damaged(archive, f"'{entry.name}' does not belong there")
                if entry.name == _MANIFEST:
                    manifest = _manifest(source.read())
                else:
                    found[entry.name] = _extract(source, to / entry.name, entry.mode)
    except (tarfile.TarError, EOFError, zlib.error, ValueError, TypeError, KeyError) as error:
        raise _damaged(archive, str(error) or "it is cut off") from error
    if manifest is None or found != manifest.members or DATABASE not in found:
        raise _damaged(archive, "its members are not those its manifest lists")


def _safe(name: str) -> bool:
    """Tell whether a member stays in its place: a kept file, or below a kept folder."""
    parts = PurePosixPath(name).parts
    if name in (DATABASE, _MANIFEST, *FILES):
        return True
    return len(parts) > 1 and parts[0] in FOLDERS and ".." not in parts and "\\" not in name


def _manifest(text: bytes) -> Manifest:
    fields = loads(text)
    if fields["format"] != _FORMAT:
        raise _too_new(f"format {fields['format']}")
    manifest = Manifest(**fields)
    if manifest.schema > newest():
        raise _too_new(f"schema {manifest.schema}")
    return manifest


def _too_new(what: str) -> SchemaTooNew:
    return SchemaTooNew(
        f"The backup was made by a newer Nod ({what}; this one knows schemas up to {newest()}).",
        "Install that Nod or a newer one; nothing was changed.",
    )


def _extract(source: IO[bytes], path: Path, mode: int) -> str:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    hashed = hashlib.sha256()
    with _new_private(path) as file:
        while block := source.read(_BLOCK):
            hashed.update(block)
            file.write(block)
        os.fchmod(file.fileno(), mode & 0o777)
        file.flush()
        os.fsync(file.fileno())
    return hashed.hexdigest()


def _check_database(path: Path) -> None:
    """Refuse a database that fails its own check, or is newer than its manifest says."""
    with closing(sqlite3.connect(path)) as connection:
        row = connection.execute("pragma quick_check(1)").fetchone()
        if row[0] != "ok":
            raise StoreDamaged(f"The database in the backup is damaged ({row[0]}).")
        pending(
            "sqlite", connection.execute("select max(number) from schema_version").fetchone()[0]
        )


def _swap(fresh: Path, data: Path, now: float) -> Path | None:
    """Put `fresh` in the place of `data`; return where the old folder went, if it held anything."""
    aside = data.with_name(f"{data.name}.before-restore-{int(now)}")
    data.rename(aside)
    try:
        fresh.rename(data)
    except OSError:
        aside.rename(data)
        raise
    _sync_folder(data.parent)
    if all(entry.name == "nod.lock" for entry in aside.iterdir()):
        shutil.rmtree(aside)
        return None
    return aside


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn errors of the disk and of SQLite into those of our own tree."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(f"{what}: the disk is full.", "Free some space and try again.") from (
                error
            )
        raise StoreError(
            f"{what} ({error.strerror or error}).", "Check the folder and its permissions."
        ) from error
    except sqlite3.Error as error:
        raise plain(error) from error


def _damaged(archive: Path, why: str) -> StoreDamaged:
    return StoreDamaged(
        f"The backup {archive} cannot be trusted: {why}.",
        "Use another backup; the data folder was not changed.",
    )


def _new_private(path: Path) -> IO[bytes]:
    """Make a file that only its owner may read; raises FileExistsError."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
