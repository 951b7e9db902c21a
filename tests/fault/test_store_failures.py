"""A commit that fails and a disk that is full lose nothing that was acknowledged, and the session
goes on by itself when the store works again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import audit, sessions
from engine.errors import StoreError, StoreFull
from engine.events import Event, Kind
from engine.models.base import Request
from engine.store.base import Store, Tx
from engine.tools.base import Risk
from engine.work import local
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.world import World, probe, running

BATCH = calls(call("look", label="a"), call("put", label="b"))
#: Commits of the turn below, at least: intake, take, intent, end. Failing later ones hits others.
COMMITS = 6


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once; how long a worker waits is not the point here."""
    monkeypatch.setattr(local, "RETRY_FIRST", 0.01)
    monkeypatch.setattr(local, "RETRY_MOST", 0.05)


class Failing:
    """Fails commits `first` to `first + times - 1`, counted from now."""

    def __init__(self, store: Any, first: int, times: int) -> None:
        self._store = store
        self._left = range(first, first + times)
        self._count = 0
        self.failed = 0

    def __call__(self) -> None:
        self._count += 1
        if self._count in self._left:
            self.failed += 1
            raise OSError("the disk went away")

    def __enter__(self) -> Failing:
        self._store.before_commit = self
        return self

    def __exit__(self, *_: object) -> None:
        self._store.before_commit = None


async def _said(world: World, session: str, text: str) -> None:
    """Say it until it is acknowledged, as a platform does."""
    body = {"message": {"role": "user", "content": text}}
    for _ in range(10):
        try:
            await world.post(session, "message", body, key=f"said:{session}")
            return
        except StoreError:
            continue
    raise AssertionError("never acknowledged")


async def _rested(world: World, session: str, log: list[tuple[str, str, str]]) -> list[Event]:
    """Wait until the turn is over, answering what is asked by what happened outside."""
    async with asyncio.timeout(20):
        while True:
            await world.settle()
            row = await world.store.read(lambda tx: sessions.get(tx, session))
            if await _answered(world, session, log):
                continue
            if row.wanted == row.seen and row.worker is None:
                return await world.log(session)
            await asyncio.sleep(0.005)  # the worker's next try


async def _answered(world: World, session: str, log: list[tuple[str, str, str]]) -> bool:
    """Answer whether the call took effect, if that is asked."""
    for prompt in await world.pending(session):
        assert prompt.kind == "outcome"
        await world.answer(prompt, "happened" if ("end", "put", "b") in log else "run")
        return True
    return False


def _proven(facts: list[Event], shown: list[Event], log: list[tuple[str, str, str]]) -> None:
    assert [fact.seq for fact in facts] == list(range(1, len(facts) + 1))
    by_seq = {fact.seq: fact for fact in facts}
    assert all(by_seq.get(fact.seq) == fact for fact in shown if fact.seq), "shown, then lost"
    assert [f.body["status"] for f in facts if f.kind is Kind.TURN_END][-1] == "completed"
    finished = [fact.call for fact in facts if fact.kind is Kind.TOOL_FINISHED]
    assert len(finished) == len(set(finished)) == 2
    assert log.count(("end", "put", "b")) == 1, "an effect happened twice, or never"


def _answer(request: Request) -> Any:
    return "Done." if request.messages[-1]["role"] == "tool" else BATCH


@pytest.mark.parametrize("times", [1, 2, 6])
async def test_a_failed_commit_loses_nothing_that_was_acknowledged(
    store: Store, tmp_path: Path, times: int
) -> None:
    log: list[tuple[str, str, str]] = []
    tools = [probe("look", Risk.READ, log), probe("put", Risk.EXTERNAL, log)]
    async with running(store, tmp_path, ScriptedModel(then=_answer), tools=tools) as world:
        for first in range(1, COMMITS + 1):
            session = await world.open(f"console:{first}", mode="auto")
            log.clear()
            with world.engine.bus.subscribe(session) as seen, Failing(store, first, times) as bad:
                await _said(world, session, "Go.")
                facts = await _rested(world, session, log)
                shown = seen.drain()
            assert bad.failed or first > 4
            _proven(facts, shown, log)
        assert await store.read(lambda tx: audit.verify(tx, "local")) == []


def _pages(store: Any, more: int) -> Callable[[Tx], None]:
    """Return the work that leaves room for `more` pages of 4 KiB."""
    store.queries["t_pages"] = "pragma page_count"

    def work(tx: Tx) -> None:
        row = tx.one("t_pages")
        assert row is not None
        store.queries["t_room"] = f"pragma max_page_count = {row['page_count'] + more}"
        tx.all("t_room")

    return work


async def test_a_full_disk_loses_nothing_and_the_session_goes_on_when_there_is_room(
    sqlite_store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer is larger than what is left; everything before it fits."""
    log: list[tuple[str, str, str]] = []
    store = sqlite_store
    tools = [probe("look", Risk.READ, log), probe("put", Risk.EXTERNAL, log)]
    long = "All of it. " * 20_000

    def step(request: Request) -> Any:
        return long if request.messages[-1]["role"] == "tool" else BATCH

    async with running(store, tmp_path, ScriptedModel(then=step), tools=tools) as world:
        session = await world.open(mode="auto")
        await store.write(_pages(store, 12))
        with world.engine.bus.subscribe(session) as seen:
            await _said(world, session, "Go.")
            async with asyncio.timeout(10):
                while len(caplog.records) < 6:
                    await _answered(world, session, log)
                    await asyncio.sleep(0.005)
            row = await store.read(lambda tx: sessions.get(tx, session))
            assert row.attempts <= 1, "a full disk is no fault of the session"
            await store.write(_pages(store, 100_000))
            facts = await _rested(world, session, log)
            _proven(facts, seen.drain(), log)
        assert facts[-2].body["message"]["content"] == long


async def test_a_message_that_does_not_fit_is_refused_before_it_is_acknowledged(
    sqlite_store: Store, tmp_path: Path
) -> None:
    store = sqlite_store
    async with running(store, tmp_path, ScriptedModel(["Got it."])) as world:
        session = await world.open()
        await store.write(_pages(store, 1))
        with pytest.raises(StoreFull, match="Free some space"):
            await world.say(session, "word " * 10_000)
        await store.write(_pages(store, 1000))
        facts = await world.turn(session, "word " * 10_000)
    assert [fact.body["status"] for fact in facts if fact.kind is Kind.TURN_END] == ["completed"]


async def test_a_session_that_the_store_failed_goes_on_beside_those_at_work(
    sqlite_store: Any, tmp_path: Path
) -> None:
    gate = asyncio.Event()
    held: list[tuple[str, str, str]] = []
    tools = [probe("look", Risk.READ, held, gate)]
    model = ScriptedModel([calls(call("look", label="a"))], then="Done.")
    async with running(sqlite_store, tmp_path, model, tools=tools) as world:
        busy, unlucky = await world.open("console:a"), await world.open("console:b")
        await world.say(busy, "Go")
        async with asyncio.timeout(5):
            while not held:
                await asyncio.sleep(0.005)
        await _said(world, unlucky, "Go")
        with Failing(sqlite_store, 1, 2) as failing:
            async with asyncio.timeout(5):
                while not failing.failed:
                    await asyncio.sleep(0.005)
        async with asyncio.timeout(5):
            while not any(f.kind is Kind.TURN_END for f in await world.log(unlucky)):
                await asyncio.sleep(0.005)
        assert not any(f.kind is Kind.TURN_END for f in await world.log(busy))
        gate.set()
        await world.settle()
