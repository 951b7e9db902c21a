"""A Discord surface at work against the strict Discord, and everything it handed over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.surfaces.base import Inbound, Receipt, Said
from bot.surfaces.config import DiscordConfig
from bot.surfaces.discord import DiscordSurface
from engine.store.base import Store
from tests.fakes.discord import GUILD, TOKEN, FakeDiscord, discord
from tests.fakes.ground import Told, grounded

__all__ = ["Answer", "Desk", "at_work", "config_of"]

Answer = Callable[[Inbound], Awaitable[Receipt]]


def config_of(fake: FakeDiscord, token: str = TOKEN) -> DiscordConfig:
    """Return how to connect to the fake."""
    return DiscordConfig(token=token, base_url=fake.base_url, gateway_url=fake.gateway_url)


@dataclass(slots=True)
class Desk:
    fake: FakeDiscord
    surface: DiscordSurface
    house: Told
    ana: dict[str, Any]
    answer: Answer | None = None
    taken: list[Inbound] = field(default_factory=list)
    #: Lines that nobody addressed to Nod.
    overheard: list[Said] = field(default_factory=list)

    async def take(self, event: Inbound) -> Receipt:
        receipt = Receipt(status="accepted")
        if isinstance(event, Said) and event.overheard:
            self.overheard.append(event)
            return Receipt(status="ignored")
        if self.answer is not None:
            receipt = await self.answer(event)
        self.taken.append(event)
        async with self.fake.changed:
            self.fake.changed.notify_all()
        return receipt

    async def got(self, count: int = 1) -> list[Inbound]:
        """Wait until that many events were taken."""
        await self.fake.until(lambda: len(self.taken) >= count)
        return self.taken

    async def first(self) -> Any:
        return (await self.got())[0]

    @property
    def mention(self) -> str:
        return f"<@{self.fake.me['id']}>"

    @property
    def channel(self) -> str:
        return f"discord:{GUILD}/{self.fake.general}"

    async def settled(self) -> None:
        """Wait until everything said so far was read: a last word comes after all others."""
        count = len([each for each in self.taken if "last word" in getattr(each, "text", "")])
        await self.fake.say(self.fake.direct(self.ana), self.ana, "last word")
        await self.fake.until(
            lambda: sum("last word" in getattr(each, "text", "") for each in self.taken) > count
        )
        self.taken = [each for each in self.taken if "last word" not in getattr(each, "text", "")]


@asynccontextmanager
async def at_work(
    store: Store,
    data: Path,
    *,
    answer: Answer | None = None,
    patience: float = 1.5,
    fake: FakeDiscord | None = None,
    **ground: Any,
) -> AsyncIterator[Desk]:
    if fake is None:
        async with (
            discord() as made,
            at_work(store, data, answer=answer, patience=patience, fake=made, **ground) as desk,
        ):
            yield desk
        return
    async with grounded(data, store, **ground) as house:
        surface = DiscordSurface(config_of(fake), house.ground, patience=patience)
        desk = Desk(fake, surface, house, fake.user("ana"), answer)
        try:
            await surface.start(desk.take)
            await fake.until(lambda: fake.commands)
            yield desk
        finally:
            await surface.stop()
