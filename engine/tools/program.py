"""Runs one program that a tool needs: fixed words, no shell, an empty environment, a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Ended", "environment", "run_program"]

#: Seconds the system may take to end a killed program.
_GRACE = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended. `full`: it was ended because it had printed enough."""

    exit_code: int
    out: str
    err: str
    timed_out: bool = False
    full: bool = False


def environment(**more: str) -> dict[str, str]:
    """Return the whole environment a child gets: where programs are, a neutral locale, `more`."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", **more}


async def run_program(
    argv: Sequence[str],
    *,
    limit: float,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    max_bytes: int = 1_000_000,
) -> Ended:
    """Run `argv` for at most `limit` seconds and read at most `max_bytes` of each stream.

    The program and everything it started are gone when this returns, also when it is cancelled.
    Raises FileNotFoundError when there is no such program.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(env) if env is not None else environment(),
        cwd=cwd,
        start_new_session=True,
    )
    assert process.stdin and process.stdout and process.stderr
    timed_out = False
    out, err = bytearray(), bytearray()
    try:
        async with asyncio.timeout(limit):
            await asyncio.gather(
                _feed(process.stdin, stdin.encode()),
                _gather(process.stdout, out, max_bytes, process),
                _gather(process.stderr, err, max_bytes, process),
            )
            await process.wait()
    except TimeoutError:
        timed_out = True
    finally:
        _kill(process)
        await _empty(process)
    return Ended(
        exit_code=process.returncode if process.returncode is not None else -signal.SIGKILL,
        out=out[:max_bytes].decode("utf-8", "replace"),
        err=err[:max_bytes].decode("utf-8", "replace"),
        timed_out=timed_out,
        full=len(out) > max_bytes or len(err) > max_bytes,
    )


async def _feed(stream: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream.write(data)
        await stream.drain()
        stream.close()
        await stream.wait_closed()


async def _gather(
    stream: asyncio.StreamReader,
    into: bytearray,
    max_bytes: int,
    process: asyncio.subprocess.Process,
) -> None:
    while part := await stream.read(65_536):
        into += part
        if len(into) > max_bytes:
            _kill(process)
            return


async def _empty(process: asyncio.subprocess.Process) -> None:
    """Read the pipes of a killed program to their end, else its exit is not reported."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GRACE):
            for stream in (process.stdout, process.stderr):
                while stream and await stream.read(65_536):
                    pass
            await process.wait()


def _kill(process: asyncio.subprocess.Process) -> None:
    """End the whole process group; its leader may be gone already and its children not."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
