"""Changes of files, made together or not at all, and what undo and a look-up need to know of them.

Everything new is written beside its place first; then the names are switched, one rename each.
A process that is killed in between leaves every file as it was or as it was to become.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.canonical import digest
from engine.clock import mint
from engine.errors import ToolError
from engine.tools.places import failure, opened_folder, read_whole

__all__ = [
    "MAX_BYTES",
    "Change",
    "commit",
    "compare",
    "counts",
    "diff",
    "read_change",
    "witness",
    "write_new",
]

#: Bytes of a file that may be changed at once: its old and new text are held in memory.
MAX_BYTES = 10_000_000
#: Above this many pairs of lines a diff is shown as "all of it": finding the least one is slow.
_MAX_PAIRS = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One file: what it holds now and what it is to hold. None: it does not exist."""

    path: Path  # resolved
    named: str  # as the model named it
    before: bytes | None
    after: bytes | None
    #: Permission bits of the file; None: new, so the process's default.
    mode: int | None = None

    def undo(self, keep: Path | None) -> dict[str, Any]:
        """Return the undo entry: {path, before, kept, after, mode}, contents as hashes."""
        before = None if self.before is None else digest(self.before)
        kept = None if before is None or keep is None else str(keep / "preimages" / before)
        after = None if self.after is None else digest(self.after)
        path = str(self.path)
        return {"path": path, "before": before, "kept": kept, "after": after, "mode": self.mode}


def read_change(path: Path, named: str, after: bytes | None) -> Change:
    """Return the change of `path` from what it holds now to `after`; raises ToolError."""
    if after is not None and len(after) > MAX_BYTES:
        raise failure(named, OSError(errno.EFBIG, ""))
    try:
        before = read_whole(path, MAX_BYTES)
        mode = stat.S_IMODE(path.stat(follow_symlinks=False).st_mode) & 0o777
    except FileNotFoundError:
        return Change(path=path, named=named, before=None, after=after)
    except OSError as error:
        raise failure(named, error) from error
    return Change(path=path, named=named, before=before, after=after, mode=mode)


def commit(
    changes: Sequence[Change],
    *,
    call: str,
    keep: Path | None,
    before_act: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Make all `changes` or none; returns the undo entries. Blocking.

    Pre-images go to `keep`/preimages, named by their hash. Raises ToolError when a file is not
    (or no longer) as the change says, or the file system refuses; then nothing has changed.
    """
    made: list[Path] = []
    steps = [_Step(change, f".nod-{call}-{n}", made) for n, change in enumerate(changes)]
    done: list[_Step] = []
    try:
        for step in steps:
            step.stage(keep, backup=len(steps) > 1)
        for step in steps:
            step.verify()
        before_act()
        for step in steps:
            step.switch()
            done.append(step)
        for step in steps:
            step.sync()
    except BaseException as error:
        lost = [step.change.named for step in reversed(done) if not step.switch_back()]
        _tidy(steps, made)
        if lost:
            raise ToolError(f"Half done: {error} Not put back: {', '.join(lost)}.") from error
        raise
    _tidy(steps, [])
    return [change.undo(keep) for change in changes]


def _tidy(steps: Sequence[_Step], made: Sequence[Path]) -> None:
    """Remove what was staged, then the folders that were made for it, as far as possible."""
    for step in steps:
        step.tidy()
    for folder in reversed(made):
        with contextlib.suppress(OSError):
            folder.rmdir()


class _Step:
    """One change on its way: staged under `name`.new, its old content under `name`.old."""

    def __init__(self, change: Change, name: str, made: list[Path]) -> None:
        self.change = change
        self._new, self._old = name + ".new", name + ".old"
        self._made = made

    def stage(self, keep: Path | None, *, backup: bool) -> None:
        """Write the new content beside the file, and the old one where undo will find it."""
        change = self.change
        if change.before is not None and keep is not None:
            _keep(keep / "preimages", change.before)
        try:
            with opened_folder(change.path.parent, self._made) as folder:
                if change.after is not None:
                    _write(folder, self._new, change.after, change.mode)
                if change.before is not None and backup:
                    _write(folder, self._old, change.before, change.mode)
        except OSError as error:
            raise failure(change.named, error) from error

    def verify(self) -> None:
        """Raise ToolError unless the file is still as the change found it."""
        if read_change(self.change.path, self.change.named, None).before != self.change.before:
            raise ToolError(
                f"{self.change.named} was changed by someone else meanwhile, so nothing was "
                "written.",
                "Read it again.",
            )

    def switch(self) -> None:
        """Give the file its new content: one rename, or its removal."""
        try:
            self._put(self._new, self.change.after is not None)
        except OSError as error:
            raise failure(self.change.named, error) from error

    def sync(self) -> None:
        """Make the switch durable."""
        try:
            with opened_folder(self.change.path.parent) as folder:
                os.fsync(folder)
        except OSError as error:
            raise failure(self.change.named, error) from error

    def switch_back(self) -> bool:
        """Give the file its old content again; False when even that failed."""
        try:
            self._put(self._old, self.change.before is not None)
        except OSError:
            return False
        return True

    def tidy(self) -> None:
        """Remove what was staged and is left over."""
        with contextlib.suppress(OSError), opened_folder(self.change.path.parent) as folder:
            for name in (self._new, self._old):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)

    def _put(self, staged: str, exists: bool) -> None:
        name = self.change.path.name
        with opened_folder(self.change.path.parent) as folder:
            if exists:
                os.rename(staged, name, src_dir_fd=folder, dst_dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)


def write_new(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that it is either whole or absent; creates folders. Blocking.

    For files of our own. Raises ToolError.
    """
    try:
        with opened_folder(Path(os.path.realpath(path.parent)), []) as folder:
            staged = mint(".nod-")
            _write(folder, staged, data, 0o600)
            os.rename(staged, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
    except OSError as error:
        raise failure(path.name, error) from error


def _keep(folder: Path, data: bytes) -> None:
    path = folder / digest(data)
    if not path.exists():
        write_new(path, data)


def _write(folder: int, name: str, data: bytes, mode: int | None) -> None:
    with contextlib.suppress(FileNotFoundError):  # left by an attempt that was killed
        os.unlink(name, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o666, dir_fd=folder), "wb") as file:
        file.write(data)
        file.flush()
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())


