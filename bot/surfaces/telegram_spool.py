"""Keeps raw updates on the disk from before they are confirmed until they were taken.

A batch is one file of JSON lines; it is gone when all of its updates were taken. What a crash
leaves is taken again at the next start: the intake knows what it took already.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.canonical import dumps, loads

__all__ = ["Held", "Spool"]


@dataclass(slots=True)
class _Batch:
    path: Path
    left: int


@dataclass(slots=True, kw_only=True)
class Held:
    """One update that is kept until `Spool.taken` is called with it."""

    raw: dict[str, Any]
    batch: _Batch = field(repr=False)


class Spool:
    """The folder of one bot's updates. Used by one task at a time; `taken` by any."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0

    async def left(self) -> list[Held]:
        """Return what an earlier run kept and did not take, in order."""
        return await asyncio.to_thread(self._left)

    async def keep(self, updates: Sequence[dict[str, Any]]) -> list[Held]:
        """Keep updates; they are on the disk when this returns. Raises OSError."""
        self._number += 1
        path = self._folder / f"{self._number:012}.jsonl"
        await asyncio.to_thread(_write, path, b"".join(dumps(u).encode() + b"\n" for u in updates))
        batch = _Batch(path, len(updates))
        return [Held(raw=each, batch=batch) for each in updates]

    async def taken(self, held: Held) -> None:
        """Forget an update."""
        held.batch.left -= 1
        if not held.batch.left:
            await asyncio.to_thread(held.batch.path.unlink, missing_ok=True)

    def _left(self) -> list[Held]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found: list[Held] = []
        for path in sorted(self._folder.glob("*.jsonl")):
            self._number = max(self._number, int(path.stem))
            raws = [raw for line in path.read_bytes().splitlines() if (raw := _read(line))]
            batch = _Batch(path, len(raws))
            found += [Held(raw=raw, batch=batch) for raw in raws]
            if not raws:
                path.unlink()
        return found


def _read(line: bytes) -> dict[str, Any] | None:
    """Return the update of a line; None: it was torn, so it was never confirmed."""
    try:
        raw = loads(line)
    except ValueError:
        return None
    return raw if isinstance(raw, dict) else None


def _write(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
