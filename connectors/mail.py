"""Mail of any provider: search, read and mark by IMAP, send by SMTP.

imap-tools reads (in threads of its own: it waits), aiosmtplib sends; both are typed and well kept,
and the asynchronous IMAP client there is has a licence that would bind ours. Always over TLS. What
`never_show` of the settings names is not there for anybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from connectors.base import Api, Connector, Field, Identity, Key, Result, Risk
from connectors.http import ServiceRefused, Unreachable, check_public
from engine.errors import NeedsConnection, ToolError

if TYPE_CHECKING:
    from imap_tools import BaseMailBox

__all__ = ["CONNECTOR", "HOSTS", "at", "in_box", "needs", "tls"]

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

#: What lets a private server be asked.
HOSTS = "If it is yours, name it in nod.toml, under [connectors.mail]: hosts."
#: Seconds for one answer of a server.
PATIENCE = 20.0

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

        check_public(host, options.get("hosts", ()), HOSTS)
        try:
            box = MailBox(host, port, timeout=PATIENCE, ssl_context=tls(options))
            try:
                with box.login(fields["email"], fields["password"], initial_folder=None) as opened:
                    return work(opened)
            finally:
                with contextlib.suppress(
                    OSError
                ):  # it is closed already, where the login went well
                    box.client.shutdown()
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
