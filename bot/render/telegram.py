"""Renders Markdown as Telegram's HTML, in parts that are each valid alone."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from bot.render.blocks import Block, Code, Run, Text, parse, shown
from bot.render.measure import ZWSP, units
from bot.render.packer import Piece, gap, indent, packed
from bot.render.signs import joined
from bot.render.tables import laid_out

__all__ = ["Part", "plain", "render", "render_open"]

#: UTF-16 units of a message, counted after its HTML is parsed; a caption has 1,024.
#: https://core.telegram.org/bots/api#sendmessage
TEXT = 4096
#: Marked-up stretches (entities) of a message; further ones are dropped.
ENTITIES = 100
#: Columns of code that a phone held upright or a narrow window shows without wrapping.
_WIDTH = 48
#: Levels of quotes that are told apart.
_QUOTES = 4

#: A name that Telegram would tell its owner about; an address of mail is none.
_MENTION = re.compile(r"(?<![\w.@])@(?=[A-Za-z]\w{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One message: its HTML for `parse_mode="HTML"`, and the same as text without any markup."""

    html: str
    #: To send without parse mode when Telegram cannot parse the HTML; within the limit, too.
    plain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marked(Piece):
    #: The text as it is seen, and as it counts.
    plain: str


def render(text: str, limit: int = TEXT) -> list[Part]:
    """Return the messages that show `text`, each within `limit` UTF-16 units after parsing."""
    return _parts(parse(text), limit)


def render_open(text: str, limit: int = TEXT) -> list[Part]:
    """Return what shows `text` while it is still being written: its open end is plain text."""
    return _parts(parse(text, still_open=True), limit)


def plain(text: str, limit: int = TEXT) -> list[str]:
    """Return `text` without markup, each message within `limit` UTF-16 units.

    A link's address stands behind its text; a table is a list.
    """
    return [joined(pieces) for pieces in packed(laid_out(parse(text), 0), _write_plain, limit)]


def _parts(blocks: Iterable[Block], limit: int) -> list[Part]:
    messages = packed(laid_out(blocks, _WIDTH), _write, limit, ENTITIES)
    return [Part(html=_html(pieces), plain=_plain(pieces)) for pieces in messages]


def _write(block: Block) -> _Marked:
    marks = 1 if block.quoted else 0
    if isinstance(block, Text):
        written = [_run(run, is_bold=bool(block.level)) for run in block.runs]
        first, rest = _prefixes(block)
        marked = _lines("".join(each[0] for each in written), _text(first), _text(rest))
        seen = _lines("".join(each[1] for each in written), first, rest)
        marks += sum(each[2] for each in written)
    elif isinstance(block, Code):
        seen = f"{block.head}\n{block.text}" if block.head else block.text
        marked = f"<pre>{_text(seen)}</pre>"
        if block.language:
            marked = (
                f'<pre><code class="language-{html.escape(block.language)}">'
                f"{_text(seen)}</code></pre>"
            )
        marks += 1
    else:
        marked = seen = "─" * 12
    return _Marked(block=block, text=marked, size=units(seen), marks=marks, plain=seen)


def _run(run: Run, *, is_bold: bool) -> tuple[str, str, int]:
    """Return a run as HTML, as it is seen, and how many entities it makes."""
    if run.code and not run.href:  # code holds no other entity, and a link holds no code
        return f"<code>{_text(run.text)}</code>", run.text, 1
    is_mail = run.href.startswith("mailto:")  # Telegram links addresses of mail itself
    seen = _MENTION.sub(f"@{ZWSP}", shown([run]) if is_mail else run.text)
    marked, marks = _text(seen), 0
    if run.href and run.href != run.text and not is_mail:
        marked, marks = f'<a href="{html.escape(run.href)}">{marked}</a>', 1
    for tag, wanted in (("s", run.strike), ("i", run.italic), ("b", run.bold or is_bold)):
        if wanted:
            marked, marks = f"<{tag}>{marked}</{tag}>", marks + 1
    return marked, seen, marks


def _text(text: str) -> str:
    return html.escape(text, quote=False)


def _prefixes(block: Text) -> tuple[str, str]:
    """Return what stands before the first line of a paragraph, and before the others."""
    box = {None: "", False: "☐ ", True: "☑ "}[block.task]
    marker = box or ("• " if block.marker == "-" else f"{block.marker} " if block.marker else "")
    steps = "    " * indent(block)
    inner = "> " * min(max(block.quoted - 1, 0), _QUOTES)  # Telegram has one level of quotes
    rest = inner + steps + ("   " if block.depth else "")
    return (inner + steps + marker if marker else rest), rest


def _lines(text: str, first: str, rest: str) -> str:
    return first + text.replace("\n", f"\n{rest}")


def _write_plain(block: Block) -> Piece:
    if isinstance(block, Text):
        first, rest = _prefixes(block)
        text = _lines(shown(block.runs), first, rest)
    elif isinstance(block, Code):
        text = f"{block.head}\n{block.text}" if block.head else block.text
    else:
        text = "─" * 12
    text = _MENTION.sub(f"@{ZWSP}", text)
    if block.quoted:
        text = _lines(text, "> ", "> ")
    return Piece(block=block, text=text, size=units(text))


def _html(pieces: Sequence[Piece]) -> str:
    """Return the message's HTML: neighbours that are quoted make one quote."""
    out: list[str] = []
    for is_quoted, group in groupby(pieces, key=lambda piece: piece.block.quoted > 0):
        inside = list(group)
        text = _chained([each.text for each in inside], inside)
        out.append(f"<blockquote>{text}</blockquote>" if is_quoted else text)
    return "\n\n".join(out)


def _plain(pieces: Sequence[Piece]) -> str:
    text = _chained([each.plain for each in pieces if isinstance(each, _Marked)], pieces)
    # Of the same length, so that the limit holds: code mentions nobody, but plain text would.
    return _MENTION.sub("＠", text)


def _chained(texts: Sequence[str], pieces: Sequence[Piece]) -> str:
    out = list(texts[:1])
    for (before, after), text in zip(pairwise(pieces), texts[1:], strict=True):
        out += [gap(before.block, after.block), text]
    return "".join(out)
