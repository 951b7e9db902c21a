"""What a connector's function works with: requests to one account of one service, and paging."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

from connectors.accounts import Account
from connectors.blot import words_of
from connectors.http import Http, Reply, Request, Unauthorized, Unreachable, Unsure
from engine.canonical import dumps
from engine.errors import NeedsConnection, ToolError
from engine.tools.base import LookUp, Outcome, Result, ToolContext
from engine.tools.places import failure, locate, opened_folder

if TYPE_CHECKING:
    from connectors.base import Connector, Ground

__all__ = [
    "APART",
    "Api",
    "Paging",
    "Planned",
    "as_wanted",
    "by_cursor",
    "by_link",
    "by_page",
    "sought",
    "was_saved",
    "when_started",
]

T = TypeVar("T")

#: Items a paging may give at most, whatever is asked.
MOST = 10_000
#: Seconds by which a service's clock may differ from ours.
APART = 120.0

#: Pages in a row that may hold nothing though the service names a next one: it leaves out what it
#: finds and does not show (Google and Slack say that they do).
EMPTY = 100

#: (the reply, the query that was asked, how many items came) -> the next query, or a whole address;
#: None: that was all.
Paging = Callable[[Reply, Mapping[str, Any], int], Mapping[str, Any] | str | None]


class Planned(Exception):
    """Stops a rehearsed call where it would act; holds the request."""

    def __init__(self, request: Request) -> None:
        super().__init__(request.url)
        self.request = request


class Api:
    """What a connector's function works with: one account of one service, for one call.

    Args:
        ctx: of the call; None outside of one, for a check or a look at a source.
        rehearsed: reads are done; the first act is not, and raises Planned.
    """

    def __init__(
        self,
        connector: Connector,
        ground: Ground,
        account: Account | None,
        ctx: ToolContext | None = None,
        *,
        rehearsed: bool = False,
    ) -> None:
        self.connector = connector
        self.account = account
        self._ground = ground
        self._ctx = ctx
        self.rehearsed = rehearsed
        #: An act was sent in this call, whatever became of it.
        self.acted = False
        self._hidden: frozenset[str] = frozenset()

    @property
    def ctx(self) -> ToolContext:
        """The call's context; a check has none."""
        assert self._ctx is not None, "only a call has a context"
        return self._ctx

    def now(self) -> float:
        """Return the time, epoch seconds, also outside of a call."""
        return self._ctx.now() if self._ctx else self._ground.now()

    @property
    def http(self) -> Http:
        """The shared session, for a request that is not to the connector's own address."""
        return self._ground.http

    @property
    def options(self) -> Mapping[str, Any]:
        """The connector's table of the settings."""
        return self._ground.options.get(self.connector.name, {})

    async def secret(self) -> Mapping[str, Any]:
        """Return the account's filled fields, for a service that does not speak HTTP."""
        if self.account is None:
            return {}
        held = await self._ground.credentials.secret(self.account)
        self._hidden |= words_of(str(held.get(name, "")) for name in self.connector.secret_fields)
        return held

    async def get(
        self, path: str, /, *, query: Mapping[str, Any] | None = None, **segments: Any
    ) -> Any:
        """Return what the service holds at `path`, as JSON.

        `{name}` in the path is filled from `segments`, encoded; in the query None is left out and
        a list is repeated.
        """
        return (await self.ask("GET", path, query=query, **segments)).json()

    async def ask(
        self,
        method: str,
        path: str,
        /,
        *,
        query: Mapping[str, Any] | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        **segments: Any,
    ) -> Reply:
        """Send a request that changes nothing, whatever its method, and return the whole reply."""
        request = await self._request(method, path, query, headers, segments, _json(json))
        return await self._sent(request)

    async def act(
        self,
        method: str,
        path: str,
        /,
        *,
        json: Any = None,
        data: bytes | None = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **segments: Any,
    ) -> Reply:
        """Do one act and return the whole reply.

        A rehearsed call ends here. Raises what connectors/http.py lists: after Unsure nobody knows
        whether it took effect.
        """
        body = _json(json) if data is None else (data, {})
        request = await self._request(method, path, query, headers, segments, body, act=True)
        if self.rehearsed:
            raise Planned(request)
        self.acted = True
        return await self._sent(request)

    async def send(self, method: str, path: str, /, **given: Any) -> Any:
        """Do one act, as `act` does, and return what the service answers, as JSON."""
        reply = await self.act(method, path, **given)
        try:
            return reply.json()
        except Unreachable as error:  # it was done, and the answer is none
            raise Unsure(error.what) from None

    async def pages(
        self,
        path: str,
        /,
        *,
        paging: Paging,
        items: str = "",
        query: Mapping[str, Any] | None = None,
        most: int = 100,
        **segments: Any,
    ) -> AsyncIterator[Any]:
        """Give the items of a list, page after page, at most `most`; one page is held at a time.

        `items` is the key of the list in a page, dotted; empty: the page is the list.
        """
        asked: Mapping[str, Any] = dict(query or {})
        given, empty, url = 0, 0, ""
        while empty < EMPTY:
            request = await self._request("GET", url or path, asked, None, segments, (None, {}))
            reply = await self._sent(request)
            page = reply.json()
            for part in items.split(".") if items else ():
                page = (page or {}).get(part)
            for item in page or ():
                if given >= min(most, MOST):
                    return
                given += 1
                yield item
            empty = 0 if page else empty + 1
            following = paging(reply, asked, len(page or ()))
            if not following or given >= min(most, MOST):
                return
            if isinstance(following, str):
                url, asked, segments = self._same_place(following, reply), {}, {}
            else:
                asked = following
        raise Unreachable(f"{self.connector.title} gives page after page with nothing on it.")

    async def upload(self, url: str, data: bytes) -> None:
        """Put bytes where the service has just said, without credentials; nobody sees them yet.

        A rehearsed call uploads nothing.
        """
        if self.rehearsed:
            return
        kind = {"Content-Type": "application/octet-stream"}
        request = await self._request("POST", url, None, kind, {}, (data, {}))
        await self.http.request(request)

    async def download(
        self, path: str, to: str, /, *, query: Mapping[str, Any] | None = None, **segments: Any
    ) -> Result:
        """Write what the service holds at `path` into the new file `to`, in pieces.

        `to` is a path as a model names it, below the session's roots. Raises ToolError when there
        is a file already.
        """
        accept = {"Accept": "*/*"}
        request = await self._request("GET", path, query, accept, segments, (None, {}))
        part = self.ctx.keep / f"{self.ctx.call}.part"

        async def written(request: Request) -> int:
            size = 0
            with await asyncio.to_thread(part.open, "wb") as file:
                async with self.http.stream(request) as pieces:
                    async for piece in pieces:
                        await asyncio.to_thread(file.write, piece)
                        size += len(piece)
            return size

        try:
            size = await self._opened(request, written)
            await asyncio.to_thread(self._put, part, to)
        finally:
            await asyncio.to_thread(part.unlink, missing_ok=True)
        return self.result(f"Saved as {to}, {size:,} bytes.")

    async def save(self, to: str, data: bytes) -> Result:
        """Write `data` into the new file `to`; see `download`."""
        part = self.ctx.keep / f"{self.ctx.call}.part"
        try:
            await asyncio.to_thread(part.write_bytes, data)
            await asyncio.to_thread(self._put, part, to)
        finally:
            await asyncio.to_thread(part.unlink, missing_ok=True)
        return self.result(f"Saved as {to}, {len(data):,} bytes.")

    def _put(self, part: Path, to: str) -> None:
        """Move a finished file to where it was asked for; blocking."""
        real = locate(self.ctx, to, "write")
        try:
            with opened_folder(real.parent, made=[]) as folder:
                os.link(part, real.name, dst_dir_fd=folder)
        except FileExistsError:
            raise ToolError(f"There is a file {to} already.", "Choose another name.") from None
        except OSError as error:
            raise failure(to, error) from error

    def result(
        self, data: Any, source: str = "", *, shown: Mapping[str, Any] | None = None
    ) -> Result:
        """Return a result of the service's text: JSON, or the text itself, marked as from outside.

        `source` tells where in the service it is from: "acme/app".
        """
        text = data if isinstance(data, str) else dumps(data)
        mark = f"{self.connector.name}:{source}" if source else self.connector.name
        return Result(text=text, taint=mark, display=shown)

    # -- within

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
        segments: Mapping[str, Any],
        body: tuple[bytes | None, Mapping[str, str]],
        *,
        act: bool = False,
    ) -> Request:
        data, kind = body
        return Request(
            service=self.connector.title,
            lane=f"{self.connector.name}/{self.account.id if self.account else ''}",
            method=method,
            url=path if "://" in path else await self._base() + _path(path, segments),
            query=_query(query or {}),
            headers={**self.connector.headers, **kind, **(headers or {})},
            hidden=self._hidden,
            body=data,
            limits=self.connector.limits,
            act=act,
            before_act=self._ctx.before_act if self._ctx else lambda: None,
        )

    async def _base(self) -> str:
        named = self.options.get("base_url")
        if named:
            return str(named).rstrip("/")
        if self.connector.address is None:
            return self.connector.base
        return self.connector.address(await self.secret()).rstrip("/")

    async def _sent(self, request: Request) -> Reply:
        return await self._opened(request, self._answered)

    async def _opened(self, request: Request, do: Callable[[Request], Awaitable[T]]) -> T:
        """Do the request with the account's credentials; refused ones are renewed once."""
        if self.account is None:
            return await self._anonymous(request, do)
        headers = await self._ground.credentials.headers(self.account)
        try:
            return await do(_with(request, headers))
        except Unauthorized:
            headers = await self._ground.credentials.renewed(self.account, headers)
        try:
            return await do(_with(request, headers))
        except Unauthorized:
            raise self._refused() from None

    async def _anonymous(self, request: Request, do: Callable[[Request], Awaitable[T]]) -> T:
        try:
            return await do(request)
        except Unauthorized:
            raise ToolError(f"{self.connector.title} wants an account for this.") from None

    async def _answered(self, request: Request) -> Reply:
        """Return the reply, unless the service says by its own means that it refused."""
        reply = await self.http.request(request)
        try:
            fault = self.connector.fault(reply) if self.connector.fault else None
        except Unreachable as error:
            if request.act:
                raise Unsure(error.what) from None
            raise
        if fault is not None:
            raise fault
        return reply

    def _refused(self) -> NeedsConnection:
        account = self.account
        assert account is not None, "only an account can be refused"
        return NeedsConnection(
            self.connector.name,
            account.label,
            f"{self.connector.title} no longer takes the sign-in of {account.label}.",
            account.owner,
            self.connector.title,
        )

    def _same_place(self, following: str, reply: Reply) -> str:
        """Return the next page's address; another host does not get the credentials."""
        if urlsplit(following)[:2] != urlsplit(reply.url)[:2]:
            raise ToolError(f"{self.connector.title} names a next page on another host.")
        return following


