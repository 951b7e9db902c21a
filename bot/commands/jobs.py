"""The command that shows a thread's background jobs, what one printed, and stops one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bot.commands.base import Command, Context
from engine.errors import NodError, SessionError
from engine.sandbox import jobs as sandbox
from engine.schedule import jobs
from engine.schedule.job_tools import stop
from engine.schedule.jobs import Job
from engine.store.base import Tx

__all__ = ["JOBS", "job_lines"]

TAIL = 2_000  # bytes of output that are shown


async def _jobs(context: Context, given: list[str]) -> str:
    if given == ["all"]:
        return await _everywhere(context)
    if not given:
        known = await context.store.read(lambda tx: jobs.listed(tx, _session(tx, context)))
        lines = job_lines(await _as_written(context, known), context.house.now())
        return "\n".join(lines) or "This thread's session has started no job."
    if len(given) == 2 and given[0] != "stop":
        raise NodError("/jobs was not understood.", "Write: /jobs, /jobs ID, or /jobs stop ID.")
    job = await context.store.read(lambda tx: _find(tx, context, given[-1]))
    folder = jobs.folder_of(context.house.data, job.session, job.id)
    if len(given) == 2 and job.running:
        await stop(folder, job)
    return await asyncio.to_thread(_shown, folder, job, context.house.now())


async def _everywhere(context: Context) -> str:
    """List what runs in all sessions: only for the owner of this Nod."""
    if context.person.role != "owner":
        raise NodError("/jobs all needs the role owner.", "Ask an owner.")
    running = await context.store.read(lambda tx: jobs.unfinished(tx, context.tenant))
    running = await _as_written(context, running)
    lines = job_lines(running, context.house.now())
    told = [f"{line} in {job.session}" for line, job in zip(lines, running, strict=True)]
    return "\n".join(told) or "No job is running."


async def _as_written(context: Context, known: list[Job]) -> list[Job]:
    """Return the jobs as their own files tell, which know of an end first."""
    data = context.house.data

    def look() -> list[Job]:
        return [
            jobs.as_written(jobs.folder_of(data, each.session, each.id), each) for each in known
        ]

    return await asyncio.to_thread(look)


def _session(tx: Tx, context: Context) -> str:
    session = context.session(tx)
    if context.person.id != session.owner and context.person.role == "member":
        raise SessionError("This session belongs to somebody else.", "Ask them, or an owner.")
    return session.id


def _find(tx: Tx, context: Context, start: str) -> Job:
    """Return the job of this thread, or for the owner one that runs anywhere."""
    start = start.strip("`")
    if context.person.role == "owner":
        for job in jobs.unfinished(tx, context.tenant):
            if job.id == start:
                return job
    return jobs.find(tx, _session(tx, context), start)


def job_lines(known: list[Job], now: float) -> list[str]:
    """Return a line for each job: how it stands, and its command."""
    return [f"- {jobs.told(each, now)} `{_short(each.command)}`" for each in known]


def _short(command: str) -> str:
    line = " ".join(command.replace("`", "'").split())
    return line if len(line) <= 60 else f"{line[:59]}…"


def _shown(folder: Path, job: Job, now: float) -> str:
    """Return how the job stands by its own files, and the end of what it printed."""
    try:
        said = sandbox.read(folder, None, TAIL).text
    except OSError as error:
        said = f"(its output cannot be read: {error.strerror})"
    told = jobs.told(jobs.as_written(folder, job), now)
    fence = "```"
    while fence in said:
        fence += "`"
    return f"{told}\n{fence}\n{said.rstrip()}\n{fence}" if said.strip() else told


JOBS = Command(
    name="jobs",
    usage="[all | [stop] ID]",
    help="background jobs of this thread, what one printed, or stop one",
    run=_jobs,
    most=2,
)
