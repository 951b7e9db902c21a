"""The local socket: how a second `nod` gives a command to the process that is at work.

One JSON object a line, both ways. The file is only for its owner (mode 0600), so whoever reaches
it is the person at the console.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from bot.commands.table import Context, run
from engine import people
from engine.canonical import dumps, loads
from engine.errors import NodError, SettingsError

__all__ = ["LocalSocket", "NotRunning", "Say", "ask"]

#: Takes (thread_target, text) as said by the person at the console; returns what it replies.
Say = Callable[[str, str], Awaitable[str]]

#: Bytes of one request or reply; connections at once; seconds for a request to come, and to run.
REQUEST, REPLY, CONNECTIONS = 64_000, 4_000_000, 16
READ_TIMEOUT, RUN_TIMEOUT = 10.0, 60.0
#: Bytes of a socket's path (sun_path of unix(7), with its final NUL).
PATH_LIMIT = 108

_log = logging.getLogger(__name__)


class NotRunning(NodError):
    """Nobody listens at the socket."""


class LocalSocket:
    """Serves commands; an async context manager, for the one process with the advance lock."""

    def __init__(self, path: Path, context: Context, say: Say) -> None:
        self._path = path
        self._context = context
        self._say = say
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> LocalSocket:
        if len(os.fsencode(self._path)) >= PATH_LIMIT:
            raise SettingsError(
                f"The path of the data folder is too long for a socket: {self._path}.",
                "Set NOD_HOME to a shorter one.",
            )
        made = _bound(self._path)
        self._server = await asyncio.start_unix_server(self._serve, sock=made, limit=REQUEST)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "the server runs each connection in a task"
        self._serving.add(task)
        try:
            if len(self._serving) > CONNECTIONS:
                reply = _refusal("Too many commands at once. Try again.")
            else:
                reply = await self._reply(reader)
            writer.write(dumps(reply).encode() + b"\n")
            async with asyncio.timeout(READ_TIMEOUT):
                await writer.drain()
        except (ConnectionError, TimeoutError):
            _log.info("a command's sender went away")
        finally:
            self._serving.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _reply(self, reader: asyncio.StreamReader) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                line = await reader.readline()
        except ValueError:
            return _refusal(f"A command is at most {REQUEST:,} bytes long.")
        except TimeoutError:
            return _refusal("No command came.")
        try:
            request = loads(line)
            command, arguments = str(request["command"]), str(request.get("args", ""))
            thread = str(request.get("thread") or "console:main")
        except (ValueError, KeyError, TypeError, AttributeError):
            return _refusal("This is no command.")
        try:
            async with asyncio.timeout(RUN_TIMEOUT):
                return {"ok": True, "text": await self._run(command, arguments, thread)}
        except NodError as error:
            return _refusal(str(error))
        except TimeoutError:
            return _refusal(f"/{command} took longer than {RUN_TIMEOUT:.0f} s.")
        except Exception:  # noqa: BLE001  # broad: a request border; its sender gets a reply
            _log.exception("/%s failed", command)
            return _refusal(f"/{command} failed; the log says why.")

    async def _run(self, command: str, arguments: str, thread: str) -> str:
        if command == "say":
            return await self._say(thread, arguments)
        context = self._context
        person = await context.store.read(
            lambda tx: people.person_of(tx, context.tenant, people.CONSOLE, people.CONSOLE)
        )
        if person is None:
            raise NodError("Nobody is known at this console.", "Start `nod` once.")
        return await run(context.of(person, thread), command, arguments)


def _refusal(text: str) -> Mapping[str, Any]:
    return {"ok": False, "text": text}


def _bound(path: Path) -> socket.socket:
    """Return a socket bound at `path`, for its owner only.

    What lies there is left from a process that is gone: the advance lock is ours.
    """
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        made.bind(str(path))
    except BaseException:
        made.close()
        raise
    finally:
        os.umask(before)
    return made


async def ask(
    path: Path,
    command: str,
    arguments: str = "",
    thread: str = "console:main",
    timeout: float = RUN_TIMEOUT,  # noqa: ASYNC109  # the caller's patience, told in one number
) -> str:
    """Send a command to the process at work and return what it says.

    Raises NotRunning, and NodError: no reply within `timeout` seconds, or what the command itself
    refused. The command `say` says its arguments in the thread.
    """
    missing = NotRunning(f"nod {command} needs a running Nod.", "Start `nod` or `nod serve` first.")
    request = {"command": command, "args": arguments, "thread": thread}
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_unix_connection(path, limit=REPLY)
            try:
                writer.write(dumps(request).encode() + b"\n")
                await writer.drain()
                reply = loads(await reader.readline())
            finally:
                writer.close()
    except (FileNotFoundError, ConnectionRefusedError):
        raise missing from None
    except TimeoutError:
        raise NodError(f"Nod did not reply within {timeout:.0f} s.", "See its log.") from None
    except (OSError, ValueError) as error:
        raise NodError(f"Nod could not be asked: {error}.", "See its log.") from error
    if not reply["ok"]:
        raise NodError(reply["text"])
    return str(reply["text"])
