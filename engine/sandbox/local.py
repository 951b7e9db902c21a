"""The executor without walls: a session's shell and jobs run as the user who runs Nod.

It protects Nod's secrets from what the environment would hand on, and the machine from leftovers;
it does not confine a command. That is why a command asks first.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import ToolError
from engine.sandbox import jobs
from engine.sandbox.base import Ran, ShellState
from engine.sandbox.leftovers import MARK, end_marked
from engine.sandbox.process import Process
from engine.sandbox.shell import Reply, Shell, argv

__all__ = ["LocalExecutor", "environment"]

_OUTPUT = 20_000  # characters kept of a command's output
_GRACE = 3.0  # seconds a command has to end after its time is up
_STOP_GRACE = 0.5  # the same when a person waits for it to stop
_STUBBORN = 5.0  # seconds more, until it is killed

_PASSED = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME")
_FIXED = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
    "PYTHONUNBUFFERED": "1",
    "PIP_NO_INPUT": "1",
    # Files a model may write must not name programs that an allowed `git status` would run: no
    # settings from HOME, and a folder that only looks like a repository is none.
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.bareRepository",
    "GIT_CONFIG_VALUE_0": "explicit",
}
#: Variables a shell keeps for itself.
_SHELLS_OWN = frozenset({"PWD", "OLDPWD", "SHLVL", "_", MARK})


def environment(folder: Path, passed: Iterable[str] = ()) -> dict[str, str]:
    """Return the whole environment of a shell whose home is `folder`.

    Nothing is inherited but PATH, language, zone, user name and the names in `passed`.
    """
    path = [each for each in os.environ.get("PATH", os.defpath).split(":") if each[:1] == "/"]
    kept = {name: os.environ[name] for name in (*_PASSED, *passed) if name in os.environ}
    return {"LANG": "C.UTF-8", **kept, **_FIXED, "PATH": ":".join(path), "HOME": str(folder)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """A command at work: set `stop` to end it; `over` when it has."""

    stop: asyncio.Future[None]
    over: asyncio.Future[None]


class LocalExecutor:
    """See `Executor`. Nothing is started before the first command."""

    def __init__(
        self,
        folder: Path,
        *,
        state: ShellState | None = None,
        passed: Iterable[str] = (),
        limit: int = _OUTPUT,
        grace: float = _GRACE,
    ) -> None:
        """Prepare a shell whose home is `folder`, which must exist.

        `state` is where an earlier one left off; `passed` names variables of ours that commands
        may see; `limit` is in characters of output; `grace` in seconds, see `run`.
        """
        self._folder = folder
        self._base = environment(folder, passed)
        self._cwd = state.cwd if state else folder
        self._exports: Mapping[str, str] = dict(state.exports) if state else {}
        self._limit = limit
        self._grace = grace
        self._mark = secrets.token_hex(8)
        self._shell: Shell | None = None
        self._turn = asyncio.Lock()
        self._running: _Running | None = None
        self._closed = False

    async def run(self, command: str, limit: float) -> Ran:
        """Run `command`; after `limit` seconds it is interrupted, and 3 s later killed.

        Killed, the shell goes with it, and the next command finds a new one in the same folder
        with the same exports. Raises ToolError when no shell can be started.
        """
        async with self._turn:
            shell = await self._opened()
            loop = asyncio.get_running_loop()
            running = _Running(stop=loop.create_future(), over=loop.create_future())
            self._running = running
            try:
                return await self._finished(shell, shell.send(command), running.stop, limit)
            except BaseException:
                self._drop()
                raise
            finally:
                self._running = None
                running.over.set_result(None)

    async def start(self, command: str, folder: Path, limit: float) -> None:
        """Start `command` as a job, in the folder and with the exports of the shell."""
        cwd, env = await self._setting(jobs.mark(folder.name))
        task = jobs.Task(
            folder=folder, argv=[*argv(), "-c", command], env=env, cwd=cwd, limit=limit
        )
        await asyncio.to_thread(jobs.begin, task)

    async def interrupt(self) -> None:
        """End the running command, if any, within a second; jobs are left alone."""
        running = self._running
        if running is not None:
            if not running.stop.done():
                running.stop.set_result(None)
            await asyncio.wait({running.over}, timeout=_STOP_GRACE + _STUBBORN)

    async def state(self) -> ShellState:
        """Return the folder and exports as of the last command that ended by itself."""
        return ShellState(cwd=self._cwd, exports=dict(self._exports))

    async def close(self) -> None:
        """End the shell with all its children; jobs go on. Safe to call twice."""
        self._closed = True
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.process.signal(signal.SIGKILL, group=True)
        if shell is not None or self._turn.locked():
            await asyncio.to_thread(end_marked, self._mark)
        if shell is not None:
            await shell.process.gone()
            shell.process.close()

    async def _finished(
        self,
        shell: Shell,
        reply: asyncio.Future[Reply],
        stop: asyncio.Future[None],
        limit: float,
    ) -> Ran:
        first: set[asyncio.Future[Any]] = {reply, stop}
        await asyncio.wait(first, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        on_time = reply.done()
        killed = False
        if not on_time:
            shell.interrupt()
            await asyncio.wait({reply}, timeout=_STOP_GRACE if stop.done() else self._grace)
            killed = not reply.done()
        if killed:
            shell.process.signal(signal.SIGKILL, group=True)
            await asyncio.to_thread(end_marked, f"{self._mark}/shell.")
            await shell.process.gone()
        elif reply.result().cwd is not None:
            self._remember(reply.result())
        shell.process.drain()
        output = shell.output.take(whole=True)
        if killed or reply.result().cwd is None:
            self._drop()
        return Ran(
            exit_code=None if killed or self._closed else reply.result().exit_code,
            output=output,
            truncated=shell.output.dropped > 0,
            timed_out=not on_time and not stop.done(),
            interrupted=not on_time and stop.done(),
            cwd=str(self._cwd),
        )

    def _remember(self, reply: Reply) -> None:
        assert reply.cwd is not None and reply.environment is not None
        self._cwd = reply.cwd
        self._exports = {
            name: value
            for name, value in reply.environment.items()
            if name not in _SHELLS_OWN and self._base.get(name) != value
        }

    async def _opened(self) -> Shell:
        if self._shell is None or self._shell.process.exited.done():
            self._drop()
            shell = Shell(self._limit)
            await self._launch(shell.process, argv(), f"{self._mark}/shell.")
            shell.begin()
            self._shell = shell
        return self._shell

    async def _launch(self, process: Process, words: list[str], mark: str) -> None:
        cwd, env = await self._setting(mark)
        try:
            await process.start(words, env, cwd)
        except (OSError, ValueError) as error:
            raise ToolError(f"No shell could be started: {error}.") from error

    async def _setting(self, mark: str) -> tuple[Path, dict[str, str]]:
        """Return the folder and the whole environment of what is started next."""
        if self._closed:
            raise ToolError("The shell of this session is closed.", "Try again in the next turn.")
        cwd = await asyncio.to_thread(_existing, self._cwd, self._folder)
        return cwd, {**self._base, **self._exports, MARK: mark}

    def _drop(self) -> None:
        if self._shell is not None:
            self._shell.process.close()
            self._shell = None


def _existing(cwd: Path, otherwise: Path) -> Path:
    return cwd if cwd.is_dir() else otherwise
