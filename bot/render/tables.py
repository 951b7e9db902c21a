"""Lays tables out for platforms that have none: padded columns, or a list of `column: value`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from bot.render.blocks import Block, Cell, Code, Run, Table, Text, shown
from bot.render.measure import columns

__all__ = ["laid_out"]

#: Columns between two columns of a table.
_GAP = 2


def laid_out(blocks: Iterable[Block], width: int) -> Iterator[Block]:
    """Yield the blocks; a table becomes code of at most `width` columns, or else a list."""
    for block in blocks:
        if not isinstance(block, Table):
            yield block
        elif (padded := _padded(block)) and columns(padded.head.partition("\n")[2]) <= width:
            yield padded
        else:
            yield from _listed(block)


def _padded(table: Table) -> Code:
    grid = [[" ".join(shown(cell).split()) for cell in row] for row in (table.head, *table.rows)]
    widths = [max(columns(row[index]) for row in grid) for index in range(len(table.head))]
    head, *rows = (_line(row, widths, table.aligns) for row in grid)
    rule = (" " * _GAP).join("─" * width for width in widths)
    return Code(
        text="\n".join(rows) if rows else rule,
        head=f"{head}\n{rule}" if rows else head,
        depth=table.depth,
        quoted=table.quoted,
    )


def _line(row: list[str], widths: list[int], aligns: tuple[str, ...]) -> str:
    padded = []
    for text, width, align in zip(row, widths, aligns, strict=True):
        free = width - columns(text)
        before = {"right": free, "center": free // 2}.get(align, 0)
        padded.append(" " * before + text + " " * (free - before))
    return (" " * _GAP).join(padded).rstrip()


def _listed(table: Table) -> Iterator[Text]:
    for row in table.rows or (((),) * len(table.head),):
        runs: list[Run] = []
        for name, value in zip(table.head, row, strict=True):
            if name or value:
                runs += [*_emphasised(name), Run(text=": ")] if name else []
                runs += [*value, Run(text="\n")]
        if runs:
            yield Text(runs=tuple(runs[:-1]), depth=table.depth, quoted=table.quoted)


def _emphasised(name: Cell) -> Iterator[Run]:
    return (run if run.code else replace(run, bold=True) for run in name)
