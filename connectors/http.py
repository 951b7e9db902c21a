"""Requests to services: one session, public addresses only, limits kept, retries where harmless.

The one place where a connector's request leaves. What comes back is bytes within a limit, or:

ToolError              nothing was done: the service refused, could not be reached, or asks to wait
├── ServiceRefused     4xx, with the service's own words
└── Unreachable        no answer to a READ, or no connection at all
Unauthorized           401: the caller renews the credentials, once
Unsure                 an act may have taken effect: a time-out, a cut connection, 5xx
"""

from __future__ import annotations

import asyncio
import email.utils
import ipaddress
import logging
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from connectors.blot import blotted, blotted_pieces
from engine.canonical import dumps, loads
from engine.errors import ToolError

if TYPE_CHECKING:
    import aiohttp
    from aiolimiter import AsyncLimiter
    from stamina.instrumentation import RetryDetails

__all__ = [
    "Http",
    "Limits",
    "Reply",
    "Request",
    "ServiceRefused",
    "Unauthorized",
    "Unreachable",
    "Unsure",
    "check_public",
]

#: Tries of a READ, and the seconds they may take together.
ATTEMPTS, PATIENCE = 4, 60.0
#: Seconds a service may ask an act, or a READ, to wait; who asks for more is told to the model.
ACT_WAIT, READ_WAIT = 5.0, 30.0
#: Seconds for a connection, and between two reads of a body.
CONNECT, QUIET = 10.0, 30.0
#: Redirects of a READ that are followed; an act follows none.
REDIRECTS = 5
#: Characters of a service's own words that are passed on.
WORDS = 500
#: Connections to one host, and in all.
PER_HOST, IN_ALL = 20, 100

_CHUNK = 64 * 1024

_log = logging.getLogger(__name__)


class ServiceRefused(ToolError):
    """The service answered with a refusal and did nothing; `status` is HTTP's."""

    def __init__(self, status: int, what: str, fix: str = "", retry_after: float = 0.0) -> None:
        super().__init__(what, fix)
        self.status = status
        #: Seconds the service asks to wait; 0: it does not say.
        self.retry_after = retry_after


class Unreachable(ToolError):
    """The service gave no usable answer, and nothing was done."""


class Unauthorized(Exception):
    """The service did not take the credentials, and did nothing."""


class Unsure(Exception):
    """An act was sent, and nobody knows whether it took effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one account of a service may be asked."""

    #: Requests a minute, spread evenly after a burst of a sixth of them.
    per_minute: float = 120.0
    at_once: int = 8
    #: Bytes of one answer.
    body_bytes: int = 5_000_000
    #: Seconds for one answer, from the first byte sent to the last one read.
    seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, whole."""

    #: Whom it is for in words: "GitHub".
    service: str
    #: Whose limits it counts against: connector and account.
    lane: str
    method: str
    url: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Secret words that are blotted out of the answer.
    hidden: frozenset[str] = field(default=frozenset(), repr=False)
    body: bytes | None = None
    limits: Limits = field(default_factory=Limits)
    #: It changes something: sent once, unless the service surely did nothing.
    act: bool = False
    #: Called right before the first byte of an act leaves; raises when it is too late.
    before_act: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A service's answer, whole and within its limit."""

    status: int
    url: str
    #: Names in lower case.
    headers: Mapping[str, str]
    body: bytes
    #: The address of the next page, where the header Link names one (RFC 8288).
    following: str = ""

    def json(self) -> Any:
        """Return the body as JSON; None for an empty one. Raises Unreachable when it is none."""
        if not self.body.strip():
            return None
        try:
            return loads(self.body)
        except ValueError:
            kind = self.headers.get("content-type", "no type")
            raise Unreachable(f"The answer of {_host(self.url)} is no JSON but {kind}.") from None


