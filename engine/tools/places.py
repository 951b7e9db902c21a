"""Where a path really is: resolved, under a root, and opened without following a link on the way.

A path is resolved once and checked against the roots; every later step walks the resolved path
component by component and refuses links. So a link that is put in place after the check changes
nothing: the step fails instead of leaving the root.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from engine.errors import ToolError
from engine.permissions.paths import fence
from engine.tools.base import ToolContext

__all__ = ["failure", "locate", "open_file", "opened_folder", "read_whole", "shown"]

# O_PATH lets us pass through folders we may enter but not list.
_PASS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a named pipe must not wait for a writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def locate(ctx: ToolContext, path: str, mode: str = "read") -> Path:
    """Return the real place of `path`, relative ones from the session's folder.

    `mode` is 'read' or 'write'. Raises ToolError when the fence refuses it: the same check as
    before the call was allowed, made again where it is used.
    """
    return fence(ctx.roots, path, mode, ctx.cwd)


def shown(ctx: ToolContext, real: Path) -> str:
    """Return `real` as a model should write it: relative to the session's folder when below it."""
    home = Path(os.path.realpath(ctx.cwd))
    return str(real.relative_to(home)) if real.is_relative_to(home) else str(real)


@contextmanager
def opened_folder(real: Path, made: list[Path] | None = None) -> Iterator[int]:
    """Open the folder `real` (resolved, absolute) and yield its descriptor.

    With `made`, missing folders are created and added to it. Raises OSError; ELOOP or ENOTDIR
    when a component has become a link.
    """
    current = os.open("/", _PASS)
    try:
        for depth, name in enumerate(real.parts[1:], start=2):
            flags = _FOLDER if depth == len(real.parts) else _PASS
            try:
                following = os.open(name, flags, dir_fd=current)
            except FileNotFoundError:
                if made is None:
                    raise
                os.mkdir(name, dir_fd=current)
                made.append(Path(*real.parts[:depth]))
                following = os.open(name, flags, dir_fd=current)
            os.close(current)
            current = following
        yield current
    finally:
        os.close(current)


def open_file(real: Path) -> BinaryIO:
    """Open the regular file `real` for reading; raises OSError. A last link is not followed."""
    with opened_folder(real.parent) as folder:
        descriptor = os.open(real.name, _FILE, dir_fd=folder)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.ENXIO, "no regular file")


def read_whole(real: Path, limit: int) -> bytes:
    """Return the content of the regular file `real`; raises OSError, EFBIG above `limit` bytes."""
    with open_file(real) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit:,} bytes")
    return data


def failure(path: str | Path, error: OSError) -> ToolError:
    """Turn an error of the file system into a sentence about `path`, as the model named it."""
    known = {
        errno.ENOENT: ("does not exist.", "List its folder to see what is there."),
        errno.EISDIR: ("is a folder.", "Name a file in it."),
        errno.ENOTDIR: ("goes through something that is no folder.", "Check the path."),
        errno.ELOOP: ("became a link while it was used, so it was left alone.", "Look again."),
        errno.EACCES: ("may not be accessed by this program.", "Choose another place."),
        errno.EPERM: ("may not be changed by this program.", "Choose another place."),
        errno.EROFS: ("is on a read-only disk.", "Choose another place."),
        errno.ENOSPC: ("does not fit: the disk is full.", "Ask the person to free some space."),
        errno.ENAMETOOLONG: ("has a name that is too long.", "Shorten it."),
        errno.ENXIO: ("is no regular file.", "Only regular files can be used."),
        errno.EFBIG: ("is too large.", "Use search to find the part you need."),
    }
    what, fix = known.get(error.errno or 0, (f"cannot be used: {error.strerror or error}.", ""))
    return ToolError(f"{path} {what}", fix)
