"""The commands as Discord lists them, and what it offers while one is typed. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bot.board import Page
from bot.commands.table import COMMANDS, Command
from engine.canonical import clean
from engine.errors import ScheduleError
from engine.permissions.base import Mode
from engine.schedule import proposals
from engine.schedule.cron import known_zones

__all__ = ["arguments_of", "commands", "focused", "offers"]

#: https://discord.com/developers/docs/interactions/application-commands
DESCRIPTION, CHOICES, CHOICE = 100, 25, 100

#: The one option of most commands: all their words.
OPTION = "words"

#: Kinds of options, and of channels that a schedule may report to: text and announcements.
#: https://discord.com/developers/docs/interactions/application-commands#application-command-object-application-command-option-type
_TEXT, _CHANNEL = 3, 7
_REPORTED = (0, 5)
#: The fields of commands that need not be typed as words.
_FIELDS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "schedule": (
        {
            "type": _TEXT,
            "name": "when",
            "description": "every weekday at 8; tomorrow 17:30; in 2 hours; 0 8 * * 1-5",
            "autocomplete": True,
        },
        {"type": _TEXT, "name": "instructions", "description": "What to do then"},
        {
            "type": _CHANNEL,
            "name": "report_to",
            "description": "The channel its runs report to; without it, here",
            "channel_types": list(_REPORTED),
        },
    )
}
#: What is offered before anything was typed.
_TIMES = (
    "every weekday at 8",
    "every day at 9",
    "every monday at 10",
    "tomorrow 9:00",
    "in 2 hours",
    "every hour",
)
_SETTINGS = ("zone ", "name #", "mention on", "mention off")
#: What a schedule's command can do with one that is there.
_OF_SCHEDULES = ("show", "run", "pause", "resume", "history", "edit", "remove")
#: Commands whose first word is the id of a card.
_OF_CARDS = frozenset({"inbox", "approve", "deny", "answer", "edit"})


def commands() -> list[dict[str, Any]]:
    """Return every command of the one table, as Discord takes them, for servers and DMs."""
    return [_command(each) for each in COMMANDS.values()]


def _command(command: Command) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": command.name,
        "type": 1,
        "description": _cut(command.help, DESCRIPTION),
        "contexts": [0, 1],
        "integration_types": [0],
    }
    if command.most != 0:
        option = {"type": _TEXT, "name": OPTION, "description": _cut(command.usage, DESCRIPTION)}
        words = {**option, "required": command.least > 0, "autocomplete": True}
        made["options"] = [*_FIELDS.get(command.name, ()), words]
    return made


def arguments_of(data: Mapping[str, Any], place: Callable[[str], str]) -> str:
    """Return what was typed behind a command; fields become the words they stand for.

    `place` names a channel by its id, as words do.
    """
    given = {str(each.get("name")): str(each.get("value", "")) for each in data.get("options", ())}
    if not (given.keys() - {OPTION}):
        return given.get(OPTION, "")
    where = f" to {place(given['report_to'])}" if "report_to" in given else ""
    return f"{given.get('when', '')}: {given.get('instructions', '')}{where}"


def focused(data: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name of the option that is being typed, and what was typed so far."""
    for each in data.get("options", ()):
        if each.get("focused"):
            return str(each.get("name")), str(each.get("value", ""))
    return OPTION, ""


def offers(
    name: str, option: str, typed: str, page: Page | None, now: float
) -> list[dict[str, str]]:
    """Return what may be meant, for somebody with this board; the value is all the words."""
    word, space, rest = typed.partition(" ")
    if page is None:
        return []
    if name == "schedule":
        found = _times(typed, page.zone, now) if option == "when" else _planned(typed, page)
        return _chosen(found)
    if name == "settings":
        return _chosen(_settings(typed))
    if space and name not in _OF_CARDS:
        return []
    if name == "mode":
        return _chosen((str(mode), str(mode)) for mode in Mode if str(mode).startswith(typed))
    if name not in _OF_CARDS:
        return []
    asked = [
        (row.prompt, f"{row.prompt} · {card.title}") for card in page.cards for row in card.rows
    ]
    found = [(prompt, told) for prompt, told in asked if word.casefold() in told.casefold()]
    return _chosen((f"{prompt}{space}{rest}", told) for prompt, told in found)


def _times(typed: str, zone: str, now: float) -> Iterable[tuple[str, str]]:
    """Yield times that are understood, each with what it means."""
    wanted = " ".join(typed.split()).casefold()
    for each in (typed, *(time for time in _TIMES if wanted in time)):
        try:
            when = proposals.read(each, zone, now)[0]
        except ScheduleError:  # not whole yet
            continue
        yield each, f"{each} · {when}"


def _settings(typed: str) -> Iterable[tuple[str, str]]:
    """Yield what can be set; time zones by any part of their names."""
    verb, space, rest = typed.partition(" ")
    if verb == "zone" and space:
        wanted = rest.replace(" ", "_").casefold()
        known = [each for each in known_zones() if "/" in each or each == "UTC"]
        yield from ((f"zone {each}", each) for each in known if wanted in each.casefold())
    else:
        yield from ((each, each) for each in _SETTINGS if each.startswith(typed))


def _planned(typed: str, page: Page) -> Iterable[tuple[str, str]]:
    """Yield what can be done with the schedules that are there."""
    verb, space, start = typed.partition(" ")
    if not space:
        yield from ((each, each) for each in ("list", *_OF_SCHEDULES) if each.startswith(verb))
    elif verb in _OF_SCHEDULES and " " not in start:
        ids = {line.partition(" ")[0]: " ".join(line.split()) for line in page.schedules}
        wanted = start.casefold()
        yield from (
            (f"{verb} {id}", f"{verb} {told}")
            for id, told in ids.items()
            if wanted in told.casefold()
        )


def _chosen(found: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    fitting: Sequence[tuple[str, str]] = [each for each in found if 0 < len(each[0]) <= CHOICE]
    return [{"name": _cut(told, CHOICE), "value": value} for value, told in fitting[:CHOICES]]


def _cut(text: str, most: int) -> str:
    text = clean(text).strip() or "…"
    return text if len(text) <= most else f"{text[: most - 1]}…"
