"""The rows of schedules and their fires: add, find, change, switch, remove, how each run ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from engine import grants, inbox
from engine.clock import mint
from engine.errors import ScheduleError
from engine.schedule.cron import in_zone
from engine.schedule.words import When
from engine.store.base import Row, Tx
from engine.targets import ThreadTarget

__all__ = [
    "Fire",
    "Schedule",
    "add",
    "change",
    "check",
    "enable",
    "find",
    "fires",
    "get",
    "listed",
    "notice",
    "remove",
    "run_ended",
    "schedule_from",
    "tell_owner",
]

TITLE_LIMIT = 120  # characters
INSTRUCTIONS_LIMIT = 20_000  # characters

#: What to do about a due time that passed while Nod was not running.
CATCH_UP = ("once", "skip")
#: What to do when the run before is still at work.
OVERLAP = ("skip",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One schedule, as its row says."""

    id: str
    tenant: str
    #: The principal it belongs to and whose rights its runs have.
    owner: str
    title: str
    #: When it comes: a cron line, or one moment.
    when: When
    #: What each run is told to do.
    instructions: str
    #: thread_target under which its runs speak.
    home: str
    #: thread_target the run is told to report to; empty: only its home.
    report_to: str
    persona: str
    model: str
    catch_up: str
    overlap: str
    enabled: bool
    #: Epoch seconds; None while it is switched off.
    next_at: float | None
    last_due: float | None
    created_at: float
    #: How its latest run stands, where that was asked for; empty: none yet.
    outcome: str = ""

    @property
    def cron(self) -> str:
        """Its cron line; empty: it comes once."""
        return self.when.cron

    @property
    def zone(self) -> str:
        """The zone its times are read in."""
        return self.when.zone


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """One time a schedule came due, as its row says."""

    id: str
    schedule: str
    due: float
    fired_at: float
    #: None when no run was started.
    session: str | None
    #: started, skipped, superseded, completed, failed
    status: str
    note: str
    #: Epoch seconds; None: it has not ended, or never began.
    ended_at: float | None
    #: thread_target in which it was at work; empty: none.
    thread: str
    #: US dollars; None: no price is known, or no model was called.
    cost: float | None
    #: Calls of models whose price is unknown.
    unpriced: int


def schedule_from(row: Row) -> Schedule:
    """Return the value of a `schedules` row."""
    return Schedule(
        id=row["id"],
        tenant=row["tenant_id"],
        owner=row["owner_id"],
        title=row["title"],
        when=When(zone=row["zone"], cron=row["cron"], once=row["once_at"]),
        instructions=row["instructions"],
        home=row["home"],
        report_to=row["report_to"],
        persona=row["persona"],
        model=row["model"],
        catch_up=row["catch_up"],
        overlap=row["overlap"],
        enabled=bool(row["enabled"]),
        next_at=row["next_at"],
        last_due=row["last_due"],
        created_at=row["created_at"],
    )


def add(
    tx: Tx,
    *,
    tenant: str,
    owner: str,
    title: str,
    when: When,
    instructions: str,
    home: str,
    persona: str,
    model: str,
    now: float,
    report_to: str = "",
    catch_up: str = "once",
    overlap: str = "skip",
) -> Schedule:
    """Write a schedule, switched on, and return it; nothing that is due before `now` will run.

    Raises ScheduleError for a line, zone, moment, text or policy that cannot be, TargetError for a
    home or report_to that is no thread_target.
    """
    title, instructions = title.strip(), instructions.strip()
    check(title, instructions, report_to)
    _check_policy("catch_up", catch_up, CATCH_UP)
    _check_policy("overlap", overlap, OVERLAP)
    ThreadTarget.parse(home)
    schedule = mint("c")
    tx.run(
        "schedule_add",
        id=schedule,
        tenant=tenant,
        owner=owner,
        title=title,
        cron=when.cron,
        zone=when.zone,
        once=when.once,
        instructions=instructions,
        home=str(ThreadTarget.parse(home)),
        report_to=report_to,
        persona=persona,
        model=model,
        catch_up=catch_up,
        overlap=overlap,
        next=_next(when, now),
        now=now,
    )
    return get(tx, schedule)


def change(
    tx: Tx,
    schedule: str,
    *,
    title: str,
    when: When,
    instructions: str,
    report_to: str,
    now: float,
) -> Schedule:
    """Give the schedule another time or task, switched on from `now`, and return it.

    Its standing rules end when what it does, or where it reports, is another. Raises what `add`
    raises, and ScheduleError when there is none of that id.
    """
    found, title, instructions = get(tx, schedule), title.strip(), instructions.strip()
    check(title, instructions, report_to)
    if (instructions, report_to) != (found.instructions, found.report_to):
        tx.run("schedule_rules_revoke", id=schedule, now=now)
    tx.run(
        "schedule_change",
        id=schedule,
        title=title,
        cron=when.cron,
        zone=when.zone,
        once=when.once,
        instructions=instructions,
        report_to=report_to,
        next=_next(when, now),
        now=now,
    )
    return get(tx, schedule)


def _next(when: When, now: float) -> float:
    upcoming = when.next_after(now)
    if upcoming is None:
        raise ScheduleError(
            f"Its time is past: it is now {in_zone(now, when.zone)} ({when.zone}).",
            "Name a later time.",
        )
    return upcoming


