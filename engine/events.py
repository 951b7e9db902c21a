"""The event contract: everything that happens in a session, as one kind of value.

Facts are stored in the session's log and can be replayed; their `seq` counts from 1. Deltas are
transport: never stored, `seq` 0. Surfaces consume events; nobody reaches into the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["Bus", "Event", "Kind", "Subscription", "numbered"]


class Kind(StrEnum):
    """What happened. The note tells what the body holds."""

    # -- the contract every surface may rely on
    TURN_START = "turn_start"  # mail, by, attended, at
    ASSISTANT_DELTA = "assistant_delta"  # text; transport
    REASONING_DELTA = "reasoning_delta"  # text; transport
    ASSISTANT_MESSAGE = "assistant_message"  # message, finish, usage, model
    TOOL_PROPOSED = "tool_proposed"  # name, arguments, hash, risk, fault
    PERMISSION_REQUIRED = "permission_required"  # prompt
    QUESTION_REQUESTED = "question_requested"  # prompt
    PLAN_PROPOSED = "plan_proposed"  # prompt
    TOOL_STARTED = "tool_started"  # attempt, owner, act_by, by (who or which rule)
    TOOL_FINISHED = "tool_finished"  # status, content, display
    PROGRESS = "progress"  # todos
    ARTIFACT = "artifact"  # id, name, path, media_type, bytes, deliver
    NOTICE = "notice"  # text, cause; for people, never for the model
    ITERATION_END = "iteration_end"
    TURN_END = "turn_end"  # status, iterations
    ERROR = "error"  # text, error_type
    INTERRUPTED = "interrupted"  # iterations, by, reason

    # -- state of the session, in the same log
    MESSAGE = "message"  # message, source, by, mail: what a person (or Nod, as a note) said
    VERDICT = "verdict"  # answer, step, reason, target, hash
    DECIDED = "decided"  # prompt, answer, by, surface, at
    EDITED = "edited"  # arguments, hash, before: a person changed a call on its card
    UNKNOWN = "unknown"  # attempt: a start without a result was found
    STOPPED = "stopped"  # mail, by
    SWITCHED = "switched"  # mode, model, custom or one more root, by
    ELIDED = "elided"  # model, border: what the view leaves out from here on
    TAINTED = "tainted"  # source: outside text entered the log
    SPENT = "spent"  # usage, cost, model, purpose: a model call that was stopped or failed


#: Kinds that are never stored.
TRANSPORT = frozenset({Kind.ASSISTANT_DELTA, Kind.REASONING_DELTA})


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened. Frozen; `body` is JSON-serialisable and must not be changed."""

    session: str
    kind: Kind
    #: Place in the session's log, from 1; 0 for transport and for facts not yet appended.
    seq: int = 0
    turn: int = 0
    iteration: int = 0
    call: str | None = None
    #: Seconds since the epoch, UTC.
    at: float = 0.0
    body: Mapping[str, Any] = field(default_factory=dict)


def numbered(event: Event, seq: int) -> Event:
    """Return `event` at place `seq` of its log."""
    return Event(
        session=event.session,
        kind=event.kind,
        seq=seq,
        turn=event.turn,
        iteration=event.iteration,
        call=event.call,
        at=event.at,
        body=event.body,
    )


class Subscription:
    """A bounded queue of events for one consumer.

    When the consumer lags, deltas are dropped first; a dropped fact is no loss, since the log has
    it, and `lagged` tells the consumer to read it there.
    """

    def __init__(self, session: str | None, limit: int) -> None:
        self.session = session
        self.lagged = False
        self._queue: asyncio.Queue[Event] = asyncio.Queue(limit)

    def offer(self, event: Event) -> None:
        """Queue `event` without waiting; drops it and sets `lagged` when the queue is full."""
        if event.kind in TRANSPORT and self._queue.qsize() * 2 > self._queue.maxsize:
            return
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self.lagged = True

    async def next(self) -> Event:
        """Wait for the next event."""
        return await self._queue.get()

    def drain(self) -> list[Event]:
        """Return what is queued now, without waiting."""
        events = []
        while not self._queue.empty():
            events.append(self._queue.get_nowait())
        return events


class Bus:
    """In-process fan-out of events. It only shortens the wait: the log is the truth."""

    def __init__(self) -> None:
        self._all: set[Subscription] = set()
        self._by_session: dict[str, set[Subscription]] = {}

    @contextmanager
    def subscribe(self, session: str | None = None, limit: int = 4096) -> Iterator[Subscription]:
        """Receive events of `session`, or of every session when None, inside the block."""
        subscription = Subscription(session, limit)
        if session is None:
            self._all.add(subscription)
        else:
            self._by_session.setdefault(session, set()).add(subscription)
        try:
            yield subscription
        finally:
            if session is None:
                self._all.discard(subscription)
            else:
                self._by_session[session].discard(subscription)
                if not self._by_session[session]:
                    del self._by_session[session]

    def publish(self, event: Event) -> None:
        """Hand `event` to everyone who listens. Never waits, never raises."""
        for subscription in self._all:
            subscription.offer(event)
        for subscription in self._by_session.get(event.session, ()):
            subscription.offer(event)
