"""What both Telegram and Discord owe their people, tried on each: what fails, and what is large."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.inbound import routing
from bot.surfaces.discord import DiscordSurface
from bot.surfaces.telegram import TelegramSurface
from engine.models.base import Answer, Delta, Request
from engine.store.base import Store
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.unit import discord_scene, test_telegram_house
from tests.unit.discord_scene import labels, words
from tests.unit.test_telegram_house import ANA, GROUP


def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every message that says poison crash the intake."""
    whole = routing.route

    def crash(tx: Any, house: Any, message: Any) -> Any:
        if "poison" in message.text:
            raise ZeroDivisionError("a secret")
        return whole(tx, house, message)

    monkeypatch.setattr(routing, "route", crash)


async def test_on_telegram_what_always_fails_is_held_with_retry_and_drop(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel(then="Hello.")
    async with test_telegram_house.scene(sqlite_store, tmp_path, model) as at:
        await at.fake.say(ANA, ANA, "hi")
        await at.shown(ANA, "Hello.")
        poisoned(monkeypatch)
        for number in range(2):
            await at.fake.say(GROUP, ANA, f"@nod_bot poison {number}")
        await at.fake.until(lambda: sum(bool(each.buttons) for each in at.fake.of(ANA)) == 2)
        first, second = (each for each in at.fake.of(ANA) if each.buttons)
        assert "a secret" not in first.text
        await at.fake.say(ANA, ANA, "/inbox")
        await at.fake.until(lambda: str(at.fake.of(ANA)).count("An event could not be taken") > 2)
        monkeypatch.undo()
        await at.pressed(first, "Retry", ANA)
        at.chat.intake.nudge()
        await at.shown(GROUP, "Hello.")
        await at.pressed(second, "Drop", ANA)
        await at.fake.until(lambda: not first.buttons and not second.buttons)
        assert len(at.fake.of(GROUP)) == 1


async def test_on_discord_what_always_fails_is_held_with_retry_and_drop(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel(then="Hello.")
    async with discord_scene.scene(sqlite_store, tmp_path, model=model) as at:
        private, mention = at.fake.direct(at.ana), f"<@{at.fake.me['id']}>"
        await at.fake.say(private, at.ana, "hi")
        await at.fake.until(lambda: "Hello." in str(at.fake.shown(private)))
        poisoned(monkeypatch)
        said = [
            await at.fake.say(at.fake.general, at.ana, f"{mention} poison {n}") for n in range(2)
        ]

        def open_cards() -> list[Any]:
            return [each for each in at.fake.of(private) if "Retry" in labels(each["components"])]

        await at.fake.until(lambda: len(open_cards()) == 2)
        first, second = open_cards()
        assert "a secret" not in words(first["components"])
        listed = await at.fake.command(private, at.ana, "inbox")
        assert "An event could not be taken" in await at.told(listed)
        monkeypatch.undo()
        await at.fake.press(first, "Retry", at.ana)
        await at.decided(first)
        at.chat.intake.nudge()
        await at.fake.until(lambda: "Hello." in str(at.fake.shown(said[0]["id"])))
        await at.fake.press(second, "Drop", at.ana)
        await at.fake.until(lambda: not open_cards())
        assert at.fake.shown(said[1]["id"]) == []


# -- voice


async def test_on_telegram_a_voice_note_that_nobody_can_hear_is_said_in_its_thread(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with test_telegram_house.scene(
        sqlite_store, tmp_path, ScriptedModel(then="I have a file.")
    ) as at:
        held = await at.fake.upload(b"OggS")
        voice = {"file_id": held, "file_unique_id": held, "duration": 1, "file_size": 4}
        await at.fake.say(GROUP, ANA, caption="@nod_bot listen", voice=voice)
        told = await at.shown(GROUP, "I could not hear voice-1.ogg")
        assert "OPENAI_API_KEY" in told.text
        await at.shown(GROUP, "I have a file.")


async def test_on_discord_a_voice_note_that_nobody_can_hear_is_said_in_its_thread(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with discord_scene.scene(
        sqlite_store, tmp_path, model=ScriptedModel(then="I have a file.")
    ) as at:
        note = ("voice-message.ogg", "audio/ogg", b"OggS")
        mention = f"<@{at.fake.me['id']}>"
        said = await at.fake.say(at.fake.general, at.ana, f"{mention} listen", files=[note])
        await at.fake.until(lambda: "I have a file." in str(at.fake.shown(said["id"])))
        await at.fake.until(lambda: "I could not hear" in str(at.fake.shown(said["id"])))


# -- long


def echo(request: Request) -> str:
    """Answer with how long the last message was, and 9,000 characters of text."""
    content = next(m["content"] for m in reversed(request.messages) if m["role"] == "user")
    text = content if isinstance(content, str) else str(content[0]["text"])
    return f"I read {text.count('word')} words.\n\n" + "answer " * 1_300


async def test_on_telegram_long_posts_are_whole_both_ways(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with test_telegram_house.scene(sqlite_store, tmp_path, ScriptedModel(then=echo)) as at:
        await at.fake.say(ANA, ANA, "word " * 818)  # the app cuts at 4,096
        await at.fake.say(ANA, ANA, "word " * 300)
        await at.shown(ANA, "I read 1118 words")
        await at.fake.until(lambda: _count(at.fake.of(ANA)) == 1_300)


def _count(sent: list[Any]) -> int:
    return sum(each.text.count("answer") for each in sent)


async def test_on_discord_long_posts_are_whole_both_ways(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with discord_scene.scene(sqlite_store, tmp_path, model=ScriptedModel(then=echo)) as at:
        private = at.fake.direct(at.ana)
        await at.fake.say(private, at.ana, "word " * 390)

        def whole() -> bool:
            shown = " ".join(at.fake.shown(private))
            return shown.count("answer") == 1_300 and "I read 390 words" in shown

        await at.fake.until(whole)
        long = ("message.txt", "text/plain", b"word " * 180)  # what the app makes of a long one
        await at.fake.say(private, at.ana, "see this", files=[long])
        await at.fake.until(lambda: "in/message.txt" in str(_last(at)))


def _last(at: Any) -> Any:
    requests = at.chat.world.engine.model.requests
    return requests[-1].messages if requests else ()


# -- progress


def researching(shown: Callable[[], Awaitable[object]]) -> ScriptedModel:
    """Return a model that writes lists and reads, and is done only once its list was shown."""

    class Waiting(ScriptedModel):
        async def stream(self, request: Request) -> AsyncGenerator[Delta | Answer, None]:
            if len(self.steps) == 1:
                await shown()
            async for each in super().stream(request):
                yield each

    def listed(one: str, two: str) -> Answer:
        todos = [{"content": "look", "status": one}, {"content": "tell", "status": two}]
        return calls(call("todo_write", todos=todos), call("list_files", path="."))

    return Waiting([listed("in_progress", "pending"), listed("done", "in_progress"), "Done."])


async def test_on_telegram_a_turn_that_only_reads_shows_its_list_while_it_works(
    sqlite_store: Store, tmp_path: Path
) -> None:
    found: list[Any] = []
    model = researching(lambda: found[0].shown(GROUP, "✓ look"))
    async with test_telegram_house.scene(sqlite_store, tmp_path, model) as at:
        found.append(at)
        await at.fake.say(GROUP, ANA, "@nod_bot find out")
        await at.shown(GROUP, "Done.")
        assert len([each for each in at.fake.of(GROUP) if "tell" in each.text]) == 1


async def test_on_discord_a_turn_that_only_reads_shows_its_list_while_it_works(
    sqlite_store: Store, tmp_path: Path
) -> None:
    found: list[Any] = []

    def shown(text: str) -> Callable[[], Awaitable[object]]:
        return lambda: found[0].fake.until(
            lambda: text in str(found[0].fake.shown(found[0].thread))
        )

    model = researching(shown("✓ look"))
    async with discord_scene.scene(sqlite_store, tmp_path, model=model) as at:
        found.append(at)
        said = await at.fake.say(at.fake.general, at.ana, f"<@{at.fake.me['id']}> find out")
        at.thread = said["id"]
        await shown("Done.")()
        assert str(at.fake.shown(at.thread)).count("tell") == 1


# -- signs


async def test_typing_is_shown_for_as_long_as_a_turn_is_at_work(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = replace(TelegramSurface.capabilities, sign_fades=0.02)
    monkeypatch.setattr(TelegramSurface, "capabilities", quick)
    model = ScriptedModel(["Done."], hold=asyncio.Event())
    async with test_telegram_house.scene(sqlite_store, tmp_path, model) as at:
        await at.fake.say(ANA, ANA, "work")
        await at.fake.until(lambda: len(at.fake.actions) > 3)
        assert model.hold is not None
        model.hold.set()
        await at.shown(ANA, "Done.")
        (session,) = await at.listed()
        await at.chat.shown(session.id)
        before = len(at.fake.actions)
        await asyncio.sleep(0.1)
        assert len(at.fake.actions) == before


@pytest.mark.parametrize(("surface", "fades"), [(TelegramSurface, 5.0), (DiscordSurface, 10.0)])
def test_the_sign_is_shown_anew_before_it_fades(surface: Any, fades: float) -> None:
    assert 0 < surface.capabilities.sign_fades < fades
