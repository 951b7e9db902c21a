"""What a connector is: a descriptor, plain async functions declared as tools, and a check.

A connector is one module with one `Connector`; its functions take an `Api` first, which knows the
account, the address and the limits:

    notes = Connector(name="notes", title="Notes", about="…", base="https://api.notes.example", …)

    @notes.tool(risk=Risk.READ)
    async def search(api: Api, query: str) -> Result:
        '''Search the notes.'''
        return api.result(await api.get("/search", query={"q": query}))
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from connectors.accounts import Account
from connectors.api import (
    APART,
    Api,
    Paging,
    as_wanted,
    by_cursor,
    by_link,
    by_page,
    sought,
    was_saved,
    when_started,
)
from connectors.declaring import Declaration, Declared, Found, Poll, Source, made, understood
from connectors.http import Http, Limits, Reply
from engine.clock import Now, system_now
from engine.tools.base import Result, Risk, Tool

__all__ = [
    "APART",
    "Api",
    "Auth",
    "Connector",
    "Field",
    "Found",
    "Ground",
    "Identity",
    "Key",
    "Limits",
    "OAuth",
    "Open",
    "Paging",
    "Reply",
    "Result",
    "Risk",
    "as_wanted",
    "by_cursor",
    "by_link",
    "by_page",
    "sought",
    "was_saved",
    "when_started",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One thing a person fills in to connect."""

    name: str
    title: str
    #: Typed unseen, kept in the vault and never shown.
    secret: bool = True
    #: Where to find it, in one sentence.
    hint: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Connected by a form: keys, tokens, an address and a password."""

    fields: tuple[Field, ...]
    #: The headers a request carries, from the filled fields.
    headers: Callable[[Mapping[str, Any]], dict[str, str]] = lambda _fields: {}


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """Connected by the service's own page (RFC 6749 with PKCE, RFC 7636; devices, RFC 8628)."""

    authorize_url: str
    token_url: str
    #: Empty: the service knows no device flow.
    device_url: str = ""
    #: Empty: a token can only be forgotten.
    revoke_url: str = ""
    scopes: tuple[str, ...] = ()
    #: The secrets <client>_CLIENT_ID and <client>_CLIENT_SECRET say who Nod is to the service.
    client: str
    #: More parameters of the address a person is sent to, and of requests for a token.
    extra: Mapping[str, str] = field(default_factory=dict)
    token_extra: Mapping[str, str] = field(default_factory=dict)
    #: How the client's secret is sent: basic (a header), body, or none: there is no secret.
    client_auth: str = "body"


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Needs no account."""


Auth = OAuth | Key | Open


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whom a service takes the credentials for."""

    #: What the account is named by: a login, an address, a workspace.
    label: str
    #: One line for a person: "Signed in as ana, in 3 organizations."
    text: str


class Credentials(Protocol):
    """Opens accounts; see connectors/credentials.py."""

    async def headers(self, account: Account) -> Mapping[str, str]:
        """Return what a request carries, fresh. Raises NeedsConnection."""
        ...

    async def renewed(self, account: Account, spent: Mapping[str, str]) -> Mapping[str, str]:
        """Return new headers after `spent` were refused. Raises NeedsConnection."""
        ...

    async def secret(self, account: Account) -> Mapping[str, Any]:
        """Return the filled fields of the account. Raises NeedsConnection."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What connectors stand on; made once, by the wiring."""

    http: Http
    credentials: Credentials
    #: (session id, connector, label) -> the account that is meant. Raises ToolError when several
    #: could be, NeedsConnection when there is none.
    choose: Callable[[str, str, str], Awaitable[Account]]
    #: Connector -> its table of the settings: `base_url`, and what it reads itself.
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    now: Now = system_now


Check = Callable[[Api], Awaitable[Identity]]
Fault = Callable[[Reply], Exception | None]


@dataclass(slots=True, kw_only=True)
class Connector:
    """A service Nod can work with; the decorators `tool`, `source` and `check` fill it in."""

    #: Lower case, letters and digits: the beginning of its tools' names and targets.
    name: str
    title: str
    #: One sentence for the list of connectors.
    about: str
    base: str
    #: The ways to connect it, the best first.
    auth: tuple[Auth, ...]
    limits: Limits = field(default_factory=Limits)
    #: Sent with every request, such as the version of the API.
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Where its API is described.
    docs: str = ""
    #: The base address of one account, from its filled fields; None: `base`.
    address: Callable[[Mapping[str, Any]], str] | None = None
    #: What a reply means that this service sends with a status below 400.
    fault: Fault | None = None
    checked: Check | None = None
    declared: list[Declaration] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)

    @property
    def open(self) -> bool:
        """True when it works without an account."""
        return any(isinstance(each, Open) for each in self.auth)

    @property
    def secret_fields(self) -> tuple[str, ...]:
        """The names of what is filled in unseen."""
        keys = (each for each in self.auth if isinstance(each, Key))
        return tuple(each.name for key in keys for each in key.fields if each.secret)

    def tool(self, *, risk: Risk, **options: Any) -> Callable[[Declared], Declared]:
        """Declare the decorated function as a tool; the options are fields of `Tool`.

        `preview`, `look_up` and `witness` take (api, arguments …) in place of (ctx, …). `target`
        gives what stands behind the connector's name: "acme/app" becomes "github:acme/app".
        An EXTERNAL tool without a preview shows the very request it would send.
        """
        if risk is Risk.EXTERNAL and "target" not in options:
            raise TypeError(f"{self.name}: an act must say whom it reaches (target=…)")

        def declare(run: Declared) -> Declared:
            self.declared.append(Declaration(run=run, options={"risk": risk, **options}))
            return run

        return declare

    def source(self, name: str, *, every: float) -> Callable[[Poll], Poll]:
        """Declare the decorated function as a look at what is new, at most every `every` seconds.

        Its first sentence tells people when the event <connector>-<name> comes.
        """

        def declare(poll: Poll) -> Poll:
            self.sources.append(Source(name=name, every=every, poll=poll))
            return poll

        return declare

    def check(self, check: Check) -> Check:
        """Declare how it is seen, in one request, that the credentials work and whose they are."""
        self.checked = check
        return check

    def tools(self, ground: Ground) -> list[Tool]:
        """Return its tools for the registry, bound to `ground`."""
        return [made(self, each, ground) for each in self.declared]

    def target(self, name: str, account: str = "") -> str:
        """Return the exact target of a standing rule: github:acme/app, or … (work)."""
        return f"{self.name}:{name}{f' ({account})' if account else ''}"

    async def look(self, ground: Ground, account: Account, source: Source, seen: Any) -> Found:
        """Return what is new in the account. Raises what a READ raises."""
        api = Api(self, ground, account, rehearsed=True)
        with understood(api):
            return await source.poll(api, seen)

    async def identity(self, ground: Ground, account: Account) -> Identity:
        """Return whom the account's credentials are for.

        Raises ToolError or NeedsConnection, in words for a person, when they do not work.
        """
        if self.checked is None:
            return Identity(label=account.label, text=f"{self.title} cannot be checked.")
        api = Api(self, ground, account)
        with understood(api):
            return await self.checked(api)
