"""Measures text: in UTF-16 units, in columns of a monospaced font, and where it may be cut."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["ZWSP", "border", "columns", "seen", "units"]

#: Zero-width space: keeps two signs apart without being seen.
ZWSP = "\u200b"

_ZWJ = "\u200d"
#: How far back the beginning of one sign is looked for; text may pile up marks without end.
_CLUSTER = 64
#: Joins the sign before it, though it is no combining mark: joiner, skin tones, tags of flags.
_JOINING = re.compile("[\u200d\u1160-\u11ff\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")
_FLAGS = re.compile("[\U0001f1e6-\U0001f1ff]+$")
#: Letters and symbols by their category that show nothing, and selectors that stand for no sign.
_BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef"
_UNSEEN = re.compile(f"[{_BLANK}]")


def units(text: str) -> int:
    """Return the length in UTF-16 units: Telegram's measure, and never below that of the others."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def columns(text: str) -> int:
    """Return the width in a monospaced font; a joined emoji is as wide as one."""
    if text.isascii():
        return len(text)
    width, joined = 0, False
    for sign in text:
        if not joined and not _is_zero(sign):
            width += 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        joined = sign == _ZWJ
    return width


def seen(text: str) -> bool:
    """Return whether anything of `text` can be seen; platforms refuse a message of nothing."""
    return any(
        unicodedata.category(sign) == "Co" or unicodedata.category(sign)[0] in "LMNPS"
        for sign in _UNSEEN.sub("", text)
    )


def border(text: str, at: int) -> int:
    """Return the last place at or before `at` that cuts no sign in two; at least 1."""
    for place in range(at, max(0, at - _CLUSTER), -1):
        if place >= len(text) or not _is_inside(text, place):
            return place
    return at


def _is_zero(sign: str) -> bool:
    return unicodedata.category(sign) in ("Mn", "Me", "Cf") or bool(_JOINING.match(sign))


def _is_inside(text: str, place: int) -> bool:
    before, after = text[place - 1], text[place]
    if before == _ZWJ or unicodedata.category(after)[0] == "M" or _JOINING.match(after):
        return True
    if _FLAGS.match(after) and (flags := _FLAGS.search(text, max(0, place - _CLUSTER), place)):
        return len(flags[0]) % 2 == 1
    return False
