"""Opens the session of a run, and tells it what run it is, why it comes now, where it reports."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from engine import audit, grants, sessions
from engine.schedule import named
from engine.schedule.cron import in_zone, zone_of
from engine.schedule.named import NamedEvent
from engine.schedule.schedules import Schedule
from engine.sessions import Post, session_from
from engine.store.base import Tx
from engine.targets import ThreadTarget

__all__ = ["Occasion", "open_run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """Why and when a run comes about."""

    schedule: Schedule
    fire: str
    due: float
    now: float
    #: schedule, catch-up, manual, event
    cause: str
    #: The data folder, where the run gets a folder of its own.
    data: Path
    #: Sentences about what led to it, beyond its cause.
    notes: tuple[str, ...] = ()
    #: The event that led to it; empty: none did.
    event: str = ""

    @property
    def when(self) -> str:
        """When it was due, as the clock of its zone shows it."""
        return f"{in_zone(self.due, self.schedule.zone)} ({self.schedule.zone})"


def open_run(tx: Tx, occasion: Occasion) -> str:
    """Open the run's own session, post what it has to do, and return its id.

    Its fire has been written; it is marked as started.
    """
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
    tx.run("fire_opened", id=occasion.fire, session=session, now=occasion.now)
    _audit(tx, occasion, session)
    row = tx.one("session_get", id=session)
    assert row is not None, "a session that was just opened is there"
    fire = tx.one("fire_get", id=occasion.fire)
    came = named.get(tx, fire["event_id"]) if fire is not None and fire["event_id"] else None
    sessions.post(tx, session_from(row), _mail(occasion, came), occasion.now)
    return session


def _home(tx: Tx, occasion: Occasion) -> str:
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


def _audit(tx: Tx, occasion: Occasion, session: str) -> None:
    entry = audit.Entry(
        kind="fired",
        actor=occasion.schedule.owner if occasion.cause == "manual" else "clock",
        rule=occasion.cause,
        subject=occasion.schedule.id,
        outcome=occasion.fire,
    )
    audit.append(tx, occasion.schedule.tenant, session, [entry], occasion.now)


def _mail(occasion: Occasion, came: NamedEvent | None) -> Post:
    schedule = occasion.schedule
    source: dict[str, Any] = {
        "schedule": schedule.id,
        "fire": occasion.fire,
        "due": occasion.due,
        "trigger": occasion.cause,
    }
    text = f"{schedule.instructions}\n\n{_circumstances(occasion)}"
    if came is not None:
        text = f"{text}\n\n{named.quoted(came)}"
        source |= {"taint": came.taint} if came.taint else {}
    return Post(
        kind="fire",
        key=f"fire:{schedule.id}:{occasion.due:.3f}".removesuffix(".000"),
        by=schedule.owner,
        body={"message": {"role": "user", "content": text}, "source": source},
    )


def _circumstances(occasion: Occasion) -> str:
    """Say what run this is, and where it reports."""
    schedule = occasion.schedule
    name = f"'{schedule.title}'"
    if occasion.cause == "manual":
        lines = [f"This is a run of {name} that was started by hand at {occasion.when}."]
    elif occasion.cause == "event":
        lines = [f"This is a run of {name}, because an event came at {occasion.when}."]
    else:
        lines = [f"This is the scheduled run of {name}, due {occasion.when}."]
    if occasion.cause == "catch-up":
        began = in_zone(occasion.now, schedule.zone)
        lines.append(f"It is a catch-up run: it begins late, at {began}. Say so in your answer.")
    lines += occasion.notes
    lines.append("Do it now. Nobody is watching; what needs a nod waits for one.")
    if schedule.report_to:
        lines.append(f"report to: {schedule.report_to}")
    return "\n".join(lines)
