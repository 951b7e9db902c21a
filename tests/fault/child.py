"""One worker in a process of its own that can end itself at any edge of its turn.

    python -m tests.fault.child '<spec as JSON>'   one run
    python -m tests.fault.child --serve            one run for each line of stdin, in a fork

A run brings the message in (again, as a platform does that was not answered), advances the session
and answers its prompts as a person would who looks at what happened outside, until it rests. What
the world was told (an intake, an answer, every fact on the bus) is noted in the run's `told` file.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import AsyncGenerator, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bot.outbound.outbox import Outbox
from engine import inbox, people, sessions
from engine.canonical import digest, dumps
from engine.events import Bus, Event
from engine.models.base import Answer, Delta, Request, Usage
from engine.models.catalogue import Catalogue
from engine.sandbox.base import Executor
from engine.store.base import Store, Tx
from engine.store.lock import AdvanceLock
from engine.store.opening import open_store
from engine.tools import files, messages, schema
from engine.tools.base import Registry, Result, Risk, Tool, ToolContext, tool
from engine.turn.journal import event_from
from engine.turn.ports import Engine
from engine.turn.prompt import Persona
from engine.work.base import is_gone, worker_id
from engine.work.local import Dispatcher
from tests.fakes.scripted import call, calls
from tests.fault.edges import Edges, NamedStore, edged, kill_self
from tests.fault.outside import Outside, append, lines_of

__all__ = ["ALL_FOUR", "BOMB", "FINAL", "KEY", "POSTED", "TARGET", "WRITTEN", "Spec"]

#: What the turn is to leave behind, once each.
FINAL = "All four are done."
POSTED = "Good morning"
TARGET = "console:standup"
WRITTEN = "the briefing\n"
KEY = "platform-event"

#: What the person says; the second makes the model call a tool that kills the worker.
ALL_FOUR, BOMB = "Do all four.", "Defuse the bomb."

#: Seconds after which a run that hangs shows where, and ends.
HANGS = 40.0
#: Seconds between two looks at a session another process advances.
LOOK = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One run."""

    url: str
    #: The data folder; on SQLite also what the advance lock is on.
    data: str
    #: The thread the message comes from.
    thread: str
    #: The number of the edge at which `act` happens, from 1; 0: at none.
    at: int = 0
    #: kill (SIGKILL), stop (SIGSTOP), press (the person presses now, and not before).
    act: str = "kill"
    #: The surface can tell whether something was posted.
    sees: bool = True
    #: The person answers prompts.
    answers: bool = True
    says: str = ALL_FOUR
    #: The person presses Retry when the turn ended with an error.
    retries: bool = True

    @property
    def folder(self) -> Path:
        """Where this thread's files are: effects, told, edges."""
        return Path(self.data) / self.thread.replace(":", "-")

    def line(self) -> str:
        """Return the run as one line of JSON."""
        return json.dumps(asdict(self))


class Told:
    """What the world outside was told: a line once written survives the writer."""

    def __init__(self, file: Path) -> None:
        self._descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def __call__(self, **line: Any) -> None:
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")


class ToldBus(Bus):
    """The bus, which also notes every fact that is shown."""

    def __init__(self, told: Told) -> None:
        super().__init__()
        self._told = told

    def publish(self, event: Event) -> None:
        super().publish(event)
        if event.seq:
            body = digest(dumps(event.body))
            self._told(
                told="fact", session=event.session, seq=event.seq, kind=event.kind, body=body
            )


#: What the person says -> the calls it takes; other words take none.
PLANS = {
    ALL_FOUR: (
        call("read_file", path="in/notes.txt"),
        call("list_files", path="in"),
        call("write_file", path="briefing.md", content=WRITTEN),
        call("send_message", target=TARGET, text=POSTED),
    ),
    BOMB: (call("bomb"),),
}


class Script:
    """A model that answers by what the conversation holds: it asks for what has no result yet."""

    def __init__(self, edges: Edges) -> None:
        self._edges = edges

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Answer, None]:
        left = _left(request)
        text = "On it." if left else FINAL
        self._edges.at("stream: before")
        for piece in text.split():
            yield Delta(text=piece + " ")
        self._edges.at("stream: in the middle")
        answer = calls(*left, text=text) if left else Answer(text=text)
        self._edges.at("stream: after")
        yield Answer(
            text=text,
            calls=answer.calls,
            finish=answer.finish,
            usage=Usage(input=10, output=5),
            model=request.model,
        )


