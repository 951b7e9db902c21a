"""Background jobs as rows: their ceilings, how each stands, and the event that one has ended.

What runs, and how it ended, is in the job's folder (engine/sandbox/jobs.py); a row is what was
last seen of that. A session's jobs go with it: their rows in the cascade, the processes because
their folder is gone.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from engine.canonical import digest
from engine.errors import ToolError
from engine.sandbox import jobs as sandbox
from engine.sandbox.jobs import Ended
from engine.schedule import named
from engine.schedule.notices import tell
from engine.schedule.words import JOB
from engine.sessions import Session, keep_of
from engine.store.base import Row, Tx

__all__ = [
    "Job",
    "add",
    "as_written",
    "end",
    "event_of",
    "find",
    "folder_of",
    "forget_old",
    "get",
    "job_id",
    "listed",
    "spent",
    "told",
    "unfinished",
]

#: Jobs running at once, of one session and of all.
PER_SESSION, IN_ALL = 8, 64
#: Ended jobs a session keeps, each with at most 2 MB of output.
KEPT = 20
#: Characters of a command that a list or a notice shows.
COMMAND_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One background job, as its row says. Times are epoch seconds."""

    id: str
    tenant: str
    session: str
    command: str
    #: running, or how it ended: exited, time, stopped, failed, lost
    status: str
    exit_code: int | None
    note: str
    created_at: float
    deadline: float
    ended_at: float | None

    @property
    def running(self) -> bool:
        """Whether it was still running when last looked at."""
        return self.ended_at is None


def job_id(call: str) -> str:
    """Return the id of the job that this call starts, whenever it is tried."""
    return f"j{digest(call)[:12]}"


def folder_of(data: Path, session: str, job: str) -> Path:
    """Return where the job's files are; no tool writes there."""
    return keep_of(data, session) / "jobs" / job


def event_of(job: str) -> str:
    """Return the name of the event that the job has ended."""
    return f"{JOB}{job}"


def add(tx: Tx, session: Session, job: str, command: str, limit: float, now: float) -> Job:
    """Note that the job is about to be started; return it as it stands when it is there already.

    `limit` is in seconds. Raises ToolError when as many run as may.
    """
    row = tx.one("job_get", id=job)
    if row is not None:
        return _job_from(row)
    running = unfinished(tx, session.tenant)
    own = [each for each in running if each.session == session.id]
    if len(own) >= PER_SESSION:
        names = ", ".join(each.id for each in own)
        raise ToolError(
            f"{PER_SESSION} jobs of this session are running, the most there may be: {names}.",
            "End one with job_stop, or wait for one with wake_on.",
        )
    if len(running) >= IN_ALL:
        raise ToolError(
            f"{IN_ALL} jobs of all sessions are running, the most there may be.",
            "Try again later; sleep_until has you woken.",
        )
    tx.run(
        "job_add",
        id=job,
        tenant=session.tenant,
        session=session.id,
        command=command,
        now=now,
        deadline=now + limit,
    )
    return get(tx, job)


def get(tx: Tx, job: str) -> Job:
    """Return the job of that id, which must be there."""
    row = tx.one("job_get", id=job)
    assert row is not None, "whoever asks has seen it"
    return _job_from(row)


def find(tx: Tx, session: str, start: str) -> Job:
    """Return the session's job whose id begins with `start`.

    Raises ToolError when there is none, or more than one.
    """
    known = listed(tx, session)
    found = [each for each in known if start and each.id.startswith(start)]
    if len(found) != 1:
        what = f"Several jobs begin with '{start}'." if found else f"There is no job '{start}'."
        names = ", ".join(each.id for each in found or known) or "none"
        raise ToolError(what, f"Jobs of this session: {names}.")
    return found[0]


def listed(tx: Tx, session: str) -> list[Job]:
    """Return the session's jobs, the oldest first."""
    return [_job_from(row) for row in tx.all("jobs_of", session=session)]


def unfinished(tx: Tx, tenant: str) -> list[Job]:
    """Return all jobs whose end nobody has noted yet."""
    return [_job_from(row) for row in tx.all("jobs_running", tenant=tenant)]


def end(tx: Tx, job: Job, ended: Ended, tail: str, now: float) -> bool:
    """Note how the job ended and fire its event, once; `tail` is the end of what it printed.

    Its output marks whoever reads it when the session held outside text: then it may hold some.
    """
    changed = tx.run(
        "job_end",
        id=job.id,
        status=ended.how,
        exit_code=ended.exit_code,
        note=ended.error,
        now=now if ended.at is None else ended.at,
    )
    if not changed:
        return False
    name, ended_job = event_of(job.id), get(tx, job.id)
    said = told(ended_job, now)
    printed = f"The end of its output:\n{tail}" if tail.strip() else "It printed nothing."
    owner = tx.one("session_get", id=job.session)
    tainted = owner is not None and owner["taint"] != "[]"
    named.fire_event(
        tx,
        job.tenant,
        name,
        f"{said}\n{printed}",
        "end",
        now,
        source=name,
        taint=name if tainted else "",
    )
    if ended_job.status == "lost" and owner is not None:
        text = f"{said}\n\n{ended_job.command[:COMMAND_SHOWN]}"
        tell(
            tx,
            job.tenant,
            owner["owner_id"],
            subject=name,
            title="A job is lost",
            text=text,
            now=now,
            session=job.session,
        )
    return True


def as_written(folder: Path, job: Job) -> Job:
    """Return the job as its own files tell, which know of its end first. Reads files."""
    ended = None
    if job.running:
        with suppress(FileNotFoundError):
            ended = sandbox.ending(folder)
    if ended is None:
        return job
    at = job.created_at if ended.at is None else ended.at
    return replace(job, status=ended.how, exit_code=ended.exit_code, note=ended.error, ended_at=at)


def forget_old(tx: Tx, session: str) -> list[str]:
    """Forget all but the latest ended jobs; return the ids of those whose folders may go."""
    ended = [each.id for each in listed(tx, session) if not each.running]
    old = ended[:-KEPT]
    for each in old:
        tx.run("job_forget", id=each)
    return old


def told(job: Job, now: float) -> str:
    """Return one sentence about how the job stands, or ended."""
    took = spent((now if job.ended_at is None else job.ended_at) - job.created_at)
    code = "" if job.exit_code is None else f" with exit code {job.exit_code}"
    return {
        "running": f"Job {job.id} has been running for {took}; "
        f"its time limit ends it in {spent(job.deadline - now)}.",
        "exited": f"Job {job.id} ended{code} after {took}.",
        "time": f"Job {job.id} was ended by its time limit after {took}.",
        "stopped": f"Job {job.id} was stopped after {took}.",
        "failed": f"Job {job.id} could not be started: {job.note}.",
        "lost": f"Job {job.id} is lost: its machine went down, or what watched over it was "
        "killed. How far it came is not known.",
    }[job.status]


def spent(seconds: float) -> str:
    """Return a length of time as 5 s, 12 min or 3 h 20 min."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def _job_from(row: Row) -> Job:
    return Job(
        id=row["id"],
        tenant=row["tenant_id"],
        session=row["session_id"],
        command=row["command"],
        status=row["status"],
        exit_code=row["exit_code"],
        note=row["note"],
        created_at=row["created_at"],
        deadline=row["deadline"],
        ended_at=row["ended_at"],
    )
