"""What a model can do about background jobs: start, read, list and stop them, and wait for one.

Starting one is EXEC. What it printed is READ. Ending an own job is CONTROL: it changes nothing but
what this session itself started, and must never have to wait for a person.
"""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from engine import people, sessions
from engine.errors import NodError, ToolError
from engine.sandbox import jobs as sandbox
from engine.sandbox.jobs import Ended
from engine.schedule import jobs, wakes
from engine.schedule.cron import in_zone
from engine.schedule.jobs import Job
from engine.schedule.words import understand
from engine.store.base import Store, Tx
from engine.tools.base import Result, Risk, Tool, ToolContext, tool
from engine.tools.shell import checked, preview, shell_of

__all__ = ["job_tools", "stop"]

#: Seconds a job may run: when nothing is said, and at most.
HOUR, DAY = 3_600.0, 86_400.0
PART = 20_000  # bytes of output that one look shows
#: Seconds after a job's time limit in which its end is noted.
LATE = 300.0


def job_tools(store: Store, zone: str, nudge: Callable[[], None]) -> list[Tool]:
    """Return the tools; `zone` is meant where a person has said none.

    `nudge` is called when a job was started or stopped, or is waited for; it must not wait.
    """
    return [
        _starting(store, nudge),
        _reading(store),
        _listing(store),
        _stopping(store, nudge),
        _waiting(store, zone, nudge),
    ]


def _folder(ctx: ToolContext, job: str) -> Path:
    return ctx.keep / "jobs" / job


