"""The executor's contract: one persistent shell of a session, and its background jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["Executor", "JobOutput", "Ran", "ShellState"]


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
class JobOutput:
    """What a background job printed since it was last asked."""

    job: str
    running: bool
    exit_code: int | None
    output: str
    dropped: int = 0  # bytes that did not fit the buffer


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

    async def start(self, command: str) -> str:
        """Start `command` in the background, in its own process group; returns a job id."""
        ...

    async def output(self, job: str) -> JobOutput:
        """Return what `job` printed since last asked; raises ToolError for an unknown id."""
        ...

    async def kill(self, job: str) -> JobOutput:
        """End `job` and everything it started."""
        ...

    async def interrupt(self) -> None:
        """End the running command, if any; the shell lives on."""
        ...

    async def state(self) -> ShellState:
        """Return what a later shell needs to go on from here."""
        ...

    async def close(self) -> None:
        """End the shell and every job, with all their children. Safe to call twice."""
        ...
