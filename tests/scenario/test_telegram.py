"""The morning briefing on Telegram, as it ships: real processes, killed twice, one post."""

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
from tests.fakes.telegram import BOT, TOKEN, FakeTelegram, Sent

ROOT = Path(__file__).parents[2]
ANA, EVE, TEAM = 501, 666, -1005
REPORT_TO = f"telegram:{BOT}/{TEAM}"
BRIEFING = "# Stand-up\n\nThe ferry sails at *nine*."


def call(name: str, **arguments: str) -> tuple[str, str]:
    return name, json.dumps(arguments)


class House:
    """One data folder, the services outside it, and the process that works on it."""

    def __init__(self, tmp_path: Path, telegram: FakeTelegram, model: FakeLLM) -> None:
        self.data = tmp_path / "data"
        (tmp_path / "home").mkdir()
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path / "home"),
            "PYTHONPATH": str(ROOT),
            "NOD_HOME": str(self.data),
            "NOD_MODEL": "openai:gpt-5",
            "NOD_TELEGRAM_BASE_URL": telegram.url,
            "TELEGRAM_BOT_TOKEN": TOKEN,
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
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        await self._process.communicate()
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
async def housed(tmp_path: Path) -> AsyncIterator[tuple[House, FakeTelegram, FakeLLM]]:
    async with FakeTelegram() as telegram, FakeLLM() as model:
        telegram.private(ANA)
        telegram.private(EVE)
        telegram.group(TEAM)
        house = House(tmp_path, telegram, model)
        try:
            yield house, telegram, model
        finally:
            if house._process is not None:
                await house.kill()


def card_in(telegram: FakeTelegram) -> Sent | None:
    return next((each for each in telegram.of(ANA) if each.buttons), None)


async def test_the_morning_briefing_survives_two_kills_and_is_posted_once(tmp_path: Path) -> None:
    async with housed(tmp_path) as (house, telegram, model):
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

        # the owner pairs, and a stranger does not get in
        code = re.search(r"[0-9A-Z]{4}-[0-9A-Z]{4}", await house.run("pair"))
        assert code is not None
        await telegram.say(ANA, ANA, code[0])
        await telegram.until(lambda: telegram.of(ANA))
        await telegram.say(
            ANA, ANA, f'/schedule add "0 8 * * 1-5" --report-to {REPORT_TO} Brief us.'
        )
        await telegram.until(lambda: len(telegram.of(ANA)) == 2)
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
        assert "whole" in await house.run("audit", "verify")
        assert TOKEN not in (house.data / "nod.db").read_bytes().decode("latin-1")
        assert model.refused == []
