"""A real `nod` process, from its start to the moment it is ready."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psutil

__all__ = ["Started", "imported", "running", "started"]

PATIENCE = 60.0  # seconds
#: What each way of running says once it is ready: the service a line, the console its prompt.
SERVICE, CONSOLE = b"nod is ready", "main ›".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a process had taken when it was ready."""

    seconds: float
    cpu_ms: float
    rss_mb: float
    #: All it had written by then.
    said: str


async def started(
    words: Sequence[str], environ: Mapping[str, str], options: Sequence[str] = ()
) -> Started:
    """Start `nod` with these words on a terminal, wait until it is ready, and stop it.

    Args:
        options: of the interpreter.
    """
    async with running(words, environ, options) as (taken, _):
        return taken


@asynccontextmanager
async def running(
    words: Sequence[str], environ: Mapping[str, str], options: Sequence[str] = ()
) -> AsyncIterator[tuple[Started, psutil.Process]]:
    """A `nod` that is ready, what that took, and its process; stopped at the end."""
    near, far = pty.openpty()
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *options,
        "-m",
        "bot.cli",
        *words,
        stdin=far,
        stdout=far,
        stderr=far,
        env={**_bare(), **environ},
        start_new_session=True,
    )
    os.close(far)
    rest: asyncio.Task[None] | None = None
    try:
        async with asyncio.timeout(PATIENCE):
            said = await asyncio.to_thread(_until, near, SERVICE if words else CONSOLE)
        seconds = time.perf_counter() - began
        seen = psutil.Process(process.pid)
        taken = _taken(seen, seconds, said)
        rest = asyncio.create_task(asyncio.to_thread(_rest, near), name="rest of the terminal")
        yield taken, seen
    finally:
        process.terminate()
        await (rest or asyncio.to_thread(_rest, near))
        await process.wait()
        os.close(near)


def imported(said: str) -> set[str]:
    """Return the modules in what `-X importtime` wrote."""
    return set(re.findall(r"^import time:[ \d|]+\| +(\S+)", said, re.M))


def _bare() -> dict[str, str]:
    """Return our environment without what Nod or a provider's SDK would read."""
    ours = {"PATH", "HOME", "LANG", "PYTHONPATH", "VIRTUAL_ENV"}
    kept = {name: value for name, value in os.environ.items() if name in ours}
    return {**kept, "TERM": "xterm", "COLUMNS": "200", "PROMPT_TOOLKIT_NO_CPR": "1"}


def _until(terminal: int, sign: bytes) -> str:
    said = b""
    while sign not in said:
        try:
            said += os.read(terminal, 65536)
        except OSError:  # the process has ended
            raise RuntimeError(f"nod ended before it was ready: {said.decode()[-2000:]}") from None
    return said.decode(errors="replace").replace("\r\n", "\n")


def _rest(terminal: int) -> None:
    """Read on: a process that nobody listens to is held up as soon as the terminal is full."""
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        return


def _taken(process: psutil.Process, seconds: float, said: str) -> Started:
    times: Any = process.cpu_times()
    return Started(
        seconds=seconds,
        cpu_ms=round((times.user + times.system) * 1e3, 1),
        rss_mb=round(process.memory_info().rss / 1e6, 1),
        said=said,
    )
