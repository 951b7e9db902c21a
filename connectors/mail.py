"""Mail of any provider: search, read and mark by IMAP, send by SMTP.

imap-tools reads (in threads of its own: it waits), aiosmtplib sends; both are typed and well kept,
and the asynchronous IMAP client there is has a licence that would bind ours. Always over TLS. What
`never_show` of the settings names is not there for anybody.
"""

from __future__ import annotations

import asyncio
import datetime as dates
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from connectors import letters
from connectors.base import Api, Connector, Field, Identity, Key, Result, Risk, was_saved
from connectors.http import ServiceRefused, Unreachable, check_public
from engine.errors import NeedsConnection, ToolError

if TYPE_CHECKING:
    from imap_tools import BaseMailBox

__all__ = ["CONNECTOR", "at", "in_box", "needs", "tls"]

T = TypeVar("T")

CONNECTOR = mail = Connector(
    name="mail",
    title="Mail",
    about="Search, read, mark and send mail of any provider.",
    base="",
    docs="https://www.rfc-editor.org/rfc/rfc9051",
    auth=(
        Key(
            fields=(
                Field(name="email", title="Your address", secret=False),
                Field(
                    name="password",
                    title="Password",
                    hint="Most providers want an app password, made in their security settings.",
                ),
                Field(
                    name="imap",
                    title="IMAP server",
                    secret=False,
                    hint="imap.example.org, or with a port: imap.example.org:993",
                ),
                Field(
                    name="smtp",
                    title="SMTP server",
                    secret=False,
                    hint="smtp.example.org:465, or :587 for STARTTLS",
                ),
            ),
        ),
    ),
)

#: Seconds for one answer of a server; bytes of one message; messages of one search.
PATIENCE, MESSAGE, MOST = 20.0, 40_000_000, 200

#: Threads that wait for IMAP servers, so that a slow one holds up nothing else.
_threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="imap")


def at(place: str, port: int) -> tuple[str, int]:
    """Return host and port of "imap.example.org:993"; `port` when none is named."""
    host, _, named = place.strip().partition(":")
    if not host or (named and not named.isdigit()):
        raise ToolError(f"'{place}' is no server.", "Write imap.example.org, or with a port.")
    return host, int(named or port)


def tls(options: Mapping[str, Any]) -> ssl.SSLContext:
    """Return how servers are recognised; `ca_file` of the settings names a CA of your own."""
    return ssl.create_default_context(cafile=options.get("ca_file"))


def needs(api: Api) -> NeedsConnection:
    """Return what a call raises when the server does not take the password."""
    assert api.account is not None, "mail is always somebody's"
    why = f"The mail server does not take the password of {api.account.label}."
    return NeedsConnection("mail", api.account.label, why, api.account.owner, "Mail")


async def in_box(api: Api, work: Callable[[BaseMailBox], T]) -> T:
    """Do `work` with the mailbox, logged in. Raises ToolError and NeedsConnection."""
    fields, options = await api.secret(), api.options
    host, port = at(str(fields["imap"]), 993)
    loop = asyncio.get_running_loop()

    def worked() -> T:
        from imap_tools import MailBox, MailboxLoginError
        from imap_tools.errors import ImapToolsError

        check_public(host, options.get("hosts", ()))
        try:
            box = MailBox(host, port, timeout=PATIENCE, ssl_context=tls(options))
            with box.login(fields["email"], fields["password"], initial_folder=None) as opened:
                return work(opened)
        except MailboxLoginError:
            raise needs(api) from None
        except ImapToolsError as error:
            raise ServiceRefused(0, f"The mail server refused it: {_short(error)}.") from None
        except (OSError, EOFError, box_errors()) as error:
            raise Unreachable(f"{host} cannot be used: {_short(error)}.", "Try later.") from None

    return await loop.run_in_executor(_threads, worked)


def box_errors() -> type[Exception]:
    """Return what imaplib raises when a connection breaks or an answer is nonsense."""
    import imaplib

    return imaplib.IMAP4.error


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


@mail.check
async def check(api: Api) -> Identity:
    """See whether the server takes the password."""
    email = str((await api.secret())["email"])
    await in_box(api, lambda box: box.folder.list())
    return Identity(label=email, text=f"Signed in as {email}.")


@mail.tool(risk=Risk.READ)
async def folders(api: Api) -> Result:
    """List the folders of the mailbox."""
    found = await in_box(api, lambda box: [each.name for each in box.folder.list()])
    return api.result(found)


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


async def _whole(api: Api, message_id: str, folder: str) -> bytes:
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
    letter = letters.read(await _whole(api, message_id, folder))
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
    data = await _whole(api, message_id, folder)
    return await api.save(path, letters.attachment(data, name))


@mail.tool(
    risk=Risk.EXTERNAL,
    target=lambda arguments: [f"folder/{arguments['folder']}"],
    idempotent=True,
)
async def mark(api: Api, message_id: str, as_read: bool, folder: str = "INBOX") -> Result:
    """Mark a message as read or unread.

    Args:
        message_id: From a search.
        as_read: Read, or unread.
        folder: The folder it was found in.
    """
    await _whole(api, message_id, folder)
    api.ctx.before_act()

    def marked(box: BaseMailBox) -> None:
        box.folder.set(folder)
        box.flag(message_id, "\\Seen", as_read)

    if not api.rehearsed:
        await in_box(api, marked)
    return api.result({"id": message_id, "read": as_read})
