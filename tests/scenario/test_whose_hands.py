"""Whose accounts a turn works with: muted, several, shared, taken back; on both stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from connectors import accounts, gates
from connectors.accounts import Account
from engine import people
from engine.events import Kind
from engine.store.base import Store
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.vendors import notes
from tests.fakes.vendors.desk import TENANT, Desk
from tests.fakes.vendors.desk import opened as desk_at
from tests.fakes.world import World, running

READ = calls(call("notes_read", book="a/b c", number=1))
NOTE = calls(call("notes_add", book="a/b c", text="black tea"))
BO = "u-bo"


@dataclass(slots=True)
class Scene:
    """A world whose tools are those of a service of notes."""

    world: World
    desk: Desk
    model: ScriptedModel

    async def results(self, session: str) -> list[tuple[str, str]]:
        """Return (status, text) of the session's calls."""
        facts = await self.world.log(session)
        done = [fact.body for fact in facts if fact.kind is Kind.TOOL_FINISHED]
        return [(each["status"], each["content"]) for each in done]

    def offered(self, request: int = -1) -> set[str]:
        """Return the connector's tools that a request to the model named."""
        names = {each["function"]["name"] for each in self.model.requests[request].tools}
        return {name for name in names if name.startswith("notes_")}

    async def write(self, work: Any) -> Any:
        return await self.world.store.write(work)

    async def gate(self, scope: str, *, shut: bool) -> None:
        turn = gates.shut if shut else gates.open_again
        await self.write(lambda tx: turn(tx, TENANT, "notes", scope, by="console", now=1.0))

    async def share(self, account: Account, shared: bool) -> None:
        def work(tx: Any) -> None:
            found = accounts.get(tx, account.id)
            assert found is not None
            accounts.share(tx, found, shared, by=found.owner, now=1.0)

        await self.write(work)


@asynccontextmanager
async def scene(store: Store, folder: Path, *steps: Any) -> AsyncIterator[Scene]:
    model = ScriptedModel(list(steps), then="Done.")
    (folder / "desk").mkdir()
    async with (
        notes.Fake() as service,
        desk_at("notes", service, store, folder / "desk") as desk,
        running(store, folder, model, tools=[], hands=desk.connectors.hands) as world,
    ):
        names = desk.tools.group("notes")
        world.engine.tools.replace("notes", [desk.tool(name) for name in names])
        yield Scene(world, desk, model)


@pytest.mark.parametrize(
    "scope",
    ["persona:cowork", "channel:console:main", f"person:{people.CONSOLE}"],
)
async def test_what_is_muted_is_not_offered_and_not_run(
    scope: str, store: Store, tmp_path: Path
) -> None:
    async with scene(store, tmp_path, READ, "Done.", READ) as it:
        await it.desk.connect()
        await it.gate(scope, shut=True)
        session = await it.world.open()
        await it.world.turn(session, "Read it.")
        assert it.offered() == set()
        ((status, text),) = await it.results(session)
        assert status == "denied" and "no tool named" in text
        assert it.desk.service.seen == []

        await it.gate(scope, shut=False)
        await it.world.turn(session, "And now?")
        assert "notes_read" in it.offered()
        assert (await it.results(session))[1][0] == "ok"


async def test_a_call_that_waits_when_its_app_is_muted_does_not_run(
    store: Store, tmp_path: Path
) -> None:
    async with scene(store, tmp_path, NOTE) as it:
        await it.desk.connect()
        session = await it.world.open()
        await it.world.turn(session, "Write it down.")
        (prompt,) = await it.world.pending(session)
        await it.gate("persona:cowork", shut=True)
        await it.world.answer(prompt, "once")
        await it.world.settle()
        ((status, _),) = await it.results(session)
        assert status == "denied"
        assert it.desk.service.acts == []


async def test_elsewhere_a_muted_app_works_as_ever(store: Store, tmp_path: Path) -> None:
    async with scene(store, tmp_path, READ) as it:
        await it.desk.connect()
        await it.gate("channel:console:other", shut=True)
        session = await it.world.open()
        await it.world.turn(session, "Read it.")
        assert [status for status, _ in await it.results(session)] == ["ok"]


async def test_of_several_accounts_the_model_is_told_the_names_and_says_which(
    store: Store, tmp_path: Path
) -> None:
    named = calls(call("notes_read", book="a/b c", number=1, account="home"))
    async with scene(store, tmp_path, READ, named) as it:
        await it.desk.connect("home")
        await it.desk.connect("work")
        session = await it.world.open()
        await it.world.turn(session, "Read it.")
        asked, said = await it.results(session)
        assert asked[0] == "error" and "home, work" in asked[1]
        assert said[0] == "ok"
        assert len(it.desk.service.seen) == 1


async def test_an_account_works_in_sessions_of_others_only_while_it_is_shared(
    store: Store, tmp_path: Path
) -> None:
    async with scene(store, tmp_path, READ, "Done.", READ, "Done.", READ) as it:
        account = await it.desk.connect()
        session = await it.world.open("console:bo", owner=BO)
        for shared in (False, True, False):
            await it.share(account, shared)
            await it.world.turn(session, "Read it.")
            assert ("notes_read" in it.offered()) is shared
        statuses = [status for status, _ in await it.results(session)]
        assert statuses == ["denied", "ok", "denied"]
        assert len(it.desk.service.seen) == 1


async def test_ones_own_account_is_meant_before_one_that_is_shared(
    store: Store, tmp_path: Path
) -> None:
    async with scene(store, tmp_path, READ) as it:
        it.desk.service.tokens = {"token-ana": "ana", "token-bo": "bo"}
        await it.share(await it.desk.connect("ana", "token-ana"), True)
        await it.desk.connect("bo", "token-bo", owner=BO)
        session = await it.world.open("console:bo", owner=BO)
        await it.world.turn(session, "Read it.")
        (seen,) = it.desk.service.seen
        assert seen.headers["Authorization"] == "Bearer token-bo"


async def test_what_was_always_allowed_is_asked_about_again_after_a_disconnect(
    store: Store, tmp_path: Path
) -> None:
    async with scene(store, tmp_path, *[NOTE, "Done."] * 3) as it:
        account = await it.desk.connect()
        session = await it.world.open()
        await it.world.turn(session, "Write it down.")
        (prompt,) = await it.world.pending(session)
        await it.world.answer(prompt, "always", uses=9, expires_at=None)
        await it.world.settle()
        await it.world.turn(session, "Once more.")
        assert await it.world.pending(session) == []
        assert len(it.desk.service.acts) == 2

        ended = await it.write(
            lambda tx: accounts.disconnect(tx, account, by=account.owner, now=1.0)
        )
        await it.desk.connect()
        await it.world.turn(session, "And again.")
        assert ended == 1
        assert len(await it.world.pending(session)) == 1
        assert len(it.desk.service.acts) == 2
