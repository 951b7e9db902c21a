"""What of a document of Jira plain text cannot hold, so that it is not written over with one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["lost_as_text"]

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
