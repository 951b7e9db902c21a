"""What a connector brings, from end to end: a review is asked for on GitHub, Nod tells on Slack."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bot import pairing, settings
from bot.app import App
from connectors import accounts
from connectors.oauth import Token
from connectors.vault import make_key_file
from engine import people, sessions
from engine.clock import system_now
from tests.fakes.jobs import until
from tests.fakes.llm import FakeLLM
from tests.fakes.llm_rules import Reply
from tests.fakes.slack import APP_TOKEN, FakeSlack
from tests.fakes.slack_state import Post
from tests.fakes.vendors import github

TOKEN = "github-token-very-secret"
TOLD = "Bo asks you to review *Faster start*."


@dataclass(slots=True)
class Scene:
    """A Nod on Slack whose owner has connected GitHub, at a time of our own."""

    nod: App
    slack: FakeSlack
    model: FakeLLM
    hub: github.Fake
    clock: list[float]

    def direct(self) -> list[Post]:
        return self.slack.direct("T1", "UANA").of_nod

    def said(self) -> str:
        return json.dumps([[each.text, each.blocks] for each in self.direct()])

    async def confirmed(self) -> None:
        """Say yes to the card that waits, and wait until GitHub was looked at once more."""
        asked = len(self.hub.seen)
        await self.slack.until(lambda: any(each.buttons() for each in self.direct()))
        (card,) = [each for each in self.direct() if each.buttons()]
        await self.slack.press("Approve", card)
        await self.slack.until(lambda: not card.buttons())
        await until(lambda: len(self.hub.seen) > asked, 30)
        await self.nod._hands.sources.look()  # returns when what was seen is kept

    async def later(self, seconds: float) -> None:
        self.clock[0] += seconds
        self.nod.alarm.nudge()
        self.nod._hands.sources.nudge()


@asynccontextmanager
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    clock, data = [system_now()], tmp_path / "data"
    data.mkdir()
    make_key_file(data / "vault.key")
    async with FakeSlack() as slack, FakeLLM() as model, github.Fake() as hub:
        hub.tokens = {TOKEN: "ana"}
        (data / "nod.toml").write_text(f'[connectors.github]\nbase_url = "{hub.url}"\n')
        environ = {
            "NOD_HOME": str(data),
            "NOD_MODEL": "openai:gpt-5",
            "NOD_SLACK_BASE_URL": slack.base_url,
            "SLACK_BOT_TOKEN": slack.teams["T1"].token,
            "SLACK_APP_TOKEN": APP_TOKEN,
            **model.environ(),
        }
        async with App(settings.load(environ), environ, now=lambda: clock[0]) as nod:
            account = await nod.store.write(
                lambda tx: accounts.add(tx, "local", "github", "ana", people.CONSOLE, now=clock[0])
            )
            await nod._hands.credentials.keep(account.id, Token(access=TOKEN))
            await nod._hands.connectors.add("github")
            await slack.connected(1)
            code = await nod.store.write(lambda tx: pairing.offer(tx, "local", clock[0]))
            await slack.direct_say(code.split()[-1])
            await slack.until(lambda: slack.whispers)
            yield Scene(nod, slack, model, hub, clock)
        assert model.refused == []


async def test_a_watch_tells_of_a_review_that_is_asked_for(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.model.replies = [Reply(text=TOLD)]
        await it.slack.command("watch event github-review: say whose and what", channel="DM")
        await it.confirmed()
        assert it.model.seen == [], "what waited before is no news"

        it.hub.ask_review(8, "Faster start")
        await it.later(121)
        await until(lambda: len(it.hub.seen) >= 2, 30)
        await it.nod._hands.sources.look()  # returns when what was seen is kept
        await it.later(61)
        await it.slack.until(lambda: TOLD in it.said())
        heard = str(it.model.seen[0].body["messages"])
        assert "Faster start" in heard and "data to judge" in heard
        await it.later(121)
        await until(lambda: len(it.hub.seen) >= 3, 30)
        assert len(it.model.seen) == 1, "it comes once"


async def test_nod_waits_for_a_review_where_it_was_asked_to(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.model.replies = [
            waiting("github-reviews"),
            waiting("github-review"),
            Reply(text="I will tell you."),
            Reply(text=TOLD),
        ]
        await it.slack.direct_say("Tell me when somebody wants a review of me.")
        await it.confirmed()
        assert "There are github-review, gmail-message" in str(it.model.seen[1].body["messages"])

        it.hub.ask_review(8, "Faster start")
        await it.later(121)
        await it.slack.until(lambda: TOLD in it.said(), 20)
        heard = str(it.model.seen[-1].body["messages"])
        assert "Faster start" in heard and "from outside" in heard
        (session,) = await it.nod.store.read(lambda tx: sessions.listed(tx, "local"))
        assert "github:event" in session.taint


def waiting(event: str) -> Reply:
    arguments = {"event": event, "note": "Tell them whose and what."}
    return Reply(calls=(("wake_on_event", json.dumps(arguments)),))
