"""Reads back, page by page, a result that was too long to be sent whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

from engine.tools.base import Result, Risk, ToolContext, tool
from engine.tools.places import failure

__all__ = ["TOOLS"]

#: Characters of a page, and how many are skipped over at once.
_PAGE, _STRIDE = 16_000, 1_000_000


@tool(risk=Risk.READ)
async def read_artifact(ctx: ToolContext, id: str, start: int = 0) -> Result:
    """Read a part of a result that was too long and was kept as an artifact.

    Args:
        id: The artifact's id, as the cut result gives it.
        start: Character to start at, counted from 0.
    """
    path = await ctx.artifact(id)
    try:
        return Result(text=await asyncio.to_thread(_page, path, id, max(0, start)))
    except OSError as error:
        raise failure(f"Artifact {id}", error) from error


def _page(path: Path, id: str, start: int) -> str:
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        at = 0
        while at < start and (skipped := file.read(min(_STRIDE, start - at))):
            at += len(skipped)
        page = file.read(_PAGE)
        more = file.read(1)
    if not page:
        return f"[artifact {id} ends at character {at}]"
    if not more:
        return page
    cut = page.rfind("\n") + 1
    page = page[:cut] if cut * 2 > len(page) else page
    return f"{page}\n[goes on: read_artifact('{id}', {start + len(page)})]"


TOOLS = [read_artifact]
