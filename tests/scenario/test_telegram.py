"""The morning briefing on Telegram, as it ships: real processes, killed twice, one post."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.fakes.house import House, briefing, housed
from tests.fakes.llm import FakeLLM
from tests.fakes.telegram import BOT, TOKEN, FakeTelegram, Sent

ANA, EVE, TEAM = 501, 666, -1005
REPORT_TO = f"telegram:{BOT}/{TEAM}"
BRIEFING = "# Stand-up\n\nThe ferry sails at *nine*."


@asynccontextmanager
async def on_telegram(tmp_path: Path) -> AsyncIterator[tuple[House, FakeTelegram, FakeLLM]]:
    async with FakeTelegram() as telegram:
        telegram.private(ANA)
        telegram.private(EVE)
        telegram.group(TEAM)
        environ = {"NOD_TELEGRAM_BASE_URL": telegram.url, "TELEGRAM_BOT_TOKEN": TOKEN}
        async with housed(tmp_path, environ, [TOKEN]) as (house, model):
            yield house, telegram, model


def card_in(telegram: FakeTelegram) -> Sent | None:
    return next((each for each in telegram.of(ANA) if each.buttons), None)


async def test_the_morning_briefing_survives_two_kills_and_is_posted_once(tmp_path: Path) -> None:
    async with on_telegram(tmp_path) as (house, telegram, model):
        model.replies = briefing(REPORT_TO, BRIEFING)
        await house.start()

        # the owner pairs, and a stranger does not get in
        await telegram.say(ANA, ANA, await house.pairing_code())
        await telegram.until(lambda: telegram.of(ANA))
        await telegram.say(
            ANA, ANA, f'/schedule add "0 8 * * 1-5" --report-to {REPORT_TO} Brief us.'
        )
        await telegram.until(lambda: card_in(telegram))
        asked = card_in(telegram)
        assert asked is not None
        await telegram.press(asked, next(each for each in asked.labels if "Confirm" in each), ANA)
        await telegram.until(lambda: not asked.buttons)
        await house.kill()

        # due, and the process dies while the card waits
        await house.make_due()
        await house.start()
        await telegram.until(lambda: card_in(telegram), 30)
        card = card_in(telegram)
        assert card is not None and REPORT_TO in card.text
        assert telegram.of(TEAM) == []
        await house.kill()

        # pressed while nothing is at work: by somebody else, by the owner, and once more
        stranger = await telegram.press(card, "Approve", EVE)
        rows = [label for label in card.labels if label.endswith("Approve")]
        first = [await telegram.press(card, label, ANA) for label in rows]
        again = await telegram.press(card, rows[-1], ANA)
        await house.start()
        await telegram.until(lambda: telegram.of(TEAM), 30)
        await telegram.until(lambda: {stranger, again, *first} <= set(telegram.answers), 30)
        await telegram.until(lambda: any("posted" in each.text for each in telegram.of(ANA)), 30)
        await telegram.until(lambda: not card.buttons)

        (post,) = telegram.of(TEAM)
        assert "The ferry sails at nine." in post.text
        files = [held for each in telegram.of(ANA) for held in each.files]
        assert files == [("briefing.md", BRIEFING.encode())]
        assert card.text.count("Approved by @") == len(rows)
        assert "not" in telegram.answers[stranger].lower()
        assert telegram.answers[again].startswith("Already decided")
        await house.check()
