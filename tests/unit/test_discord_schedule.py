"""`/schedule` on Discord: by fields or in words, with what is offered while they are typed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bot.board import Page
from bot.surfaces.discord_commands import arguments_of, commands, offers
from engine import people
from engine.schedule import schedules
from engine.schedule.schedules import Schedule
from engine.store.base import Store
from tests.fakes.discord import GUILD, Json
from tests.unit.discord_scene import Scene, labels, scene, words

NOW = 1_750_057_320.0  # Mon 16 Jun 2025, 07:02 UTC
PAGE = Page(
    cards=(),
    more=0,
    sessions=(),
    schedules=("c1a2  0 8 * * *  UTC  next 08:00  Briefing", "c9  once  UTC  next 9:00  Call Bo"),
)


def values(found: list[dict[str, str]]) -> list[str]:
    return [each["value"] for each in found]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"words": "list"}, "list"),
        ({"when": "every day at 9", "instructions": "Look."}, "every day at 9: Look."),
        (
            {"when": "every day at 9", "instructions": "Look.", "report_to": "42"},
            "every day at 9: Look. to <#42>",
        ),
        ({}, ""),
    ],
    ids=["words", "fields", "with-a-channel", "nothing"],
)
def test_fields_become_the_words_they_stand_for(given: dict[str, str], said: str) -> None:
    options = [{"name": name, "value": value} for name, value in given.items()]
    assert arguments_of({"options": options}, lambda id: f"<#{id}>") == said


def test_the_fields_come_before_the_words_and_are_all_optional() -> None:
    (schedule,) = [each for each in commands() if each["name"] == "schedule"]
    names = [each["name"] for each in schedule["options"]]
    assert names == ["when", "instructions", "report_to", "words"]
    assert not any(each.get("required") for each in schedule["options"])


def test_a_time_is_offered_with_what_it_means() -> None:
    (found,) = offers("schedule", "when", "every friday at 16:30", PAGE, NOW)
    assert found["value"] == "every friday at 16:30"
    assert "16:30" in found["name"] and "Friday" in found["name"]


def test_before_anything_is_typed_there_are_examples() -> None:
    found = values(offers("schedule", "when", "", PAGE, NOW))
    assert "every weekday at 8" in found and "in 2 hours" in found
    assert values(offers("schedule", "when", "tomo", PAGE, NOW)) == ["tomorrow 9:00"]
    assert offers("schedule", "when", "whenever you like", PAGE, NOW) == []


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("pa", ["pause"]),
        ("pause ", ["pause c1a2", "pause c9"]),
        ("remove bo", ["remove c9"]),
        ("every day at 9: look", []),
    ],
)
def test_what_can_be_done_is_offered_with_the_schedules_there_are(
    typed: str, offered: list[str]
) -> None:
    assert values(offers("schedule", "words", typed, PAGE, NOW)) == offered


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("", ["zone ", "name #", "mention on", "mention off"]),
        ("zone lisb", ["zone Europe/Lisbon"]),
        ("zone new york", ["zone America/New_York"]),
        ("mention of", ["mention off"]),
        ("name #standup", []),
    ],
)
def test_settings_are_offered_and_time_zones_by_any_part(typed: str, offered: list[str]) -> None:
    assert values(offers("settings", "words", typed, PAGE, NOW)) == offered


def test_no_more_is_offered_than_discord_takes() -> None:
    assert len(offers("settings", "words", "zone ", PAGE, NOW)) == 25


def open_card(at: Scene, place: str, label: str) -> Callable[[], Json | None]:
    def find() -> Json | None:
        found = (e for e in at.fake.of(place) if label in labels(e["components"]))
        return next(found, None)

    return find


async def planned(at: Scene) -> list[Schedule]:
    return await at.chat.store.read(lambda tx: schedules.listed(tx, "local"))


async def test_by_fields_a_schedule_is_proposed_and_confirmed(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with scene(sqlite_store, tmp_path) as at:
        private = at.fake.direct(at.ana)
        standup = at.fake.channel("standup")
        await at.fake.invite(GUILD)  # the new channel is told of
        given = {"when": "every weekday at 8", "instructions": "Brief us.", "report_to": standup}
        asked = await at.fake.command(private, at.ana, "schedule", **given)
        assert "where you are" in await at.told(asked)
        question = await at.fake.until(open_card(at, private, "UTC"))
        await at.fake.press(question, "UTC", at.ana)
        card = await at.fake.until(open_card(at, private, "Confirm"))
        assert "Brief us." in words(card["components"])
        await at.fake.press(card, "Confirm", at.ana)
        await at.decided(card)
        (made,) = await planned(at)
        assert (made.instructions, made.cron) == ("Brief us.", "0 8 * * 1-5")
        assert made.report_to == f"discord:{GUILD}/{standup}"


async def test_times_are_offered_in_the_persons_own_zone(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with scene(sqlite_store, tmp_path) as at:
        (owner,) = await at.chat.store.read(
            lambda tx: [people.person_of(tx, "local", "discord", at.ana["id"])]
        )
        assert owner is not None
        await at.chat.store.write(
            lambda tx: people.set_zone(tx, "local", owner.id, "Asia/Tokyo", NOW)
        )
        private = at.fake.direct(at.ana)
        (found,) = await at.fake.complete(private, at.ana, "schedule", "every day at 6", "when")
        assert "Asia/Tokyo" in found["name"]
        assert await at.fake.complete(private, at.eve, "schedule", "", "when") == []
