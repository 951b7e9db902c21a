"""Wires everything into a running Nod: opened in order, drained and closed in the opposite one.

data folder ► advance lock ► store ► secrets ► model, personas, tools ► surfaces ► presenter
► dispatcher ► clock ► HTTP server ► intake ► platforms ► local socket ► ready
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from zoneinfo import ZoneInfo

from bot import cards, log, pairing
from bot import settings as reading
from bot.board import Board
from bot.commands.table import Context
from bot.forms import Forms
from bot.hands import Hands
from bot.inbound import answers
from bot.inbound.answers import Defaults, House, offer_folder
from bot.inbound.doorkeeper import Doorkeeper
from bot.inbound.hearing import Ear
from bot.inbound.intake import Intake
from bot.keeping import keep
from bot.outbound import digest
from bot.outbound.outbox import Outbox
from bot.outbound.presenter import Presenter
from bot.outbound.reminding import Reminders
from bot.outbound.stage import Stage
from bot.picking import Picked, load_catalogue, pick
from bot.places import Places
from bot.settings import Settings
from bot.shell.socket import LocalSocket
from bot.shell.terminal import Seat
from bot.surfaces.base import Author, Message, Surface
from bot.surfaces.config import Ground, Owned
from bot.surfaces.connections import Connections
from bot.surfaces.console import ConsoleSurface
from bot.web.address import Web
from bot.web.counts import Counts
from bot.web.hooks import Hooks
from connectors.mcp.house import Servers
from connectors.registry import CONNECTORS, Entry, connector_tools, secrets_of
from connectors.sources import check_event
from engine import people, sessions
from engine.clock import Now, mint, system_now
from engine.errors import SettingsError, StoreError
from engine.events import Bus
from engine.models.base import ModelError
from engine.models.content import Documents
from engine.models.router import Router
from engine.sandbox.base import ShellState
from engine.sandbox.local import LocalExecutor
from engine.schedule import digests, schedules
from engine.schedule.alarm import Alarm
from engine.schedule.event_tools import event_tools
from engine.schedule.job_tools import job_tools
from engine.schedule.job_watch import JobWatch
from engine.schedule.tools import schedule_tools
from engine.store.base import Store, Tx
from engine.store.lock import AdvanceLock
from engine.store.opening import open_store, sqlite_path
from engine.tools.base import Registry
from engine.tools.box import standard_tools
from engine.turn.ports import Engine
from engine.work.base import Gate, is_gone, worker_id
from engine.work.local import Dispatcher
from personas.registry import Personas

__all__ = ["CONSOLE_PERSON", "App", "house_of", "serve", "socket_path"]

TENANT = "local"
#: Where the owner reads cards that belong to no session.
INBOX_PLACE = "console:main"
#: Seconds a clean stop gives to turns at work; what is left is taken up at the next start.
GRACE = 5.0

#: Whoever sits at the terminal, or reaches the socket.
CONSOLE_PERSON = Author(id=people.CONSOLE, name=people.CONSOLE)

_log = logging.getLogger(__name__)


def socket_path(settings: Settings) -> Path:
    """Return where the running process takes commands from other ones."""
    return settings.data / "nod.sock"


def house_of(settings: Settings, picked: Picked, now: Now) -> House:
    """Return what the inbound side shares, also when nothing is running."""
    defaults = Defaults(persona=settings.persona, model=picked.model, mode=settings.mode)
    return House(tenant=TENANT, data=settings.data, now=now, defaults=defaults)


class App:
    """A running Nod; an async context manager. Its parts may be used while it is entered."""

    store: Store
    picked: Picked
    bus: Bus
    console: ConsoleSurface
    presenter: Presenter
    dispatcher: Dispatcher
    alarm: Alarm
    context: Context
    web: Web
    connections: Connections
    #: Platforms on which nobody is known as the owner yet.
    unpaired: list[str]
    #: Signs the buttons of cards.
    key: bytes

    def __init__(
        self, settings: Settings, environ: Mapping[str, str], *, now: Now = system_now
    ) -> None:
        self.settings = settings
        self._environ = environ
        self._now = now
        self._stack = AsyncExitStack()
        self._secrets = secrets_of(environ, settings.data)
        self.counts = Counts()
        #: Set once every platform was tried.
        self._opened = asyncio.Event()

    async def __aenter__(self) -> App:
        """Start everything; what was started is stopped again when a later part fails.

        Raises NodError: settings, lock, store, model, personas; one sentence each.
        """
        try:
            await self._open_store()
            engine = await self._engine()
            await self._start(engine)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    # -- the parts, in order

    async def _open_store(self) -> None:
        reading.make_data_folder(self.settings)
        self._alone = sqlite_path(self.settings.store) is not None
        if self._alone:
            lock = AdvanceLock.take(self.settings.data)
            self._stack.callback(lock.release)
        self.store = await open_store(self.settings.store)
        self._stack.push_async_callback(self.store.close)
        log.hide(await asyncio.to_thread(self._secrets.values))

    async def _engine(self) -> Engine:
        settings = self.settings
        self._catalogue = load_catalogue(settings)
        self.picked = await pick(settings, self._environ, self._catalogue)
        self._jobs = JobWatch(
            store=self.store,
            now=self._now,
            tenant=TENANT,
            data=settings.data,
            alone=self._alone,
            on_due=self._poke,
        )
        later = schedule_tools(self.store, settings.zone, self._carded, check_event)
        later += event_tools(self.store, settings.zone, self._carded, check_event)
        later += job_tools(self.store, settings.zone, self._jobs.nudge)
        tools = [*standard_tools(), *later, *connector_tools()]
        personas = Personas.load(settings.data / "personas")
        later_on = ("mcp_", *(f"{name}_" for name in CONNECTORS))
        personas.check_tools({each.name for each in tools}, later_on)
        personas.require(settings.persona)
        self.bus = Bus()
        self.console = ConsoleSurface(settings.data, self._now)
        self._surfaces: dict[str, Surface] = {self.console.name: self.console}
        self._outbox = Outbox(
            self.store, self._surfaces, self._now, TENANT, opened=self._opened, counts=self.counts
        )
        self._tools = Registry(tools)
        entries: dict[str, Entry] = {}  # of MCP servers that are connected by a sign-in
        self._hands = Hands(
            store=self.store,
            secrets=self._secrets,
            tools=self._tools,
            now=self._now,
            tenant=TENANT,
            options=settings.connectors,
            catalogue=ChainMap(entries, dict(CONNECTORS)),
            on_event=self._poke,
        )
        self._mcp = Servers(
            written=settings.mcp,
            store=self.store,
            tools=self._tools,
            tenant=TENANT,
            data=settings.data,
            secrets=self._secrets,
            notify=self._warn,
            credentials=self._hands.credentials,
            entries=entries,
        )
        documents = Documents()
        self._router = Router(self._catalogue, self._environ, documents=documents, now=self._now)
        self._stack.push_async_callback(self._router.aclose)
        return Engine(
            store=self.store,
            model=self._router,
            catalogue=self._catalogue,
            tools=self._tools,
            bus=self.bus,
            now=self._now,
            data=settings.data,
            delivery=self._outbox,
            persona=personas.get,
            open_executor=_open_executor,
            worker=worker_id(),
            is_gone=self._dead if self._alone else is_gone,
            tenant=TENANT,
            limits=settings.limits,
            hands=self._closed,
            allowlist=settings.allowlist,
            quorum=settings.quorum,
            fallbacks=settings.fallbacks,
            gate=Gate(settings.ceilings),
            documents=documents,
        )

    def _closed(self, tx: Tx, session: sessions.Session) -> frozenset[str]:
        """Return the names of the tools that are not for the session."""
        return self._hands.connectors.hands(tx, session) | self._mcp.hands(tx, session)

    def _dead(self, worker: str) -> bool:
        return True  # we hold the advance lock, so every worker before us is gone

    async def _start(self, engine: Engine) -> None:
        settings, enter = self.settings, self._stack.enter_async_context
        await self.store.write(lambda tx: people.seed_console(tx, TENANT, self._now()))
        if not self.picked.practice:  # what was planned while there was no model gets the real one
            model = self.picked.model
            await self.store.write(lambda tx: schedules.renew_model(tx, TENANT, "practice:", model))
        self.key = await asyncio.to_thread(cards.token_key, settings.data)
        stage = Stage(
            store=self.store,
            outbox=self._outbox,
            now=self._now,
            data=settings.data,
            key=self.key,
            zone=ZoneInfo(settings.zone),
            tenant=TENANT,
            inbox=INBOX_PLACE,
            footers=settings.footer == "on",
        )
        self.presenter = await enter(Presenter(stage, self.bus))
        reminders = Reminders(self.store, self._now, INBOX_PLACE, self.presenter.poke)
        await enter(reminders)
        await enter(self._hands)
        await enter(self._mcp)  # before a session is advanced: its call may be for a server
        self.dispatcher = await enter(
            Dispatcher(engine, turns=settings.ceilings.turns, shared=not self._alone)
        )
        self.alarm = await enter(
            Alarm(
                store=self.store,
                now=self._now,
                tenant=TENANT,
                data=settings.data,
                on_wake=self.dispatcher.enqueue,
                on_prompts=reminders.take,
                bus=self.bus,
                digest=partial(
                    digest.post,
                    tenant=TENANT,
                    place=lambda tx, who: stage.private(tx, who) or INBOX_PLACE,
                ),
            )
        )
        await self._listen()
        await enter(self._jobs)
        await enter(self._hands.sources)
        self._stack.push_async_callback(_ended, self._background())

    async def _listen(self) -> None:
        """Open the doors last: whatever comes in finds everything at work."""
        settings, enter = self.settings, self._stack.enter_async_context
        self.web = await enter(Web(settings.web, self.counts, self._ready))
        hooks = Hooks(
            store=self.store,
            web=self.web,
            secrets=self._secrets,
            now=self._now,
            fired=self._poke,
        )
        house = house_of(settings, self.picked, self._now)
        connecting = self._hands.connecting(
            house=house,
            key=self.key,
            web=self.web,
            enqueue=self.dispatcher.enqueue,
            poke=self._poke,
            whisper=self._whisper,
        )
        door = Doorkeeper(
            store=self.store,
            house=house,
            key=self.key,
            surfaces=self._surfaces,
            connecting=connecting,
        )
        self.context = Context(
            store=self.store,
            house=house,
            catalogue=self._catalogue,
            enqueue=self.dispatcher.enqueue,
            poke=self._poke,
            zone=settings.zone,
            settings=shown(settings, self.picked.model),
            doors=hooks,
            tools=self._tools,
            connecting=connecting,
            mcp=self._mcp,
        )
        self._intake = Intake(
            store=self.store,
            house=self.context.house,
            context=self.context,
            key=self.key,
            enqueue=self.dispatcher.enqueue,
            poke=self._poke,
            history=self._outbox.history,
            ear=Ear(self._secrets.get, settings.voice.model, settings.voice.base_url),
            counts=self.counts,
            zone=settings.zone,
            file_limit=settings.ceilings.file_bytes,
            door=door.look,
        )
        intake = await enter(self._intake)
        await enter(connecting)
        await self._open(hooks)
        await self.console.start(intake.take)
        self._stack.push_async_callback(self.console.stop)
        self.connections = Connections(
            settings, self._ground(), self._surfaces, intake.take, self._started
        )
        await enter(self.connections)
        await enter(LocalSocket(socket_path(settings), self.context, self._say))
        self.unpaired = await self.store.read(self._unpaired)
        if len(self.unpaired) < len(self.connections.states):  # somebody is there to read it
            zone, now = settings.zone, self._now()
            await self.store.write(lambda tx: digests.begin(tx, TENANT, people.CONSOLE, zone, now))
            self.alarm.nudge()
        self._opened.set()

    async def _open(self, hooks: Hooks) -> None:
        try:
            await hooks.start(TENANT)
        except SettingsError as error:  # of the port that nobody set: no reason to be silent
            await self._notify("hooks", "Hooks are not answered", str(error))

    def _unpaired(self, tx: Tx) -> list[str]:
        """Return the platforms on which nobody is known as the owner yet."""
        names = self.connections.states
        return [name for name in names if not pairing.paired(tx, TENANT, name)]

    def _ground(self) -> Ground:
        return Ground(
            now=self._now,
            data=self.settings.data,
            web=self.web,
            secrets=self._secrets,
            counts=self.counts,
            owned=self._owned,
            notify=self._notify,
            forms=Forms(self.store, TENANT, self.key, self._tools.get),
            board=Board(self.store, TENANT, self.key, self.settings.zone),
            places=Places(self.store, TENANT, self.presenter.poke),
        )

    async def _owned(self, prefix: str) -> list[Owned]:
        """Return the threads that sessions own and whose target begins with `prefix`."""
        rows = await self.store.read(
            lambda tx: tx.all("threads_owned", tenant=TENANT, prefix=f"{prefix}%")
        )
        return [
            Owned(target=row["thread_target"], session=row["session_id"], last_at=row["last_at"])
            for row in rows
            if row["thread_target"].startswith(prefix)
        ]

    async def _whisper(self, target: str, text: str) -> None:
        """Post a text of which nothing is kept, to where one person reads it."""
        message = Message(text=text)
        await self._outbox.show(target, message, f"whisper:{mint('w')}", doubt=False)

    async def _started(self, surface: str) -> None:
        """A platform is connected: what was told of it is over, and what waited is shown."""
        now = self._now()
        await self.store.write(lambda tx: answers.settle(tx, TENANT, f"surface:{surface}", now))
        self._poke()

    async def _notify(self, cause: str, title: str, text: str) -> None:
        """Tell the owner, once while it is not answered."""
        tell = partial(
            answers.notify, tenant=TENANT, now=self._now(), cause=cause, title=title, text=text
        )
        await self.store.write(tell)
        self._poke()

    async def _warn(self, cause: str, title: str, text: str) -> None:
        """Tell the owner what does not work; that it works again is no news."""
        if text:
            await self._opened.wait()
            await self._notify(cause, title, text)

    async def _ready(self) -> tuple[bool, Mapping[str, str]]:
        """Say whether everything works: the store answers, and the doors are open."""
        try:
            await self.store.read(
                lambda tx: tx.one("principal_get", tenant=TENANT, id=people.CONSOLE)
            )
        except StoreError as error:
            return False, {"store": type(error).__name__}
        return self._opened.is_set(), {"store": "ok", **self.connections.states}

    def seat(self) -> Seat:
        """Return what a terminal is wired to."""
        return Seat(
            surface=self.console,
            presenter=self.presenter,
            context=self.context,
            bus=self.bus,
            person=CONSOLE_PERSON,
            key=self.key,
        )

    async def offer(self, thread: str, folder: Path) -> None:
        """Ask in the console thread whether its session may read `folder`, unless it was asked."""
        house, target, now = self.context.house, f"console:{thread}", self._now()

        def ask(tx: Tx) -> None:
            found = sessions.find_thread(tx, house.tenant, target)
            found = found or house.open(tx, target, people.CONSOLE, now)
            offer_folder(tx, house, sessions.get(tx, found), folder)

        await self.store.write(ask)
        self.presenter.poke()

    async def _say(self, target: str, text: str) -> str:
        """Take a line from another process of the person at the console."""
        receipt = await self.console.say(target, CONSOLE_PERSON, text)
        return receipt.text or f"Said in {target}."

    def _carded(self) -> None:
        """A tool raised a card; it is at work only after the presenter is."""
        self.presenter.poke()

    def _poke(self) -> None:
        """Something was written that no log tells of: it may be to show, or due."""
        self.presenter.poke()
        self.alarm.nudge()
        self._intake.nudge()
        self._mcp.nudge()
        self._hands.sources.nudge()

    def _background(self) -> list[asyncio.Task[None]]:
        """Begin what may take its time now that we are ready."""
        tasks = [asyncio.create_task(self._warm(), name="warm-up")]
        if self.settings.retention_days:
            keeping = keep(self.store, self.settings, self._now)
            tasks.append(asyncio.create_task(keeping, name="retention"))
        return tasks

    async def _warm(self) -> None:
        """Load the provider's SDK before the first turn needs it."""
        try:
            await self._router.warm(self.picked.model)
        except ModelError as error:
            _log.warning("%s", error)


def shown(settings: Settings, model: str) -> list[tuple[str, str]]:
    """Return (name, value) of what is set and people may ask for; no secret is in it."""
    return [
        ("model", model),
        ("fallbacks", ", ".join(settings.fallbacks) or "none"),
        ("mode", settings.mode),
        ("persona", settings.persona),
        ("zone", settings.zone),
        ("store", settings.store_shown),
        ("retention.days", str(settings.retention_days or "for good")),
        ("limits.iterations", str(settings.limits.iterations)),
    ]


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _open_executor(folder: Path, state: ShellState | None) -> LocalExecutor:
    return LocalExecutor(folder, state=state)


async def serve(
    settings: Settings, environ: Mapping[str, str], ready: Callable[[App], None]
) -> None:
    """Run until SIGTERM or SIGINT, then stop in order; a second signal cuts that short.

    `ready` is called once everything works. Raises NodError when it cannot start.
    """
    stop = asyncio.Event()
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"

    def asked() -> None:
        if stop.is_set():
            task.cancel()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked)
    async with App(settings, environ) as app:
        ready(app)
        await stop.wait()
