"""The daily digest: what it tells, when it comes, that it comes once, and how it is switched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from bot import pairing
from bot.commands.table import run
from bot.outbound import digest
from bot.surfaces.base import Author, Said
from engine import inbox, people
from engine.errors import NodError
from engine.inbox import Person, Prompt
from engine.models.base import Answer, ModelRefused, Usage
from engine.schedule import digests, fires, schedules
from engine.schedule.alarm import Alarm
from engine.schedule.words import When
from engine.store.base import Store, Tx
from tests.fakes.chat import OWNER, Chat, chatting
from tests.fakes.scripted import ScriptedModel
from tests.fakes.surface import MemorySurface

BERLIN = "Europe/Berlin"
NOON = datetime(2026, 3, 28, 12, tzinfo=ZoneInfo(BERLIN)).timestamp()  # the day before the clocks
HOUR, DAY = 3600.0, 86_400.0
HOME = "memory:T/D1"


class Clock:
    def __init__(self) -> None:
        self.at = NOON

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@asynccontextmanager
async def digesting(
    store: Store, data: Path, model: ScriptedModel, clock: Callable[[], float]
) -> AsyncIterator[tuple[Chat, MemorySurface]]:
    """A Nod whose owner reads alone in HOME, and gets a digest."""
    surface = MemorySurface("memory")

    def meet(tx: Tx) -> None:
        people.join_owner(tx, "local", "memory", "U1", name="ana", now=clock())
        people.seen_at(tx, "local", "memory", "U1", HOME, clock())
        digests.begin(tx, "local", people.CONSOLE, BERLIN, clock())

    async with chatting(store, data, model, surfaces=[surface], now=clock) as chat:
        await store.write(meet)
        yield chat, surface


def alarm(chat: Chat, clock: Callable[[], float]) -> Alarm:
    return Alarm(
        store=chat.store,
        now=clock,
        tenant="local",
        data=chat.data,
        on_wake=chat.world.dispatcher.enqueue,
        on_prompts=lambda prompts: chat.presenter.poke(),
        digest=partial(
            digest.post,
            tenant="local",
            place=lambda tx, who: chat.stage.private(tx, who) or "console:main",
        ),
    )


async def posted(surface: MemorySurface, number: int) -> list[str]:
    async with asyncio.timeout(5), surface.changed:
        await surface.changed.wait_for(lambda: len(surface.posted) >= number)
    return [each.shown for each in surface.posted]


async def read_in(surface: MemorySurface, place: str, *beginnings: str) -> dict[str, str]:
    """Wait until messages that hold these words are in `place`; return each."""

    def found() -> dict[str, str]:
        texts = [each.shown for each in surface.posted if each.target == place]
        return {each: text for each in beginnings for text in texts if each in text}

    async with asyncio.timeout(5), surface.changed:
        await surface.changed.wait_for(lambda: len(found()) == len(beginnings))
    return found()


def evening(days: int = 0) -> float:
    return datetime(2026, 3, 28 + days, 18, tzinfo=ZoneInfo(BERLIN)).timestamp()


async def next_at(store: Store) -> float | None:
    found = await store.read(lambda tx: digests.get(tx, "local", people.CONSOLE))
    return None if found is None else found.next_at


def planned(tx: Tx) -> str:
    return schedules.add(
        tx,
        tenant="local",
        owner=people.CONSOLE,
        title="Briefing",
        when=When(zone=BERLIN, cron="0 8 * * *"),
        instructions="Brief us.",
        home="console:main",
        persona="cowork",
        model="practice:test",
        now=NOON,
    ).id


async def test_the_digest_tells_what_ran_waits_failed_and_cost(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    said = Answer(text="Done.", model="practice:test", cost=0.25, usage=Usage(input=90, output=10))
    model = ScriptedModel([said, ModelRefused("It will not."), said])
    async with digesting(store, tmp_path, model, clock) as (chat, surface):
        schedule = await store.write(planned)
        for _ in range(2):
            fired = await store.write(
                lambda tx: fires.run_now(tx, schedule, clock(), data=tmp_path)
            )
            chat.world.dispatcher.enqueue(str(fired.session))
            await chat.world.settle()
            clock.at += 60
        thread = await chat.world.open("memory:T/C/1")
        await chat.world.turn(thread, "Hi")
        asked = Prompt(
            id="pask",
            tenant="local",
            session=thread,
            kind="grant",
            subject="x",
            payload={"title": "May I?"},
            approvers={"role": "owner"},
            created_at=clock() - 3 * HOUR,
            deadline=clock() + DAY,
        )
        await store.write(lambda tx: inbox.ask(tx, asked))
        await do(chat, "budget all 2 calls a day")
        clock.at = evening()
        await alarm(chat, clock).ring()
        alone = await read_in(surface, HOME, "What Nod did", "**May I?**")
        told = alone["What Nod did"]
        for part in (
            "What Nod did until Saturday, 28 March, 18:00",
            "- Briefing: 1 completed, 1 failed, $0.25",
            "- 1 turn in 1 conversation",
            "May I?, for 9 h: `/inbox pask`",
            "- Briefing, Sat 28 Mar 2026, 12:01: failed, it ended with an error",
            "- practice:test: 3 calls",
            "- Used up: 2 calls a day for everything",
        ):
            assert part in told
        assert "**May I?**" not in told  # its card is a message of its own, to be pressed
        assert await next_at(store) == evening(1) == evening() + DAY - HOUR


async def test_with_nothing_to_say_nothing_is_posted(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    async with digesting(store, tmp_path, ScriptedModel(["Hello."]), clock) as (chat, surface):
        clock.at = evening()
        await alarm(chat, clock).ring()
        assert await next_at(store) == evening(1)
        await chat.world.turn(await chat.world.open(), "Hi")
        clock.at = evening(1)
        await alarm(chat, clock).ring()
        assert len(await posted(surface, 1)) == 1


async def test_two_processes_and_a_late_start_post_it_once(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    async with digesting(store, tmp_path, ScriptedModel(["Hello."]), clock) as (chat, surface):
        await chat.world.turn(await chat.world.open(), "Hi")
        clock.at = evening(2) + HOUR  # two evenings passed while nothing was at work
        rung = [alarm(chat, clock) for _ in range(3)]
        await asyncio.gather(*(each.ring() for each in rung))
        for each in rung:
            await each.ring()
        assert len(await posted(surface, 1)) == 1
        assert await next_at(store) == evening(3)
        async with asyncio.timeout(5):
            page = {"tenant": "local", "after_at": 0.0, "after": "", "limit": 9}
            while await chat.rows("deliveries_open", **page):
                await asyncio.sleep(0.01)
        assert len(surface.posted) == 1


async def test_a_digest_moved_to_later_on_its_day_is_told_too(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    model = ScriptedModel(["Hello.", "And again."])
    async with digesting(store, tmp_path, model, clock) as (chat, surface):
        session = await chat.world.open()
        await chat.world.turn(session, "Hi")
        clock.at = evening()
        await alarm(chat, clock).ring()
        await posted(surface, 1)
        await do(chat, "digest at 19:00")  # in the zone of the house: two hours later
        await chat.world.turn(session, "Hi again")
        clock.at = evening() + 2 * HOUR
        await alarm(chat, clock).ring()
        assert "1 turn in 1 conversation" in (await posted(surface, 2))[1]


async def test_an_owner_who_is_none_any_more_is_told_nothing(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    async with digesting(store, tmp_path, ScriptedModel(["Hello."]), clock) as (chat, surface):
        await chat.world.turn(await chat.world.open(), "Hi")
        role = {"by": "clock", "now": clock()}
        await store.write(lambda tx: people.set_role(tx, "local", people.CONSOLE, "member", **role))
        clock.at = evening()
        await alarm(chat, clock).ring()
        assert surface.posted == []


async def test_pairing_begins_the_digest(sqlite_store: Store, tmp_path: Path, clock: Clock) -> None:
    surface = MemorySurface("slack")
    async with chatting(
        sqlite_store, tmp_path, ScriptedModel(), surfaces=[surface], now=clock
    ) as chat:
        code = await sqlite_store.write(lambda tx: pairing.offer(tx, "local", clock()))
        said = Said(
            event="e1",
            target="slack:T1/D1",
            person=Author(id="T1/U1", name="ana"),
            text=code,
            direct=True,
        )
        assert "We are paired" in (await chat.take(said)).text
        found = await sqlite_store.read(lambda tx: digests.get(tx, "local", people.CONSOLE))
        assert found is not None and (found.minute, found.zone) == (18 * 60, "UTC")


async def do(chat: Chat, line: str, who: Person = OWNER) -> str:
    name, _, arguments = line.partition(" ")
    return await run(replace(chat.context, person=who), name, arguments)


async def test_the_digest_is_switched_and_shown_by_command(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    async with digesting(store, tmp_path, ScriptedModel(["Hello."]), clock) as (chat, _):
        assert f"daily at 18:00 ({BERLIN}), next Sat 28 Mar 2026, 18:00" in await do(chat, "digest")
        assert "There is nothing to tell" in await do(chat, "digest now")
        await chat.world.turn(await chat.world.open(), "Hi")
        clock.at += 1
        assert "1 turn in 1 conversation" in await do(chat, "digest now")
        await do(chat, "settings zone Asia/Kolkata")
        assert "at 18:00 (Asia/Kolkata), next Sat 28 Mar 2026, 18:00" in await do(chat, "digest")
        for line, at in (("at 7:30", "07:30"), ("at 8", "08:00"), ("6 pm", "18:00")):
            assert f"daily at {at}" in await do(chat, f"digest {line}")
        assert "no daily digest" in await do(chat, "digest off")
        assert await next_at(store) is None
        await store.write(lambda tx: digests.begin(tx, "local", people.CONSOLE, BERLIN, NOON))
        assert await next_at(store) is None  # who switched it off is not begun with again
        for line, said in (("at 25:00", "no time of day"), ("soon", "was not understood")):
            with pytest.raises(NodError, match=said):
                await do(chat, f"digest {line}")
        with pytest.raises(NodError, match="needs the role owner"):
            await do(chat, "digest off", Person(id="bo", role="member", name="bo"))


async def test_a_long_day_is_cut_with_a_count() -> None:
    runs = [
        digests.Run(title=f"S{n}", status="skipped", note="x" * 500, session=None, due=0, cost=0)
        for n in range(20)
    ]
    told = digest.text(digests.Told(since=0, until=DAY, runs=runs), "UTC")
    assert told.count("… and 12 more") == 2
    assert "1 turn" not in told and len(told) < 4_000
