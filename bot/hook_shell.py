"""`nod hook`: the addresses under which other systems fire an event, made, listed and revoked."""

from __future__ import annotations

import asyncio
import os
import shlex
from typing import Annotated

import typer

__all__ = ["hook_app"]

hook_app = typer.Typer(
    help="Addresses under which other systems fire an event.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def _told(*words: str) -> None:
    """Say what the process at work answers to the command."""
    from bot import reach, settings

    said = reach.command(settings.load(), os.environ, "hook", shlex.join(words), "shell:nod")
    typer.echo(asyncio.run(said))


@hook_app.command("list")
def listed() -> None:
    """List them; no address is shown again."""
    _told("list")


@hook_app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="The event it fires, for example deploy-done.")],
    signed: Annotated[bool, typer.Option(help="Calls must be signed with a key.")] = False,
) -> None:
    """Make one, and show its address once."""
    _told("add", name, *(["signed"] if signed else []))


@hook_app.command("revoke")
def revoke(hook: Annotated[str, typer.Argument(help="Its id, or its event.")]) -> None:
    """End one: its address answers no more."""
    _told("revoke", hook)
