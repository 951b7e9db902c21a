"""The edges of a turn, counted as a process passes them; at one of them it may kill itself.

Every commit of the store is an edge before and an edge after, whatever it writes, so there is no
gap between the edges: a process cannot make anything durable without passing one.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from engine.canonical import loads
from engine.store.base import Row, Store, Tx
from engine.tools.base import Result, Risk, Tool, ToolContext

__all__ = ["Edges", "NamedStore", "edged"]

T = TypeVar("T")


class Edges:
    """Counts edges and does what is to be done at one of them.

    Args:
        file: gets the name of each edge passed, one a line, before anything else happens there.
        stop_at: the number of the edge (from 1) at which `act` is called; 0: none.
        act: what happens there; by default the process kills itself.
    """

    def __init__(self, file: Path, stop_at: int, act: Callable[[], Any] | None = None) -> None:
        self._descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._stop_at = stop_at
        self._act = act or kill_self
        self._passed = 0
        self._lock = threading.Lock()

    def at(self, name: str) -> None:
        """Pass the edge `name`."""
        with self._lock:
            self._passed += 1
            os.write(self._descriptor, f"{name}\n".encode())
            if self._passed == self._stop_at:
                self._act()


def kill_self() -> None:
    """End this process as the kernel would: no handler runs, nothing is flushed."""
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()


class NamedStore:
    """The real store; each commit passes two edges, named by what it writes."""

    def __init__(self, store: Any, edges: Edges) -> None:
        self.dialect: str = store.dialect
        self._store: Store = store
        self._edges = edges
        self._works = threading.local()
        store.before_commit = lambda: edges.at(f"commit {self._name()}: before")
        store.after_commit = self._after

    def write(self, work: Callable[[Tx], T], /) -> Coroutine[Any, Any, T]:
        def named(tx: Tx) -> T:
            seen = _Seen(tx)
            value = work(seen)
            name = "+".join(dict.fromkeys(seen.names)) or "nothing"
            grouped = self._names() if self.dialect == "sqlite" else []
            self._works.names = [*grouped, name]
            return value

        return self._store.write(named)

    def read(self, work: Callable[[Tx], T], /) -> Coroutine[Any, Any, T]:
        return self._store.read(work)

    async def close(self) -> None:
        await self._store.close()

    def _name(self) -> str:
        return ", ".join(self._names())

    def _names(self) -> list[str]:
        names: list[str] = getattr(self._works, "names", [])
        return names

    def _after(self) -> None:
        self._edges.at(f"commit {self._name()}: after")
        self._works.names = []


#: What a query or a fact says about the commit it is in.
_QUERIES = {
    "mail_add": "intake",
    "session_take": "take",
    "session_release": "release",
    "prompt_resolve": "answer",
    "delivery_sent": "ref",
    "lease_renew": "lease",
    "lease_drop": "give up",
}
_FACTS = {
    "turn_start": "turn",
    "assistant_message": "model",
    "permission_required": "card",
    "tool_started": "start",
    "tool_finished": "result",
    "unknown": "unknown",
    "decided": "decided",
    "turn_end": "end",
}


class _Seen:
    """A transaction that notes what it is about."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.names: list[str] = []

    def all(self, query: str, /, **params: Any) -> Sequence[Row]:
        return self._tx.all(query, **params)

    def one(self, query: str, /, **params: Any) -> Row | None:
        row = self._tx.one(query, **params)
        self._note(query, changed=row is not None)
        return row

    def run(self, query: str, /, **params: Any) -> int:
        count = self._tx.run(query, **params)
        self._note(query, changed=bool(count))
        return count

    def many(self, query: str, rows: Sequence[Mapping[str, Any]], /) -> None:
        self._tx.many(query, rows)
        if query == "log_add":
            for row in rows:
                name = _FACTS.get(row["kind"])
                if name == "end":
                    name = f"end {loads(row['body'])['status']}"
                if name is not None:
                    self.names.append(name)

    def _note(self, query: str, *, changed: bool) -> None:
        if changed and query in _QUERIES:
            self.names.append(_QUERIES[query])


def edged(declared: Tool, edges: Edges, acted: Callable[[str], None] | None = None) -> Tool:
    """Return the tool with edges before it begins, right before it acts, and after it is done.

    `acted` is told the call right before its effect, past the last edge before it.
    """

    name = "read" if declared.risk is Risk.READ else declared.name  # reads end in any order

    @wraps(declared.run)
    async def run(ctx: ToolContext, **arguments: Any) -> Result:
        def before_act() -> None:
            ctx.before_act()
            edges.at(f"{name}: ready")
            if acted is not None:
                acted(ctx.call)

        edges.at(f"{name}: before")
        result = await declared.run(replace(ctx, before_act=before_act), **arguments)
        edges.at(f"{name}: after")
        return result

    return replace(declared, run=run)
