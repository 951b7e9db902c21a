"""Advances a session: does what `decide` says and records what happened, until nothing is left.

The driver holds nothing the store does not have: it can be dropped at any point, and another one
goes on from the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from engine.canonical import argument_hash
from engine.errors import Fenced, ToolError
from engine.events import Kind
from engine.models.base import Answer, Delta, KeyRejected, ModelError, Request
from engine.permissions import policy
from engine.permissions.base import Answer as Judgement
from engine.store.base import Tx
from engine.tools.base import Offer
from engine.turn import asking, ingest, journal, run, spending, view
from engine.turn.decide import (
    CallModel,
    Judge,
    LookUp,
    Put,
    Raise,
    Release,
    Run,
    Step,
    Undo,
    Wait,
    decide,
)
from engine.turn.hold import Hold
from engine.turn.journal import RightsLost, RuleSpent, StopSeen
from engine.turn.judge import judge, recorded, verdict_body
from engine.turn.ports import Engine
from engine.turn.prompt import system_prompt
from engine.turn.state import Call
from engine.turn.undoing import undo

__all__ = ["POISON", "advance"]

#: A turn whose worker died this often is ended and shown.
POISON = 3

_log = logging.getLogger(__name__)


async def advance(
    engine: Engine, session_id: str, hint: asyncio.Event, *, counted: bool = True
) -> None:
    """Take the session and do all there is to do in it; return when it rests or is taken away.

    Args:
        hint: set by others when something may have come in; only shortens the wait.
        counted: count this as an attempt; not after one that only the store made fail.

    Raises StoreError when the store fails; the session is then taken up again later.
    """
    opened = await engine.store.write(lambda tx: _open(engine, session_id, tx, counted))
    if opened is None:
        return
    driver, committed = opened
    try:
        await driver.opened(committed, hint)
        async with driver.room():
            while not await driver.step():
                pass
    except Fenced:
        engine.histories.forget(session_id)
        _log.info("session %s was taken by another worker", session_id)
    except BaseException:
        engine.histories.forget(session_id)  # it may hold facts that were never committed
        raise
    finally:
        await driver.close()


def _open(
    engine: Engine, session_id: str, tx: Tx, counted: bool
) -> tuple[Driver, journal.Committed | None] | None:
    """Take the session and write all that needs no I/O: its mail, its answers, the turn's start."""
    now = engine.now()
    taken = journal.take(tx, session_id, engine.worker, now, engine.limits, counted=counted)
    if taken is None:
        return None
    driver = Driver(engine, taken, engine.hands(tx, taken.session))
    attempts = taken.session.attempts
    if driver.poisoned:
        attempts = 0  # of the turn that is ended; what waits after it starts afresh
        driver.put(Kind.ERROR, {"text": _POISONED, "error_type": "Poisoned"})
        driver.put(Kind.PERMISSION_REQUIRED, asking.notice(driver.state, _POISONED, now))
    elif attempts > POISON:
        attempts = 0
        driver.give_up()
    while isinstance(step := driver.decide(), Put):
        driver.take_in(step.facts)
    if not driver.buffer:
        return driver, None
    return driver, driver.commit_in(tx, attempts=attempts)


_POISONED = (
    f"This turn was ended: the worker died {POISON} times while it ran. Nothing was repeated. "
    "Look at what was done above, then /retry."
)


