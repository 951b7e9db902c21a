"""What comes of a connector by itself: once, to its owner, while somebody waits; on both stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import stamina

from connectors import accounts, gates
from connectors.registry import CONNECTORS, load
from connectors.sources import KEPT, LEASE, TELLING, Sources
from engine import inbox, people, sessions
from engine.schedule import named, subscriptions, wakes
from engine.sessions import Session
from engine.store.base import Store
from tests.contract.later import NOW, due_wakes
from tests.fakes.vendors import github
from tests.fakes.vendors.desk import TENANT, Desk, opened
from tests.fakes.vendors.service import Fault

EVENT = "github-review"
BO = "u-bo"


@dataclass(slots=True)
class Bench:
    """GitHub, an account there, and what looks at it, at a time of our own."""

    desk: Desk
    service: github.Fake
    folder: Path
    clock: list[float] = field(default_factory=lambda: [NOW])
    events: list[float] = field(default_factory=list)

    @property
    def store(self) -> Store:
        return self.desk.store

    def sources(self, store: Any = None) -> Sources:
        """Another process that looks."""
        return Sources(
            store=store or self.store,
            connectors=self.desk.connectors,
            now=lambda: self.clock[0],
            tenant=TENANT,
            on_event=lambda: self.events.append(self.clock[0]),
        )

    async def look(self, after: float = 121.0) -> float | None:
        """Look once, some seconds later."""
        self.clock[0] += after
        return await self.sources().look()

    async def session(self, home: str = "console:main", owner: str = people.CONSOLE) -> Session:
        def work(tx: Any) -> Session:
            made = sessions.open_session(
                tx,
                tenant=TENANT,
                home=home,
                owner=owner,
                origin="person",
                persona="cowork",
                model="practice:test",
                mode="interactive",
                data=self.folder,
                now=NOW,
                route=False,
            )
            return sessions.get(tx, made)

        return await self.store.write(work)

    async def wait(self, session: Session, event: str = EVENT) -> str:
        """Let the session be woken when the event comes."""
        work = partial(wakes.add_on, session=session, event=event, note="look", now=self.clock[0])
        return await self.store.write(lambda tx: work(tx))

    async def watch(self, session: Session) -> str:
        found = await self.store.write(
            lambda tx: subscriptions.add(
                tx,
                session=session,
                source=f"event:{EVENT}",
                task="tell me",
                any_of=(),
                all_of=(),
                window=10.0,
                now=NOW,
            )
        )
        return found.id

    async def heard(self, watch: str) -> int:
        row = await self.store.read(lambda tx: tx.one("watched_count", watch=watch))
        assert row is not None
        return int(row["n"])

    async def woken(self) -> list[str]:
        return await due_wakes(self.store, self.clock[0])

    async def notices(self) -> list[str]:
        """Return the texts of what somebody is told."""
        found = await self.store.read(lambda tx: inbox.pending(tx, TENANT))
        return [str(each.payload) for each in found if each.kind == "notice"]

    async def rows(self) -> list[Any]:
        return list(await self.store.read(lambda tx: tx.all("sources_listed", tenant=TENANT)))

    @property
    def asked(self) -> int:
        return len(self.service.seen)


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    """Nothing is waited for between two tries."""
    stamina.set_testing(True, attempts=2, cap=True)
    yield
    stamina.set_testing(False)


@pytest.fixture
async def bench(store: Store, tmp_path: Path) -> AsyncIterator[Bench]:
    async with github.Fake() as service, opened("github", service, store, tmp_path) as desk:
        await desk.connect()
        yield Bench(desk, service, tmp_path)


@pytest.mark.parametrize("name", CONNECTORS)
def test_the_catalogue_names_the_sources_that_are_declared(name: str) -> None:
    assert CONNECTORS[name].sources == tuple(each.name for each in load(name).sources)


# -- once


async def test_the_first_look_is_where_it_begins_and_what_is_new_comes_once(bench: Bench) -> None:
    mine = await bench.wait(await bench.session())
    assert await bench.look() == bench.clock[0] + 120
    assert await bench.woken() == [], "what waited before is no event"

    bench.service.ask_review(8, "Faster start")
    await bench.look(60)
    assert bench.asked == 1, "it is looked at no sooner than it says"
    await bench.look(61)
    assert await bench.woken() == [mine] and len(bench.events) == 1
    came = await bench.store.read(lambda tx: named.since(tx, TENANT, EVENT, NOW, people.CONSOLE))
    assert came is not None and "Faster start" in came.payload
    assert came.source == "connector:github" and came.taint == "github:event"

    await bench.wait(await bench.session("console:two"))
    await bench.look()
    assert await bench.woken() == [mine], "it is not new any more"


async def test_one_that_is_asked_for_again_is_new_again(bench: Bench) -> None:
    watch = await bench.watch(await bench.session())
    for waiting, at, heard in (
        ([2], "", 0),
        ([], "", 0),
        ([2], "2026-03-03T08:00:00Z", 1),
        ([2], "2026-03-04T08:00:00Z", 1),
    ):
        bench.service.waiting = list(waiting)
        bench.service.issues[2]["updated_at"] = at or bench.service.issues[2]["updated_at"]
        await bench.look()
        assert await bench.heard(watch) == heard


class Killed(BaseException):
    """The process ends."""


@dataclass(slots=True)
class Dying:
    """A store whose process is killed at its nth write, before or after it takes effect."""

    store: Store
    at: int
    after: bool

    async def read(self, work: Any) -> Any:
        return await self.store.read(work)

    async def write(self, work: Any) -> Any:
        self.at -= 1
        if self.at == 0 and not self.after:
            raise Killed
        value = await self.store.write(work)
        if self.at == 0:
            raise Killed
        return value


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, 2], ids=["it-looks", "what-it-saw-is-kept"])
async def test_a_crash_neither_loses_nor_doubles(bench: Bench, at: int, after: bool) -> None:
    watch = await bench.watch(await bench.session())
    await bench.look()
    bench.service.ask_review(8, "Faster start")
    bench.clock[0] += 121
    with pytest.raises(Killed):
        await bench.sources(Dying(bench.store, at, after)).look()
    for _ in range(3):
        await bench.look(LEASE)
    assert await bench.heard(watch) == 1


async def test_of_two_processes_one_looks(bench: Bench) -> None:
    watch = await bench.watch(await bench.session())
    await asyncio.gather(bench.sources().look(), bench.sources().look())
    assert bench.asked == 1
    bench.service.ask_review(8, "Faster start")
    bench.clock[0] += 121
    await asyncio.gather(*(bench.sources().look() for _ in range(3)))
    assert bench.asked == 2 and await bench.heard(watch) == 1


# -- only what is waited for


async def test_where_nobody_waits_nobody_looks(bench: Bench) -> None:
    session = await bench.session()
    await bench.wait(session, "deploy-done")
    assert await bench.look() is None and bench.asked == 0
    wake = await bench.wait(session)
    await bench.look()
    assert bench.asked == 1
    await bench.store.write(
        lambda tx: wakes.cancel(tx, wakes.find(tx, TENANT, wake), "console", bench.clock[0])
    )
    assert await bench.look() is None and bench.asked == 1


async def test_who_waits_again_soon_misses_nothing_and_later_begins_anew(bench: Bench) -> None:
    session = await bench.session()
    watch = await bench.watch(session)
    await bench.look()

    async def switch(active: bool) -> None:
        found = await bench.store.read(lambda tx: subscriptions.get(tx, watch))
        await bench.store.write(lambda tx: subscriptions.switch(tx, found, active, "c", NOW))

    for pause, number, heard in ((KEPT - 200, 8, 1), (2 * KEPT, 9, 0)):
        await switch(False)
        bench.service.ask_review(number, f"Change {number}")
        await bench.look(pause)
        await switch(True)
        await bench.look(1)
        assert await bench.heard(watch) == heard


@pytest.mark.parametrize("scope", ["person:console", "channel:console", "persona:cowork"])
async def test_where_it_is_off_nothing_is_looked_at(bench: Bench, scope: str) -> None:
    session = await bench.session("console:main/1")
    await bench.wait(session)
    home = session.home.partition("/")[0]
    scope = f"channel:{home}" if scope.startswith("channel") else scope
    await bench.store.write(lambda tx: gates.shut(tx, TENANT, "github", scope, by="c", now=NOW))
    await bench.look()
    assert bench.asked == 0


async def test_of_two_sessions_only_the_one_where_it_is_on_gets_it(bench: Bench) -> None:
    muted, heard = await bench.session("console:a"), await bench.session("console:b")
    await bench.wait(muted)
    wake = await bench.wait(heard)
    await bench.store.write(
        lambda tx: gates.shut(tx, TENANT, "github", "channel:console:a", by="c", now=NOW)
    )
    await bench.look()
    bench.service.ask_review(8, "Faster start")
    await bench.look()
    assert await bench.woken() == [wake]


# -- whose it is


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
async def test_in_sessions_of_others_nothing_comes(bench: Bench, shared: bool) -> None:
    (account,) = await bench.store.read(lambda tx: accounts.listed(tx, TENANT))
    await bench.store.write(
        lambda tx: accounts.share(tx, account, shared, by=account.owner, now=NOW)
    )
    other = await bench.session("console:bo", BO)
    await bench.wait(other)
    watch = await bench.watch(other)
    await bench.look()
    assert bench.asked == 0, "an account is not looked at for others"

    mine = await bench.wait(await bench.session())
    await bench.look()
    bench.service.ask_review(8, "Faster start")
    await bench.look()
    assert await bench.woken() == [mine] and await bench.heard(watch) == 0
    late = await bench.store.write(
        lambda tx: wakes.add_on(tx, other, EVENT, "look", bench.clock[0], since=NOW)
    )
    assert late not in await bench.woken(), "nor what came since their turn began"


# -- what fails


async def test_a_refused_account_is_told_once_and_left_alone_until_it_is_connected_again(
    bench: Bench,
) -> None:
    watch = await bench.watch(await bench.session())
    await bench.look()
    bench.service.tokens.clear()
    for _ in range(4):
        await bench.look()
    (notice,) = await bench.notices()
    assert "/connect github" in notice and EVENT in notice
    asked = bench.asked
    assert await bench.look(86_400) is None and bench.asked == asked

    bench.service.ask_review(8, "Faster start")
    bench.service.tokens["token-2"] = "ana"
    await bench.desk.connect(token="token-2")
    await bench.look(1)
    assert await bench.heard(watch) == 1, "what came meanwhile is not lost"
    bench.service.tokens.clear()
    await bench.look()
    assert len(await bench.notices()) == 2, "the next time it is told again"


async def test_one_that_was_refused_elsewhere_is_told_too(bench: Bench) -> None:
    await bench.watch(await bench.session())
    (account,) = await bench.store.read(lambda tx: accounts.listed(tx, TENANT))
    await bench.store.write(lambda tx: accounts.mark(tx, account, "revoked", NOW))
    for _ in range(3):
        await bench.look()
    assert len(await bench.notices()) == 1 and bench.asked == 0


async def test_failures_are_tried_again_ever_later_and_told_once(bench: Bench) -> None:
    await bench.watch(await bench.session())
    waits = []
    for _ in range(TELLING + 2):
        bench.service.fail(Fault(status=500), Fault(status=500))
        at = await bench.look(0)
        assert at is not None
        waits.append(at - bench.clock[0])
        bench.clock[0] = at
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert len(await bench.notices()) == 1
    bench.service.faults.clear()
    await bench.look(1)
    assert (await bench.rows())[0]["failures"] == 0


@pytest.mark.parametrize(
    ("asked", "wait"),
    [
        pytest.param("7200", 7_200, id="hours"),
        pytest.param("40", 60, id="less-than-we-wait-anyway"),
        pytest.param("99999999", 86_400, id="years"),
    ],
)
async def test_a_service_that_asks_to_wait_is_not_asked_sooner(
    bench: Bench, asked: str, wait: int
) -> None:
    await bench.watch(await bench.session())
    bench.service.fail(Fault(status=429, headers={"Retry-After": asked}))
    assert await bench.look(0) == bench.clock[0] + wait
    await bench.look(wait - 1)
    assert bench.asked == 1


async def test_what_is_disconnected_while_it_is_looked_at_brings_nothing(bench: Bench) -> None:
    watch = await bench.watch(await bench.session())
    await bench.look()
    bench.service.ask_review(8, "Faster start")
    bench.clock[0] += 121
    (account,) = await bench.store.read(lambda tx: accounts.listed(tx, TENANT))

    @dataclass(slots=True)
    class Meanwhile(Dying):
        async def write(self, work: Any) -> Any:
            self.at -= 1
            if self.at == 0:
                await self.store.write(
                    lambda tx: accounts.disconnect(tx, account, by=account.owner, now=NOW)
                )
            return await self.store.write(work)

    await bench.sources(Meanwhile(bench.store, 2, False)).look()
    assert await bench.heard(watch) == 0 and await bench.rows() == []


# -- at work


async def test_it_looks_by_itself_and_at_once_when_somebody_begins_to_wait(bench: Bench) -> None:
    async with bench.sources() as sources:
        await bench.wait(await bench.session())
        sources.nudge()
        async with asyncio.timeout(10):
            while not bench.asked:
                await asyncio.sleep(0.01)
