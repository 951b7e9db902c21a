"""The people of each platform's fake: what they say there, and what they see of Nod."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from tests.fakes import discord_rules
from tests.fakes.discord import TOKEN as DISCORD_TOKEN
from tests.fakes.discord import FakeDiscord, discord
from tests.fakes.discord_gateway import Json
from tests.fakes.slack import APP_TOKEN, Ack, FakeSlack
from tests.fakes.slack_state import Channel, Post
from tests.fakes.telegram import TOKEN as TELEGRAM_TOKEN
from tests.fakes.telegram import FakeTelegram, Sent

__all__ = ["ANSWER", "ASK", "PEOPLE", "SEND", "STANDS", "WAIT", "WORK", "Said", "Stand"]

#: What people say: a question; one whose answer takes a while; one that makes a turn go on and on;
#: one that leads to a card. And what Nod answers.
ASK, WAIT, WORK, SEND = "Anything new?", "No hurry.", "Go to work.", "Send it."
ANSWER = "Nothing new."

PEOPLE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What somebody said."""

    #: As in `bot.surfaces.base.Said`.
    event: str
    #: Who said it.
    person: int
    #: The message's own name where signs are shown, and the place of its answer.
    message: str
    place: str
    #: How many answers there will be in that place, with this one.
    answers: int = 1
    #: The acknowledgement on its way, where the platform has one for each event.
    ack: asyncio.Task[Ack] | None = field(default=None, compare=False)


class Stand(ABC):
    """One platform with its people."""

    #: In which Nod finds the platform.
    environ: Mapping[str, str]
    #: Their ids, as Nod knows them.
    people: list[str]

    def __init__(self) -> None:
        #: Messages that have a sign; answers by place.
        self._signs: set[str] = set()
        self._answers: Counter[str] = Counter()
        self._looked = 0

    def signed(self, said: Said) -> bool:
        """Say whether there is a sign that Nod has seen it."""
        self._look()
        return said.message in self._signs

    def answered(self, said: Said) -> bool:
        """Say whether the answer is there."""
        self._look()
        return self._answers[said.place] >= said.answers

    @abstractmethod
    async def connected(self) -> None:
        """Wait until Nod has connected."""

    @abstractmethod
    async def until(self, holds: Callable[[], Any], limit: float) -> Any:
        """Wait until `holds()`."""

    @abstractmethod
    async def say(self, person: int, text: str) -> Said:
        """Say something to Nod."""

    @abstractmethod
    async def acked(self, said: Said) -> float:
        """Wait until it is acknowledged; return when it was. 0: the platform is told nothing."""

    @abstractmethod
    def card(self, said: Said) -> Any:
        """Return the open card where it is answered, or None."""

    @abstractmethod
    async def press(self, said: Said, card: Any) -> None:
        """Press Approve on a card."""

    @abstractmethod
    def _look(self) -> None:
        """Read what Nod did since the last look."""


class _Slack(Stand):
    """Mentions in twenty channels of a workspace."""

    def __init__(self, fake: FakeSlack) -> None:
        super().__init__()
        self._fake, self._team = fake, fake.teams["T1"]
        self.environ = {
            "NOD_SLACK_BASE_URL": fake.base_url,
            "SLACK_BOT_TOKEN": self._team.token,
            "SLACK_APP_TOKEN": APP_TOKEN,
        }
        users = [f"U{person:04}" for person in range(PEOPLE)]
        self.people = [f"T1/{user}" for user in users]
        self._team.users |= {user: user.lower() for user in users}
        self._channels = [
            Channel(id=f"CB{number:02}", members={self._team.bot_user, *users})
            for number in range(20)
        ]
        self._team.channels |= {each.id: each for each in self._channels}

    async def connected(self) -> None:
        await self._fake.until(lambda: self._fake.sockets, 60.0)

    async def until(self, holds: Callable[[], Any], limit: float) -> Any:
        await self._fake.until(holds, limit)

    def _channel(self, person: int) -> Channel:
        return self._channels[person % len(self._channels)]

    async def say(self, person: int, text: str) -> Said:
        channel, mention = self._channel(person), f"<@{self._team.bot_user}> {text}"
        post = channel.add(self._fake.tick(), user=f"U{person:04}", text=mention)
        shown = {**post.shown(False), "type": "app_mention", "channel": channel.id}
        event = self._fake.event("T1", {**shown, "event_ts": post.ts})
        return Said(
            event=f"T1/{channel.id}/{post.ts}",
            person=person,
            message=post.ts,
            place=post.ts,
            ack=asyncio.create_task(self._fake.send("events_api", event)),
        )

    async def acked(self, said: Said) -> float:
        assert said.ack is not None
        ack = await said.ack
        assert ack.ok
        return perf_counter()

    def card(self, said: Said) -> Post | None:
        posts = reversed(self._channel(said.person).posts.values())
        return next((each for each in posts if each.thread == said.place and each.buttons()), None)

    async def press(self, said: Said, card: Any) -> None:
        await self._fake.press("Approve", card, user=f"U{said.person:04}")

    def _look(self) -> None:
        calls, self._looked = self._fake.calls[self._looked :], len(self._fake.calls)
        for method, _, given in calls:
            if method == "assistant.threads.setStatus":
                self._signs.add(str(given["thread_ts"]))
            elif method == "reactions.add":
                self._signs.add(str(given["timestamp"]))
            elif method == "chat.postMessage" and ANSWER in given["text"]:
                self._answers[str(given["thread_ts"])] += 1


