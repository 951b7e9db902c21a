"""Renders Markdown in Discord's dialect, in messages within its limit."""

from __future__ import annotations

from bot.markup import plain

__all__ = ["render", "render_open"]

#: Characters of a message.
TEXT = 2000


def render(text: str, limit: int = TEXT) -> list[str]:
    """Return the messages that show `text`, each within `limit` characters."""
    shown = plain(text).replace("@", "@\u200b")
    return [shown[at : at + limit // 2] for at in range(0, len(shown), limit // 2)]


def render_open(text: str, limit: int = TEXT) -> list[str]:
    """Return what shows `text` while it is still being written: its open end is plain text."""
    return render(text, limit)
