"""Lays cards and forms out as Discord's components, and reads filled forms. Does no I/O.

A button's custom_id is `nod:<act>:<token>`, so it works after any restart: nothing is kept for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bot.cards import Button, Card, Row
from bot.forms import Field, Form
from bot.render.discord import render
from engine.canonical import clean, digest

__all__ = ["FILLED", "FORM", "PRESS", "act_of", "components", "mark_of", "modal", "values"]

#: What a custom_id does: presses, opens a form, comes from a filled form.
PRESS, FORM, FILLED = "p", "f", "m"

#: Limits of one message and one modal.
#: https://discord.com/developers/docs/components/reference
COMPONENTS, TEXT, IN_ROW = 40, 4000, 5
LABEL, CUSTOM_ID = 80, 100
FIELDS, TITLE, FIELD_LABEL, VALUE, OPTIONS, OPTION = 5, 45, 45, 4000, 25, 100

_ACTION_ROW, _BUTTON, _SELECT, _INPUT = 1, 2, 3, 4
_TEXT, _CONTAINER, _LABELLED = 10, 17, 18
#: Rows of a card up to which all looks are offered.
_FEW = 3
#: Rows that are named where there is no room for them.
_NAMED = 10
_STYLES = {"yes": 3, "no": 4, "plain": 2}
_CUSTOM = re.compile(r"nod:([pfm]):([A-Za-z0-9_-]{1,64})")

Component = dict[str, Any]


def act_of(custom_id: str) -> tuple[str, str]:
    """Return what a custom_id of ours does, and its token; two empty texts: it is none."""
    found = _CUSTOM.fullmatch(custom_id)
    return (found[1], found[2]) if found else ("", "")


def mark_of(delivery: str) -> int:
    """Return the number by which a card's container tells its delivery (32 bits, signed)."""
    return int(digest(delivery)[:8], 16) & 0x7FFFFFFF or 1


