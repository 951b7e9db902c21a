"""Nod as it ships: a data folder, and the processes of `nod` that work on it, and are killed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from connectors import accounts
from connectors.credentials import secret_name
from connectors.secrets import Secrets
from connectors.vault import make_key_file
from engine import people
from engine.clock import system_now
from engine.schedule import schedules
from engine.store.opening import open_store
from tests.fakes.llm import FakeLLM
from tests.fakes.llm_rules import Reply

__all__ = ["House", "briefing", "housed"]

ROOT = Path(__file__).parents[2]
PATIENCE = 40.0  # seconds


class House:
    """One data folder, and `nod serve` on it, which a test starts and kills."""

    def __init__(self, place: Path, environ: Mapping[str, str], secrets: Sequence[str]) -> None:
        self.data = place / "data"
        (place / "home").mkdir()
        self._secrets = secrets
        self._process: asyncio.subprocess.Process | None = None
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(place / "home"),
            "PYTHONPATH": str(ROOT),
            "NOD_HOME": str(self.data),
            "NOD_MODEL": "openai:gpt-5",
            **environ,
        }

    @property
    def pid(self) -> int | None:
        """Which process it is; None: it does not run."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start `nod serve` and wait until it is at work."""
        self._process = await self._started("serve")
        assert self._process.stdout is not None
        seen = b""
        async with asyncio.timeout(PATIENCE):
            while b"nod is ready" not in seen:
                line = await self._process.stdout.readline()
                assert line, seen.decode()
                seen += line
        self._shows_no_secret(seen.decode())

    async def kill(self) -> None:
        """SIGKILL it, if it runs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            out, _ = await self._process.communicate()
            self._process = None
            self._shows_no_secret(out.decode())

    async def run(self, *words: str) -> str:
        """Run a command to its end and return what it says."""
        process = await self._started(*words)
        async with asyncio.timeout(PATIENCE):
            out, _ = await process.communicate()
        assert process.returncode == 0, out.decode()
        self._shows_no_secret(out.decode())
        return out.decode()

    async def pairing_code(self) -> str:
        """Return the code that the console prints for the owner."""
        code = re.search(r"[0-9A-Z]{4}-[0-9A-Z]{4}", await self.run("pair"))
        assert code is not None
        return code[0]

    async def make_due(self) -> None:
        """Make the one schedule due now, while nothing is at work."""
        store = await open_store(f"sqlite:///{self.data / 'nod.db'}")
        try:
            (made,) = await store.read(lambda tx: schedules.listed(tx, "local"))
            now = system_now()
            await store.write(
                lambda tx: tx.run("schedule_enable", id=made.id, enabled=1, next=now, now=now)
            )
        finally:
            await store.close()

    async def connect(
        self,
        connector: str,
        label: str,
        token: str = "",
        *,
        refresh: str = "",
        fields: Mapping[str, str] | None = None,
    ) -> None:
        """Connect an account of the owner, as its page would, while nothing is at work."""
        store = await open_store(f"sqlite:///{self.data / 'nod.db'}")
        try:
            await store.write(lambda tx: people.seed_console(tx, "local", system_now()))
            account = await store.write(
                lambda tx: accounts.add(
                    tx, "local", connector, label, people.CONSOLE, now=system_now()
                )
            )
        finally:
            await store.close()
        held: dict[str, object] = {"kind": "key", **(fields or {})}
        if fields is None:
            held = {"kind": "oauth", "access": token, "refresh": refresh, "expires_at": None}
            held["extra"] = {}
        self.keep(secret_name(account.id), json.dumps(held))

    def keep(self, name: str, value: str) -> None:
        """Keep a secret, while nothing is at work."""
        if not (self.data / "vault.key").exists():
            make_key_file(self.data / "vault.key")
        Secrets(self._environ, self.data).set(name, value)

    async def check(self) -> None:
        """Make sure that the audit is whole and that no secret was written down."""
        assert "whole" in await self.run("audit", "verify")
        self._shows_no_secret((self.data / "nod.db").read_bytes().decode("latin-1"))

    def _shows_no_secret(self, text: str) -> None:
        assert not [secret for secret in self._secrets if secret in text]

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


@asynccontextmanager
async def housed(
    place: Path, environ: Mapping[str, str], secrets: Sequence[str]
) -> AsyncIterator[tuple[House, FakeLLM]]:
    """A house in the folder `place`, and the model it speaks to; killed at the end.

    Args:
        secrets: what it must never print or store.
    """
    async with FakeLLM() as model:
        house = House(place, {**environ, **model.environ()}, secrets)
        try:
            yield house, model
            assert model.refused == []
        finally:
            await house.kill()


def briefing(report_to: str, text: str) -> list[Reply]:
    """Return what the model says when it briefs: it writes a file, hands it over, and posts."""
    return [
        Reply(
            calls=(
                _call("write_file", path="briefing.md", content=text),
                _call("deliver_file", path="briefing.md", comment="the briefing"),
                _call("send_message", target=report_to, text=text),
            )
        ),
        Reply(text="The briefing is posted."),
    ]


def _call(name: str, **arguments: str) -> tuple[str, str]:
    return name, json.dumps(arguments)
