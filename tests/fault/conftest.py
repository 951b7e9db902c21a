"""Postgres schemas for processes that die or freeze."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

_numbers = itertools.count(1)


@pytest.fixture
def new_postgres_url(postgres_server: Any) -> Iterator[Callable[..., str]]:
    """Makes an empty schema and returns its URL; keyword arguments are settings of the server."""
    base: str = postgres_server.get_uri()
    joint = "&" if "?" in base else "?"
    with psycopg.connect(base, autocommit=True) as admin:

        def make(**settings: str) -> str:
            schema = f"fault_{next(_numbers)}"
            admin.execute(f"create schema {schema}".encode())
            options = " ".join(f"-c{k}={v}" for k, v in {"search_path": schema, **settings}.items())
            return f"{base}{joint}options={quote(options)}"

        yield make
