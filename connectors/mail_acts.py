"""Mail: marked, and sent by SMTP; by the copy among the sent mail a send is looked up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from email.message import EmailMessage
from typing import TYPE_CHECKING, Any

from connectors import letters
from connectors.base import Api, Result, Risk
from connectors.http import ServiceRefused, Unreachable, Unsure, check_public
from connectors.mail import CONNECTOR as mail
from connectors.mail import HOSTS, PATIENCE, at, in_box, needs, tls
from connectors.mail_reads import whole
from engine.errors import ToolError
from engine.tools.base import LookUp, Outcome
from engine.tools.places import locate

if TYPE_CHECKING:
    import aiosmtplib
    from imap_tools import BaseMailBox

__all__: list[str] = []


async def _was_sent(api: Api, arguments: Mapping[str, Any], _seen: Any) -> Outcome:
    """Look for the copy. Without one nobody can tell: it is made after the server has taken it."""

    def look(box: BaseMailBox) -> bool:
        from imap_tools import A, H

        folder = _sent(box)
        if folder is None:
            return False
        box.folder.set(folder, readonly=True)
        return bool(box.uids(A(header=H(letters.CALL_HEADER, api.ctx.call))))

    there = await in_box(api, look)
    return Outcome(found=LookUp.HAPPENED if there else LookUp.CANNOT_TELL)


def _sent(box: BaseMailBox) -> str | None:
    """Return the folder for sent mail: the one so flagged (RFC 6154), else one so named."""
    found = box.folder.list()
    for each in found:
        if "\\Sent" in each.flags:
            return each.name
    return next((each.name for each in found if each.name.lower().startswith("sent")), None)


@mail.tool(
    risk=Risk.EXTERNAL,
    target=letters.recipients,
    paths={"files": "read"},
    preview=letters.shown,
    look_up=_was_sent,
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
        answers: The Message-ID of the message it answers.
        files: Paths of files to attach.
    """
    given = {"to": to, "cc": cc, "bcc": bcc, "subject": subject, "body": body}
    sender = str((await api.secret())["email"])
    paths = [locate(api.ctx, each) for each in files or ()]
    letter = await asyncio.to_thread(
        letters.made, given, call=api.ctx.call, files=paths, sender=sender
    )
    if answers:
        letter["In-Reply-To"] = letter["References"] = answers
    refused = await _delivered(api, letter, letters.recipients(given))
    kept = await _copied(api, letter)
    told = {"sent_to": [each for each in letters.recipients(given) if each not in refused]}
    return api.result({**told, "refused": refused, "copy_in": kept or "no folder for sent mail"})


async def _delivered(api: Api, letter: EmailMessage, people: list[str]) -> dict[str, str]:
    """Hand the message to the server; returns whom it refused. Raises Unsure and ToolError."""
    import aiosmtplib

    fields, options = await api.secret(), api.options
    host, port = at(str(fields["smtp"]), 465)
    await asyncio.to_thread(check_public, host, options.get("hosts", ()), HOSTS)
    api.ctx.before_act()
    client = aiosmtplib.SMTP(
        hostname=host,
        port=port,
        use_tls=port == 465,
        start_tls=port != 465,
        tls_context=tls(options),
        timeout=PATIENCE,
    )
    try:
        await _logged_in(api, client, host, fields)
        return await _handed_over(client, letter, str(fields["email"]), people, host)
    finally:
        with contextlib.suppress(aiosmtplib.SMTPException, OSError, TimeoutError):
            await client.quit()


async def _logged_in(
    api: Api, client: aiosmtplib.SMTP, host: str, fields: Mapping[str, Any]
) -> None:
    """Connect; whatever goes wrong here, nothing was sent."""
    import aiosmtplib

    try:
        await client.connect()
        await client.login(fields["email"], fields["password"])
    except aiosmtplib.SMTPAuthenticationError:
        raise needs(api) from None
    except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
        raise Unreachable(f"{host} cannot be used ({type(error).__name__}).", "Later.") from None


async def _handed_over(
    client: aiosmtplib.SMTP, letter: EmailMessage, sender: str, people: list[str], host: str
) -> dict[str, str]:
    import aiosmtplib

    del letter["Bcc"]
    try:
        answers, _ = await client.send_message(letter, sender=sender, recipients=people)
    except aiosmtplib.SMTPRecipientsRefused as error:
        whom = ", ".join(each.recipient for each in error.recipients)
        raise ServiceRefused(0, f"The server takes mail for none of them: {whom}.") from None
    except aiosmtplib.SMTPResponseException as error:
        raise ServiceRefused(error.code, f"The server refused it: {error.message[:200]}") from None
    except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
        raise Unsure(f"The connection to {host} broke off ({type(error).__name__}).") from None
    return {whom: answer.message[:200] for whom, answer in answers.items()}


async def _copied(api: Api, letter: EmailMessage) -> str:
    """Keep a copy where sent mail is kept; what was sent stays sent, also without one."""
    data = letter.as_bytes()

    def kept(box: BaseMailBox) -> str:
        folder = _sent(box)
        if folder is not None:
            box.append(data, folder, flag_set=["\\Seen"])
        return folder or ""

    try:
        return await in_box(api, kept)
    except ToolError:
        return ""


async def _which(api: Api, arguments: Mapping[str, Any]) -> str:
    """Show the message that would be marked."""
    heads = letters.read(await whole(api, arguments["message_id"], arguments["folder"]))
    what = "read" if arguments["as_read"] else "unread"
    return f"Mark as {what}: {heads['Subject']}, from {heads['From']}, {heads['Date']}"


@mail.tool(
    risk=Risk.EXTERNAL,
    target=lambda arguments: [f"folder/{arguments['folder']}"],
    preview=_which,
    idempotent=True,
)
async def mark(api: Api, message_id: str, as_read: bool, folder: str = "INBOX") -> Result:
    """Mark a message as read or unread.

    Args:
        message_id: From a search.
        as_read: Read, or unread.
        folder: The folder it was found in.
    """
    await whole(api, message_id, folder)
    api.ctx.before_act()

    def marked(box: BaseMailBox) -> None:
        box.folder.set(folder)
        box.flag(message_id, "\\Seen", as_read)

    await in_box(api, marked)
    return api.result({"id": message_id, "read": as_read})