def components(card: Card, text: str, footer: str, mark: int) -> list[Component]:
    """Return the components that show a card, with a text above and a footer below it.

    `mark` tells the card in its history; 0: none. Rows beyond Discord's limits are named, and
    answered by their commands.
    """
    container: Component = {"type": _CONTAINER, "components": [], **({"id": mark} if mark else {})}
    inside: list[Component] = container["components"]
    room = _Room(left=TEXT, components=COMPONENTS - 5)  # container, title, text, footer, the rest
    for each in (text, f"**{card.title}**"):
        inside += [room.text(each, TEXT // 4)] if each.strip() else []
    foot = [room.raw(f"-# {_line(footer)}")] if footer else []
    alone = len(card.rows) == 1 and card.rows[0].title == card.title
    every = _in_rows([_button(each) for each in card.buttons])
    room.components -= sum(1 + len(each["components"]) for each in every)
    share = (room.left - 300) // max(1, len(card.rows))
    for number, row in enumerate(card.rows, 1):
        buttons = _in_rows(_buttons(row, len(card.rows)))
        if not room.takes(buttons):
            left = [f"`{each.prompt}`" for each in card.rows[number - 1 :]]
            named = ", ".join(left[:_NAMED]) + (", …" if len(left) > _NAMED else "")
            told = f"{len(left)} more, for which there is no room here: {named}. See `/inbox`."
            inside.append(room.text(told, 300))
            break
        name = "" if alone else _name(card, row, number)
        inside += [room.text(_words(row, name), share), *buttons]
    return [container, *every, *foot]


class _Room:
    """The room that is left in a message."""

    def __init__(self, *, left: int, components: int) -> None:
        self.left = left
        self.components = components

    def takes(self, buttons: Sequence[Component]) -> bool:
        """Take the room for a row, if there is any: its text, and its rows of buttons."""
        needed = 1 + sum(1 + len(each["components"]) for each in buttons)
        if needed > self.components or self.left < 300:
            return False
        self.components -= needed
        return True

    def text(self, text: str, most: int) -> Component:
        """Return a text in Discord's dialect, cut to `most` characters."""
        return self.raw(_fitted(clean(text), max(20, min(most, self.left))))

    def raw(self, text: str) -> Component:
        """Return a text that is in the dialect already."""
        self.left -= len(text)
        return {"type": _TEXT, "content": text}


def _fitted(text: str, most: int) -> str:
    pieces = render(text, most - 2) if most > 2 else []
    if not pieces:
        return "…"
    return pieces[0] if len(pieces) == 1 else f"{pieces[0]}\n…"


def _line(text: str) -> str:
    """Return a footer as one line; what it says is Nod's own words."""
    pieces = render(clean(text).replace("\n", " "), 280)
    return pieces[0].replace("\n", " ") if pieces else "…"


def _name(card: Card, row: Row, number: int) -> str:
    numbered = f"{number}. " if len(card.rows) > 1 else ""
    name = "" if row.title == card.title else f"**{row.title}** · "
    return f"{numbered}{name}"


def _words(row: Row, name: str) -> str:
    lines = [f"{name}`{row.prompt}`", *(f"{label}: {value}" for label, value in row.facts)]
    return "\n".join([*lines, *(part for part in (row.preview, row.decided) if part)])


def _buttons(row: Row, rows: int) -> list[Component]:
    """Return the buttons of a row; where rows are many, only the look that shows everything."""
    if row.decided:
        return []
    looks = row.looks if rows <= _FEW else [each for each in row.looks if each.answer == "full"]
    return [_button(each) for each in (*row.buttons, *looks)]


def _in_rows(buttons: Sequence[Component]) -> list[Component]:
    """Return buttons in Discord's rows: five stand in one."""
    return [
        {"type": _ACTION_ROW, "components": list(buttons[at : at + IN_ROW])}
        for at in range(0, len(buttons), IN_ROW)
    ]


def _button(button: Button) -> Component:
    return {
        "type": _BUTTON,
        "style": _STYLES[button.style],
        "label": _cut(clean(button.label), LABEL),
        "custom_id": f"nod:{FORM if button.asks else PRESS}:{button.token}",
    }


def _cut(text: str, most: int) -> str:
    text = text.strip() or "…"
    return text if len(text) <= most else f"{text[: most - 1]}…"


# -- forms


def modal(form: Form, token: str) -> Component:
    """Return a form as a modal; a field that does not fit is named, and stays as it is."""
    fitting = [field for field in form.fields if _fits(field)]
    most = FIELDS if len(fitting) == len(form.fields) <= FIELDS else FIELDS - 1
    shown, names = fitting[:most], [each.name for each in form.fields]
    left = [name for name in names if name not in {each.name for each in shown}]
    parts = [_labelled(field) for field in shown]
    if left or not parts:
        named = f"Not shown here, and left as it is: {', '.join(left)}." if left else form.full
        parts.append({"type": _TEXT, "content": _fitted(clean(named), 1000)})
    custom_id = f"nod:{FILLED}:{token}"
    return {"title": _cut(clean(form.title), TITLE), "custom_id": custom_id, "components": parts}


def _fits(field: Field) -> bool:
    choices = field.choices
    chosen = len(choices) <= OPTIONS and all(0 < len(each) <= OPTION for each in choices)
    return len(field.value) <= VALUE and chosen and 0 < len(field.name) <= CUSTOM_ID


def _labelled(field: Field) -> Component:
    choices = ("true", "false") if field.kind == "flag" else field.choices
    inside: Component = {"custom_id": field.name, "required": field.required}
    if choices:
        inside |= {"type": _SELECT, "min_values": int(field.required), "max_values": 1}
        inside["options"] = [
            {"label": each, "value": each, **({"default": True} if each == field.value else {})}
            for each in choices
        ]
    else:
        style = 2 if field.kind in ("long", "json") else 1
        style = 2 if "\n" in field.value else style
        inside |= {"type": _INPUT, "style": style, "max_length": VALUE}
        if field.value:
            inside["value"] = clean(field.value)
    return {"type": _LABELLED, "label": _cut(clean(field.label), FIELD_LABEL), "component": inside}


def values(submitted: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return what a submitted modal says, by the names of its fields."""
    found: dict[str, str] = {}
    for part in submitted:
        for each in (part.get("component"), *part.get("components", ())):
            if not each or "custom_id" not in each:
                continue
            chosen = each.get("values")
            said = each.get("value") if chosen is None else next(iter(chosen), "")
            found[str(each["custom_id"])] = str(said or "")
    return found
