"""Hands what was typed in a shell to the Nod at work, and says what it answers."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Iterable

import typer

__all__ = ["told"]


def told(name: str, words: Iterable[str], thread: str = "main") -> None:
    """Carry a command out; `thread` is a console thread, or a whole thread_target.

    Raises NodError: what the command refused, or that it needs a Nod at work.
    """
    from bot import settings
    from bot.shell import reach

    target = thread if ":" in thread else f"console:{thread}"
    said = reach.command(settings.load(), os.environ, name, shlex.join(words), target)
    typer.echo(asyncio.run(said))
