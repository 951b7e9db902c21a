"""The patch format models write: several files between *** Begin Patch and *** End Patch. Pure.

*** Begin Patch
*** Add File: new.py
+a line
*** Update File: old.py
*** Move to: renamed.py          (optional)
@@ def the_line_above():         (optional: where to look)
 a line that stays
-a line that goes
+a line that comes
*** Delete File: gone.py
*** End Patch
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from engine.errors import ToolError

__all__ = ["Hunk", "Section", "apply", "parse", "paths"]

_HEADER = re.compile(r"\*\*\* (Add|Update|Delete) File: (.*\S)\s*")
_MOVE = re.compile(r"\*\*\* Move to: (.*\S)\s*")
_NUMBERS = re.compile(r"@@ -\d+(,\d+)? \+\d+(,\d+)? @@.*")  # of a unified diff: no anchor
_END_OF_FILE = "*** End of File"


@dataclass(slots=True, kw_only=True)
class Hunk:
    """One place of an update: lines as (sign, text); sign is ' ', '-' or '+'."""

    anchor: str = ""
    lines: list[tuple[str, str]] = field(default_factory=list)
    at_end: bool = False


@dataclass(slots=True, kw_only=True)
class Section:
    """What happens to one file: 'Add', 'Update' or 'Delete'."""

    verb: str
    path: str
    move_to: str = ""
    content: list[str] = field(default_factory=list)
    hunks: list[Hunk] = field(default_factory=list)


def paths(text: str) -> list[str]:
    """Return every path `text` names, also when the rest of it is no patch."""
    found = []
    for line in _split(text):
        if match := _HEADER.fullmatch(line):
            found.append(match[2])
        elif match := _MOVE.fullmatch(line):
            found.append(match[1])
    return found


def parse(text: str) -> list[Section]:
    """Parse a patch; raises ToolError that names the line at fault."""
    lines = _split(text)
    if lines[0].strip() != "*** Begin Patch" or lines[-1].strip() != "*** End Patch":
        raise ToolError("The patch must begin with '*** Begin Patch' and end with '*** End Patch'.")
    sections: list[Section] = []
    for number, line in enumerate(lines[1:-1], start=2):
        if match := _HEADER.fullmatch(line):
            sections.append(Section(verb=match[1], path=match[2]))
        elif not sections:
            raise ToolError(f"Line {number} of the patch belongs to no file: {line[:80]!r}.")
        elif not _take(sections[-1], line):
            raise ToolError(f"Line {number} of the patch cannot be read: {line[:80]!r}.")
    for section in sections:
        if section.verb == "Update" and not (section.hunks or section.move_to):
            raise ToolError(f"The patch says nothing to change in {section.path}.")
    if not sections:
        raise ToolError("The patch changes no file.")
    return sections


def _split(text: str) -> list[str]:
    return text.replace("\r\n", "\n").strip("\n").split("\n")


def _take(section: Section, line: str) -> bool:
    """Add `line` to `section`; False when it has no place there."""
    if section.verb == "Add":
        section.content.append(line[1:])
        return line.startswith("+")
    if section.verb == "Delete":
        return not line.strip()
    if match := _MOVE.fullmatch(line):
        section.move_to = match[1]
        return not section.hunks
    if line == "@@" or line.startswith("@@ "):
        section.hunks.append(Hunk(anchor="" if _NUMBERS.fullmatch(line) else line[3:].strip()))
        return True
    if not section.hunks:
        section.hunks.append(Hunk())
    hunk = section.hunks[-1]
    if line.rstrip() == _END_OF_FILE:
        hunk.at_end = True
        return True
    sign, rest = (line[0], line[1:]) if line else (" ", "")
    hunk.lines.append((sign, rest))
    return sign in " -+" and not hunk.at_end


def apply(section: Section, text: str) -> str:
    """Return `text` with the hunks of an update applied.

    A hunk must fit at exactly one place, or after its anchor, which must be one; else ToolError.
    Lines that stay are kept byte for byte; new ones get the line end most lines of the file have.
    """
    lines = text.split("\n")
    closed = lines[-1] == ""  # the last line has its newline
    if closed:
        lines.pop()
    carriage = "\r" if sum(line.endswith("\r") for line in lines) * 2 > len(lines) else ""
    plain = [line.removesuffix("\r") for line in lines]
    edits = sorted((*_place(section.path, hunk, plain), hunk.lines) for hunk in section.hunks)
    for (_, end, _), (start, _, _) in pairwise(edits):
        if start < end:
            raise ToolError(f"Two places of the patch overlap in {section.path}.")
    for start, end, come in reversed(edits):
        lines[start:end] = _woven(come, iter(lines[start:end]), carriage)
    return "\n".join(lines) + ("\n" if closed and lines else "")


def _place(path: str, hunk: Hunk, plain: list[str]) -> tuple[int, int]:
    """Return first and past-the-last line of what `hunk` replaces."""
    old = [text for sign, text in hunk.lines if sign != "+"]
    begin = _after_anchor(path, hunk.anchor, plain)
    if not old:
        if hunk.at_end or not plain:
            return len(plain), len(plain)
        if hunk.anchor:
            return begin, begin
        raise ToolError(
            f"The patch adds lines to {path} without saying where.", "Add lines around them."
        )
    last = len(plain) - len(old)
    spots = [i for i in range(begin, last + 1) if plain[i : i + len(old)] == old]
    if hunk.at_end:
        spots = [spot for spot in spots if spot == last]
    if not spots:
        raise ToolError(
            f"The patch does not fit {path}: these lines are not there: {old[0][:80]!r} …",
            "Read the file again and copy its lines exactly.",
        )
    if len(spots) > 1 and not hunk.anchor:
        raise ToolError(
            f"The patch is ambiguous in {path}: these lines are there {len(spots)} times: "
            f"{old[0][:80]!r} …",
            "Add more lines around the change, or an @@ line from above it.",
        )
    return spots[0], spots[0] + len(old)


def _after_anchor(path: str, anchor: str, plain: list[str]) -> int:
    if not anchor:
        return 0
    where = [i for i, line in enumerate(plain) if line.strip() == anchor]
    if len(where) != 1:
        raise ToolError(
            f"The line '@@ {anchor[:80]}' is in {path} {len(where)} times, not once.",
            "Copy a line that is there once, whole.",
        )
    return where[0] + 1


def _woven(come: list[tuple[str, str]], kept: Iterator[str], carriage: str) -> list[str]:
    """Return the lines of a changed place: those that stay as they were, the others new."""
    out = []
    for sign, line in come:
        old = "" if sign == "+" else next(kept)
        if sign != "-":
            out.append(line + carriage if sign == "+" else old)
    return out
