"""`nod telegram` asks Telegram, and says what to change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot import settings
from bot.doctor import Finding, sound
from bot.guides.telegram import examine
from bot.settings import Settings, Web
from bot.surfaces.config import TelegramConfig
from tests.fakes.telegram import TOKEN, FakeTelegram


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as made:
        yield made


def loaded(data: Path, url: str = "") -> Settings:
    return replace(settings.load({"NOD_HOME": str(data)}), web=Web(url=url))


async def findings(
    fake: FakeTelegram, data: Path, *, mode: str = "polling", url: str = "", token: str = TOKEN
) -> list[Finding]:
    config = TelegramConfig(tokens=(token,), mode=mode, base_url=fake.url)
    return [each async for each in examine(loaded(data, url), config)]


async def test_without_a_token_it_says_where_one_comes_from(tmp_path: Path) -> None:
    (found,) = [each async for each in examine(loaded(tmp_path), None)]
    assert found.state == "missing" and "@BotFather" in found.fix


async def test_privacy_mode_is_told_with_the_way_out(fake: FakeTelegram, tmp_path: Path) -> None:
    bot, groups, updates = await findings(fake, tmp_path)
    assert "@nod_bot" in bot.text
    assert groups.state == "note" and "/setprivacy" in groups.fix
    assert updates.state == "ok" and updates.text == "polling; 0 waiting"
    fake.bot.privacy = False
    assert (await findings(fake, tmp_path))[1].state == "ok"


async def test_a_wrong_token_is_named_by_its_number_only(
    fake: FakeTelegram, tmp_path: Path
) -> None:
    found = await findings(fake, tmp_path, token="123:AAwrong_wrong_wrong_wrong_wrong_wr")
    assert not sound(found)
    assert "bot 123" in found[0].text and "AAwrong" not in str(found)


async def test_what_is_no_token_is_shown_nowhere(fake: FakeTelegram, tmp_path: Path) -> None:
    (found,) = await findings(fake, tmp_path, token="xoxb-somebody-elses-secret")
    assert found.state == "missing" and "holds no token" in found.text
    assert "secret" not in str(found)


@pytest.mark.parametrize(
    ("mode", "url", "hook", "state", "told"),
    [
        ("polling", "", "https://old.test/hook", "note", "old.test"),
        ("webhook", "", "", "missing", "web.url is not set"),
        ("webhook", "http://nod.test", "", "missing", "does not call http://nod.test"),
        ("webhook", "https://nod.test:9000", "", "missing", "does not call https://nod.test:9000"),
        ("webhook", "https://nod.test", "https://old.test/hook", "note", "old.test"),
        ("webhook", "https://nod.test", "", "ok", "https://nod.test/telegram/7000001"),
        ("webhook", "https://nod.test:8443", "", "ok", "webhook at"),
    ],
)
async def test_what_is_in_the_way_of_updates_is_told(
    fake: FakeTelegram, tmp_path: Path, mode: str, url: str, hook: str, state: str, told: str
) -> None:
    fake.bot.webhook = hook
    found = (await findings(fake, tmp_path, mode=mode, url=url))[-1]
    assert (found.name, found.state) == ("updates", state)
    assert told in found.text
