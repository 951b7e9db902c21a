"""Slack as a tool: search, channels, threads and people, with the rights of whoever connected it.

Nod's own messages go through its surface; this is for what a person may see and do in Slack. Our
own declarations of the Web API: the SDK has limits and tries of its own beside ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from connectors.base import (
    Api,
    Connector,
    Field,
    Identity,
    Key,
    Limits,
    OAuth,
    Reply,
    Result,
    Risk,
    by_cursor,
)
from connectors.http import ServiceRefused, Unauthorized, Unreachable
from engine.errors import ToolError

__all__ = ["CONNECTOR", "channel_id", "said"]

#: What `error` says when the token is no good (docs: authentication errors).
_UNKNOWN = frozenset(
    {"not_authed", "invalid_auth", "account_inactive", "token_revoked", "token_expired"}
)
#: What it says when it broke on the way: a part may have been done (docs: errors).
_BROKEN = frozenset({"fatal_error", "internal_error", "service_unavailable"})


def _fault(reply: Reply) -> Exception | None:
    """Slack refuses with 200 and `ok: false`."""
    answer = reply.json()
    if not isinstance(answer, dict) or answer.get("ok"):
        return None
    why = str(answer.get("error", "it did not say why"))
    if why in _BROKEN:
        raise Unreachable(f"Slack failed ({why}).", "Try again later.")
    if why in _UNKNOWN:
        return Unauthorized(f"Slack does not take the token ({why}).")
    needed = f", it needs {answer['needed']}" if answer.get("needed") else ""
    return ServiceRefused(200, f"Slack refused it: {why}{needed}.")


CONNECTOR = slack = Connector(
    name="slack",
    title="Slack",
    about="Search and read as yourself; send, react, share files.",
    base="https://slack.com/api",
    docs="https://docs.slack.dev/reference/methods",
    auth=(
        OAuth(
            authorize_url="https://slack.com/oauth/v2_user/authorize",
            token_url="https://slack.com/api/oauth.v2.user.access",
            scopes=(
                "search:read",
                "channels:read",
                "channels:history",
                "groups:read",
                "groups:history",
                "users:read",
                "chat:write",
                "reactions:write",
                "files:read",
                "files:write",
            ),
            client="SLACK",
        ),
        Key(
            fields=(
                Field(
                    name="token",
                    title="User OAuth token (xoxp-…)",
                    hint="api.slack.com/apps, your app, OAuth & Permissions.",
                ),
            ),
            headers=lambda fields: {"Authorization": f"Bearer {fields['token']}"},
        ),
    ),
    limits=Limits(per_minute=45, at_once=4),  # tier 3: 50 a minute and method
    fault=_fault,
)

_next = by_cursor("response_metadata.next_cursor", "cursor")
#: Items of one page (docs: pagination recommends 200 at most).
PAGE = 200


@slack.check
async def check(api: Api) -> Identity:
    """See whose the token is, and of which workspace."""
    me = await api.get("/auth.test")
    # Workspaces may have the same name, but not the same address.
    where = (urlsplit(me["url"]).hostname or me["team"]).removesuffix(".slack.com")
    return Identity(label=where, text=f"Signed in to {me['team']} as {me['user']}.")


@slack.tool(risk=Risk.READ)
async def search(api: Api, query: str, limit: int = 20) -> Result:
    """Search messages the person can see, newest first.

    Args:
        query: In Slack's search words: in:#alerts from:@bo after:2026-03-01 checkout.
        limit: How many, at most 100.
    """
    asked = {"query": query, "count": min(limit, 100), "sort": "timestamp"}
    found = (await api.get("/search.messages", query=asked))["messages"]["matches"]
    listed = [
        {
            "channel": each["channel"]["name"],
            "channel_id": each["channel"]["id"],
            "by": each.get("username"),
            "ts": each["ts"],
            "text": each["text"],
            "link": each["permalink"],
        }
        for each in found
    ]
    return api.result(listed, "search")


@slack.tool(risk=Risk.READ)
async def channels(api: Api, words: str = "", limit: int = 100) -> Result:
    """List channels the person can see.

    Args:
        words: Only those with this in their name.
        limit: How many, at most.
    """
    asked = {"types": "public_channel,private_channel", "limit": PAGE, "exclude_archived": True}
    pages = api.pages(
        "/conversations.list", query=asked, items="channels", paging=_next, most=10_000
    )
    listed: list[dict[str, Any]] = []
    async for each in pages:
        if words.lower() in each["name"] and len(listed) < limit:
            purpose = (each.get("purpose") or {}).get("value", "")
            listed.append({"id": each["id"], "name": each["name"], "purpose": purpose})
    return api.result(listed)


def channel_id(channel: str) -> str:
    """Return the id of a channel; raises ToolError for a name, which Slack does not take here."""
    if not (channel[:1] in ("C", "G", "D") and channel.isalnum() and channel.isupper()):
        raise ToolError(f"'{channel[:80]}' is no channel's id.", "List channels to find it.")
    return channel


def said(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a model needs of a message."""
    kept = {name: message[name] for name in ("ts", "thread_ts", "reply_count") if name in message}
    files = [{"id": f["id"], "name": f.get("name")} for f in message.get("files") or ()]
    by = message.get("user") or message.get("bot_id")
    return {
        "by": by,
        "text": message.get("text", ""),
        **kept,
        **({"files": files} if files else {}),
    }


@slack.tool(risk=Risk.READ)
async def read(
    api: Api, channel: str, thread: str = "", oldest: str = "", limit: int = 50
) -> Result:
    """Read a channel, newest first, or a thread, oldest first.

    Args:
        channel: The channel's id, such as C0123456789.
        thread: The ts of a thread's first message; empty: the channel itself.
        oldest: Only messages after this ts (epoch seconds).
        limit: How many, at most.
    """
    method = "/conversations.replies" if thread else "/conversations.history"
    asked = {"channel": channel_id(channel), "ts": thread, "oldest": oldest}
    pages = api.pages(
        method,
        query={**asked, "limit": min(limit, PAGE)},
        items="messages",
        paging=_next,
        most=limit,
    )
    return api.result([said(each) async for each in pages], channel)


@slack.tool(risk=Risk.READ)
async def people(api: Api, words: str = "", limit: int = 50) -> Result:
    """List people of the workspace with their ids.

    Args:
        words: Only those with this in a name.
        limit: How many, at most.
    """
    listed: list[dict[str, Any]] = []
    pages = api.pages(
        "/users.list", query={"limit": PAGE}, items="members", paging=_next, most=10_000
    )
    async for each in pages:
        name = each.get("real_name") or each["name"]
        if words.lower() in name.lower() and not each.get("deleted") and len(listed) < limit:
            listed.append({"id": each["id"], "name": name, "zone": each.get("tz")})
    return api.result(listed)
