"""Twenty people in ten threads of each platform at once: everybody gets their own, in order."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bot.cards import token_key
from bot.surfaces.base import Surface
from bot.surfaces.config import DiscordConfig, SlackConfig, TelegramConfig
from bot.surfaces.discord import DiscordSurface
from bot.surfaces.slack import SlackSurface
from bot.surfaces.telegram import TelegramSurface
from engine import people
from engine.models.base import Answer, Request
from engine.store.base import Store, Tx
from tests.fakes import discord_rules
from tests.fakes.chat import chatting
from tests.fakes.discord import TOKEN as DISCORD_TOKEN
from tests.fakes.discord import FakeDiscord, discord
from tests.fakes.ground import grounded
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.slack import APP_TOKEN, FakeSlack
from tests.fakes.telegram import TOKEN as TELEGRAM_TOKEN
from tests.fakes.telegram import FakeTelegram

THREADS, PEOPLE = 10, 20
SECOND_TOKEN = "7000002:AAFake-token_that_is_35_characters_y"


class Crowd(ABC):
    """The people of a platform: thread n is of the persons 2n and 2n + 1."""

    name: str
    #: Their ids, as Nod knows them.
    ids: Sequence[str]

    def __init__(self, fake: Any) -> None:
        self.fake = fake

    @abstractmethod
    async def first(self, thread: int, text: str) -> None:
        """The first of a thread's two people mentions Nod."""

    @abstractmethod
    async def second(self, thread: int, text: str) -> None:
        """The other one goes on."""

    @abstractmethod
    def shown(self, thread: int) -> list[str]:
        """Return what Nod shows in a thread."""

    @abstractmethod
    def elsewhere(self) -> list[str]:
        """Return what Nod shows anywhere else."""

    @abstractmethod
    def cards(self, thread: int) -> list[Any]:
        """Return the cards of a thread that have buttons."""

    @abstractmethod
    async def approve(self, thread: int) -> None:
        """The first of a thread's two people presses Approve."""


