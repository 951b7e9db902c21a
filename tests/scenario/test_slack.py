"""The morning briefing on Slack, as it ships: real processes, killed three times, one post."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.fakes.house import House, briefing, housed
from tests.fakes.llm import FakeLLM
from tests.fakes.slack import APP_TOKEN, FakeSlack
from tests.fakes.slack_state import Post

REPORT_TO = "slack:T1/CSTAND"
BRIEFING = "# Stand-up\n\nThe ferry sails at *nine*."


@asynccontextmanager
async def on_slack(tmp_path: Path) -> AsyncIterator[tuple[House, FakeSlack, FakeLLM]]:
    async with FakeSlack() as slack:
        environ = {
            "NOD_SLACK_BASE_URL": slack.base_url,
            "SLACK_BOT_TOKEN": slack.teams["T1"].token,
            "SLACK_APP_TOKEN": APP_TOKEN,
        }
        async with housed(tmp_path, environ, ["xoxb-", "xapp-"]) as (house, model):
            yield house, slack, model


async def started(house: House, slack: FakeSlack) -> None:
    before = len(slack.sockets)
    await house.start()
    await slack.connected(before + 1)


def direct(slack: FakeSlack) -> list[Post]:
    return slack.direct("T1", "UANA").of_nod


def team(slack: FakeSlack) -> list[Post]:
    return slack.teams["T1"].channels["CSTAND"].of_nod


def card_in(slack: FakeSlack) -> Post | None:
    return next((each for each in direct(slack) if each.buttons()), None)


def everything(post: Post) -> str:
    return json.dumps([post.text, post.blocks], ensure_ascii=False)


async def test_the_morning_briefing_survives_three_kills_and_is_posted_once(tmp_path: Path) -> None:
    async with on_slack(tmp_path) as (house, slack, model):
        model.replies = briefing(REPORT_TO, BRIEFING)
        await started(house, slack)

        # the owner pairs with a code from the console, and makes the schedule in the DM
        await slack.direct_say(await house.pairing_code())
        await slack.until(lambda: slack.whispers)
        told = await slack.command(
            f'schedule add "0 8 * * 1-5" --report-to {REPORT_TO} Brief us.', channel="DM"
        )
        assert "Nothing is scheduled before you confirm" in str(told.payload)
        await slack.until(lambda: card_in(slack))
        asked = card_in(slack)
        assert asked is not None
        assert (await slack.press("Confirm", asked)).ok
        await slack.until(lambda: not asked.buttons())
        await house.kill()

        # due, and the process dies while the card waits
        await house.make_due()
        await started(house, slack)
        await slack.until(lambda: card_in(slack), 30)
        card = card_in(slack)
        assert card is not None
        assert REPORT_TO in everything(card)
        assert team(slack) == [], "what waits for a nod is shown nowhere else"
        await house.kill()

        # pressed by somebody else and by the owner; killed again when the post is made and its
        # answer is still on its way
        await started(house, slack)
        stranger = await slack.press("Approve", card, user="UBEN")
        assert stranger.ok
        slack.mute.add("chat.postMessage")
        for row in range(card.rows("Approve")):
            assert (await slack.press("Approve", card, row=row)).ok
        await slack.until(lambda: team(slack), 30)
        await house.kill()
        slack.mute.clear()
        await started(house, slack)
        await slack.until(lambda: any("posted" in everything(p) for p in direct(slack)), 30)
        await slack.until(lambda: not card.buttons(), 30)

        (post,) = team(slack)
        assert "The ferry sails at" in everything(post)
        files = [held["name"] for each in direct(slack) for held in each.files]
        assert files == ["briefing.md"]
        (file,) = slack.files.values()
        assert file.content == BRIEFING.encode()
        assert "Approved by @" in everything(card)
        assert [user for user, _ in slack.responses][:1] == ["UBEN"]
        await house.check()
        assert slack.posts_per_delivery() <= {1}
