"""Reads when work is to begin, as a person types it. Strict: what is not surely understood is
refused, never guessed. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from engine.errors import ScheduleError, Unclear
from engine.schedule.cron import in_words, in_zone, next_fire, parse, preview, zone_of

__all__ = ["EVENT", "JOB", "When", "for_all", "time_of_day", "understand"]

_EXAMPLES = "Write for example: every weekday at 8; tomorrow 17:30; in 2 hours; 0 8 * * 1-5."

DAY = 86_400.0  # seconds

#: How what stands in the place of a cron line begins when an event is waited for.
EVENT = "@event "
#: How the event that a background job has ended begins: it brings what the job printed.
JOB = "job:"

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SHORT = {day[:3]: day for day in _DAYS} | {"tues": "tuesday", "thurs": "thursday"}
_NUMBERS = {day: (at + 1) % 7 for at, day in enumerate(_DAYS)}  # as crontab counts: Sunday is 0
_GROUPS = {
    "day": "*",
    "weekday": "1-5",
    "working day": "1-5",
    "workday": "1-5",
    "weekend": "0,6",
    "weekend day": "0,6",
}
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4}

_TIME = r"(?:noon|\d{1,2}(?::\d\d)?(?: ?[ap]m)?)"
_CLEAR = r"(?:noon|\d{1,2}:\d\d(?: ?[ap]m)?|\d{1,2} ?[ap]m)"  # a time also without "at"
_AT = rf"(?:at (?P<at>{_TIME}(?:(?:,| and|, and) {_TIME})*)|(?P<bare>{_CLEAR}))"
_ONE = rf"(?:at (?P<at>{_TIME})|(?P<bare>{_CLEAR}))"
_CRON = re.compile(r"[\d*][\d*,/-]* [\d*][\d*,/-]*(?: [\w*,/#-]+){2,}", re.A)
_EVENT = re.compile(
    r"(?:@event|when|whenever|on event)(?: the event| event)? (?P<name>[a-z0-9][\w.:/-]{0,79})"
    r"(?: comes| fires| happens)?",
    re.A | re.I,
)
_ZONE = re.compile(r"(?P<rest>.+?),? (?:in )?(?P<zone>[A-Z]\w+(?:/[\w+-]+)+|UTC)", re.A)


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """A time that was understood: again and again by `cron`, or once at `once`.

    `@event NAME` in the place of a cron line is whenever that event comes.
    """

    zone: str
    cron: str = ""
    #: Epoch seconds; None: it comes again and again.
    once: float | None = None

    @property
    def event(self) -> str:
        """The event that it waits for; empty: it comes by the clock."""
        return self.cron.removeprefix(EVENT) if self.cron.startswith(EVENT) else ""

    def next_after(self, moment: float) -> float | None:
        """Return the first time later than `moment`, epoch seconds; None: there is none left, or
        nobody can know.

        Raises ScheduleError when the line or the zone no longer can be.
        """
        if self.event:
            return None
        if self.once is None:
            return next_fire(self.cron, self.zone, moment)
        return self.once if self.once > moment else None

    def latest(self, since: float, until: float, n: int) -> tuple[list[float], bool]:
        """Return the last `n` times from `since` to `until`, and whether there were more.

        Looks back in growing steps, so that a short rhythm over a long time costs little.
        """
        found: list[float] = []
        for span in (3600.0, DAY, 7 * DAY, 31 * DAY, 366 * DAY, until - since):
            start, found = max(since, until - span), []
            at = self.next_after(start - 1)
            while at is not None and at <= until:
                found.append(at)
                at = self.next_after(at)
            if len(found) >= n or start == since:
                break
        return found[-n:], len(found) > n or start > since

    def upcoming(self, moment: float, n: int = 3) -> list[str]:
        """Return the next `n` times as the clock there shows them."""
        if self.event:
            return []
        times = preview(self.cron, self.zone, moment, n) if self.once is None else [self.once]
        return [in_zone(each, self.zone) for each in times]

    def __str__(self) -> str:
        if self.event:
            return f"Whenever the event {self.event} comes"
        if self.once is None:
            return in_words(self.cron, self.zone)
        return f"Once, {in_zone(self.once, self.zone)} ({self.zone})"


def understand(text: str, zone: str, now: float) -> When:
    """Return what `text` says: a cron line, an alias, a rhythm or one moment in plain English.

    `zone` is meant where the text names none; `now` is in epoch seconds. Raises ScheduleError for
    what is not surely understood, cannot be, or is past, with examples or the present time.
    """
    said = " ".join(text.split()).strip(" .:,")
    if named := _ZONE.fullmatch(said):
        said, zone = named["rest"], named["zone"]
    place = zone_of(zone)
    if named := _EVENT.fullmatch(said):
        return When(zone=place.key, cron=f"{EVENT}{for_all(named['name'].lower())}")
    if said.startswith("@") or _CRON.fullmatch(said):
        return When(zone=place.key, cron=str(parse(said)))
    said = said.lower()
    if cron := _rhythm(said):
        return When(zone=place.key, cron=str(parse(cron)))
    moment = _moment(said, datetime.fromtimestamp(now, place))
    if moment is None:
        raise Unclear(f"I do not surely understand '{text.strip()[:80]}'.", _EXAMPLES)
    return When(zone=place.key, once=_ahead(moment, place.key, now))


def for_all(event: str) -> str:
    """Return the event's name; raises ScheduleError when only one session may wait for it."""
    if event.startswith(JOB):
        raise ScheduleError(
            f"{event} is the end of a job, which its own session may wait for.",
            "Ask for it in the thread that started the job.",
        )
    return event


