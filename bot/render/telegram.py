"""Renders Markdown as Telegram's HTML, in parts that are each valid alone."""

from __future__ import annotations

import html
from dataclasses import dataclass

from bot.markup import plain as safe

__all__ = ["Part", "plain", "render", "render_open"]

#: UTF-16 units of a message, counted after its HTML is parsed; a caption has 1,024.
TEXT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One message: its HTML for `parse_mode="HTML"`, and the same as text without any markup."""

    html: str
    #: To send without parse mode when Telegram cannot parse the HTML; within the limit, too.
    plain: str


def render(text: str, limit: int = TEXT) -> list[Part]:
    """Return the messages that show `text`, each within `limit` UTF-16 units after parsing."""
    return [Part(html=html.escape(each, quote=False), plain=each) for each in plain(text, limit)]


def render_open(text: str, limit: int = TEXT) -> list[Part]:
    """Return what shows `text` while it is still being written: its open end is plain text."""
    return render(text, limit)


def plain(text: str, limit: int = TEXT) -> list[str]:
    """Return `text` without markup, each message within `limit` UTF-16 units."""
    shown = safe(text)
    return [shown[at : at + limit // 2] for at in range(0, len(shown), limit // 2)]
