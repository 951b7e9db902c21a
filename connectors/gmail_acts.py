"""Gmail: sending, drafts and labels. What was sent is known by a header of the call's own."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from typing import Any

from connectors import letters
from connectors.base import APART, Api, Result, Risk, sought, when_started
from connectors.gmail import CONNECTOR as gmail
from connectors.gmail import heads_of, labels, outside, whole
from connectors.google import following
from connectors.http import ServiceRefused
from engine.tools.base import Outcome
from engine.tools.places import locate

__all__: list[str] = []

#: Sent messages a look-up goes through.
RECENT = 200


async def _was_sent(api: Api, arguments: Mapping[str, Any], seen: Any) -> Outcome:
    return await _among(api, "SENT", float(seen) - APART)


async def _was_drafted(api: Api, arguments: Mapping[str, Any], seen: Any) -> Outcome:
    return await _among(api, "DRAFT", float(seen) - APART)


async def _among(api: Api, label: str, moment: float) -> Outcome:
    """Look for the call's own header among what was sent, or drafted, since."""

    def shown(found: Mapping[str, Any]) -> Result | None:
        ours = api.ctx.call in heads_of(found).values()
        return api.result({"id": found["id"], "thread": found["threadId"]}) if ours else None

    return await sought(_since(api, label, moment), RECENT, shown)


async def _since(api: Api, label: str, moment: float) -> AsyncIterator[Mapping[str, Any]]:
    """Give messages of the label, the newest first, up to one from before the moment."""
    asked = {"labelIds": label, "maxResults": RECENT}
    listed = api.pages("/messages", query=asked, items="messages", paging=following, most=RECENT)
    async for each in listed:
        found = await outside(api, each["id"], [letters.CALL_HEADER])
        if int(found["internalDate"]) / 1_000 < moment:
            return
        yield found


async def _letter(api: Api, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the message as the API takes it; an answer stays in its thread."""
    files = [locate(api.ctx, each) for each in arguments.get("files") or ()]
    letter = await asyncio.to_thread(letters.made, arguments, call=api.ctx.call, files=files)
    thread = {}
    if arguments.get("answers"):
        data, found = await whole(api, arguments["answers"])
        heads = letters.read(data)
        letter["In-Reply-To"] = letter["References"] = heads["Message-ID"]
        thread = {"threadId": found["threadId"]}
    return {"raw": base64.urlsafe_b64encode(letter.as_bytes()).decode(), **thread}


@gmail.tool(
    risk=Risk.EXTERNAL,
    target=letters.recipients,
    paths={"files": "read"},
    preview=letters.shown,
    look_up=_was_sent,
    witness=when_started,
)
async def send(
    api: Api,
    to: list[str],
    subject: str,
    body: str,
    cc: list[str] | None = None,
    bcc: list[str] | None = None,
    answers: str = "",
    files: list[str] | None = None,
) -> Result:
    """Send a message.

    Args:
        to: Addresses.
        subject: Its subject; of an answer, as it was.
        body: Its text, plain.
        cc: Addresses that get a copy.
        bcc: Addresses that get a copy unseen.
        answers: The id of the message it answers.
        files: Paths of files to attach.
    """
    given = {"to": to, "cc": cc, "bcc": bcc, "subject": subject, "body": body}
    json = await _letter(api, given | {"answers": answers, "files": files})
    sent = await api.send("POST", "/messages/send", json=json)
    return api.result({"id": sent["id"], "thread": sent["threadId"]})


@gmail.tool(
    risk=Risk.EXTERNAL,
    target=lambda _arguments: ["drafts"],
    paths={"files": "read"},
    preview=letters.shown,
    look_up=_was_drafted,
    witness=when_started,
)
async def draft(
    api: Api,
    to: list[str],
    subject: str,
    body: str,
    cc: list[str] | None = None,
    bcc: list[str] | None = None,
    answers: str = "",
    files: list[str] | None = None,
) -> Result:
    """Leave a message in the drafts, for the person to look at and send.

    Args:
        to: Addresses.
        subject: Its subject.
        body: Its text, plain.
        cc: Addresses that get a copy.
        bcc: Addresses that get a copy unseen.
        answers: The id of the message it answers.
        files: Paths of files to attach.
    """
    given = {"to": to, "cc": cc, "bcc": bcc, "subject": subject, "body": body}
    json = {"message": await _letter(api, given | {"answers": answers, "files": files})}
    return api.result({"draft": (await api.send("POST", "/drafts", json=json))["id"]})


@gmail.tool(
    risk=Risk.EXTERNAL,
    target=lambda arguments: [
        f"labels/{each}" for each in (*arguments["add"], *arguments["remove"])
    ],
    idempotent=True,
)
async def label(api: Api, message_id: str, add: list[str], remove: list[str]) -> Result:
    """Put labels on a message and take others off; UNREAD and INBOX are labels, too.

    Args:
        message_id: From a search.
        add: Names of labels that are there.
        remove: Names of labels.
    """
    ids = {name.lower(): id for id, name in (await labels(api)).items()}
    await whole(api, message_id)
    unknown = [each for each in (*add, *remove) if each.lower() not in ids]
    if unknown:
        raise ServiceRefused(404, f"There is no label {', '.join(unknown)}.")
    json = {
        "addLabelIds": [ids[each.lower()] for each in add],
        "removeLabelIds": [ids[each.lower()] for each in remove],
    }
    await api.send("POST", "/messages/{id}/modify", json=json, id=message_id)
    return api.result({"id": message_id, "added": add, "removed": remove})
