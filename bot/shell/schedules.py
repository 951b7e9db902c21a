"""`nod schedule` and `nod jobs`: what begins by the clock, and what goes on in the background."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.shell.told import told

__all__ = ["jobs", "schedule_app"]

schedule_app = typer.Typer(
    help="Work that begins by the clock.", no_args_is_help=True, rich_markup_mode=None
)

ScheduleId = Annotated[str, typer.Argument(help="Its id; a beginning will do.")]
Thread = Annotated[str, typer.Option("--thread", "-t", help="The console thread.")]
CatchUp = Annotated[str, typer.Option(help="Missed runs: once, skip or all.")]
Overlap = Annotated[str, typer.Option(help="While one is at work: skip or queue.")]
Deadline = Annotated[str, typer.Option(help="Most time at work, such as 30m or 2h.")]
Retry = Annotated[str, typer.Option(help="Tries after an error, 0 to 5.")]
Quiet = Annotated[str, typer.Option(help="Hours when none begins: 22:00-07:00.")]


@schedule_app.command("list")
def schedule_list() -> None:
    """List schedules."""
    told("schedule", ["list"])


@schedule_app.command("add")
def schedule_add(
    cron: Annotated[str, typer.Argument(help="'0 8 * * 1-5', 'every weekday at 8', 'in 2 hours'.")],
    text: Annotated[str, typer.Argument(help="What each run is to do.")] = "",
    prompt: Annotated[str, typer.Option(help="A prompt file, such as morning-briefing.")] = "",
    fill: Annotated[list[str] | None, typer.Option("--set", help="Its blanks: name=value.")] = None,
    title: Annotated[str, typer.Option(help="Its name.")] = "",
    zone: Annotated[str, typer.Option(help="Time zone; else yours.")] = "",
    report_to: Annotated[str, typer.Option(help="A thread_target to report to.")] = "",
    read: Annotated[list[Path] | None, typer.Option(help="A folder or file runs may read.")] = None,
    catch_up: CatchUp = "",
    overlap: Overlap = "",
    deadline: Deadline = "",
    retry: Retry = "",
    quiet: Quiet = "",
    thread: Thread = "main",
) -> None:
    """Add a schedule: work that begins by the clock, and asks as ever."""
    if bool(text) == bool(prompt):
        raise typer.BadParameter("Say what to do, or name a prompt file with --prompt.")
    name, words = (title, text) if text else _filled(prompt, fill or [], report_to)
    options = [("--title", title or name), ("--zone", zone), ("--report-to", report_to)]
    options += [("--read", str(each.absolute())) for each in read or []]
    options += _rules(catch_up, overlap, deadline, retry, quiet)
    told("schedule", ["add", cron, *_given(options), words], thread)


def _rules(*said: str) -> list[tuple[str, str]]:
    names = ("--catch-up", "--overlap", "--deadline", "--retry", "--quiet")
    return list(zip(names, said, strict=True))


def _given(options: list[tuple[str, str]]) -> list[str]:
    return [word for option in options if option[1] for word in option]


def _filled(prompt: str, fill: list[str], report_to: str) -> tuple[str, str]:
    """Return the title and text of a prompt file of the persona that is set, blanks filled."""
    from bot import settings
    from personas.registry import Personas

    here = settings.load()
    found = Personas.load(here.data / "personas").prompt(here.persona, prompt)
    values = {"report_to": report_to} if report_to else {}
    for each in fill:
        name, mark, value = each.partition("=")
        if not mark or name not in found.takes:
            raise typer.BadParameter(f"--set takes name=value for {', '.join(found.takes)}.")
        values[name] = value
    return found.title, found.fill(**values)


@schedule_app.command("edit")
def schedule_edit(
    schedule: ScheduleId,
    when: Annotated[
        str, typer.Argument(help="'every weekday at 9', 'every day at 8, no quiet'.")
    ] = "",
    text: Annotated[str, typer.Option("--text", help="What each run is to do from now.")] = "",
    title: Annotated[str, typer.Option(help="Its name.")] = "",
    report_to: Annotated[str, typer.Option(help="A thread_target to report to.")] = "",
    catch_up: CatchUp = "",
    overlap: Overlap = "",
    deadline: Deadline = "",
    retry: Retry = "",
    quiet: Quiet = "",
) -> None:
    """Change it, on from now; what is not said stays. Other work ends its standing rules."""
    options = [("--when", when), ("--title", title), ("--report-to", report_to)]
    options += _rules(catch_up, overlap, deadline, retry, quiet)
    given = [*_given(options), *([text] if text else [])]
    if not given:
        raise typer.BadParameter("Say what is to change.")
    told("schedule", ["set", schedule, *given])


@schedule_app.command("show")
def schedule_show(schedule: ScheduleId) -> None:
    """Show one: when it comes, what it does and may do, its last runs."""
    told("schedule", ["show", schedule])


@schedule_app.command("history")
def schedule_history(schedule: ScheduleId) -> None:
    """List its runs: outcome, how long, what it cost, and where."""
    told("schedule", ["history", schedule])


@schedule_app.command("run")
def schedule_run(schedule: ScheduleId) -> None:
    """Run it now; its times stay as they are."""
    told("schedule", ["run", schedule])


@schedule_app.command("pause")
def schedule_pause(schedule: ScheduleId) -> None:
    """Switch it off."""
    told("schedule", ["pause", schedule])


@schedule_app.command("resume")
def schedule_resume(schedule: ScheduleId) -> None:
    """Switch it on again, from now."""
    told("schedule", ["resume", schedule])


@schedule_app.command("remove")
def schedule_remove(schedule: ScheduleId) -> None:
    """Remove a schedule; what it did stays on record."""
    told("schedule", ["remove", schedule])


def jobs(
    job: Annotated[str, typer.Argument(help="Its id; a beginning will do.")] = "",
    stop: Annotated[bool, typer.Option("--stop", help="End it, with all it started.")] = False,
    every: Annotated[bool, typer.Option("--all", help="What runs in every thread.")] = False,
    thread: Thread = "main",
) -> None:
    """List background jobs of a thread, show what one printed, or stop it."""
    if (stop and not job) or (every and job):
        raise typer.BadParameter("Name one job, or list them with --all.")
    told(
        "jobs", ["all"] if every else [*(["stop"] if stop else []), *([job] if job else [])], thread
    )
