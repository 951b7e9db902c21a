"""Files: read, list, write, edit, patch. What is written can be looked up and undone.

Undo entries, one a file: {path, before, kept, after, mode}; `before` and `after` are content
hashes (null: no such file), `kept` is where the old content is kept (null: there was none).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from engine.errors import ToolError
from engine.tools import changes, patch
from engine.tools.base import Artifact, LookUp, Outcome, Result, Risk, ToolContext, tool
from engine.tools.changes import Change
from engine.tools.places import failure, locate, open_file, shown
from engine.tools.scan import IGNORED

__all__ = ["TOOLS"]

#: Lines of a file shown at once, characters of a line, and characters in all.
_MAX_LINES, _MAX_WIDTH, _MAX_PAGE = 2_000, 500, 30_000
#: Characters of a diff kept for display beside a result.
_MAX_DISPLAY = 4_000

#: Beginnings of files that are no text, and what to say of them.
_KINDS = {
    b"%PDF": "a PDF",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"PK\x03\x04": "a zip file (an Office document is one, too)",
}

Planner = Callable[[ToolContext, Mapping[str, Any]], list[Change]]


@tool(risk=Risk.READ, paths={"path": "read"}, result_budget=_MAX_PAGE + 5_000)
async def read_file(ctx: ToolContext, path: str, start: int = 1, lines: int = _MAX_LINES) -> Result:
    """Read a text file. Lines are numbered; long files come in pages.

    Args:
        path: The file; relative paths start in the session's folder.
        start: First line to show, counted from 1.
        lines: How many lines to show, at most 2000.
    """
    real = locate(ctx, path)
    count = max(1, min(lines, _MAX_LINES))
    return Result(text=await asyncio.to_thread(_page, real, path, max(1, start), count))


def _page(real: Path, named: str, start: int, count: int) -> str:
    try:
        with open_file(real) as file:
            _refuse_binary(file, named)
            return _numbered(_file_lines(file), named, start, count)
    except OSError as error:
        raise failure(named, error) from error


def _refuse_binary(file: BinaryIO, named: str) -> None:
    head = file.read(8192)
    kind = next((what for magic, what in _KINDS.items() if head.startswith(magic)), None)
    if kind or b"\0" in head:
        size = os.fstat(file.fileno()).st_size
        raise ToolError(
            f"{named} is {kind or 'no text file'} of {size:,} bytes; only text can be read here.",
            "Ask the person to send it in the chat if you need to see it, or use a program that "
            "turns it into text.",
        )
    file.seek(0)


def _file_lines(file: BinaryIO) -> Iterator[str]:
    """Yield each line, cut to the width, whatever its length; undecodable bytes are replaced."""
    piece = file.readline(65_536)
    while piece:
        head, size = piece[: _MAX_WIDTH * 4], len(piece)
        while not piece.endswith(b"\n") and (piece := file.readline(65_536)):
            size += len(piece)
        text = head.decode("utf-8", "replace").rstrip("\r\n")
        longer = len(text) > _MAX_WIDTH or size > len(head)
        yield f"{text[:_MAX_WIDTH]} … ({size:,} bytes in this line)" if longer else text
        piece = file.readline(65_536)


def _numbered(lines: Iterator[str], named: str, start: int, count: int) -> str:
    out: list[str] = []
    size, number = 0, 0
    for number, line in enumerate(lines, start=1):
        if number < start:
            continue
        if len(out) == count or size + len(line) > _MAX_PAGE:
            return "\n".join([*out, f"[{named} goes on: start={number}]"])
        out.append(f"{number:6}\t{line}")
        size += len(out[-1]) + 1
    if not out:
        return f"[{named} is empty]" if not number else f"[{named} ends at line {number}]"
    return "\n".join(out)


@tool(risk=Risk.READ, paths={"path": "read"})
async def list_files(
    ctx: ToolContext, path: str = ".", recursive: bool = False, limit: int = 100
) -> Result:
    """List a folder: folders end in /, files come with their size in bytes.

    Version control, caches and installed packages are left out.

    Args:
        path: The folder; relative paths start in the session's folder.
        recursive: Also list what is in its folders.
        limit: At most this many entries, up to 1000.
    """
    real = locate(ctx, path)
    most = max(1, min(limit, 1_000))
    try:
        entries = await asyncio.to_thread(_listing, real, recursive, most)
    except OSError as error:
        raise failure(path, error) from error
    if len(entries) > most:
        entries[most:] = [f"[more than {most}; name a folder in it, or use find_files]"]
    return Result(text="\n".join(entries) or "[empty]")


def _listing(folder: Path, recursive: bool, limit: int) -> list[str]:
    """Return up to `limit` + 1 entries, sorted, each folder before what is in it."""
    out: list[str] = []
    waiting = [folder]
    while waiting and len(out) <= limit:
        current = waiting.pop()
        if current != folder:
            out.append(f"{current.relative_to(folder)}/")
        try:
            with os.scandir(current) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except PermissionError:
            if current == folder:
                raise
            continue
        below = []
        for entry in entries:
            if entry.name in IGNORED or entry.name.startswith(".nod-"):
                continue
            if entry.is_dir(follow_symlinks=False) and recursive:
                below.append(Path(entry.path))
            else:
                out.append(_entry(entry, folder))
        waiting += reversed(below)
    return out[: limit + 1]


def _entry(entry: os.DirEntry[str], folder: Path) -> str:
    name = str(Path(entry.path).relative_to(folder))
    if entry.is_symlink():
        return f"{name} -> {Path(entry.path).readlink()}"
    if entry.is_dir(follow_symlinks=False):
        return f"{name}/"
    return f"{name}  {entry.stat(follow_symlinks=False).st_size:,}"


def _plan_write(ctx: ToolContext, arguments: Mapping[str, Any]) -> list[Change]:
    path, content = arguments["path"], arguments["content"]
    return [changes.read_change(locate(ctx, path, "write"), path, _encoded(content))]


def _plan_edit(ctx: ToolContext, arguments: Mapping[str, Any]) -> list[Change]:
    path, old, new = arguments["path"], arguments["old"], arguments["new"]
    before = _existing(ctx, path)
    text = _decoded(before)
    if old not in text and "\r\n" in text:  # models write bare newlines
        old, new = (side.replace("\r\n", "\n").replace("\n", "\r\n") for side in (old, new))
    found = text.count(old) if old else 0
    if not old or old == new:
        raise ToolError("`old` and `new` must differ, and `old` must not be empty.")
    if found != arguments["count"]:
        raise ToolError(
            f"The old text is in {path} {found} times, not {arguments['count']}; nothing was "
            "changed.",
            "Read the file again and copy the text exactly, with more lines around it.",
        )
    return [_with(before, _encoded(text.replace(old, new)))]


def _plan_patch(ctx: ToolContext, arguments: Mapping[str, Any]) -> list[Change]:
    planned: list[Change] = []
    for section in patch.parse(arguments["patch"]):
        planned += _planned(ctx, section)
    seen: set[Path] = set()
    for change in planned:
        if change.path in seen:
            raise ToolError(f"The patch names {change.named} twice.", "Name each file once.")
        seen.add(change.path)
    return planned


def _planned(ctx: ToolContext, section: patch.Section) -> list[Change]:
    if section.verb == "Add":
        content = "".join(line + "\n" for line in section.content)
        return [_absent(ctx, section.path, _encoded(content))]
    before = _existing(ctx, section.path)
    if (section.verb == "Delete" or section.move_to) and (ctx.cwd / section.path).is_symlink():
        raise ToolError(f"{section.path} is a link; only what it leads to could be removed.")
    if section.verb == "Delete":
        return [_with(before, None)]
    after = _encoded(patch.apply(section, _decoded(before)))
    if not section.move_to:
        return [_with(before, after)]
    target = _absent(ctx, section.move_to, after)
    return [_with(target, after, mode=before.mode), _with(before, None)]


def _existing(ctx: ToolContext, path: str) -> Change:
    change = changes.read_change(locate(ctx, path, "write"), path, None)
    if change.before is None:
        raise ToolError(f"{path} does not exist.", "List its folder to see what is there.")
    return change


def _absent(ctx: ToolContext, path: str, after: bytes) -> Change:
    change = changes.read_change(locate(ctx, path, "write"), path, after)
    if change.before is not None:
        raise ToolError(f"{path} exists already.", "Update it, or choose another name.")
    return change


def _with(change: Change, after: bytes | None, mode: int | None = None) -> Change:
    return Change(
        path=change.path,
        named=change.named,
        before=change.before,
        after=after,
        mode=change.mode if mode is None else mode,
    )


def _decoded(change: Change) -> str:
    """Bytes that are no UTF-8 survive an edit of the text around them."""
    return (change.before or b"").decode("utf-8", "surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _declared(plan: Planner) -> dict[str, Any]:
    """Return what all three writing tools declare: preview, witness and look-up by hash."""

    async def preview(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        return await asyncio.to_thread(lambda: changes.diff(plan(ctx, arguments)))

    async def witness(ctx: ToolContext, arguments: Mapping[str, Any]) -> Any:
        try:
            return changes.witness(await asyncio.to_thread(plan, ctx, arguments))
        except ToolError:
            return None  # the run will say why

    async def look_up(ctx: ToolContext, arguments: Mapping[str, Any], seen: Any) -> Outcome:
        return await asyncio.to_thread(_looked_up, ctx, seen)

    return {"preview": preview, "witness": witness, "look_up": look_up}


def _looked_up(ctx: ToolContext, seen: Sequence[Mapping[str, Any]] | None) -> Outcome:
    if not seen:
        return Outcome(found=LookUp.CANNOT_TELL)
    as_before, as_after = changes.compare(seen)
    if as_after:
        kept = ctx.keep / "preimages"
        undo = [{**x, "kept": str(kept / x["before"]) if x["before"] else None} for x in seen]
        names = ", ".join(shown(ctx, Path(entry["path"])) for entry in seen)
        text = f"Done before a restart: {names} is as this call was to leave it."
        return Outcome(found=LookUp.HAPPENED, result=_result(text, undo))
    return Outcome(found=LookUp.DID_NOT if as_before else LookUp.CANNOT_TELL)


async def _carry_out(ctx: ToolContext, plan: Planner, arguments: Mapping[str, Any]) -> Result:
    def work() -> tuple[list[Change], list[dict[str, Any]], str]:
        planned = plan(ctx, arguments)
        undo = changes.commit(planned, call=ctx.call, keep=ctx.keep, before_act=ctx.before_act)
        return planned, undo, changes.diff(planned)

    planned, undo, diff = await asyncio.to_thread(work)
    text = "\n".join(_said(change) for change in planned)
    return _result(text, undo, {"diff": diff[:_MAX_DISPLAY]})


def _result(
    text: str, undo: list[dict[str, Any]], display: Mapping[str, Any] | None = None
) -> Result:
    kept = [
        Artifact(path=Path(x["kept"]), name=Path(x["path"]).name, kind="preimage")
        for x in undo
        if x["kept"]
    ]
    return Result(text=text, undo=tuple(undo), artifacts=tuple(kept), display=display)


def _said(change: Change) -> str:
    if change.after is None:
        return f"Deleted {change.named}."
    if change.after == change.before:
        return f"{change.named} holds that already."
    more, less = changes.counts(change)
    verb = "Created" if change.before is None else "Changed"
    return f"{verb} {change.named} (+{more} −{less} lines)."


@tool(risk=Risk.WRITE_LOCAL, paths={"path": "write"}, **_declared(_plan_write))
async def write_file(ctx: ToolContext, path: str, content: str) -> Result:
    """Write a whole text file; one that exists is replaced. Missing folders are made.

    Args:
        path: The file; relative paths start in the session's folder.
        content: Everything the file is to hold.
    """
    return await _carry_out(ctx, _plan_write, {"path": path, "content": content})


@tool(risk=Risk.WRITE_LOCAL, paths={"path": "write"}, **_declared(_plan_edit))
async def edit_file(ctx: ToolContext, path: str, old: str, new: str, count: int = 1) -> Result:
    """Replace a text in a file. The old text must be there exactly `count` times.

    Args:
        path: The file; relative paths start in the session's folder.
        old: The text to replace, copied exactly, without line numbers.
        new: What to put there.
        count: How many times the old text is in the file; all are replaced.
    """
    arguments = {"path": path, "old": old, "new": new, "count": count}
    return await _carry_out(ctx, _plan_edit, arguments)


def _patched_paths(arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(path, "write") for path in patch.paths(str(arguments.get("patch", "")))]


@tool(risk=Risk.WRITE_LOCAL, find_paths=_patched_paths, **_declared(_plan_patch))
async def apply_patch(ctx: ToolContext, patch: str) -> Result:
    """Change several files at once: all of it, or nothing.

    The patch has this form; lines that stay begin with a space, and a place must be clear:
    *** Begin Patch
    *** Add File: new.py
    +a line
    *** Update File: old.py
    *** Move to: renamed.py (optional)
    @@ a whole line above the place (optional)
     a line that stays
    -a line that goes
    +a line that comes
    *** Delete File: gone.py
    *** End Patch

    Args:
        patch: The whole patch.
    """
    return await _carry_out(ctx, _plan_patch, {"patch": patch})


TOOLS = [read_file, list_files, write_file, edit_file, apply_patch]
