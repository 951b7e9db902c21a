"""Platforms start each by itself; a broken one is told of, and the others run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bot import settings
from bot.app import App
from bot.settings import Settings
from bot.surfaces import connections as connecting
from bot.surfaces.base import Inbound, Receipt, Surface, SurfaceError
from bot.surfaces.config import discord_config, slack_config, telegram_config
from bot.surfaces.connections import Connections
from bot.surfaces.table import PLATFORMS, Platform
from connectors.registry import secrets_of
from engine import inbox
from engine.errors import VaultError
from engine.store.base import Store
from tests.fakes.ground import Told, grounded
from tests.fakes.surface import MemorySurface

HERE = "tests.fakes.surface"


class Faulty(MemorySurface):
    """A surface whose starts fail as told, and then succeed."""

    def __init__(self, name: str, faults: list[Exception]) -> None:
        super().__init__(name)
        self.faults = faults
        self.stops = 0

    async def start(self, intake: Any) -> None:
        if self.faults:
            raise self.faults.pop(0)
        await super().start(intake)

    async def stop(self) -> None:
        self.stops += 1
        await super().stop()


@dataclass
class House:
    """A house that platforms start in, and what it was told."""

    told: Told
    data: Path
    surfaces: dict[str, Surface] = field(default_factory=dict)
    started: int = 0

    async def _started(self, surface: str) -> None:
        self.started += 1

    def connections(self) -> Connections:
        made = Settings(data=self.data, store="")
        return Connections(made, self.told.ground, self.surfaces, accepted, self._started)


@pytest.fixture
async def house(sqlite_store: Store, tmp_path: Path) -> AsyncIterator[House]:
    async with grounded(tmp_path, sqlite_store) as told:
        yield House(told, tmp_path)


async def accepted(event: Inbound) -> Receipt:
    return Receipt(status="accepted")


@pytest.fixture
def platforms(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put these surfaces in the place of the platforms."""

    def put(*surfaces: MemorySurface) -> None:
        table = {each.name: _platform(each) for each in surfaces}
        monkeypatch.setattr(connecting, "PLATFORMS", table)
        monkeypatch.setattr(connecting, "RETRY_FIRST", 0.01)

    return put


def _platform(surface: MemorySurface) -> Platform:
    return Platform(
        config=lambda settings, secret: "a config",
        module=HERE,
        made=lambda config, ground: surface,
    )


async def test_a_broken_platform_leaves_the_others_running(
    house: House, platforms: Callable[..., None]
) -> None:
    bad = Faulty("slack", [SurfaceError("Slack refused the token.", "Set a new one.")])
    good = Faulty("discord", [])
    platforms(bad, good)
    async with house.connections() as made:
        assert made.states["discord"] == "connected"
        assert made.states["slack"] == "broken: Slack refused the token. Set a new one."
        assert list(house.surfaces) == ["discord"]
        assert house.started == 1
    assert [(cause, title) for cause, title, _ in house.told.notices] == [
        ("surface:slack", "Slack is not connected")
    ]
    assert "Set a new one." in house.told.notices[0][2]
    assert good.stops == 1


@pytest.mark.parametrize(
    "fault",
    [
        SurfaceError("Slack is down.", retry_after=0.0),
        OSError("no route to host"),
        TimeoutError(),
    ],
    ids=["asked to wait", "no network", "no answer"],
)
async def test_what_passes_is_tried_again(
    house: House, platforms: Callable[..., None], fault: Exception
) -> None:
    surface = Faulty("slack", [fault, fault])
    platforms(surface)
    async with house.connections() as made:
        async with asyncio.timeout(5.0):
            while made.states["slack"] != "connected":
                await asyncio.sleep(0.01)
        assert list(house.surfaces) == ["slack"]
    assert len(house.told.notices) == 2  # the owner's card is one: it is told once while it is open


async def test_an_unexpected_fault_tells_no_detail(
    house: House, platforms: Callable[..., None]
) -> None:
    platforms(Faulty("telegram", [RuntimeError("https://api.telegram.org/bot123:SECRET")]))
    async with house.connections():
        pass
    assert "RuntimeError" in house.told.notices[0][2]
    assert "SECRET" not in house.told.notices[0][2]


async def test_a_library_that_cannot_be_loaded_is_told(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = Platform(
        config=lambda settings, secret: "x",
        module="no_such_library",
        made=lambda config, ground: MemorySurface(),
    )
    monkeypatch.setattr(connecting, "PLATFORMS", {"slack": missing})
    async with house.connections() as made:
        assert made.states["slack"].startswith("broken: It failed with ModuleNotFoundError")


async def test_a_platform_that_hangs_delays_no_start(
    house: House, platforms: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hanging(MemorySurface):
        async def start(self, intake: Any) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(connecting, "PATIENCE", 0.05)
    platforms(Hanging("slack"), Faulty("discord", []))
    async with house.connections() as made:
        assert made.states == {"slack": "starting", "discord": "connected"}


# -- tokens


def test_without_a_token_no_platform_is_configured() -> None:
    made = Settings(data=Path(), store="")
    assert [each.config(made, lambda name: "") for each in PLATFORMS.values()] == [None] * 3


def test_tokens_make_configs_and_are_in_no_repr() -> None:
    made = Settings(data=Path(), store="", telegram=settings.Telegram(mode="webhook"))
    secrets = {
        "SLACK_BOT_TOKEN": "xoxb-1, xoxb-2",
        "SLACK_APP_TOKEN": "xapp-1",
        "TELEGRAM_BOT_TOKEN": "1:aa,2:bb,",
        "DISCORD_BOT_TOKEN": "dd",
    }

    def secret(name: str) -> str:
        return secrets.get(name, "")

    slack, telegram = slack_config(made, secret), telegram_config(made, secret)
    discord = discord_config(made, secret)
    assert slack is not None
    assert slack.bot_tokens == ("xoxb-1", "xoxb-2")
    assert telegram is not None
    assert (telegram.tokens, telegram.mode) == (("1:aa", "2:bb"), "webhook")
    assert discord is not None
    assert discord.token == "dd"
    shown = repr((slack, telegram, discord))
    assert not [each for each in ("xoxb", "xapp", "1:aa", "'dd'") if each in shown]


# -- in a whole Nod


async def test_a_nod_with_a_broken_platform_is_ready_and_has_a_card(
    tmp_path: Path, platforms: Callable[..., None]
) -> None:
    platforms(Faulty("slack", [SurfaceError("Slack refused the token.")]), MemorySurface("discord"))
    environ = {"NOD_HOME": str(tmp_path / "d"), "NOD_MODEL": "practice:rules"}
    async with App(settings.load(environ), environ) as nod:
        prompts = await nod.store.read(lambda tx: inbox.pending(tx, "local"))
        assert [(p.kind, p.payload["title"]) for p in prompts] == [
            ("notice", "Slack is not connected")
        ]
        assert nod.unpaired == ["slack", "discord"]
        assert nod.web.port == 0  # nothing needed it


async def test_a_vault_that_is_damaged_stops_the_start(tmp_path: Path) -> None:
    environ = {"NOD_HOME": str(tmp_path / "d"), "NOD_MODEL": "practice:rules"}
    found = settings.load(environ)
    settings.make_data_folder(found)
    secrets_of(environ, found.data).set("SLACK_BOT_TOKEN", "xoxb-1")
    (found.data / "vault.db").write_bytes(b"damaged")
    with pytest.raises(VaultError, match="is damaged"):
        async with App(found, environ):
            raise AssertionError("it must not start")
    assert (found.data / "vault.db").read_bytes() == b"damaged"
