"""A card for a connection on each platform: its button gives one person a link, in private."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bot.cards import token_key
from bot.surfaces.base import Surface
from bot.surfaces.config import DiscordConfig, Ground, SlackConfig, TelegramConfig
from bot.surfaces.discord import DiscordSurface
from bot.surfaces.slack import SlackSurface
from bot.surfaces.telegram import TelegramSurface
from engine import people
from engine.store.base import Store, Tx
from tests.fakes import discord_rules
from tests.fakes.acme import Acme, acme_at
from tests.fakes.chat import chatting
from tests.fakes.discord import TOKEN as DISCORD_TOKEN
from tests.fakes.discord import discord
from tests.fakes.ground import grounded
from tests.fakes.oauth import fake_oauth, oauth_at
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.slack import APP_TOKEN, FakeSlack
from tests.fakes.telegram import BOT, FakeTelegram
from tests.fakes.telegram import TOKEN as TELEGRAM_TOKEN
from tests.scenario.test_connect_chat import asks_acme

FORUM, TOPIC, PERSON = -1010, 50, 1000
ASKED = "What does Acme say?"


class Place(ABC):
    """One person in one thread of a platform."""

    #: Their id there, as Nod knows it.
    id: str

    def __init__(self, fake: Any) -> None:
        self.fake = fake

    @abstractmethod
    def surface(self, ground: Ground) -> Surface: ...
    @abstractmethod
    async def ask(self, text: str = ASKED) -> None: ...
    @abstractmethod
    def shown(self) -> str: ...

    def told(self) -> str:
        """Return what is shown, and what only the person is."""
        return self.shown()

    @abstractmethod
    async def press(self, label: str) -> str:
        """Press a button, and return what only the person is shown."""


class OnSlack(Place):
    id = "T1/UANA"

    def surface(self, ground: Ground) -> Surface:
        config = SlackConfig(
            bot_tokens=(self.fake.teams["T1"].token,),
            app_token=APP_TOKEN,
            base_url=self.fake.base_url,
        )
        return SlackSurface(config, ground)

    def _posts(self) -> list[Any]:
        return list(self.fake.teams["T1"].channels["CGEN"].of_nod)

    async def ask(self, text: str = ASKED) -> None:
        await self.fake.connected()
        await self.fake.say(f"@nod {text}", user="UANA")

    def told(self) -> str:
        return f"{self.shown()}{self.fake.whispers}"

    def shown(self) -> str:
        return json.dumps([[each.text, each.blocks] for each in self._posts()])

    async def press(self, label: str) -> str:
        (card,) = [each for each in self._posts() if each.buttons()]
        pressed = await self.fake.press(label, card, user="UANA")
        await self.fake.until(lambda: self._told(pressed))
        return self._told(pressed)

    def _told(self, pressed: Any) -> str:
        seen = [
            self.fake.whispers,
            getattr(self.fake, "responses", []),
            getattr(self.fake, "views", []),
        ]
        return json.dumps(seen, default=vars) if any(seen) else ""


class OnTelegram(Place):
    id = str(PERSON)

    def surface(self, ground: Ground) -> Surface:
        self.fake.group(FORUM, forum=True)
        self.fake.topics[FORUM].add(TOPIC)
        config = TelegramConfig(tokens=(TELEGRAM_TOKEN,), base_url=self.fake.url)
        return TelegramSurface(config, ground)

    async def ask(self, text: str = ASKED) -> None:
        await self.fake.say(FORUM, PERSON, f"@nod_bot {text}", topic=TOPIC)

    def shown(self) -> str:
        return "\n".join(f"{each.text} {each.buttons}" for each in self.fake.of(FORUM))

    async def press(self, label: str) -> str:
        (card,) = [each for each in self.fake.of(FORUM) if each.buttons]
        number = await self.fake.press(card, label, PERSON)
        await self.fake.until(lambda: number in self.fake.answers)
        return str(self.fake.answers[number])


class OnDiscord(Place):
    def __init__(self, fake: Any) -> None:
        super().__init__(fake)
        self.user = fake.user("ana")
        self.id = self.user["id"]
        self.root = ""

    def surface(self, ground: Ground) -> Surface:
        config = DiscordConfig(
            token=DISCORD_TOKEN, base_url=self.fake.base_url, gateway_url=self.fake.gateway_url
        )
        return DiscordSurface(config, ground)

    async def ask(self, text: str = ASKED) -> None:
        mention = f"<@{self.fake.me['id']}> {text}"
        said = await self.fake.say(self.fake.general, self.user, mention)
        self.root = said["id"]

    def told(self) -> str:
        return "\n".join(self.fake.shown(self.fake.general))

    def shown(self) -> str:
        cards = json.dumps([each["components"] for each in self.fake.of(self.root)])
        return "\n".join([*self.fake.shown(self.root), cards])

    async def press(self, label: str) -> str:
        for message in self.fake.of(self.root):
            for button in discord_rules.every(message["components"]):
                if button.get("label") == label:
                    pressed = await self.fake.press(message, "", self.user, button["custom_id"])
                    await self.fake.until(lambda: "Connect" in str(pressed.answers))  # noqa: B023
                    return str(pressed.answers)
        raise AssertionError(f"there is no button {label}")


async def let_in(store: Store, surface: str, id: str) -> None:
    def work(tx: Tx) -> None:
        people.add_person(
            tx,
            "local",
            surface,
            id,
            name="Ana",
            role="member",
            by="console",
            now=1.0,
            principal="u-ana",
        )
        if surface == "telegram":
            people.seen_at(tx, "local", surface, id, f"telegram:{BOT}/{PERSON}", 1.0)

    await store.write(work)


def link_in(told: str, acme: Acme) -> str:
    texts = [told, *(text for _, text in acme.whispers)]
    found = [
        each for text in texts for each in re.findall(r"https://nod\.example(/connect/\w+)", text)
    ]
    assert found, texts
    return f"{acme.url}{found[0]}"


@pytest.mark.parametrize("platform", ["slack", "telegram", "discord"])
async def test_the_card_gives_its_person_a_link_and_says_when_it_is_connected(
    platform: str, sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        fakes = {"slack": FakeSlack, "telegram": FakeTelegram, "discord": discord}
        kinds = {"slack": OnSlack, "telegram": OnTelegram, "discord": OnDiscord}
        place: Place = kinds[platform](await stack.enter_async_context(fakes[platform]()))
        service = await stack.enter_async_context(fake_oauth())
        acme = await stack.enter_async_context(
            acme_at(
                service.url,
                sqlite_store,
                tmp_path,
                monkeypatch,
                oauth=oauth_at(service.url),
                keyed=True,
                public="https://nod.example",
            )
        )
        await let_in(sqlite_store, platform, place.id)
        key = token_key(tmp_path)
        told = await stack.enter_async_context(grounded(tmp_path, sqlite_store, key))
        model = ScriptedModel([calls(call("ask_acme")), "Acme said hello."])
        chat = await stack.enter_async_context(
            chatting(
                sqlite_store,
                tmp_path,
                model,
                surfaces=[place.surface(told.ground)],
                connecting=acme.connecting,
                tools=[asks_acme(sqlite_store)],
            )
        )
        acme.hints.append(
            lambda session: chat.context.enqueue(session) if session else chat.presenter.poke()
        )
        await place.ask()
        await place.fake.until(lambda: "Not now" in place.shown(), 20.0)
        assert "Connect acme?" in place.shown()
        link = link_in(await place.press("Connect"), acme)
        assert link.rpartition("/")[2] not in place.shown()
        async with (
            aiohttp.ClientSession() as session,
            session.post(link, data={"way": "key", "key": "good-key"}) as answer,
        ):
            assert answer.status == 200
        await place.fake.until(lambda: "Acme said hello." in place.shown(), 20.0)
        await place.fake.until(lambda: "Connected by" in place.shown(), 20.0)
        await place.fake.until(lambda: "is connected for Ana." in place.shown(), 20.0)


@pytest.mark.parametrize("platform", ["slack", "telegram", "discord"])
async def test_who_pastes_a_key_is_told_so_where_they_did(
    platform: str, sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    async with AsyncExitStack() as stack:
        fakes = {"slack": FakeSlack, "telegram": FakeTelegram, "discord": discord}
        kinds = {"slack": OnSlack, "telegram": OnTelegram, "discord": OnDiscord}
        place: Place = kinds[platform](await stack.enter_async_context(fakes[platform]()))
        await let_in(sqlite_store, platform, place.id)
        told = await stack.enter_async_context(
            grounded(tmp_path, sqlite_store, token_key(tmp_path))
        )
        model = ScriptedModel()
        surface = place.surface(told.ground)
        chat = await stack.enter_async_context(
            chatting(sqlite_store, tmp_path, model, surfaces=[surface])
        )
        if platform == "telegram":
            place.fake.admin_in.add(FORUM)
        await place.ask(f"my key is {key}")
        gone = "I cannot delete it here" if platform == "slack" else "I have deleted your message"
        await place.fake.until(lambda: gone in place.told(), 20.0)
        assert model.requests == []
        assert await chat.rows("connecting_live", now=0.0) == []
        files = (file for file in tmp_path.rglob("*") if file.is_file())
        assert key.encode() not in b"".join(file.read_bytes() for file in files)
