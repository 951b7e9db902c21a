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
from bot.surfaces.pacing import Paused

__all__ = ["QUIET", "Rest", "RestError", "tracing"]

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


#: Goes along with a request that gives its turn up when it is to wait.
_YIELDS = "yields"


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


def tracing() -> aiohttp.TraceConfig:
    """Return what lets a request give its turn up when Discord answers 429.

    The library would sleep on it, and then send it before anything that is more urgent.
    """
    config = aiohttp.TraceConfig()
    config.on_request_end.append(_ended)
    return config


async def _ended(
    _: aiohttp.ClientSession, context: Any, end: aiohttp.TraceRequestEndParams
) -> None:
    headers = end.response.headers
    if end.response.status != 429 or getattr(context, "trace_request_ctx", None) != _YIELDS:
        return
    if "X-RateLimit-Global" in headers:
        return  # it holds for every request, and the library lets none go meanwhile
    try:
        wait = str((await end.response.json(content_type=None))["retry_after"])
    except (ValueError, TypeError, KeyError):  # not of the API, but of what guards it
        wait = headers.get("Retry-After", "")
    raise _paused(wait)


def _paused(asked: str) -> Paused:
    wait = float(asked) if asked.replace(".", "", 1).isdecimal() else 60.0
    return Paused("Discord asks to wait.", retry_after=wait)


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
        yields: bool = False,
    ) -> Any:
        """Make a request and return the JSON of its answer.

        Args:
            path: with `{name}` where an id stands; `ids` has them.
            body: what is sent as JSON; with files it goes along as `payload_json`.
            yields: raise Paused when Discord asks to wait, however short; else wait for a while.

        Raises RestError and Paused.
        """
        given: dict[str, Any] = {} if query is None else {"params": query}
        if files:
            given |= {"files": files, "form": _form(body, files)}
        elif body is not None:
            given["json"] = body
        if yields:
            given["trace_request_ctx"] = _YIELDS
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


def _refused(error: BaseException) -> SurfaceError:
    if isinstance(error, discord.RateLimited):
        return _paused(str(error.retry_after))
    if not isinstance(error, discord.HTTPException):
        certain = isinstance(error, aiohttp.ClientConnectorError)
        what = f"Discord could not be reached ({type(error).__name__})."
        return RestError(what, certain=certain, retry_after=_LATER)
    if error.status == 429:
        return _paused(error.response.headers.get("Retry-After", ""))
    if error.status >= 500:
        what = f"Discord has trouble (status {error.status})."
        return RestError(what, certain=False, retry_after=_LATER)
    what = f"Discord does not take this: {error.text or error.status} ({error.code})."
    return RestError(what, _FIXES.get(error.code, ""), code=error.code)
