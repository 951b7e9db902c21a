"""A running Nod, wired as it ships: what starts, what stops, what it leaves behind."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from bot import settings
from bot.app import CONSOLE_PERSON, App
from bot.keeping import keep
from engine import inbox, people, sessions
from engine.clock import system_now
from engine.errors import NodError
from engine.inbox import DAY, Prompt
from engine.models.base import UnknownModel
from engine.sandbox.local import LocalExecutor
from engine.schedule import hooks, jobs, schedules, wakes
from engine.schedule.words import When
from engine.store.base import Tx
from engine.store.lock import AdvanceLock
from tests.fakes.jobs import ended

ROOT = Path(__file__).parents[2]


def environ(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"NOD_HOME": str(tmp_path / "data"), "NOD_MODEL": "practice:rules", **more}


def app(tmp_path: Path, now: Callable[[], float] | None = None, **more: str) -> App:
    variables = environ(tmp_path, **more)
    loaded = settings.load(variables)
    return App(loaded, variables) if now is None else App(loaded, variables, now=now)


async def lines(tmp_path: Path, thread: str, wanted: int) -> list[str]:
    """Return what the thread's file shows once it has that many lines."""
    file = tmp_path / "data" / "console" / f"{thread}.jsonl"
    async with asyncio.timeout(10):
        while not file.exists() or len(file.read_text(encoding="utf-8").splitlines()) < wanted:
            await asyncio.sleep(0.01)
    return [json.loads(line).get("text", "") for line in file.read_text("utf-8").splitlines()]


async def test_what_is_said_is_answered_and_is_there_after_a_restart(tmp_path: Path) -> None:
    async with app(tmp_path) as nod:
        receipt = await nod.console.say("console:main", CONSOLE_PERSON, "Hello")
        said, answer = await lines(tmp_path, "main", 2)
    assert said == "Hello"
    assert "not an AI" in answer
    async with app(tmp_path) as nod:
        found = await nod.store.read(lambda tx: sessions.find_thread(tx, "local", "console:main"))
        assert found == receipt.session
        await nod.console.say("console:main", CONSOLE_PERSON, "Hello again")
        assert len(await lines(tmp_path, "main", 4)) == 4


async def test_two_processes_may_share_a_store_on_postgres(
    tmp_path: Path, postgres_url: str
) -> None:
    other = {"NOD_HOME": str(tmp_path / "other")}
    async with (
        app(tmp_path, NOD_STORE=postgres_url) as nod,
        app(tmp_path, NOD_STORE=postgres_url, **other) as second,
    ):
        receipt = await nod.console.say("console:main", CONSOLE_PERSON, "Hello")
        assert "not an AI" in (await lines(tmp_path, "main", 2))[1]
        listed = await second.store.read(lambda tx: sessions.listed(tx, "local"))
        assert [each.id for each in listed] == [receipt.session]


async def test_what_was_planned_with_the_practice_model_gets_the_real_one(tmp_path: Path) -> None:
    def plan(tx: Tx, model: str) -> None:
        when = When(zone="UTC", cron="0 8 * * *")
        who = {"tenant": "local", "owner": "console", "persona": "cowork", "home": "console:main"}
        task = {"title": model, "instructions": "Brief us."}
        schedules.add(tx, **who, **task, when=when, model=model, now=0.0)

    async def models(nod: App) -> list[str]:
        found = await nod.store.read(lambda tx: schedules.listed(tx, "local"))
        return sorted(each.model for each in found)

    async with app(tmp_path, lambda: 0.0) as nod:
        for model in ("practice:rules", "openai:gpt-5"):
            await nod.store.write(partial(plan, model=model))
        assert await models(nod) == ["openai:gpt-5", "practice:rules"]
    real = {"NOD_MODEL": "openai:gpt-5-mini", "OPENAI_API_KEY": "k"}
    async with app(tmp_path, lambda: 0.0, **real) as nod:
        assert await models(nod) == ["openai:gpt-5", "openai:gpt-5-mini"]


async def test_a_busy_port_that_nobody_set_keeps_no_nod_from_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {"tenant": "local", "name": "deploy-done", "owner": "console", "signed": False}
    async with app(tmp_path) as nod:
        await nod.store.write(lambda tx: hooks.add(tx, **made, now=0.0))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr("bot.web.address.PORT", taken.getsockname()[1])
        async with app(tmp_path) as nod:
            [notice] = await nod.store.read(lambda tx: inbox.pending(tx, "local"))
            assert notice.payload["title"] == "Hooks are not answered"
            assert "cannot listen" in notice.payload["text"]
            await nod.console.say("console:other", CONSOLE_PERSON, "Hello")
            assert "not an AI" in (await lines(tmp_path, "other", 2))[1]


async def test_a_start_that_fails_gives_everything_back(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel):
        async with app(tmp_path, NOD_MODEL="nope:x"):
            pass
    AdvanceLock.take(tmp_path / "data").release()
    async with app(tmp_path):
        assert (tmp_path / "data" / "nod.sock").exists()
    assert not (tmp_path / "data" / "nod.sock").exists()


