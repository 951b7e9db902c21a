"""Each platform deletes what a person wrote exactly where it lets a bot."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.surfaces.base import Author, Inbound, Receipt, Said
from bot.surfaces.config import TelegramConfig
from bot.surfaces.console import ConsoleSurface
from bot.surfaces.discord import DiscordSurface
from bot.surfaces.slack import SlackSurface
from bot.surfaces.telegram import TelegramSurface
from engine.store.base import Store
from tests.fakes.discord import GENERAL, discord
from tests.fakes.ground import grounded
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.unit.discord_desk import config_of
from tests.unit.slack_desk import config_for


async def accepted(event: Inbound) -> Receipt:
    return Receipt(status="accepted")


@pytest.mark.parametrize(
    ("chat", "admin", "gone"),
    [
        pytest.param(7, False, True, id="private"),
        pytest.param(-1005, False, False, id="group"),
        pytest.param(-1005, True, True, id="group-as-its-administrator"),
    ],
)
async def test_telegram(
    chat: int, admin: bool, gone: bool, tmp_path: Path, sqlite_store: Store
) -> None:
    async with FakeTelegram() as fake, grounded(tmp_path, sqlite_store) as told:
        fake.group(-1005)
        fake.private(7)
        if admin:
            fake.admin_in.add(chat)
        surface = TelegramSurface(TelegramConfig(tokens=(TOKEN,), base_url=fake.url), told.ground)
        await surface.start(accepted)
        number = await fake.say(chat, 7, "/new a key" if chat > 0 else "@nod_bot a key")
        said = f"{fake.bots[TOKEN].id}/{chat}/{number}"
        assert await surface.erase(f"telegram:{fake.bots[TOKEN].id}/{chat}", said) is gone
        assert ((chat, number) not in fake.messages) is gone
        await surface.stop()


@pytest.mark.parametrize(
    ("direct", "allowed", "gone"),
    [
        pytest.param(False, True, True, id="may-manage-messages"),
        pytest.param(False, False, False, id="may-not"),
        pytest.param(True, True, False, id="direct"),
    ],
)
async def test_discord(
    direct: bool, allowed: bool, gone: bool, tmp_path: Path, sqlite_store: Store
) -> None:
    async with discord() as fake, grounded(tmp_path, sqlite_store) as told:
        if not allowed:
            fake.permissions &= ~(1 << 13)
        surface = DiscordSurface(config_of(fake), told.ground)
        await surface.start(accepted)
        ana = fake.user("ana")
        channel = fake.direct(ana) if direct else GENERAL
        message = await fake.say(channel, ana, "a key")
        assert await surface.erase("discord:1/2", f"{channel}/{message['id']}") is gone
        assert (message["id"] not in fake.posts[channel]) is gone
        await surface.stop()


async def test_slack_lets_a_bot_delete_only_its_own(tmp_path: Path, sqlite_store: Store) -> None:
    async with FakeSlack() as fake, grounded(tmp_path, sqlite_store) as told:
        surface = SlackSurface(config_for(fake), told.ground)
        assert not await surface.erase("slack:T1/CGEN", "T1/CGEN/1.1")


async def test_a_key_typed_at_the_console_is_not_written_down(tmp_path: Path) -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    heard: list[Inbound] = []

    async def take(event: Inbound) -> Receipt:
        heard.append(event)
        return Receipt(status="refused")

    surface = ConsoleSurface(tmp_path, lambda: 1000.0)
    await surface.start(take)
    await surface.say("console:main", Author(id="console", name="ana"), f"here: {key}")
    assert isinstance(heard[0], Said) and key in heard[0].text  # so that it can be refused
    assert key.encode() not in (tmp_path / "console" / "main.jsonl").read_bytes()
