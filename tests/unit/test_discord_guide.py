"""`nod discord` asks Discord, and says what to change and how to invite it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot import settings
from bot.doctor import Finding, sound
from bot.guides.discord import PERMISSIONS, examine
from bot.surfaces.config import DiscordConfig
from tests.fakes.discord import APPLICATION, GUILD, TOKEN, FakeDiscord, discord
from tests.unit.discord_desk import config_of


@pytest.fixture
async def fake() -> AsyncIterator[FakeDiscord]:
    async with discord() as made:
        yield made


async def findings(data: Path, config: DiscordConfig | None) -> dict[str, Finding]:
    loaded = settings.load({"NOD_HOME": str(data)})
    return {each.name: each async for each in examine(loaded, config)}


async def test_without_a_token_it_says_where_one_comes_from(tmp_path: Path) -> None:
    found = (await findings(tmp_path, None))["discord"]
    assert found.state == "missing" and "Reset Token" in found.fix


async def test_a_set_up_that_is_whole_is_sound_and_can_be_invited(
    fake: FakeDiscord, tmp_path: Path
) -> None:
    found = await findings(tmp_path, config_of(fake))
    assert sound(found.values())
    assert f"client_id={APPLICATION}&" in found["invite"].text
    assert f"permissions={sum(PERMISSIONS)}" in found["invite"].text
    assert GUILD in found["server"].text


async def test_a_missing_intent_is_told_with_where_to_switch_it_on(
    fake: FakeDiscord, tmp_path: Path
) -> None:
    fake.content_allowed = False
    found = (await findings(tmp_path, config_of(fake)))["intents"]
    assert found.state == "missing"
    assert f"/applications/{APPLICATION}/bot" in found.fix


async def test_missing_permissions_are_named_as_discord_calls_them(
    fake: FakeDiscord, tmp_path: Path
) -> None:
    fake.permissions = sum(PERMISSIONS) & ~(1 << 35)
    found = (await findings(tmp_path, config_of(fake)))["server"]
    assert found.state == "missing" and "Create Public Threads" in found.fix
    fake.permissions = 1 << 3
    assert (await findings(tmp_path, config_of(fake)))["server"].state == "ok"


async def test_a_wrong_token_is_told_and_not_shown(fake: FakeDiscord, tmp_path: Path) -> None:
    found = await findings(tmp_path, config_of(fake, "wrong-token"))
    assert list(found) == ["token"]
    assert "wrong-token" not in str(found) and TOKEN not in str(found)


async def test_no_answer_is_told_in_a_sentence(tmp_path: Path) -> None:
    config = DiscordConfig(token=TOKEN, base_url="http://127.0.0.1:9/api")
    found = (await findings(tmp_path, config))["token"]
    assert found.state == "missing" and "could not be asked" in found.text
