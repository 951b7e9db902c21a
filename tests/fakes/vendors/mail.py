"""A mail provider: pymap holds the mailbox, aiosmtpd takes what is sent; both behind TLS.

Both are servers others wrote and know nothing of us. The certificate is of a CA made for the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["PASSWORD", "USER", "Provider", "provided"]

USER, PASSWORD = "ana@acme.example", "app-password-very-secret"


@dataclass(slots=True)
class Taken:
    """What the sending server does with the next messages, and what it took."""

    letters: list[tuple[list[str], bytes]] = field(default_factory=list)
    #: Addresses it takes nothing for.
    refused: set[str] = field(default_factory=set)
    #: Set: it hangs up where it should say that it took the message; after taking it, or before.
    hang_up: str = ""

    async def handle_RCPT(
        self, _server: Any, _session: Any, envelope: Envelope, address: str, _options: Any
    ) -> str:
        if address in self.refused:
            return "550 5.1.1 no such person"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, _session: Any, envelope: Envelope) -> str:
        if self.hang_up != "before":
            assert isinstance(envelope.content, bytes)
            self.letters.append((list(envelope.rcpt_tos), envelope.content))
        if self.hang_up:
            server.transport.abort()
        return "250 taken"


@dataclass(frozen=True, slots=True)
class Provider:
    """Where the provider is, and what it took."""

    imap: int
    smtp: int
    ca: Path
    taken: Taken

    @property
    def fields(self) -> dict[str, str]:
        """What a person fills in."""
        places = {"imap": f"localhost:{self.imap}", "smtp": f"localhost:{self.smtp}"}
        return {"email": USER, "password": PASSWORD, **places}

    @property
    def options(self) -> dict[str, Any]:
        """What the settings say: a CA of our own, and that this machine may be asked."""
        return {"ca_file": str(self.ca), "hosts": ["localhost"]}

    def box(self) -> Any:
        """Return the mailbox, logged in, for what a test puts in and looks at. Blocking."""
        from imap_tools import MailBox

        context = ssl.create_default_context(cafile=str(self.ca))
        box = MailBox("localhost", self.imap, timeout=5, ssl_context=context)
        return box.login(USER, PASSWORD)


@asynccontextmanager
async def provided(place: Path) -> AsyncIterator[Provider]:
    """A provider with the mailbox that pymap shows in its demonstrations."""
    certificate, key = _certificate(place)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    taken, behind = Taken(), _free_port()
    clients: set[asyncio.StreamWriter] = set()

    def sending() -> SMTP:
        return SMTP(taken, tls_context=context, require_starttls=True, authenticator=_known)

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from pymap.main import main; main()"),
        *("--host", "127.0.0.1", "--port", str(behind), "--no-tls"),
        *("dict", "--demo-data", "--demo-user", USER, "--demo-password", PASSWORD),
        env={"PATH": os.defpath},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    forward = partial(_forward, behind, clients)
    front = await asyncio.start_server(forward, "localhost", 0, ssl=context)
    smtp = await asyncio.get_running_loop().create_server(sending, "localhost", 0)
    try:
        await _listening(behind)
        yield Provider(_port(front), _port(smtp), certificate, taken)
    finally:
        process.kill()
        await process.wait()
        for server in (front, smtp):
            server.close()
        for client in clients:
            client.close()
            with contextlib.suppress(OSError):
                await client.wait_closed()


def _port(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


async def _forward(
    behind: int,
    clients: set[asyncio.StreamWriter],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Carry bytes between a client, over TLS, and the mailbox server."""
    server_reader, server_writer = await asyncio.open_connection("127.0.0.1", behind)
    clients |= {writer, server_writer}
    await asyncio.gather(_carry(reader, server_writer), _carry(server_reader, writer))


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
    writer.close()


async def _listening(port: int) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


def _known(_server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
    right = isinstance(data, LoginPassword) and data.password == PASSWORD.encode()
    return AuthResult(success=right, handled=False)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _certificate(place: Path) -> tuple[Path, Path]:
    """Make a certificate for this machine, good for an hour; return the paths of it and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    form = serialization.Encoding.PEM
    bare = serialization.NoEncryption()
    (place / "ca.pem").write_bytes(made.public_bytes(form))
    held = key.private_bytes(form, serialization.PrivateFormat.PKCS8, bare)
    (place / "ca.key").write_bytes(held)
    return place / "ca.pem", place / "ca.key"
