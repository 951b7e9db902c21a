"""The fence: where a path really leads, and whether a session may read or write there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from engine.errors import ToolError
from engine.tools.base import Root

__all__ = ["fence", "is_own", "resolve"]


def fence(roots: Sequence[Root], path: str, mode: str, cwd: Path) -> Path:
    """Return the real place of `path`; relative ones start at `cwd`, `~` is expanded.

    `mode` is 'read'; anything else is held to be a write and needs a writable root. A root itself
    lies inside. Git's own folder is never written: its config names programs that every later git
    command would run. Reads the file system, so call it off the event loop. Raises ToolError when
    the place is outside; the text names `path` as it was given.
    """
    real = resolve(path, cwd)
    holding = [root for root in roots if _is_under(real, root)]
    if mode == "read":
        if not holding:
            raise ToolError(
                f"'{path}' is not in a directory of this session.",
                f"Stay in {_listed(roots)}, or ask the person for that folder.",
            )
        return real
    writable = [root for root in holding if root.writable]
    if not writable:
        raise ToolError(
            f"'{path}' is not in a writable directory.",
            f"Write in {_listed(root for root in roots if root.writable)}, "
            "or ask the person for that folder.",
        )
    if any(_enters_git(real, root) for root in writable):
        raise ToolError(
            f"'{path}' is in git's own folder, which is only changed by git.",
            "Run a git command instead.",
        )
    return real


def resolve(path: str, cwd: Path) -> Path:
    """Return where `path` leads once every symlink on the way is followed, dangling ones too.

    Raises ToolError when it leads nowhere: empty, a NUL byte, an unknown user, a ring of links.
    """
    if not path.strip() or "\0" in path:
        raise ToolError("The path is empty or holds a NUL byte.", "Name a file or folder.")
    try:
        expanded = Path(path).expanduser()
        real = os.path.realpath(cwd / expanded)
        # In a ring of links what follows is left unresolved; resolved once more, it would move.
        settled = os.path.realpath(real) == real and not Path(real).is_symlink()
    except (OSError, RuntimeError, ValueError) as error:
        raise ToolError(f"'{path!r}' is no path: {error}.", "Check its spelling.") from error
    if not settled:
        raise ToolError(f"'{path}' leads into a ring of links.", "Name the file itself.")
    return Path(real)


def is_own(roots: Iterable[Root], real: Path) -> bool:
    """Tell whether the resolved path `real` lies in the session's own folder."""
    return any(root.own and root.writable and _is_under(real, root) for root in roots)


def _is_under(real: Path, root: Root) -> bool:
    return real.is_relative_to(os.path.realpath(root.path))


def _enters_git(real: Path, root: Root) -> bool:
    below = real.relative_to(os.path.realpath(root.path))
    return any(part.casefold() == ".git" for part in below.parts)


def _listed(roots: Iterable[Root]) -> str:
    return ", ".join(str(root.path) for root in roots) or "no folder yet"
