"""Packs blocks into messages within a limit, and cuts the block that is over it alone.

A block is only cut where it must be: code between its lines and fenced again, a paragraph without
its markup, so that no cut falls into markup. Every cut makes progress, whatever the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from bot.render.blocks import Block, Code, Text, linked, shown
from bot.render.measure import border, seen, units

__all__ = ["Piece", "Write", "gap", "indent", "packed"]

#: Tries to find the last place that fits; every one writes the text again.
_STEPS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A block as a dialect writes it."""

    block: Block
    text: str
    #: What counts against the limit, in UTF-16 units.
    size: int
    #: What counts against a limit of marked-up stretches.
    marks: int = 0


Write = Callable[[Block], Piece]


def packed(
    blocks: Iterable[Block], write: Write, limit: int, marks: int | None = None
) -> list[list[Piece]]:
    """Return the messages, each within `limit` units and `marks`; pieces are joined by `gap`."""
    room = _Room(size=limit, marks=marks)
    messages: list[list[Piece]] = []
    for piece in _pieces(blocks, write, room):
        if messages and room.takes(messages[-1][-1], piece):
            messages[-1].append(piece)
        else:
            messages.append(_title(messages, piece, room))
            room.start(messages[-1])
    return messages


def gap(before: Block, after: Block) -> str:
    """Return what stands between two blocks of a message: a line break, or a blank line."""
    if before.quoted != after.quoted:
        return "\n\n"
    return "\n" if before.depth and after.depth else "\n\n"


def indent(block: Block) -> int:
    """Return how many steps a block is indented; beyond eight nobody can tell them apart."""
    return min(max(block.depth - 1, 0), 8)


@dataclass(slots=True, kw_only=True)
class _Room:
    """The room of a message, and what is left of it."""

    size: int
    marks: int | None
    left: int = 0
    marks_left: int = 0

    def holds(self, *pieces: Piece) -> bool:
        """Return whether a message of these alone is within the limits."""
        size = sum(piece.size for piece in pieces)
        size += sum(_between(a, b) for a, b in pairwise(pieces))
        return size <= self.size and (
            self.marks is None or sum(piece.marks for piece in pieces) <= self.marks
        )

    def takes(self, last: Piece, piece: Piece) -> bool:
        """Take the room for one more piece, if there is any."""
        size = _between(last, piece) + piece.size
        if size > self.left or (self.marks is not None and piece.marks > self.marks_left):
            return False
        self.left -= size
        self.marks_left -= piece.marks
        return True

    def first(self) -> int:
        """Return the size of the first piece of a block that must be cut.

        It goes on in the message where half of that is left, else it begins a new one.
        """
        left = self.left - len("\n> \n")
        return left if 2 * left >= self.size else self.size

    def start(self, pieces: Sequence[Piece]) -> None:
        """Begin a message with these."""
        self.left = self.size - sum(piece.size for piece in pieces)
        self.left -= sum(_between(a, b) for a, b in pairwise(pieces))
        self.marks_left = (self.marks or 0) - sum(piece.marks for piece in pieces)


def _between(before: Piece, after: Piece) -> int:
    # A quote's blank line is written with its sign, two characters more than a blank line.
    return len(gap(before.block, after.block)) + (2 if before.block.quoted else 0)


def _title(messages: list[list[Piece]], piece: Piece, room: _Room) -> list[Piece]:
    """Return how the next message begins: the heading at the end of the last one goes with it."""
    if messages and len(messages[-1]) > 1:
        last = messages[-1][-1]
        if isinstance(last.block, Text) and last.block.level and room.holds(last, piece):
            return [messages[-1].pop(), piece]
    return [piece]


def _pieces(blocks: Iterable[Block], write: Write, room: _Room) -> Iterator[Piece]:
    for block in blocks:
        piece = write(block)
        if room.holds(piece):
            yield piece
        elif isinstance(block, Text):
            yield from _cut_text(block, write, room)
        elif isinstance(block, Code):
            yield from _cut_code(block, write, room)


def _cut_text(block: Text, write: Write, room: _Room) -> Iterator[Piece]:
    def piece(text: str) -> Piece:
        return write(replace(block, runs=linked(text)))

    rest, limit = shown(block.runs), room.first()
    while rest:
        at = _place(rest, piece, limit, _word)
        if seen(rest[:at]):
            yield piece(rest[:at].rstrip())
            block = replace(block, marker="", task=None)
        rest, limit = rest[at:].lstrip(), room.size


def _cut_code(block: Code, write: Write, room: _Room) -> Iterator[Piece]:
    limit = room.first()
    head = block.head if 2 * units(block.head) <= limit else ""
    rest = block.text if head else f"{block.head}\n{block.text}" if block.head else block.text

    def piece(text: str) -> Piece:
        return write(replace(block, text=text, head=head))

    while rest:
        at = _place(rest, piece, limit, _line)
        if seen(rest[:at]):
            yield piece(rest[:at])
        rest, limit = rest[at:].removeprefix("\n"), room.size


def _place(
    text: str, piece: Callable[[str], Piece], limit: int, choose: Callable[[str, int], int]
) -> int:
    """Return where to cut: as late as the limit allows, at a place `choose` likes; at least 1."""
    low, high = 1, min(len(text), limit) + 1
    guess = high - 1
    for step in range(_STEPS):
        size = piece(text[:guess]).size
        low, high = (guess, high) if size <= limit else (low, guess)
        if high - low <= 1:
            break
        guess = guess * limit // size if step % 2 == 0 else (low + high) // 2
        guess = min(max(guess, low + 1), high - 1)
    at = low if low == len(text) else choose(text, low)
    # What a cut leaves at the end may need more escaping than it did in the middle.
    while at > 1 and piece(text[:at]).size > limit:
        at = border(text, at - 1)
    return at


def _word(text: str, most: int) -> int:
    """Cut a paragraph after a line, else after a word, else after a sign."""
    for sign in ("\n", " "):
        at = text.rfind(sign, most // 2, most + 1)
        if at > 0:
            return at
    return border(text, most)


def _line(text: str, most: int) -> int:
    """Cut code after a line; only an endless one is cut inside."""
    at = text.rfind("\n", 1, most + 1)
    return at if at > 0 else border(text, most)
