"""The morning briefing on Discord, as it ships: real processes, killed twice, one post."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.fakes import discord_rules
from tests.fakes.discord import GENERAL, GUILD, TOKEN, FakeDiscord, Json, discord
from tests.fakes.house import House, briefing, housed
from tests.fakes.llm import FakeLLM

REPORT_TO = f"discord:{GUILD}/{GENERAL}"
BRIEFING = "# Stand-up\n\nThe ferry sails at *nine*, @everyone."


@asynccontextmanager
async def on_discord(tmp_path: Path) -> AsyncIterator[tuple[House, FakeDiscord, FakeLLM]]:
    async with discord() as fake:
        environ = {
            "NOD_DISCORD_BASE_URL": fake.base_url,
            "NOD_DISCORD_GATEWAY_URL": fake.gateway_url,
            "DISCORD_BOT_TOKEN": TOKEN,
        }
        async with housed(tmp_path, environ, [TOKEN]) as (house, model):
            yield house, fake, model


def labels(message: Json) -> list[str]:
    return [each["label"] for each in discord_rules.every(message["components"]) if "label" in each]


def card_in(fake: FakeDiscord, channel: str) -> Json | None:
    return next((each for each in fake.of(channel) if "Approve" in labels(each)), None)


async def test_the_morning_briefing_survives_two_kills_and_is_posted_once(tmp_path: Path) -> None:
    async with on_discord(tmp_path) as (house, fake, model):
        ana, eve = fake.user("ana"), fake.user("eve")
        private = fake.direct(ana)
        model.replies = briefing(REPORT_TO, BRIEFING)
        await house.start()

        # the owner pairs in a direct message, and makes a schedule there
        await fake.say(private, ana, await house.pairing_code())
        await fake.until(lambda: fake.shown(private))
        await fake.until(lambda: fake.commands)
        words = f'add "0 8 * * 1-5" --report-to {REPORT_TO} Brief us.'
        made = await fake.command(private, ana, "schedule", words)
        await fake.until(lambda: made.told)
        await fake.until(lambda: any("Confirm" in labels(each) for each in fake.of(private)))
        asked = next(each for each in fake.of(private) if "Confirm" in labels(each))
        await fake.press(asked, "Confirm", ana)
        await fake.until(lambda: any("Confirmed by" in each for each in fake.shown(private)))
        await house.kill()

        # it is due, and the process dies while the card waits in the owner's direct messages
        await house.make_due()
        await house.start()
        await fake.until(lambda: card_in(fake, private), 30)
        card = card_in(fake, private)
        assert card is not None and REPORT_TO in discord_rules.text_of(card)
        assert fake.shown(GENERAL) == []
        await house.kill()
        await house.start()

        # pressed by somebody else, by the owner, and once more
        old = json.loads(json.dumps(card))
        rows = labels(old).count("Approve")
        buttons = [
            each["custom_id"]
            for each in discord_rules.every(old["components"])
            if each.get("label") == "Approve"
        ]
        stranger = await fake.press(old, "", eve, buttons[-1])
        await fake.until(lambda: stranger.told)
        for button in buttons:
            await fake.press(old, "", ana, button)
        await fake.until(lambda: fake.shown(GENERAL), 30)
        again = await fake.press(old, "", ana, buttons[-1])
        await fake.until(lambda: again.told)
        await fake.until(lambda: any("is posted" in each for each in fake.shown(private)), 30)
        await fake.until(lambda: not labels(card))

        # and what was done stays done
        await house.kill()
        await house.start()
        (post,) = fake.shown(GENERAL)
        assert "The ferry sails at *nine*" in post
        files = [held for each in fake.of(private) for held in each["attachments"]]
        assert [each["filename"] for each in files] == ["briefing.md"]
        assert fake.files[files[0]["id"]] == BRIEFING.encode()
        assert discord_rules.text_of(card).count("Approved by @") == rows
        assert again.texts[0].startswith("Already decided")
        await house.check()