class Http:
    """The session all connectors share; opened with the first request, closed by `close`.

    Args:
        allowed: base addresses the owner has named in the settings. Those may be private; all
            others must resolve to public addresses, also after a redirect.
    """

    def __init__(self, *, allowed: tuple[str, ...] = ()) -> None:
        self._own = frozenset(_origin(each) for each in allowed)
        #: By whether it reaches what the owner has named, and only that; and whether it acts.
        self._sessions: dict[tuple[bool, bool], aiohttp.ClientSession] = {}
        self._lanes: dict[str, _Lane] = {}

    async def close(self) -> None:
        """Close what is open."""
        while self._sessions:
            _, session = self._sessions.popitem()
            await session.close()

    async def request(self, request: Request) -> Reply:
        """Send the request and return the answer, with a status below 400.

        Raises what the head of this module lists.
        """
        if request.act:
            return await self._act(request)
        stamina = _stamina()
        patience = {"attempts": ATTEMPTS, "timeout": PATIENCE, "wait_jitter": 0.2}
        try:
            async for attempt in stamina.retry_context(on=_pause, **patience):
                with attempt:
                    return await self._once(request)
        except Unsure as error:  # of a READ: it is only a failure
            raise Unreachable(str(error)) from None
        raise AssertionError("the last attempt returns or raises")

    async def _act(self, request: Request) -> Reply:
        try:
            return await self._once(request)
        except ServiceRefused as error:
            if not 0.0 < error.retry_after <= ACT_WAIT:
                raise
            await asyncio.sleep(error.retry_after)
            return await self._once(request)

    async def _once(self, request: Request) -> Reply:
        async with self._lane(request).turn():
            if request.act:
                request.before_act()
            async with self._answered(request) as answer:
                reply = await _whole(request, answer)
        _refuse(request, reply)
        return reply

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[bytes]]:
        """Give the body of a READ in pieces, at most `limits.body_bytes` of it.

        Raises what `request` does; Unreachable also when the body is cut off or too long.
        """
        async with self._lane(request).turn(), self._answered(request) as answer:
            if answer.status >= 400:
                _refuse(request, await _whole(request, answer))
            yield blotted_pieces(_pieces(request, answer), request.hidden)

    @asynccontextmanager
    async def _answered(self, request: Request) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send, and give the answer before its body is read; failures become ours."""
        import aiohttp

        own = _origin(request.url) in self._own
        try:
            sending = self._session(own, request.act).request(
                request.method,
                request.url,
                params=request.query or None,
                headers=dict(request.headers),
                data=request.body,
                # A redirect of the owner's own host could lead anywhere in his network.
                allow_redirects=not (request.act or own),
                max_redirects=REDIRECTS,
                middlewares=None if request.act else (_kept_from_others(request),),
                timeout=aiohttp.ClientTimeout(
                    total=request.limits.seconds, sock_connect=CONNECT, sock_read=QUIET
                ),
            )
            async with sending as answer:
                yield answer
        except (
            aiohttp.ClientConnectorError,
            aiohttp.InvalidURL,
            aiohttp.NonHttpUrlClientError,
            aiohttp.TooManyRedirects,
        ) as error:
            cause = getattr(error, "os_error", None)
            if isinstance(cause, _Blocked):
                raise ServiceRefused(0, str(cause)) from None
            what = f"{request.service} cannot be reached ({type(error).__name__})."
            raise Unreachable(what, "Try again later.") from None
        except aiohttp.ConnectionTimeoutError:
            raise Unreachable(
                f"{request.service} did not take the connection within {CONNECT:.0f} s.",
                "Try again later.",
            ) from None
        except TimeoutError:
            limit = request.limits.seconds
            raise Unsure(f"{request.service} did not answer within {limit:.0f} s.") from None
        except aiohttp.ClientError as error:
            broken = f"The connection to {request.service} broke off ({type(error).__name__})."
            raise Unsure(broken) from None

    def _session(self, own: bool, act: bool) -> aiohttp.ClientSession:
        """Return the session of that kind.

        An act gets a connection of its own: one that was kept may have been closed meanwhile, and
        nobody could tell whether the act went out on it.
        """
        found = self._sessions.get((own, act))
        if found is None:
            import aiohttp

            guard = None if own else _socket
            found = self._sessions[own, act] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=IN_ALL, limit_per_host=PER_HOST, socket_factory=guard, force_close=act
                ),
                middlewares=(_never_again,) if act else (),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "nod-coworker", "Accept": "application/json"},
            )
        return found

    def _lane(self, request: Request) -> _Lane:
        lane = self._lanes.get(request.lane)
        if lane is None:
            lane = self._lanes[request.lane] = _Lane(request.limits)
        return lane


def _kept_from_others(request: Request) -> aiohttp.ClientMiddlewareType:
    """Make what keeps a redirected READ from giving its headers, and so its key, to another host.

    aiohttp itself leaves out Authorization only.
    """
    home = _place(request.url)

    async def sent(
        going: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        if _place(str(going.url)) != home:
            for name in request.headers:
                going.headers.popall(name, None)
        return await handler(going)

    return sent


async def _never_again(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep aiohttp from sending a PUT or DELETE anew by itself when its connection breaks."""
    import aiohttp

    try:
        return await handler(request)
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
        raise  # nothing was sent
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise Unsure(f"The connection broke off ({type(error).__name__}).") from error


