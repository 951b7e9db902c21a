"""Finds text in files, and files by name: ripgrep when it is there, else our own scan.

Both run as a program with a time limit, so that a regular expression that never ends is ended.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from pathlib import Path

from engine.errors import ToolError
from engine.tools import scan
from engine.tools.base import Result, Risk, ToolContext, tool
from engine.tools.places import locate, shown
from engine.tools.program import Ended, run_program

__all__ = ["TOOLS"]

#: Seconds a search may take; characters of a line shown; most results one may ask for.
_SECONDS, _WIDTH, _MOST = 20.0, 300, 1_000


@tool(risk=Risk.READ, paths={"path": "read"}, timeout=_SECONDS + 10)
async def search(
    ctx: ToolContext,
    pattern: str,
    path: str = ".",
    glob: str = "",
    ignore_case: bool = False,
    limit: int = 100,
) -> Result:
    """Search files for a regular expression; each hit is `path:line: text`.

    Version control, caches, installed packages and binary files are left out; links are not
    followed.

    Args:
        pattern: A regular expression, looked for in each line.
        path: A folder or a file; relative paths start in the session's folder.
        glob: Only files that fit, for example *.py or src/**/*.md.
        ignore_case: Take upper and lower case as the same.
        limit: At most this many hits, up to 1000.
    """
    top = locate(ctx, path)
    if not top.exists():
        raise ToolError(f"{path} does not exist.", "List its folder to see what is there.")
    if not pattern or "\0" in pattern or "\n" in pattern:
        raise ToolError("The pattern is empty or spans lines.", "Search for part of one line.")
    most = max(1, min(limit, _MOST))
    ended = await _run(top, pattern, glob, ignore_case, most)
    if ended.timed_out:
        raise ToolError(
            f"The search took longer than {_SECONDS:.0f} seconds and was ended.",
            "Search a smaller folder, or with a simpler pattern.",
        )
    if not ended.out and ended.err:
        raise ToolError(f"The search failed: {_cause(ended.err)}.", "Check the pattern.")
    return Result(text=_hits(ctx, ended.out, most))


async def _run(top: Path, pattern: str, glob: str, ignore_case: bool, most: int) -> Ended:
    # A hit is path, number and line; one more than wanted tells that there are more.
    room = (most + 1) * (16 * _WIDTH + 4_096)
    if program := shutil.which("rg"):
        argv = _ripgrep(program, top, pattern, glob, ignore_case)
        return await run_program(argv, limit=_SECONDS, max_bytes=room, cwd=_folder(top))
    request = {
        "pattern": pattern,
        "top": str(top),
        "glob": glob,
        "ignore_case": ignore_case,
        "width": _WIDTH + 1,
        "most": most + 1,
    }
    argv = [sys.executable, "-I", scan.__file__]
    return await run_program(argv, limit=_SECONDS, max_bytes=room, stdin=json.dumps(request))


def _ripgrep(program: str, top: Path, pattern: str, glob: str, ignore_case: bool) -> list[str]:
    """Return fixed words for ripgrep, so that it finds what our own scan would find."""
    # Columns are bytes: a line of fewer characters than we show is never cut.
    fixed = "--no-config --no-ignore --hidden --no-heading --with-filename --line-number --null"
    argv = [program, *fixed.split(), "--color=never", "--sort=path", f"--max-columns={_WIDTH * 4}"]
    argv += ["--max-columns-preview", "--no-messages", *(["--ignore-case"] if ignore_case else [])]
    argv += [f"--glob={glob}"] if glob else []
    argv += [f"--glob=!{name}" for name in (*sorted(scan.IGNORED), ".nod-*")]
    return [*argv, f"--regexp={pattern}", "--", str(top)]


def _folder(top: Path) -> Path:
    """ripgrep takes globs from its own folder on."""
    return top if top.is_dir() else top.parent


def _cause(err: str) -> str:
    """Return the last line a failed search printed: the cause, not the traceback."""
    return err.strip().splitlines()[-1][:200].rstrip(".")


def _hits(ctx: ToolContext, out: str, most: int) -> str:
    hits = []
    for line in out.split("\n"):
        path, nul, rest = line.partition("\0")
        number, colon, text = rest.partition(":")
        if nul and colon:
            cut = text[:_WIDTH] + " …" if len(text) > _WIDTH else text
            hits.append(f"{shown(ctx, Path(path))}:{number}: {cut}")
    if len(hits) > most:
        hits[most:] = [f"[more than {most} hits; narrow the pattern, the path or the glob]"]
    return "\n".join(hits) or "[no hits]"


@tool(risk=Risk.READ, paths={"path": "read"}, timeout=_SECONDS + 10)
async def find_files(ctx: ToolContext, glob: str, path: str = ".", limit: int = 200) -> Result:
    """Find files by name. Version control, caches and installed packages are left out.

    Args:
        glob: What the name fits, for example *.csv; with / it is the path below the folder,
            and ** stands for any folders, for example src/**/test_*.py.
        path: The folder to look in; relative paths start in the session's folder.
        limit: At most this many files, up to 1000.
    """
    top = locate(ctx, path)
    if not top.is_dir():
        raise ToolError(f"{path} is no folder.", "Name a folder.")
    most = max(1, min(limit, _MOST))
    found = await asyncio.to_thread(_find, top, glob, most)
    lines = [shown(ctx, each) for each in found[:most]]
    if len(found) > most:
        lines.append(f"[more than {most} files; narrow the glob or the path]")
    return Result(text="\n".join(lines) or "[no files]")


def _find(top: Path, glob: str, most: int) -> list[Path]:
    found = []
    until = time.monotonic() + _SECONDS
    for file, relative in scan.walk(top):
        if scan.matches(relative, glob):
            found.append(file)
        if len(found) > most:
            break
        if time.monotonic() > until:
            raise ToolError(
                f"Looking took longer than {_SECONDS:.0f} seconds.", "Look in a smaller folder."
            )
    return found


TOOLS = [search, find_files]
