"""A whole Nod in this process: a world with its chat side, wired as the app wires it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from bot.cards import token_key
from bot.commands.table import Context
from bot.connect.connecting import Connecting
from bot.inbound.answers import Defaults, House
from bot.inbound.doorkeeper import Doorkeeper
from bot.inbound.hearing import Ear
from bot.inbound.intake import Intake
from bot.outbound.outbox import Outbox
from bot.outbound.presenter import Presenter
from bot.outbound.stage import Stage
from bot.shell.terminal import Seat
from bot.surfaces.base import Author, Inbound, Receipt, Said, Surface
from bot.surfaces.console import ConsoleSurface
from bot.web.counts import Counts
from engine import people
from engine.clock import system_now
from engine.inbox import Person
from engine.models.base import Model
from engine.store.base import Store
from tests.fakes.world import World, opened
from tests.fakes.world import at_work as working

__all__ = ["ANA", "OWNER", "Chat", "chatting"]

ANA = Author(id=people.CONSOLE, name="ana")
OWNER = Person(id=people.CONSOLE, role="owner", name="ana")


@dataclass(slots=True)
class Chat:
    """What a test drives and looks at."""

    world: World
    console: ConsoleSurface
    outbox: Outbox
    stage: Stage
    presenter: Presenter
    intake: Intake
    context: Context
    key: bytes
    data: Path

    @property
    def store(self) -> Store:
        return self.world.store

    @property
    def seat(self) -> Seat:
        return Seat(
            surface=self.console,
            presenter=self.presenter,
            context=self.context,
            bus=self.world.engine.bus,
            person=ANA,
            key=self.key,
        )

    async def take(self, event: Inbound) -> Receipt:
        """Take an event, and wait until what came with it is there too."""
        receipt = await self.intake.take(event)
        await self.intake.completing.settled()
        return receipt

    async def said(self, text: str, event: str, target: str = "console:main") -> Receipt:
        """Say something as the console person, under a chosen event id."""
        return await self.take(Said(event=event, target=target, person=ANA, text=text))

    async def rows(self, query: str, **params: Any) -> list[Any]:
        """Return the rows of a named query."""
        return list(await self.store.read(lambda tx: tx.all(query, **params)))

    async def shown(self, session: str) -> None:
        """Wait until the session rests and all of its log is shown."""
        await self.world.settle()
        facts = await self.world.log(session)
        await self.presenter.caught_up(session, facts[-1].seq if facts else 0)


@asynccontextmanager
async def chatting(
    store: Store,
    data: Path,
    model: Model,
    *,
    surfaces: Sequence[Surface] = (),
    at_work: bool = True,
    presenting: bool = True,
    now: Callable[[], float] = system_now,
    file_limit: int = 1_000,
    idle: float = 60.0,
    ear: Ear | None = None,
    connecting: Connecting | None = None,
    **options: Any,
) -> AsyncIterator[Chat]:
    """A chat at work; `at_work` False leaves what comes in lying in the mailboxes."""
    console = ConsoleSurface(data, now)
    every: dict[str, Surface] = {each.name: each for each in (console, *surfaces)}
    outbox = Outbox(store, every, now)
    key = token_key(data)
    async with opened(store, data, model, delivery=outbox, now=now, **options) as world:
        stage = Stage(store=store, outbox=outbox, now=now, data=data, key=key, zone=ZoneInfo("UTC"))
        presenter = Presenter(stage, world.engine.bus, idle=idle)
        defaults = Defaults(persona="cowork", model="practice:test", mode="interactive")
        house = House(tenant="local", data=data, now=now, defaults=defaults)
        context = Context(
            store=store,
            house=house,
            catalogue=world.engine.catalogue,
            enqueue=world.dispatcher.enqueue if at_work else lambda session: None,
            poke=presenter.poke,
            person=OWNER,
            tools=world.engine.tools,
            connecting=connecting,
        )
        door = Doorkeeper(store=store, house=house, key=key, surfaces=every, connecting=connecting)
        intake = Intake(
            store=store,
            house=house,
            context=context,
            key=key,
            enqueue=context.enqueue,
            poke=presenter.poke,
            history=outbox.history,
            ear=ear or Ear(lambda name: ""),
            counts=Counts(),
            file_limit=file_limit,
            door=door.look,
        )
        for surface in every.values():
            await surface.start(intake.take)
        chat = Chat(
            world=world,
            console=console,
            outbox=outbox,
            stage=stage,
            presenter=presenter,
            intake=intake,
            context=context,
            key=key,
            data=data,
        )
        try:
            async with (
                _maybe(working(world.dispatcher), at_work),
                _maybe(presenter, presenting),
                intake,
            ):
                yield chat
        finally:
            for surface in every.values():
                await surface.stop()


@asynccontextmanager
async def _maybe(part: Any, wanted: bool) -> AsyncIterator[None]:
    if not wanted:
        yield
        return
    async with part:
        yield
