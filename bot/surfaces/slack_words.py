"""Turns the text of Slack's messages into plain words: mentions, links and escapes resolved."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["mentions", "said", "words"]

_MARK = re.compile(r"<([^<>\n]+)>")


def mentions(text: str, user: str) -> bool:
    """Say whether the text mentions the user."""
    return re.search(rf"<@{re.escape(user)}(\|[^>]*)?>", text) is not None


def said(event: Mapping[str, Any], bot: str, names: Mapping[str, str]) -> str:
    """Return what a message says; a leading mention of the bot is an address and left out.

    Args:
        bot: the bot's user id.
        names: user id -> name, of those who are known.
    """
    text = str(event.get("text") or "")
    own = re.match(rf"\s*<@{re.escape(bot)}(\|[^>]*)?>[\s:,]*", text)
    shown = words(text[own.end() :] if own else text, {**names, bot: "Nod"})
    return "\n\n".join(part for part in (shown, *_forwarded(event, names)) if part)


def words(text: str, names: Mapping[str, str]) -> str:
    """Return the text without Slack's marks.

    https://docs.slack.dev/messaging/formatting-message-text
    """
    return html.unescape(_MARK.sub(lambda found: _resolved(found[1], names), text))


def _resolved(mark: str, names: Mapping[str, str]) -> str:
    what, _, label = mark.partition("|")
    if what.startswith("@"):
        return f"@{names.get(what[1:], label or what[1:])}"
    if what.startswith("#"):
        return f"#{label or what[1:]}"
    if what.startswith("!"):
        return label or "@" + what[1:].partition("^")[0]
    if label and label != what.removeprefix("mailto:").removeprefix("http://"):
        return f"[{label}]({what})"
    return label if what.startswith("mailto:") and label else what


def _forwarded(event: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    """Return the messages that were forwarded with this one; link previews are none."""
    found = []
    for each in event.get("attachments") or ():
        if each.get("is_share") and each.get("text"):
            author = each.get("author_name") or "somebody"
            quoted = words(str(each["text"]), names).replace("\n", "\n> ")
            found.append(f"Forwarded from {author}:\n> {quoted}")
    return found
