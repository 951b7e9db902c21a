"""Reads Markdown into blocks that each stand alone, so that a message may end after any of them.

Lists and quotes are no containers here: every block knows how deep it stands in them. What
CommonMark would drop (surplus cells, definitions nobody uses, nesting beyond its limit) is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from bot.markup import plain
from bot.render.measure import seen

__all__ = ["Block", "Cell", "Code", "Rule", "Run", "Table", "Text", "linked", "parse", "shown"]

#: Levels of nesting that are read; a list takes two. Deeper text is shown as it was written.
_NESTING = 60

_OPENABLE = re.compile(r"(?:https?://|mailto:)[^\s<>|\"]+", re.IGNORECASE)
_BARE = re.compile(r"https?://[^\s<>|\"`，。、；：？！（）「」『』【】]+", re.IGNORECASE)
_TASK = re.compile(r"\[([ xX])\](?:\s+|$)")
_BREAK = re.compile(r"\s*<br\s*/?>\s*", re.IGNORECASE)
_LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Text in one style. A line break in it is meant."""

    text: str
    bold: bool = False
    italic: bool = False
    strike: bool = False
    code: bool = False
    #: Where the text leads: http, https or mailto; empty: nowhere.
    href: str = ""


Cell = tuple[Run, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What every block has."""

    #: Lists it stands in, inside its innermost quote.
    depth: int = 0
    #: Quotes it stands in.
    quoted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Block):
    """A paragraph, a heading, or a paragraph of a list's item."""

    runs: Cell
    #: 1 to 6 for a heading, else 0.
    level: int = 0
    #: "-", "3." or "3)" where it opens an item, else empty.
    marker: str = ""
    #: Whether the item is ticked; None when it is no task.
    task: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Code(Block):
    """Lines to show as they are."""

    text: str
    language: str = ""
    #: Lines above the text that stand above every piece of it when it is cut.
    head: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Block):
    """A table; every row is as long as its head."""

    head: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    #: "left", "center", "right" or empty, per column.
    aligns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Block):
    """A line across."""


def parse(text: str, *, still_open: bool = False) -> list[Block]:
    """Return the blocks of `text`; empty when nothing of it can be seen.

    Args:
        still_open: more is to come; a last block that is not closed yet is text as it was written.
    """
    text = plain(text)
    if not seen(text):
        return []
    env: dict[str, Any] = {}
    tokens = _MARKDOWN.parse(text, env)
    if any(token.level >= _NESTING - 2 for token in tokens):
        return list(_verbatim(text))
    blocks = _Reading(tokens).blocks()
    if blocks and still_open and not text.endswith("\n\n"):
        blocks[-1] = _opened(blocks[-1], tokens)
    blocks += _definitions(text, env, blocks)
    return [each for each in blocks if _is_seen(each)] or list(_verbatim(text))


def shown(runs: Sequence[Run]) -> str:
    """Return the text of the runs without markup; a link's address stands behind its text."""
    out: list[str] = []
    for index, run in enumerate(runs):
        out.append(run.text)
        following = runs[index + 1].href if index + 1 < len(runs) else ""
        if run.href and run.href != following and _address(run.href) not in run.text:
            out.append(f" ({_address(run.href)})")
    return "".join(out)


def linked(text: str) -> Cell:
    """Return plain text as runs in which bare addresses lead where they say."""
    return tuple(_linked(Run(text=text)))


def _address(href: str) -> str:
    return href.removeprefix("mailto:")


def _surplus(state: StateCore) -> None:
    """Join a row's cells beyond the last column to its last cell, where CommonMark drops them.

    They are mostly no cells: models write `|` in code and do not escape it.
    """
    lines: list[str] = []
    cells: list[Token] = []
    line = -1
    for token in state.tokens:
        if token.type == "tbody_open" and token.map:
            lines = lines or state.src.split("\n")
            line = token.map[0]
        elif token.type == "tbody_close":
            line = -1
        elif token.type == "tr_open":
            cells = []
        elif token.type == "inline":
            cells.append(token)
        elif token.type == "tr_close" and line >= 0:
            written = _written_cells(lines[line])
            if len(written) > len(cells):
                cells[-1].content = "|".join(written[len(cells) - 1 :]).strip()
            line += 1


