"""The morning briefing and an incident through GitHub and Google Calendar, on Slack, killed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakes.house import House, housed
from tests.fakes.llm import FakeLLM, Reply
from tests.fakes.slack import APP_TOKEN, FakeSlack
from tests.fakes.slack_state import Post
from tests.fakes.vendors import github, google_calendar
from tests.fakes.vendors.service import Fault

REPORT_TO = "slack:T1/CSTAND"
BRIEFING = "# Today\n\nOne review waits: *Fix the crash*. At nine: *Standup*."
TOKENS = ("github-token-very-secret", "google-token-very-secret")


@dataclass(frozen=True, slots=True)
class Scene:
    """A house, its chat, its model, and the services it works with."""

    house: House
    slack: FakeSlack
    model: FakeLLM
    github: github.Fake
    calendar: google_calendar.Fake

    async def start(self) -> None:
        """Start Nod, and wait until it is connected to Slack."""
        before = len(self.slack.sockets)
        await self.house.start()
        await self.slack.connected(before + 1)

    async def paired(self) -> None:
        """Start Nod and make its owner known."""
        await self.start()
        await self.slack.direct_say(await self.house.pairing_code())
        await self.slack.until(lambda: self.slack.whispers)

    def direct(self) -> list[Post]:
        return self.slack.direct("T1", "UANA").of_nod

    def channel(self, name: str) -> list[Post]:
        return self.slack.teams["T1"].channels[name].of_nod

    def waiting(self, posts: list[Post]) -> Post | None:
        return next((each for each in posts if each.buttons()), None)


@asynccontextmanager
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with (
        FakeSlack() as slack,
        github.Fake() as hub,
        google_calendar.Fake() as calendar,
    ):
        hub.tokens, calendar.tokens = {TOKENS[0]: "ana"}, {TOKENS[1]: "ana"}
        environ = {
            "NOD_SLACK_BASE_URL": slack.base_url,
            "SLACK_BOT_TOKEN": slack.teams["T1"].token,
            "SLACK_APP_TOKEN": APP_TOKEN,
        }
        async with housed(tmp_path, environ, ["xoxb-", "xapp-", *TOKENS]) as (house, model):
            house.data.mkdir(exist_ok=True)
            (house.data / "nod.toml").write_text(
                f'[connectors.github]\nbase_url = "{hub.url}"\n'
                f'[connectors.google_calendar]\nbase_url = "{calendar.url}"\n'
            )
            await house.connect("github", "ana", TOKENS[0])
            await house.connect("google_calendar", "ana@acme.example", TOKENS[1])
            yield Scene(house, slack, model, hub, calendar)


def calls(*made: tuple[str, dict[str, Any]]) -> Reply:
    return Reply(calls=tuple((name, json.dumps(arguments)) for name, arguments in made))


def everything(post: Post) -> str:
    return json.dumps([post.text, post.blocks], ensure_ascii=False)


async def test_the_briefing_reads_reviews_and_meetings_and_is_posted_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.model.replies = [
            calls(
                ("github_reviews_waiting", {}),
                ("google_calendar_events", {"day": "2026-03-02", "zone": "Europe/Berlin"}),
            ),
            calls(("send_message", {"target": REPORT_TO, "text": BRIEFING})),
            Reply(text="The briefing is posted."),
        ]
        await it.paired()
        await it.slack.command(
            f'schedule add "0 8 * * 1-5" --report-to {REPORT_TO} Brief us.', channel="DM"
        )
        await it.slack.until(lambda: it.waiting(it.direct()))
        asked = it.waiting(it.direct())
        assert asked is not None
        await it.slack.press("Confirm", asked)
        await it.slack.until(lambda: not asked.buttons())
        await it.house.kill()

        # at eight it reads both, writes, and waits; the server restarts in the night
        await it.house.make_due()
        await it.start()
        await it.slack.until(lambda: it.waiting(it.direct()), 40)
        read = str(it.model.seen[-1].body["messages"])
        assert "Fix the crash" in read and "Standup" in read
        card = it.waiting(it.direct())
        assert card is not None
        words = everything(card)
        assert "github" in words and "google_calendar" in words, "it says which text is in play"
        await it.house.kill()

        # at nine a press
        await it.start()
        assert (await it.slack.press("Approve", card)).ok
        await it.slack.until(lambda: it.channel("CSTAND"), 30)
        await it.slack.until(lambda: any("posted" in everything(p) for p in it.direct()), 30)
        (post,) = it.channel("CSTAND")
        assert "Fix the crash" in everything(post)
        await it.house.check()
        assert it.slack.posts_per_delivery() <= {1}
        assert it.github.acts == it.calendar.acts == []


async def test_an_incident_opens_one_issue_however_the_night_goes(tmp_path: Path) -> None:
    """Killed after GitHub has made the issue and before it could say so: it is looked up."""
    async with scene(tmp_path) as it:
        it.model.replies = [
            calls(
                ("github_list_deployments", {"repo": "acme/app"}),
                ("github_list_commits", {"repo": "acme/app"}),
            ),
            calls(
                (
                    "github_create_issue",
                    {"repo": "acme/app", "title": "The checkout fails", "body": "Since m1."},
                )
            ),
            Reply(text="Issue 3 is open: https://github.com/acme/app/issues/3"),
        ]
        await it.paired()
        await it.slack.say("@nod the checkout fails, please open an issue", channel="CSTAND")
        await it.slack.until(lambda: it.waiting(it.channel("CSTAND")), 30)
        card = it.waiting(it.channel("CSTAND"))
        assert card is not None
        assert "github:acme/app" in everything(card)
        assert it.github.acts == [], "nothing is done before the nod"

        it.github.fail(Fault(how="silent", after=True, method="POST"))
        assert (await it.slack.press("Approve", card)).ok
        await it.slack.until(lambda: it.github.acts, 30)
        await it.house.kill()

        await it.start()
        await it.slack.until(
            lambda: any("Issue 3 is open" in everything(p) for p in it.channel("CSTAND")), 60
        )
        assert len(it.github.acts) == 1
        assert it.github.issues[3]["title"] == "The checkout fails"
        await it.house.check()
