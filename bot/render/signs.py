"""Writes runs with paired signs, as every dialect does that is not HTML, and makes the rest inert.

A sign counts only where it touches text, so spaces and line breaks stay outside the pairs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bot.render.blocks import Block, Run
from bot.render.measure import ZWSP
from bot.render.packer import Piece, gap

__all__ = [
    "Signs",
    "escaped",
    "fenced",
    "heading",
    "inert_lines",
    "joined",
    "label",
    "quoted",
    "spanned",
    "written",
]

#: Spans looked ahead to see which style lasts longest, so that pairs nest well.
_AHEAD = 32
#: Levels of quotes that are told apart.
_QUOTES = 4

_CORE = re.compile(r"\s+|\S+(?:[^\S\n]+\S+)*")
_FORMATTING = re.compile(
    r"\\(?=[!-/:-@\[-`{-~\n]|$)"  # a backslash that would escape what follows
    r"|(?<!\s)\*|\*(?!\s)"
    r"|(?<![^\W_])_|_(?![^\W_])"  # snake_case is no emphasis
    r"|`|\](?=[(:]|$)|\|(?=\|)|(?<=\|)\|"
    r"|<(?=[A-Za-z/!?])|&(?=#?\w+;)",
)
_BRACKET = re.compile(r"(?<!\\)[\[\]]")
_CLOSING = re.compile(r"(?<![#\\])#+\s*$")
_OPENING = re.compile(
    r"^[ \t]*(?:(?P<number>\d{1,9})(?P<dot>[.)](?=\s|$))"
    r"|(?P<sign>[-+](?=[\s#-]|$)|\*(?=\s|$)|\#{1,6}(?=\s|$)|>|\||=+[ \t]*$|:(?=-)))?",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """How a dialect writes inside a line."""

    bold: str
    italic: str
    strike: str
    #: Makes text inert.
    escape: Callable[[str], str]
    #: Writes inline code.
    code: Callable[[str], str]
    #: Writes a link: its text, already escaped, the same as it was, and where it leads.
    link: Callable[[str, str, str], str]
    #: A sign inside a word counts only when a zero-width space parts them.
    parted: bool = False


@dataclass(frozen=True, slots=True)
class _Span:
    text: str
    styles: frozenset[str]
    run: Run


def written(runs: Sequence[Run], signs: Signs) -> str:
    """Return the runs in the dialect."""
    spans = list(_spans(runs, signs))
    out: list[str] = []
    open_: list[str] = []
    for index, span in enumerate(spans):
        closed = False
        while any(sign not in span.styles for sign in open_):
            out.append(open_.pop())
            closed = True
        if closed and signs.parted and not span.text[:1].isspace():
            out.append("" if _is_plain_edge(span.text[0]) else ZWSP)
        if not span.text.isspace():
            missing = _longest_first(span.styles.difference(open_), spans[index : index + _AHEAD])
            if missing and _touches(out, closed, parted=signs.parted):
                out.append(ZWSP)
            out += missing
            open_ += missing
        out.append(_span_text(span, signs, out))
    return "".join([*out, *reversed(open_)])


def escaped(text: str) -> str:
    """Return text for a Markdown dialect in which no sign of it formats anything."""
    text = _FORMATTING.sub(r"\\\g<0>", text)
    return text.replace("~", "\\~") if text.count("~") > 1 else text


def label(text: str) -> str:
    """Return escaped text as a link's text: no bracket of it ends the link."""
    return _BRACKET.sub(r"\\\g<0>", text)


def quoted(text: str, block: Block, prefix: str) -> str:
    """Return the block's text with `prefix` on its first line, indented, inside its quotes.

    What would open a block at the beginning of a line must be escaped before.
    """
    lines = text.split("\n")
    rest = "\n".join(line and " " * len(prefix) + line for line in lines[1:])
    text = f"{prefix}{lines[0]}" + (f"\n{rest}" if len(lines) > 1 else "")
    if not block.quoted:
        return text
    sign = "> " * min(block.quoted, _QUOTES)
    return "\n".join(sign + line for line in text.split("\n"))


def heading(text: str, level: int) -> str:
    """Return an inert paragraph as a heading; it has one line, and signs at its end are text."""
    line = _CLOSING.sub(r"\\\g<0>", " ".join(text.split("\n")))
    return f"{'#' * level} {line}"


def spanned(text: str) -> str:
    """Return inline code as Markdown writes it."""
    text = re.sub("(?<=`)`", f"{ZWSP}`", text)
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def fenced(text: str, language: str) -> str:
    """Return a code block that nothing inside can end."""
    text = re.sub("``(?=`)", f"``{ZWSP}", text)
    return f"```{language}\n{text}\n```"


def inert_lines(text: str) -> str:
    """Return a paragraph for a Markdown dialect in which no line opens another kind of block."""
    return _OPENING.sub(
        lambda found: (
            f"{found['number']}\\{found['dot']}"
            if found["dot"]
            else f"\\{found['sign']}"
            if found["sign"]
            else ""
        ),
        text,
    )


def joined(pieces: Sequence[Piece]) -> str:
    """Return the message that the pieces make; a quote goes on over its blank lines."""
    out = [piece.text for piece in pieces[:1]]
    for before, after in pairwise(pieces):
        between = gap(before.block, after.block)
        if before.block.quoted and after.block.quoted and between == "\n\n":
            between = "\n> \n"
        out += [between, after.text]
    return "".join(out)


def _spans(runs: Sequence[Run], signs: Signs) -> Iterator[_Span]:
    cores = [
        _Span(text, frozenset() if text.isspace() else _styles(run, signs), run)
        for run in runs
        for text in ([run.text] if run.code or not _marks(run) else _CORE.findall(run.text))
    ]
    for index, span in enumerate(cores):
        if span.text.isspace() and "\n" not in span.text and 0 < index < len(cores) - 1:
            both = cores[index - 1].styles & cores[index + 1].styles
            yield _Span(span.text, both, span.run)
        else:
            yield span


def _marks(run: Run) -> bool:
    return bool(run.href or run.bold or run.italic or run.strike)


def _styles(run: Run, signs: Signs) -> frozenset[str]:
    wanted = ((run.bold, signs.bold), (run.italic, signs.italic), (run.strike, signs.strike))
    return frozenset(sign for is_set, sign in wanted if is_set)


def _longest_first(signs: frozenset[str], spans: Sequence[_Span]) -> list[str]:
    def lasts(sign: str) -> int:
        return next((at for at, span in enumerate(spans) if sign not in span.styles), _AHEAD)

    return sorted(signs, key=lambda sign: (-lasts(sign), sign))


def _touches(out: Sequence[str], closed: bool, *, parted: bool) -> bool:
    """Return whether a sign written now would touch what makes it count differently."""
    before = next((text[-1] for text in reversed(out) if text), " ")
    if before == ZWSP:
        return False
    return not _is_plain_edge(before) if parted else closed and not before.isspace()


def _is_plain_edge(sign: str) -> bool:
    return sign.isspace() or (sign.isascii() and not sign.isalnum())


def _span_text(span: _Span, signs: Signs, out: Sequence[str]) -> str:
    if span.text.isspace() and not span.run.code:
        return span.text
    if span.run.href:
        apart = ZWSP if out and out[-1].endswith("!") else ""  # a link, and no image
        text = signs.code(span.text) if span.run.code else signs.escape(span.text)
        return apart + signs.link(text, span.text, span.run.href)
    return signs.code(span.text) if span.run.code else signs.escape(span.text)
