"""Gmail: search and read mail, labels, drafts, and sending.

Our own declarations of API v1, with messages as the bytes they are: Google's client library is
synchronous and untyped. What `never_show` of the settings names is not there for anybody.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from connectors import letters
from connectors.base import Api, Connector, Found, Identity, Limits, Reply, Result, Risk, was_saved
from connectors.google import following, oauth
from connectors.http import ServiceRefused

__all__ = ["CONNECTOR", "heads_of", "labels", "outside", "whole"]

CONNECTOR = gmail = Connector(
    name="gmail",
    title="Gmail",
    about="Search, read, label, draft and send mail.",
    base="https://gmail.googleapis.com/gmail/v1/users/me",
    docs="https://developers.google.com/workspace/gmail/api/reference/rest",
    auth=(oauth("gmail.modify"),),
    # 15,000 units a minute and person, 5 of them to read one message (docs: usage limits).
    limits=Limits(per_minute=1_200, body_bytes=40_000_000),
)

_HEADS = ("From", "To", "Cc", "Subject", "Date")
#: Messages of one search: each is a request of its own.
MOST = 200
#: Records of new messages of one look.
NEW = 25


@gmail.check
async def check(api: Api) -> Identity:
    """See whose the mailbox is."""
    own = await api.get("/profile")
    return Identity(label=own["emailAddress"], text=f"Signed in as {own['emailAddress']}.")


@gmail.tool(risk=Risk.READ)
async def search(api: Api, query: str, limit: int = 20) -> Result:
    """Search mail, newest first.

    Args:
        query: In Gmail's search words: from:bo is:unread newer_than:2d has:attachment report.
        limit: How many, at most 200.
    """
    hidden, names = letters.Hidden(api.options.get("never_show", ())), await labels(api)
    most = min(limit, MOST)
    asked = {"q": query, "maxResults": min(most, 100)}
    pages = api.pages("/messages", query=asked, items="messages", paging=following, most=most)
    ids = [each["id"] async for each in pages]
    found = await asyncio.gather(*(outside(api, each, _HEADS) for each in ids))
    shown = [each for each in found if not hidden.hides(heads_of(each), named(each, names))]
    listed = [
        {
            "id": each["id"],
            "thread": each["threadId"],
            **heads_of(each),
            "snippet": each.get("snippet", ""),
            "labels": named(each, names),
        }
        for each in shown
    ]
    left_out = len(found) - len(shown)
    return api.result(listed, "search", shown={"hidden": left_out} if left_out else None)


async def outside(api: Api, message_id: str, heads: Sequence[str]) -> Mapping[str, Any]:
    """Return a message without its text."""
    wanted = {"format": "metadata", "metadataHeaders": list(heads)}
    found: Mapping[str, Any] = await api.get("/messages/{id}", query=wanted, id=message_id)
    return found


def heads_of(message: Mapping[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in message["payload"]["headers"]}


def named(message: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    return [names.get(each, each) for each in message.get("labelIds") or ()]


async def labels(api: Api) -> dict[str, str]:
    """Return the names of the labels by their id."""
    return {each["id"]: each["name"] for each in (await api.get("/labels"))["labels"]}


async def whole(api: Api, message_id: str) -> tuple[bytes, Mapping[str, Any]]:
    """Return a message's bytes and row; one that is never shown is as one that is not there."""
    found = await api.get("/messages/{id}", query={"format": "raw"}, id=message_id)
    data = base64.urlsafe_b64decode(found["raw"])
    hidden = letters.Hidden(api.options.get("never_show", ()))
    if hidden.hides(letters.read(data), named(found, await labels(api))):
        raise ServiceRefused(404, _NOT_FOUND)
    return data, found


_NOT_FOUND = (
    "Gmail has no such thing, or does not show it to this account: Requested entity was not found."
)


@gmail.tool(risk=Risk.READ)
async def read(api: Api, message_id: str) -> Result:
    """Read a message: its text and the names of its attachments.

    Args:
        message_id: From a search.
    """
    data, found = await whole(api, message_id)
    letter = letters.read(data)
    return api.result({"id": message_id, "thread": found["threadId"], **letter}, letter["From"])


@gmail.tool(risk=Risk.WRITE_LOCAL, paths={"path": "write"}, look_up=was_saved)
async def save_attachment(api: Api, message_id: str, name: str, path: str) -> Result:
    """Save an attachment as a new file.

    Args:
        message_id: From a search.
        name: The attachment's name, as reading the message gives it.
        path: Where to; relative paths start in the session's folder.
    """
    data, _ = await whole(api, message_id)
    return await api.save(path, letters.attachment(data, name))


@gmail.source("message", every=60)
async def message(api: Api, seen: Any) -> Found:
    """A new message is in the inbox."""
    if seen is None:
        return Found(seen=(await api.get("/profile"))["historyId"])
    latest = seen

    def paging(reply: Reply, asked: Mapping[str, Any], came: int) -> Any:
        nonlocal latest
        latest = reply.json()["historyId"]
        return following(reply, asked, came)

    query = {"startHistoryId": seen, "historyTypes": "messageAdded", "labelId": "INBOX"}
    pages = api.pages("/history", query=query, items="history", paging=paging, most=NEW)
    try:
        records = [each async for each in pages]
    except ServiceRefused as error:
        if error.status != 404:
            raise
        return await message(api, None)  # it is too long ago for Gmail to tell what came since
    ids = [each["message"]["id"] for record in records for each in record.get("messagesAdded", ())]
    items = [(each["id"], each) for each in await _told(api, ids)]
    return Found(items=items, seen=records[-1]["id"] if len(records) == NEW else latest)


async def _told(api: Api, ids: Iterable[str]) -> list[dict[str, Any]]:
    """Return what an event tells of each message that is still there and may be shown."""
    hidden = letters.Hidden(api.options.get("never_show", ()))
    found = await asyncio.gather(*(_if_there(api, each) for each in ids))
    there = [each for each in found if each is not None]
    names = await labels(api) if there else {}
    return [
        {"id": each["id"], "from": heads.get("From", ""), "subject": heads.get("Subject", "")}
        for each in there
        if not hidden.hides(heads := heads_of(each), named(each, names))
    ]


async def _if_there(api: Api, message_id: str) -> Mapping[str, Any] | None:
    try:
        return await outside(api, message_id, _HEADS)
    except ServiceRefused as error:
        if error.status != 404:
            raise
        return None
