"""Runs children from a process that has everything imported: a start costs a fork, not a second."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from types import TracebackType

from tests.fault.child import Spec

__all__ = ["KILLED", "LIMIT", "ROOT", "Fork"]

KILLED = -int(signal.SIGKILL)

#: Seconds a child may take to end or to stop; its own limit (child.HANGS) shows where it hangs.
LIMIT = 60.0

ROOT = Path(__file__).parents[2]


class Fork:
    """A warm process; runs one child at a time. An async context manager."""

    def __init__(self) -> None:
        self._server: asyncio.subprocess.Process | None = None
        #: The process id of the child that was stopped.
        self.stopped = 0

    async def __aenter__(self) -> Fork:
        self._server = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.fault.child", "--serve"),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None and self._server.stdin is not None
        if self.stopped:
            os.kill(self.stopped, signal.SIGKILL)
        self._server.stdin.close()
        await asyncio.wait_for(self._server.wait(), LIMIT)

    def start(self, spec: Spec) -> None:
        """Begin a run."""
        assert self._server is not None and self._server.stdin is not None
        self._server.stdin.write(spec.line().encode() + b"\n")

    async def ended(self) -> int | None:
        """Wait until the child ended, and return its exit code; None when it was stopped."""
        assert self._server is not None and self._server.stdout is not None
        line = await asyncio.wait_for(self._server.stdout.readline(), LIMIT)
        assert line, "the warm process died"
        said: dict[str, int] = json.loads(line)
        self.stopped = said.get("stopped", 0)
        return said.get("ended")

    async def run(self, spec: Spec) -> int | None:
        """Run a child until it ended or was stopped."""
        self.start(spec)
        return await self.ended()

    def thaw(self) -> None:
        """Let the stopped child go on."""
        stopped, self.stopped = self.stopped, 0
        os.kill(stopped, signal.SIGCONT)