async def test_two_at_once_on_one_folder_are_refused(tmp_path: Path) -> None:
    async with app(tmp_path):
        with pytest.raises(NodError, match=r"Another Nod \(process \d+\) is at work"):
            async with app(tmp_path):
                pass


async def test_a_prompt_that_waits_a_day_is_reminded_of_once(tmp_path: Path) -> None:
    moment = 1_790_000_000.0
    async with app(tmp_path, lambda: moment) as nod:
        prompt = Prompt(
            id="p1",
            tenant="local",
            session=None,
            kind="notice",
            subject="x",
            payload={"title": "The disk is nearly full", "text": "Free some space."},
            approvers={"role": "owner"},
            created_at=moment,
            remind_at=moment + DAY,
            deadline=moment + 7 * DAY,
        )
        await nod.store.write(lambda tx: inbox.ask(tx, prompt))
        nod.presenter.poke()
        await lines(tmp_path, "main", 1)
        moment += DAY
        nod.alarm.nudge()
        shown = await lines(tmp_path, "main", 2)
        assert shown[1].startswith("Still waiting for your nod, for 1 d: The disk is nearly full.")
        nod.alarm.nudge()
        await nod.alarm.ring()
        assert len(await lines(tmp_path, "main", 2)) == 2


@pytest.mark.parametrize("meanwhile", [True, False], ids=["while-nod-was-down", "while-it-runs"])
async def test_a_job_goes_on_after_nod_and_its_end_wakes_who_waits(
    tmp_path: Path, meanwhile: bool
) -> None:
    async with app(tmp_path) as nod:
        receipt = await nod.console.say("console:main", CONSOLE_PERSON, "Hello")
        await lines(tmp_path, "main", 2)
        session = str(receipt.session)
        folder = jobs.folder_of(nod.settings.data, session, "jbuild")
        go = folder.parents[2] / "files" / "go"
        command = f"while [ ! -e {go} ]; do sleep 0.02; done; echo built; exit 3"

        def note(tx: Tx) -> None:
            row, now = sessions.get(tx, session), system_now()
            jobs.add(tx, row, "jbuild", command, 60.0, now)
            wakes.add_on(tx, row, jobs.event_of("jbuild"), "say so", now)

        await nod.store.write(note)
        go.parent.mkdir(parents=True, exist_ok=True)
        await LocalExecutor(tmp_path).start(command, folder, 60.0)
    if meanwhile:
        go.touch()
        await ended(folder)
    async with app(tmp_path) as nod:
        go.touch()
        await lines(tmp_path, "main", 3)
        facts = await nod.store.read(lambda tx: tx.all("log_since", session=session, seq=1))
        woken = [row["body"] for row in facts if row["kind"] == "message"][-1]
        assert "say so" in woken and "exit code 3" in woken and "built" in woken


async def test_retention_deletes_what_is_finished_and_old_with_its_files(tmp_path: Path) -> None:
    moment = 1_790_000_000.0
    async with app(tmp_path, lambda: moment, NOD_RETENTION_DAYS="30") as nod:
        receipt = await nod.console.say("console:main", CONSOLE_PERSON, "Hello")
        await lines(tmp_path, "main", 2)
        await nod.dispatcher.settled()
        folder = tmp_path / "data" / "sessions" / str(receipt.session)
        folder.mkdir(parents=True, exist_ok=True)
        session = await nod.store.read(lambda tx: sessions.get(tx, str(receipt.session)))
        await nod.presenter.caught_up(session.id, session.seq)
        moment += 31 * DAY
        keeping = asyncio.create_task(keep(nod.store, nod.settings, lambda: moment))
        async with asyncio.timeout(5):
            while await nod.store.read(lambda tx: sessions.listed(tx, "local")) or folder.exists():
                await asyncio.sleep(0.01)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def test_a_terminal_offers_its_folder_once(tmp_path: Path) -> None:
    def waiting(tx: Tx) -> list[Prompt]:
        return inbox.pending(tx, "local")

    async with app(tmp_path) as nod:
        await nod.offer("main", tmp_path)
        await nod.offer("main", tmp_path)
        (offered,) = await nod.store.read(waiting)
        assert offered.payload["root"] == {"path": str(tmp_path), "writable": False}
        assert (await nod.seat().at("console:main"))[1] == [offered]
        me = await nod.store.read(lambda tx: people.get(tx, "local", people.CONSOLE))
        assert me is not None
        assert me.role == "owner"


def test_a_start_loads_no_sdk_and_no_platform(tmp_path: Path) -> None:
    program = """
import asyncio, os, sys
import bot.cli
from bot import settings
from bot.app import App
async def main():
    async with App(settings.load(), os.environ):
        names = {name.partition(".")[0] for name in tuple(sys.modules)}
        heavy = {"openai", "anthropic", "google", "aisuite", "slack_bolt", "slack_sdk", "telegram",
                 "discord", "aiohttp", "rich", "prompt_toolkit", "pydantic", "psycopg", "pypdf"}
        print(sorted(names & heavy))
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environ(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