class Driver(Hold):
    """Does the steps of one session, from taking it to giving it up."""

    @property
    def poisoned(self) -> bool:
        """True when the turn has killed its worker too often."""
        return self.state.open and self.session.attempts > POISON

    def decide(self) -> Step:
        """Return what comes next, now."""
        gone = {
            call.start.worker
            for call in (*self.state.calls, *self.state.loose)
            if call.start is not None
            and (call.start.worker == self.engine.worker or self.engine.is_gone(call.start.worker))
        }
        return decide(self.state, self.engine.now(), gone)

    def give_up(self) -> None:
        """Do no more of what killed the worker outside a turn: an undo, or a look-up."""
        for mail in self.state.mail:
            if mail.kind == "undo":
                text = f"The undo was given up: the worker died {POISON} times in it."
                self.put(Kind.NOTICE, {"text": text, "mail": mail.id})
        for call in self.state.loose:
            if not call.found:
                self.put(Kind.UNKNOWN, {"found": "cannot_tell"}, call=call.id)

    @asynccontextmanager
    async def room(self) -> AsyncIterator[None]:
        """Hold a place under the ceilings while the turn is at work; one who waits is told."""
        gate, session = self.engine.gate, self.session
        held: list[asyncio.Semaphore] = []
        try:
            for place in gate.places(session.owner, session.model) if self.state.open else ():
                if place.locked():
                    text = "Many turns are at work already; this one goes on when one has ended."
                    self.put(Kind.NOTICE, {"text": text})
                    await self.commit()
                    stopped, taken = await self._race(place.acquire())
                    if taken:  # also as the stop came in
                        held.append(place)
                    if stopped:
                        break  # what is left needs no place: the turn is being closed
                else:
                    await place.acquire()  # there is room, so this does not wait
                    held.append(place)
            yield
        finally:
            for place in held:
                place.release()

    async def step(self) -> bool:
        """Do the next step; True when the session was given up."""
        if self._hint.is_set():
            await self._refresh()
        step = self.decide()
        match step:
            case Put():
                self.take_in(step.facts)
            case Judge():
                await self._judge(step.calls)
            case Raise():
                await self._raise(step)
            case CallModel():
                await self._call_model(step.tools)
            case Run():
                await self._run(step.calls)
            case LookUp():
                await self._look_up(step.call)
            case Undo():
                for kind, body in await undo(self.engine, self.session, step.mail):
                    self.put(kind, body)
                await self.commit()
            case Wait():
                await self._wait(step.until)
            case Release():
                await self.shell.close()
                return (await self.commit(release=step.state)).released
        return False

    async def _judge(self, calls: Sequence[Call]) -> None:
        fitting = [call for call in calls if not call.revision or self._fits(call)]
        if fitting:
            await self._judge_fitting(fitting)

    def _fits(self, call: Call) -> bool:
        """Check what a person made of a call against its schema, as a model's own words are."""
        declared = self.engine.tools.get(call.name)
        try:
            checked = declared.check(call.arguments) if declared else call.arguments
        except ToolError as error:
            text = f"Error: a person changed the arguments, and they do not fit: {error}"
            body = {"name": call.name, "status": "error", "content": text}
            self.put(Kind.TOOL_FINISHED, body, call=call.id)
            return False
        if checked == call.arguments:
            return True
        hashed = argument_hash(call.name, checked)
        edited = {"arguments": checked, "hash": hashed, "before": call.arguments}
        self.put(Kind.EDITED, edited, call=call.id)
        return False  # judged in its completed form

    async def _judge_fitting(self, calls: Sequence[Call]) -> None:
        verdicts = await judge(self.engine, self.session, calls, self.closed)
        for call, verdict in zip(calls, verdicts, strict=True):
            self.put(Kind.VERDICT, verdict_body(call, verdict), call=call.id)

    async def _raise(self, step: Raise) -> None:
        for call in step.calls:
            ctx = self._context(call)
            asking_for = asking.prompt_for(
                self.engine, self.session, self.state, call, ctx, kind=step.kind
            )
            stopped, asked = await self._race(asking_for)
            if stopped or asked is None:
                return  # nobody is asked any more
            kind, body = asked
            self.put(kind, body, call=call.id)

    async def _call_model(self, tools: bool) -> None:
        if self._budgeted and await self._held_back():
            return
        answer, request, pieces = None, None, ingest.Pieces()
        try:
            request = await self._request(tools)
            stopped, answer = await self._race(self._stream(request, pieces))
        except ModelError as error:
            if pieces.text:
                self.take_in(ingest.partial(self.state, pieces, self.engine.now(), "error"))
            if not isinstance(error, KeyRejected):
                self._lose(request, pieces, "failed")
            self.put(Kind.ERROR, {"text": str(error), "error_type": type(error).__name__})
            return
        if stopped or answer is None:
            if pieces.text or pieces.reasoning:
                self.take_in(ingest.partial(self.state, pieces, self.engine.now(), "stopped"))
            self._lose(request, pieces, "stopped")
            return
        facts = ingest.facts(self.engine, self.session, self.state, answer, tools=tools)
        self.take_in(facts)

    async def _held_back(self) -> bool:
        """Weigh the next call against the budgets; True when it is not to be made now."""
        if spending.spent_in(self.buffer):  # all turns see what this one spent so far
            await self.commit()
            return True  # and this one sees what came in with it
        weighed = await self.engine.store.read(
            lambda tx: spending.weigh(self.engine, self.session, self.state, tx)
        )
        for kind, body in weighed:
            self.put(kind, body)
        return any(kind is not Kind.NOTICE for kind, _ in weighed)

    def _lose(self, request: Request | None, pieces: ingest.Pieces, why: str) -> None:
        body = spending.lost(self.engine, request, pieces, why)
        if body is not None:
            self.put(Kind.SPENT, body)

    async def _request(self, tools: bool) -> Request:
        engine, session = self.engine, self.session
        entry = engine.catalogue.entry(session.model)
        persona = engine.persona(session.persona)
        offer = Offer()
        if tools:
            offer = await engine.tools.offer(session.mode, persona.tools, self.closed)
        if self._history is None:
            self._history = await engine.histories.load(engine.store, session.id, self._taken)
            self._history.extend(self._since)
        self._history.extend(self.buffer)
        seen = await view.build(
            self._history,
            self.state.turn,
            entry,
            system_prompt(persona, session),
            offer,
            engine.documents,
        )
        if seen.border is not None:
            border = {"results": seen.border.results, "turns": seen.border.turns}
            self.put(Kind.ELIDED, {"model": entry.id, **border})
        return Request(
            model=session.model,
            messages=seen.messages,
            tools=offer.schemas,
            session=session.id,
            fallbacks=engine.fallbacks,
        )

    async def _stream(self, request: Request, pieces: ingest.Pieces) -> Answer | None:
        async with aclosing(self.engine.model.stream(request)) as stream:
            async for piece in stream:
                if isinstance(piece, Answer):
                    return piece
                self._show(piece, pieces)
        return None

    def _show(self, piece: Delta, pieces: ingest.Pieces) -> None:
        pieces.add(piece)
        if piece.text:
            self._transport(Kind.ASSISTANT_DELTA, {"text": piece.text})
        if piece.reasoning:
            self._transport(Kind.REASONING_DELTA, {"text": piece.reasoning})

    async def _run(self, calls: Sequence[Call]) -> None:
        if any(fact.kind in _SHOWN for fact in self.buffer):
            await self.commit()  # a card is shown at once, whatever runs before its turn comes
            return  # a stop may have come in with it: nothing starts before that is looked at
        if not self._prepared:
            await asyncio.to_thread(run.make_folders, self.engine, self.session.id)
            self._prepared = True
        if calls[0].asks:
            self._answer(calls[0])
        elif calls[0].harmless:
            await self._run_harmless(calls)
        else:
            await self._run_consequential(calls[0])

    def _answer(self, call: Call) -> None:
        """The call was a prompt; a person's answer is its result."""
        result = asking.result_of(self.engine, call)
        self._finish(call, run.Ran(result=result, content=result.text))

    async def _run_harmless(self, calls: Sequence[Call]) -> None:
        for call in calls:
            body = run.intent(self.engine, call, rule="", actor="nod", surface="")
            self._transport(Kind.TOOL_STARTED, {**body, "name": call.name}, call.id)
            self.put(Kind.TOOL_STARTED, body, call=call.id)
        acts = [self._act(call) for call in calls]
        _, results = await self._race(run.together(acts))
        if results is None:
            return
        for call, ran in zip(calls, results, strict=True):
            self._finish(call, ran)

    async def _run_consequential(self, call: Call) -> None:
        """Judge once more, commit the intent, act, record."""
        if not await self._still_allowed(call):
            return
        call = self.state.call(call.id) or call
        declared = self.engine.tools.get(call.name)
        assert declared is not None, "policy refuses an unknown tool"
        verdict, decision = call.verdict or {}, call.decision
        body = run.intent(
            self.engine,
            call,
            rule=verdict["step"],
            actor=decision["by"] if decision and call.decided else "nod",
            surface=decision["surface"] if decision and call.decided else "",
        )
        stopped, seen = await self._race(run.witness(declared, call, self._context(call)))
        if stopped:
            return
        body["witness"] = seen
        destination = declared.destination(call.arguments, self.session.home)
        if destination:
            body["delivery"] = destination
        before = self.state, len(self.buffer), self._seq, dict(self._touched)
        self.put(Kind.TOOL_STARTED, body, call=call.id)
        try:
            await self.commit(intent=call)
        except (StopSeen, RuleSpent, RightsLost) as obstacle:
            self.state, kept, self._seq, self._touched = before
            del self.buffer[kept:]
            await self._refresh()
            self._refuse(call, obstacle)
            return
        _, ran = await self._race(self._act(self.state.call(call.id) or call))
        if ran is not None:
            self._finish(call, ran)

    def _refuse(self, call: Call, obstacle: Exception) -> None:
        if isinstance(obstacle, StopSeen):
            return
        answer = Judgement.ASK if isinstance(obstacle, RuleSpent) else Judgement.REFUSE
        body = {**(call.verdict or {}), "answer": answer.value, "reason": str(obstacle)}
        self.put(Kind.VERDICT, body, call=call.id)

    async def _still_allowed(self, call: Call) -> bool:
        """Judge again right before the start: a refuse wins, an ask over an undecided allow too."""
        (fresh,) = await judge(self.engine, self.session, [call], self.closed)
        held = recorded(call.verdict or {})
        holds = policy.holds_at_start(held, fresh, call.decided)
        if not holds or (fresh.step != held.step and not call.decided):
            self.put(Kind.VERDICT, verdict_body(call, fresh), call=call.id)  # what lets it through
        return holds

    async def _act(self, call: Call) -> run.Ran:
        declared = self.engine.tools.get(call.name)
        assert declared is not None, "policy refuses an unknown tool"
        current = self.state.call(call.id) or call
        return await run.act(self.engine, declared, current, self._context(current))

    def _finish(self, call: Call, ran: run.Ran) -> None:
        """Record a result, with what came with it. Without one, the fate of the call is open."""
        if ran.late:
            self.put(Kind.UNKNOWN, {"found": "did_not"}, call=call.id)
            return
        if ran.lacks is not None:
            self.put(Kind.UNKNOWN, {"found": "refused", "lacks": ran.lacks}, call=call.id)
            return
        result = ran.result
        if result is None:
            return  # decide finds a start without a result, and has it looked up
        status = "ok" if result.ok else "error"
        body: dict[str, Any] = {
            "name": call.name,
            "status": status,
            "content": f"{ingest.as_run(call)}{ran.content}",
        }
        if result.display is not None:
            body["display"] = result.display
        if result.undo:
            body["undo"] = list(result.undo)
        self._transport(Kind.TOOL_FINISHED, {"name": call.name, "status": status}, call.id)
        self.put(Kind.TOOL_FINISHED, body, call=call.id)
        for kept in ran.kept:
            self.put(Kind.ARTIFACT, kept, call=call.id)
        self._tainted_by(result.taint, call.id)
        for kind, extra in result.facts:
            self._transport(kind, extra, call.id)
            self.put(kind, extra, call=call.id)

    async def _look_up(self, call: Call) -> None:
        if self.buffer:  # it may take long: what is known by now is shown before
            await self.commit()
            return
        declared = self.engine.tools.get(call.name)
        looking = run.look_up(self.engine, declared, call, self._context(call))
        _, looked = await self._race(looking)
        if looked is None:
            return  # stopped: what is not known then is looked up outside the turn
        found, ran = looked
        loose = any(each.id == call.id for each in self.state.loose)
        if found == "happened" and not loose:
            self._finish(call, ran)
        else:
            self.put(Kind.UNKNOWN, {"found": found}, call=call.id)
        await self.commit()


_SHOWN = frozenset({Kind.PERMISSION_REQUIRED, Kind.QUESTION_REQUESTED, Kind.PLAN_PROPOSED})
