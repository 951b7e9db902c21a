"""Speaks Discord's HTTP API through discord.py's client, which keeps to the rate limits.

Everything that fails is a SurfaceError that says whether something may have been posted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import discord
from discord.http import HTTPClient, Route

from bot.surfaces.base import SurfaceError

__all__ = ["QUIET", "Rest", "RestError"]

#: Sent with every message and edit: nobody is pinged, whatever the text says.
#: https://discord.com/developers/docs/resources/message#allowed-mentions-object
QUIET: Mapping[str, Any] = {"parse": [], "replied_user": False}

#: Seconds until another try, when Discord names none.
_LATER = 5.0
#: Error codes, with what to do about them.
#: https://discord.com/developers/docs/topics/opcodes-and-status-codes#json
_FIXES = {
    50001: "Let Nod see the channel: its role needs View Channel there.",
    50013: "Give Nod's role the permissions that `nod discord` lists.",
    50007: "They take no direct messages from this server.",
}


class RestError(SurfaceError):
    """Discord's answer to a request it does not carry out; `code` is its own number, or 0."""

    def __init__(
        self,
        what: str,
        fix: str = "",
        *,
        code: int = 0,
        certain: bool = True,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(what, fix, certain=certain, retry_after=retry_after)
        self.code = code


class Rest:
    """Requests to Discord."""

    def __init__(self, http: HTTPClient) -> None:
        self._http = http

    async def call(
        self,
        method: str,
        path: str,
        ids: Mapping[str, str],
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        files: Sequence[discord.File] = (),
    ) -> Any:
        """Make a request and return the JSON of its answer.

        Args:
            path: with `{name}` where an id stands; `ids` has them.
            body: what is sent as JSON; with files it goes along as `payload_json`.

        Raises RestError.
        """
        given: dict[str, Any] = {} if query is None else {"params": query}
        if files:
            given |= {"files": files, "form": _form(body, files)}
        elif body is not None:
            given["json"] = body
        try:
            return await self._http.request(Route(method, path, **ids), **given)
        except (discord.DiscordException, aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _refused(error) from error


def _form(body: Any, files: Sequence[discord.File]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"name": "payload_json", "value": json.dumps(body)}]
    for number, file in enumerate(files):
        part = {"name": f"files[{number}]", "value": file.fp, "filename": file.filename}
        parts.append({**part, "content_type": "application/octet-stream"})
    return parts


def _refused(error: BaseException) -> RestError:
    if isinstance(error, discord.RateLimited):
        return RestError("Discord asks to wait.", retry_after=error.retry_after)
    if not isinstance(error, discord.HTTPException):
        certain = isinstance(error, aiohttp.ClientConnectorError)
        what = f"Discord could not be reached ({type(error).__name__})."
        return RestError(what, certain=certain, retry_after=_LATER)
    if error.status == 429:
        asked = error.response.headers.get("Retry-After", "")
        wait = float(asked) if asked.replace(".", "", 1).isdecimal() else 60.0
        return RestError("Discord asks to wait.", retry_after=wait)
    if error.status >= 500:
        what = f"Discord has trouble (status {error.status})."
        return RestError(what, certain=False, retry_after=_LATER)
    what = f"Discord does not take this: {error.text or error.status} ({error.code})."
    return RestError(what, _FIXES.get(error.code, ""), code=error.code)
