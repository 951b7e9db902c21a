"""Turns the text of Slack's messages into plain words: mentions, links and escapes resolved."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any

from bot.commands.table import COMMANDS

__all__ = ["attached", "command", "mentions", "people", "places", "said", "typed", "words"]

_MARK = re.compile(r"<([^<>\n]+)>")
#: The name of a command where it is one: not a part of a path or an address.
_COMMAND = re.compile(rf"(?<![\w/.~:>-])/({'|'.join(COMMANDS)})(?![\w/.-]\w|/)")


def mentions(text: str, user: str) -> bool:
    """Say whether the text mentions the user."""
    return re.search(rf"<@{re.escape(user)}(\|[^>]*)?>", text) is not None


def people(text: str) -> list[str]:
    """Return the ids of those the text mentions."""
    return re.findall(r"<@(\w+)", text)


def said(
    event: Mapping[str, Any], bot: str, names: Mapping[str, str], *, marks: bool = False
) -> str:
    """Return what a message says; a leading mention of the bot is an address and left out.

    Args:
        bot: the bot's user id.
        names: user id -> name, of those who are known.
        marks: leave the marks of channels, which say exactly which one is meant.
    """
    text = str(event.get("text") or "")
    own = re.match(rf"\s*<@{re.escape(bot)}(\|[^>]*)?>[\s:,]*", text)
    shown = words(text[own.end() :] if own else text, {**names, bot: "Nod"}, marks=marks)
    return "\n\n".join(part for part in (shown, *_forwarded(event, names)) if part)


def command(text: str) -> tuple[str, str] | None:
    """Return the name and arguments of a command that a whole message is; None: it is none."""
    name, _, arguments = text.strip().removeprefix("/nod ").partition(" ")
    if not text.lstrip().startswith("/") or name.removeprefix("/") not in COMMANDS:
        return None
    return name.removeprefix("/"), arguments.strip()


def typed(text: str) -> str:
    """Return Nod's own words with its commands as they are typed on Slack: `/nod status`."""
    return _COMMAND.sub(r"/nod \1", text)


def words(text: str, names: Mapping[str, str], *, marks: bool = False) -> str:
    """Return the text without Slack's marks, or with those of channels only.

    https://docs.slack.dev/messaging/formatting-message-text
    """

    def resolved(found: re.Match[str]) -> str:
        kept = marks and found[1].startswith("#")
        return found[0] if kept else _resolved(found[1], names)

    return html.unescape(_MARK.sub(resolved, text))


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


def places(event: Mapping[str, Any], team: str) -> dict[str, str]:
    """Return the channels that a message names, as people read them, with their thread_target."""
    found = re.findall(r"<#(C\w+|G\w+)\|([^<>|\n]+)>", str(event.get("text") or ""))
    return {f"#{html.unescape(name)}": f"slack:{team}/{channel}" for channel, name in found}


def attached(event: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    """Return what an app writes beside its text; people's attachments are previews of links.

    https://docs.slack.dev/messaging/formatting-message-text#attachments
    """
    told = []
    for each in event.get("attachments") or ():
        fields = [f"{f.get('title', '')}: {f.get('value', '')}" for f in each.get("fields") or ()]
        parts = [each.get("pretext"), each.get("title"), each.get("text"), *fields]
        lines = [words(str(part), names) for part in parts if part]
        told.append("\n".join(lines or [words(str(each.get("fallback") or ""), names)]))
    return told


def _forwarded(event: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    """Return the messages that were forwarded with this one; link previews are none."""
    found = []
    for each in event.get("attachments") or ():
        if each.get("is_share") and each.get("text"):
            author = each.get("author_name") or "somebody"
            quoted = words(str(each["text"]), names).replace("\n", "\n> ")
            found.append(f"Forwarded from {author}:\n> {quoted}")
    return found
