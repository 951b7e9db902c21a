"""A whole Nod on the strict Discord: Ana, the owner; Bob, a member; Eve, whom nobody knows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bot.cards import token_key
from bot.surfaces.discord import DiscordSurface
from engine import inbox, people
from engine.inbox import Prompt
from engine.store.base import Store
from engine.tools.base import Registry
from engine.tools.box import standard_tools
from tests.fakes import discord_rules
from tests.fakes.chat import Chat, chatting
from tests.fakes.discord import FakeDiscord, Json, Pressed, discord
from tests.fakes.ground import grounded
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.unit.discord_desk import config_of

__all__ = ["SEND", "Scene", "labels", "scene", "words"]


def labels(components: Sequence[Any]) -> list[str]:
    return [each["label"] for each in discord_rules.every(components) if each["type"] == 2]


def words(components: Sequence[Any]) -> str:
    return discord_rules.text_of({"content": "", "components": components})


SEND = calls(call("send_message", target="console:standup", text="Good morning"))


class Scene:
    """Ana, the owner; Bob, a member; Eve, whom nobody knows; a card in Ana's thread."""

    def __init__(self, fake: FakeDiscord, chat: Chat) -> None:
        self.fake, self.chat = fake, chat
        self.ana, self.bob, self.eve = (fake.user(name) for name in ("ana", "bob", "eve"))
        self.thread = ""

    async def meet(self) -> None:
        """The owner is paired; Bob was let in."""
        ana = self.ana["id"]
        await self.chat.store.write(
            lambda tx: people.join_owner(tx, "local", "discord", ana, name="ana", now=1.0)
        )
        await self.admit(self.bob)

    async def admit(self, user: Json) -> None:
        """Let somebody in as a member."""
        given: dict[str, Any] = {"name": user["username"], "role": "member", "by": "", "now": 1.0}
        await self.chat.store.write(
            lambda tx: people.add_person(tx, "local", "discord", user["id"], **given)
        )

    async def ask(self, user: Json | None = None) -> Json:
        """Say something that leads to a card; return the card's message."""
        text = f"<@{self.fake.me['id']}> greet them"
        said = await self.fake.say(self.fake.general, user or self.ana, text)
        self.thread = said["id"]
        await self.fake.until(self._cards)
        return self._cards()[-1]

    def _cards(self) -> list[Json]:
        return [each for each in self.fake.of(self.thread) if each["flags"] & 1 << 15]

    async def pending(self) -> list[Prompt]:
        return await self.chat.store.read(lambda tx: inbox.pending(tx, "local"))

    async def decided(self, message: Json) -> str:
        """Wait until the card lost its buttons; return what it says."""
        await self.fake.until(lambda: not labels(message["components"]))
        return words(message["components"])

    async def told(self, press: Pressed) -> str:
        await self.fake.until(lambda: press.told)
        return "\n".join(press.texts)


@asynccontextmanager
async def scene(
    store: Store,
    data: Path,
    *steps: Any,
    fake: FakeDiscord | None = None,
    model: Any = None,
    **options: Any,
) -> AsyncIterator[Scene]:
    if fake is None:
        async with (
            discord() as made,
            scene(store, data, *steps, fake=made, model=model, **options) as found,
        ):
            yield found
        return
    tool = Registry(standard_tools()).get
    async with grounded(data, store, token_key(data), tool=tool) as house:
        surface = DiscordSurface(config_of(fake), house.ground)
        model = model or ScriptedModel(list(steps))
        try:
            async with chatting(store, data, model, surfaces=[surface], **options) as chat:
                await fake.until(lambda: fake.commands)
                made = Scene(fake, chat)
                await made.meet()
                yield made
        finally:
            await surface.stop()
