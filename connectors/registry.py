"""Which connectors there are; one is imported when somebody has connected it, or it needs nobody.

`bot` reaches connectors only through here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors import accounts, gates
from connectors.accounts import Account
from connectors.secrets import Secrets
from engine import sessions
from engine.clock import Now, system_now
from engine.errors import NeedsConnection, NodError, ToolError
from engine.sessions import Session
from engine.store.base import Store, Tx
from engine.tools.base import Registry, Tool

if TYPE_CHECKING:  # aiohttp is loaded with the first connector
    from connectors.base import Auth, Connector, Credentials, Found, Ground, Identity

__all__ = [
    "CONNECTORS",
    "Connectors",
    "Entry",
    "Secrets",
    "connector_tools",
    "load",
    "secrets_of",
    "sources",
    "ways",
    "write_sample_calendar",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is known of a connector without importing it."""

    #: Its module; empty for one that is `made` here, from what somebody set up.
    module: str = ""
    made: Callable[[], Connector] | None = None
    title: str
    #: One sentence for a list of them.
    about: str
    #: It is of use without an account.
    open: bool = False
    #: Modules that declare the rest of its tools.
    more: tuple[str, ...] = ()
    #: Its sources: events <connector>-<source> come of them.
    sources: tuple[str, ...] = ()


#: Name of a connector -> its module, which holds a `CONNECTOR`.
CONNECTORS: Mapping[str, Entry] = {
    "github": Entry(
        module="connectors.github",
        more=("connectors.github_code", "connectors.github_acts", "connectors.github_news"),
        title="GitHub",
        about="issues, pull requests, reviews, checks, deployments, files",
        sources=("review",),
    ),
    "mail": Entry(
        module="connectors.mail",
        more=("connectors.mail_reads", "connectors.mail_acts"),
        title="Mail",
        about="search, read, mark and send mail of any provider",
        sources=("message",),
    ),
    "feeds": Entry(
        module="connectors.feeds",
        title="Feeds",
        about="RSS and Atom feeds, published calendars",
        open=True,
    ),
    "webhook": Entry(
        module="connectors.webhook", title="Webhook", about="send JSON to an address of yours"
    ),
    "linear": Entry(
        module="connectors.linear",
        more=("connectors.linear_acts",),
        title="Linear",
        about="issues and comments",
    ),
    "jira": Entry(
        module="connectors.jira",
        more=("connectors.jira_acts",),
        title="Jira",
        about="search, issues, comments and their progress",
    ),
    "notion": Entry(
        module="connectors.notion",
        more=("connectors.notion_acts",),
        title="Notion",
        about="search, pages, databases, comments",
    ),
    "slack": Entry(
        module="connectors.slack",
        more=("connectors.slack_acts", "connectors.slack_files"),
        title="Slack",
        about="search and read as yourself; send, react, share files",
    ),
    "google_calendar": Entry(
        module="connectors.google_calendar",
        more=("connectors.google_calendar_acts",),
        title="Google Calendar",
        about="calendars, events, free times",
        sources=("soon",),
    ),
    "gmail": Entry(
        module="connectors.gmail",
        more=("connectors.gmail_acts",),
        title="Gmail",
        about="search, read, label, draft and send mail",
        sources=("message",),
    ),
    "google_drive": Entry(
        module="connectors.google_drive",
        title="Google Drive",
        about="search, list, read and export files",
    ),
}

#: Modules whose `TOOLS` work on files of the session, with no service behind them.
_LOCAL = {"calendar": "connectors.icalendar"}


def connector_tools(names: Sequence[str] = tuple(_LOCAL)) -> list[Tool]:
    """Return the tools that read the formats of other systems from files, sorted by name."""
    modules = [import_module(_LOCAL[name]) for name in names]
    return sorted((each for module in modules for each in module.TOOLS), key=lambda t: t.name)


def write_sample_calendar(path: Path, today: date, zone: str) -> None:
    """Write a calendar to try Nod with, dated around `today` in the IANA zone `zone`."""
    import_module(_LOCAL["calendar"]).write_sample(path, today, zone)


def secrets_of(environ: Mapping[str, str], data: Path) -> Secrets:
    """Return this installation's secrets; nothing is opened yet."""
    return Secrets(environ, data)


def load(name: str, catalogue: Mapping[str, Entry] = CONNECTORS) -> Connector:
    """Return the connector; blocking, for it may be imported now. Raises NodError: no such one."""
    entry = catalogue.get(name)
    if entry is None:
        known = ", ".join(sorted(catalogue))
        raise NodError(f"There is no connector '{name}'.", f"There are: {known}.")
    if entry.made is not None:
        return entry.made()
    found: Connector = import_module(entry.module).CONNECTOR
    for each in entry.more:
        import_module(each)
    return found


def ways(name: str) -> tuple[Auth, ...]:
    """Return the ways to connect it, the best first; blocking, raises NodError, as `load` does."""
    return load(name).auth


