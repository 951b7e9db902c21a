"""`/budget` and `/usage` as people type them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot import cards
from bot.commands.budgets import understood
from bot.commands.table import run
from engine import budgets, people
from engine.budgets import Limits
from engine.errors import NodError
from engine.inbox import Person, Prompt
from engine.store.base import Store, Tx
from tests.fakes.chat import OWNER, Chat, chatting
from tests.fakes.scripted import ScriptedModel
from tests.fakes.surface import MemorySurface

NOW = 1_750_057_320.0  # Mon 16 Jun 2025, 07:02 UTC


@pytest.fixture
async def chat(sqlite_store: Store, tmp_path: Path) -> AsyncIterator[Chat]:
    sqlite_store.queries["t_back"] = "update usage set at = at - 3 * 86400"
    async with chatting(
        sqlite_store, tmp_path, ScriptedModel(), at_work=False, presenting=False, now=lambda: NOW
    ) as made:
        yield made


async def do(
    chat: Chat, line: str, role: str = "owner", by: str = "console", target: str = "console:main"
) -> str:
    name, _, arguments = line.partition(" ")
    context = replace(chat.context, person=Person(id=by, role=role, name=by), target=target)
    return await run(context, name, arguments)


async def called(store: Store, cost: float | None = 0.25, principal: str = "console") -> None:
    row = {"tenant": "local", "session": "s", "principal": principal, "turn": 1, "iteration": 1}
    more = {"purpose": "turn", "model": "openai:gpt-5", "cache_read": 0, "cache_write": 0}
    used = {"input": 900, "output": 100, "cost": cost, "estimated": 0, "at": NOW - 60}
    await store.write(lambda tx: tx.run("usage_add", id=f"u{principal}", **row, **more, **used))


@pytest.mark.parametrize(
    ("said", "limits"),
    [
        pytest.param("$5 a day", Limits(unit="money", period="day", soft=5), id="soft"),
        pytest.param(
            "$1,000.50 a month, stop at $2000",
            Limits(unit="money", period="month", soft=1000.5, hard=2000),
            id="both",
        ),
        pytest.param(
            "5 usd stop at 8 dollars per day",
            Limits(unit="money", period="day", soft=5, hard=8),
            id="stop-first",
        ),
        pytest.param(
            "stop at $0.5 a run", Limits(unit="money", period="run", hard=0.5), id="hard-only"
        ),
        pytest.param(
            "200k tokens each day", Limits(unit="tokens", period="day", soft=2e5), id="thousands"
        ),
        pytest.param(
            "1.5M tokens a month", Limits(unit="tokens", period="month", soft=1.5e6), id="millions"
        ),
        pytest.param("40 calls a day", Limits(unit="calls", period="day", soft=40), id="calls"),
    ],
)
def test_an_amount_is_understood_as_people_say_it(said: str, limits: Limits) -> None:
    assert understood(said) == limits


@pytest.mark.parametrize(
    "said",
    [
        pytest.param("", id="nothing"),
        pytest.param("5 a day", id="no-unit"),
        pytest.param("$5", id="no-period"),
        pytest.param("$5 a year", id="no-such-period"),
        pytest.param("$5 a day, stop at 100 calls", id="two-units"),
        pytest.param("$5 stop at $6 a day stop at $7", id="two-ends"),
        pytest.param("-$5 a day", id="below-zero"),
    ],
)
def test_what_is_not_surely_understood_is_refused_with_examples(said: str) -> None:
    with pytest.raises(NodError, match="Write for example"):
        understood(said)


async def test_a_budget_is_set_listed_changed_and_removed(chat: Chat) -> None:
    await called(chat.store)
    told = await do(chat, "budget all $0.2 a day, stop at $5")
    assert told.startswith("$0.20 a day, stop at $5.00 for everything (b")
    line = await do(chat, "budget")
    assert "everything: $0.20 a day, stop at $5.00 · 2025-06-16: $0.25, used up: turns ask" in line
    again = await do(chat, "budget set all '$0.4' a day")  # as a shell hands it over
    assert again.partition("(")[2] == told.partition("(")[2]  # the same budget, with one limit
    found = await chat.store.read(lambda tx: budgets.listed(tx, "local", OWNER, NOW))
    assert [(each.budget.soft, each.budget.hard, each.used) for each in found] == [
        (0.4, None, 0.25)
    ]
    assert "is removed" in await do(chat, f"budget remove {found[0].budget.id[:6]}")
    assert "There are no budgets" in await do(chat, "budget list")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param("budget $5 a day", "for whom", id="nobody-named"),
        pytest.param("budget @zoe $5 a day", "Nobody is called zoe", id="nobody-known"),
        pytest.param("budget schedule c1 $5 a day", "No schedule", id="no-schedule"),
        pytest.param("budget me $5 a run", "Only a schedule has runs", id="no-runs"),
        pytest.param("budget me $0 a day", "above zero", id="nothing"),
        pytest.param("budget me $5 a day, stop at $4", "stop before it asks", id="end-too-soon"),
        pytest.param("budget remove zzz", "No budget", id="no-budget"),
    ],
)
async def test_a_budget_that_cannot_be_is_refused(chat: Chat, line: str, said: str) -> None:
    with pytest.raises(NodError, match=said):
        await do(chat, line)


async def test_a_member_limits_themselves_and_nobody_else(chat: Chat) -> None:
    await do(chat, "budget me $5 a day", role="member", by="bo")
    for line in ("all $5 a day", "here $5 a day", "console $5 a day"):
        with pytest.raises(NodError, match="not yours"):
            await do(chat, f"budget {line}", role="member", by="bo")
    await do(chat, "budget all $50 a day")
    seen = await do(chat, "budget", role="member", by="bo")
    assert "@bo" in seen and "everything" not in seen
    [own] = [line.split()[0] for line in seen.splitlines()]
    await do(chat, "budget all $60 a day")
    everything = next(
        line.split()[0] for line in (await do(chat, "budget")).splitlines() if "everything" in line
    )
    with pytest.raises(NodError, match="not yours"):
        await do(chat, f"budget remove {everything}", role="member", by="bo")
    await do(chat, f"budget remove {own}", role="member", by="bo")


async def test_what_the_owner_set_for_somebody_is_not_theirs_to_change(chat: Chat) -> None:
    def join(tx: Tx) -> Person:
        person = {"name": "Bo", "role": "member", "by": people.CONSOLE, "now": NOW}
        return people.add_person(tx, "local", "slack", "U2", **person)

    bo = await chat.store.write(join)
    await do(chat, "budget @bo $5 a day")
    with pytest.raises(NodError, match="Somebody else has set"):
        await do(chat, "budget me $50 a day", role="member", by=bo.id)


async def test_a_channel_is_named_here_or_by_its_target(chat: Chat) -> None:
    thread = "slack:T1/C1/17.1"
    assert "for slack:T1/C1 (" in await do(chat, "budget here 20 calls a day", target=thread)
    assert "for discord:G1/C2 (" in await do(chat, "budget discord:G1/C2 20 calls a day")


async def test_a_budget_in_dollars_for_a_model_without_a_price_is_said(chat: Chat) -> None:
    house = chat.context.house
    context = replace(
        chat.context,
        person=OWNER,
        house=replace(house, defaults=replace(house.defaults, model="openai:no-such-model")),
    )
    assert "No price is known" in await run(context, "budget", "me $5 a day")
    assert "No price" not in await run(context, "budget", "me 5 calls a day")
    await called(chat.store, cost=None)
    assert "There are no" not in await do(chat, "budget")


async def test_usage_shows_totals_tables_bars_and_budgets(chat: Chat) -> None:
    await called(chat.store)
    await called(chat.store, cost=None, principal="bo")
    await do(chat, "budget all $5 a day")
    told = await do(chat, "usage")
    for part in (
        "Today, Mon 16 Jun (UTC): 2 calls, 2,000 tokens, $0.25+",
        "June: 2 calls",
        "model, June",
        "person, June",
        "2025-06-16 ████",
        "everything: $5.00 a day",
    ):
        assert part in told
    own = await do(chat, "usage", role="member", by="bo")
    assert "June: 1 call, 1,000 tokens, unknown" in own
    assert "person" not in own and "everything" not in own
    assert "openai:gpt-5" in await do(chat, "usage 7")
    with pytest.raises(NodError, match="number of days"):
        await do(chat, "usage 0")


async def test_small_amounts_are_shown_without_an_exponent(chat: Chat) -> None:
    await called(chat.store, cost=5.6e-05)
    assert "$0.000056" in [await do(chat, "budget me $5 a day"), await do(chat, "budget")][1]
    assert "1 call, 1,000 tokens, under $0.01" in await do(chat, "usage")


async def test_an_apostrophe_in_a_budget_is_no_quote(chat: Chat) -> None:
    with pytest.raises(NodError, match="Nobody is called"):
        await do(chat, "budget set it's $5 a day")


async def test_each_day_since_the_first_call_has_its_bar(chat: Chat) -> None:
    await called(chat.store)
    await chat.store.write(lambda tx: tx.run("t_back"))
    told = await do(chat, "usage")
    bars = [line.split()[0] for line in told.splitlines() if line.startswith("2025-06-")]
    assert bars == ["2025-06-13", "2025-06-14", "2025-06-15", "2025-06-16"]


async def test_usage_is_shown_when_no_chart_can_be_written(chat: Chat) -> None:
    await called(chat.store)

    def meet(tx: Tx) -> None:
        people.join_owner(tx, "local", "memory", "U1", name="ana", now=NOW)
        people.seen_at(tx, "local", "memory", "U1", "memory:T/D1", NOW)

    await chat.store.write(meet)
    (chat.data / "plots").write_text("in the way")
    told = await do(chat, "usage", target="memory:T/C/1")
    assert "June: 1 call" in told and "The chart could not be written" in told


async def test_the_chart_goes_where_the_person_reads_alone(
    sqlite_store: Store, tmp_path: Path
) -> None:
    surface = MemorySurface("memory")
    async with chatting(
        sqlite_store, tmp_path, ScriptedModel(), at_work=False, surfaces=[surface], now=lambda: NOW
    ) as chat:
        await called(chat.store)
        assert "chart" not in await do(chat, "usage", target="memory:T/C/1")

        def meet(tx: Tx) -> None:
            people.join_owner(tx, "local", "memory", "U1", name="ana", now=NOW)
            people.seen_at(tx, "local", "memory", "U1", "memory:T/D1", NOW)

        await chat.store.write(meet)
        assert "A chart comes" in await do(chat, "usage", target="memory:T/C/1")
        async with asyncio.timeout(5):
            async with surface.changed:
                await surface.changed.wait_for(lambda: surface.posted)
        [posted] = surface.posted
        assert (posted.target, posted.shown) == ("memory:T/D1", "What was used, by day.")
        assert posted.files[0].read_bytes().startswith(b"\x89PNG")


def test_the_buttons_say_how_much() -> None:
    asked = {"id": "b1", "extend": "Go on: $1.00 more today", "raise": "Raise it to $4.00 a day"}
    prompt = Prompt(
        id="p1",
        tenant="local",
        session="s",
        kind="grant",
        subject="budget:b1",
        payload={"budget": asked, "title": "A budget is used up"},
    )
    assert [choice.label for choice in cards.choices(prompt).values()] == [
        "Go on: $1.00 more today",
        "Raise it to $4.00 a day",
        "Stop",
    ]
    assert cards.answer_of(prompt, "raise", NOW) == {"kind": "approve", "raise": True}