# -- again and again


def _rhythm(said: str) -> str:
    """Return the cron line of a rhythm, or '' when it is none."""
    said = re.sub(r"^(at .+?) ((?:every|each|on) .+)$", r"\2 \1", said)
    said = re.sub(r"^each ", "every ", said)
    said = re.sub(r"^daily\b", "every day", said)
    said = re.sub(r"^(?:on )?(weekday|weekend|" + "|".join(_DAYS) + r")s\b", r"every \1", said)
    return _step(said) or _days(said) or _month_day(said) or _nth_day(said)


def _step(said: str) -> str:
    if said in ("hourly", "every hour"):
        return "0 * * * *"
    found = re.fullmatch(r"every (?:(\d+) )?(minute|hour)s?", said)
    if not found:
        return ""
    step, hours = int(found[1] or 1), found[2] == "hour"
    whole = 24 if hours else 60
    if not 1 <= step < whole or whole % step:
        raise ScheduleError(
            f"'{said}' does not fit evenly into {'a day' if hours else 'an hour'}.",
            f"Use a step that divides {whole}, or a cron line.",
        )
    star = "*" if step == 1 else f"*/{step}"
    return f"0 {star} * * *" if hours else f"{star} * * * *"


def _days(said: str) -> str:
    found = re.fullmatch(rf"every (?P<days>[a-z, ]+?) {_AT}", said)
    if not found:
        if re.fullmatch(r"every [a-z, ]+", said) and _weekdays(said.removeprefix("every ")):
            raise ScheduleError(f"'{said}' names no time of day.", f"Write: {said} at 8")
        return ""
    days = _weekdays(found["days"])
    return f"{_clock(found['at'] or found['bare'])} * * {days}" if days else ""


def _weekdays(said: str) -> str:
    if said in _GROUPS:
        return _GROUPS[said]
    names = re.split(r", and |, | and ", said)
    days = [_SHORT.get(name, name) for name in names]
    if not all(day in _NUMBERS for day in days):
        return ""
    return ",".join(str(number) for number in sorted({_NUMBERS[day] for day in days}))


_OF_MONTH = r"of (?:every|each|the) month"


def _month_day(said: str) -> str:
    number = r"(?P<day>last|\d{1,2})(?:st|nd|rd|th)?(?: day)?"
    forms = (
        rf"(?:every |on )?(?:the )?{number} {_OF_MONTH} {_AT}",
        rf"every month on the {number} {_AT}",
    )
    found = next(filter(None, (re.fullmatch(form, said) for form in forms)), None)
    if not found:
        return ""
    if found["day"] != "last" and int(found["day"]) > 28:
        raise ScheduleError(
            f"Not every month has a day {found['day']}.", "Write: the last day of the month at 8"
        )
    day = "l" if found["day"] == "last" else str(int(found["day"]))
    return f"{_clock(found['at'] or found['bare'])} {day} * *"