def witness(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """Return what a look-up compares with: path and hash before and after, for each change."""
    return [change.undo(None) for change in changes]


def compare(seen: Sequence[Mapping[str, Any]]) -> tuple[bool, bool]:
    """Tell whether all files of a witness are as (before, after) the change. Blocking."""
    now = [(_hash(Path(each["path"])), each["before"], each["after"]) for each in seen]
    return all(at == old for at, old, _ in now), all(at == new for at, _, new in now)


def _hash(path: Path) -> str | None:
    """Return the hash of a file, None when there is none, '' when it cannot be read."""
    try:
        return digest(read_whole(path, MAX_BYTES))
    except FileNotFoundError:
        return None
    except OSError:
        return ""


def diff(changes: Iterable[Change]) -> str:
    """Return one whole unified diff of `changes`."""
    return "".join(_diff(change) for change in changes)


def counts(change: Change) -> tuple[int, int]:
    """Return how many lines `change` adds and takes away."""
    lines = _diff(change).splitlines()[2:]
    return sum(x.startswith("+") for x in lines), sum(x.startswith("-") for x in lines)


def _diff(change: Change) -> str:
    if any(b"\0" in (side or b"")[:8192] for side in (change.before, change.after)):
        return f"--- {change.named}\n+++ {change.named}\nBinary files differ\n"
    old, new = _lines(change.before), _lines(change.after)
    names = [
        "/dev/null" if side is None else change.named for side in (change.before, change.after)
    ]
    if len(old) * len(new) <= _MAX_PAIRS:
        body = difflib.unified_diff(old, new, names[0], names[1])
    else:
        body = iter([f"--- {names[0]}\n", f"+++ {names[1]}\n", *_replaced(old, new)])
    return "".join(x if x.endswith("\n") else x + "\n\\ No newline at end of file\n" for x in body)


def _lines(data: bytes | None) -> list[str]:
    return [] if data is None else data.decode("utf-8", "replace").splitlines(keepends=True)


def _replaced(old: list[str], new: list[str]) -> list[str]:
    """Return one hunk that replaces all between the common beginning and the common end."""
    start, end = 0, 0
    shorter = min(len(old), len(new))
    while start < shorter and old[start] == new[start]:
        start += 1
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    gone, come = old[start : len(old) - end], new[start : len(new) - end]
    head = f"@@ -{start + 1},{len(gone)} +{start + 1},{len(come)} @@\n"
    return [head, *("-" + x for x in gone), *("+" + x for x in come)]
