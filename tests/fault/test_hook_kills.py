"""Nod as it ships, killed right after a hook was called: what it answered for happens, once."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from engine import people, sessions
from engine.clock import system_now
from engine.inbox import Person
from engine.schedule import promises, schedules, subscriptions, wakes
from engine.schedule.words import When
from engine.store.base import Store, Tx
from engine.store.opening import open_store
from tests.fakes.house import House, housed
from tests.fakes.jobs import until
from tests.fakes.llm import FakeLLM
from tests.fakes.llm_rules import Reply

EVENT = "deploy-done"
PATIENCE = 30.0  # seconds


def a_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[tuple[House, FakeLLM, int]]:
    port = a_port()
    async with housed(tmp_path, {"NOD_WEB_PORT": str(port)}, ["no such secret"]) as (house, model):
        model.replies = [Reply(text="Seen.")] * 9
        yield house, model, port


class Kept:
    """The store of a house that stands still."""

    def __init__(self, house: House) -> None:
        self._path = house.data / "nod.db"

    async def __aenter__(self) -> Store:
        self._store = await open_store(f"sqlite:///{self._path}")
        return self._store

    async def __aexit__(self, *_: object) -> None:
        await self._store.close()


def everything(tx: Tx, data: Path, now: float) -> None:
    """Make one of each that waits for the event."""
    people.seed_console(tx, "local", now)
    session = sessions.open_session(
        tx,
        tenant="local",
        home="console:main",
        owner=people.CONSOLE,
        origin="person",
        persona="cowork",
        model="openai:gpt-5",
        mode="interactive",
        data=data,
        now=now,
    )
    wakes.add_on(tx, sessions.get(tx, session), EVENT, "look", now)
    given: dict[str, Any] = {
        "tenant": "local",
        "owner": people.CONSOLE,
        "home": "console:main",
        "persona": "cowork",
        "model": "openai:gpt-5",
    }
    schedules.add(
        tx,
        **given,
        title="Dashboards",
        when=When(zone="UTC", cron=f"@event {EVENT}"),
        instructions="Check them.",
        now=now,
    )
    asked = promises.Asked(**given, source=f"event:{EVENT}", task="Say so.", window=10.0)
    prompt = promises.ask_watch(tx, asked, now)
    promises.keep(tx, prompt, Person(id=people.CONSOLE, role="owner"), now, data=data)


async def call(port: int, token: str) -> int:
    url = f"http://127.0.0.1:{port}/hooks/{token}"
    headers = {"Idempotency-Key": "run 7"}
    async with ClientSession() as client, client.post(url, data="{}", headers=headers) as got:
        return got.status


async def test_what_a_hook_was_answered_for_happens_once_through_kills(
    at: tuple[House, FakeLLM, int],
) -> None:
    house, model, port = at
    await house.start()
    await house.kill()
    async with Kept(house) as store:
        await store.write(lambda tx: everything(tx, house.data, system_now()))
    await house.start()
    made = await house.run("hook", "add", EVENT)
    token = made.partition("/hooks/")[2].partition("`")[0]
    assert await call(port, token) == 202
    await house.kill()  # whatever it had begun by then
    await house.start()
    assert await call(port, token) == 200  # the sender asks again: it is known
    await house.kill()
    async with Kept(house) as store:  # what gathers for ten seconds is due now
        await store.write(lambda tx: tx.run("watch_later", id=_watch(tx), due=system_now() - 1))
    await house.start()
    await until(lambda: len(model.seen) >= 3, PATIENCE)
    await house.kill()
    async with Kept(house) as store:
        store.queries["t_mail"] = "select * from mailbox where kind in ('fire', 'wake')"  # type: ignore[attr-defined]
        mail = await store.read(lambda tx: tx.all("t_mail"))
        assert sorted(row["kind"] for row in mail) == ["fire", "wake", "wake"]
        assert len({row["session_id"] for row in mail}) == 3


def _watch(tx: Tx) -> str:
    [watch] = subscriptions.listed(tx, "local")
    return watch.id