def _left(request: Request) -> list[Any]:
    """Return the calls of the plan that were not made, or did not run."""
    said = str([m.get("content") for m in request.messages if m["role"] == "user"])
    plan = next((plan for words, plan in PLANS.items() if words in said), ())
    results = {
        m["tool_call_id"]: str(m["content"]) for m in request.messages if m["role"] == "tool"
    }
    made = {
        each["function"]["name"]
        for message in request.messages
        for each in message.get("tool_calls") or ()
        if not results.get(each["id"], "").startswith("Error: stopped before")
    }
    return [each for each in plan if each.name not in made]


@tool(risk=Risk.READ)
async def bomb(ctx: ToolContext) -> Result:
    """Kill the worker."""
    if not (ctx.keep.parents[2] / "defused").exists():
        kill_self()
    return Result(text="defused")


def _no_shell(home: Path, state: Any) -> Executor:
    raise AssertionError("no tool here opens a shell")


@dataclass(slots=True)
class Worker:
    """The engine of one run, and the person who watches it."""

    spec: Spec
    engine: Engine
    dispatcher: Dispatcher
    told: Told
    press: asyncio.Event

    @property
    def effects(self) -> Path:
        return self.spec.folder / "effects"

    async def work(self) -> None:
        """Bring the message in, and see to the session until it rests."""
        session = await self.engine.store.write(self._intake)
        self.told(told="intake", session=session)
        async with self.dispatcher, asyncio.TaskGroup() as group:
            if self.spec.act == "press":
                group.create_task(self._press_when_told(session))
            self.dispatcher.enqueue(session)
            while not await self._rests(session):
                await self._see_to(session)
            self.told(told="rest", session=session)

    def _intake(self, tx: Tx) -> str:
        spec, now = self.spec, self.engine.now()
        people.seed_console(tx, "local", now)
        session = sessions.find_thread(tx, "local", spec.thread)
        if session is None:
            session = sessions.open_session(
                tx,
                tenant="local",
                home=spec.thread,
                owner=people.CONSOLE,
                origin="person",
                persona="cowork",
                model="practice:test",
                mode="interactive",
                data=self.engine.data,
                now=now,
            )
        _bring_notes(sessions.files_of(self.engine.data, session))
        self._post(tx, session, "message", f"{KEY}:{spec.thread}", spec.says)
        return session

    def _post(self, tx: Tx, session: str, kind: str, key: str, text: str) -> None:
        body = {"message": {"role": "user", "content": text}}
        mail = sessions.Post(kind=kind, key=key, by=people.CONSOLE, body=body)
        sessions.post(tx, sessions.get(tx, session), mail, self.engine.now())

    async def _rests(self, session: str) -> bool:
        """Say whether the turn is over and nothing waits."""
        row, ended, prompts = await self.engine.store.read(lambda tx: _seen(tx, session))
        quiet = row["wanted"] == row["seen"] and row["worker"] is None and not prompts
        if quiet and ended == "error" and self.spec.retries:
            await self._retry(session, row["turn"])
            return False
        return bool(quiet and ended)

    async def _retry(self, session: str, turn: int) -> None:
        """Killed too often before it got anywhere: the person presses Retry."""
        key = f"retry:{session}:{turn}"
        note = "<nod-note>try again from the last message</nod-note>"
        await self.engine.store.write(lambda tx: self._post(tx, session, "retry", key, note))
        self.dispatcher.enqueue(session)

    async def _see_to(self, session: str) -> None:
        await self.dispatcher.settled()
        prompts = await self.engine.store.read(lambda tx: inbox.pending_in(tx, session))
        self.told(told="looked", pending=len(prompts))
        if not self.spec.answers or not prompts or not self.press.is_set():
            await asyncio.sleep(LOOK)
            return
        for prompt in prompts:
            await self.answer(prompt)
        self.dispatcher.enqueue(session)

    async def _press_when_told(self, session: str) -> None:
        """Press at the very moment of the edge, whatever the worker is doing."""
        await self.press.wait()
        for prompt in await self.engine.store.read(lambda tx: inbox.pending_in(tx, session)):
            await self.answer(prompt)
            self.told(told="pressed", prompt=prompt.id)
        self.dispatcher.enqueue(session)

    async def answer(self, prompt: inbox.Prompt) -> None:
        """Answer as a person who looks at what happened."""
        kind = "seen" if prompt.kind == "notice" else "once"
        if prompt.kind == "outcome":
            subject = f"act:{prompt.subject}"
            happened = any(line["delivery"] == subject for line in lines_of(self.effects))
            kind = "happened" if happened else "run"
        person = inbox.Person(id=people.CONSOLE, role="owner", name="console")
        resolution = await self.engine.store.write(
            lambda tx: inbox.resolve(
                tx, prompt.id, {"kind": kind}, person, "phone", self.engine.now(), prompt.hash
            )
        )
        if resolution.status == "resolved":
            self.told(told="answer", prompt=prompt.id, kind=kind)


