"""The rows of schedules: add, find, change, switch on and off, remove."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine import budgets, grants, inbox
from engine.clock import mint
from engine.errors import ScheduleError
from engine.schedule import notices, runs
from engine.schedule.cron import in_zone
from engine.schedule.policy import DEFAULT, Policy, Quiet
from engine.schedule.words import When
from engine.store.base import Row, Tx
from engine.targets import ThreadTarget

__all__ = [
    "Schedule",
    "add",
    "change",
    "check",
    "enable",
    "fields_of",
    "find",
    "get",
    "listed",
    "policy_from",
    "remove",
    "renew_model",
    "schedule_from",
    "tell_owner",
]

TITLE_LIMIT = 120  # characters
INSTRUCTIONS_LIMIT = 20_000  # characters


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
    policy: Policy
    enabled: bool
    #: Epoch seconds; None while it is switched off.
    next_at: float | None
    last_due: float | None
    #: The due time that quiet hours hold until `next_at`; None: none.
    held_from: float | None
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
        policy=policy_from(row),
        enabled=bool(row["enabled"]),
        next_at=row["next_at"],
        last_due=row["last_due"],
        held_from=row["held_from"],
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
    policy: Policy = DEFAULT,
) -> Schedule:
    """Write a schedule, switched on, and return it; nothing that is due before `now` will run.

    Raises ScheduleError for a line, zone, moment or text that cannot be, TargetError for a home or
    report_to that is no thread_target.
    """
    title, instructions = title.strip(), instructions.strip()
    check(title, instructions, report_to)
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
        **fields_of(policy),
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
    policy: Policy,
    now: float,
) -> Schedule:
    """Give the schedule another time, task or policy, switched on from `now`, and return it.

    Its standing rules end when what it does, or where it reports, is another. What quiet hours
    hold is held on, unless the time changes. Raises what `add` raises, and
    ScheduleError when there is none of that id.
    """
    found, title, instructions = get(tx, schedule), title.strip(), instructions.strip()
    check(title, instructions, report_to)
    if (instructions, report_to) != (found.instructions, found.report_to):
        tx.run("schedule_rules_revoke", id=schedule, now=now)
    held = found.held_from if when == found.when else None
    tx.run(
        "schedule_change",
        id=schedule,
        title=title,
        cron=when.cron,
        zone=when.zone,
        once=when.once,
        instructions=instructions,
        report_to=report_to,
        **fields_of(policy),
        next=_next(when, now) if held is None else policy.begins(now, when.zone),
        held=held,
        now=now,
    )
    return get(tx, schedule)


def fields_of(policy: Policy) -> dict[str, object]:
    """Return the columns of a policy; also what a card holds of it."""
    return {
        "catch_up": policy.catch_up,
        "overlap": policy.overlap,
        "deadline": policy.deadline,
        "retries": policy.retries,
        "quiet": "" if policy.quiet is None else str(policy.quiet),
    }


def policy_from(row: Row | Mapping[str, Any]) -> Policy:
    """Return the policy of what `fields_of` gave."""
    return Policy(
        catch_up=row["catch_up"],
        overlap=row["overlap"],
        deadline=row["deadline"],
        retries=row["retries"],
        quiet=Quiet.parse(row["quiet"]),
    )


def renew_model(tx: Tx, tenant: str, prefix: str, model: str) -> int:
    """Give `model` to all schedules whose model's id begins with `prefix`; return how many."""
    return tx.run("schedule_renew_model", tenant=tenant, prefix=f"{prefix}%", model=model)


def _next(when: When, now: float) -> float | None:
    """Return when it comes first; None: an event is waited for."""
    upcoming = when.next_after(now)
    if upcoming is None and not when.event:
        raise ScheduleError(
            f"Its time is past: it is now {in_zone(now, when.zone)} ({when.zone}).",
            "Name a later time.",
        )
    return upcoming


def check(title: str, instructions: str, report_to: str) -> None:
    """Raise ScheduleError or TargetError when no schedule can be called, do or report so."""
    _check_text("text of instructions", instructions, INSTRUCTIONS_LIMIT)
    _check_text("title", title, TITLE_LIMIT)
    if report_to:
        ThreadTarget.parse(report_to)


def _check_text(what: str, text: str, limit: int) -> None:
    if not text:
        raise ScheduleError(f"A schedule needs a {what}.", "Say what each run is to do.")
    if len(text) > limit:
        raise ScheduleError(
            f"The {what} has {len(text)} characters, {limit} are the limit.", "Shorten it."
        )


def get(tx: Tx, schedule: str) -> Schedule:
    """Return the schedule; raises ScheduleError when there is none of that id."""
    row = tx.one("schedule_get", id=schedule)
    if row is None:
        raise ScheduleError(f"There is no schedule {schedule}.", "List them with /schedule list.")
    return schedule_from(row)


def find(tx: Tx, tenant: str, start: str) -> Schedule:
    """Return the one schedule whose id begins with `start`; raises ScheduleError otherwise."""
    prefix, fix = start.replace("%", "").replace("_", ""), "List them with /schedule list."
    if not prefix:
        raise ScheduleError("Say which schedule, by its id.", fix)
    rows = tx.all("schedule_find", tenant=tenant, prefix=f"{prefix}%")
    if len(rows) != 1:
        what = "More than one schedule" if rows else "No schedule"
        raise ScheduleError(f"{what} has an id that begins with '{start}'.", fix)
    return schedule_from(rows[0])


def listed(tx: Tx, tenant: str) -> list[Schedule]:
    """Return the tenant's schedules with their outcome, the oldest first.

    Reading moves no due time.
    """
    rows = tx.all("schedules_told", tenant=tenant)
    return [replace(schedule_from(row), outcome=row["outcome"]) for row in rows]


def remove(tx: Tx, schedule: str, now: float) -> None:
    """Delete the schedule with its rules, budgets and folders; its fires and sessions stay.

    Raises ScheduleError when there is none of that id.
    """
    found = get(tx, schedule)
    tx.run("schedule_rules_revoke", id=schedule, now=now)
    grants.revoke(tx, found.tenant, grants.of_schedule(schedule), now)
    runs.drop(tx, schedule, "its schedule was removed", now)
    budgets.schedule_removed(tx, found.tenant, schedule)
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
        if not enabled:
            runs.drop(tx, schedule, "its schedule was paused", now)
    return get(tx, schedule)


def tell_owner(tx: Tx, schedule: Schedule, subject: str, text: str, now: float) -> inbox.Prompt:
    """Raise a notice for the owner; a second one of the same subject changes nothing."""
    return notices.tell(
        tx,
        schedule.tenant,
        schedule.owner,
        subject=subject,
        title=f"Schedule: {schedule.title}",
        text=text,
        now=now,
    )
