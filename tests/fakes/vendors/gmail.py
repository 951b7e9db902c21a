"""Gmail's API v1, as far as our connector uses it; developers.google.com.

A mailbox with three letters, one of them with an attachment. It refuses what the real one refuses:
bad base64, a letter without a recipient, unknown labels and fields, more than 500 a page.
"""

from __future__ import annotations

import base64
import binascii
import time
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from types import MappingProxyType
from typing import Any

from aiohttp import web

from tests.fakes.vendors.cases import Case
from tests.fakes.vendors.service import Refused, Service

__all__ = ["ACTS", "MANY", "READS", "Fake"]

_LETTER = {"to": ["bo@acme.example"], "subject": "Lunch", "body": "At noon?"}
READS = (
    Case(tool="gmail_search", arguments={"query": "report"}, gives="Report of March"),
    Case(tool="gmail_read", arguments={"message_id": "m1"}, gives="All is well"),
)
ACTS = (
    Case(
        tool="gmail_send",
        arguments={**_LETTER, "cc": ["Cy@other.example"], "bcc": ["di@acme.example"]},
        gives='"thread"',
        target=("gmail:bo@acme.example", "gmail:cy@other.example", "gmail:di@acme.example"),
        method="POST",
    ),
    Case(
        tool="gmail_draft",
        arguments={**_LETTER, "answers": "m1"},
        gives="draft",
        target=("gmail:drafts",),
        method="POST",
    ),
    Case(
        tool="gmail_label",
        arguments={"message_id": "m1", "add": ["Later"], "remove": ["UNREAD"]},
        gives="Later",
        target=("gmail:labels/Later", "gmail:labels/UNREAD"),
        method="POST",
    ),
)
MANY = Case(tool="gmail_search", arguments={"query": "many", "limit": 10_000}, gives="m199")

_LABELS = {
    "INBOX": "INBOX",
    "UNREAD": "UNREAD",
    "SENT": "SENT",
    "Label_1": "Later",
    "Label_2": "private",
}