class OnSlack(Crowd):
    """Five threads in each of two workspaces; the two have people of the same ids."""

    name = "slack"

    def __init__(self, fake: FakeSlack) -> None:
        super().__init__(fake)
        self.teams = [fake.teams["T1"], fake.add_team("T2", "Bolt")]
        self.ids = [f"{team.id}/U{n:02}" for team in self.teams for n in range(PEOPLE // 2)]
        for team in self.teams:
            users = {f"U{n:02}": f"person{n}" for n in range(PEOPLE // 2)}
            team.users |= users
            team.channels["CGEN"].members |= set(users)
        self.roots: dict[int, str] = {}

    def _at(self, thread: int) -> tuple[str, int]:
        return self.teams[thread % 2].id, thread // 2

    async def first(self, thread: int, text: str) -> None:
        team, number = self._at(thread)
        post = await self.fake.say(f"@nod {text}", user=f"U{2 * number:02}", team=team)
        self.roots[thread] = post.ts

    async def second(self, thread: int, text: str) -> None:
        team, number = self._at(thread)
        user = f"U{2 * number + 1:02}"
        await self.fake.say(text, user=user, team=team, thread=self.roots[thread])

    def _posts(self, thread: int) -> list[Any]:
        posts = self.teams[thread % 2].channels["CGEN"].of_nod
        return [each for each in posts if each.thread == self.roots.get(thread)]

    def shown(self, thread: int) -> list[str]:
        return [_whole(each) for each in self._posts(thread)]

    def elsewhere(self) -> list[str]:
        roots = [
            {ts for thread, ts in self.roots.items() if thread % 2 == n}
            for n in range(len(self.teams))
        ]
        return [
            _whole(post)
            for team, own in zip(self.teams, roots, strict=True)
            for channel in team.channels.values()
            for post in channel.of_nod
            if channel.id != "CGEN" or post.thread not in own
        ]

    def cards(self, thread: int) -> list[Any]:
        return [each for each in self._posts(thread) if each.buttons()]

    async def approve(self, thread: int) -> None:
        team, number = self._at(thread)
        (card,) = self.cards(thread)
        await self.fake.press("Approve", card, user=f"U{2 * number:02}", team=team)


class OnTelegram(Crowd):
    """Five topics in the forum of each of two bots."""

    name = "telegram"
    FORUMS = (-1010, -1011)

    def __init__(self, fake: FakeTelegram) -> None:
        super().__init__(fake)
        fake.add_bot(SECOND_TOKEN, "second_bot")
        self.ids = [str(1000 + n) for n in range(PEOPLE)]
        for forum in self.FORUMS:
            fake.group(forum, forum=True)
            fake.topics[forum] |= set(range(50, 50 + THREADS))

    async def _say(self, thread: int, person: int, text: str) -> None:
        name, token = (("nod_bot", TELEGRAM_TOKEN), ("second_bot", SECOND_TOKEN))[thread % 2]
        forum, topic = self.FORUMS[thread % 2], 50 + thread
        await self.fake.say(forum, 1000 + person, f"@{name} {text}", topic=topic, token=token)

    async def first(self, thread: int, text: str) -> None:
        await self._say(thread, 2 * thread, text)

    async def second(self, thread: int, text: str) -> None:
        await self._say(thread, 2 * thread + 1, text)

    def shown(self, thread: int) -> list[str]:
        sent = self.fake.of(self.FORUMS[thread % 2])
        return [each.text for each in sent if each.topic == 50 + thread]

    def elsewhere(self) -> list[str]:
        places = {(self.FORUMS[n % 2], 50 + n) for n in range(THREADS)}
        return [each.text for each in self.fake.sent if (each.chat, each.topic) not in places]

    def cards(self, thread: int) -> list[Any]:
        sent = self.fake.of(self.FORUMS[thread % 2])
        return [each for each in sent if each.topic == 50 + thread and each.buttons]

    async def approve(self, thread: int) -> None:
        (card,) = self.cards(thread)
        await self.fake.press(card, "Approve", 1000 + 2 * thread)


class OnDiscord(Crowd):
    """Five threads in a channel of each of two servers, in which the same people are."""

    name = "discord"

    def __init__(self, fake: FakeDiscord) -> None:
        super().__init__(fake)
        self.users = [fake.user(f"person{n}") for n in range(PEOPLE)]
        self.ids = [each["id"] for each in self.users]
        self.channels = [fake.general, fake.channel("second", guild=fake.guild("The Quay"))]
        self.roots: dict[int, str] = {}

    async def first(self, thread: int, text: str) -> None:
        mention = f"<@{self.fake.me['id']}> {text}"
        channel = self.channels[thread % 2]
        said = await self.fake.say(channel, self.users[2 * thread], mention)
        self.roots[thread] = said["id"]

    async def second(self, thread: int, text: str) -> None:
        await self.fake.say(self.roots[thread], self.users[2 * thread + 1], text)

    def shown(self, thread: int) -> list[str]:
        return list(self.fake.shown(self.roots.get(thread, "")))

    def elsewhere(self) -> list[str]:
        others = set(self.fake.channels) - set(self.roots.values())
        return [text for channel in others for text in self.fake.shown(channel)]

    def cards(self, thread: int) -> list[Any]:
        return [each for each in self.fake.of(self.roots.get(thread, "")) if _approve(each)]

    async def approve(self, thread: int) -> None:
        (card,) = self.cards(thread)
        await self.fake.press(card, "", self.users[2 * thread], _approve(card))


def _whole(post: Any) -> str:
    return json.dumps([post.text, post.blocks], ensure_ascii=False)


def _approve(message: Any) -> str:
    buttons = discord_rules.every(message["components"])
    return next((str(b["custom_id"]) for b in buttons if b.get("label") == "Approve"), "")


def step(request: Request) -> Answer | str:
    """Greet somebody, which needs a nod; then repeat what was said, in order."""
    said = [m["content"].partition("\n")[0] for m in request.messages if m["role"] == "user"]
    name = said[0].partition(" ")[0]
    if not any(m["role"] == "tool" for m in request.messages):
        return calls(call("send_message", target=f"console:{name}", text=f"Greetings to {name}!"))
    return "heard: " + " then ".join(said)


async def talk(crowd: Crowd, thread: int) -> None:
    """Two people, a card, a nod, an answer."""
    name = named(crowd, thread)
    await crowd.first(thread, f"{name} begins")
    await crowd.fake.until(lambda: crowd.cards(thread), 30.0)
    await crowd.approve(thread)
    await crowd.fake.until(lambda: not crowd.cards(thread), 30.0)
    await crowd.second(thread, f"{name} goes on")
    whole = f"{name} begins then {name} goes on"
    await crowd.fake.until(lambda: any(whole in each for each in crowd.shown(thread)), 30.0)


def named(crowd: Crowd, thread: int) -> str:
    return f"{crowd.name}{thread}x"


async def let_in(store: Store, crowds: Iterable[Crowd]) -> None:
    given: dict[str, Any] = {"role": "operator", "by": "", "now": 1.0}

    def work(tx: Tx) -> None:
        for crowd in crowds:
            for id in crowd.ids:
                people.add_person(tx, "local", crowd.name, id, name=f"person {id}", **given)

    await store.write(work)


async def test_sixty_people_in_thirty_threads_on_three_platforms_keep_apart(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        on_slack = OnSlack(await stack.enter_async_context(FakeSlack()))
        on_telegram = OnTelegram(await stack.enter_async_context(FakeTelegram()))
        on_discord = OnDiscord(await stack.enter_async_context(discord()))
        crowds: list[Crowd] = [on_slack, on_telegram, on_discord]
        await let_in(sqlite_store, crowds)
        key = token_key(tmp_path)
        ground = (await stack.enter_async_context(grounded(tmp_path, sqlite_store, key))).ground
        slack = SlackConfig(
            bot_tokens=tuple(team.token for team in on_slack.teams),
            app_token=APP_TOKEN,
            base_url=on_slack.fake.base_url,
        )
        telegram = TelegramConfig(
            tokens=(TELEGRAM_TOKEN, SECOND_TOKEN), base_url=on_telegram.fake.url
        )
        there = on_discord.fake
        at_discord = DiscordConfig(
            token=DISCORD_TOKEN, base_url=there.base_url, gateway_url=there.gateway_url
        )
        surfaces: list[Surface] = [
            SlackSurface(slack, ground),
            TelegramSurface(telegram, ground),
            DiscordSurface(at_discord, ground),
        ]
        model = ScriptedModel(then=step)
        await stack.enter_async_context(chatting(sqlite_store, tmp_path, model, surfaces=surfaces))
        await on_slack.fake.connected()
        async with asyncio.TaskGroup() as group:
            for crowd in crowds:
                for thread in range(THREADS):
                    group.create_task(talk(crowd, thread))

        everybody = {named(crowd, thread) for crowd in crowds for thread in range(THREADS)}
        for crowd in crowds:
            for thread in range(THREADS):
                shown, name = crowd.shown(thread), named(crowd, thread)
                card = next(each for each in shown if "Approved by" in each)
                assert f"console:{name}" in card
                others = [other for other in everybody - {name} if other in str(shown)]
                assert others == [], f"{name} sees what is of others"
            assert crowd.elsewhere() == []
