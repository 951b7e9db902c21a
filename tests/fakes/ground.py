"""What a surface stands on in tests: a ground with a server on a free port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bot import settings
from bot.board import Board
from bot.forms import Forms
from bot.places import Places
from bot.surfaces.config import Ground, Owned
from bot.web.address import Web
from bot.web.counts import Counts
from connectors.registry import secrets_of
from engine.clock import system_now
from engine.store.base import Store
from engine.tools.base import Tool

__all__ = ["Told", "grounded"]


@dataclass(slots=True)
class Told:
    """What a surface did to its house, and what the house says to it."""

    ground: Ground
    #: (cause, title, text)
    notices: list[tuple[str, str, str]] = field(default_factory=list)
    owned: list[Owned] = field(default_factory=list)


@asynccontextmanager
async def grounded(
    data: Path,
    store: Store,
    key: bytes = b"k" * 32,
    *,
    tool: Callable[[str], Tool | None] = lambda name: None,
    owned: Sequence[Owned] = (),
    url: str = "",
) -> AsyncIterator[Told]:
    """Yield a ground in `data`, whose vault opens with a passphrase."""

    async def ready() -> tuple[bool, dict[str, str]]:
        return True, {}

    async def list_owned(prefix: str) -> list[Owned]:
        return [each for each in told.owned if each.target.startswith(prefix)]

    async def notify(cause: str, title: str, text: str) -> None:
        told.notices.append((cause, title, text))

    counts = Counts()
    async with Web(settings.Web(port=0, url=url), counts, ready) as web:
        ground = Ground(
            now=system_now,
            data=data,
            web=web,
            secrets=secrets_of({"NOD_VAULT_PASSPHRASE": "open"}, data),
            counts=counts,
            owned=list_owned,
            notify=notify,
            forms=Forms(store, "local", key, tool),
            board=Board(store, "local", key, "UTC"),
            places=Places(store, "local"),
        )
        told = Told(ground, owned=list(owned))
        yield told