class Fake(Service):
    """The vendor, with one mailbox."""

    unauthorized = MappingProxyType({"error": {"code": 401, "message": "Invalid Credentials"}})

    def routes(self) -> None:
        self.mail: dict[str, dict[str, Any]] = {}
        #: (id of the record, message) in order, and the first id that can still be asked for.
        self.history: list[tuple[int, dict[str, Any]]] = []
        self.oldest = 0
        self.put(
            "m1", _letter("Bo <bo@acme.example>", "Report of March", "All is well.", "march.csv")
        )
        self.put("m2", _letter("payroll@acme.example", "Your pay", "Secret sum."))
        self.put("m3", _letter("Cy <cy@other.example>", "Doctor", "On Friday."), "Label_2")
        self.on("GET", "/profile", self._profile)
        self.on("GET", "/history", self._history)
        self.on("GET", "/labels", self._labels)
        self.on("GET", "/messages", self._list)
        self.on("GET", "/messages/{id}", self._read)
        self.on("POST", "/messages/send", self._send)
        self.on("POST", "/messages/{id}/modify", self._modify)
        self.on("POST", "/drafts", self._draft)

    def put(self, id: str, letter: bytes, *labels: str) -> None:
        """Have a letter in the mailbox."""
        kept = {"id": id, "threadId": f"t-{id}", "labelIds": ["INBOX", "UNREAD", *labels]}
        kept["internalDate"] = "1772438400000"
        self.mail[id] = {**kept, "letter": letter}
        self.history.append((self._latest() + 7, self.mail[id]))

    def _latest(self) -> int:
        return self.history[-1][0] if self.history else 1_000

    async def _profile(self, request: web.Request) -> Any:
        own = {"emailAddress": f"{self.who(request)}@acme.example"}
        return own | {"historyId": str(self._latest())}

    async def _history(self, request: web.Request) -> Any:
        query = request.query
        if set(query) - {"startHistoryId", "historyTypes", "labelId", "maxResults", "pageToken"}:
            raise _bad("Unknown name")
        if query.get("historyTypes") != "messageAdded" or query.get("labelId") not in _LABELS:
            raise _bad("Invalid value")
        start = query.get("startHistoryId", "")
        if not start.isdigit() or int(start) < self.oldest:
            raise Refused(404, _error(404, "Requested entity was not found."))
        size, first = int(query.get("maxResults", 100)), int(query.get("pageToken", 0))
        if not 1 <= size <= 500:
            raise _bad("Invalid maxResults")
        found = [
            _record(id, each)
            for id, each in self.history
            if id > int(start) and query["labelId"] in each["labelIds"]
        ]
        page: dict[str, Any] = {"historyId": str(self._latest())}
        if found[first : first + size]:  # the real one leaves out an empty list
            page["history"] = found[first : first + size]
        if len(found) > first + size:
            page["nextPageToken"] = str(first + size)
        return page

    async def _labels(self, request: web.Request) -> Any:
        return {"labels": [{"id": id, "name": name} for id, name in _LABELS.items()]}

    async def _list(self, request: web.Request) -> Any:
        query = request.query
        size, first = int(query.get("maxResults", 100)), int(query.get("pageToken", 0))
        if not 1 <= size <= 500:
            raise _bad("Invalid maxResults")
        found = list(self.mail.values())[::-1]
        if label := query.get("labelIds"):
            found = [each for each in found if label in each["labelIds"]]
        if query.get("q") == "many":
            found = [{**self.mail["m1"], "id": f"m{n}"} for n in range(10_000)]
            self.many = True
        page: dict[str, Any] = {
            "messages": [
                {"id": each["id"], "threadId": each["threadId"]}
                for each in found[first : first + size]
            ]
        }
        if len(found) > first + size:
            page["nextPageToken"] = str(first + size)
        return page

    async def _read(self, request: web.Request) -> Any:
        message = self._message(request)
        form = request.query.get("format", "full")
        row = {name: message[name] for name in ("id", "threadId", "labelIds", "internalDate")}
        if form == "raw":
            return {**row, "raw": base64.urlsafe_b64encode(message["letter"]).decode()}
        if form != "metadata":
            raise _bad("Invalid format")
        letter = message_from_bytes(message["letter"], policy=default)
        wanted = {name.lower() for name in request.query.getall("metadataHeaders", [])}
        heads = [
            {"name": name, "value": str(value)}
            for name, value in letter.items()
            if name.lower() in wanted
        ]
        return {**row, "snippet": "", "payload": {"headers": heads}}

    async def _send(self, request: web.Request) -> Any:
        given = await request.json()
        id = f"s{len(self.acts) + 1}"
        self.mail[id] = self._taken(given) | {"id": id, "labelIds": ["SENT"]}
        self.acts.append(id)
        return {name: self.mail[id][name] for name in ("id", "threadId", "labelIds")}

    async def _draft(self, request: web.Request) -> Any:
        given = await request.json()
        if set(given) != {"message"}:
            raise _bad("Unknown name")
        id = f"d{len(self.acts) + 1}"
        self.mail[id] = self._taken(given["message"]) | {"id": id, "labelIds": ["DRAFT"]}
        self.acts.append(id)
        return {"id": f"r-{id}", "message": {"id": id}}

    async def _modify(self, request: web.Request) -> Any:
        message, given = self._message(request), await request.json()
        add, remove = given.get("addLabelIds", []), given.get("removeLabelIds", [])
        if set(given) - {"addLabelIds", "removeLabelIds"} or {*add, *remove} - set(_LABELS):
            raise _bad("Invalid label")
        message["labelIds"] = [each for each in (*message["labelIds"], *add) if each not in remove]
        self.acts.append(given)
        return {"id": message["id"], "labelIds": message["labelIds"]}

    def _taken(self, given: dict[str, Any]) -> dict[str, Any]:
        if set(given) - {"raw", "threadId"}:
            raise _bad("Unknown name")
        try:
            letter = base64.b64decode(given["raw"], altchars=b"-_", validate=True)
        except binascii.Error:
            raise _bad("Invalid value at 'message.raw'") from None
        read = message_from_bytes(letter, policy=default)
        if not (read["To"] or read["Cc"] or read["Bcc"]):
            raise _bad("Recipient address required")
        at = {"internalDate": str(int(time.time() * 1_000))}
        return {"threadId": given.get("threadId", "t-new"), "letter": letter, **at}

    def _message(self, request: web.Request) -> dict[str, Any]:
        id = request.match_info["id"]
        if id in self.mail:
            return self.mail[id]
        if getattr(self, "many", False) and id.startswith("m"):
            return {**self.mail["m1"], "id": id}
        raise Refused(404, _error(404, "Requested entity was not found."))


def _record(id: int, message: dict[str, Any]) -> dict[str, Any]:
    brief = {name: message[name] for name in ("id", "threadId")}
    added = [{"message": {**brief, "labelIds": message["labelIds"]}}]
    return {"id": str(id), "messages": [brief], "messagesAdded": added}


def _letter(sender: str, subject: str, text: str, attached: str = "") -> bytes:
    letter = EmailMessage()
    letter["From"], letter["To"], letter["Subject"] = sender, "ana@acme.example", subject
    letter["Message-ID"] = f"<{subject.replace(' ', '.')}@acme.example>"
    letter.set_content(text)
    letter.add_alternative(f"<p>{text}</p>", subtype="html")
    if attached:
        letter.add_attachment(b"a,b\n", maintype="text", subtype="csv", filename=attached)
    return letter.as_bytes()


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _bad(message: str) -> Refused:
    return Refused(400, _error(400, message))
