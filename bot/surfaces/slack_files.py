"""Brings the files people send on Slack, with the workspace's token, and checks what they are.

Without the right to read files Slack answers with a sign-in page and HTTP 200: what comes must be
what the message said it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientResponse, ClientSession

from bot.surfaces.base import Attachment, SurfaceError
from bot.surfaces.slack_teams import Team

__all__ = ["attachments"]

#: Bytes read at once, and more than the message said that are taken before it is given up.
CHUNK, SLACK = 256_000, 1_000_000

#: How files of a type begin.
_MAGIC: Mapping[str, tuple[bytes, ...]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
    "application/pdf": (b"%PDF-",),
}
_PAGE = (b"<!doctype html", b"<html")

_SIGN_IN = "Slack sent a sign-in page instead of it"
_SCOPE = "Add the scope files:read to the app and install it again; `nod slack` checks it."


def attachments(
    team: Team, session: ClientSession, base_url: str
) -> Callable[[Mapping[str, Any]], Attachment]:
    """Return what makes an attachment of a file object of Slack.

    The token goes to Slack's own hosts only, and to the host of `base_url`.
    """
    own = urlsplit(base_url).netloc

    def attach(file: Mapping[str, Any]) -> Attachment:
        async def fetch(path: Path) -> None:
            held = file if _address(file) else await _whole(team, str(file["id"]))
            await _fetch(team, session, own, held, path)

        return Attachment(
            name=str(file.get("name") or file.get("title") or file["id"]),
            media_type=str(file.get("mimetype") or "application/octet-stream"),
            bytes=int(file.get("size") or 0),
            voice=file.get("subtype") == "slack_audio",
            fetch=fetch,
        )

    return attach


def _address(file: Mapping[str, Any]) -> str:
    return str(file.get("url_private_download") or file.get("url_private") or "")


async def _whole(team: Team, file: str) -> Mapping[str, Any]:
    """Return a file object that came without its address, as in channels two workspaces share."""
    found: Mapping[str, Any] = (await team.call("files_info", file=file))["file"]
    return found


async def _fetch(
    team: Team, session: ClientSession, own: str, file: Mapping[str, Any], path: Path
) -> None:
    address = _address(file)
    host = urlsplit(address).netloc
    if not address or file.get("is_external"):
        raise SurfaceError("it does not lie on Slack, only a link to it")
    if host != own and not host.endswith((".slack.com", ".slack-files.com")):
        raise SurfaceError("its address is not one of Slack's")
    headers = {"Authorization": f"Bearer {team.token}"}
    try:
        async with session.get(address, headers=headers, allow_redirects=False) as answer:
            if answer.status != 200:
                moved = answer.status in (301, 302, 303, 307, 308)
                what = _SIGN_IN if moved else f"Slack answered with HTTP {answer.status}"
                raise SurfaceError(what, _SCOPE)
            _check_type(file, answer)
            await _save(answer, file, path)
    except (ClientError, TimeoutError) as error:
        raise SurfaceError("the connection to Slack broke") from error


def _check_type(file: Mapping[str, Any], answer: ClientResponse) -> None:
    if answer.content_type == "text/html" and file.get("mimetype") != "text/html":
        raise SurfaceError(_SIGN_IN, _SCOPE)


async def _save(answer: ClientResponse, file: Mapping[str, Any], path: Path) -> None:
    limit = int(file.get("size") or 0) + SLACK
    with await asyncio.to_thread(path.open, "wb") as target:
        held = 0
        async for chunk in answer.content.iter_chunked(CHUNK):
            if not held:
                _check_magic(file, chunk)
            held += len(chunk)
            if held > limit:
                raise SurfaceError("it is larger than Slack said")
            await asyncio.to_thread(_write, target, chunk)


def _write(target: BinaryIO, chunk: bytes) -> None:
    target.write(chunk)


def _check_magic(file: Mapping[str, Any], begin: bytes) -> None:
    media = str(file.get("mimetype") or "")
    known = _MAGIC.get(media)
    if known is not None and not begin.startswith(known):
        page = begin[:64].lstrip().lower().startswith(_PAGE)
        raise SurfaceError(_SIGN_IN if page else f"it is not the {media} it is said to be", _SCOPE)
