"""`nod connectors`: what there is, the page of one, and the skeleton of a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from connectors.registry import CONNECTORS
from engine.errors import NodError

__all__ = ["connectors_app"]

connectors_app = typer.Typer(
    help="Services Nod can work with.", no_args_is_help=True, rich_markup_mode=None
)


@connectors_app.command("list")
def listed() -> None:
    """List them."""
    width = max(map(len, CONNECTORS))
    for name, entry in sorted(CONNECTORS.items()):
        typer.echo(f"{name:{width}}  {entry.title}: {entry.about}")
    typer.echo("\nConnect one: /connect NAME in chat, or: nod connect NAME")


@connectors_app.command("show")
def show(name: Annotated[str, typer.Argument(help="For example github.")]) -> None:
    """Show the page of one: how it is connected, its tools, what each does to the world."""
    from connectors.pages import page

    typer.echo(page(name), nl=False)


@connectors_app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="Lower-case letters and digits.")],
    title: Annotated[str, typer.Option(help="As people call the service.")] = "",
) -> None:
    """Write the skeleton of a new connector with its tests, in a checkout of Nod."""
    from connectors.pages import skeleton

    root = Path.cwd()
    if not (root / "connectors" / "registry.py").is_file():
        raise NodError("This is no checkout of Nod.", "Go to its folder and try again.")
    title = title or name.replace("_", " ").title()
    files = skeleton(name, title)
    taken = [path for path in files if (root / path).exists()]
    if taken:
        raise NodError(f"There is {taken[0]} already.", "Choose another name.")
    for path, text in files.items():
        (root / path).write_text(text, encoding="utf-8")
        typer.echo(f"wrote {path}")
    entry = f'    "{name}": Entry(module="connectors.{name}", title="{title}", about="…"),'
    typer.echo(
        f"\nAdd it to CONNECTORS in connectors/registry.py:\n\n{entry}\n\nand run its tests:\n"
    )
    typer.echo(f"    pytest -q tests/contract/test_connectors.py -k {name}")
