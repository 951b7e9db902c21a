"""`nod secrets`: a value is typed unseen or comes on stdin, and is never shown or an argument."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import VaultError

if TYPE_CHECKING:
    from connectors.registry import Secrets

__all__ = ["secrets_app"]

secrets_app = typer.Typer(
    help="Tokens and keys, kept encrypted.", no_args_is_help=True, rich_markup_mode=None
)

Name = Annotated[str, typer.Argument(help="For example SLACK_BOT_TOKEN.")]


def _secrets() -> Secrets:
    from bot import settings
    from connectors.registry import secrets_of

    found = settings.load()
    settings.make_data_folder(found)
    return secrets_of(os.environ, found.data)


def _asked(what: str, *, twice: bool = False) -> str:
    """Return what is typed unseen, or all of stdin when that is no terminal."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    return str(typer.prompt(what, hide_input=True, confirmation_prompt=twice))


@secrets_app.command("set")
def keep(name: Name) -> None:
    """Keep a secret; its value is asked for, or read from stdin."""
    value = _asked(f"{name} (not shown)").strip()
    if not value:
        raise VaultError("There is no value.", f"Type it, or: nod secrets set {name} < file")
    secrets = _secrets()
    secrets.set(name, value)
    store = secrets.store()
    typer.echo(f"{name} is kept in {store.where if store else 'nowhere'}.")
    if os.environ.get(name):
        typer.echo(f"The variable {name} is set too, and wins.")


@secrets_app.command("list")
def listed() -> None:
    """Show the names of what is kept, and where; never a value."""
    secrets = _secrets()
    store = secrets.store()
    if store is None:
        typer.echo("No secrets are kept yet.")
        return
    typer.echo(f"Kept in {store.where}:")
    names = secrets.names()
    apps = [name for name in names if name.startswith("connection.")]
    for name in sorted({*names} - {*apps}):
        hidden = " (the variable of that name wins)" if os.environ.get(name) else ""
        typer.echo(f"  {name}{hidden}")
    if apps:
        typer.echo(f"  accounts of apps: {len(apps)} (see: nod connections)")


@secrets_app.command("delete")
def forget(name: Name) -> None:
    """Forget a secret."""
    if not _secrets().delete(name):
        raise VaultError(f"There is no secret {name}.", "See: nod secrets list")
    typer.echo(f"{name} is forgotten here. Revoke it where it came from, too.")


@secrets_app.command("rotate")
def rotate() -> None:
    """Encrypt everything anew under a new key."""
    store = _secrets().store()
    count = 0 if store is None else store.rotate()
    typer.echo(f"{count} secrets are under a new key.")


@secrets_app.command("export")
def export(file: Annotated[Path, typer.Argument(help="The archive to write.")]) -> None:
    """Write all secrets into one archive, encrypted with a passphrase."""
    store = _secrets().store()
    if store is None:
        raise VaultError("There are no secrets to export.")
    archive = store.export(_asked("Passphrase for the archive", twice=True))
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise VaultError(f"{file} is there already.", "Name another file.") from None
    with os.fdopen(handle, "w", encoding="ascii") as out:
        out.write(archive + "\n")
    typer.echo(f"{len(store.names())} secrets are in {file}.")


@secrets_app.command("import")
def bring_in(file: Annotated[Path, typer.Argument(help="An archive of `export`.")]) -> None:
    """Keep all secrets of an archive."""
    archive = file.read_text(encoding="ascii", errors="replace")
    store = _secrets().store(make=True)
    assert store is not None, "a place was chosen"
    names = store.bring_in(archive, _asked("Passphrase of the archive"))
    typer.echo(f"{len(names)} secrets are kept in {store.where}: {', '.join(names)}")