def _straight(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Bring the limit within bounds, so that the card shows what will be."""
    given = dict(arguments)
    given["time_limit"] = _limit(given.get("time_limit", HOUR))
    return given


def _limit(value: Any) -> float:
    try:
        seconds = float(value) if not isinstance(value, bool) else 0.0
    except (TypeError, ValueError, OverflowError):
        return HOUR
    return HOUR if math.isnan(seconds) or seconds <= 0 else min(seconds, DAY)


async def _preview(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    """Show the whole command, where it runs, and that it goes on after the turn."""
    limit = jobs.spent(_limit(arguments.get("time_limit", HOUR)))
    shown = await preview(ctx, arguments)
    return f"In the background, also after this turn, for {limit} at most.\n{shown}"


def _starting(store: Store, nudge: Callable[[], None]) -> Tool:
    # Its id comes from the call, and one id starts once: to try again does no harm.
    @tool(risk=Risk.EXEC, preview=_preview, accept=_straight, idempotent=True)
    async def job_start(
        ctx: ToolContext, command: str, time_limit: float = HOUR, description: str = ""
    ) -> Result:
        """Start a shell command in the background and return its job id at once.

        It starts in the folder and with the exports of the shell, and goes on after this turn and
        over restarts, until it ends or its time limit does. The job is over when the command
        returns: what it left running is ended with it. To be called back when it ends, use
        wake_on and end your turn.

        Args:
            command: What to run, for bash.
            time_limit: Seconds after which it is ended; 3600 when left out, 86400 at most.
            description: What it is for, in a few words, for the person who is asked.
        """
        name, limit = jobs.job_id(ctx.call), _limit(time_limit)
        text = checked(command)
        shell = await shell_of(ctx)

        def note(tx: Tx) -> tuple[Job, list[str]]:
            old = jobs.forget_old(tx, ctx.session)
            session = sessions.get(tx, ctx.session)
            return jobs.add(tx, session, name, text, limit, ctx.now()), old

        job, old = await store.write(note)
        await asyncio.to_thread(_remove, [_folder(ctx, each) for each in old])
        if job.running:
            ctx.before_act()
            try:
                await shell.start(text, _folder(ctx, name), limit)
            except ToolError as error:
                failed = Ended(how="failed", error=error.what.rstrip("."))
                await store.write(lambda tx: jobs.end(tx, job, failed, "", ctx.now()))
                raise
            nudge()
        elif job.status in ("failed", "lost"):
            raise ToolError(jobs.told(job, ctx.now()))
        return Result(
            text=f"Started as {name}; it may run for {jobs.spent(limit)}. Read it with job_output.",
            display={"command": command, "description": description, "job": name},
        )

    return job_start


def _remove(folders: list[Path]) -> None:
    for each in folders:
        shutil.rmtree(each, ignore_errors=True)


def _reading(store: Store) -> Tool:
    @tool(risk=Risk.READ, result_budget=24_000)
    async def job_output(ctx: ToolContext, job: str, start: int = -1) -> Result:
        """Return what a background job printed, and how it stands.

        Args:
            job: The id that job_start returned.
            start: The byte to read on from, as the last look named it; left out: the end only.
        """
        found = await store.read(lambda tx: jobs.find(tx, ctx.session, job))
        return Result(text=await _shown(ctx, found, start))

    return job_output


async def _shown(ctx: ToolContext, job: Job, start: int) -> str:
    """Return a part of the output, and a line about it."""
    folder = _folder(ctx, job.id)
    try:
        said = await asyncio.to_thread(sandbox.read, folder, None if start < 0 else start, PART)
        job = await asyncio.to_thread(jobs.as_written, folder, job)
    except OSError as error:
        raise ToolError(f"The output of {job.id} cannot be read: {error.strerror}.") from error
    notes = [jobs.told(job, ctx.now()).rstrip(".")]
    if said.end > said.begin:
        notes.append(f"bytes {said.begin} to {said.end}")
    if max(start, 0) < said.begin:
        kept = "read earlier ones with start" if start < 0 else "what was before is gone"
        notes.append(kept)
    notes.append(f"read on from {said.end}" if said.more or job.running else "that is all")
    line = "" if not said.text or said.text.endswith("\n") else "\n"
    return f"{said.text}{line}[{'; '.join(notes)}]"


def _listing(store: Store) -> Tool:
    @tool(risk=Risk.READ)
    async def job_list(ctx: ToolContext) -> Result:
        """List this session's background jobs: what each runs, and how it stands."""
        known = await store.read(lambda tx: jobs.listed(tx, ctx.session))
        lines = [
            f"{jobs.told(each, ctx.now())} {each.command[: jobs.COMMAND_SHOWN]}" for each in known
        ]
        return Result(text="\n".join(lines) or "This session has started no job.")

    return job_list


def _stopping(store: Store, nudge: Callable[[], None]) -> Tool:
    @tool(risk=Risk.CONTROL, result_budget=24_000)
    async def job_stop(ctx: ToolContext, job: str) -> Result:
        """End a background job and everything it started; returns what it printed last.

        Args:
            job: The id that job_start returned.
        """
        found = await store.read(lambda tx: jobs.find(tx, ctx.session, job))
        if found.running:
            await stop(_folder(ctx, found.id), found)
            nudge()
        return Result(text=await _shown(ctx, found, -1))

    return job_stop


async def stop(folder: Path, job: Job) -> None:
    """End the job and all it started; return when it has, or after ten seconds.

    Raises ToolError when this machine has nothing of it, or its folder cannot be written to.
    """
    try:
        await asyncio.to_thread(sandbox.stop, folder)
    except OSError as error:
        raise ToolError(f"{job.id} cannot be stopped from here: {error.strerror}.") from error


def _waiting(store: Store, zone: str, nudge: Callable[[], None]) -> Tool:
    @tool(risk=Risk.CONTROL)
    async def wake_on(ctx: ToolContext, job: str, note: str, until: str = "") -> Result:
        """Have yourself woken here when a background job ends: end your turn, and go on then.

        You are told its exit code and the end of its output. If it has ended, that is at once.

        Args:
            job: The id that job_start returned.
            note: What you will do then; you get it back word for word.
            until: Wait no longer than this: in 20 minutes, tomorrow 8:00. Left out: to its end.
        """
        try:
            text = await store.write(partial(_await, ctx, job, note, until, zone))
        except ToolError:
            raise
        except NodError as error:
            raise ToolError(error.what, error.fix) from error
        nudge()
        return Result(text=text)

    return wake_on


def _await(ctx: ToolContext, job: str, note: str, until: str, zone: str, tx: Tx) -> str:
    session, now = sessions.get(tx, ctx.session), ctx.now()
    found = jobs.find(tx, session.id, job)
    latest, more = max(found.deadline, now) + LATE, ""
    if until:
        place = people.zone_of(tx, session.tenant, session.owner) or zone
        when = understand(until, place, now)
        if when.once is None:
            raise ToolError("A rhythm is no end.", "Name one time, such as: in 20 minutes.")
        latest, more = when.once, f", and at {in_zone(when.once, when.zone)} ({when.zone}) anyhow"
    wakes.add_on(
        tx,
        session,
        jobs.event_of(found.id),
        note,
        now,
        until=latest,
        since=found.created_at,
        key=ctx.call,
    )
    ended = "" if found.running else " It has ended, so that is as soon as this turn is over."
    return f"You are woken when {found.id} ends{more}.{ended}"