async def was_saved(api: Api, arguments: Mapping[str, Any], _seen: Any) -> Outcome:
    """Look whether a download was finished: its file appears whole, or not at all."""
    real = locate(api.ctx, str(arguments["path"]), "write")
    there = await asyncio.to_thread(real.exists)
    return Outcome(found=LookUp.HAPPENED if there else LookUp.DID_NOT)


async def when_started(api: Api, _arguments: Mapping[str, Any]) -> float:
    """Tell the moment an act begins, in seconds since the epoch: a witness for its look-up."""
    return api.ctx.now()


async def sought(
    items: AsyncIterator[Any], most: int, shown: Callable[[Any], Result | None]
) -> Outcome:
    """Look for an act among `items`: `shown` gives its result for the one that is it, else None.

    When `most` items were looked through without it, it may be further on, and nobody can tell.
    """
    looked = 0
    async for each in items:
        looked += 1
        if (result := shown(each)) is not None:
            return Outcome(found=LookUp.HAPPENED, result=result)
    return Outcome(found=LookUp.DID_NOT if looked < most else LookUp.CANNOT_TELL)


def as_wanted(wanted: Mapping[str, Any], held: Mapping[str, Any], same: bool) -> Outcome:
    """Say whether values were set: `held` are those there now, `same` that nothing changed since.

    Where something else changed meanwhile, setting them again could undo what somebody did.
    """
    if all(held.get(name) == value for name, value in wanted.items()):
        return Outcome(found=LookUp.HAPPENED)
    return Outcome(found=LookUp.DID_NOT if same else LookUp.CANNOT_TELL)


