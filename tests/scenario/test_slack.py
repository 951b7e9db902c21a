"""The morning briefing on Slack, as it ships: real processes, killed three times, one post."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from engine.clock import system_now
from engine.schedule import schedules
from engine.store.opening import open_store
from tests.fakes.llm import FakeLLM
from tests.fakes.llm_rules import Reply
from tests.fakes.slack import APP_TOKEN, FakeSlack
from tests.fakes.slack_state import Post

ROOT = Path(__file__).parents[2]
REPORT_TO = "slack:T1/CSTAND"
BRIEFING = "# Stand-up\n\nThe ferry sails at *nine*."


def call(name: str, **arguments: str) -> tuple[str, str]:
    return name, json.dumps(arguments)


class House:
    """One data folder, the services outside it, and the process that works on it."""

    def __init__(self, tmp_path: Path, slack: FakeSlack, model: FakeLLM) -> None:
        self.data = tmp_path / "data"
        (tmp_path / "home").mkdir()
        self._slack = slack
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path / "home"),
            "PYTHONPATH": str(ROOT),
            "NOD_HOME": str(self.data),
            "NOD_MODEL": "openai:gpt-5",
            "NOD_SLACK_BASE_URL": slack.base_url,
            "SLACK_BOT_TOKEN": slack.teams["T1"].token,
            "SLACK_APP_TOKEN": APP_TOKEN,
            **model.environ(),
        }
        self.process: asyncio.subprocess.Process | None = None

    async def _started(self, *words: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "bot.cli",
            *words,
            env=self._environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def start(self) -> None:
        """Start `nod serve` and wait until it is at work and connected."""
        before = len(self._slack.sockets)
        self.process = await self._started("serve")
        assert self.process.stdout is not None
        seen = b""
        async with asyncio.timeout(40):
            while b"nod is ready" not in seen:
                line = await self.process.stdout.readline()
                assert line, seen.decode()
                seen += line
        await self._slack.connected(before + 1)

    async def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        await self.process.communicate()
        self.process = None

    async def run(self, *words: str) -> str:
        """Run a command to its end and return what it says."""
        process = await self._started(*words)
        async with asyncio.timeout(40):
            out, _ = await process.communicate()
        assert process.returncode == 0, out.decode()
        return out.decode()

    async def make_due(self) -> None:
        """Make the schedule due now, while nothing is at work."""
        store = await open_store(f"sqlite:///{self.data / 'nod.db'}")
        try:
            (made,) = await store.read(lambda tx: schedules.listed(tx, "local"))
            now = system_now()
            await store.write(
                lambda tx: tx.run("schedule_enable", id=made.id, enabled=1, next=now, now=now)
            )
        finally:
            await store.close()


@asynccontextmanager
async def housed(tmp_path: Path) -> AsyncIterator[tuple[House, FakeSlack, FakeLLM]]:
    async with FakeSlack() as slack, FakeLLM() as model:
        house = House(tmp_path, slack, model)
        try:
            yield house, slack, model
        finally:
            if house.process is not None:
                await house.kill()


def direct(slack: FakeSlack) -> list[Post]:
    return slack.direct("T1", "UANA").of_nod


def team(slack: FakeSlack) -> list[Post]:
    return slack.teams["T1"].channels["CSTAND"].of_nod


def card_in(slack: FakeSlack) -> Post | None:
    return next((each for each in direct(slack) if each.buttons()), None)


def everything(post: Post) -> str:
    return json.dumps([post.text, post.blocks], ensure_ascii=False)


async def test_the_morning_briefing_survives_three_kills_and_is_posted_once(tmp_path: Path) -> None:
    async with housed(tmp_path) as (house, slack, model):
        model.replies = [
            Reply(
                calls=(
                    call("write_file", path="briefing.md", content=BRIEFING),
                    call("deliver_file", path="briefing.md", comment="the briefing"),
                    call("send_message", target=REPORT_TO, text=BRIEFING),
                )
            ),
            Reply(text="The briefing is posted."),
        ]
        await house.start()

        # the owner pairs with a code from the console, and makes the schedule in the DM
        code = re.search(r"[0-9A-Z]{4}-[0-9A-Z]{4}", await house.run("pair"))
        assert code is not None
        await slack.direct_say(code[0])
        await slack.until(lambda: slack.whispers)
        told = await slack.command(
            f'schedule add "0 8 * * 1-5" --report-to {REPORT_TO} Brief us.', channel="DM"
        )
        assert "schedule" in str(told.payload).lower() or "next" in str(told.payload)
        await house.kill()

        # due, and the process dies while the card waits
        await house.make_due()
        await house.start()
        await slack.until(lambda: card_in(slack), 30)
        card = card_in(slack)
        assert card is not None
        assert REPORT_TO in everything(card)
        assert team(slack) == [], "what waits for a nod is shown nowhere else"
        await house.kill()

        # pressed by somebody else and by the owner; killed again when the post is made and its
        # answer is still on its way
        await house.start()
        stranger = await slack.press("Approve", card, user="UBEN")
        assert stranger.ok
        slack.mute.add("chat.postMessage")
        for row in range(card.rows("Approve")):
            assert (await slack.press("Approve", card, row=row)).ok
        await slack.until(lambda: team(slack), 30)
        await house.kill()
        slack.mute.clear()
        await house.start()
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
        assert "whole" in await house.run("audit", "verify")
        held = (house.data / "nod.db").read_bytes().decode("latin-1")
        assert "xoxb-" not in held and "xapp-" not in held
        assert model.refused == []
        assert slack.posts_per_delivery() <= {1}