def _written_cells(line: str) -> list[str]:
    cells: list[str] = escapedSplit(line.lstrip(" \t>").rstrip())
    if cells and not cells[0]:
        del cells[0]
    if cells and not cells[-1]:
        del cells[-1]
    return cells


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _NESTING})
    parser.enable(["table", "strikethrough"])
    parser.core.ruler.after("block", "surplus", _surplus)
    return parser


_MARKDOWN = _parser()


class _Reading:
    """One walk over the parser's tokens."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = iter(tokens)
        self._blocks: list[Block] = []
        self._depth = self._quoted = self._level = 0
        self._marker = ""
        #: Depths of the lists that the open quotes stand in; a quote's own lists begin anew.
        self._outer: list[int] = []

    def blocks(self) -> list[Block]:
        """Return what the tokens say."""
        for token in self._tokens:
            self._take(token)
        return self._blocks

    def _take(self, token: Token) -> None:
        match token.type:
            case "inline":
                self._text(token)
            case "heading_open" | "heading_close":
                self._level = int(token.tag[1:]) if token.nesting > 0 else 0
            case "bullet_list_open" | "ordered_list_open":
                self._flush()
                self._depth += 1
            case "bullet_list_close" | "ordered_list_close":
                self._depth -= 1
            case "list_item_open":
                self._marker = f"{token.info}{token.markup}" if token.info else "-"
            case "list_item_close":
                self._flush()
            case "blockquote_open":
                self._flush()
                self._quoted += 1
                self._outer.append(self._depth)
                self._depth = 0
            case "blockquote_close":
                self._quoted -= 1
                self._depth = self._outer.pop()
            case "fence" | "code_block":
                self._flush()
                named = _LANGUAGE.match(token.info.strip())
                self._add(Code(text=token.content.rstrip("\n"), language=named[0] if named else ""))
            case "hr":
                self._flush()
                self._add(Rule())
            case "table_open":
                self._flush()
                self._add(_table(self._tokens))

    def _leaf(self, token: Token) -> Block:
        if token.type == "hr":
            return Rule()
        if token.type == "table_open":
            return _table(self._tokens)
        named = _LANGUAGE.match(token.info.strip())
        return Code(text=token.content.rstrip("\n"), language=named[0] if named else "")

    def _add(self, block: Block) -> None:
        self._blocks.append(replace(block, depth=self._depth, quoted=self._quoted))

    def _flush(self) -> None:
        """Show an item's marker by itself where no paragraph follows it."""
        if self._marker:
            self._add(Text(runs=(), marker=self._marker))
            self._marker = ""

    def _text(self, token: Token) -> None:
        runs = _runs(token.children or [])
        task = None
        if self._marker and runs and not runs[0].code and (found := _TASK.match(runs[0].text)):
            task = found[1] != " "
            rest = replace(runs[0], text=runs[0].text[found.end() :])
            runs = ((rest,) if rest.text else ()) + runs[1:]
        self._add(Text(runs=runs, level=self._level, marker=self._marker, task=task))
        self._marker = ""


def _table(tokens: Iterator[Token]) -> Table:
    rows: list[list[Cell]] = []
    aligns: list[str] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "th_open":
            aligns.append(str(token.attrs.get("style", "")).partition(":")[2])
        elif token.type == "inline":
            runs = _runs(token.children or [])
            rows[-1].append(tuple(_broken(run) for run in runs))
        elif token.type == "table_close":
            break
    head, *body = (tuple(row) for row in rows)
    return Table(head=head, rows=tuple(body), aligns=tuple(aligns))


def _broken(run: Run) -> Run:
    """Return the run of a cell with its line breaks, which Markdown cannot write otherwise."""
    return run if run.code else replace(run, text=_BREAK.sub("\n", run.text))


