"""Makes text that models, tools and strangers wrote safe to show, and lays it out in Markdown."""

from __future__ import annotations

import re
import unicodedata

from engine.canonical import clean, defused

__all__ = ["code", "cut", "defused", "fenced", "plain", "visible"]

# Formatting characters that turn text around or hide it; a joiner inside an emoji is none.
_TURNING = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_TURNING}\u2028\u2029]")


def plain(text: str) -> str:
    """Return `text` without control characters (newline and tab stay) and turned-around text.

    So no text can send an escape sequence to a terminal.
    """
    return _UNSAFE.sub("", clean(text).replace("\r\n", "\n"))


def visible(text: str) -> str:
    """Return one line in which every character that would not be seen is written as \\uXXXX."""
    return "".join(each if _is_seen(each) else f"\\u{ord(each):04x}" for each in clean(text))


def _is_seen(character: str) -> bool:
    return character == " " or unicodedata.category(character)[0] not in "CZ"


def code(text: str) -> str:
    """Return `text` as inline code; what would not be seen is spelled out."""
    shown = visible(text).replace("`", "ˋ")
    return f"`{shown}`"


def fenced(text: str) -> str:
    """Return `text` as a code block that nothing inside can end."""
    runs = re.findall(r"`{3,}", text)
    fence = "`" * max(3, *(len(run) + 1 for run in runs), 3)
    return f"{fence}\n{plain(text)}\n{fence}"


def cut(text: str, characters: int, lines: int) -> tuple[str, int]:
    """Return the beginning of `text` within both limits, and how many characters are left out."""
    kept = "\n".join(text.splitlines()[:lines])[:characters]
    return kept, max(0, len(text.rstrip("\n")) - len(kept))
