"""Draws usage as a bar chart, a PNG, for platforms that show pictures.

Pillow draws it: one wheel without further dependencies, a font of its own, and a chart of bars
needs no more. It is imported when the first chart is drawn, in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bot.commands.usage_text import money
from engine.models.usage import UsageLine

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

__all__ = ["draw"]

#: Pixels: the picture, its margins, and what a bar leaves of its place.
WIDE, HIGH = 960, 480
LEFT, RIGHT, TOP, BOTTOM = 24, 24, 72, 56
GAP = 0.3
#: Lines across the chart.
RULES = 4

_PAPER, _INK, _FAINT, _BAR = "#ffffff", "#1d1c1d", "#d9d9de", "#4a6fdc"


def draw(lines: Sequence[UsageLine], title: str, file: Path) -> None:
    """Write the chart of `lines`, one bar each, by cost or, without known prices, by tokens.

    Blocking. Raises OSError when the file cannot be written.
    """
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", (WIDE, HIGH), _PAPER)
    pen = ImageDraw.Draw(picture)
    priced = any(line.cost for line in lines)
    values = [line.cost if priced else float(line.tokens) for line in lines]
    top = _round(max(values, default=0.0))
    small = ImageFont.load_default(16)
    pen.text((LEFT, 20), title, fill=_INK, font=ImageFont.load_default(24))
    axis = max(pen.textlength(_told(top, priced), font=small), 20) + LEFT + 12
    pen.font = small
    _rules(pen, top, axis, priced)
    _bars(pen, lines, values, top, axis, priced)
    file.parent.mkdir(parents=True, exist_ok=True)
    picture.save(file, "PNG", optimize=True)


def _told(value: float, priced: bool) -> str:
    if priced:
        return f"${value:,.2f}" if value >= 0.1 or not value else f"${value:.2g}"
    return f"{value:,.0f}"


def _round(most: float) -> float:
    """Return the least of 1, 2, 2.5, 5 times a power of ten that holds `most`."""
    if most <= 0:
        return 1.0
    power = 10.0 ** _exponent(most)
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= most * 0.999)


def _exponent(value: float) -> int:
    return int(f"{value:e}".partition("e")[2])


def _rules(pen: ImageDraw, top: float, axis: float, priced: bool) -> None:
    for number in range(RULES + 1):
        y = HIGH - BOTTOM - number * (HIGH - TOP - BOTTOM) / RULES
        pen.line((axis, y, WIDE - RIGHT, y), fill=_FAINT)
        pen.text((axis - 8, y), _told(top * number / RULES, priced), fill=_INK, anchor="rm")


def _bars(
    pen: ImageDraw,
    lines: Sequence[UsageLine],
    values: Sequence[float],
    top: float,
    axis: float,
    priced: bool,
) -> None:
    """Draw the bars with what each is called, as many names as there is room for."""
    place = (WIDE - RIGHT - axis) / max(1, len(lines))
    longest = max((pen.textlength(line.key) for line in lines), default=0.0) + 12
    every = max(1, -int(-longest // place))
    for number, (line, value) in enumerate(zip(lines, values, strict=True)):
        left, middle = axis + number * place, axis + (number + 0.5) * place
        y = HIGH - BOTTOM - value / top * (HIGH - TOP - BOTTOM)
        if value:
            shape = (left + GAP / 2 * place, y, left + (1 - GAP / 2) * place, HIGH - BOTTOM)
            pen.rectangle(shape, fill=_BAR)
        said = money(line) if priced else f"{line.tokens:,}"
        if value and pen.textlength(said) < place:
            pen.text((middle, y - 4), said, fill=_INK, anchor="mb")
        if number % every == 0:
            pen.text((middle, HIGH - BOTTOM + 10), line.key, fill=_INK, anchor="mt")
