"""The queue of one process: a dispatcher that advances each runnable session in a task of its own.

What is runnable is asked of the store at start and every 30 s; hints only shorten the wait. A
session that was taken often without getting anywhere is advanced alone, so that one which kills
the process is found out and blames no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType

from engine.errors import NodError, StoreError
from engine.store.base import Tx
from engine.turn.drive import advance
from engine.turn.ports import Engine
from engine.work.base import LEASE_RENEW, LEASE_VALID

__all__ = ["Dispatcher"]

RESCAN = 30.0  # seconds between questions to the store
#: Seconds between looks at the sessions at work, where another process may write to them.
WATCH = 0.4
#: A session with this many attempts is advanced alone.
SUSPECT = 2
#: Seconds before a session whose advance failed is tried again, doubled each time.
RETRY_FIRST, RETRY_MOST = 0.5, 30.0

_log = logging.getLogger(__name__)


class Dispatcher:
    """Advances sessions, at most `turns` at once; an async context manager.

    Args:
        shared: another process may write to the same store, so sessions at work are watched.
    """

    def __init__(self, engine: Engine, *, turns: int = 512, shared: bool = False) -> None:
        self._engine = engine
        self._turns = turns
        self._shared = shared
        self._waiting: deque[str] = deque()
        self._queued: set[str] = set()
        self._hints: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, int] = {}
        #: Sessions that only the store made fail: no fault of theirs.
        self._spared: set[str] = set()
        self._alone: str | None = None
        self._suspects: set[str] = set()
        #: `wanted` of the sessions at work here, as last seen by the watch.
        self._watched: dict[str, int] = {}
        self._closing = False
        self._loops: list[asyncio.Task[None]] = []
        self._idle = asyncio.Event()
        self._idle.set()

    async def __aenter__(self) -> Dispatcher:
        await self._renew()
        await self._scan()
        self._loops = [asyncio.create_task(self._every(LEASE_RENEW, self._renew), name="lease")]
        self._loops.append(asyncio.create_task(self._every(RESCAN, self._scan), name="rescan"))
        if self._shared:
            self._loops.append(asyncio.create_task(self._every(WATCH, self._watch), name="watch"))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.drain(grace=5.0)

    def enqueue(self, session: str) -> None:
        """Hint that the session has something to do. Never waits, never fails."""
        if self._closing:
            return
        if session in self._hints:
            self._hints[session].set()
        elif session not in self._queued:
            self._queued.add(session)
            self._waiting.append(session)
        self._fill()

    async def settled(self) -> None:
        """Wait until no session is being advanced and none waits for it."""
        await self._idle.wait()

    async def drain(self, grace: float) -> None:
        """Start nothing new, give what runs `grace` seconds, then cut it and give it up."""
        if self._closing:
            return
        self._closing = True
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        for task in [*tasks, *self._loops]:
            task.cancel()
        await asyncio.gather(*tasks, *self._loops, return_exceptions=True)
        await self._engine.store.write(self._give_up)

    def _give_up(self, tx: Tx) -> None:
        worker = self._engine.worker
        tx.run("worker_gives_up", worker=worker)
        tx.run("lease_drop", tenant=self._engine.tenant, name=f"worker:{worker}")

    # -- who runs

    def _fill(self) -> None:
        while self._waiting and self._alone is None and len(self._tasks) < self._turns:
            session = self._waiting.popleft()
            if session in self._suspects and self._tasks:
                self._waiting.append(session)
                if all(each in self._suspects for each in self._waiting):
                    break
                continue
            self._queued.discard(session)
            self._begin(session)
        if not self._tasks and not self._waiting:
            self._idle.set()

    def _begin(self, session: str) -> None:
        self._idle.clear()
        if session in self._suspects:
            self._suspects.discard(session)
            self._alone = session
        self._hints[session] = asyncio.Event()
        task = asyncio.create_task(self._advance(session), name=f"advance {session}")
        self._tasks[session] = task

    async def _advance(self, session: str) -> None:
        hint = self._hints[session]
        counted = session not in self._spared
        self._spared.discard(session)
        try:
            await advance(self._engine, session, hint, counted=counted)
            self._failures.pop(session, None)
        except StoreError as error:
            _log.warning("session %s: %s", session, error)
            self._spared.add(session)
            self._retry(session)
        except NodError as error:
            _log.warning("session %s: %s", session, error)
            self._suspects.add(session)
            self._retry(session)
        except Exception:  # noqa: BLE001  # broad: the border of one session; others go on
            _log.exception("advancing session %s failed", session)
            self._suspects.add(session)
            self._retry(session)
        finally:
            self._ended(session, again=hint.is_set())

    def _ended(self, session: str, *, again: bool) -> None:
        self._hints.pop(session, None)
        if self._alone == session:
            self._alone = None
        if again and not self._closing and session not in self._queued:
            self._queued.add(session)
            self._waiting.append(session)
        del self._tasks[session]
        if not self._closing:
            self._fill()

    def _retry(self, session: str) -> None:
        """The store may be full or away: come back later, less and less often."""
        tries = self._failures[session] = self._failures.get(session, 0) + 1
        delay = min(RETRY_FIRST * 2 ** (tries - 1), RETRY_MOST)
        asyncio.get_running_loop().call_later(delay, self.enqueue, session)

    # -- the store's word

    async def _every(self, seconds: float, ask: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await ask()
            except NodError as error:
                _log.warning("%s", error)

    async def _renew(self) -> None:
        engine = self._engine
        name = f"worker:{engine.worker}"
        await engine.store.write(
            lambda tx: tx.run(
                "lease_renew",
                tenant=engine.tenant,
                name=name,
                holder=engine.worker,
                now=engine.now(),
                until=engine.now() + LEASE_VALID,
            )
        )

    async def _bury(self) -> None:
        """Drop the leases of workers known to be dead: what they held can be taken at once.

        A lapsed lease holds nothing, and whoever comes back renews it: it is dropped as well.
        """
        engine, now = self._engine, self._engine.now()
        rows = await engine.store.read(lambda tx: tx.all("leases_workers", tenant=engine.tenant))
        names = [row["name"] for row in rows if row["until"] < now or engine.is_gone(row["holder"])]
        if names:
            dropped = [{"tenant": engine.tenant, "name": name} for name in names]
            await engine.store.write(lambda tx: tx.many("lease_drop", dropped))

    async def _scan(self) -> None:
        await self._bury()
        now = self._engine.now()
        rows = await self._engine.store.read(
            lambda tx: [
                (row["id"], row["attempts"])
                for row in tx.all("sessions_runnable", now=now, limit=10_000)
            ]
        )
        for session, attempts in rows:
            if attempts >= SUSPECT and session not in self._tasks:
                self._suspects.add(session)
            self.enqueue(session)

    async def _watch(self) -> None:
        """See what other processes wrote for sessions at work here."""
        if not self._tasks:
            return
        worker = self._engine.worker
        rows = await self._engine.store.read(
            lambda tx: [
                (row["id"], row["wanted"]) for row in tx.all("sessions_wanted", worker=worker)
            ]
        )
        before, self._watched = self._watched, dict(rows)
        for session, wanted in rows:
            if session in self._hints and before.get(session) != wanted:
                self._hints[session].set()
