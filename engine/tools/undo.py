"""Takes back what file tools wrote, where nobody has written since."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.canonical import digest
from engine.clock import mint
from engine.errors import ToolError
from engine.tools.changes import MAX_BYTES, Change, commit, read_change
from engine.tools.places import read_whole

__all__ = ["restore"]


async def restore(entries: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[tuple[str, str]]]:
    """Undo `entries`, oldest first as they were logged (see engine/tools/files.py).

    They are taken back newest first, each only when the file still has the hash the tool left.
    Returns (paths restored, (path, why not) for the others); a path stands in one list only.
    """
    return await asyncio.to_thread(_restore, entries)


def _restore(entries: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[tuple[str, str]]]:
    restored: dict[str, None] = {}
    skipped: dict[str, str] = {}
    for entry in reversed(entries):
        path = str(entry["path"])
        if path in skipped:
            continue
        try:
            _take_back(entry)
        except ToolError as error:
            skipped[path] = str(error)
            restored.pop(path, None)
        else:
            restored[path] = None
    return list(restored), list(skipped.items())


def _take_back(entry: Mapping[str, Any]) -> None:
    path = Path(entry["path"])
    now = read_change(path, path.name, None)
    if (None if now.before is None else digest(now.before)) != entry["after"]:
        raise ToolError(f"{path.name} was changed since.")
    old = None if entry["before"] is None else _kept(entry)
    change = Change(
        path=path, named=path.name, before=now.before, after=old, mode=entry.get("mode")
    )
    if old != now.before:
        commit([change], call=mint("undo"), keep=None)


def _kept(entry: Mapping[str, Any]) -> bytes:
    try:
        data = read_whole(Path(entry["kept"] or ""), MAX_BYTES)
    except OSError as error:
        raise ToolError("Its old content is no longer kept.") from error
    if digest(data) != entry["before"]:
        raise ToolError("Its kept old content is damaged.")
    return data
