"""Under which rules a schedule's runs begin and end, and how people write those rules. Pure.

Strict like the times: a clause that is not surely understood is refused, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from engine.errors import ScheduleError, Unclear
from engine.schedule.cron import zone_of
from engine.schedule.words import time_of_day

__all__ = [
    "DEFAULT",
    "DELAYS",
    "RETRIES",
    "WAITING",
    "Policy",
    "Quiet",
    "clause",
    "length",
    "split",
]

#: Runs of one schedule that may wait for the one before; also the missed times made up by `all`.
WAITING = 12
#: Seconds before each further try of a run that ended with an error; as many as there can be.
DELAYS = (60.0, 300.0, 900.0, 1800.0, 3600.0)
RETRIES = len(DELAYS)
#: Seconds at work a deadline allows, least and most.
DEADLINE_LEAST, DEADLINE_MOST = 60.0, 86_400.0

_DAY = 24 * 60  # minutes

_EXAMPLES = (
    "Write for example: every weekday at 8, catch up all, queue, deadline 30 min, retry 3, "
    "quiet 22:00-7:00. Or: catch up skip, overlap skip, no deadline, no retry, no quiet."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """Hours of each day in which no run begins, by the clock of the schedule's zone."""

    #: Minutes since midnight as the clock shows them; the end is not quiet any more.
    start: int
    end: int

    @classmethod
    def parse(cls, text: str) -> Quiet | None:
        """Return what `str` of it gave; None for an empty text."""
        if not text:
            return None
        start, end = (int(each[:2]) * 60 + int(each[3:]) for each in text.split("-"))
        return cls(start=start, end=end)

    def __str__(self) -> str:
        return "-".join(f"{each // 60:02}:{each % 60:02}" for each in (self.start, self.end))

    def holds(self, at: float, zone: str) -> bool:
        """Say whether `at`, epoch seconds, lies in these hours."""
        shown = datetime.fromtimestamp(at, zone_of(zone))
        minute = shown.hour * 60 + shown.minute
        if self.start < self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end

    def ends(self, at: float, zone: str) -> float:
        """Return the first whole minute after `at` that is not quiet, epoch seconds.

        Walked through the minutes that really pass, so a change of the clocks needs no rule.
        """
        moment = at - at % 60 + 60
        while self.holds(moment, zone):
            moment += 60
        return moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is done about runs that were missed, overlap, take long, fail, or come at night."""

    #: What to do about times that passed while Nod was not running: once (one run for all of
    #: them), skip, all (a run for each, one after another).
    catch_up: str = "once"
    #: What to do while the run before is still at work: skip, queue.
    overlap: str = "skip"
    #: Seconds at work after which a run is stopped; None: no limit. Waiting does not count.
    deadline: float | None = None
    #: How often a run that ended with an error is tried again.
    retries: int = 0
    quiet: Quiet | None = None

    def delay(self, tries: int) -> float | None:
        """Return the seconds before the next try after `tries` further ones; None: no more."""
        return DELAYS[tries] if tries < self.retries else None

    def begins(self, at: float, zone: str) -> float:
        """Return when a run that is due at `at` begins: then, or at the end of quiet hours."""
        quiet = self.quiet
        return quiet.ends(at, zone) if quiet is not None and quiet.holds(at, zone) else at

    def __str__(self) -> str:
        """Return the clauses that say what differs from the default, as `split` reads them."""
        said = [f"catch up {self.catch_up}"] if self.catch_up != "once" else []
        said += ["queue"] if self.overlap == "queue" else []
        said += [f"deadline {length(self.deadline)}"] if self.deadline is not None else []
        said += [f"retry {self.retries}"] if self.retries else []
        said += [f"quiet {self.quiet}"] if self.quiet is not None else []
        return ", ".join(said)

    def told(self) -> list[tuple[str, str]]:
        """Return what holds, as (label, sentence) lines; each rule is there, set or not."""
        return [
            ("Unattended", "always; what needs a nod waits for one"),
            ("Missed while Nod was down", _CATCH_UP[self.catch_up]),
            ("Due while a run is at work", _OVERLAP[self.overlap]),
            ("Deadline", _deadline(self.deadline)),
            ("After an error", _again(self.retries)),
            ("Quiet hours", _quiet(self.quiet)),
        ]


#: What holds when nothing was said.
DEFAULT = Policy()

_CATCH_UP = {
    "once": "one run makes up for all of it, and says so",
    "skip": "left out, and said so",
    "all": f"each is made up, the oldest first, one after another; the last {WAITING} at most",
}
_OVERLAP = {
    "skip": "left out, and said so; a run that waits for a person is stopped for it",
    "queue": f"waits until that run has ended, {WAITING} at most; a run that waits for a person "
    "is stopped for the next",
}


def _deadline(seconds: float | None) -> str:
    if seconds is None:
        return "none"
    return f"stopped after {length(seconds)} at work; waiting for a person does not count"


def _again(retries: int) -> str:
    if not retries:
        return "not tried again"
    after = ", ".join(length(each) for each in DELAYS[:retries])
    return f"tried again after {after}; what it has done is not repeated"


def _quiet(quiet: Quiet | None) -> str:
    return "none" if quiet is None else f"{quiet}: what comes due waits until their end, as one run"


def length(seconds: float) -> str:
    """Return a length of time in whole minutes or hours: '30 min', '2 h'."""
    minutes = round(seconds / 60)
    return f"{minutes // 60} h" if minutes % 60 == 0 and minutes else f"{minutes} min"


# -- as people write it

_OPENS = re.compile(
    r"(?:no )?(?:catch|missed|queue|skip|overlap|deadline|retry|retries|quiet)\b", re.A
)
_TIME = r"\d{1,2}(?::\d\d)?(?: ?[ap]m)?"


def split(said: str) -> tuple[str, dict[str, Any]]:
    """Return the time in `said`, and the fields of a Policy that its clauses set.

    The clauses come last, each after a comma. Raises ScheduleError for one that is not surely
    understood, or comes twice.
    """
    parts = [part.strip() for part in re.split(r"[,;]", said)]
    first = next((n for n, part in enumerate(parts) if _OPENS.match(part.lower())), len(parts))
    fields: dict[str, Any] = {}
    for part in parts[first:]:
        name, value = clause(part)
        if name in fields:
            raise ScheduleError(f"'{part}' says a second time what holds.", "Say it once.")
        fields[name] = value
    return ", ".join(parts[:first]), fields


def clause(said: str) -> tuple[str, Any]:
    """Return the field of a Policy that one clause sets, and its value.

    Raises ScheduleError when the clause is none, or its value cannot be.
    """
    text = " ".join(said.lower().split())
    for pattern, field, value in _CLAUSES:
        if found := re.fullmatch(pattern, text, re.A):
            return field, value(found)
    raise Unclear(f"I do not surely understand '{said.strip()[:80]}'.", _EXAMPLES)


def _seconds(found: re.Match[str]) -> float:
    seconds = int(found[1]) * (3600.0 if found[2].startswith("h") else 60.0)
    if not DEADLINE_LEAST <= seconds <= DEADLINE_MOST:
        raise ScheduleError(
            f"'{found[0]}' is out of range.",
            f"Write {length(DEADLINE_LEAST)} to {length(DEADLINE_MOST)}.",
        )
    return seconds


def _tries(found: re.Match[str]) -> int:
    if int(found[1]) > RETRIES:
        raise ScheduleError(f"'{found[0]}' is out of range.", f"Write 0 to {RETRIES}.")
    return int(found[1])


def _hours(found: re.Match[str]) -> Quiet:
    (hour, minute), (until, last) = time_of_day(found[1]), time_of_day(found[2])
    quiet = Quiet(start=hour * 60 + minute, end=until * 60 + last)
    if quiet.start == quiet.end:
        raise ScheduleError(
            f"'{found[0]}' leaves no time, or all of it.", "Write for example: quiet 22:00-7:00."
        )
    return quiet


def _word(found: re.Match[str]) -> str:
    return found[1]


_CLAUSES: tuple[tuple[str, str, Callable[[re.Match[str]], Any]], ...] = (
    (r"(?:catch[ -]?up|missed(?: runs)?) (once|skip|all)", "catch_up", _word),
    (r"(?:overlap )?(queue)", "overlap", _word),
    (r"overlap (skip)", "overlap", _word),
    (r"deadline (\d{1,4}) ?(m|min|minutes?|h|hours?)", "deadline", _seconds),
    (r"no deadline|deadline none", "deadline", lambda found: None),
    (r"retry (\d{1,3})(?: times?)?", "retries", _tries),
    (r"no retry|no retries|retry none", "retries", lambda found: 0),
    (rf"quiet(?: hours)? ({_TIME}) ?(?:-|–|to) ?({_TIME})", "quiet", _hours),
    (r"no quiet(?: hours)?|quiet none", "quiet", lambda found: None),
)
