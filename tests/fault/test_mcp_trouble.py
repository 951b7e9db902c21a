"""An MCP server that is killed at any moment, and calls that are given up at any moment."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from connectors.http import Unsure
from connectors.mcp.ports import State
from engine.errors import ToolError
from engine.store.base import Store
from engine.store.opening import open_store
from tests.fakes.mcp_house import McpHouse, fake, house

KILLS, CANCELS = 8, 150


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(str(tmp_path / "nod.db"))
    yield opened
    await opened.close()


def _processes(folder: Path) -> list[psutil.Process]:
    """Return all that runs with a home below the folder."""
    found = []
    for each in psutil.process_iter():
        try:
            home = each.environ().get("HOME", "")
            if home.startswith(str(folder)) and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
        except (psutil.Error, OSError):
            continue
    return found


async def _calling(nod: McpHouse, done: asyncio.Event, told: list[str]) -> None:
    """Call again and again; every call ends, with its sum or with a word on what became of it."""
    number = 0
    while not done.is_set():
        number += 1
        try:
            async with asyncio.timeout(50):
                result = await nod.call("mcp_fake_add", a=number, b=1)
        except (ToolError, Unsure) as error:
            told.append(type(error).__name__)
            await asyncio.sleep(0.01)
        else:
            assert result.text == str(number + 1), "an answer of another call"
            told.append("ok")


@pytest.mark.timeout(180)
async def test_a_server_killed_at_any_moment_is_back_and_every_call_ends(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.mcp.link.PAUSES", (0.05,))
    monkeypatch.setattr("connectors.mcp.link.HURRY", 0.05)
    pick = random.Random(7)
    async with house(store, tmp_path, fake=fake()) as nod:
        await nod.ready()
        done, told = asyncio.Event(), list[str]()
        callers = [asyncio.create_task(_calling(nod, done, told)) for _ in range(4)]
        for _ in range(KILLS):
            await nod.ready()
            await asyncio.sleep(pick.random() * 0.05)
            for each in _processes(tmp_path):
                each.kill()
            await nod.until(lambda: nod.link()._wire is None, 20)
        await nod.ready()
        assert (await nod.call("mcp_fake_add", a=1, b=2)).text == "3"
        done.set()
        await asyncio.gather(*callers)
        assert told.count("ok") > KILLS
    assert not _processes(tmp_path)


@pytest.mark.timeout(120)
async def test_calls_given_up_at_any_moment_leave_the_server_of_use(
    store: Store, tmp_path: Path
) -> None:
    pick = random.Random(11)
    async with house(store, tmp_path, fake=fake()) as nod:
        await nod.ready()
        for number in range(CANCELS):
            name = ("mcp_fake_add", "mcp_fake_slow")[number % 2]
            arguments = {"a": 1, "b": 2} if number % 2 == 0 else {}
            call = asyncio.create_task(nod.call(name, **arguments))
            await asyncio.sleep(pick.random() * 0.004)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        assert nod.state() == State.READY
        results = await asyncio.gather(*(nod.call("mcp_fake_add", a=n, b=n) for n in range(30)))
        assert [each.text for each in results] == [str(2 * n) for n in range(30)]
        assert nod.link()._queued == 0
