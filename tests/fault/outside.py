"""The world outside, as one append-only file that is synced: what is in it has happened.

Every effect is a line `{"delivery", "target", "text"}`; nothing of Nod can take a line back. So
"posted once" is counted where a person would count it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from bot.surfaces.base import Capabilities, Inbound, Line, Message, Receipt, SurfaceError
from tests.fault.edges import Edges

__all__ = ["Outside", "append", "lines_of"]


def append(file: Path, line: dict[str, object]) -> None:
    """Add one line, durably."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lines_of(file: Path) -> list[dict[str, str]]:
    """Return what happened, in order."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


class Outside:
    """A surface whose messages are lines of the file.

    Args:
        sees: it can tell whether a delivery was posted; otherwise a person has to look.
    """

    name = "console"

    def __init__(self, file: Path, edges: Edges, *, sees: bool) -> None:
        self._file = file
        self._edges = edges
        self._sees = sees
        self.capabilities = Capabilities(
            text_limit=4000, buttons=5, value_bytes=64, file_bytes=1000, look_up=sees
        )

    async def start(self, intake: Callable[[Inbound], Awaitable[Receipt]]) -> None:
        raise SurfaceError("Nothing comes in here.")

    async def stop(self) -> None:
        return None

    async def post(self, target: str, message: Message, delivery: str) -> str:
        """Append the message; its ref is its line."""
        self._edges.at("post: before")
        append(self._file, {"delivery": delivery, "target": target, "text": message.text})
        self._edges.at("post: after")
        return f"line {len(lines_of(self._file))}"

    async def find(self, target: str, delivery: str) -> str | None:
        """Return the ref of what was posted under `delivery`, where that can be seen."""
        for number, line in enumerate(lines_of(self._file), start=1):
            if self._sees and line["delivery"] == delivery:
                return f"line {number}"
        return None

    async def edit(self, ref: str, message: Message) -> None:
        raise SurfaceError("Nothing is edited here.")

    async def upload(
        self, target: str, files: Sequence[Path], message: Message, delivery: str
    ) -> str:
        raise SurfaceError("No files here.")

    async def typing(self, target: str) -> None:
        return None

    async def history(self, target: str, since: float) -> list[Line]:
        return []
