"""Usage as people read it: lines of a table, and bars of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.models.usage import UsageLine

__all__ = ["bars", "dollars", "money", "summed", "table"]

WIDTH = 20  # characters of the longest bar
NAME = 36  # characters of a table's first column
_BLOCKS = " ▏▎▍▌▋▊▉█"


def money(line: UsageLine) -> str:
    """Return what the calls cost: $0.42, with a + when some have no known price."""
    if line.unpriced and line.unpriced == line.calls:
        return "unknown"
    return dollars(line.cost) + ("+" if line.unpriced else "")


def dollars(cost: float) -> str:
    """Return US dollars to the cent, without making nothing of a little."""
    return f"${cost:,.2f}" if cost >= 0.005 or not cost else "under $0.01"


def summed(line: UsageLine) -> str:
    """Return one line of usage in words."""
    plural = "" if line.calls == 1 else "s"
    words = f"{line.calls:,} call{plural}, {line.tokens:,} tokens, {money(line)}"
    return f"{words}, {line.estimated} of them cut off and estimated" if line.estimated else words


def table(lines: Sequence[UsageLine], first: str) -> Iterator[str]:
    """Yield tokens and cost as a table of plain text; `first` heads its first column."""
    if not lines:
        yield "No model has been called in that time."
        return
    width = min(NAME, max(len(first), *(len(line.key) for line in lines)))
    yield f"{first:<{width}} {'calls':>6} {'input':>11} {'cached':>11} {'output':>9} {'cost':>9}"
    for line in lines:
        name = line.key if len(line.key) <= width else f"{line.key[: width - 1]}…"
        cost = "unknown" if line.unpriced == line.calls else f"{line.cost:.4f}"
        cost += "+" if 0 < line.unpriced < line.calls else ""
        yield (
            f"{name:<{width}} {line.calls:>6,} {line.input:>11,} {line.cache_read:>11,}"
            f" {line.output:>9,} {cost:>9}"
        )


def bars(lines: Sequence[UsageLine]) -> Iterator[str]:
    """Yield a bar of text for each line, by cost, or by tokens where no price is known."""
    priced = any(line.cost for line in lines)
    values = [line.cost if priced else float(line.tokens) for line in lines]
    most = max(values, default=0.0) or 1.0
    for line, value in zip(lines, values, strict=True):
        told = money(line) if priced else f"{line.tokens:,} tokens"
        yield f"{line.key} {_bar(value / most):<{WIDTH}} {told}"


def _bar(share: float) -> str:
    eighths = max(1 if share > 0 else 0, round(share * WIDTH * 8))
    return "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()
