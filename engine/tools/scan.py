"""Searches files for a regular expression. Run as a program, so that a hopeless one can be ended.

Reads a JSON request on stdin and prints `path NUL line-number : text`, like ripgrep. Imports the
standard library only: it is started by its file name, isolated.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

__all__ = ["IGNORED", "matches", "walk"]

#: Folders nobody means when they search: version control, caches, installed packages.
IGNORED = frozenset(
    {
        ".git", ".hg", ".svn", ".jj", "node_modules", "__pycache__", ".venv", "venv", ".tox",
        ".mypy_cache", ".pytest_cache", ".ruff_cache", ".cache", ".DS_Store", ".idea",
    }
)  # fmt: skip


def matches(path: str, glob: str) -> bool:
    """Tell whether the relative `path` fits `glob`; a glob without / is tried on the name.

    `**` stands for any number of folders. Time grows with the product of both lengths only.
    """
    wanted = glob.strip("/").split("/")
    parts = path.split("/")
    if len(wanted) == 1 and wanted != ["**"]:
        return fnmatchcase(parts[-1], wanted[0])
    at = _skip({0}, wanted)
    for part in parts:
        step = {i if wanted[i] == "**" else i + 1 for i in at if _fits(part, wanted, i)}
        at = _skip(step, wanted)
    return len(wanted) in at


def _fits(part: str, wanted: list[str], i: int) -> bool:
    return i < len(wanted) and (wanted[i] == "**" or fnmatchcase(part, wanted[i]))


def _skip(at: set[int], wanted: list[str]) -> set[int]:
    """Add the places reached because `**` may also stand for nothing."""
    for i in range(len(wanted)):
        if i in at and wanted[i] == "**":
            at.add(i + 1)
    return at


def walk(top: Path) -> Iterator[tuple[Path, str]]:
    """Yield (file, its path relative to `top`) in order; links are not followed."""
    if top.is_file():
        yield top, top.name
        return
    for folder, below, names in os.walk(top):
        below[:] = sorted(set(below) - IGNORED)
        for name in sorted(names):
            if name not in IGNORED and not name.startswith(".nod-"):
                file = Path(folder, name)
                yield file, file.relative_to(top).as_posix()


def _search(request: dict[str, Any]) -> None:
    pattern = re.compile(request["pattern"], re.IGNORECASE if request["ignore_case"] else 0)
    left = request["most"]
    for file, relative in walk(Path(request["top"])):
        if not left:
            return
        if request["glob"] and not matches(relative, request["glob"]):
            continue
        for number, line in _lines(file):
            if left and pattern.search(line):
                left -= 1
                sys.stdout.write(f"{file}\0{number}:{line[: request['width']]}\n")


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield numbered lines of a text file; nothing for links, binaries and what is unreadable."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        opened = os.fdopen(os.open(file, flags), "rb")
    except OSError:
        return
    with opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode) or b"\0" in opened.peek(8192)[:8192]:
            return
        number = 0
        while line := opened.readline(1_000_000):
            number += 1
            yield number, line.decode("utf-8", "replace").rstrip("\r\n")


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    _search(json.load(sys.stdin))
