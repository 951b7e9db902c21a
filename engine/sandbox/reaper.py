"""Runs one background job and outlives Nod: bounds its output, its time, and all that it starts.

`python -m engine.sandbox.reaper` reads its task as one line of JSON from stdin, leaves its parent,
and says `started` once the job runs. From then on it speaks through files in the job's folder only,
so that a Nod that was killed meanwhile finds what became of the job:

    lock      held while the reaper lives, so nobody mistakes another process for it
    started   made once: a task that is handed over again starts nothing
    out-N     the output from its byte N on; the last two pieces are kept
    stop      made by Nod: end the job
    ended     how it ended, written whole or not at all

Where the folder goes, as with a deleted session, the job goes.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from engine.clock import system_now
from engine.sandbox.leftovers import MARK, end_children, end_marked

__all__ = ["PIECE", "main"]

#: Bytes of a piece of output; two are kept, so at least the last of this many.
PIECE = 1_000_000

_LOOK = 0.2  # seconds between looks for a stop and at the clock
_TERM_GRACE = 5.0  # seconds a job has to end after SIGTERM
_READ = 65_536  # bytes; the capacity of a pipe on Linux, pipe(7)
_ROOM = 400  # bytes kept free for `ended`, so that a full disk does not lose it
_REST = 64  # reads of what is left when the job has ended

# prctl(2)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main() -> None:
    """Take the task, leave the parent, and see the job through."""
    task = json.loads(sys.stdin.buffer.readline())
    if os.fork():
        os._exit(0)
    os.setsid()
    for each in (signal.SIGHUP, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    try:
        lock = _locked(Path(task["folder"]))
        claimed = _claimed(Path(task["folder"]))
        job = _Job(task) if claimed else None
    except (OSError, ValueError) as error:
        _say(f"error {error}")
        return
    _say("started")
    if job is not None:
        job.see_through()
    lock.close()


def _say(word: str) -> None:
    """Tell the parent, and let go of it."""
    with suppress(OSError):
        os.write(1, word.encode())
    nothing = os.open(os.devnull, os.O_RDWR)
    for each in (0, 1, 2):
        os.dup2(nothing, each)
    os.close(nothing)


def _locked(folder: Path) -> BinaryIO:
    lock = (folder / "lock").open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def _claimed(folder: Path) -> bool:
    """Say whether this is the one start of the job; room for its end is taken with it."""
    if (folder / "started").exists():
        return False
    (folder / "ending").write_bytes(b" " * _ROOM)
    with (folder / "started").open("x") as file:
        file.write(json.dumps({"pid": os.getpid(), "at": system_now()}))
    return True


def _removed(folder: Path) -> None:
    """Remove what the job wrote while its session's folder was being removed."""
    shutil.rmtree(folder, ignore_errors=True)
    for each in folder.parents[:3]:  # jobs, keep, the session
        with suppress(OSError):
            each.rmdir()


class _Job:
    """The running command, seen from the process that answers for it."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._folder = Path(task["folder"])
        self._mark = str(task["env"][MARK])
        self._until = time.monotonic() + float(task["limit"])
        self._output = _Output(self._folder)
        self._code: int | None = None
        self._told = False  # to end, by SIGTERM
        self._woken, wake = os.pipe()
        for each in (self._woken, wake):
            os.set_blocking(each, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, self._asked)
        self._libc = ctypes.CDLL(None) if sys.platform == "linux" else None
        if self._libc is not None:
            self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            self._process = subprocess.Popen(
                task["argv"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=task["env"],
                cwd=task["cwd"],
                start_new_session=True,
                preexec_fn=self._follow,
            )
        except OSError as error:
            self._write_end("failed", str(error)[:200])
            raise
        assert self._process.stdout is not None
        self._pipe = self._process.stdout.fileno()
        os.set_blocking(self._pipe, False)

    def see_through(self) -> None:
        """Wait for the job's end, or bring it about; then end its rest and write that down."""
        how = self._watched()
        if how in ("time", "stopped"):
            self._signal(signal.SIGTERM)
            self._watched(_TERM_GRACE)
        self._signal(signal.SIGKILL)
        end_children()
        end_marked(self._mark)
        if self._code is None:
            self._watched(_TERM_GRACE)
        for _ in range(_REST):
            if not self._pulled():
                break
        if how == "gone":
            _removed(self._folder)
        else:
            self._write_end(how)

    def _watched(self, seconds: float | None = None) -> str:
        """Take in output until the job ends or is to end, or for `seconds`; say which it was."""
        piped = [self._pipe]
        until = self._until if seconds is None else time.monotonic() + seconds
        look_at = 0.0
        while True:
            self._reap()
            if self._code is not None:
                return "exited"
            now = time.monotonic()
            if now >= until:
                return "time"
            if seconds is None and now >= look_at:
                look_at = now + _LOOK
                if not (self._folder / "started").exists():
                    return "gone"
                if self._told or (self._folder / "stop").exists():
                    return "stopped"
            ready, _, _ = select.select([*piped, self._woken], [], [], min(_LOOK, until - now))
            if self._woken in ready:
                with suppress(BlockingIOError):
                    os.read(self._woken, _READ)
                look_at = 0.0
            if self._pipe in ready and not self._pulled():
                piped = []  # it closed its output and goes on

    def _pulled(self) -> bool:
        """Take in what the pipe holds; False: nothing, and nothing will come."""
        try:
            data = os.read(self._pipe, _READ)
        except BlockingIOError:
            return False
        self._output.add(data)
        return bool(data)

    def _reap(self) -> None:
        """Note the job's end; children that it abandoned are ours, and buried too."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._process.pid:
                    code = os.waitstatus_to_exitcode(status)
                    self._code = 128 - code if code < 0 else code  # what a shell would report

    def _asked(self, number: int, frame: object) -> None:
        self._told = True

    def _follow(self) -> None:
        """In the job's process: die with the reaper."""
        for each in (signal.SIGHUP, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)
        if self._libc is not None:
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _write_end(self, how: str, error: str = "") -> None:
        said = {
            "how": how,
            "exit_code": self._code,
            "at": system_now(),
            "unwritten": self._output.unwritten,
            "error": error,
        }
        with suppress(OSError):
            with (self._folder / "ending").open("r+b") as file:
                file.write(json.dumps(said).encode())
                file.flush()
                os.fsync(file.fileno())
            (self._folder / "ending").replace(self._folder / "ended")


class _Output:
    """What the job prints, in pieces of which the last two are kept."""

    def __init__(self, folder: Path) -> None:
        #: Bytes that could not be written: the disk was full.
        self.unwritten = 0
        self._folder = folder
        self._end = 0
        self._piece: int | None = None
        self._left = 0
        self._names: list[Path] = []

    def add(self, data: bytes) -> None:
        """Keep `data`; what cannot be written is counted, and never holds up the job."""
        try:
            if self._piece is None or self._left <= 0:
                self._piece = self._begin()
            written = os.write(self._piece, data)
        except OSError:
            written = 0
        if written < len(data):
            self.unwritten += len(data) - written
            self._left = 0  # what comes later has a place of its own
        self._left -= written
        self._end += len(data)

    def _begin(self) -> int:
        if self._piece is not None:
            os.close(self._piece)
            self._piece = None
        name = self._folder / f"out-{self._end:015d}"
        piece = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._left = PIECE
        self._names.append(name)
        while len(self._names) > 2:
            self._names.pop(0).unlink(missing_ok=True)
        return piece


if __name__ == "__main__":
    main()
