"""Renders Markdown for Slack: as blocks, and as mrkdwn for cards and where blocks are refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from bot.render import signs
from bot.render.blocks import Block, Cell, Code, Run, Table, Text, parse, shown
from bot.render.measure import ZWSP, seen, units
from bot.render.packer import Piece, indent, packed
from bot.render.tables import laid_out

__all__ = ["Part", "flowing", "mrkdwn", "render", "render_open", "sections", "texts"]

#: Characters: of a message's `markdown` blocks, beyond which Slack answers msg_blocks_too_long;
#: of one section; of a message's `text`, which is refused from about 4,000.
#: https://docs.slack.dev/reference/block-kit/blocks/markdown-block
BLOCKS, SECTION, TEXT = 12_000, 3_000, 3_900
#: A table's rows (with its head) and columns; characters of all its cells, and of one cell.
#: https://docs.slack.dev/reference/block-kit/blocks/table-block
ROWS, COLUMNS, CELLS, CELL = 100, 20, 10_000, 2_000
#: Columns of code that a window of usual width shows without wrapping.
_WIDTH = 88

#: Every form in which Slack would tell somebody, also inside code.
_PING = re.compile(
    r"<(?=!(?:channel|here|everyone|group|subteam|date)|[@#][A-Z0-9]|subteam\^)", re.IGNORECASE
)
_PAIRED = re.compile(r"(?<!\w)[*_~`](?=\S)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One message: its blocks, and the mrkdwn `text` to send along with them."""

    blocks: tuple[Mapping[str, Any], ...]
    #: Within 3,900 characters; what does not fit is left out and marked, for the blocks have it.
    fallback: str


def render(text: str) -> list[Part]:
    """Return the messages that show `text`: `markdown` blocks, and a `table` block where it fits.

    A message has one `table` block at most, so only a text's single table becomes one, outside
    of lists and quotes and within Slack's limits; others are code in columns, or lists.
    """
    return _parts(parse(text))


def render_open(text: str) -> list[Part]:
    """Return what shows `text` while it is still being written: its open end is plain text."""
    return _parts(parse(text, still_open=True))


def sections(text: str) -> list[Part]:
    """Return the messages as mrkdwn sections: the next try when Slack refuses the blocks."""
    parts: list[Part] = []
    room = 0
    for pieces in packed(laid_out(parse(text), _WIDTH), _write_mrkdwn, SECTION):
        shown_text = signs.joined(pieces)
        section = {"type": "section", "text": {"type": "mrkdwn", "text": shown_text}}
        room -= len(shown_text)
        if parts and room >= 0:
            parts[-1] = replace(parts[-1], blocks=(*parts[-1].blocks, section))
        else:
            parts.append(Part(blocks=(section,), fallback=shown_text))
            room = BLOCKS - len(shown_text)
    return parts


def flowing(text: str) -> str:
    """Return the part of `text`, still being written, that may go into a stream, where Slack
    itself reads the Markdown: up to the last whole word, and nothing in it tells anybody.

    What `flowing` returns for a text is a prefix of what it returns for a longer one.
    """
    whole = re.match(r"(?s).*\s", text)
    return _inert(whole[0]) if whole else ""


def texts(text: str) -> list[str]:
    """Return the messages as mrkdwn `text` without blocks: the last try."""
    return [signs.joined(pieces) for pieces in _packed_mrkdwn(parse(text), TEXT)]


def mrkdwn(text: str, limit: int = SECTION) -> str:
    """Return `text` as mrkdwn within `limit` characters; a cut is marked with an ellipsis."""
    return _cut(parse(text), limit)


def _cut(blocks: Iterable[Block], limit: int) -> str:
    messages = _packed_mrkdwn(blocks, limit - len("\n…"))
    first = signs.joined(messages[0]) if messages else ""
    return f"{first}\n…" if len(messages) > 1 else first


def _packed_mrkdwn(blocks: Iterable[Block], limit: int) -> list[list[Piece]]:
    return packed(laid_out(blocks, _WIDTH), _write_mrkdwn, limit)


# -- blocks


def _parts(blocks: Sequence[Block]) -> list[Part]:
    tables = [block for block in blocks if isinstance(block, Table)]
    if len(tables) != 1 or not _is_native(tables[0]):
        blocks = list(laid_out(blocks, _WIDTH))
    return [
        Part(blocks=tuple(_blocks(pieces)), fallback=_cut([each.block for each in pieces], TEXT))
        for pieces in packed(blocks, _write_block, BLOCKS)
    ]


def _is_native(table: Table) -> bool:
    sizes = [units(shown(cell)) for row in (table.head, *table.rows) for cell in row]
    return (
        not table.depth
        and not table.quoted
        and len(table.rows) < ROWS
        and len(table.head) <= COLUMNS
        and max(sizes) <= CELL
        and sum(sizes) + sizes.count(0) <= CELLS
    )


