"""Renders Markdown in Discord's dialect, in messages within its limit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from bot.render import signs
from bot.render.blocks import Block, Code, Rule, Text, parse
from bot.render.measure import ZWSP, units
from bot.render.packer import Piece, indent, packed
from bot.render.tables import laid_out

__all__ = ["render", "render_open"]

#: Characters of a message. We count UTF-16 units, which are never fewer.
#: https://discord.com/developers/docs/resources/message#create-message
TEXT = 2000
#: Columns of code that a window of usual width shows without wrapping.
_WIDTH = 72
#: Levels of headings Discord knows.
_LEVELS = 3

_MENTION = re.compile(r"<(?=[@#:/]|a:|t:|id:)|@(?=everyone|here)", re.IGNORECASE)
_ADDRESS = re.compile(r"\s*(?:https?:|www\.|mailto:)|.*\.\w{2,}/", re.IGNORECASE)


def render(text: str, limit: int = TEXT) -> list[str]:
    """Return the messages that show `text`, each within `limit` characters.

    No text of it mentions anybody, and no link of it is unfurled.
    """
    return _messages(parse(text), limit)


def render_open(text: str, limit: int = TEXT) -> list[str]:
    """Return what shows `text` while it is still being written: its open end is plain text."""
    return _messages(parse(text, still_open=True), limit)


def _messages(blocks: Iterable[Block], limit: int) -> list[str]:
    return [signs.joined(pieces) for pieces in packed(laid_out(blocks, _WIDTH), _write, limit)]


def _write(block: Block) -> Piece:
    if isinstance(block, Text):
        text = signs.quoted(_body(block), block, _prefix(block))
    elif isinstance(block, Code):
        inside = f"{block.head}\n{block.text}" if block.head else block.text
        text = signs.quoted(signs.fenced(inside, block.language), block, "")
    else:
        assert isinstance(block, Rule)
        text = signs.quoted("─" * 12, block, "")
    return Piece(block=block, text=text, size=units(text))


def _body(block: Text) -> str:
    is_heading = 0 < block.level <= _LEVELS and not block.depth
    runs = block.runs
    if block.level and not is_heading:
        runs = tuple(replace(run, bold=True) for run in runs)
    body = signs.inert_lines(signs.written(runs, _SIGNS))
    return signs.heading(body, block.level) if is_heading else body


def _prefix(block: Text) -> str:
    marker = f"{block.marker} " if block.marker else "  " if block.depth else ""
    box = {None: "", False: "☐ ", True: "☑ "}[block.task]
    return "  " * indent(block) + marker + box


def _escape(text: str) -> str:
    return signs.escaped(_MENTION.sub(rf"\g<0>{ZWSP}", text))


def _link(text: str, plain: str, href: str) -> str:
    is_bare = plain == href
    href = _MENTION.sub("%40", href)
    if is_bare:
        return f"<{href}>"
    if href.startswith("mailto:"):  # no link of Discord's
        address = href.removeprefix("mailto:")
        return text if address in plain else f"{text} ({_escape(address)})"
    if _ADDRESS.match(plain):  # Discord links no text that looks like another address
        return f"{text} (<{href}>)"
    return f"[{signs.label(text)}](<{href}>)"


_SIGNS = signs.Signs(
    bold="**", italic="*", strike="~~", escape=_escape, code=signs.spanned, link=_link
)
