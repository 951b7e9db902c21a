"""Renders Markdown for Slack: blocks for a message, mrkdwn for a card and as what blocks fall back to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.markup import plain

__all__ = ["Part", "mrkdwn", "render", "render_open", "sections", "texts"]

#: Characters: of all blocks of a message, of one section, of a message's `text`.
BLOCKS, SECTION, TEXT = 12_000, 3_000, 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One message: its blocks, and the mrkdwn `text` to send along with them."""

    blocks: tuple[Mapping[str, Any], ...]
    #: Within 4,000 characters; what does not fit is left out and marked, for the blocks have it.
    fallback: str


def render(text: str) -> list[Part]:
    """Return the messages that show `text`: `markdown` blocks, and `table` blocks where they fit."""
    return sections(text)


def render_open(text: str) -> list[Part]:
    """Return what shows `text` while it is still being written: its open end is plain text."""
    return sections(text)


def sections(text: str) -> list[Part]:
    """Return the messages as mrkdwn sections: the next try when Slack refuses the blocks."""
    return [
        Part(
            blocks=({"type": "section", "text": {"type": "mrkdwn", "text": each[:SECTION]}},),
            fallback=each,
        )
        for each in texts(text)
    ]


def texts(text: str) -> list[str]:
    """Return the messages as mrkdwn `text` without blocks: the last try."""
    shown = mrkdwn(text, 10**9)
    return [shown[at : at + SECTION] for at in range(0, len(shown), SECTION)]


def mrkdwn(text: str, limit: int = SECTION) -> str:
    """Return `text` as mrkdwn within `limit` characters; a cut is marked with an ellipsis."""
    shown = plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