def _blocks(pieces: Sequence[Piece]) -> Iterator[dict[str, Any]]:
    for is_table, group in groupby(pieces, key=lambda piece: isinstance(piece.block, Table)):
        inside = list(group)
        if not is_table:
            yield {"type": "markdown", "text": signs.joined(inside)}
        for piece in inside:
            if isinstance(piece.block, Table):
                yield _table(piece.block)


def _table(table: Table) -> dict[str, Any]:
    settings = [{"align": align or "left", "is_wrapped": True} for align in table.aligns]
    head = [tuple(replace(run, bold=not run.code) for run in cell) for cell in table.head]
    return {
        "type": "table",
        "column_settings": settings,
        "rows": [[_cell(cell) for cell in row] for row in (head, *table.rows)],
    }


def _cell(runs: Cell) -> dict[str, Any]:
    elements = [_element(run) for run in runs if seen(run.text) or run.text.isspace()]
    if not any(seen(run.text) for run in runs):
        return {"type": "raw_text", "text": " "}  # an empty text is refused
    return {
        "type": "rich_text",
        "elements": [{"type": "rich_text_section", "elements": elements}],
    }


def _element(run: Run) -> dict[str, Any]:
    style = {
        name: True
        for name, is_set in (
            ("bold", run.bold),
            ("italic", run.italic),
            ("strike", run.strike),
            ("code", run.code),
        )
        if is_set
    }
    element: dict[str, Any] = {"type": "text", "text": run.text}
    if run.href:
        element = {"type": "link", "url": run.href, "text": run.text}
    return {**element, "style": style} if style else element


# -- the two dialects


def _write_block(block: Block) -> Piece:
    if isinstance(block, Table):
        size = sum(units(shown(cell)) or 1 for row in (block.head, *block.rows) for cell in row)
        return Piece(block=block, text="", size=size)
    if isinstance(block, Text):
        body = signs.inert_lines(signs.written(block.runs, _MARKDOWN))
        if block.level and not block.depth:
            body = signs.heading(body, block.level)
        box = {None: "", False: "☐ ", True: "☑ "}[block.task]
        marker = f"{block.marker} " if block.marker else "  " if block.depth else ""
        text = signs.quoted(body, block, "    " * indent(block) + marker + box)
    elif isinstance(block, Code):
        text = signs.quoted(signs.fenced(_inert(_inside(block)), block.language), block, "")
    else:
        text = signs.quoted("---", block, "")
    return Piece(block=block, text=text, size=units(text))


def _write_mrkdwn(block: Block) -> Piece:
    if isinstance(block, Text):
        runs = block.runs
        if block.level:
            runs = tuple(replace(run, bold=True) for run in runs)
        box = {None: "", False: "☐ ", True: "☑ "}[block.task]
        marker = "• " if block.marker == "-" else f"{block.marker} " if block.marker else ""
        prefix = box or marker or ("   " if block.depth else "")
        body = signs.written(runs, _MRKDWN)
        text = signs.quoted(body, block, "    " * indent(block) + prefix)
    elif isinstance(block, Code):  # a quote cannot hold code here
        text = signs.fenced(_entities(_inside(block)), "")
    else:
        text = signs.quoted("─" * 12, block, "")
    return Piece(block=block, text=text, size=units(text))


def _inside(block: Code) -> str:
    return f"{block.head}\n{block.text}" if block.head else block.text


def _inert(text: str) -> str:
    return _PING.sub(f"<{ZWSP}", text)


def _entities(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _markdown_link(text: str, plain: str, href: str) -> str:
    if plain == href:
        return f"<{href}>"
    address = href.replace("(", "%28").replace(")", "%29")
    return f"[{signs.label(text)}]({address})"


def _mrkdwn_link(text: str, plain: str, href: str) -> str:
    address = _entities(href).replace("|", "%7C")
    return f"<{address}>" if plain == href else f"<{address}|{text}>"


def _mrkdwn_code(text: str) -> str:
    return f"`{_entities(text).replace('`', 'ˋ')}`"


_MARKDOWN = signs.Signs(
    bold="**",
    italic="*",
    strike="~~",
    escape=lambda text: signs.escaped(_inert(text)),
    code=lambda text: signs.spanned(_inert(text)),
    link=_markdown_link,
)
_MRKDWN = signs.Signs(
    bold="*",
    italic="_",
    strike="~",
    escape=lambda text: _PAIRED.sub(rf"\g<0>{ZWSP}", _entities(text)),
    code=_mrkdwn_code,
    link=_mrkdwn_link,
    parted=True,
)
