"""`nod mcp`: the command about MCP servers, from a shell; carried out by the Nod at work."""

from __future__ import annotations

import asyncio
import os
import shlex
from typing import Annotated

import typer

__all__ = ["mcp_app"]

mcp_app = typer.Typer(
    help="Servers that bring tools of their own (MCP).",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Server = Annotated[str, typer.Argument(help="Its name.")]


def _command(*words: str) -> None:
    from bot import settings
    from bot.shell import reach

    said = reach.command(settings.load(), os.environ, "mcp", shlex.join(words), "console:main")
    typer.echo(asyncio.run(said))


@mcp_app.command("list")
def _list() -> None:
    """List servers, and how they are."""
    _command("list")


@mcp_app.command("show")
def _show(name: Server) -> None:
    """Show one: its tools, and which of them only read."""
    _command("show", name)


@mcp_app.command("check")
def _check(name: Server) -> None:
    """Try a server now, and say how it is."""
    _command("check", name)


@mcp_app.command("add", context_settings={"ignore_unknown_options": True})
def _add(
    name: Server,
    where: Annotated[list[str], typer.Argument(help="A URL, or -- PROGRAM and its arguments.")],
    env: Annotated[list[str] | None, typer.Option(help="A secret it gets, by name.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="'Name=Bearer {SECRET}'")] = None,
    read: Annotated[list[str] | None, typer.Option(help="A tool that only reads.")] = None,
    folder: Annotated[str, typer.Option(help="Where to start it.")] = "",
    oauth: Annotated[bool, typer.Option("--oauth", help="It has a sign-in.")] = False,
) -> None:
    """Add a server: an address, or a program that is started here."""
    words = [name] if "://" not in where[0] else [name, where[0]]
    for option, values in (("--env", env), ("--header", header), ("--read", read)):
        words += [word for value in values or [] for word in (option, value)]
    words += ["--folder", folder] if folder else []
    words += ["--oauth"] if oauth else []
    _command("add", *words, *([] if "://" in where[0] else ["--", *where]))


@mcp_app.command("hosted")
def _hosted() -> None:
    """List servers that vendors run, each connected by one command."""
    _command("hosted")


@mcp_app.command("connect")
def _connect(name: Server) -> None:
    """Print the link to a server's sign-in; one of the hosted ones is added with it."""
    _command("connect", name)


@mcp_app.command("remove")
def _remove(name: Server) -> None:
    """Remove a server that was added here."""
    _command("remove", name)


@mcp_app.command("on")
def _on(name: Server) -> None:
    """Switch a server on."""
    _command("on", name)


@mcp_app.command("off")
def _off(name: Server) -> None:
    """Switch a server off, with all its tools."""
    _command("off", name)


@mcp_app.command("tool")
def _tool(
    name: Server,
    tool: Annotated[str, typer.Argument(help="The tool, as the server names it.")],
    how: Annotated[str, typer.Argument(help="off, read, ask or default.")],
) -> None:
    """Say of one tool that it is off, only reads, or is always asked about."""
    _command("tool", name, tool, how)
