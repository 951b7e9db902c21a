"""Streams of the fake Slack: they end by age or when it is quiet, and take no edit while open.

https://docs.slack.dev/reference/methods/chat.appendStream
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.fakes.markup import Refused, slack_pings
from tests.fakes.slack_api import METHODS, channel_of, metadata_of, method, own_post, thread_of
from tests.fakes.slack_state import App, Post, Team

__all__ = ["METHODS"]

#: Characters of one call, and of a whole message.
LIMIT = 12_000


def _text(given: Mapping[str, Any]) -> str:
    text = str(given.get("markdown_text") or "")
    if len(text) > LIMIT:
        raise Refused("msg_too_long")
    return text


def _grown(app: App, post: Post, text: str) -> None:
    if len(post.text) + len(text) > LIMIT:
        raise Refused("msg_too_long")
    post.text += text
    post.fed = app.clock()
    post.blocks = [{"type": "markdown", "text": post.text}] if post.text else []
    pings = slack_pings(post.blocks)
    assert not pings, f"a stream that pings: {pings}"


@method("chat.startStream", "chat:write", "channel", "thread_ts")
def chat_start_stream(app: App, team: Team, given: Mapping[str, Any]) -> Any:
    channel = channel_of(team, given)
    thread = thread_of(channel, given)
    if channel.id[0] != "D":
        for each in ("recipient_team_id", "recipient_user_id"):
            if not given.get(each):
                raise Refused(f"missing_{each}")
        if given["recipient_team_id"] not in (team.workspaces or (team.id,)):
            raise Refused("invalid_arguments: the recipient's team is a workspace")
        if given["recipient_user_id"] not in channel.members:
            raise Refused("user_not_in_channel")
    text = _text(given)
    post = channel.add(app.tick(), user=team.bot_user, bot=team.bot, thread=thread)
    post.streaming = app.clock()
    _grown(app, post, text)
    app.posted(team, channel, post)
    return {"channel": channel.id, "ts": post.ts}


@method("chat.appendStream", "chat:write", "channel", "ts")
def chat_append_stream(app: App, team: Team, given: Mapping[str, Any]) -> Any:
    channel, post = own_post(team, given, "message_not_owned_by_app")
    text = _text(given)
    if not post.is_streaming(app):
        raise Refused("message_not_in_streaming_state")
    if not text:
        raise Refused("no_text")
    _grown(app, post, text)
    return {"channel": channel.id, "ts": post.ts}


@method("chat.stopStream", "chat:write", "channel", "ts")
def chat_stop_stream(app: App, team: Team, given: Mapping[str, Any]) -> Any:
    channel, post = own_post(team, given, "message_not_owned_by_app")
    if not post.is_streaming(app):
        raise Refused("message_not_in_streaming_state")
    _grown(app, post, _text(given))
    post.streaming = 0.0
    if "metadata" in given:
        post.metadata = metadata_of(given)
    return {"channel": channel.id, "ts": post.ts}
