"""Slack as a tool: messages and reactions that others see, as whoever connected it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.base import APART, Api, Result, Risk, by_cursor, sought, when_started
from connectors.http import ServiceRefused
from connectors.slack import CONNECTOR as slack
from connectors.slack import channel_id
from engine.errors import ToolError
from engine.tools.base import Outcome

__all__ = ["place", "where"]

#: Characters of one message (docs: chat.postMessage).
TEXT = 40_000
#: Messages of one page and of a look-up.
PAGE, RECENT = 200, 1_000
#: The type of the metadata that holds the id of the call (docs: message metadata).
MARK = "nod_call"

_next = by_cursor("response_metadata.next_cursor", "cursor")


def place(arguments: Mapping[str, Any]) -> list[str]:
    thread = arguments.get("thread") or ""
    return [f"{arguments['channel']}/{thread}" if thread else str(arguments["channel"])]


async def where(api: Api, arguments: Mapping[str, Any]) -> str:
    """Return the channel as a person knows it, with its id, and the thread."""
    channel, thread = channel_id(arguments["channel"]), arguments.get("thread")
    try:
        found = (await api.get("/conversations.info", query={"channel": channel}))["channel"]
        named = f"#{found['name']} ({channel})" if found.get("name") else channel
    except ServiceRefused:  # a direct message, which this sign-in does not see
        named = channel
    return f"{named}, in the thread {thread}" if thread else named


async def _text_shown(api: Api, arguments: Mapping[str, Any]) -> str:
    return f"To {await where(api, arguments)}:\n\n{arguments['text']}"


async def _mark_shown(api: Api, arguments: Mapping[str, Any]) -> str:
    there = await where(api, arguments)
    return f":{arguments['emoji'].strip(':')}: on the message {arguments['ts']} in {there}"


async def _was_sent(api: Api, arguments: Mapping[str, Any], seen: Any) -> Outcome:
    """Look for the call's metadata among what was said there since."""
    thread = arguments.get("thread") or ""
    method = "/conversations.replies" if thread else "/conversations.history"
    asked = {"channel": arguments["channel"], "ts": thread, "oldest": f"{float(seen) - APART:.6f}"}
    asked |= {"include_all_metadata": "true", "limit": str(PAGE)}
    pages = api.pages(method, query=asked, items="messages", paging=_next, most=RECENT)

    def shown(message: Mapping[str, Any]) -> Result | None:
        held = (message.get("metadata") or {}).get("event_payload") or {}
        return api.result({"ts": message["ts"]}) if held.get("call") == api.ctx.call else None

    return await sought(pages, RECENT, shown)


@slack.tool(
    risk=Risk.EXTERNAL,
    target=place,
    preview=_text_shown,
    look_up=_was_sent,
    witness=when_started,
)
async def send(api: Api, channel: str, text: str, thread: str = "") -> Result:
    """Send a message as the person who connected Slack; Nod's own answers need no tool.

    Args:
        channel: The channel's id, such as C0123456789.
        text: The text, in Slack's own form of Markdown.
        thread: The ts of the thread's first message; empty: the channel itself.
    """
    if len(text) > TEXT:
        raise ToolError(
            f"The text has {len(text):,} characters, {TEXT:,} are the limit.", "Split it."
        )
    metadata = {"event_type": MARK, "event_payload": {"call": api.ctx.call}}
    json: dict[str, Any] = {"channel": channel_id(channel), "text": text, "metadata": metadata}
    # Previews would fetch what the text links to.
    json |= {"unfurl_links": False, "unfurl_media": False}
    if thread:
        json["thread_ts"] = thread
    sent = await api.send("POST", "/chat.postMessage", json=json)
    return api.result({"channel": sent["channel"], "ts": sent["ts"]})


@slack.tool(
    risk=Risk.EXTERNAL,
    target=lambda arguments: [f"{arguments['channel']}/{arguments['ts']}"],
    preview=_mark_shown,
    idempotent=True,
)
async def react(api: Api, channel: str, ts: str, emoji: str) -> Result:
    """React to a message.

    Args:
        channel: The channel's id.
        ts: The message's ts.
        emoji: Its name without colons, such as eyes.
    """
    json = {"channel": channel_id(channel), "timestamp": ts, "name": emoji.strip(":")}
    try:
        await api.send("POST", "/reactions.add", json=json)
    except ServiceRefused as error:
        if "already_reacted" not in str(error):
            raise
    return api.result({"reacted": emoji})