def _bring_notes(folder: Path) -> None:
    (folder / "in").mkdir(parents=True, exist_ok=True)
    (folder / "in" / "notes.txt").write_text("three commits\n", encoding="utf-8")


def _seen(tx: Tx, session: str) -> tuple[Any, str, int]:
    row = tx.one("session_get", id=session)
    ends = [
        event_from(each).body["status"]
        for each in tx.all("log_since", session=session, seq=1)
        if each["kind"] == "turn_end"
    ]
    ended = ends[-1] if ends and ends[-1] != "parked" else ""
    return row, ended, len(inbox.pending_in(tx, session))


def _clock(file: Path) -> Callable[[], float]:
    """Return a clock that runs as far ahead as the file says, in seconds; time passes there."""

    def now() -> float:
        return time.time() + (float(file.read_text()) if file.exists() else 0.0)

    return now


async def _run(spec: Spec) -> None:
    data = Path(spec.data)
    spec.folder.mkdir(parents=True, exist_ok=True)
    lock = AdvanceLock.take(data) if spec.url.startswith("sqlite") else None
    told, press = Told(spec.folder / "told"), asyncio.Event()
    if spec.act != "press":
        press.set()
    loop = asyncio.get_running_loop()
    acts: dict[str, Callable[[], Any]] = {
        "kill": kill_self,
        "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
        "press": lambda: loop.call_soon_threadsafe(press.set),
    }
    edges = Edges(spec.folder / "edges", spec.at, acts[spec.act])
    opened = await open_store(spec.url)
    try:
        store = NamedStore(opened, edges)
        engine = _engine(spec, store, edges, told)
        shared = store.dialect == "postgres"
        worker = Worker(spec, engine, Dispatcher(engine, shared=shared), told, press)
        await worker.work()
    finally:
        await opened.close()
        if lock is not None:
            lock.release()


def _engine(spec: Spec, store: Store, edges: Edges, told: Told) -> Engine:
    persona = Persona(name="cowork", prompt="You help.")
    now = _clock(Path(spec.data) / "clock")
    surface = Outside(spec.folder / "effects", edges, sees=spec.sees)
    return Engine(
        store=store,
        model=Script(edges),
        catalogue=Catalogue.load(),
        tools=Registry(_tools(spec, edges)),
        bus=ToldBus(told),
        now=now,
        data=Path(spec.data),
        delivery=Outbox(store, {"console": surface}, now),
        persona=lambda name: persona,
        open_executor=_no_shell,
        worker=worker_id(),
        is_gone=is_gone,
    )


def _tools(spec: Spec, edges: Edges) -> list[Tool]:
    def wrote(call_id: str) -> None:
        append(spec.folder / "writes", {"call": call_id})

    box = {each.name: each for each in (*files.TOOLS, *messages.TOOLS, bomb)}
    names = ("read_file", "list_files", "send_message")
    made = [edged(box[name], edges) for name in names]
    return [*made, edged(box["write_file"], edges, wrote), bomb]


def main(spec: Spec) -> int:
    """Run, and return the exit code."""
    spec.folder.mkdir(parents=True, exist_ok=True)
    with (spec.folder / "stderr").open("a") as errors:
        faulthandler.dump_traceback_later(HANGS, exit=True, file=errors)
        try:
            asyncio.run(_run(spec))
        except BaseException:  # noqa: BLE001  # broad: the border of the process
            traceback.print_exc(file=errors)
            return 70
        finally:
            faulthandler.cancel_dump_traceback_later()
    return 0


def serve() -> None:
    """Run each line of stdin in a fork; say on stdout when it was stopped and how it ended."""
    warm = [schema.describe(each) for each in (*files.TOOLS, *messages.TOOLS, bomb)]
    assert warm, "what a run would import and reflect is there before the first fork"
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os._exit(main(Spec(**json.loads(line))))
        while True:
            _, status = os.waitpid(pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                break
            print(json.dumps({"stopped": pid}), flush=True)
        print(json.dumps({"ended": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        import engine.store.postgres  # noqa: F401  # before the first fork

        serve()
    else:
        sys.exit(main(Spec(**json.loads(sys.argv[1]))))
