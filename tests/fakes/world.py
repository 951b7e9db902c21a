"""A running Nod without a chat side: real store and engine, a scripted model, recording tools."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import inbox, people, sessions
from engine.clock import system_now
from engine.events import Bus, Event, Kind
from engine.models.base import Model
from engine.models.catalogue import Catalogue
from engine.sandbox.local import LocalExecutor
from engine.sessions import Session
from engine.store.base import Store, Tx
from engine.tools.base import Delivery, Registry, Result, Risk, Tool, ToolContext, tool
from engine.tools.box import standard_tools
from engine.turn.journal import event_from
from engine.turn.ports import Engine
from engine.turn.prompt import Persona
from engine.turn.state import Limits
from engine.work.base import Ceilings, Gate, is_gone, worker_id
from engine.work.local import Dispatcher
from tests.fakes.context import RecordedDelivery

__all__ = ["HOME", "World", "at_work", "opened", "probe", "running"]

HOME = "console:main"
#: Seconds that turns at work have at the end; a service gives them more.
GRACE = 0.5
_keys = itertools.count(1)


@dataclass(slots=True)
class Probe:
    """A tool of declared risk that records when it ran, and can be held."""

    name: str
    risk: Risk
    log: list[tuple[str, str, str]]
    gate: asyncio.Event | None = None

    def declare(self) -> Tool:
        """Return the tool: `name(label)` notes its start and end in the log."""
        name, log, gate = self.name, self.log, self.gate

        async def run(ctx: ToolContext, label: str = "") -> Result:
            """Record a label.

            Args:
                label: What to record.
            """
            ctx.before_act()
            log.append(("start", name, label))
            if gate is not None:
                await gate.wait()
            else:
                await asyncio.sleep(0)
            log.append(("end", name, label))
            return Result(text=f"{name} {label} done")

        run.__name__ = name
        target = (lambda arguments: [arguments["label"]]) if self.risk is Risk.EXTERNAL else None
        return tool(risk=self.risk, name=name, target=target)(run)


def probe(
    name: str, risk: Risk, log: list[tuple[str, str, str]], gate: asyncio.Event | None = None
) -> Tool:
    """Return a recording tool."""
    return Probe(name=name, risk=risk, log=log, gate=gate).declare()


@dataclass(slots=True)
class World:
    """One worker on one store."""

    engine: Engine
    dispatcher: Dispatcher
    delivery: Any
    persona: Persona = field(default_factory=lambda: Persona(name="cowork", prompt="You help."))

    @property
    def store(self) -> Store:
        return self.engine.store

    async def open(self, home: str = HOME, *, mode: str = "interactive", **given: Any) -> str:
        """Open a session of the console person and return its id."""
        options: dict[str, Any] = {
            "tenant": "local",
            "home": home,
            "owner": people.CONSOLE,
            "origin": "person",
            "persona": "cowork",
            "model": "practice:test",
            "mode": mode,
            "data": self.engine.data,
            "now": self.engine.now(),
            **given,
        }
        return await self.store.write(lambda tx: sessions.open_session(tx, **options))

    async def post(self, session: str, kind: str, body: Mapping[str, Any], key: str = "") -> bool:
        """Put mail into the session's mailbox and hint the dispatcher."""
        key = key or f"test:{next(_keys)}"
        mail = sessions.Post(kind=kind, key=key, by=people.CONSOLE, body=body)
        now = self.engine.now()
        added = await self.store.write(
            lambda tx: sessions.post(tx, sessions.get(tx, session), mail, now)
        )
        self.dispatcher.enqueue(session)
        return added

    async def say(self, session: str, content: Any, *, kind: str = "message") -> None:
        """Say something in the session, without waiting for an answer."""
        await self.post(session, kind, {"message": {"role": "user", "content": content}})

    async def stop(self, session: str) -> None:
        """Stop the session's turn."""
        await self.post(session, "stop", {"reason": "stopped"})

    async def settle(self, limit: float = 10.0) -> None:
        """Wait until nothing is being advanced."""
        async with asyncio.timeout(limit):
            await self.dispatcher.settled()

    async def turn(self, session: str, content: Any) -> list[Event]:
        """Say something and wait until the session rests; returns its whole log."""
        await self.say(session, content)
        await self.settle()
        return await self.log(session)

    async def log(self, session: str) -> list[Event]:
        """Return every fact of the session."""
        return await self.store.read(
            lambda tx: [event_from(row) for row in tx.all("log_since", session=session, seq=1)]
        )

    async def pending(self, session: str | None = None) -> list[inbox.Prompt]:
        """Return the open prompts, of one session or of all."""
        if session is None:
            return await self.store.read(lambda tx: inbox.pending(tx, "local"))
        return await self.store.read(lambda tx: inbox.pending_in(tx, session))

    async def answer(
        self, prompt: inbox.Prompt, kind: str, surface: str = "phone", **more: Any
    ) -> inbox.Resolution:
        """Answer a prompt as the console person, and hint the dispatcher."""
        person = inbox.Person(id=people.CONSOLE, role="owner", name="console")
        resolution = await self.store.write(
            lambda tx: inbox.resolve(
                tx, prompt.id, {"kind": kind, **more}, person, surface, self.engine.now()
            )
        )
        if prompt.session is not None:
            self.dispatcher.enqueue(prompt.session)
        return resolution


@asynccontextmanager
async def opened(
    store: Store,
    data: Path,
    model: Model,
    *,
    tools: Sequence[Tool] | None = None,
    delivery: Delivery | None = None,
    limits: Limits | None = None,
    worker: str = "",
    allowlist: tuple[str, ...] = (),
    quorum: tuple[str, ...] = (),
    ceilings: Ceilings | None = None,
    shared: bool = False,
    persona: Persona | None = None,
    now: Any = system_now,
    closed: frozenset[str] = frozenset(),
    hands: Callable[[Tx, Session], frozenset[str]] | None = None,
) -> AsyncIterator[World]:
    """A world whose dispatcher is not running yet."""
    who = persona or Persona(name="cowork", prompt="You help.")
    limit = ceilings or Ceilings(turns_per_person=512)
    kept = delivery or RecordedDelivery()
    engine = Engine(
        store=store,
        model=model,
        catalogue=Catalogue.load(),
        tools=Registry(standard_tools() if tools is None else tools),
        bus=Bus(),
        now=now,
        data=data,
        delivery=kept,
        persona=lambda name: who,
        open_executor=lambda home, state: LocalExecutor(home, state=state),
        worker=worker or worker_id(),
        is_gone=is_gone,
        hands=hands or (lambda _tx, _session: closed),
        limits=limits or Limits(),
        allowlist=allowlist,
        quorum=quorum,
        gate=Gate(limit),
    )
    await store.write(lambda tx: people.seed_console(tx, "local", now()))
    yield World(
        engine=engine,
        dispatcher=Dispatcher(engine, turns=limit.turns, shared=shared),
        delivery=kept,
        persona=who,
    )


@asynccontextmanager
async def running(store: Store, data: Path, model: Model, **options: Any) -> AsyncIterator[World]:
    """A world at work; drained at the end."""
    async with opened(store, data, model, **options) as world, at_work(world.dispatcher):
        yield world


@asynccontextmanager
async def at_work(dispatcher: Dispatcher) -> AsyncIterator[None]:
    """Run a dispatcher; at the end, a turn that is held has little time left."""
    async with dispatcher:
        yield
        await dispatcher.drain(GRACE)


def kinds(facts: Sequence[Event]) -> list[Kind]:
    """Return what happened, in order."""
    return [fact.kind for fact in facts]
