"""Mail: messages searched and read, and their attachments saved. They stay unread."""

from __future__ import annotations

import datetime as dates
from typing import TYPE_CHECKING, Any

from connectors import letters
from connectors.base import Api, Found, Result, Risk, was_saved
from connectors.http import ServiceRefused
from connectors.mail import CONNECTOR as mail
from connectors.mail import in_box
from engine.errors import ToolError

if TYPE_CHECKING:
    from imap_tools import BaseMailBox

__all__ = ["whole"]

#: Bytes of one message; messages of one search.
MESSAGE, MOST = 40_000_000, 200
#: New messages of one look.
NEW = 25


@mail.tool(risk=Risk.READ)
async def search(
    api: Api,
    words: str = "",
    sender: str = "",
    since: str = "",
    unread: bool = False,
    folder: str = "INBOX",
    limit: int = 20,
) -> Result:
    """Search a folder, newest first.

    Args:
        words: Words that must be in the message.
        sender: A part of the sender's address or name.
        since: Only from this day on: 2026-03-01.
        unread: Only what has not been read.
        folder: From the list of folders.
        limit: How many, at most 200.
    """
    hidden = letters.Hidden(api.options.get("never_show", ()))
    wanted = _criteria(words, sender, since, unread)

    def look(box: BaseMailBox) -> list[dict[str, Any]]:
        from imap_tools import A

        box.folder.set(folder, readonly=True)
        query = A(**wanted) if wanted else "ALL"
        found = box.fetch(
            query,
            charset="UTF-8",
            limit=min(limit, MOST),
            reverse=True,
            mark_seen=False,
            headers_only=True,
            bulk=50,
        )
        return [
            {
                "id": each.uid,
                "unread": "\\Seen" not in each.flags,
                "bytes": each.size_rfc822,
                **heads,
            }
            for each in found
            if (heads := _heads(each.obj))
        ]

    found = await in_box(api, look)
    shown = [each for each in found if not hidden.hides(each, [folder])]
    left_out = len(found) - len(shown)
    return api.result(shown, folder, shown={"hidden": left_out} if left_out else None)


def _criteria(words: str, sender: str, since: str, unread: bool) -> dict[str, Any]:
    wanted: dict[str, Any] = {}
    if words:
        wanted["text"] = words
    if sender:
        wanted["from_"] = sender
    if unread:
        wanted["seen"] = False
    if since:
        try:
            wanted["date_gte"] = dates.date.fromisoformat(since)
        except ValueError:
            raise ToolError(f"'{since}' is no day.", "Write it as 2026-03-01.") from None
    return wanted


def _heads(message: Any) -> dict[str, str]:
    read = letters.read(message.as_bytes())
    return {name: read[name] for name in ("From", "To", "Cc", "Date", "Subject")}


async def whole(api: Api, message_id: str, folder: str) -> bytes:
    """Return a message's bytes; one that is never shown is as one that is not there."""

    def fetched(box: BaseMailBox) -> bytes | None:
        from imap_tools import A

        box.folder.set(folder, readonly=True)
        query = A(uid=message_id)
        (size,) = [m.size_rfc822 for m in box.fetch(query, headers_only=True)] or [0]
        if size > MESSAGE:
            raise ToolError(f"The message has {size:,} bytes, {MESSAGE:,} are the limit.")
        found = list(box.fetch(query, mark_seen=False))
        return found[0].obj.as_bytes() if found else None

    if not message_id.isdigit():
        raise ToolError(f"'{message_id[:40]}' is no message's id.", "Search to find it.")
    data = await in_box(api, fetched)
    hidden = letters.Hidden(api.options.get("never_show", ()))
    if data is None or hidden.hides(letters.read(data), [folder]):
        raise ServiceRefused(404, f"There is no message {message_id} in {folder}.")
    return data


@mail.tool(risk=Risk.READ)
async def read(api: Api, message_id: str, folder: str = "INBOX") -> Result:
    """Read a message: its text and the names of its attachments. It stays unread.

    Args:
        message_id: From a search.
        folder: The folder it was found in.
    """
    letter = letters.read(await whole(api, message_id, folder))
    return api.result({"id": message_id, **letter}, letter["From"])


@mail.tool(risk=Risk.WRITE_LOCAL, paths={"path": "write"}, look_up=was_saved)
async def save_attachment(
    api: Api, message_id: str, name: str, path: str, folder: str = "INBOX"
) -> Result:
    """Save an attachment as a new file.

    Args:
        message_id: From a search.
        name: The attachment's name, as reading the message gives it.
        path: Where to; relative paths start in the session's folder.
        folder: The folder the message is in.
    """
    data = await whole(api, message_id, folder)
    return await api.save(path, letters.attachment(data, name))


@mail.source("message", every=120)
async def message(api: Api, seen: Any) -> Found:
    """A new message is in the inbox."""
    hidden = letters.Hidden(api.options.get("never_show", ()))

    def look(box: BaseMailBox) -> tuple[dict[str, int], list[tuple[int, dict[str, str]]]]:
        from imap_tools import A, U

        # Numbers grow, and mean the same for as long as UIDVALIDITY does (RFC 3501, 2.3.1.1).
        state = box.folder.status("INBOX", ["UIDNEXT", "UIDVALIDITY"])
        now = {"validity": state["UIDVALIDITY"], "next": state["UIDNEXT"]}
        if seen is None or seen["validity"] != now["validity"] or seen["next"] >= now["next"]:
            return now, []
        box.folder.set("INBOX", readonly=True)
        there = sorted(int(each) for each in box.uids(A(uid=U(str(seen["next"]), "*"))))
        new = [each for each in there if each >= seen["next"]]  # * is the last one, new or not
        some = new[:NEW]
        if not some:
            return now, []
        wanted = A(uid=[str(each) for each in some])
        found = box.fetch(wanted, mark_seen=False, headers_only=True, bulk=NEW)
        heads = sorted((int(each.uid or 0), _heads(each.obj)) for each in found)
        all_of_them = len(some) == len(new) and some[-1] < now["next"]
        return now if all_of_them else {**now, "next": some[-1] + 1}, heads

    now, found = await in_box(api, look)
    items = [
        (
            f"{now['validity']}:{uid}",
            {"id": str(uid), "from": each["From"], "subject": each["Subject"]},
        )
        for uid, each in found
        if not hidden.hides(each, ["INBOX"])
    ]
    return Found(items=items, seen=now)
