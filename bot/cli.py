"""The `nod` command. Everything else is imported when its command runs, so that help is quick."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from bot.guides.discord import discord_app
from bot.guides.slack import slack_app
from bot.guides.telegram import telegram_app
from bot.shell.connect import connect
from bot.shell.connectors import connectors_app
from bot.shell.hooks import hook_app
from bot.shell.mcp import mcp_app
from bot.shell.schedules import jobs, schedule_app
from bot.shell.secrets import secrets_app
from bot.shell.told import told
from engine.errors import NodError

if TYPE_CHECKING:
    from bot.settings import Settings
    from engine.store.base import Tx

__all__ = ["app", "main"]

T = TypeVar("T")

TENANT = "local"

_OPTIONS: dict[str, Any] = {"no_args_is_help": True, "rich_markup_mode": None}

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
budget_app = typer.Typer(help="How much may be spent.", **_OPTIONS)
session_app = typer.Typer(help="Conversations, kept for good.", **_OPTIONS)
audit_app = typer.Typer(help="What was asked, decided and done, and by whom.", **_OPTIONS)
app.add_typer(budget_app, name="budget")
app.command("jobs")(jobs)
app.add_typer(schedule_app, name="schedule")
app.add_typer(session_app, name="session")
app.add_typer(audit_app, name="audit")
app.add_typer(secrets_app, name="secrets")
app.add_typer(connectors_app, name="connectors")
app.add_typer(hook_app, name="hook")
app.add_typer(mcp_app, name="mcp")
app.add_typer(discord_app, name="discord")
app.add_typer(slack_app, name="slack")
app.add_typer(telegram_app, name="telegram")

Thread = Annotated[str, typer.Option("--thread", "-t", help="The console thread.")]


def main() -> None:
    """Run the command line; a fault becomes one sentence and an exit code that is not zero."""
    try:
        app()
    except NodError as error:
        _fail(str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `nod … | head` is no fault
        sys.exit(1)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _fail("The disk is full. Free some space and try again; nothing stored was lost.")
        _fail(_unexpected(error))
    except Exception as error:  # noqa: BLE001  # broad: the border to the shell
        _fail(_unexpected(error))


def _fail(sentence: str) -> None:
    typer.echo(sentence, err=True)
    sys.exit(1)


def _unexpected(error: Exception) -> str:
    """Log what went wrong inside Nod, and return the sentence that says where."""
    from bot import log, settings

    what = f"Something went wrong inside Nod ({type(error).__name__})."
    told = "".join(traceback.format_exception(error))
    secrets = log.secrets_in(os.environ)
    file = settings.data_folder(os.environ) / "nod.log"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as handle:
            handle.write(log.Redactor(secrets).redact(told))
    except OSError:
        return f"{log.Redactor(secrets).redact(told)}\n{what} The details are above."
    return f"{what} The details are in {file}."


def _settings() -> Settings:
    from bot import settings

    return settings.load()


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def _echo(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)


def _read(work: Callable[[Tx], T]) -> T:
    """Run `work` against the store without changing it; Nod may be running."""
    from engine.store.opening import open_store, sqlite_path

    settings = _settings()

    async def reading() -> T:
        read_only = sqlite_path(settings.store) is not None
        store = await open_store(settings.store, read_only=read_only)
        try:
            return await store.read(work)
        finally:
            await store.close()

    return _run(reading())


# -- looking


@app.command()
def version() -> None:
    """Show the version."""
    from importlib import metadata

    try:
        typer.echo(f"nod {metadata.version('nod-coworker')}")
    except metadata.PackageNotFoundError:
        typer.echo("nod from its sources, not installed")


@app.command()
def doctor() -> None:
    """Say what is configured, what is missing, and what mends it."""
    from bot import doctor
    from engine.clock import system_now

    findings = _run(doctor.examine(os.environ, system_now))
    _echo(doctor.lines(findings))
    if not doctor.sound(findings):
        raise typer.Exit(1)


@app.command()
def inbox(
    prompt: Annotated[str, typer.Argument(help="Show this one whole; a beginning will do.")] = "",
) -> None:
    """List what waits for a person."""
    from bot import cards
    from bot.commands import listings
    from engine import inbox
    from engine.clock import system_now

    if prompt:
        typer.echo(cards.full_text(_read(lambda tx: inbox.find(tx, TENANT, prompt))))
        return
    prompts = _read(lambda tx: inbox.pending(tx, TENANT))
    _echo(listings.inbox_lines(prompts, system_now()))


@app.command()
def usage(
    days: Annotated[int, typer.Option(help="How far back.", min=1)] = 30,
    by: Annotated[str, typer.Option(help="model, schedule, person or day.")] = "model",
) -> None:
    """Show tokens and cost."""
    from bot.commands import usage_text
    from engine.clock import system_now
    from engine.inbox import DAY
    from engine.models import usage

    if by not in (*usage.KINDS, "day"):
        raise typer.BadParameter("--by takes model, schedule, person or day.")
    now, zone = system_now(), _settings().zone
    since, until = now - days * DAY, now + DAY

    def look(tx: Tx) -> list[usage.UsageLine]:
        if by == "day":
            return usage.by_day(tx, TENANT, since, until, zone)
        return usage.by(tx, by, TENANT, since, until)

    _echo(usage_text.table(_read(look), by))


@session_app.command("list")
def session_list(
    limit: Annotated[int, typer.Option(help="How many.", min=1, max=10_000)] = 30,
) -> None:
    """List sessions, the latest first."""
    from bot.commands import listings
    from engine import sessions

    found = _read(lambda tx: sessions.listed(tx, TENANT, limit))
    _echo(listings.session_lines(found, _settings().zone))


@session_app.command("show")
def session_show(
    session: Annotated[str, typer.Argument(help="Its id; a beginning will do.")],
) -> None:
    """Show a session's transcript."""
    from bot.commands import listings

    zone = _settings().zone
    _echo(_read(lambda tx: list(listings.transcript_of(tx, TENANT, session, zone))))


