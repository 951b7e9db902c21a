"""The Web API of the fake Slack: each method checks what the real one checks, and answers alike.

Errors are raised as `Refused(code)`; a method that is not here is `unknown_method`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.fakes.markup import Refused, slack_message, slack_pings
from tests.fakes.slack_state import App, Channel, Post, Team, world_file
from tests.fakes.slack_views import check_view

__all__ = ["METHODS", "Method", "channel_of", "metadata_of", "method", "own_post", "thread_of"]

Method = Callable[[App, Team, Mapping[str, Any]], Any]

#: Method -> (what carries it out, scope it needs, arguments it must have, whether it takes JSON).
METHODS: dict[str, tuple[Method, str, tuple[str, ...], bool]] = {}


def method(
    name: str, scope: str, *needed: str, takes_json: bool = True
) -> Callable[[Method], Method]:
    def register(work: Method) -> Method:
        METHODS[name] = (work, scope, needed, takes_json)
        return work

    return register


def _flag(value: Any) -> bool:
    return value in (True, "true", "1", 1)


def _parsed(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) and value[:1] in "[{" else value


# -- who and where


@method("auth.test", "")
def auth_test(app: App, team: Team, given: Mapping[str, Any]) -> Any:
    whole = {"enterprise_id": team.id, "is_enterprise_install": True} if team.workspaces else {}
    return {
        **whole,
        "url": f"https://{team.id.lower()}.slack.com/",
        "team": team.name,
        "user": "nod",
        "team_id": team.id,
        "user_id": team.bot_user,
        "bot_id": team.bot,
    }


@method("users.info", "users:read", "user", takes_json=False)
def users_info(app: App, team: Team, given: Mapping[str, Any]) -> Any:
    name = team.users.get(given["user"])
    if name is None:
        raise Refused("user_not_found")
    profile = {"display_name": name, "real_name": name.title()}
    zone = {"tz": team.zones[given["user"]]} if given["user"] in team.zones else {}
    return {"user": {"id": given["user"], "name": name, "profile": profile, **zone}}


@method("conversations.open", "im:write", "users")
def conversations_open(app: App, team: Team, given: Mapping[str, Any]) -> Any:
    if given["users"] not in team.users:
        raise Refused("user_not_found")
    return {"channel": {"id": app.direct(team.id, given["users"]).id}}


def channel_of(team: Team, given: Mapping[str, Any], name: str = "channel") -> Channel:
    """Return a channel the bot is in; a person's id is no channel."""
    channel = team.channels.get(given[name])
    if channel is None:
        raise Refused("channel_not_found")
    if channel.workspace in team.withheld:
        raise Refused("team_access_not_granted")
    if channel.archived:
        raise Refused("is_archived")
    if team.bot_user not in channel.members:
        raise Refused("not_in_channel")
    return channel


def _page(
    app: App, posts: Sequence[Post], given: Mapping[str, Any], newest_first: bool
) -> dict[str, Any]:
    limit = int(given.get("limit", 100))
    if not 1 <= limit <= 999:
        raise Refused("invalid_limit")
    oldest = float(given.get("oldest") or 0)
    inclusive = _flag(given.get("inclusive"))
    kept = [p for p in posts if float(p.ts) > oldest or (inclusive and float(p.ts) == oldest)]
    kept.sort(key=lambda post: float(post.ts), reverse=newest_first)
    begin = int(given.get("cursor") or 0)
    end = begin + min(limit, app.page)
    with_metadata = _flag(given.get("include_all_metadata"))
    more = end < len(kept)
    return {
        "messages": [post.shown(with_metadata) for post in kept[begin:end]],
        "has_more": more,
        "response_metadata": {"next_cursor": str(end) if more else ""},
    }


def _history_scope(channel: Channel) -> str:
    return {"D": "im:history", "G": "groups:history"}.get(channel.id[0], "channels:history")


@method("conversations.history", "", "channel", takes_json=False)
def conversations_history(app: App, team: Team, given: Mapping[str, Any]) -> Any:
    channel = channel_of(team, given)
    app.need(team, _history_scope(channel))
    roots = [each for each in channel.posts.values() if each.thread in ("", each.ts)]
    return _page(app, roots, given, newest_first=True)


