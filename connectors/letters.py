"""Mail as bytes and as what a model reads: text of a message, and messages made (RFC 5322).

Reading and writing is the standard library's; HTML becomes text by BeautifulSoup.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Iterable, Mapping, Sequence
from email import message_from_bytes
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP, default
from email.utils import formatdate, getaddresses
from pathlib import Path
from typing import Any

from engine.errors import ToolError
from engine.tools.places import failure

__all__ = ["CALL_HEADER", "Hidden", "attachment", "made", "read", "recipients", "shown"]

#: Holds the id of the call that sent a message, by which it is looked up.
CALL_HEADER = "X-Nod-Call"
#: Characters of one message's text, and attachments that are named.
TEXT, PARTS = 50_000, 50
#: Bytes of all files of one message: 25 MB is what Gmail sends, and their encoding adds a third.
ATTACHED = 18_000_000


def read(data: bytes) -> dict[str, Any]:
    """Return what a model needs of a message: heads, text, names of attachments."""
    letter = message_from_bytes(data, policy=default)
    heads = {name: str(letter.get(name, "")) for name in ("From", "To", "Cc", "Date", "Subject")}
    names = [part.get_filename("unnamed") for part in letter.iter_attachments()]
    heads["Message-ID"] = str(letter.get("Message-ID", "")).strip()
    return {**heads, "text": _text(letter)[:TEXT], "attachments": names[:PARTS]}


def attachment(data: bytes, name: str) -> bytes:
    """Return the attachment of that name; raises ToolError when there is none."""
    letter = message_from_bytes(data, policy=default)
    for part in letter.iter_attachments():
        if part.get_filename("unnamed") == name:
            held = part.get_payload(decode=True)
            if isinstance(held, bytes):
                return held
    raise ToolError(f"The message has no attachment '{name}'.", "Read it to see their names.")


def _text(letter: EmailMessage) -> str:
    try:
        body = letter.get_body(("plain", "html"))
        held = "" if body is None else body.get_content()
    except (MessageError, LookupError, ValueError, AttributeError):
        return "(its text cannot be read)"
    if body is not None and body.get_content_subtype() == "html":
        from bs4 import BeautifulSoup

        held = BeautifulSoup(str(held), "html.parser").get_text("\n", strip=True)
    return str(held)


def made(
    arguments: Mapping[str, Any], *, call: str, files: Sequence[Path], sender: str = ""
) -> EmailMessage:
    """Return the message a call describes: to, cc, bcc, subject, body; raises ToolError.

    `files` are real paths of attachments. Blocking: they are read.
    """
    letter = EmailMessage(policy=SMTP)
    try:
        for name in ("To", "Cc", "Bcc"):
            people = arguments.get(name.lower()) or ()
            if people:
                letter[name] = [_address(str(each)) for each in people]
        letter["Subject"] = str(arguments["subject"]).replace("\n", " ").replace("\r", " ")
        if sender:
            letter["From"] = sender
    except (ValueError, IndexError, MessageError) as error:
        raise ToolError(f"An address cannot be used: {error}.", "Write name@example.org.") from None
    letter["Date"] = formatdate(localtime=False)
    letter[CALL_HEADER] = call
    letter.set_content(str(arguments["body"]))
    _within(files)
    for path in files:
        kind = (mimetypes.guess_type(path.name)[0] or "application/octet-stream").split("/")
        letter.add_attachment(
            path.read_bytes(), maintype=kind[0], subtype=kind[1], filename=path.name
        )
    return letter


def _address(text: str) -> Address:
    """Return the address, if it is nothing but one: a comment in it would blur a rule's target."""
    found = Address(addr_spec=text.strip())
    if found.addr_spec != text.strip():
        raise ValueError(f"'{text[:100]}' holds more than an address")
    return found


def _within(files: Sequence[Path]) -> None:
    """Raise ToolError when a file is not there, or they are more than a mail may carry."""
    size = 0
    for path in files:
        try:
            size += path.stat().st_size
        except OSError as error:
            raise failure(path.name, error) from error
    if size > ATTACHED:
        raise ToolError(
            f"The files have {size:,} bytes, a message carries {ATTACHED:,}.",
            "Send fewer, or a link to them.",
        )


async def shown(_api: object, arguments: Mapping[str, Any]) -> str:
    """Return a message a call describes as its readers will see it; a preview of a tool."""
    people = [
        f"{n.title()}: {', '.join(arguments[n])}" for n in ("to", "cc", "bcc") if arguments[n]
    ]
    files = [f"Attached: {each}" for each in arguments["files"] or ()]
    return "\n".join([*people, f"Subject: {arguments['subject']}", *files, "", arguments["body"]])


def recipients(arguments: Mapping[str, Any]) -> list[str]:
    """Return everybody a message would go to, in lower case."""
    people = (arguments.get(name) or () for name in ("to", "cc", "bcc"))
    return sorted({str(each).strip().lower() for group in people for each in group})


class Hidden:
    """Messages that are never shown, whoever asks: rules such as from:payroll@acme.example.

    A rule is `from:`, `to:`, `subject:` or `label:` and a part of it. Raises ToolError for others.
    """

    def __init__(self, rules: Iterable[str]) -> None:
        self._rules = [rule.partition(":") for rule in rules]
        for field, _, words in self._rules:
            if field not in ("from", "to", "subject", "label") or not words.strip():
                raise ToolError(
                    f"'{field}:{words}' in never_show cannot be understood.",
                    "Use from:, to:, subject: or label: and a part of it.",
                )

    def hides(self, heads: Mapping[str, str], labels: Iterable[str] = ()) -> bool:
        """Say whether the message with these heads (names in any case) is never shown."""
        known = {name.lower(): value for name, value in heads.items()}
        named = {label.lower() for label in labels}
        for field, _, words in self._rules:
            wanted = words.strip().lower()
            if field == "label":
                if wanted in named:
                    return True
            elif field == "subject":
                if wanted in known.get("subject", "").lower():
                    return True
            else:
                held = [known.get("from", "")] if field == "from" else _to(known)
                if any(wanted in each.lower() for _, each in getaddresses(held)):
                    return True
        return False


def _to(heads: Mapping[str, str]) -> list[str]:
    return [heads.get(name, "") for name in ("to", "cc", "bcc")]
