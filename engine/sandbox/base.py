"""The executor's contract: one persistent shell of a session, and the start of background jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["Executor", "Ran", "ShellState"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a command did."""

    #: None after a hard kill.
    exit_code: int | None
    #: The end of stdout and stderr together, at most the executor's limit.
    output: str
    truncated: bool = False
    timed_out: bool = False
    interrupted: bool = False
    cwd: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellState:
    """What of a shell can be written down: its folder and exports."""

    cwd: Path
    exports: Mapping[str, str]


class Executor(Protocol):
    """Runs commands in a persistent shell: cd, exports and activated environments survive."""

    async def run(self, command: str, limit: float) -> Ran:
        """Run `command` with empty stdin; returns within `limit` seconds plus a short grace."""
        ...

    async def start(self, command: str, folder: Path, limit: float) -> None:
        """Start `command` as a background job that outlives this executor and this process.

        It is ended after `limit` seconds. `folder` is where its files go, and its name the job's
        id: starting the same once more does nothing. See engine/sandbox/jobs.py. Raises ToolError
        when it cannot be started.
        """
        ...

    async def interrupt(self) -> None:
        """End the running command, if any; the shell lives on."""
        ...

    async def state(self) -> ShellState:
        """Return what a later shell needs to go on from here."""
        ...

    async def close(self) -> None:
        """End the shell with all its children; jobs go on. Safe to call twice."""
        ...
