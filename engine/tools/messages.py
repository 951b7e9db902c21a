"""Sends to chat: a message to any thread, a finished file to the session's own.

Both go through the outbox under `act:<call>/<attempt>`, so a send can be looked up and is never
repeated by itself.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.errors import TargetError, ToolError
from engine.targets import ThreadTarget
from engine.tools.base import Artifact, LookUp, Outcome, Result, Risk, ToolContext, tool
from engine.tools.places import failure, locate, open_file

__all__ = ["TOOLS"]

#: Bytes of a file that may be handed over; the largest upload of the platforms we know is below.
_MAX_FILE = 1_000_000_000


def _accept_message(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Refuse a target or text that cannot be sent before anyone is asked about it."""
    target = arguments.get("target")
    if isinstance(target, str):
        try:
            target = str(ThreadTarget.parse(target.strip()))
        except TargetError as error:
            raise ToolError(error.what, error.fix) from error
    if isinstance(text := arguments.get("text"), str) and not text.strip():
        raise ToolError("The message is empty.", "Write in `text` what to send.")
    return {**arguments, "target": target} if "target" in arguments else arguments


async def _preview_message(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    return f"To {arguments['target']}:\n\n{arguments['text']}"


async def _look_up_message(ctx: ToolContext, arguments: Mapping[str, Any], seen: Any) -> Outcome:
    return await _looked_up(ctx, arguments["target"])


def _target(arguments: Mapping[str, Any]) -> str:
    return str(arguments["target"])


@tool(
    risk=Risk.EXTERNAL,
    accept=_accept_message,
    target=lambda arguments: [_target(arguments)],
    delivers=_target,
    preview=_preview_message,
    look_up=_look_up_message,
)
async def send_message(ctx: ToolContext, target: str, text: str) -> Result:
    """Send a message to another thread. Your answer here needs no tool: just write it.

    Args:
        target: The thread, exactly, for example slack:T1/C1/1700.000100 or console:main.
        text: The message, in Markdown.
    """
    return await _sent(ctx, target, text, [])


async def _preview_file(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    real = locate(ctx, arguments["path"])
    size = await asyncio.to_thread(_size, real, arguments["path"])
    comment = arguments.get("comment", "")
    return f"To {ctx.home}: {real.name} ({size:,} bytes)" + (f"\n\n{comment}" if comment else "")


async def _look_up_file(ctx: ToolContext, arguments: Mapping[str, Any], seen: Any) -> Outcome:
    return await _looked_up(ctx, ctx.home)


@tool(
    risk=Risk.EXTERNAL,
    paths={"path": "read"},
    to_home=True,
    preview=_preview_file,
    look_up=_look_up_file,
    timeout=300,
)
async def deliver_file(ctx: ToolContext, path: str, comment: str = "") -> Result:
    """Hand a finished file to the people in this thread.

    Args:
        path: The file; relative paths start in the session's folder.
        comment: A line to go with it.
    """
    copy = await asyncio.to_thread(_copied, ctx, path)
    result = await _sent(ctx, ctx.home, comment, [copy])
    artifact = Artifact(path=copy, name=copy.name)
    return Result(text=f"{copy.name}: {result.text}", artifacts=(artifact,))


def _size(real: Path, named: str) -> int:
    try:
        with open_file(real) as file:
            size = file.seek(0, 2)
    except OSError as error:
        raise failure(named, error) from error
    if size > _MAX_FILE:
        raise failure(named, OSError(errno.EFBIG, ""))
    return size


def _copied(ctx: ToolContext, named: str) -> Path:
    """Copy the file to where only we write: what is sent later is what it holds now."""
    real = locate(ctx, named)
    _size(real, named)
    copy = ctx.keep / "outbox" / f"{ctx.call}-{ctx.attempt}" / real.name
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        with open_file(real) as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target)
            target.flush()
            os.fsync(target.fileno())
    except OSError as error:
        raise failure(named, error) from error
    return copy


async def _sent(ctx: ToolContext, target: str, text: str, files: Sequence[Path]) -> Result:
    ctx.before_act()
    ref = await ctx.delivery.send(target, text, files, f"act:{ctx.call}/{ctx.attempt}")
    return Result(text=f"Sent to {target} (message {ref}).")


async def _looked_up(ctx: ToolContext, target: str) -> Outcome:
    found, ref = await ctx.delivery.find(target, f"act:{ctx.call}/{ctx.attempt}")
    if found is not LookUp.HAPPENED:
        return Outcome(found=found)
    text = f"Sent to {target} before a restart (message {ref})."
    return Outcome(found=found, result=Result(text=text))


TOOLS = [deliver_file, send_message]
