"""The queue's contract, and how a worker is told from its predecessors.

`enqueue` is only a hint that shortens the wait: what must be advanced is a query over the store
(`wanted > seen`), asked at start and now and then. So no wake-up is lost.
"""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol
from weakref import WeakValueDictionary

import psutil

from engine.clock import mint

__all__ = [
    "ACT_BY",
    "LEASE_RENEW",
    "LEASE_VALID",
    "Ceilings",
    "Gate",
    "Queue",
    "is_gone",
    "worker_id",
]

LEASE_VALID = 30.0  # seconds a worker's lease holds
LEASE_RENEW = 10.0  # seconds between renewals

#: Seconds after its intent in which a call's first byte may leave.
ACT_BY = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """How many turns are at work at once: in all, of one person, at one model provider."""

    turns: int = 512
    turns_per_person: int = 128
    turns_per_provider: int = 512


class Gate:
    """The places of one process for turns at work, handed out in the order of asking."""

    def __init__(self, ceilings: Ceilings) -> None:
        self._ceilings = ceilings
        self._places: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def places(self, person: str, model: str) -> tuple[asyncio.Semaphore, asyncio.Semaphore]:
        """Return the places a turn needs, always in this order, so that none wait crosswise."""
        provider = model.partition(":")[0]
        return (
            self._place(f"person:{person}", self._ceilings.turns_per_person),
            self._place(f"provider:{provider}", self._ceilings.turns_per_provider),
        )

    def _place(self, name: str, limit: int) -> asyncio.Semaphore:
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = asyncio.Semaphore(limit)
        return place


class Queue(Protocol):
    """Gets sessions advanced, each by one worker at a time."""

    def enqueue(self, session: str) -> None:
        """Hint that the session has something to do. Never waits, never fails."""
        ...


def worker_id() -> str:
    """Return an id for this process: host, pid, start of the process, and a random part."""
    return f"{_host()}:{os.getpid()}:{_started(os.getpid())}:{mint('w')}"


def is_gone(worker: str) -> bool:
    """Say whether `worker` is known to be dead: same host, and no such process any more.

    A worker of another host, boot or container is never known to be dead.
    """
    host, pid, started, _ = worker.split(":")
    return host == _host() and _started(int(pid)) != started


@cache
def _host() -> str:
    """Name what process ids count in: the host, and on Linux its boot and the pid namespace."""
    if not _PROC.exists():
        return socket.gethostname()
    boot = (_PROC / "sys/kernel/random/boot_id").read_text()[:8]
    return f"{socket.gethostname()}/{boot}/{(_PROC / 'self/ns/pid').stat().st_ino}"


def _started(pid: int) -> str:
    """Return when the process started, the same however the clock is set; empty: it is dead."""
    try:
        if not _PROC.exists():
            return str(psutil.Process(pid).create_time())
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (OSError, psutil.NoSuchProcess):
        return ""
    return "" if fields[0] in _DEAD else fields[19]  # state, starttime in ticks: man 5 proc


#: Linux tells a process's start in ticks since boot. As a date, which is all psutil has, it moves
#: whenever the clock is set, and a worker at work would be taken for dead.
_PROC = Path("/proc")
_DEAD = frozenset("ZXx")  # killed, and not yet waited for by its parent
