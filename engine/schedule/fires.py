"""Fires a schedule: the claim, the run's session and its first mail, all in one transaction.

A due time is fired once, whoever looks: the claim changes `next_at`, and `fires` is unique by
schedule and due time. Firing never waits for a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from engine import audit, grants, sessions
from engine.clock import mint
from engine.errors import ScheduleError
from engine.schedule.cron import in_zone, zone_of
from engine.schedule.schedules import Schedule, get, schedule_from, tell_owner
from engine.sessions import Post, session_from
from engine.store.base import Row, Tx
from engine.targets import ThreadTarget

__all__ = ["Fired", "fail", "fire", "run_now"]

#: Later than this, seconds, a due time was missed; the run is a catch-up and says so.
LATE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """What became of one due time."""

    schedule: Schedule
    fire: str
    due: float
    #: started, skipped
    status: str
    #: Why it was skipped.
    note: str = ""
    #: The session of the run, to be woken.
    session: str | None = None
    #: The session of the run before, which was stopped for this one and is to be woken too.
    superseded: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Occasion:
    """Why and when a run comes about."""

    schedule: Schedule
    fire: str
    due: float
    now: float
    #: schedule, catch-up, manual
    trigger: str
    #: The data folder, where the run gets a folder of its own.
    data: Path
    #: Further due times passed meanwhile.
    more: bool = False


def fire(tx: Tx, schedule_id: str, due: float, now: float, *, data: Path) -> Fired | None:
    """Fire what came due at `due`; None when another has done it or the schedule is gone or off.

    The next due time is counted from `now`, so what was missed leads to one run, never a burst.
    Raises ScheduleError when the stored line or zone no longer can be.
    """
    row = tx.one("schedule_get", id=schedule_id)
    if row is None:
        return None
    schedule = schedule_from(row)
    if not _claim(tx, schedule, due, schedule.when.next_after(max(now, due)), now):
        return None
    late, following = now - due > LATE, schedule.when.next_after(due)
    occasion = _Occasion(
        schedule=schedule,
        fire=mint("f"),
        due=due,
        now=now,
        trigger="catch-up" if late else "schedule",
        data=data,
        more=late and following is not None and following <= now,
    )
    if late and schedule.catch_up == "skip":
        subject = f"missed:{schedule.id}:{due:.0f}"
        return _skip(tx, occasion, "Nod was not running at that time", subject)
    return _run(tx, occasion)


def run_now(tx: Tx, schedule_id: str, now: float, *, data: Path) -> Fired:
    """Run the schedule now, as a person asked for; its due times stay as they are.

    The overlap rule holds: `status` is 'skipped' when the run before is still at work. Raises
    ScheduleError when there is none of that id.
    """
    occasion = _Occasion(
        schedule=get(tx, schedule_id),
        fire=mint("f"),
        due=now,
        now=now,
        trigger="manual",
        data=data,
    )
    fired = _run(tx, occasion)
    if fired is None:
        raise ScheduleError("This schedule was started this very moment.", "Wait for that run.")
    return fired


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
    _record(tx, schedule, mint("f"), due, now, "failed", cause)
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


def _run(tx: Tx, occasion: _Occasion) -> Fired | None:
    schedule = occasion.schedule
    before = tx.one("fire_at_work", schedule=schedule.id)
    state = "" if before is None else _state_of(tx, before["session_id"])
    if before is not None and state == "at work":
        note = f"the run of {in_zone(before['due'], schedule.zone)} was still at work"
        return _skip(tx, occasion, note, f"overlap:{before['id']}")
    if not _record(tx, schedule, occasion.fire, occasion.due, occasion.now, "started"):
        return None
    if before is not None:
        _close(tx, before, occasion, parked=state == "parked")
    superseded = str(before["session_id"]) if before is not None and state == "parked" else None
    session = _open(tx, occasion, superseded=superseded is not None)
    return Fired(
        schedule=schedule,
        fire=occasion.fire,
        due=occasion.due,
        status="started",
        session=session,
        superseded=superseded,
    )


def _state_of(tx: Tx, session_id: str) -> str:
    """Say how the run before stands: 'at work', 'parked' or 'over'."""
    row = tx.one("session_get", id=session_id)
    if row is None:
        return "over"
    if row["worker"] is not None or row["wanted"] > row["seen"]:
        return "at work"
    return "parked" if row["turn_seq"] else "over"


def _close(tx: Tx, before: Row, occasion: _Occasion, *, parked: bool) -> None:
    """Stop the run before, which waits for a person; one that is over without a word has failed."""
    if not parked:
        note = "it ended without a result"
        tx.run("fire_ended", id=before["id"], status="failed", note=note, now=occasion.now)
        return
    stop = Post(
        kind="stop", key=f"supersede:{occasion.fire}", by="clock", body={"reason": "superseded"}
    )
    sessions.post(tx, sessions.get(tx, before["session_id"]), stop, occasion.now)
    note = f"it still waited for an answer when the run of {_when(occasion)} began"
    tx.run("fire_ended", id=before["id"], status="superseded", note=note, now=occasion.now)


def _skip(tx: Tx, occasion: _Occasion, note: str, subject: str) -> Fired | None:
    """Leave this due time out and say so; a person who asked for the run is told by the answer."""
    schedule = occasion.schedule
    if not _record(tx, schedule, occasion.fire, occasion.due, occasion.now, "skipped", note):
        return None
    if occasion.trigger != "manual":
        text = f"The run of '{schedule.title}' due {_when(occasion)} was skipped: {note}."
        tell_owner(tx, schedule, subject, text, occasion.now)
    return Fired(
        schedule=schedule, fire=occasion.fire, due=occasion.due, status="skipped", note=note
    )


def _record(
    tx: Tx, schedule: Schedule, fire_id: str, due: float, now: float, status: str, note: str = ""
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
            note=note,
        )
    )


def _open(tx: Tx, occasion: _Occasion, *, superseded: bool) -> str:
    """Open the run's own session and post what it has to do; return its id."""
    schedule = occasion.schedule
    home = _home(tx, occasion)
    day = in_zone(occasion.due, schedule.zone).partition(",")[0]
    session = sessions.open_session(
        tx,
        tenant=schedule.tenant,
        home=home,
        owner=schedule.owner,
        origin="schedule",
        persona=schedule.persona,
        model=schedule.model,
        mode="interactive",
        data=occasion.data,
        now=occasion.now,
        roots=grants.given_folders(tx, schedule.tenant, grants.of_schedule(schedule.id)),
        title=f"{schedule.title}, {day}",
        route=home != schedule.home,
    )
    tx.run("fire_opened", id=occasion.fire, session=session)
    _audit(tx, occasion, session)
    row = tx.one("session_get", id=session)
    assert row is not None, "a session that was just opened is there"
    sessions.post(tx, session_from(row), _mail(occasion, superseded), occasion.now)
    return session


