"""The morning briefing on Discord, as it ships: real processes, killed twice, one post."""

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
from tests.fakes import discord_rules
from tests.fakes.discord import GENERAL, GUILD, TOKEN, FakeDiscord, Json, discord
from tests.fakes.llm import FakeLLM
from tests.fakes.llm_rules import Reply

ROOT = Path(__file__).parents[2]
REPORT_TO = f"discord:{GUILD}/{GENERAL}"
BRIEFING = "# Stand-up\n\nThe ferry sails at *nine*, @everyone."


def call(name: str, **arguments: str) -> tuple[str, str]:
    return name, json.dumps(arguments)


class House:
    """One data folder, and the process that works on it."""

    def __init__(self, tmp_path: Path, fake: FakeDiscord, model: FakeLLM) -> None:
        self.data = tmp_path / "data"
        (tmp_path / "home").mkdir()
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path / "home"),
            "PYTHONPATH": str(ROOT),
            "NOD_HOME": str(self.data),
            "NOD_MODEL": "openai:gpt-5",
            "NOD_DISCORD_BASE_URL": fake.base_url,
            "NOD_DISCORD_GATEWAY_URL": fake.gateway_url,
            "DISCORD_BOT_TOKEN": TOKEN,
            **model.environ(),
        }
        self._process: asyncio.subprocess.Process | None = None

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
        """Start `nod serve` and wait until it is at work."""
        self._process = await self._started("serve")
        assert self._process.stdout is not None
        seen = b""
        async with asyncio.timeout(40):
            while b"nod is ready" not in seen:
                line = await self._process.stdout.readline()
                assert line, seen.decode()
                seen += line

    async def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            out, _ = await self._process.communicate()
            assert TOKEN not in out.decode()
            self._process = None

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
async def housed(tmp_path: Path) -> AsyncIterator[tuple[House, FakeDiscord, FakeLLM]]:
    async with discord() as fake, FakeLLM() as model:
        house = House(tmp_path, fake, model)
        try:
            yield house, fake, model
        finally:
            await house.kill()


def labels(message: Json) -> list[str]:
    return [each["label"] for each in discord_rules.every(message["components"]) if "label" in each]


def card_in(fake: FakeDiscord, channel: str) -> Json | None:
    return next((each for each in fake.of(channel) if "Approve" in labels(each)), None)


async def test_the_morning_briefing_survives_two_kills_and_is_posted_once(tmp_path: Path) -> None:
    async with housed(tmp_path) as (house, fake, model):
        ana, eve = fake.user("ana"), fake.user("eve")
        private = fake.direct(ana)
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

        # the owner pairs in a direct message, and makes a schedule there
        code = re.search(r"[0-9A-Z]{4}-[0-9A-Z]{4}", await house.run("pair"))
        assert code is not None
        await fake.say(private, ana, code[0])
        await fake.until(lambda: fake.shown(private))
        await fake.until(lambda: fake.commands)
        words = f'add "0 8 * * 1-5" --report-to {REPORT_TO} Brief us.'
        made = await fake.command(private, ana, "schedule", words)
        await fake.until(lambda: made.told)
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
        assert "whole" in await house.run("audit", "verify")
        assert TOKEN not in (house.data / "nod.db").read_bytes().decode("latin-1")
        assert model.refused == []
