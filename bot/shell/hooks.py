"""`nod hook`: the addresses under which other systems fire an event, made, listed and revoked."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.shell.told import told

__all__ = ["hook_app"]

hook_app = typer.Typer(
    help="Addresses under which other systems fire an event.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


#: The surface it is typed on: nobody else reads there.
_SHELL = "shell:nod"


@hook_app.command("list")
def listed() -> None:
    """List them; no address is shown again."""
    told("hook", ["list"], _SHELL)


@hook_app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="The event it fires, for example deploy-done.")],
    signed: Annotated[bool, typer.Option(help="Calls must be signed with a key.")] = False,
) -> None:
    """Make one, and show its address once."""
    told("hook", ["add", name, *(["signed"] if signed else [])], _SHELL)


@hook_app.command("revoke")
def revoke(hook: Annotated[str, typer.Argument(help="Its id, or its event.")]) -> None:
    """End one: its address answers no more."""
    told("hook", ["revoke", hook], _SHELL)