def _home(tx: Tx, occasion: _Occasion) -> str:
    """Return where the run speaks: a thread of its own on the console, else the schedule's home.

    On a chat platform a thread begins with a message, so there the first delivery makes it.
    """
    schedule = occasion.schedule
    if ThreadTarget.parse(schedule.home).surface != "console":
        return schedule.home
    at = datetime.fromtimestamp(occasion.due, zone_of(schedule.zone))
    thread = f"console:{schedule.id}-{at:%Y%m%d-%H%M}"
    n = 1
    while sessions.find_thread(tx, schedule.tenant, thread if n == 1 else f"{thread}-{n}"):
        n += 1  # run by hand in the same minute, or in an hour that the clock shows twice
    return thread if n == 1 else f"{thread}-{n}"


def _audit(tx: Tx, occasion: _Occasion, session: str) -> None:
    entry = audit.Entry(
        kind="fired",
        actor=occasion.schedule.owner if occasion.trigger == "manual" else "clock",
        rule=occasion.trigger,
        subject=occasion.schedule.id,
        outcome=occasion.fire,
    )
    audit.append(tx, occasion.schedule.tenant, session, [entry], occasion.now)


def _mail(occasion: _Occasion, superseded: bool) -> Post:
    schedule = occasion.schedule
    source = {
        "schedule": schedule.id,
        "fire": occasion.fire,
        "due": occasion.due,
        "trigger": occasion.trigger,
    }
    text = f"{schedule.instructions}\n\n{_circumstances(occasion, superseded)}"
    return Post(
        kind="fire",
        key=f"fire:{schedule.id}:{occasion.due:.3f}".removesuffix(".000"),
        by=schedule.owner,
        body={"message": {"role": "user", "content": text}, "source": source},
    )


def _circumstances(occasion: _Occasion, superseded: bool) -> str:
    """Say what run this is, and where it reports."""
    schedule = occasion.schedule
    name = f"'{schedule.title}'"
    if occasion.trigger == "manual":
        lines = [f"This is a run of {name} that was started by hand at {_when(occasion)}."]
    else:
        lines = [f"This is the scheduled run of {name}, due {_when(occasion)}."]
    if occasion.trigger == "catch-up":
        began = in_zone(occasion.now, schedule.zone)
        lines.append(f"It is a catch-up run: it begins late, at {began}. Say so in your answer.")
    if occasion.more:
        lines.append("It stands for all due times that were missed since; they are not made up.")
    if superseded:
        lines.append("The run before it still waited for an answer and was stopped for this one.")
    lines.append("Do it now. Nobody is watching; what needs a nod waits for one.")
    if schedule.report_to:
        lines.append(f"report to: {schedule.report_to}")
    return "\n".join(lines)


def _when(occasion: _Occasion) -> str:
    return f"{in_zone(occasion.due, occasion.schedule.zone)} ({occasion.schedule.zone})"