class _Telegram(Stand):
    """Private chats."""

    def __init__(self, fake: FakeTelegram) -> None:
        super().__init__()
        self._fake = fake
        self.environ = {"NOD_TELEGRAM_BASE_URL": fake.url, "TELEGRAM_BOT_TOKEN": TELEGRAM_TOKEN}
        self.people = [str(fake.private(10_000 + person)) for person in range(PEOPLE)]
        self._asked: Counter[str] = Counter()
        self._reacted = 0

    async def connected(self) -> None:
        await self._fake.until(lambda: self._fake.bot.poll, 60.0)

    async def until(self, holds: Callable[[], Any], limit: float) -> Any:
        await self._fake.until(holds, limit)

    async def say(self, person: int, text: str) -> Said:
        chat = int(self.people[person])
        number = await self._fake.say(chat, chat, text)
        self._asked[str(chat)] += 1
        return Said(
            event=f"{self._fake.bot.id}/{chat}/{number}",
            person=person,
            message=f"{chat}/{number}",
            place=str(chat),
            answers=self._asked[str(chat)],
        )

    async def acked(self, said: Said) -> float:
        """An update is acknowledged by the request for what comes after it."""
        waiting, number = self._fake.bot.updates, self._fake.history[-1]["update_id"]
        await self._fake.until(lambda: not waiting or waiting[0]["update_id"] > number, 60.0)
        return perf_counter()

    def card(self, said: Said) -> Sent | None:
        mine = [each for each in self._fake.of(int(said.place)) if each.buttons]
        return mine[-1] if mine else None

    async def press(self, said: Said, card: Any) -> None:
        await self._fake.press(card, "Approve", int(said.place))

    def _look(self) -> None:
        fake = self._fake
        sent, self._looked = fake.sent[self._looked :], len(fake.sent)
        signs, self._reacted = fake.reactions[self._reacted :], len(fake.reactions)
        self._signs |= {f"{chat}/{number}" for chat, number, _ in signs}
        self._answers.update(str(each.chat) for each in sent if ANSWER in each.text)


class _Discord(Stand):
    """Mentions in a channel; Nod opens a thread at each."""

    def __init__(self, fake: FakeDiscord) -> None:
        super().__init__()
        self._fake = fake
        self.environ = {
            "NOD_DISCORD_BASE_URL": fake.base_url,
            "NOD_DISCORD_GATEWAY_URL": fake.gateway_url,
            "DISCORD_BOT_TOKEN": DISCORD_TOKEN,
        }
        self._users = [fake.user(f"person{person}") for person in range(PEOPLE)]
        self.people = [each["id"] for each in self._users]
        #: Threads in which no answer was seen yet.
        self._open: set[str] = set()

    async def connected(self) -> None:
        await self._fake.until(lambda: self._fake.commands, 60.0)

    async def until(self, holds: Callable[[], Any], limit: float) -> Any:
        await self._fake.until(holds, limit)

    async def say(self, person: int, text: str) -> Said:
        channel, mention = self._fake.general, f"<@{self._fake.me['id']}> {text}"
        message = await self._fake.say(channel, self._users[person], mention)
        name = str(message["id"])
        self._open.add(name)
        return Said(event=f"{channel}/{name}", person=person, message=name, place=name)

    async def acked(self, said: Said) -> float:
        return 0.0

    def card(self, said: Said) -> Json | None:
        found = [each for each in self._fake.of(said.place) if _approve(each)]
        return found[-1] if found else None

    async def press(self, said: Said, card: Any) -> None:
        await self._fake.press(card, "", self._users[said.person], _approve(card))

    def _look(self) -> None:
        for name in list(self._open):
            if name in self._fake.channels:  # the thread is the first that people see
                self._signs.add(name)
            if any(ANSWER in each for each in self._fake.shown(name)):
                self._answers[name] = 1
                self._open.remove(name)


def _approve(message: Json) -> str:
    """Return the custom_id of a message's Approve; empty: it has none."""
    buttons = discord_rules.every(message["components"])
    return next((str(b["custom_id"]) for b in buttons if b.get("label") == "Approve"), "")


@asynccontextmanager
async def _slack() -> AsyncIterator[Stand]:
    async with FakeSlack() as fake:
        fake.limit = 30.0  # how long an acknowledgement takes is to be seen, not judged
        yield _Slack(fake)


@asynccontextmanager
async def _telegram() -> AsyncIterator[Stand]:
    async with FakeTelegram() as fake:
        yield _Telegram(fake)


@asynccontextmanager
async def _discord() -> AsyncIterator[Stand]:
    async with discord() as fake:
        yield _Discord(fake)


#: Runs a platform's fake with its people in it.
STANDS: Mapping[str, Callable[[], AbstractAsyncContextManager[Stand]]] = {
    "slack": _slack,
    "telegram": _telegram,
    "discord": _discord,
}
