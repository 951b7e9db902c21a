"""What the suites about later share: a session, and what the clock would find."""

from __future__ import annotations

from pathlib import Path

from engine import people, sessions
from engine.sessions import Session
from engine.store.base import Store, Tx

__all__ = ["NOW", "a_session", "due_wakes"]

NOW = 1_750_057_320.0  # Mon 16 Jun 2025, 07:02 UTC


async def a_session(store: Store, data: Path, home: str = "console:main") -> Session:
    """Open a session of the console person, and return it."""

    def work(tx: Tx) -> Session:
        made = sessions.open_session(
            tx,
            tenant="local",
            home=home,
            owner=people.CONSOLE,
            origin="person",
            persona="cowork",
            model="practice:test",
            mode="interactive",
            data=data,
            now=NOW,
        )
        return sessions.get(tx, made)

    return await store.write(work)


async def due_wakes(store: Store, now: float) -> list[str]:
    """Return the ids of the wakes that are due."""
    rows = await store.read(lambda tx: tx.all("wakes_due", tenant="local", now=now, limit=99))
    return [row["id"] for row in rows]
