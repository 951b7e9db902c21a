"""The HTTP side of an MCP server: what a refusal or a failure means for the call it answers.

The SDK tells its caller only that something failed, and takes the whole connection down where a
host cannot be reached. Here each such answer becomes a JSON-RPC error with a code that says whether
anything can have been done, and an answer has a limit of bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from connectors.blot import blotted, words_of
from connectors.mcp.stdio import Read, Write
from engine.canonical import dumps
from engine.errors import NeedsConnection, ToolError

if TYPE_CHECKING:
    from connectors.accounts import Account
    from connectors.base import Credentials

__all__ = ["BUSY", "FAILED", "REFUSED", "UNAUTHORIZED", "UNREACHABLE", "Signed", "http"]

#: Codes of ours, outside those of JSON-RPC (-32768 to -32000). Only after FAILED, nobody knows
#: whether the call took effect.
UNAUTHORIZED, REFUSED, BUSY, UNREACHABLE, FAILED = 40401, 40403, 40429, 40500, 40502

#: Bytes of one answer, and of the text of a refusal.
ANSWER, REASON = 32_000_000, 2_000
#: Seconds to connect and to send; between two pieces of an answer.
CONNECT, PIECE = 15.0, 300.0
#: Seconds for the end of a session to be told.
FAREWELL = 2.0


@asynccontextmanager
async def http(
    url: str,
    headers: Mapping[str, str],
    auth: httpx2.Auth | None = None,
    hidden: frozenset[str] = frozenset(),
) -> AsyncIterator[tuple[Read, Write]]:
    """Yield the two streams of the SDK's transport to the server at `url`.

    The words in `hidden`, and what opens the account, are blotted out of what it answers.
    """
    timeout = httpx2.Timeout(CONNECT, read=PIECE)
    # What comes packed could not be looked through as it comes.
    sent = {**headers, "Accept-Encoding": "identity"}
    async with (
        _Door(hidden, headers=sent, timeout=timeout, auth=auth) as door,
        streamable_http_client(url, http_client=door) as streams,
    ):
        yield streams  # type: ignore[misc]  # the SDK wraps both streams, and is typed by protocols


class Signed(httpx2.Auth):
    """Signs requests as an account, renewed once when the server refuses it.

    Raises NeedsConnection and ToolError, which the door turns into answers.
    """

    def __init__(self, credentials: Credentials, account: Account) -> None:
        self._credentials = credentials
        self._account = account
        #: Whose account it is: a principal.
        self.person = account.owner

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        headers = await self._credentials.headers(self._account)
        request.headers.update(headers)
        response = yield request
        if response.status_code == 401:
            request.headers.update(await self._credentials.renewed(self._account, headers))
            yield request


class _Door(httpx2.AsyncClient):
    """A client whose failed calls come back as JSON-RPC errors with our codes."""

    def __init__(self, hidden: frozenset[str], **options: Any) -> None:
        super().__init__(**options)
        self._hidden = hidden

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method == "DELETE":  # only a farewell: nobody waits long for its answer
            async with asyncio.timeout(FAREWELL):
                return await super().send(request, **options)
        try:
            response = await super().send(request, **options)
        except NeedsConnection as error:
            return _answer(request, UNAUTHORIZED, error.why)
        except ToolError as error:  # the credentials could not be renewed just now
            return _answer(request, BUSY, f"was not asked: {error.what}")
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            if request.method != "POST":
                raise
            return _answer(request, UNREACHABLE, f"cannot be reached ({type(error).__name__})")
        except httpx2.TransportError as error:
            if request.method != "POST":
                raise
            return _answer(request, FAILED, f"broke off ({type(error).__name__})")
        hidden = self._hidden | words_of([request.headers.get("authorization", "")])
        endless = request.method == "GET"
        body = _Limited(response.stream, hidden, endless=endless)  # type: ignore[arg-type]
        response.stream = body
        if request.method == "POST" and response.status_code >= 400:
            return await _meant(request, response)
        return response


async def _meant(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """Return what a refusal means; the server's own JSON-RPC error stays as it is."""
    status = response.status_code
    if status == 404 and "mcp-session-id" in request.headers:
        return response  # the SDK knows: the session has ended
    code, text = _MEANINGS.get(status, (REFUSED if status < 500 else FAILED, f"said {status}"))
    wait = response.headers.get("retry-after", "")
    if status == 503 and wait:
        code = BUSY
    if status not in (401, 403, 429) and "json" in response.headers.get("content-type", ""):
        return response
    await response.aclose()
    return _answer(request, code, f"{text}{f', and to wait {wait[:40]} s' if wait else ''}")


_MEANINGS = {
    401: (UNAUTHORIZED, "did not accept the credentials"),
    403: (REFUSED, "said that this is not allowed (403)"),
    404: (REFUSED, "has nothing at this address (404)"),
    405: (REFUSED, "takes no MCP calls at this address (405)"),
    429: (BUSY, "said that there were too many calls (429)"),
}


def _answer(request: httpx2.Request, code: int, text: str) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}}
    headers = {"content-type": "application/json"}
    return httpx2.Response(503, headers=headers, content=dumps(body).encode(), request=request)


class _Limited(httpx2.AsyncByteStream):
    """A body that ends with an error where it grows too long; comes line by line, blotted.

    Of an `endless` one, which only brings events, each line may be that long.
    """

    def __init__(
        self, body: httpx2.AsyncByteStream, hidden: frozenset[str], *, endless: bool
    ) -> None:
        self._body = body
        self._hidden = hidden
        self._endless = endless

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left, held = ANSWER, list[bytes]()
        try:
            async for piece in self._body:
                left -= len(piece)
                if left < 0:
                    raise httpx2.StreamError(f"more than {ANSWER // 1_000_000} MB")
                lines, newline, rest = piece.rpartition(b"\n")
                if newline:
                    yield blotted(b"".join([*held, lines, newline]), self._hidden)
                    held.clear()
                    left = ANSWER if self._endless else left
                held.append(rest)
            yield blotted(b"".join(held), self._hidden)
        except httpx2.TransportError as error:  # the SDK would take down the whole connection
            raise httpx2.StreamError(f"it broke off ({type(error).__name__})") from error

    async def aclose(self) -> None:
        await self._body.aclose()
