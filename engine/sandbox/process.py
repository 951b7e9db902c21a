"""One child process in a session of its own: what it says, and the signals it gets."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from engine.sandbox.capture import Pump

__all__ = ["Process"]

_REAP = 2.0  # seconds the system may take to report the end of a killed process


class Process(asyncio.SubprocessProtocol):
    """A running program. Its stderr, and its stdout unless `heard` takes that, go to `sink`."""

    def __init__(
        self, sink: Callable[[bytes], None], heard: Callable[[bytes], None] | None = None
    ) -> None:
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._heard = heard
        self._pump = Pump(sink)
        self._transport: asyncio.SubprocessTransport | None = None

    async def start(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        """Start the program. Raises OSError when it cannot be started."""
        talks = self._heard is not None
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: self,
                *argv,
                stdin=asyncio.subprocess.PIPE if talks else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE if talks else self._pump.write_end,
                stderr=self._pump.write_end,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        except BaseException:
            self._pump.close()
            raise
        self._pump.handed_over()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if self._heard is not None:
            self._heard(data)

    def process_exited(self) -> None:
        assert self._transport is not None
        code = self._transport.get_returncode()
        if not self.exited.done():
            # Ended by a signal: what a shell would report.
            self.exited.set_result(128 - code if code is not None and code < 0 else code or 0)

    def write(self, data: bytes) -> None:
        """Send `data` to its stdin."""
        assert self._transport is not None
        pipe = self._transport.get_pipe_transport(0)
        assert isinstance(pipe, asyncio.WriteTransport)
        pipe.write(data)

    def drain(self) -> None:
        """Take in what it has printed up to now."""
        self._pump.drain()

    def signal(self, number: signal.Signals, *, group: bool) -> None:
        """Send a signal to it, or to its whole group. Nothing happens once it has ended."""
        if self._transport is None or self.exited.done():
            return
        with suppress(ProcessLookupError, PermissionError):
            if group:
                os.killpg(self._transport.get_pid(), number)
            else:
                os.kill(self._transport.get_pid(), number)

    async def gone(self) -> None:
        """Wait until a killed process is reported as ended, for a short while at most."""
        await asyncio.wait({self.exited}, timeout=_REAP)

    def close(self) -> None:
        """Kill it with its group and let go of its pipes. Safe to call twice."""
        self.signal(signal.SIGKILL, group=True)
        self._pump.close()
        if self._transport is not None:
            self._transport.close()