def _nth_day(said: str) -> str:
    found = re.fullmatch(
        rf"(?:every |on )?(?:the )?(?P<n>{'|'.join(_ORDINALS)}) (?P<day>[a-z]+) {_OF_MONTH} {_AT}",
        said,
    )
    day = _SHORT.get(found["day"], found["day"]) if found else ""
    if not found or day not in _NUMBERS:
        return ""
    weekday = f"{_NUMBERS[day]}#{_ORDINALS[found['n']]}"
    return f"{_clock(found['at'] or found['bare'])} * * {weekday}"


def _clock(said: str) -> str:
    """Return the minute and hour fields of one time or of several at the same minute."""
    times = [time_of_day(each) for each in re.split(r", and |, | and ", said)]
    minutes = {minute for _, minute in times}
    if len(minutes) > 1:
        raise ScheduleError(
            f"'{said}' has different minutes, which is no one cron line.", "Make two schedules."
        )
    return f"{minutes.pop()} {','.join(str(hour) for hour in sorted({h for h, _ in times}))}"


def time_of_day(said: str) -> tuple[int, int]:
    """Return hour and minute; raises ScheduleError when the clock never shows that."""
    if said == "noon":
        return 12, 0
    found = re.fullmatch(r"(\d{1,2})(?::(\d\d))? ?([ap]m)?", said)
    assert found is not None, "only what looks like a time is read as one"
    hour, minute, half = int(found[1]), int(found[2] or 0), found[3]
    if minute > 59 or hour > 23 or (half and not 1 <= hour <= 12):
        raise ScheduleError(f"'{said}' is no time of day.", "Write for example 8:30, 17:30 or 5pm.")
    return (hour % 12 + 12 * (half == "pm") if half else hour), minute


# -- once


def _moment(said: str, now: datetime) -> datetime | None:
    """Return the one moment that is meant, or None when the text says none."""
    if found := re.fullmatch(r"in (an?|\d{1,4}) (min|minute|hour|h|day|week)s?", said):
        return _later(now, 1 if found[1].startswith("a") else int(found[1]), found[2])
    found = re.fullmatch(rf"(?:(?P<day>today|tomorrow|(?:on )?[a-z]+|[\d-]+)[ t])?{_ONE}", said)
    if not found:
        return None
    day = _day(found["day"] or "today", now.date())
    if day is None:
        return None
    hour, minute = time_of_day(found["at"] or found["bare"])
    return datetime(day.year, day.month, day.day, hour, minute, tzinfo=now.tzinfo)


def _later(now: datetime, n: int, unit: str) -> datetime:
    """Hours and minutes really pass; after days the clock shows the same time."""
    if unit in ("day", "week"):
        return (now + timedelta(days=n * (7 if unit == "week" else 1))).replace(fold=0)
    step = timedelta(hours=n) if unit in ("hour", "h") else timedelta(minutes=n)
    return (now.astimezone(UTC) + step).astimezone(now.tzinfo)


def _day(said: str, today: date) -> date | None:
    said = said.removeprefix("on ")
    if said in ("today", "tomorrow"):
        return today + timedelta(days=said == "tomorrow")
    if re.fullmatch(r"\d{4}-\d\d-\d\d", said):
        try:
            return date.fromisoformat(said)
        except ValueError as error:
            raise ScheduleError(f"There is no day {said}.", "Write it as 2026-12-24.") from error
    day = _SHORT.get(said, said)
    if day not in _DAYS:
        return None
    ahead = (_DAYS.index(day) - today.weekday()) % 7
    if ahead == 0:
        raise ScheduleError(
            f"Today is {day.capitalize()}, so '{said}' may be today or in a week.",
            "Write today, or the date as 2026-12-24.",
        )
    return today + timedelta(days=ahead)


def _ahead(moment: datetime, zone: str, now: float) -> float:
    at, shown = moment.timestamp(), moment.strftime("%a %d %b %Y, %H:%M")
    if datetime.fromtimestamp(at, moment.tzinfo).replace(fold=0) != moment.replace(fold=0):
        raise ScheduleError(
            f"The clock in {zone} never shows {shown}: it is put forward then.",
            "Name another time.",
        )
    if at <= now:
        present = in_zone(now, zone)
        raise ScheduleError(
            f"{shown} is past: in {zone} it is now {present}.", "Name a later time."
        )
    return at
