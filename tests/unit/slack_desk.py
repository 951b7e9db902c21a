"""A Slack surface connected to the fake, with an intake that notes what it is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bot.surfaces.base import Inbound, Receipt, Said
from bot.surfaces.config import Owned, SlackConfig
from bot.surfaces.slack import SlackSurface
from engine.store.base import Store
from engine.tools.base import Tool
from tests.fakes.ground import Told, grounded
from tests.fakes.slack import APP_TOKEN, SECRET, FakeSlack

__all__ = ["Desk", "config_for", "desk"]

E = TypeVar("E", bound=Inbound)


@dataclass(slots=True)
class Desk:
    """What a test drives and looks at."""

    fake: FakeSlack
    surface: SlackSurface
    told: Told
    taken: list[Inbound] = field(default_factory=list)
    #: Lines that nobody addressed to Nod.
    overheard: list[Said] = field(default_factory=list)
    #: What the intake answers; called with the event.
    answer: Callable[[Inbound], Receipt] = lambda event: Receipt(status="accepted")
    #: Raised by the next takes, one each.
    failures: list[BaseException] = field(default_factory=list)
    #: Set: the intake waits for it.
    hold: asyncio.Event | None = None

    async def take(self, event: Inbound) -> Receipt:
        if self.failures:
            raise self.failures.pop(0)
        if isinstance(event, Said) and event.overheard:
            self.overheard.append(event)
            return Receipt(status="ignored")
        known = any(each.event == event.event for each in self.taken)
        self.taken.append(event)
        if self.hold is not None:
            await self.hold.wait()
        return Receipt(status="duplicate") if known else self.answer(event)

    def of(self, kind: type[E]) -> list[E]:
        """Return what was taken of a kind."""
        return [each for each in self.taken if isinstance(each, kind)]


def config_for(fake: FakeSlack, **more: Any) -> SlackConfig:
    given: dict[str, Any] = {
        "bot_tokens": tuple(team.token for team in fake.teams.values()),
        "app_token": APP_TOKEN,
        "signing_secret": SECRET,
        "base_url": fake.base_url,
    }
    return SlackConfig(**{**given, **more})


@asynccontextmanager
async def desk(
    data: Path,
    store: Store,
    fake: FakeSlack | None = None,
    *,
    owned: tuple[Owned, ...] = (),
    tool: Callable[[str], Tool | None] = lambda name: None,
    key: bytes = b"k" * 32,
    **config: Any,
) -> AsyncIterator[Desk]:
    """Connect a surface; in HTTP mode the fake sends its requests to it."""
    async with _served(fake) as slack, grounded(data, store, key, tool=tool, owned=owned) as told:
        surface = SlackSurface(config_for(slack, **config), told.ground)
        made = Desk(slack, surface, told)
        await surface.start(made.take)
        if config.get("mode") == "http":
            slack.request_url = f"http://127.0.0.1:{told.ground.web.port}/slack/events"
        else:
            await slack.connected()
        yield made
        slack.request_url = ""
        await surface.stop()


@asynccontextmanager
async def _served(fake: FakeSlack | None) -> AsyncIterator[FakeSlack]:
    if fake is not None:
        yield fake
        return
    async with FakeSlack() as made:
        yield made