@cache
def _stamina() -> ModuleType:
    """Return the library of tries, which writes to our log and nowhere else."""
    import stamina
    from stamina.instrumentation import set_on_retry_hooks

    set_on_retry_hooks([_noted])
    return stamina


def _noted(details: RetryDetails) -> None:
    """Log a try that failed; of its cause the kind only, for it may hold what no log should."""
    cause = type(details.caused_by).__name__
    _log.info("try %d failed (%s), again in %.1f s", details.retry_num, cause, details.wait_for)


class _Blocked(OSError):
    """The address is not one we connect to."""


def _socket(found: aiohttp.AddrInfoType) -> socket.socket:
    """Make the socket to an address, resolved or written, also after a redirect."""
    family, kind, protocol, _, address = found
    if not _public(str(address[0])):
        raise _Blocked(
            f"{address[0]} is not a public address, so it is not asked. If it is yours, name its "
            "base address in nod.toml, under [connectors.NAME]."
        )
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    return made


class _Lane:
    """Keeps one account of a service within its limits."""

    def __init__(self, limits: Limits) -> None:
        from aiolimiter import AsyncLimiter

        burst = max(1.0, limits.per_minute / 6)
        self._rate: AsyncLimiter = AsyncLimiter(burst, 60.0 * burst / limits.per_minute)
        self._places = asyncio.Semaphore(limits.at_once)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a place and for the rate."""
        async with self._places:
            await self._rate.acquire()
            yield


def _pause(error: Exception) -> bool | float:
    """Say whether a READ is tried again, or in how many seconds (a hook of stamina)."""
    if isinstance(error, ServiceRefused):
        return error.retry_after if 0.0 < error.retry_after <= READ_WAIT else False
    return isinstance(error, Unsure | Unreachable)


async def _whole(request: Request, answer: aiohttp.ClientResponse) -> Reply:
    body = b"".join([piece async for piece in _pieces(request, answer)])
    return Reply(
        status=answer.status,
        url=str(answer.url),
        headers={name.lower(): value for name, value in answer.headers.items()},
        body=blotted(body, request.hidden),
        following=_next(answer),
    )


def _next(answer: aiohttp.ClientResponse) -> str:
    link = answer.links.get("next")
    return "" if link is None else str(link["url"])


async def _pieces(request: Request, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    most, read = request.limits.body_bytes, 0
    async for piece in answer.content.iter_chunked(_CHUNK):
        read += len(piece)
        if read > most:
            what = f"The answer of {request.service} is longer than {most:,} bytes."
            if request.act:
                raise Unsure(what)
            raise ServiceRefused(200, what, "Ask for less at once.")
        yield piece


def _refuse(request: Request, reply: Reply) -> None:
    """Raise what a status means; below 400 nothing."""
    status = reply.status
    if status < 400:
        if status >= 300:
            raise ServiceRefused(status, f"{request.service} sends the request elsewhere.")
        return
    if status == 401:
        raise Unauthorized(f"{request.service} does not take the credentials.")
    wait = _retry_after(reply.headers)
    if status >= 500 and not (status == 503 and wait and not request.act):
        raise Unsure(f"{request.service} failed with {status}.")
    words = _words(reply)
    if status == 403 and _SLOWER.search(words):
        status = 429
    said = f": {words}" if words else "."
    what = f"{request.service} {_MEANING.get(status, f'refused it ({status})')}{said}"
    if status == 429 or wait:
        pause = wait or 60.0
        raise ServiceRefused(status, what, f"Try again in {pause:.0f} s.", pause)
    raise ServiceRefused(status, what)


#: What Google (usage limits) and GitHub (secondary rate limits) say with 403, where others say 429.
_SLOWER = re.compile(r"rate ?limit", re.I)

_MEANING = {
    400: "does not understand the request",
    403: "does not allow it",
    404: "has no such thing, or does not show it to this account",
    409: "says it conflicts with how things stand",
    410: "no longer has it",
    412: "says it changed meanwhile",
    413: "takes no more than it was sent",
    422: "does not take these values",
    429: "asks to slow down",
}


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds a service asks to wait: Retry-After (RFC 9110, 10.2.3), or 0.

    GitHub and others tell an exhausted limit by `x-ratelimit-remaining: 0` and a moment. Moments
    are compared with the answer's own date, so our clock does not matter.
    """
    said = headers.get("retry-after", "").strip()
    if said.isdigit():
        return max(0.1, float(said))
    reset = headers.get("x-ratelimit-reset", "")
    exhausted = headers.get("x-ratelimit-remaining") == "0" and reset.isdigit()
    until = _moment(said) or (float(reset) if exhausted else None)
    answered = _moment(headers.get("date", ""))
    if until is None or answered is None:
        return 0.0
    return max(0.1, until - answered)