def check(title: str, instructions: str, report_to: str) -> None:
    """Raise ScheduleError or TargetError when no schedule can be called, do or report so."""
    _check_text("title", title, TITLE_LIMIT)
    _check_text("text of instructions", instructions, INSTRUCTIONS_LIMIT)
    if report_to:
        ThreadTarget.parse(report_to)


def _check_text(what: str, text: str, limit: int) -> None:
    if not text:
        raise ScheduleError(f"A schedule needs a {what}.", "Say what each run is to do.")
    if len(text) > limit:
        raise ScheduleError(
            f"The {what} has {len(text)} characters, {limit} are the limit.", "Shorten it."
        )


def _check_policy(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ScheduleError(f"'{value}' is no policy of {name}.", f"Use {' or '.join(known)}.")


def get(tx: Tx, schedule: str) -> Schedule:
    """Return the schedule; raises ScheduleError when there is none of that id."""
    row = tx.one("schedule_get", id=schedule)
    if row is None:
        raise ScheduleError(
            f"There is no schedule {schedule}.", "List them with `nod schedule list`."
        )
    return schedule_from(row)


def find(tx: Tx, tenant: str, start: str) -> Schedule:
    """Return the one schedule whose id begins with `start`; raises ScheduleError otherwise."""
    prefix = start.replace("%", "").replace("_", "")
    rows = tx.all("schedule_find", tenant=tenant, prefix=f"{prefix}%") if prefix else []
    if len(rows) != 1:
        what = "More than one schedule" if rows else "No schedule"
        raise ScheduleError(
            f"{what} has an id that begins with '{start}'.", "List them with `nod schedule list`."
        )
    return schedule_from(rows[0])


def listed(tx: Tx, tenant: str) -> list[Schedule]:
    """Return the tenant's schedules with their outcome, the oldest first.

    Reading moves no due time.
    """
    rows = tx.all("schedules_told", tenant=tenant)
    return [replace(schedule_from(row), outcome=row["outcome"]) for row in rows]


def remove(tx: Tx, schedule: str, now: float) -> None:
    """Delete the schedule with its rules and folders; its fires and their sessions stay.

    Raises ScheduleError when there is none of that id.
    """
    found = get(tx, schedule)
    tx.run("schedule_rules_revoke", id=schedule, now=now)
    grants.revoke(tx, found.tenant, grants.of_schedule(schedule), now)
    tx.run("schedule_remove", id=schedule)


def enable(tx: Tx, schedule: str, enabled: bool, now: float) -> Schedule:
    """Switch the schedule on, from `now` on, or off; return it as it is then.

    Raises ScheduleError when there is none of that id, its line or zone no longer can be, or its
    one moment is past.
    """
    found = get(tx, schedule)
    if found.enabled != enabled:
        upcoming = _next(found.when, now) if enabled else None
        tx.run("schedule_enable", id=schedule, enabled=int(enabled), next=upcoming, now=now)
    return get(tx, schedule)


def fires(tx: Tx, schedule: str, limit: int = 20) -> list[Fire]:
    """Return the times the schedule came due, the latest first; also after its removal."""
    return [
        Fire(
            id=row["id"],
            schedule=row["schedule_id"],
            due=row["due"],
            fired_at=row["fired_at"],
            session=row["session_id"],
            status=row["status"],
            note=row["note"],
            ended_at=row["ended_at"],
            thread=row["thread"],
            cost=row["cost"],
            unpriced=row["unpriced"],
        )
        for row in tx.all("fires_of", schedule=schedule, limit=limit)
    ]


def run_ended(tx: Tx, session: str, status: str, now: float) -> None:
    """Record how a fired session's turn ended, and tell the owner when it failed.

    To be called in the transaction that writes TURN_END, with its status. A run that only parked
    has not ended; turns after the first change nothing.
    """
    row = tx.one("fire_of_session", session=session)
    if row is None or status == "parked":
        return
    failed = status != "completed"
    note = _ENDINGS.get(status, status) if failed else ""
    outcome = "failed" if failed else "completed"
    tx.run("fire_ended", id=row["id"], status=outcome, note=note, now=now)
    if failed and status != "interrupted" and row["owner_id"]:
        inbox.ask(
            tx,
            notice(
                row["tenant_id"],
                row["owner_id"],
                subject=f"fire:{row['id']}",
                title=row["title"],
                text=f"The run of '{row['title']}' failed: {note}.",
                now=now,
                session=session,
            ),
        )


_ENDINGS = {
    "interrupted": "it was stopped",
    "max_iterations": "it reached the limit of steps for one turn",
    "error": "it ended with an error",
}


def tell_owner(tx: Tx, schedule: Schedule, subject: str, text: str, now: float) -> inbox.Prompt:
    """Raise a notice for the owner; a second one of the same subject changes nothing."""
    return inbox.ask(
        tx,
        notice(
            schedule.tenant,
            schedule.owner,
            subject=subject,
            title=schedule.title,
            text=text,
            now=now,
        ),
    )


def notice(
    tenant: str,
    owner: str,
    *,
    subject: str,
    title: str,
    text: str,
    now: float,
    session: str | None = None,
) -> inbox.Prompt:
    """Return a notice that `owner` may mark as seen."""
    payload: dict[str, Any] = {"card": subject, "title": f"Schedule: {title}", "text": text}
    return inbox.Prompt(
        id=mint("p"),
        tenant=tenant,
        session=session,
        kind="notice",
        subject=subject,
        payload={**payload, "retry": False, "options_allowed": ["seen"]},
        approvers={"role": "owner", "person": owner, "own_suffices": True},
        created_at=now,
        deadline=now + inbox.DEADLINE,
    )