@method("conversations.replies", "", "channel", "ts", takes_json=False)
def conversations_replies(app: App, team: Team, given: Mapping[str, Any]) -> Any:
    channel = channel_of(team, given)
    app.need(team, _history_scope(channel))
    root = channel.posts.get(given["ts"])
    if root is None:
        raise Refused("thread_not_found")
    inside = [p for p in channel.posts.values() if root.ts in (p.ts, p.thread)]
    return _page(app, inside, given, newest_first=False)


# -- posting


def _check_shown(given: Mapping[str, Any]) -> tuple[str, list[Any]]:
    text, blocks = str(given.get("text") or ""), _parsed(given.get("blocks")) or []
    slack_message(blocks, text)
    pings = slack_pings(blocks, text)
    assert not pings, f"a post that pings: {pings}"
    return text, blocks


def thread_of(channel: Channel, given: Mapping[str, Any]) -> str:
    thread = given.get("thread_ts") or ""
    root = channel.posts.get(thread)
    if thread and (root is None or root.thread not in ("", thread)):
        raise Refused("thread_not_found")
    return thread


def metadata_of(given: Mapping[str, Any]) -> Any:
    held = _parsed(given.get("metadata"))
    if held and not (
        isinstance(held.get("event_type"), str) and isinstance(held.get("event_payload"), dict)
    ):
        raise Refused("invalid_metadata_format")
    return held


@method("chat.postMessage", "chat:write", "channel")
def chat_post_message(app: App, team: Team, given: Mapping[str, Any]) -> Any:
    channel = channel_of(team, given)
    text, blocks = _check_shown(given)
    assert given.get("unfurl_links") is False, "link previews must be off"
    assert given.get("unfurl_media") is False, "media previews must be off"
    post = channel.add(
        app.tick(),
        user=team.bot_user,
        bot=team.bot,
        text=text,
        blocks=blocks,
        thread=thread_of(channel, given),
        metadata=metadata_of(given),
    )
    app.posted(team, channel, post)
    return {"channel": channel.id, "ts": post.ts, "message": post.shown(True)}


def own_post(team: Team, given: Mapping[str, Any], fault: str) -> tuple[Channel, Post]:
    channel = channel_of(team, given)
    post = channel.posts.get(given["ts"])
    if post is None:
        raise Refused("message_not_found")
    if post.user != team.bot_user:
        raise Refused(fault)
    return channel, post


@method("chat.update", "chat:write", "channel", "ts")
def chat_update(app: App, team: Team, given: Mapping[str, Any]) -> Any:
    channel, post = own_post(team, given, "cant_update_message")
    if post.is_streaming(app):
        raise Refused("streaming_state_conflict")
    text, blocks = _check_shown(given)
    before = post.shown(False)
    post.text, post.blocks, post.streaming = text, blocks, 0.0
    post.edits += 1
    if "metadata" in given:
        post.metadata = metadata_of(given)
    app.changed(team, channel, post, before)
    return {"channel": channel.id, "ts": post.ts, "text": text}


@method("chat.delete", "chat:write", "channel", "ts")
def chat_delete(app: App, team: Team, given: Mapping[str, Any]) -> Any:
    channel, post = own_post(team, given, "cant_delete_message")
    del channel.posts[post.ts]
    return {"channel": channel.id, "ts": post.ts}


@method("chat.postEphemeral", "chat:write", "channel", "user")
def chat_post_ephemeral(app: App, team: Team, given: Mapping[str, Any]) -> Any:
    channel = channel_of(team, given)
    if given["user"] not in channel.members:
        raise Refused("user_not_in_channel")
    text, _ = _check_shown(given)
    app.whispers.append((given["user"], channel.id, text))
    return {"message_ts": app.tick()}


# -- signs


@method("reactions.add", "reactions:write", "channel", "timestamp", "name")
def reactions_add(app: App, team: Team, given: Mapping[str, Any]) -> Any:
    channel = channel_of(team, given)
    post = channel.posts.get(given["timestamp"])
    if post is None:
        raise Refused("message_not_found")
    if given["name"] not in ("eyes", "white_check_mark"):
        raise Refused("invalid_name")
    if given["name"] in post.reactions:
        raise Refused("already_reacted")
    post.reactions.append(given["name"])
    return {}


