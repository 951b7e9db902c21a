"""Writes Markdown as Telegram's rich HTML: headings, tables, lists, code, within its limits.

From our own blocks, never the model's text itself: that could carry pictures the server would
fetch, or mentions. Bot API 10.1, https://core.telegram.org/bots/api#rich-message-formatting-options
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from itertools import groupby

from bot.render.blocks import Block, Cell, Code, Run, Table, Text, parse, shown
from bot.render.measure import units
from bot.render.packer import Piece, packed
from bot.render.tables import laid_out

__all__ = ["rich"]

#: Limits of one message: 32,768 characters, 500 blocks with list items and rows, 20 columns;
#: some room is left for what stands around them.
TEXT, BLOCKS, COLUMNS = 30_000, 400, 20
#: Limits of one table that is not cut: rows, characters.
ROWS, TABLE = 100, 10_000
#: Lists in lists; 16 levels of anything is the server's limit.
_DEEPEST = 6
_WIDTH = 48


def rich(text: str, *, growing: bool = False) -> list[str]:
    """Return the messages that show `text`, as rich HTML; none when nothing of it can be seen."""
    blocks = [each for block in parse(text, still_open=growing) for each in _fitting(block)]
    return [_message(pieces) for pieces in packed(blocks, _write, TEXT, BLOCKS)]


def _fitting(block: Block) -> Iterator[Block]:
    """Yield the block; a table that is too large for the server is laid out as text."""
    if isinstance(block, Table):
        size = sum(units(shown(cell)) for row in (block.head, *block.rows) for cell in row)
        if len(block.head) > COLUMNS or len(block.rows) > ROWS or size > TABLE:
            yield from laid_out([block], _WIDTH)
            return
    yield block


def _write(block: Block) -> Piece:
    if isinstance(block, Text):
        seen, box = shown(block.runs), {None: "", False: "☐ ", True: "☑ "}[block.task]
        inside = box + _runs(block.runs)
        marked = f"<h{block.level}>{inside}</h{block.level}>" if block.level else f"<p>{inside}</p>"
        return Piece(block=block, text=marked, size=units(seen) + 2, marks=1 + bool(block.marker))
    if isinstance(block, Code):
        seen = f"{block.head}\n{block.text}" if block.head else block.text
        language = f' class="language-{html.escape(block.language)}"' if block.language else ""
        marked = f"<pre><code{language}>{_text(seen)}</code></pre>"
        return Piece(block=block, text=marked, size=units(seen), marks=1)
    if isinstance(block, Table):
        return _table(block)
    return Piece(block=block, text="<hr/>", size=1, marks=1)


def _table(table: Table) -> Piece:
    rows = [
        _row(table.head, table.aligns, "th"),
        *(_row(r, table.aligns, "td") for r in table.rows),
    ]
    size = sum(units(shown(cell)) + 1 for row in (table.head, *table.rows) for cell in row)
    marked = f"<table bordered>{''.join(rows)}</table>"
    return Piece(block=table, text=marked, size=size, marks=2 + len(table.rows))


def _row(cells: Sequence[Cell], aligns: Sequence[str], tag: str) -> str:
    written = [
        f'<{tag} align="{align}">{_runs(cell)}</{tag}>'
        if align
        else f"<{tag}>{_runs(cell)}</{tag}>"
        for cell, align in zip(cells, aligns, strict=True)
    ]
    return f"<tr>{''.join(written)}</tr>"


def _runs(runs: Sequence[Run]) -> str:
    return "".join(map(_run, runs))


def _run(run: Run) -> str:
    marked = _text(run.text).replace("\n", "<br/>")
    if run.code:
        marked = f"<code>{_text(run.text)}</code>"
    for tag, wanted in (("s", run.strike), ("i", run.italic), ("b", run.bold)):
        if wanted:
            marked = f"<{tag}>{marked}</{tag}>"
    return f'<a href="{html.escape(run.href)}">{marked}</a>' if run.href else marked


def _text(text: str) -> str:
    return html.escape(text, quote=False)


def _message(pieces: Sequence[Piece]) -> str:
    """Return a message: what is quoted together in one quote, list items in their lists."""
    out: list[str] = []
    for is_quoted, group in groupby(pieces, key=lambda piece: piece.block.quoted > 0):
        inside = _listed(list(group))
        out.append(f"<blockquote>{inside}</blockquote>" if is_quoted else inside)
    return "".join(out)


def _listed(pieces: Sequence[Piece]) -> str:
    out: list[str] = []
    open_: list[str] = []

    def close(depth: int) -> None:
        while len(open_) > depth:
            out.append(f"</li></{open_.pop()}>")

    for piece in pieces:
        block = piece.block
        depth = min(block.depth, _DEEPEST)
        marker = block.marker if isinstance(block, Text) else ""
        kind = "ol" if marker[:1].isdigit() else "ul"
        close(depth)
        if marker and len(open_) == depth and depth:
            if open_[-1] == kind:
                out.append("</li><li>")
            else:
                close(depth - 1)
        while len(open_) < depth:
            number = marker.rstrip(".)")
            start = f' start="{number}"' if kind == "ol" and number not in ("", "1") else ""
            out.append(f"<{kind}{start}><li>")
            open_.append(kind)
        out.append(piece.text)
    close(0)
    return "".join(out)