def _moment(text: str) -> float | None:
    """Return an HTTP date as epoch seconds, or None."""
    parsed = email.utils.parsedate_tz(text)
    return None if parsed is None else float(email.utils.mktime_tz(parsed))


def _words(reply: Reply) -> str:
    """Return what the service says about a refusal, in one line."""
    try:
        said = loads(reply.body)
    except ValueError:
        kind = reply.headers.get("content-type", "")
        text = "" if "html" in kind else reply.body.decode("utf-8", "replace")
        return " ".join(text.split())[:WORDS]
    found = list(_sentences(said))
    return "; ".join(found)[:WORDS] if found else dumps(said)[:WORDS]


#: Where services put the words of a refusal.
_WORD_KEYS = (
    "message",
    "error_description",
    "detail",
    "title",
    "reason",
    "errorMessages",
    "errors",
)


def _sentences(said: Any) -> list[str]:
    if isinstance(said, str):
        return [said]
    if isinstance(said, list):
        return [text for each in said[:5] for text in _sentences(each)]
    if not isinstance(said, dict):
        return []
    inner = said.get("error")
    found = _sentences(inner) if isinstance(inner, dict | str) else []
    for key in _WORD_KEYS:
        found += [text for text in _sentences(said.get(key)) if text not in found]
    return found


def check_public(host: str, own: Iterable[str] = (), fix: str = "") -> None:
    """Raise ServiceRefused when a host, which is none of the owner's `own`, is not public.

    For services that do not speak HTTP, and for addresses that are given long before they are used.
    `fix` says what makes it `own`. Blocking: the name is looked up.
    """
    if host in own:
        return
    try:
        found = socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)
    except OSError:
        raise Unreachable(f"There is no server {host}.", "Check its name.") from None
    if not all(_public(str(each[4][0])) for each in found):
        raise ServiceRefused(0, f"{host} is not a public address, so it is not asked.", fix)


#: Networks whose addresses stand for an IPv4 address, and how many bits lie behind it: mapped,
#: compatible and translated (RFC 4291, 2765), NAT64 (RFC 6052), 6to4 (RFC 3056).
_CARRYING = {
    ipaddress.IPv6Network("::ffff:0:0/96"): 0,
    ipaddress.IPv6Network("::/96"): 0,
    ipaddress.IPv6Network("::ffff:0:0:0/96"): 0,
    ipaddress.IPv6Network("64:ff9b::/96"): 0,
    ipaddress.IPv6Network("2002::/16"): 80,
}


def _public(host: str) -> bool:
    address = ipaddress.ip_address(host.split("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.is_site_local:
            return False
        for network, behind in _CARRYING.items():
            if address in network:
                address = ipaddress.IPv4Address(int(address) >> behind & 0xFFFFFFFF)
                break
    return address.is_global and not address.is_multicast


def _place(url: str) -> tuple[str, str, int]:
    """Return the origin of an address, its scheme too: what is read on the way is elsewhere."""
    return urlsplit(url).scheme, *_origin(url)


def _origin(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def _host(url: str) -> str:
    return urlsplit(url).hostname or url
