"""Texts of Jira in its document format (ADF): written, read, and what plain text cannot hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["adf", "lost_as_text", "text_of"]


def adf(text: str) -> dict[str, Any]:
    """Return text as a document of paragraphs, a line break within one kept."""
    paragraphs = [each for each in text.split("\n\n") if each.strip()]
    return {"type": "doc", "version": 1, "content": [_paragraph(each) for each in paragraphs]}


def _paragraph(text: str) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    for line in text.split("\n"):
        if parts:
            parts.append({"type": "hardBreak"})
        if line:
            parts.append({"type": "text", "text": line})
    return {"type": "paragraph", "content": parts}


_BLOCKS = frozenset({"paragraph", "heading", "listItem", "codeBlock", "tableRow", "blockquote"})


def text_of(document: Any) -> str:
    """Return what a document says, a block a line."""
    return "".join(_words(document)).strip() if isinstance(document, dict) else ""


def _words(node: Mapping[str, Any]) -> Iterator[str]:
    kind, attributes = node.get("type"), node.get("attrs") or {}
    if kind == "text":
        yield str(node.get("text", ""))
    elif kind == "hardBreak":
        yield "\n"
    elif kind in ("mention", "emoji", "inlineCard"):
        yield str(attributes.get("text") or attributes.get("url") or "")
    for each in node.get("content") or ():
        yield from _words(each)
    if kind in _BLOCKS:
        yield "\n"


#: The nodes of a document of which plain text keeps what they say.
_WORDS = frozenset(
    """doc paragraph text hardBreak heading bulletList orderedList listItem blockquote codeBlock
    rule emoji""".split()
)


def lost_as_text(node: Mapping[str, Any] | None) -> list[str]:
    """Return the kinds of nodes that plain text would lose, sorted: media, panel, table."""
    if node is None:
        return []
    below = (kind for each in node.get("content") or () for kind in lost_as_text(each))
    return sorted({*below, str(node["type"])} - _WORDS)
