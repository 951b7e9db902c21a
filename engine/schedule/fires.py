"""Fires a schedule: the claim, and by its policy the run, in one transaction.

A due time is fired once, whoever looks: the claim changes `next_at`, and `fires` is unique by
schedule and due time. Firing never waits for a run. What a run needs of the clock later, to be
stopped, tried again or begun after the one before, is in its row, and `tend` does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine import sessions
from engine.clock import mint
from engine.errors import ScheduleError
from engine.schedule import named, runs
from engine.schedule.cron import in_zone
from engine.schedule.opening import Occasion, open_run
from engine.schedule.policy import WAITING
from engine.schedule.schedules import Schedule, get, schedule_from, tell_owner
from engine.sessions import Post
from engine.store.base import Row, Tx

__all__ = ["Fired", "fail", "fire", "run_now", "start", "tend"]

#: Later than this, seconds, a due time was missed; the run is a catch-up and says so.
LATE = 60.0
#: Runs of one schedule that events may begin within an hour: a noisy sender costs no more.
IN_AN_HOUR, HOUR = 60, 3_600.0

_MORE = "It stands for all due times that were missed since; they are not made up."
_SUPERSEDES = "The run before it still waited for an answer and was stopped for this one."
_WAITED = "It waited until the run before it had ended."


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """What became of one due time."""

    schedule: Schedule
    fire: str
    due: float
    #: started, queued, skipped, or held (by quiet hours: then there is no fire yet)
    status: str
    #: Why it was skipped, or until when it waits.
    note: str = ""
    #: The session of the run that began, to be woken.
    session: str | None = None
    #: The session of the run before, which was stopped for this one and is to be woken too.
    superseded: str | None = None


def fire(tx: Tx, schedule_id: str, due: float, now: float, *, data: Path) -> Fired | None:
    """Fire what came due at `due`; None when another has done it or the schedule is gone or off.

    The next due time is counted from `now`, so what was missed leads to one run, never a burst,
    unless the schedule makes up for all. Raises ScheduleError when the stored line or zone no
    longer can be.
    """
    row = tx.one("schedule_get", id=schedule_id)
    if row is None:
        return None
    schedule = schedule_from(row)
    late, policy = now - due > LATE, schedule.policy
    begins = policy.begins(now, schedule.zone)
    if begins > now and not (late and policy.catch_up == "skip"):
        return _hold(tx, schedule, due, now, begins)
    upcoming = schedule.when.next_after(max(now, due))
    if not _claim(tx, schedule, due, upcoming, now):
        return None
    first = due if schedule.held_from is None else schedule.held_from
    following = schedule.when.next_after(first)
    occasion = Occasion(
        schedule=schedule,
        fire=mint("f"),
        due=first,
        now=now,
        cause="catch-up" if late else "schedule",
        data=data,
        notes=_held(schedule, due) if first < due else (),
    )
    if not late:
        return _run(tx, occasion)
    if policy.catch_up == "skip":
        subject = f"missed:{schedule.id}:{first:.0f}"
        return _skip(tx, occasion, "Nod was not running at that time", subject)
    more = following is not None and following <= now
    if policy.catch_up == "all" and more:
        return _all_missed(tx, occasion)
    return _run(tx, replace(occasion, notes=(*occasion.notes, *((_MORE,) * more))))


def run_now(tx: Tx, schedule_id: str, now: float, *, data: Path) -> Fired:
    """Run the schedule now, as a person asked for; its due times stay as they are.

    The overlap rule holds: `status` is 'skipped' or 'queued' when the run before is still at work.
    Quiet hours do not. Raises ScheduleError when there is none of that id.
    """
    tx.run("schedule_lock", id=schedule_id)
    occasion = Occasion(
        schedule=get(tx, schedule_id),
        fire=mint("f"),
        due=now,
        now=now,
        cause="manual",
        data=data,
    )
    fired = _run(tx, occasion)
    if fired is None:
        raise ScheduleError("This schedule was started this very moment.", "Wait for that run.")
    return fired


def start(tx: Tx, event: str, schedule_id: str, now: float, *, data: Path) -> Fired | None:
    """Start a run because an event came; None when another has done it, or it is gone or off.

    Quiet hours hold it, and the overlap rule holds; so many begin within an hour, no more.
    """
    if not tx.run("arrival_take", event=event, schedule=schedule_id):
        return None
    tx.run("schedule_lock", id=schedule_id)
    row = tx.one("schedule_get", id=schedule_id)
    came = named.get(tx, event)
    if row is None or came is None or not row["enabled"]:
        return None
    schedule = schedule_from(row)
    begins = schedule.policy.begins(now, schedule.zone)
    if begins > now:
        tx.run("arrival_add", tenant=schedule.tenant, event=event, schedule=schedule_id, at=begins)
        note = f"quiet hours hold it until {in_zone(begins, schedule.zone)}"
        return Fired(schedule=schedule, fire="", due=came.at, status="held", note=note)
    due = round(came.at, 3)
    while tx.one("fire_at", schedule=schedule_id, due=due) is not None:
        due = round(due + 0.001, 3)  # two events of one moment are two runs
    occasion = Occasion(
        schedule=schedule,
        fire=mint("f"),
        due=due,
        now=now,
        cause="event",
        data=data,
        event=event,
    )
    begun = tx.one("fires_by_event", schedule=schedule_id, since=due - HOUR)
    if begun is not None and begun["n"] >= IN_AN_HOUR:
        return _skip(tx, occasion, f"events began {IN_AN_HOUR} runs of it within an hour", "events")
    return _run(tx, occasion)


def tend(tx: Tx, fire_id: str, due: float, now: float, *, data: Path) -> list[str]:
    """Do what a run needs of the clock at `due`; return the sessions that are to be woken.

    Stops it at its deadline, tries it again after an error, or begins it after the one before.
    """
    if not tx.run("fire_tend", id=fire_id, due=due):
        return []
    row = tx.one("fire_get", id=fire_id)
    if row is None:
        return []
    if row["status"] == "started":
        stopped = runs.overdue(tx, row, now)
        return [stopped] if stopped else []
    tx.run("schedule_lock", id=row["schedule_id"])
    found = tx.one("schedule_get", id=row["schedule_id"])
    if found is None:
        return []
    schedule = schedule_from(found)
    begins = schedule.policy.begins(now, schedule.zone)
    if begins > now:
        tx.run("fire_look", id=fire_id, look=begins)
        return []
    if row["status"] == "retrying":
        tried = runs.again(tx, row, now)
        return [tried] if tried else []
    return _next_in_line(tx, schedule, now, data)


def fail(tx: Tx, schedule_id: str, due: float, now: float, cause: str) -> bool:
    """Record that firing failed, move on to the next due time and tell the owner.

    A schedule whose line or zone no longer can be, or that comes once, is switched off. False:
    another has fired it.
    """
    row = tx.one("schedule_get", id=schedule_id)
    if row is None:
        return False
    schedule = schedule_from(row)
    upcoming: float | None
    try:
        upcoming = schedule.when.next_after(max(now, due))
    except ScheduleError:
        upcoming = None
    outlook = " It is switched off." if upcoming is None else ""
    if not _claim(tx, schedule, due, upcoming, now):
        return False
    _record(tx, schedule, mint("f"), due, now, "failed", "schedule", cause)
    text = f"'{schedule.title}' could not be started: {cause}{outlook}"
    tell_owner(tx, schedule, f"failed:{schedule.id}:{due:.0f}", text, now)
    return True


def _claim(tx: Tx, schedule: Schedule, due: float, upcoming: float | None, now: float) -> bool:
    """Take this due time and move on to the next; with none left, the schedule is switched off."""
    if not tx.run("schedule_claim", id=schedule.id, due=due, next=upcoming):
        return False
    if upcoming is None:
        tx.run("schedule_enable", id=schedule.id, enabled=0, next=None, now=now)
    return True


def _hold(tx: Tx, schedule: Schedule, due: float, now: float, begins: float) -> Fired | None:
    """Keep what is due until quiet hours end; further due times of them join it."""
    if not tx.run("schedule_hold", id=schedule.id, due=due, until=begins):
        return None
    note = f"quiet hours hold it until {in_zone(begins, schedule.zone)}"
    return Fired(schedule=schedule, fire="", due=due, status="held", note=note)


def _held(schedule: Schedule, until: float) -> tuple[str]:
    return (
        f"Quiet hours held it, and what came due in them, until {in_zone(until, schedule.zone)}.",
    )


# -- what was missed


def _all_missed(tx: Tx, occasion: Occasion) -> Fired | None:
    """Make up for each missed time, the oldest first, one after another."""
    schedule, now = occasion.schedule, occasion.now
    waiting = tx.one("fire_queued", schedule=schedule.id)
    room = WAITING if waiting is None else max(1, WAITING - waiting["n"])
    times, more = schedule.when.latest(occasion.due, now, room)
    if more:
        text = (
            f"'{schedule.title}' was missed more than {room} times. Made up are those from "
            f"{in_zone(times[0], schedule.zone)} on; the ones from {occasion.when} until then are "
            "left out."
        )
        tell_owner(tx, schedule, f"missed:{schedule.id}:{occasion.due:.0f}", text, now)
    due = [each for n, each in enumerate(times) if not n or not _same_quiet(schedule, times, n)]
    behind = f"It is one of {len(due)} missed times, each made up by a run of its own, in order."
    notes = (*occasion.notes, *((behind,) * (len(due) > 1)))
    made = [replace(occasion, due=each, fire=mint("f"), notes=notes) for each in due]
    first = _run(tx, made[0], waits=True)
    for each in made[1:]:
        cause = "schedule" if now - each.due <= LATE else "catch-up"
        _record(tx, schedule, each.fire, each.due, now, "queued", cause)
    return first


def _same_quiet(schedule: Schedule, times: Sequence[float], n: int) -> bool:
    """Say whether this time lies in the same quiet hours as the one before: those are one run."""
    begins = [schedule.policy.begins(each, schedule.zone) for each in times[n - 1 : n + 1]]
    return begins[1] > times[n] and begins[0] == begins[1]


# -- beside the run before


def _run(tx: Tx, occasion: Occasion, *, waits: bool = False) -> Fired | None:
    """Begin the run, or do as the policy says when the one before is at work.

    `waits`: it waits its turn, whatever the policy.
    """
    schedule = occasion.schedule
    before = tx.one("fire_at_work", schedule=schedule.id)
    state = "" if before is None else _state_of(tx, before)
    waiting = tx.one("fire_queued", schedule=schedule.id)
    if before is not None and state == "at work":
        return _behind(tx, occasion, before, "was still at work", waits)
    if waiting is not None:
        fired = _behind(tx, occasion, waiting, "waits already", waits)
        superseded = None if before is None else _close(tx, before, occasion, state)
        begun = _begin(tx, schedule, waiting, occasion, superseded)
        return fired and replace(fired, session=begun, superseded=superseded)
    if not _note(tx, occasion, "started"):
        return None
    superseded = None if before is None else _close(tx, before, occasion, state)
    notes = (*occasion.notes, *((_SUPERSEDES,) * bool(superseded)))
    return Fired(
        schedule=schedule,
        fire=occasion.fire,
        due=occasion.due,
        status="started",
        session=open_run(tx, replace(occasion, notes=notes)),
        superseded=superseded,
    )


def _state_of(tx: Tx, before: Row) -> str:
    """Say how the run before stands: 'at work', 'parked', 'retrying' or 'over'."""
    row = tx.one("session_get", id=before["session_id"])
    if row is None:
        return "over"
    if row["worker"] is not None or row["wanted"] > row["seen"]:
        return "at work"
    if before["status"] == "retrying":
        return "retrying"
    return "parked" if row["turn_seq"] else "over"


def _behind(tx: Tx, occasion: Occasion, before: Row, why: str, waits: bool) -> Fired | None:
    """Let this due time wait for the run before, or leave it out, as the schedule says."""
    schedule = occasion.schedule
    note = f"the run of {in_zone(before['due'], schedule.zone)} {why}"
    waiting = tx.one("fire_queued", schedule=schedule.id)
    if schedule.policy.overlap != "queue" and not waits:
        return _skip(tx, occasion, note, f"overlap:{before['id']}")
    if waiting is not None and waiting["n"] >= WAITING:
        return _skip(tx, occasion, f"{WAITING} runs wait already", f"queue:{waiting['id']}")
    if not _note(tx, occasion, "queued"):
        return None
    return Fired(
        schedule=schedule, fire=occasion.fire, due=occasion.due, status="queued", note=note
    )


def _next_in_line(tx: Tx, schedule: Schedule, now: float, data: Path) -> list[str]:
    """Begin the oldest that waits, when the run before has ended.

    One that waits for a person, or for its next try, is left to them until the next due time.
    """
    before = tx.one("fire_at_work", schedule=schedule.id)
    waiting = tx.one("fire_queued", schedule=schedule.id)
    state = "" if before is None else _state_of(tx, before)
    if waiting is None or state not in ("", "over"):
        return []
    occasion = Occasion(
        schedule=schedule, fire=waiting["id"], due=waiting["due"], now=now, cause="", data=data
    )
    if before is not None:
        _close(tx, before, occasion, state)
    return [_begin(tx, schedule, waiting, occasion, None)]


def _begin(
    tx: Tx, schedule: Schedule, waiting: Row, occasion: Occasion, superseded: str | None
) -> str:
    """Open the run that has waited for the one before; return its session."""
    begun = Occasion(
        schedule=schedule,
        fire=waiting["id"],
        due=waiting["due"],
        now=occasion.now,
        cause=waiting["cause"],
        data=occasion.data,
        notes=(_SUPERSEDES if superseded else _WAITED,),
    )
    return open_run(tx, begun)


def _close(tx: Tx, before: Row, occasion: Occasion, state: str) -> str | None:
    """End the run before, which waits for a person or its next try; return it when stopped.

    One that is over without a word has failed.
    """
    if state == "parked":
        stop = Post(
            kind="stop", key=f"supersede:{occasion.fire}", by="clock", body={"reason": "superseded"}
        )
        sessions.post(tx, sessions.get(tx, before["session_id"]), stop, occasion.now)
        note = f"it still waited for an answer when the run of {occasion.when} began"
        runs.finish(tx, before, "superseded", note, occasion.now)
        return str(before["session_id"])
    note = "it ended without a result"
    if state == "retrying":
        note = f"it ended with an error, and was not tried again: the run of {occasion.when} began"
    runs.finish(tx, before, "failed", note, occasion.now)
    return None


def _skip(tx: Tx, occasion: Occasion, note: str, subject: str) -> Fired | None:
    """Leave this due time out and say so; a person who asked for the run is told by the answer."""
    schedule = occasion.schedule
    if not _note(tx, occasion, "skipped", note):
        return None
    text = f"The run of '{schedule.title}' due {occasion.when} was skipped: {note}."
    if occasion.cause == "event":
        _tell_of_many(tx, occasion, text)
    elif occasion.cause != "manual":
        tell_owner(tx, schedule, subject, text, occasion.now)
    return Fired(
        schedule=schedule, fire=occasion.fire, due=occasion.due, status="skipped", note=note
    )


def _tell_of_many(tx: Tx, occasion: Occasion, text: str) -> None:
    """Tell of an event that started nothing, once while nobody has seen it: they come in crowds."""
    schedule = occasion.schedule
    subject = f"skipped:{schedule.id}"
    if tx.one("notice_open", tenant=schedule.tenant, prefix=f"{subject}/%") is None:
        text += f" Further ones are only in /schedule history {schedule.id}."
        tell_owner(tx, schedule, f"{subject}/{occasion.fire}", text, occasion.now)


def _note(tx: Tx, occasion: Occasion, status: str, note: str = "") -> bool:
    """Write down what became of the occasion; False: that was done before."""
    return _record(
        tx,
        occasion.schedule,
        occasion.fire,
        occasion.due,
        occasion.now,
        status,
        occasion.cause,
        note,
        occasion.event,
    )


def _record(
    tx: Tx,
    schedule: Schedule,
    fire_id: str,
    due: float,
    now: float,
    status: str,
    cause: str,
    note: str = "",
    event: str = "",
) -> bool:
    return bool(
        tx.run(
            "fire_add",
            id=fire_id,
            tenant=schedule.tenant,
            schedule=schedule.id,
            due=due,
            now=now,
            status=status,
            cause=cause,
            note=note,
            event=event,
        )
    )