def sources(catalogue: Mapping[str, Entry] = CONNECTORS) -> dict[str, tuple[str, str]]:
    """Return the events that connectors bring: name -> (connector, its source)."""
    return {
        f"{name}-{source}": (name, source)
        for name, entry in catalogue.items()
        for source in entry.sources
    }


class Connectors:
    """The connectors of a running Nod; the tools of those that are of use are in the registry.

    Args:
        tools: where their tools go, one group a connector, named like it.
        options: connector -> its table of the settings; `base_url` names another address than
            its own, which may then be a private one.
    """

    def __init__(
        self,
        *,
        store: Store,
        tools: Registry,
        credentials: Credentials,
        tenant: str,
        options: Mapping[str, Mapping[str, Any]],
        catalogue: Mapping[str, Entry] = CONNECTORS,
        now: Now = system_now,
    ) -> None:
        self._store = store
        self._tools = tools
        self._credentials = credentials
        self._tenant = tenant
        self._options = options
        self._catalogue = catalogue
        self._now = now
        #: By the connector whose address the owner has named; "" for all others.
        self._standing: dict[str, Ground] = {}
        self._added: dict[str, Connector] = {}
        self._adding = asyncio.Lock()

    async def __aenter__(self) -> Connectors:
        """Put in the tools of what is connected, and of what needs no account."""
        found = await self._store.read(lambda tx: accounts.listed(tx, self._tenant))
        connected = {each.connector for each in found} & self._catalogue.keys()
        free = {name for name, each in self._catalogue.items() if each.open}
        for name in sorted(connected | free):
            await self.add(name)
        return self

    async def __aexit__(self, *_: object) -> None:
        for ground in self._standing.values():
            await ground.http.close()

    async def add(self, name: str) -> Connector:
        """Put in the connector's tools if they are not yet, as when it has just been connected.

        Raises NodError for a name nobody knows.
        """
        async with self._adding:
            if name not in self._added:
                connector = await asyncio.to_thread(load, name, self._catalogue)
                self._tools.replace(name, connector.tools(self._ground(name)))
                self._added[name] = connector
        return self._added[name]

    async def identity(self, account: Account) -> Identity:
        """Return whom the service takes the account for; raises ToolError or NeedsConnection."""
        connector = await self.add(account.connector)
        return await connector.identity(self._ground(account.connector), account)

    @property
    def sources(self) -> Mapping[str, tuple[str, str]]:
        """The events they bring: name -> (connector, its source)."""
        return sources(self._catalogue)

    async def look(self, account: Account, source: str, seen: Any) -> tuple[Found, float]:
        """Return what is new in the account, and the seconds until the next look makes sense.

        `seen` is that of the look before, None for the first. Raises what a READ raises.
        """
        connector = await self.add(account.connector)
        (meant,) = (each for each in connector.sources if each.name == source)
        found = await connector.look(self._ground(account.connector), account, meant, seen)
        return found, meant.every

    def hands(self, tx: Tx, session: Session) -> frozenset[str]:
        """Return the names of the tools that are not for the session: not connected, or muted."""
        if not self._added:
            return frozenset()
        muted = gates.closed(tx, session)
        usable = {each.connector for each in accounts.reachable(tx, session)}
        return frozenset(
            tool
            for name, connector in self._added.items()
            if name in muted or not (connector.open or name in usable)
            for tool in self._tools.group(name)
        )

    async def choose(self, session_id: str, connector: str, label: str) -> Account:
        """Return the account a call of the session means; the owner's own before shared ones.

        Raises ToolError when it could mean several, or the label is none of them; NeedsConnection
        when nothing is connected.
        """

        def usable(tx: Tx) -> tuple[str, list[Account]]:
            session = sessions.get(tx, session_id)
            return session.owner, accounts.usable(tx, session, connector)

        owner, found = await self._store.read(usable)
        fitting = [each for each in found if label in ("", each.label)]
        own = [each for each in fitting if each.owner == owner]
        if len(own or fitting) == 1:
            return (own or fitting)[0]
        labels = ", ".join(sorted({each.label for each in found}))
        if not found:
            title = self._catalogue[connector].title
            raise NeedsConnection(connector, "", f"{title} is not connected.", title=title)
        if not fitting:
            raise ToolError(f"No account '{label}' is connected.", f"Use one of: {labels}.")
        raise ToolError("Several accounts are connected.", f"Say in `account` which: {labels}.")

    def _ground(self, name: str) -> Ground:
        """Return what the connector stands on.

        The address that the owner has named for it may be private: for it alone. No other
        connector, and no address that a model or a member chooses, leads there.
        """
        named = str(self._options.get(name, {}).get("base_url", ""))
        ground = self._standing.get(name if named else "")
        if ground is None:
            from connectors.base import Ground
            from connectors.http import Http

            ground = self._standing[name if named else ""] = Ground(
                http=Http(allowed=(named,) if named else ()),
                credentials=self._credentials,
                choose=self.choose,
                options=self._options,
                now=self._now,
            )
        return ground