# -- paging, as services do it


def by_link(reply: Reply, _asked: Mapping[str, Any], _came: int) -> str | None:
    """Follow the header Link with rel=next (RFC 8288)."""
    return reply.following or None


def by_cursor(path: str, parameter: str) -> Paging:
    """Send what stands at `path` (dotted) of a page as `parameter` of the next."""

    def following(reply: Reply, asked: Mapping[str, Any], _came: int) -> Mapping[str, Any] | None:
        value: Any = reply.json()
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return {**asked, parameter: value} if value else None

    return following


def by_page(parameter: str, first: int = 1, step: int = 1) -> Paging:
    """Count pages, or with `step` 0 items, up to a page that holds nothing.

    Items are counted as they came: a service may give fewer than it was asked for.
    """

    def following(_reply: Reply, asked: Mapping[str, Any], came: int) -> Mapping[str, Any] | None:
        now = int(asked.get(parameter, first))
        return {**asked, parameter: now + (step or came)} if came else None

    return following


# -- requests


def _path(path: str, segments: Mapping[str, Any]) -> str:
    """Fill the template; a list is several segments, such as those of a file's path."""
    encoded = {
        name: "/".join(_segment(name, each) for each in value)
        if isinstance(value, list)
        else _segment(name, str(value))
        for name, value in segments.items()
    }
    return path.format(**encoded)


def _segment(name: str, value: str) -> str:
    """Encode one segment of a path. What could climb out of its place is refused."""
    if value in ("", ".", ".."):
        raise ToolError(f"'{value}' cannot be the {name}.")
    return quote(value, safe="")


def _query(query: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    pairs = []
    for name, value in query.items():
        for each in value if isinstance(value, list | tuple) else [value]:
            if each is not None and each != "":
                text = str(each).lower() if isinstance(each, bool) else str(each)
                pairs.append((name, text))
    return tuple(pairs)


def _json(value: Any) -> tuple[bytes | None, Mapping[str, str]]:
    if value is None:
        return None, {}
    return dumps(value).encode(), {"Content-Type": "application/json"}


def _with(request: Request, headers: Mapping[str, str]) -> Request:
    hidden = request.hidden | words_of(headers.values())
    return replace(request, headers={**request.headers, **headers}, hidden=hidden)
