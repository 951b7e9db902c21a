"""The commands as Discord lists them, and what it offers while one is typed. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bot.board import Page
from bot.commands import COMMANDS, Command
from engine.canonical import clean
from engine.permissions.base import Mode

__all__ = ["arguments_of", "commands", "focused", "offers"]

#: https://discord.com/developers/docs/interactions/application-commands
DESCRIPTION, CHOICES, CHOICE = 100, 25, 100

#: The one option of a command: all its words.
OPTION = "words"

_TEXT = 3
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
        made["options"] = [{**option, "required": command.least > 0, "autocomplete": True}]
    return made


def arguments_of(data: Mapping[str, Any]) -> str:
    """Return what was typed behind a command."""
    return " ".join(str(each.get("value", "")) for each in data.get("options", ()))


def focused(data: Mapping[str, Any]) -> str:
    """Return what was typed so far, of the option that is being typed."""
    typed = (each.get("value", "") for each in data.get("options", ()) if each.get("focused"))
    return str(next(typed, ""))


def offers(name: str, typed: str, page: Page | None) -> list[dict[str, str]]:
    """Return what may be meant, for somebody with this board; the value is all the words."""
    word, space, rest = typed.partition(" ")
    if page is None or (space and name not in _OF_CARDS):
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


def _chosen(found: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    fitting: Sequence[tuple[str, str]] = [each for each in found if 0 < len(each[0]) <= CHOICE]
    return [{"name": _cut(told, CHOICE), "value": value} for value, told in fitting[:CHOICES]]


def _cut(text: str, most: int) -> str:
    text = clean(text).strip() or "…"
    return text if len(text) <= most else f"{text[: most - 1]}…"
