"""Says how a message looks on Telegram: its texts, rich and as HTML, and its keyboard."""

from __future__ import annotations

import html
from dataclasses import dataclass, replace
from typing import Any

from bot import cards
from bot.cards import Button, Card, Row
from bot.render import telegram
from bot.render.measure import units
from bot.surfaces.base import Message, SurfaceError
from bot.surfaces.telegram_rich import rich

__all__ = ["CAPTION", "Look", "keyboard", "looks"]

#: Units of a caption after parsing: https://core.telegram.org/bots/api#senddocument
CAPTION = 1024
#: Bytes of a button's value: https://core.telegram.org/bots/api#inlinekeyboardbutton
VALUE = 64
#: Buttons of one message.
BUTTONS = 100
#: Buttons of a row, and characters of its labels, that a phone shows whole.
_ROW, _LABELS = 3, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One message as it is sent: rich, or else HTML, or else plain."""

    rich: str = ""
    html: str = ""
    plain: str = ""
    #: Its buttons, as the Bot API takes them.
    keyboard: dict[str, Any] | None = None


def looks(message: Message, *, is_rich: bool, limit: int = telegram.TEXT) -> list[Look]:
    """Return the messages that show `message`, in order; a card is always one.

    Args:
        is_rich: try rich messages; they hold more, and tables.
        limit: UTF-16 units of the first one, for a caption.
    """
    if message.card is not None:
        return [_card(message, message.card, is_rich=is_rich)]
    if is_rich:
        return [Look(rich=each) for each in _rich(message, message.text)]
    return _html(message, message.text, limit)


def _rich(message: Message, text: str) -> list[str]:
    parts = rich(text, growing=message.growing)
    if message.footer:
        footer = f"<footer>{html.escape(message.footer, quote=False)}</footer>"
        parts = [*parts[:-1], (parts[-1] if parts else "") + footer]
    return parts or ["<p>…</p>"]


def _html(message: Message, text: str, limit: int = telegram.TEXT) -> list[Look]:
    render = telegram.render_open if message.growing else telegram.render
    parts = [Look(html=each.html, plain=each.plain) for each in render(text, limit)]
    if message.footer:
        footer = Look(
            html=f"<i>{html.escape(message.footer, quote=False)}</i>", plain=message.footer
        )
        room = limit - units(message.footer) - 2
        if parts and units(parts[-1].plain) <= room:
            last = parts.pop()
            footer = Look(
                html=f"{last.html}\n\n{footer.html}", plain=f"{last.plain}\n\n{footer.plain}"
            )
        parts.append(footer)
    return parts or [Look(html="…", plain="…")]


def _card(message: Message, card: Card, *, is_rich: bool) -> Look:
    """Return a card as one message: when it is too long, its previews are told of only."""
    for shown in (card, _shortened(card)):
        text = "\n\n".join(part for part in (message.text, cards.text_of(shown, False)) if part)
        if is_rich:
            parts = [Look(rich=each) for each in _rich(message, text)]
        else:
            parts = _html(message, text)
        if len(parts) == 1:
            break
    return replace(parts[0], keyboard=keyboard(shown))


def _shortened(card: Card) -> Card:
    """Return the card without previews, and so without a button for all its rows."""

    def short(row: Row) -> Row:
        told = f"Too long for this message: `/inbox {row.prompt}`" if row.preview else ""
        return replace(row, preview=told)

    return replace(card, rows=tuple(map(short, card.rows)), buttons=())


def keyboard(card: Card) -> dict[str, Any] | None:
    """Return the buttons of a card; None: there are none. What is over 100 is left to /inbox.

    Raises SurfaceError when a button's value is over 64 bytes: no card goes out without buttons.
    """
    is_open = sum(not row.decided for row in card.rows)
    answers = sum(len(row.buttons) for row in card.rows)
    looks = sum(len(row.looks) for row in card.rows)
    is_roomy = answers + looks + len(card.buttons) <= BUTTONS
    lines: list[list[dict[str, str]]] = []
    for number, row in enumerate(card.rows, 1):
        offered = row.buttons + (row.looks if is_roomy else ())
        if row.decided or sum(map(len, lines)) + len(offered) > BUTTONS:
            continue
        before = f"{number}. " if len(card.rows) > 1 else ""
        lines += [[_button(button, before) for button in line] for line in _lines(row.buttons)]
        if is_roomy:
            lines += [[_button(button, before) for button in line] for line in _lines(row.looks)]
    if is_open and is_roomy:
        lines += [[_button(button, "")] for button in card.buttons]
    return {"inline_keyboard": lines} if lines else None


def _button(button: Button, before: str) -> dict[str, str]:
    if not 1 <= len(button.token.encode()) <= VALUE:
        raise SurfaceError(f"The button {button.label} carries more than {VALUE} bytes.")
    return {"text": f"{before}{button.label}", "callback_data": button.token}


def _lines(buttons: tuple[Button, ...]) -> list[list[Button]]:
    lines: list[list[Button]] = []
    for button in buttons:
        line = lines[-1] if lines else []
        used = sum(len(each.label) for each in line)
        if line and len(line) < _ROW and used + len(button.label) <= _LABELS:
            line.append(button)
        else:
            lines.append([button])
    return lines