def _runs(tokens: Sequence[Token]) -> Cell:
    styles = {"strong": 0, "em": 0, "s": 0}
    href, since = "", 0
    runs: list[Run] = []

    def add(text: str, to: str, *, code: bool = False) -> None:
        bold, italic, strike = (bool(each) for each in styles.values())
        run = Run(text=text, bold=bold, italic=italic, strike=strike, code=code, href=to)
        runs.extend([run] if code or to else _linked(run))

    for token in tokens:
        kind, _, edge = token.type.rpartition("_")
        if kind in styles:
            styles[kind] += 1 if edge == "open" else -1
        elif token.type == "link_open":
            href, since = str(token.attrs["href"]), len(runs)
        elif token.type == "link_close":
            _close_link(runs, since, href)
            href = ""
        elif token.type == "image":
            since_image = len(runs)
            add(_alternative(token), _openable(href))
            _close_link(runs, since_image, href or str(token.attrs["src"]))
        elif token.type in ("softbreak", "hardbreak"):
            add("\n", _openable(href))
        else:
            add(token.content, _openable(href), code=token.type == "code_inline")
    return tuple(_merged(runs))


def _openable(href: str) -> str:
    return href if _OPENABLE.fullmatch(href) else ""


def _close_link(runs: list[Run], since: int, href: str) -> None:
    """Let the runs lead to `href`; an address that may not be opened stands behind them as text."""
    text = "".join(run.text for run in runs[since:])
    if to := _openable(href):
        runs[since:] = [replace(run, href=to) for run in runs[since:] if run.text]
        if not text.strip():
            runs.append(Run(text=_address(to), href=to))
    elif href and href not in text and not href.startswith("#"):
        runs.append(Run(text=f" ({href})" if text.strip() else href))


def _alternative(token: Token) -> str:
    """Return what stands for an image."""
    return "".join(
        "\n" if each.type.endswith("break") else _alternative(each) or each.content
        for each in token.children or []
    )


def _linked(run: Run) -> Iterator[Run]:
    place = 0
    for found in _BARE.finditer(run.text):
        address = _trimmed(found[0])
        if len(address) > len("https://"):
            if found.start() > place:
                yield replace(run, text=run.text[place : found.start()])
            yield replace(run, text=address, href=address)
            place = found.start() + len(address)
    if run.text[place:]:
        yield replace(run, text=run.text[place:])


def _trimmed(address: str) -> str:
    """Return a bare address without what belongs to the sentence around it."""
    while address[-1] in ".,;:!?'*_~)]}":
        opening = {")": "(", "]": "[", "}": "{"}.get(address[-1])
        if opening and address.count(opening) >= address.count(address[-1]):
            break
        address = address[:-1]
    return address


def _merged(runs: Sequence[Run]) -> Iterator[Run]:
    last: Run | None = None
    for run in runs:
        if last and not last.code and replace(last, text="") == replace(run, text=""):
            last = replace(last, text=last.text + run.text)
            continue
        if last and last.text:
            yield last
        last = run
    if last and last.text:
        yield last


def _opened(block: Block, tokens: Sequence[Token]) -> Block:
    if not isinstance(block, Text):
        return block
    written = next((token.content for token in reversed(tokens) if token.type == "inline"), "")
    return replace(block, runs=linked(written), task=None) if block.runs else block


def _definitions(text: str, env: dict[str, Any], blocks: Sequence[Block]) -> list[Block]:
    """Return the lines of link definitions that no link uses: CommonMark would not show them."""
    used = {run.href for block in blocks for run in _all_runs(block)}
    unused = [each for each in env.get("references", {}).values() if each["href"] not in used]
    spans = sorted(each["map"] for each in [*unused, *env.get("duplicate_refs", [])])
    lines = text.split("\n") if spans else []
    written = "\n".join(line.strip(" \t>") for first, end in spans for line in lines[first:end])
    return [Text(runs=linked(written))] if written else []


def _all_runs(block: Block) -> Iterator[Run]:
    if isinstance(block, Text):
        yield from block.runs
    elif isinstance(block, Table):
        for row in (block.head, *block.rows):
            for cell in row:
                yield from cell


def _verbatim(text: str) -> Iterator[Block]:
    for each in re.split(r"\n[ \t]*\n", text):
        if seen(each):
            yield Text(runs=linked(each.strip("\n")))


def _is_seen(block: Block) -> bool:
    if isinstance(block, Text):
        return bool(block.marker) or seen("".join(run.text for run in block.runs))
    if isinstance(block, Code):
        return seen(block.text)
    return isinstance(block, Rule) or any(seen(run.text) for run in _all_runs(block))
