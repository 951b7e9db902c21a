"""A schedule of somebody whose time zone nobody knows: asked once, and nothing is typed again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bot.commands.table import run
from bot.commands.zones import proposal
from engine import inbox, people
from engine.errors import NodError, ScheduleError
from engine.inbox import Person, Prompt
from engine.store.base import Store
from tests.fakes.chat import Chat, chatting
from tests.fakes.scripted import ScriptedModel
from tests.unit import test_slack_house
from tests.unit.test_telegram_house import ANA, scene

NOW = 1_750_057_320.0  # Mon 16 Jun 2025, 07:02 UTC
PLACE = "telegram:1/2"
HOUR = 3600.0


@pytest.fixture
async def chat(sqlite_store: Store, tmp_path: Path) -> AsyncIterator[Chat]:
    async with chatting(
        sqlite_store, tmp_path, ScriptedModel(), at_work=False, presenting=False, now=lambda: NOW
    ) as made:
        yield made


async def do(chat: Chat, line: str, target: str = PLACE, by: str = "bo") -> str:
    name, _, arguments = line.partition(" ")
    person = Person(id=by, role="operator", name=by)
    return await run(replace(chat.context, person=person, target=target), name, arguments)


async def cards(chat: Chat) -> list[Prompt]:
    return await chat.store.read(lambda tx: inbox.pending(tx, "local"))


async def zone(chat: Chat, who: str = "bo") -> str:
    return await chat.store.read(lambda tx: people.zone_of(tx, "local", who))


async def test_it_is_asked_once_and_the_schedule_follows_from_the_answer(chat: Chat) -> None:
    assert "where you are" in await do(chat, "schedule every weekday at 8: Brief us. to here")
    (asked,) = await cards(chat)
    assert asked.kind == "question" and "Lisbon" in str(asked.payload["questions"])
    await do(chat, f"answer {asked.id} Europe/Berlin")
    assert await zone(chat) == "Europe/Berlin"
    (proposed,) = await cards(chat)
    assert proposed.payload["arguments"]["zone"] == "Europe/Berlin"
    assert proposed.payload["arguments"]["instructions"] == "Brief us."
    assert proposed.payload["schedule"]["owner"] == "bo"
    (row,) = await chat.rows("deliveries_of", tenant="local", subject=f"prompt:{proposed.id}")
    assert row["destination"] == PLACE

    await do(chat, "schedule every day at 9: And this.")
    assert [each.kind for each in await cards(chat)] == ["grant", "grant"], "not asked again"


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("Lisbon", "Europe/Lisbon"),
        ("new york", "America/New_York"),
        ("europe/berlin", "Europe/Berlin"),
        ("UTC", "UTC"),
    ],
)
async def test_a_city_or_a_name_is_enough(chat: Chat, words: str, known: str) -> None:
    await do(chat, "schedule tomorrow 17:30: call Bo")
    (asked,) = await cards(chat)
    await do(chat, f"answer {asked.id} {words}")
    assert await zone(chat) == known


async def test_what_is_no_zone_is_told_and_the_question_stays(chat: Chat) -> None:
    await do(chat, "schedule tomorrow 17:30: call Bo")
    (asked,) = await cards(chat)
    with pytest.raises(NodError, match="no time zone 'Mars/Base'"):
        await do(chat, f"answer {asked.id} Mars/Base")
    assert [each.id for each in await cards(chat)] == [asked.id]
    assert await zone(chat) == ""


@pytest.mark.parametrize(
    "when", ["in 2 hours", "every day at 9 Europe/Berlin", "every 10 minutes", "every hour"]
)
async def test_what_means_the_same_everywhere_is_not_asked_about(chat: Chat, when: str) -> None:
    await do(chat, f"schedule {when}: look")
    assert [each.kind for each in await cards(chat)] == ["grant"]


async def test_a_time_that_is_past_here_may_be_ahead_where_the_person_is(chat: Chat) -> None:
    await do(chat, "schedule today 6:00: look")  # 07:02 in UTC
    (asked,) = await cards(chat)
    await do(chat, f"answer {asked.id} America/New_York")
    (proposed,) = await cards(chat)
    assert proposed.payload["schedule"]["once"] == 1_750_068_000.0  # 10:00 UTC


async def test_whoever_sits_at_the_console_is_where_nod_is(chat: Chat) -> None:
    await do(chat, "schedule every day at 9: look", target="console:main", by="console")
    assert [each.kind for each in await cards(chat)] == ["grant"]


async def test_what_is_no_time_is_said_before_anybody_is_asked(chat: Chat) -> None:
    await do(chat, "schedule whenever you like: look")
    assert [each.kind for each in await cards(chat)] == ["grant"]
    assert "zoned" not in (await cards(chat))[0].payload


async def test_zones_of_others_are_offered(chat: Chat) -> None:
    def said(tx: Any) -> None:
        for who, where in [("a", "Asia/Tokyo"), ("b", "Asia/Tokyo"), ("c", "Europe/Oslo")]:
            people.set_zone(tx, "local", who, where, NOW)

    await chat.store.write(said)
    await do(chat, "schedule every day at 9: look")
    (asked,) = await cards(chat)
    options = asked.payload["questions"][0]["options"]
    assert [each["label"] for each in options] == ["UTC", "Asia/Tokyo", "Europe/Oslo"]
    assert options[1]["description"] == "16:02 now"


async def test_on_telegram_it_is_one_press(sqlite_store: Store, tmp_path: Path) -> None:
    async with scene(sqlite_store, tmp_path, ScriptedModel()) as at:
        await at.fake.say(ANA, ANA, "/schedule every weekday at 8: morning briefing")
        question = await at.card(ANA)
        assert "Where are you?" in question.text
        await at.pressed(question, "UTC", ANA)
        await at.shown(ANA, "Schedule this?")
        await at.fake.until(lambda: not question.buttons)
        card = await at.card(ANA)
        await at.pressed(card, "Confirm", ANA)
        await at.fake.until(lambda: not card.buttons)


async def test_on_slack_the_profile_tells_and_nobody_is_asked(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with test_slack_house.scene(sqlite_store, tmp_path, ScriptedModel()) as at:
        at.fake.teams["T1"].zones["UANA"] = "Asia/Tokyo"
        await at.fake.command("schedule every weekday at 8: morning briefing", channel="DM")
        card = await at.shown("Schedule this?", "DANA")
        assert "Asia/Tokyo" in str(card.blocks) and "Where are you?" not in str(at.nods("DANA"))


def test_tomorrow_is_the_day_after_it_was_typed_also_when_answered_later() -> None:
    said = {"when": "tomorrow 17:30", "at": str(NOW), "task": "go", "report_to": "", "by": "bo"}
    said |= {"target": PLACE, "persona": "cowork", "model": "practice:test"}
    asked = partial(proposal, "local", said, "UTC")
    assert str(asked(NOW + 20 * HOUR).when) == "Once, Tue 17 Jun 2025, 17:30 (UTC)"
    with pytest.raises(ScheduleError, match="past by now"):
        asked(NOW + 40 * HOUR)
