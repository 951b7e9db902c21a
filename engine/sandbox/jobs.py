"""Background jobs as files: starts the reaper of one, and reads what it wrote down.

Nothing of a job is kept in this process, so whoever sees its folder can tell how it stands.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ToolError
from engine.sandbox.leftovers import end_marked

__all__ = ["Ended", "Output", "Task", "begin", "end_rest", "ending", "mark", "read", "stop"]

_START = 30.0  # seconds an interpreter may take to start on a busy machine
_STOP = 10.0  # seconds a job has to end: SIGTERM, five seconds, SIGKILL
_LOOK = 0.05  # seconds between looks for that
_WIDEST = 4  # bytes of one character in UTF-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to run."""

    #: Where the job's files go; its name is the job's id.
    folder: Path
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    #: Seconds after which the job is ended.
    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a job ended."""

    #: exited, time (its limit came), stopped, failed (it could not be started), lost (its reaper
    #: was killed, or the machine went down)
    how: str
    #: None: nobody knows.
    exit_code: int | None = None
    #: Epoch seconds; None: nobody knows.
    at: float | None = None
    #: Bytes of output that a full disk did not take.
    unwritten: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A part of what a job printed."""

    text: str
    #: In bytes from its first on: where this part begins and ends. What went before `begin` and
    #: was asked for is gone.
    begin: int
    end: int
    #: More came after `end`.
    more: bool = False


def mark(job: str) -> str:
    """Return the mark that all processes of the job carry in their environment."""
    return f"job/{job}."


def begin(task: Task) -> None:
    """Start the job, unless it was started before. Blocks for a fraction of a second.

    Raises ToolError when it cannot be started, TimeoutError when nobody can tell.
    """
    root = str(Path(__file__).parents[2])
    words = [sys.executable, "-P", "-s", "-m", "engine.sandbox.reaper"]
    said = {
        "folder": str(task.folder),
        "argv": list(task.argv),
        "env": dict(task.env),
        "cwd": str(task.cwd),
        "limit": task.limit,
    }
    try:
        task.folder.mkdir(parents=True, exist_ok=True)
        ran = subprocess.run(
            words,
            input=json.dumps(said).encode() + b"\n",
            capture_output=True,
            env={"PATH": os.defpath, "PYTHONPATH": root, "LANG": "C.UTF-8"},
            cwd=task.folder,
            timeout=_START,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"the job said nothing within {_START:g} s") from error
    except OSError as error:
        raise ToolError(f"The job could not be started: {_cause(error)}.") from error
    word, _, cause = ran.stdout.decode(errors="replace").partition(" ")
    if word != "started":
        cause = cause or ran.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise ToolError(f"The job could not be started: {cause or 'its reaper ended at once'}.")


def _cause(error: OSError) -> str:
    return error.strerror or str(error)


def ending(folder: Path) -> Ended | None:
    """Return how the job ended; None while it runs. Reads files, so call it off the event loop.

    Raises FileNotFoundError when there is no such job on this machine, or it is being started.
    """
    found = _written(folder)
    if found is not None:
        return found
    if not (folder / "started").exists():
        raise FileNotFoundError(folder)
    with (folder / "lock").open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
    return _written(folder) or Ended(how="lost")


def _written(folder: Path) -> Ended | None:
    try:
        said = json.loads((folder / "ended").read_bytes())
    except FileNotFoundError:
        return None
    return Ended(**said)


def stop(folder: Path) -> None:
    """Have the job ended and wait for it, ten seconds at most; `ending` tells. Blocks.

    Raises OSError when the folder cannot be written to.
    """
    (folder / "stop").touch()
    until = time.monotonic() + _STOP
    with suppress(FileNotFoundError):
        while ending(folder) is None and time.monotonic() < until:
            time.sleep(_LOOK)


def end_rest(job: str) -> None:
    """Kill what a lost job may have left running on this machine."""
    end_marked(mark(job))


def read(folder: Path, start: int | None, limit: int) -> Output:
    """Return what the job printed from byte `start` on, or its end, at most `limit` bytes.

    Text is cut between characters. Reads files, so call it off the event loop.
    """
    pieces = sorted(folder.glob("out-*"))
    spans = [(int(each.name[4:]), each) for each in pieces]
    size = spans[-1][0] + spans[-1][1].stat().st_size if spans else 0
    first = spans[0][0] if spans else 0
    at = max(first, size - limit) if start is None else min(max(start, first), size)
    data = bytearray()
    for position, (begins, piece) in enumerate(spans):
        ends = spans[position + 1][0] if position + 1 < len(spans) else size
        if at + len(data) >= ends or len(data) >= limit:
            continue
        if data and at + len(data) < begins:
            break  # a hole: the disk was full; what is behind it is read next
        at = at if data else max(at, begins)
        data += _bytes(piece, at + len(data) - begins, limit - len(data))
    text, lead, kept = _text(bytes(data), cut_start=at > first, cut_end=at + len(data) < size)
    return Output(text=text, begin=at + lead, end=at + lead + kept, more=at + lead + kept < size)


def _bytes(piece: Path, offset: int, count: int) -> bytes:
    try:
        with piece.open("rb") as file:
            file.seek(offset)
            return file.read(count)
    except FileNotFoundError:
        return b""  # it was the oldest, and made room meanwhile


def _text(data: bytes, *, cut_start: bool, cut_end: bool) -> tuple[str, int, int]:
    """Return the text, the bytes left out before it, and the bytes it holds."""
    lead = 0
    while cut_start and lead < min(_WIDEST, len(data)) and data[lead] & 0xC0 == 0x80:
        lead += 1
    body = data[lead:]
    if cut_end:
        for back in range(1, min(_WIDEST, len(body)) + 1):
            if body[-back] & 0xC0 != 0x80:
                if body[-back] >= 0xC0 and back < len(body):
                    body = body[:-back]
                break
    return body.decode("utf-8", "replace"), lead, len(body)
