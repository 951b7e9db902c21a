"""A bounded queue from the event loop to threads that each own one database connection.

The loop hands over a job with one queue operation; a thread answers a whole group of jobs with
one wake-up of the loop.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from engine.errors import StoreError

__all__ = ["Job", "Lane", "Outcome", "Server", "outcome"]

#: Seconds the interpreter lets one thread go on while another waits. With Python's 5 ms a busy
#: event loop keeps a thread that runs SQL waiting for seconds: each statement gives way to it.
_SWITCH = 20e-6

#: What a work is called with.
C = TypeVar("C")
T = TypeVar("T")

#: What is to be done, and the future of the caller who waits for it.
Job = tuple[Callable[[Any], Any], "asyncio.Future[Any]"]

#: The caller's future, then the value, then the error (None when the work is done).
Outcome = tuple["asyncio.Future[Any]", Any, BaseException | None]


class Server(Protocol):
    """One connection, used by one thread only."""

    def serve(self, jobs: Sequence[Job], /) -> Sequence[Outcome]:
        """Do the jobs and return one outcome for each."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Lane(Generic[C]):
    """Jobs wait here in order. Belongs to the event loop in which it was started."""

    def __init__(self, *, name: str, group: int, limit: int) -> None:
        """Make a lane whose threads take up to `group` jobs at once.

        At most `limit` jobs are accepted and unfinished; further callers wait their turn.
        """
        self._name = name
        self._group = group
        self._room = asyncio.Semaphore(limit)
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._threads: list[threading.Thread] = []
        self._closed = False

    async def start(self, open_server: Callable[[], Server], threads: int = 1) -> None:
        """Start the threads; each opens its own server. Raises what an opening raised.

        Shortens the interpreter's switch interval for the whole process.
        """
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH))
        readies: list[asyncio.Future[None]] = []
        for number in range(threads):
            readies.append(self._loop.create_future())
            thread = threading.Thread(
                target=self._run,
                args=(open_server, readies[-1]),
                name=f"{self._name}-{number + 1}",
                daemon=True,  # a crash of the main thread must not hang on us
            )
            self._threads.append(thread)
            thread.start()
        opened = await asyncio.gather(*readies, return_exceptions=True)
        for error in opened:
            if error is not None:
                await self.close()
                raise error

    async def submit(self, work: Callable[[C], T]) -> T:
        """Have `work` done by a thread and return its value, or raise what it raised.
        A caller cancelled after its work was accepted does not take the work back.
        """
        await self._room.acquire()
        if self._closed:
            self._room.release()
            raise StoreError("The store is closed.")
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((work, future))
        return await future

    async def close(self) -> None:
        """Finish the accepted jobs, then end the threads. Safe to call twice."""
        if not self._closed:
            self._closed = True
            for _ in self._threads:
                self._jobs.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _run(self, open_server: Callable[[], Server], ready: asyncio.Future[None]) -> None:
        try:
            server = open_server()
        except BaseException as error:  # noqa: BLE001  # broad: the caller of start() raises it
            self._tell(_settle_start, ready, error)
            return
        self._tell(_settle_start, ready, None)
        try:
            while jobs := self._take():
                self._tell(self._settle, _served(server, jobs))
        finally:
            server.close()

    def _take(self) -> list[Job]:
        """Wait for a job and return it with those already behind it; empty: time to end."""
        job = self._jobs.get()
        jobs: list[Job] = []
        while job is not None:
            jobs.append(job)
            if len(jobs) == self._group:
                return jobs
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return jobs
        if jobs:
            self._jobs.put(None)  # the end comes after these
        return jobs

    def _tell(self, callback: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    def _settle(self, outcomes: Sequence[Outcome]) -> None:
        for future, value, error in outcomes:
            self._room.release()
            if future.done():  # its caller was cancelled
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)


def _served(server: Server, jobs: Sequence[Job]) -> Sequence[Outcome]:
    try:
        return server.serve(jobs)
    except BaseException as error:  # noqa: BLE001  # broad: a dead thread would hang its callers
        return [(future, None, error) for _, future in jobs]


def _settle_start(ready: asyncio.Future[None], error: BaseException | None) -> None:
    if ready.done():
        return
    if error is None:
        ready.set_result(None)
    else:
        ready.set_exception(error)


def outcome(job: Job, subject: object) -> Outcome:
    """Call one job's work with `subject` and return what became of it."""
    work, future = job
    try:
        return future, work(subject), None
    except StopIteration as error:  # a future refuses to carry this one
        wrapped = RuntimeError("the work raised StopIteration")
        wrapped.__cause__ = error
        return future, None, wrapped
    except BaseException as error:  # noqa: BLE001  # broad: it belongs to the caller
        return future, None, error
