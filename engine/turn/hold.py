"""One worker's hold on a session: gathers facts, commits them, sees what comes in, honours a stop.

Facts gather in a buffer and are committed before anything outside depends on them: an act, a card,
an answer that is shown, the release of the session. Nothing is held that the store does not have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from engine.events import Event, Kind, numbered
from engine.sessions import Session
from engine.store.base import Tx
from engine.tools.base import Root, ToolContext
from engine.turn import journal, run, view
from engine.turn.journal import Batch
from engine.turn.ports import Engine
from engine.turn.state import Call, State, apply

__all__ = ["Hold"]

T = TypeVar("T")

#: Seconds a stopped call gets to end by itself.
STOP_GRACE = 0.5


class Hold:
    """What a worker knows of the session it has, and how it writes to it."""

    def __init__(self, engine: Engine, taken: journal.Taken, closed: frozenset[str]) -> None:
        self.engine = engine
        self.session: Session = taken.session
        #: Names of the tools that are not for this session, as of the last look.
        self.closed = closed
        self.state: State = taken.state
        self.shell = run.Shell(engine, taken.session.id)
        self.buffer: list[Event] = []
        #: The calls the buffered facts touched, as they are after them.
        self._touched: dict[str, Call] = {}
        self._seq = taken.session.seq
        self._turn_seq = taken.session.turn_seq
        self._noted = taken.noted
        self._stop_mark = taken.session.stop_mark
        self._hint = asyncio.Event()
        #: Waits for the hint; kept from one race to the next.
        self._hinted: asyncio.Future[Any] | None = None
        self._history: view.History | None = None
        #: The log's end when the session was taken, and the facts committed since that no history
        #: has: it is loaded when first needed, and only what is older need be read.
        self._taken = taken.session.seq
        self._since: list[Event] = []
        #: The session's folders are there.
        self._prepared = False
        #: Whether there are budgets, as of the last commit; True as long as nobody knows.
        self._budgeted = True
        #: Replaced when running work is dropped: what of it has not acted yet must not any more.
        self._hold = object()
        #: Mail and prompts that entered with facts not yet committed.
        self._entering: set[int | str] = set()

    async def opened(self, committed: journal.Committed | None, hint: asyncio.Event) -> None:
        """Go on on the event loop after the opening transaction."""
        self._hint = hint
        if committed is not None:
            self._after(committed)

    async def close(self) -> None:
        """Let go of what the driver holds in this process."""
        if self._hinted is not None:
            self._hinted.cancel()
        await self.shell.close()

    def put(self, kind: Kind, body: Mapping[str, Any], call: str | None = None) -> None:
        """Append a fact of the open turn."""
        fact = Event(
            session=self.session.id,
            kind=kind,
            turn=self.state.turn,
            iteration=self.state.iteration,
            call=call,
            at=self.engine.now(),
            body=body,
        )
        self.take_in((fact,))

    def take_in(self, facts: Sequence[Event]) -> None:
        """Number the facts, apply them, and keep them for the next commit."""
        for unnumbered in facts:
            self._seq += 1
            fact = numbered(unnumbered, self._seq)
            self.state = apply(self.state, fact)
            self.buffer.append(fact)
            touched = self.state.call(fact.call) if fact.call is not None else None
            if touched is not None:
                self._touched[touched.id] = touched
            self._follow(fact)

    def _follow(self, fact: Event) -> None:
        """Keep what the driver knows of the session in step with its facts."""
        body = fact.body
        if fact.kind is Kind.TURN_START:
            self._turn_seq = fact.seq
        elif fact.kind is Kind.SWITCHED:
            changed = {name: body[name] for name in ("mode", "model", "custom") if name in body}
            if "root" in body:
                new = Root(path=Path(body["root"]["path"]), writable=body["root"]["writable"])
                others = (each for each in self.session.roots if each.path != new.path)
                changed["roots"] = (*others, new)
            self.session = replace(self.session, **changed)
        elif fact.kind is Kind.TAINTED:
            self.session = replace(self.session, taint=tuple(body["labels"]))
        elif fact.kind is Kind.MESSAGE:
            self._tainted_by(body.get("source", {}).get("taint", ""))
        if body.get("mail") is not None:
            self._entering.add(body["mail"])
        if fact.kind is Kind.DECIDED:
            self._entering.add(body["prompt"])

    def _tainted_by(self, label: str, call: str | None = None) -> None:
        """Mark the session with outside text that has entered it."""
        if label and label not in self.session.taint:
            labels = sorted({*self.session.taint, label})
            self.put(Kind.TAINTED, {"labels": labels, "source": label}, call=call)

    def _batch(self, *, release: str = "", attempts: int = 0, **extra: Any) -> Batch:
        ended = not self.state.open and not self.state.loose
        return Batch(
            facts=self.buffer,
            calls=tuple(self._touched.values()),
            release=release,
            turn_seq=0 if ended else self._turn_seq,
            attempts=attempts,
            **extra,
        )

    def commit_in(self, tx: Tx, **options: Any) -> journal.Committed:
        """Commit within an open transaction."""
        batch = self._batch(**options)
        now = self.engine.now()
        return journal.commit(tx, self.session, batch, self._noted, self._stop_mark, now)

    async def commit(self, **options: Any) -> journal.Committed:
        """Make the buffered facts durable, then show them to whoever listens."""
        committed = await self.engine.store.write(lambda tx: self.commit_in(tx, **options))
        self._after(committed)
        return committed

    def _after(self, committed: journal.Committed) -> None:
        facts, self.buffer = self.buffer, []
        self._touched.clear()
        self._entering.clear()
        if facts:
            last = facts[-1]
            self.session = replace(
                self.session, seq=last.seq, turn=last.turn, turn_seq=self._turn_seq
            )
        if self._history is None:
            self._since += facts
        else:
            self._history.extend(facts)
        for fact in facts:
            self.engine.bus.publish(fact)
        self._noted = committed.noted
        self._stop_mark = committed.stop_mark
        self._budgeted = committed.budgeted
        if committed.inbound is not None:
            mail, replies = committed.inbound
            self.state = replace(self.state, mail=mail, replies=replies)

    async def _refresh(self) -> None:
        """See what came in, without writing."""
        self._hint.clear()

        def look(tx: Tx) -> tuple[journal.Committed, frozenset[str]]:
            return journal.look(tx, self.session), self.engine.hands(tx, self.session)

        seen, self.closed = await self.engine.store.read(look)
        self._stop_mark = seen.stop_mark
        self._noted = seen.noted
        self._budgeted = seen.budgeted
        mail, replies = seen.inbound or ((), ())
        self.state = replace(
            self.state,
            mail=tuple(each for each in mail if each.id not in self._entering),
            replies=tuple(each for each in replies if each.prompt not in self._entering),
        )

    def _transport(self, kind: Kind, body: Mapping[str, Any], call: str | None = None) -> None:
        self.engine.bus.publish(
            Event(
                session=self.session.id,
                kind=kind,
                turn=self.state.turn,
                iteration=self.state.iteration,
                call=call,
                at=self.engine.now(),
                body=body,
            )
        )

    async def _wait(self, until: float) -> None:
        """Wait for another worker's start to be over, or for something to come in."""
        if self.buffer:  # it may take long: what is known by now is shown before
            await self.commit()
            return
        seconds = max(0.0, until - self.engine.now())
        try:
            async with asyncio.timeout(seconds):
                await self._hint.wait()
        except TimeoutError:
            return
        await self._refresh()

    async def _race(self, work: Coroutine[Any, Any, T]) -> tuple[bool, T | None]:
        """Run `work` until it ends or a stop comes in; returns (stopped, what it gave)."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                if self._hinted is None or self._hinted.done():
                    self._hinted = asyncio.ensure_future(self._hint.wait())
                both: set[asyncio.Future[Any]] = {task, self._hinted}
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    break
                await self._refresh()
                if any(mail.kind == "stop" for mail in self.state.mail):
                    return True, await self._cut(task)
            return False, task.result()
        finally:
            self._drop(task)

    async def _cut(self, task: asyncio.Future[T]) -> T | None:
        """Stop running work; what it gives within a moment counts."""
        await self.shell.interrupt()
        await asyncio.wait({task}, timeout=STOP_GRACE / 2)
        if task.done() and not task.cancelled() and task.exception() is None:
            return task.result()
        self._drop(task)
        await asyncio.wait({task}, timeout=STOP_GRACE / 2)
        return None

    def _drop(self, task: asyncio.Future[Any]) -> None:
        """Cancel work. A thread of it goes on until it ends, but acts no more."""
        if not task.done():
            self._hold = object()
            task.cancel()

    def _context(self, call: Call) -> ToolContext:
        act_by = call.start.act_by if call.start and not call.harmless else float("inf")
        hold = self._hold

        def too_late() -> bool:
            return self._hold is not hold or self.engine.now() >= act_by

        return run.context(self.engine, self.session, call, self.shell, too_late, self.buffer)