@method("assistant.threads.setStatus", "assistant:write", "channel_id", "thread_ts")
def assistant_set_status(app: App, team: Team, given: Mapping[str, Any]) -> Any:
    channel = channel_of(team, given, "channel_id")
    if given["thread_ts"] not in channel.posts:
        raise Refused("invalid_thread_ts")
    if "status" not in given:
        raise Refused("invalid_arguments: missing status")
    where = (channel.id, str(given["thread_ts"]))
    if given["status"]:
        app.statuses.append((*where, given["status"]))
        app.busy.add(where)
    else:
        app.busy.discard(where)
    return {}


@method("assistant.threads.setSuggestedPrompts", "assistant:write", "channel_id", "prompts")
def assistant_prompts(app: App, team: Team, given: Mapping[str, Any]) -> Any:
    prompts = _parsed(given["prompts"])
    if not 1 <= len(prompts) <= 4 or not all(p["title"] and p["message"] for p in prompts):
        raise Refused("invalid_arguments")
    app.suggested.append([each["title"] for each in prompts])
    return {}


# -- views


@method("views.open", "", "trigger_id", "view")
def views_open(app: App, team: Team, given: Mapping[str, Any]) -> Any:
    user = app.use_trigger(given["trigger_id"])
    view = _parsed(given["view"])
    check_view(view, "modal")
    return {"view": app.open_view(user, view)}


@method("views.publish", "", "user_id", "view")
def views_publish(app: App, team: Team, given: Mapping[str, Any]) -> Any:
    if given["user_id"] not in team.users:
        raise Refused("invalid_arguments")
    view = _parsed(given["view"])
    check_view(view, "home")
    app.homes[given["user_id"]] = view
    return {"view": {**view, "id": f"VHOME{given['user_id']}"}}


# -- files


@method("files.getUploadURLExternal", "files:write", "filename", "length", takes_json=False)
def files_get_upload_url(app: App, team: Team, given: Mapping[str, Any]) -> Any:
    if int(given["length"]) <= 0:
        raise Refused("invalid_arguments")
    file = app.new_file(team, given["filename"], int(given["length"]))
    return {"upload_url": f"{app.url}/upload/{file.id}", "file_id": file.id}


@method("files.completeUploadExternal", "files:write", "files")
def files_complete_upload(app: App, team: Team, given: Mapping[str, Any]) -> Any:
    wanted = _parsed(given["files"])
    files = [world_file(app, each["id"]) for each in wanted]
    if not files or any(file.content is None or file.shared for file in files):
        raise Refused("file_not_found")
    if given.get("channel_id"):
        channel = channel_of(team, given, "channel_id")
        blocks = _parsed(given.get("blocks")) or []
        if any(block["type"] == "markdown" for block in blocks):
            raise Refused("internal_error")  # as Slack does
        text = str(given.get("initial_comment") or "")
        if blocks:
            slack_message(blocks, "")
        thread = thread_of(channel, given)
        share = {"text": text, "blocks": blocks, "thread": thread}
        for file in files:
            file.shared = True
        app.later(_share(app, team, channel, files, share))
    return {"files": [{"id": file.id, "title": file.name} for file in files]}


async def _share(
    app: App, team: Team, channel: Channel, files: Sequence[Any], share: Mapping[str, Any]
) -> None:
    """The message that shows an upload comes a little later than the answer."""
    await asyncio.sleep(app.share_delay)
    shown = "\n".join(each["text"]["text"] for each in share["blocks"] if each["type"] == "section")
    post = channel.add(
        app.tick(),
        user=team.bot_user,
        bot=team.bot,
        text=share["text"] or shown,
        blocks=share["blocks"],
        thread=share["thread"],
        metadata=None,
        files=[file.shown(app) for file in files],
    )
    for file in files:
        kind = "private" if channel.id[0] in "DG" else "public"
        file.shares = {kind: {channel.id: [{"ts": post.ts}]}}
    app.posted(team, channel, post)


@method("files.info", "files:read", "file", takes_json=False)
def files_info(app: App, team: Team, given: Mapping[str, Any]) -> Any:
    file = world_file(app, given["file"])
    return {"file": {**file.shown(app), "shares": file.shares}}