@audit_app.command("verify")
def audit_verify() -> None:
    """Check that no audit row was changed, removed or added behind Nod's back."""
    from engine import audit

    faults = _read(lambda tx: audit.verify(tx, TENANT))
    _echo(faults or ["The audit is whole."])
    if faults:
        raise typer.Exit(1)


@audit_app.command("show")
def audit_show(
    session: Annotated[str, typer.Argument(help="Only this session's; a beginning will do.")] = "",
    limit: Annotated[int, typer.Option(help="How many.", min=1, max=100_000)] = 100,
) -> None:
    """Show audit rows, the oldest first."""
    from bot.commands import listings

    zone = _settings().zone
    _echo(_read(lambda tx: list(listings.audit_of(tx, TENANT, session, limit, zone))))


@app.command()
def connections() -> None:
    """List the accounts that are connected, and where a connector is off."""
    from bot.shell import connect as connect_shell

    _echo(_read(connect_shell.lines))


app.command()(connect)


# -- at work


@app.callback(invoke_without_command=True)
def talk(context: typer.Context, thread: Thread = "main") -> None:
    """Nod, an AI coworker that lives in chat. Without a command: talk to it here."""
    if context.invoked_subcommand is not None:
        return
    from bot import app
    from bot.settings import make_data_folder
    from bot.shell import terminal

    settings = _settings()
    make_data_folder(settings)
    _start_log(settings, settings.log_file)

    async def talking() -> int:
        async with app.App(settings, os.environ) as nod:
            here = Path.cwd()
            if sys.stdin.isatty() and here not in (Path.home(), Path(here.anchor)):
                await nod.offer(thread, here)
            return await terminal.run(nod.seat(), thread)

    raise typer.Exit(_run(talking()))


@app.command()
def serve() -> None:
    """Run as a service, until it is told to stop (SIGTERM or Ctrl-C)."""
    from bot import app

    settings = _settings()
    _start_log(settings, None)

    def ready(nod: app.App) -> None:
        where = f"{settings.store_shown}, model {nod.picked.model}"
        typer.echo(f"nod is ready: {where}. Stop it with Ctrl-C.", err=True)
        if nod.unpaired:
            names = " and ".join(nod.unpaired)
            typer.echo(f"Nobody is its owner on {names} yet. Run: nod pair", err=True)

    _run(app.serve(settings, os.environ, ready))


def _start_log(settings: Settings, file: Path | None) -> None:
    from bot import log
    from bot.picking import load_catalogue

    keys = [name for each in load_catalogue(settings).providers.values() for name in each.key]
    log.start(settings.log_level, log.secrets_in(os.environ, keys), file)


@app.command()
def demo(
    repo: Annotated[Path | None, typer.Option(help="A git repository; else this one.")] = None,
    calendar: Annotated[Path | None, typer.Option(help="An .ics file; else a sample.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Answer the card by itself.")] = False,
) -> None:
    """Show the main job: a briefing by the clock, a nod, a kill, a restart, one post."""
    import tempfile

    from bot import demo

    data = Path(tempfile.mkdtemp(prefix="nod-demo-")).resolve()
    if not _run(demo.show(os.environ, data, repo, calendar, yes=yes, say=typer.echo)):
        raise typer.Exit(1)


