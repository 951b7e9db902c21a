"""One live shell: takes a command, tells its exit code, and the folder and exports it left behind.

A command reads nothing and its output goes to a pipe of its own. What the shell says about it goes
another way, behind a random word that the command never sees, so no command can swallow or forge
it. Nothing is left to read in the shell's own input while a command runs.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.sandbox.capture import Tail
from engine.sandbox.process import Process

__all__ = ["Reply", "Shell", "argv"]

_SAID_LIMIT = 1_000_000  # bytes the shell may say about one command

#: What ends a command from outside, by SIGINT and SIGUSR1. SIGINT alone is not enough: a shell
#: ignores it when its program deals with it. `return` leaves one function only, so bash is told to
#: return again before whatever would be next, until the whole command is left.
_RETURN = "return 130 2>/dev/null"
_LEAVE = {
    "bash": f"trap 'trap \"{_RETURN}\" DEBUG; {_RETURN}' INT USR1\n",
    "sh": f"trap '{_RETURN}' INT USR1\n",
}
#: Forget that again, before the next command.
_STAY = {"bash": "\\command trap - DEBUG; ", "sh": ""}

#: Sourced, not evaluated: only so can the trap leave it. The text is read whole before it starts.
_COMMAND = """\
{stay}\\command . /dev/fd/3 3<<'{word}' </dev/null >&2 2>&1; {{ \
\\command printf '{word} %s\\n' "$?"; \\command pwd -P; \\command printf '\\0'; {env} -0; \
\\command printf '\\0:{word}\\n'; }} 2>/dev/null
exec 3<&-;{command}
{word}
"""


def argv() -> list[str]:
    """Return the words that start a shell without any start-up file: bash, else sh."""
    bash = shutil.which("bash")
    return [bash, "--noprofile", "--norc"] if bash else [shutil.which("sh") or "/bin/sh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """How a command ended. Without `cwd` the shell ended with it."""

    exit_code: int
    cwd: Path | None = None
    environment: Mapping[str, str] | None = None


class Shell:
    """A shell process. Runs one command at a time."""

    def __init__(self, limit: int) -> None:
        self.output = Tail(limit)
        self.process = Process(lambda data: self.output.add(data), self._hear)
        self._limit = limit
        self._word = ""
        self._said = bytearray()
        self._reply: asyncio.Future[Reply] | None = None
        self._kind = "bash" if Path(argv()[0]).name == "bash" else "sh"
        self._env = shutil.which("env") or "/usr/bin/env"

    def begin(self) -> None:
        """Set up the process, which was just started with the words of `argv`."""
        self.process.exited.add_done_callback(self._ended)
        self.process.write(_LEAVE[self._kind].encode())

    def send(self, command: str) -> asyncio.Future[Reply]:
        """Hand over a command; the future gives its end. Its output begins anew."""
        self.process.drain()
        self.output = Tail(self._limit)
        self._word, self._said = secrets.token_hex(16), bytearray()
        self._reply = asyncio.get_running_loop().create_future()
        if self.process.exited.done():
            self._ended(self.process.exited)
            return self._reply
        text = _COMMAND.format(
            stay=_STAY[self._kind], word=self._word, env=self._env, command=command
        )
        self.process.write(text.encode("utf-8", "replace"))
        return self._reply

    def interrupt(self) -> None:
        """End the running command's programs and leave the command; the shell lives on."""
        self.process.signal(signal.SIGUSR1, group=False)
        self.process.signal(signal.SIGINT, group=True)

    def _hear(self, data: bytes) -> None:
        if len(self._said) < _SAID_LIMIT:
            self._said += data
        word = self._word.encode()
        begin, end = self._said.find(word + b" "), self._said.find(b"\0:" + word + b"\n")
        if self._reply is not None and not self._reply.done() and 0 <= begin < end:
            self._reply.set_result(_parsed(bytes(self._said[begin + len(word) + 1 : end])))

    def _ended(self, exited: asyncio.Future[int]) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(Reply(exit_code=exited.result()))


def _parsed(said: bytes) -> Reply:
    """Read `code newline folder newline NUL name=value NUL …`."""
    code, _, rest = said.partition(b"\n")
    folder, *entries = rest.split(b"\0")
    environment = {}
    for entry in entries:
        try:
            name, _, value = entry.decode("utf-8").partition("=")
        except UnicodeDecodeError:
            continue  # it could not be kept as text
        if name.isidentifier():
            environment[name] = value
    cwd = Path(folder.removesuffix(b"\n").decode("utf-8", "surrogateescape"))
    return Reply(exit_code=int(code), cwd=cwd, environment=environment)
