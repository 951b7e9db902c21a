"""Runs an MCP server as a child and carries its messages, one JSON object a line.

Instead of the SDK's own: ours bounds every line and what is kept of stderr, hands on no variable
but those named, and leaves no child behind, also when Nod itself is killed: beside the server, in
its process group, waits a shell that reads a pipe only Nod holds open, and ends the group when
that is closed. What left its group is found by a mark at the next start.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from connectors.blot import blotted
from engine.sandbox.leftovers import MARK, end_marked

__all__ = ["Tail", "stdio"]

#: Bytes of one message; what is longer ends the connection.
MESSAGE = 16_000_000
#: Messages a second; more would keep Nod from everything else.
FLOOD = 5_000
#: Lines kept of what the server prints beside its messages, and characters of each and of all.
LINES, LINE, ALL = 20, 300, 1_500
#: Seconds a server has to end by itself, to end after SIGTERM, and to be gone after SIGKILL.
LEAVE, TERM, GONE = 2.0, 1.0, 2.0

#: $1: the life line's number; the rest is the server, which keeps this process's id.
_GUARDED = '(exec </dev/fd/"$1" >/dev/null 2>&1; read -r nothing; kill -KILL 0) & shift; exec "$@"'

Read = MemoryObjectReceiveStream[SessionMessage | Exception]
Write = MemoryObjectSendStream[SessionMessage]


class Pace:
    """How many messages came within the running second."""

    def __init__(self) -> None:
        self._since, self._count = time.monotonic(), 0

    def floods(self) -> bool:
        """Count one more, and say whether that is too many for what a server has to say."""
        now = time.monotonic()
        if now - self._since > 1.0:
            self._since, self._count = now, 0
        self._count += 1
        return self._count > FLOOD


class Tail:
    """The last lines a server printed."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LINES)

    def add(self, line: str) -> None:
        """Take in a line; what cannot be printed goes."""
        plain = "".join(c if c.isprintable() else " " for c in line).strip()
        if plain:
            self._lines.append(plain[:LINE])

    def __str__(self) -> str:
        return "\n".join(self._lines)[-ALL:]


@asynccontextmanager
async def stdio(
    command: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    tail: Tail,
    lost: Callable[[str], None],
    hidden: frozenset[str] = frozenset(),
) -> AsyncIterator[tuple[Read, Write]]:
    """Start the server and yield the two streams of the SDK's transport.

    `env` is its whole environment; `lost` is told once why nothing more will come; the words in
    `hidden` are blotted out of what it says. Raises OSError when it cannot be started.
    """
    process, transport, life = await _started(command, env, folder)
    out, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_hear, process, out, tail, lost, hidden)
            group.start_soon(_send, process, to_send, lost)
            group.start_soon(_listen, process, tail)
            try:
                yield read, write
            finally:
                with anyio.CancelScope(shield=True):
                    await _let_go(process, env.get(MARK, ""))
                group.cancel_scope.cancel()
    finally:
        _kill(process)  # whatever cut the above short
        transport.close()  # also where somebody else still holds an end of its pipes
        os.close(life)
        for stream in (out, read, write, to_send):
            stream.close()


async def _started(
    command: Sequence[str], env: Mapping[str, str], folder: Path
) -> tuple[asyncio.subprocess.Process, asyncio.SubprocessTransport, int]:
    """Start it; like asyncio's own function, which keeps the transport to itself."""
    loop = asyncio.get_running_loop()
    ours, life = os.pipe()
    try:
        transport, protocol = await loop.subprocess_exec(
            lambda: asyncio.subprocess.SubprocessStreamProtocol(limit=MESSAGE, loop=loop),
            "/bin/sh",
            "-c",
            _GUARDED,
            "nod-mcp",
            str(ours),
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(env),
            cwd=folder,
            start_new_session=True,
            pass_fds=(ours,),
        )
    except BaseException:
        os.close(life)
        raise
    finally:
        os.close(ours)
    return asyncio.subprocess.Process(transport, protocol, loop), transport, life


async def _hear(
    process: asyncio.subprocess.Process,
    out: MemoryObjectSendStream[SessionMessage | Exception],
    tail: Tail,
    lost: Callable[[str], None],
    hidden: frozenset[str],
) -> None:
    """Hand on what it says; a line that is no message is kept with its other words."""
    assert process.stdout is not None, "the server was started with pipes"
    why, pace = "it ended", Pace()
    try:
        while line := blotted(await process.stdout.readline(), hidden):
            if pace.floods():
                why = f"it sends more than {FLOOD:,} messages a second"
                break
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                tail.add(line[:LINE].decode("utf-8", "replace"))
                continue
            await out.send(SessionMessage(message))
    except ValueError:
        why = f"it sent a message of more than {MESSAGE // 1_000_000} MB"
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
        why = "the connection to it broke"
    lost(why)
    out.close()  # whoever waits for an answer learns that none will come


async def _send(
    process: asyncio.subprocess.Process,
    to_send: MemoryObjectReceiveStream[SessionMessage],
    lost: Callable[[str], None],
) -> None:
    assert process.stdin is not None, "the server was started with pipes"
    try:
        async for each in to_send:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()
    except OSError:
        lost("it takes no more messages")


async def _listen(process: asyncio.subprocess.Process, tail: Tail) -> None:
    assert process.stderr is not None, "the server was started with pipes"
    rest = b""
    while data := await process.stderr.read(65_536):
        *lines, rest = (rest[-LINE:] + data).split(b"\n")
        for line in lines[-LINES:]:
            tail.add(line.decode("utf-8", "replace"))
    tail.add(rest.decode("utf-8", "replace"))


async def _let_go(process: asyncio.subprocess.Process, mark: str) -> None:
    """End it as the protocol says: close its stdin, then SIGTERM, then SIGKILL, to its group.

    What left the group has the mark, and is killed too.
    """
    assert process.stdin is not None, "the server was started with pipes"
    process.stdin.close()
    if not await _ended(process, LEAVE):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
        await _ended(process, TERM)
    _kill(process)
    if mark:
        await asyncio.to_thread(end_marked, mark)
    await _ended(process, GONE)


async def _ended(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Say whether it ends in time; looks, since waiting also waits for pipes others may hold."""
    with anyio.move_on_after(seconds):
        while process.returncode is None:  # noqa: ASYNC110  # nothing tells of it alone
            await asyncio.sleep(0.01)
    return process.returncode is not None


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