# -- commands, carried out by the process at work


#: The surface an answer from the command line is on record with.
_SHELL = "shell:nod"


@app.command()
def approve(
    prompt: Annotated[str, typer.Argument(help="Its id, see `nod inbox`; a beginning will do.")],
    deny: Annotated[bool, typer.Option("--deny", help="Say no.")] = False,
    reason: Annotated[str, typer.Option(help="With --deny: why, or what to do instead.")] = "",
    always: Annotated[bool, typer.Option("--always", help="This target needs no asking.")] = False,
    edit: Annotated[str, typer.Option(help="Approve these arguments instead, as JSON.")] = "",
    answer: Annotated[str, typer.Option(help="Answer a question, or with a card's word.")] = "",
) -> None:
    """Answer a card: yes, unless an option says otherwise."""
    if sum((deny, always, bool(edit), bool(answer))) > 1:
        raise typer.BadParameter("Choose one of --deny, --always, --edit and --answer.")
    if reason and not deny:
        raise typer.BadParameter("--reason goes with --deny.")
    if deny:
        return told("deny", [prompt, *([reason] if reason else [])], _SHELL)
    if edit:
        return told("edit", [prompt, edit], _SHELL)
    if answer:
        return told("answer", [prompt, answer], _SHELL)
    return told("approve", [prompt, *(["always"] if always else [])], _SHELL)


@app.command()
def say(text: Annotated[str, typer.Argument(help="What to say.")], thread: Thread = "main") -> None:
    """Say something in a console thread."""
    from bot.shell import reach

    target = f"console:{thread}"
    typer.echo(_run(reach.command(_settings(), os.environ, "say", text, target)))


@app.command()
def mode(
    name: Annotated[str, typer.Argument(help="discuss, plan, interactive, auto, custom.")] = "",
    entries: Annotated[
        list[str] | None, typer.Argument(help="For custom: TOOL=allow, ask, refuse or default.")
    ] = None,
    thread: Thread = "main",
) -> None:
    """Show or set how much may be done without asking."""
    told("mode", [each for each in (name, *(entries or ())) if each], thread)


@app.command()
def model(
    name: Annotated[str, typer.Argument(help="provider:model")] = "", thread: Thread = "main"
) -> None:
    """Show or set the model that answers in a thread."""
    told("model", [name] if name else [], thread)


@app.command()
def new(thread: Thread = "main") -> None:
    """Begin a new session in a thread."""
    told("new", [], thread)


@app.command()
def stop(thread: Thread = "main") -> None:
    """Stop the turn in a thread."""
    told("stop", [], thread)


@app.command()
def retry(thread: Thread = "main") -> None:
    """Try again from the last message."""
    told("retry", [], thread)


@app.command()
def pair() -> None:
    """Print a code; sent to Nod in a direct message, it makes its sender the owner there."""
    told("pair", [], "main")


@app.command()
def undo(thread: Thread = "main") -> None:
    """Take back the last turn's file changes."""
    told("undo", [], thread)


@budget_app.command("list")
def budget_list() -> None:
    """List budgets, and how each stands."""
    told("budget", ["list"], "main")


@budget_app.command("set")
def budget_set(
    said: Annotated[
        str, typer.Argument(help="'all $20 a day, stop at $30', 'me 200k tokens a day'.")
    ],
) -> None:
    """Set a budget, or change it."""
    told("budget", ["set", *said.split()], "main")


@budget_app.command("remove")
def budget_remove(
    budget: Annotated[str, typer.Argument(help="Its id; a beginning will do.")],
) -> None:
    """Remove a budget."""
    told("budget", ["remove", budget], "main")


# -- keeping


@session_app.command("delete")
def session_delete(
    session: Annotated[str, typer.Argument(help="Its id; a beginning will do.")],
) -> None:
    """Delete a session with its files; audit and usage rows stay."""
    told("delete", [session], "main")


@app.command()
def backup(file: Annotated[Path, typer.Argument(help="The archive to write.")]) -> None:
    """Write one archive of store and files; Nod may be running."""
    from bot import keeping
    from engine.clock import system_now

    typer.echo(_run(keeping.back_up(_settings(), file.absolute(), system_now())))


@app.command()
def restore(
    file: Annotated[Path, typer.Argument(help="The archive to bring back.")],
    replace: Annotated[bool, typer.Option("--replace", help="Set what is there aside.")] = False,
) -> None:
    """Bring an archive back as the data folder; Nod must not be running."""
    from bot import keeping
    from engine.clock import system_now

    typer.echo(_run(keeping.bring_back(_settings(), file.absolute(), system_now(), replace)))


if __name__ == "__main__":
    main()
