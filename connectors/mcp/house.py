"""All MCP servers of a running Nod: starts and stops them, and keeps their tools in the registry.

What a server offered last is kept in a file, so that its tools are there at once after a start,
for every session, before the server is: a call waits for it. Without a server nothing is imported
and nothing runs.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from connectors import accounts, gates
from connectors.accounts import Account
from connectors.mcp import kept as mcp_kept
from connectors.mcp.extras import extras_of
from connectors.mcp.link import Link
from connectors.mcp.offers import read_offer, write_offer
from connectors.mcp.ports import Listing, Ports, State
from connectors.mcp.results import result_of
from connectors.mcp.servers import Server, read_servers
from connectors.mcp.tools import Listed, group_of, tools_of
from connectors.registry import Entry, Secrets
from engine import people
from engine.canonical import dumps
from engine.errors import NeedsConnection, NodError, ToolError
from engine.sandbox.leftovers import end_marked
from engine.sessions import Session
from engine.store.base import Store, Tx
from engine.tools.base import Registry, Result, Risk, ToolContext

if TYPE_CHECKING:
    from connectors.base import Connector, Credentials
    from connectors.mcp.http import Signed

__all__ = ["Servers", "Status", "ToolLine"]

#: Seconds all servers together have to end.
STOP = 8.0

_log = logging.getLogger(__name__)

#: Tells the owner: (cause, title, text); an empty text: it is over.
Notify = Callable[[str, str, str], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLine:
    """One tool of a server, for a person."""

    own: str
    #: The name models call it by; empty: it is not offered.
    name: str = ""
    #: read or external; why it is not offered.
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How a server is, for a person."""

    name: str
    where: str
    state: str
    #: One sentence on what is wrong; the last lines it printed.
    trouble: str = ""
    printed: str = ""
    title: str = ""
    #: From nod.toml, or a command.
    origin: str = ""
    shared: bool = True
    tools: tuple[ToolLine, ...] = ()
    resources: bool = False
    prompts: bool = False
    #: Characters of JSON its tools take in every model call.
    size: int = 0


class _Held:
    """A server that is on: its link, the task that keeps it, and what it offers."""

    def __init__(self, server: Server, link: Link, task: asyncio.Task[None]) -> None:
        self.server = server
        self.link = link
        self.task = task
        self.offer = Listing()
        self.listed = Listed()
        self.size = 0
        self.fault = ""


class Servers:
    """See the module; an async context manager.

    Args:
        written: the tables [mcp.NAME] of nod.toml.
        secrets: where the secrets are that servers name.
        notify: tells the owner.
        credentials: opens the accounts of servers with OAuth; None: there are none.
        entries: where such servers are put for whoever connects accounts.
    """

    def __init__(
        self,
        *,
        written: Mapping[str, Any],
        store: Store,
        tools: Registry,
        tenant: str,
        data: Path,
        secrets: Secrets,
        notify: Notify,
        credentials: Credentials | None = None,
        entries: MutableMapping[str, Entry] | None = None,
    ) -> None:
        self._written = written
        self._store = store
        self._tools = tools
        self._tenant = tenant
        self._data = data / "mcp"
        self._vault = secrets
        self._notify = notify
        self._credentials = credentials
        self._entries = {} if entries is None else entries
        #: Server -> id of the account its connection is opened with.
        self._opened: dict[str, str] = {}
        self._held: dict[str, _Held] = {}
        self._kept = mcp_kept.Kept()
        self._again = False
        self._turn = asyncio.Lock()
        self._work: set[asyncio.Task[None]] = set()
        #: Marks what our servers start, for this data folder.
        self._mark = f"mcp.{hashlib.sha256(str(data.absolute()).encode()).hexdigest()[:16]}."
        read_servers(written)  # a wrong table stops the start, with its name

    async def __aenter__(self) -> Servers:
        """Put in the tools that are known; the servers start meanwhile."""
        await self.apply()
        return self

    async def __aexit__(self, *_: object) -> None:
        await _over([each.task for each in self._held.values()], STOP)
        await _over(self._work, STOP)

    async def apply(self) -> None:
        """Take in what was changed: start what is new, stop what is gone or different."""
        async with self._turn:
            self._kept = await self._store.read(lambda tx: mcp_kept.kept(tx, self._tenant))
            wanted = {each.name: each for each in mcp_kept.effective(self._written, self._kept)}
            for name in wanted.keys() & self._held.keys():
                self._changed(self._held[name], wanted[name])
            old = [n for n, held in self._held.items() if wanted.get(n) != held.server]
            leaving = [self._held.pop(name) for name in old]
            for each in leaving:
                self._entries.pop(group_of(each.server.name), None)
                self._tools.replace(group_of(each.server.name), [])
            await _over([each.task for each in leaving], STOP)
            if wanted and not self._held:
                await asyncio.to_thread(end_marked, self._mark)  # of a Nod that was killed
            for name in wanted.keys() - self._held.keys():
                await self._start(wanted[name])

    def _changed(self, held: _Held, server: Server) -> None:
        """Take in what is only about its tools; it goes on running."""
        if held.server != server and held.server.fingerprint == server.fingerprint:
            held.server = held.link.server = server
            self._offer(held, held.offer)

    def nudge(self) -> None:
        """Something about servers may have been written; look, without being waited for."""
        if any(each.get_name() == "mcp-look" for each in self._work):
            self._again = True
            return
        task = asyncio.create_task(self._look(), name="mcp-look")
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _look(self) -> None:
        self._again = True
        while self._again:
            self._again = False
            try:
                held = await self._store.read(lambda tx: mcp_kept.kept(tx, self._tenant))
                if held != self._kept:
                    await self.apply()
                for each in self._held.values():
                    if each.link.state is State.CONNECT and each.server.oauth:
                        each.link.kick()  # it may just have been connected
            except NodError as error:
                _log.error("MCP servers were not looked at: %s", error)

    async def _start(self, server: Server) -> None:
        if server.oauth:
            await self._another_under(server)
        ports = Ports(
            secret=self._vault.get,
            auth=self._sign,
            folder=self._data / server.name,
            mark=f"{self._mark}{server.name}.",
            listed=partial(self._listed, server.name),
            trouble=partial(self._trouble, server.name),
        )
        link = Link(server, ports)
        task = asyncio.create_task(link.run(), name=f"mcp-{server.name}")
        held = self._held[server.name] = _Held(server, link, task)
        if server.oauth:
            self._entries[group_of(server.name)] = Entry(
                title=f"MCP server {server.name}",
                about=f"tools of {server.where}",
                made=partial(self._as_connector, server.name),
            )
        known = await asyncio.to_thread(read_offer, self._file(server), server)
        if known is not None and held.offer == Listing():
            self._offer(held, known)

    # -- what servers tell

    def _listed(self, name: str, offer: Listing) -> None:
        held = self._held.get(name)
        if held is None or offer == held.offer:
            return
        self._offer(held, offer)
        self._later(asyncio.to_thread(write_offer, self._file(held.server), held.server, offer))

    def _offer(self, held: _Held, offer: Listing) -> None:
        server = held.server
        held.offer = offer
        held.listed = tools_of(server, offer.tools, partial(self._perform, server.name))
        names = {each.name for each in held.listed.tools}
        extras = extras_of(server, offer, partial(self._ask, server.name), names)
        shown = [*held.listed.tools, *extras]
        held.size = sum(len(dumps([t.name, t.description, t.parameters])) for t in shown)
        try:
            self._tools.replace(group_of(server.name), shown)
            held.fault = ""
        except ToolError as error:
            held.fault = str(error)

    def _trouble(self, name: str, text: str) -> None:
        title = f"The MCP server {name} does not work"
        self._later(self._notify(f"mcp/{name}", title, text))

    def _later(self, work: Awaitable[None]) -> None:
        async def done() -> None:
            try:
                await work
            except (NodError, OSError) as error:
                _log.warning("after a word from an MCP server: %s", error)

        task = asyncio.create_task(done(), name="mcp-told")
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    # -- accounts

    async def register(self, name: str, redirect: str) -> None:
        """Find out how a server with OAuth is connected; raises NodError where it cannot be.

        `redirect` is the address a browser comes back to.
        """
        from connectors.mcp import oauth as mcp_oauth

        server = self._server(name)
        if not server.oauth:
            raise NodError(f"{name} has no sign-in.", "Only a server added with --oauth has.")
        await mcp_oauth.register(server, redirect, self._oauth_file(name), self._vault)

    async def forget(self, name: str, opened: Iterable[Account]) -> None:
        """Forget how a server was signed in to: what opens these accounts, and who Nod is there."""
        from connectors.credentials import secret_name
        from connectors.mcp import oauth as mcp_oauth

        for each in opened:
            await asyncio.to_thread(self._vault.delete, secret_name(each.id))
        await asyncio.to_thread(mcp_oauth.forget, name, self._oauth_file(name), self._vault)

    async def _another_under(self, server: Server) -> None:
        """Keep what opens another server that had this name from being sent to this one."""
        from connectors.mcp import oauth as mcp_oauth

        opened = await self._accounts(server.name)
        file = self._oauth_file(server.name)
        if not opened and not await asyncio.to_thread(file.exists):
            return
        if not await asyncio.to_thread(mcp_oauth.fits, file, server):
            await self.forget(server.name, opened)

    async def _accounts(self, name: str) -> list[Account]:
        found = await self._store.read(lambda tx: accounts.listed(tx, self._tenant))
        return [each for each in found if each.connector == group_of(name)]

    def _as_connector(self, name: str) -> Connector:
        """Return the server as a connector, once it is known how to connect it; blocking."""
        from connectors.mcp import oauth as mcp_oauth

        found = mcp_oauth.held(self._oauth_file(name))
        names = self._tools.group(group_of(name))
        tools = tuple(each for each in map(self._tools.get, names) if each is not None)
        made = mcp_oauth.McpAccount(self._server(name), found, tools, self._count)
        return cast("Connector", made)

    async def _count(self, server: Server, account: Account) -> int:
        """Return how many tools the server lists to the account; raises NeedsConnection."""
        link = self._held[server.name].link
        return await link.tried(await self._signed(account))

    async def _sign(self, server: Server) -> Signed | None:
        if not server.oauth:
            return None
        own = await self._accounts(server.name)
        if not own:
            raise NeedsConnection(group_of(server.name), "", "it is not connected yet")
        account = min(own, key=lambda each: (each.status != "ok", not each.shared))
        self._opened[server.name] = account.id
        return await self._signed(account)

    async def _signed(self, account: Account) -> Signed:
        if self._credentials is None:
            raise NeedsConnection(account.connector, "", "nothing here opens accounts")
        made: Signed = (await asyncio.to_thread(_signing)).Signed(self._credentials, account)
        return made

    def _oauth_file(self, name: str) -> Path:
        return self._data / f"{name}.oauth.json"

    def _server(self, name: str) -> Server:
        held = self._held.get(name)
        if held is None:
            known = ", ".join(each.name for each in self.status()) or "none yet"
            raise NodError(f"No MCP server '{name[:40]}' is on.", f"There are: {known}.")
        return held.server

    def _file(self, server: Server) -> Path:
        return self._data / f"{server.name}.json"

    # -- calls

    async def _perform(
        self, name: str, ctx: ToolContext, own: str, arguments: Mapping[str, Any], reads: bool
    ) -> Result:
        answer = await self._link(name).call(
            lambda wire: wire.call(own, arguments), harmless=reads, before=ctx.before_act
        )
        return await result_of(name, answer, ctx)

    async def _ask(self, name: str, ctx: ToolContext, ask: Callable[[Any], Awaitable[Any]]) -> Any:
        return await self._link(name).call(ask, harmless=True, before=ctx.before_act)

    def _link(self, name: str) -> Link:
        held = self._held.get(name)
        if held is None:
            raise ToolError(f"The MCP server {name} is switched off. Nothing was done.")
        return held.link

    # -- for sessions and people

    def hands(self, tx: Tx, session: Session) -> frozenset[str]:
        """Return the names of the tools that are not for the session."""
        if not self._held:
            return frozenset()
        muted = gates.closed(tx, session)
        closed = [name for name in self._held if group_of(name) in muted]
        usable = {each.id for each in accounts.usable(tx, session)} if self._entries else set()
        closed += [
            name
            for name, held in self._held.items()
            if held.server.oauth and self._opened.get(name) not in usable
        ]
        if any(not held.server.shared for held in self._held.values()):
            owner = people.get(tx, session.tenant, session.owner)
            if owner is None or owner.role != "owner":
                closed += [n for n, held in self._held.items() if not held.server.shared]
        return frozenset(tool for name in closed for tool in self._tools.group(group_of(name)))

    def is_written(self, name: str) -> bool:
        """Say whether the server stands in nod.toml."""
        return name in self._written

    def status(self) -> list[Status]:
        """Return how each server is, by name; those that are off as well."""
        on = [self._status(held) for held in self._held.values()]
        off = [
            Status(name=name, where="", state=State.OFF, origin=self._origin(name))
            for name in {*self._written, *self._kept.servers} - self._held.keys()
        ]
        return sorted([*on, *off], key=lambda each: each.name)

    async def check(self, name: str, limit: float) -> Status:
        """Have a server tried now, unless it is ready, and return how it is after `limit` s."""
        self._server(name)
        held = self._held[name]
        if held.link.state is not State.READY:
            await held.link.again()
            await held.link.settled(limit)
        return self._status(held)

    def _origin(self, name: str) -> str:
        return "nod.toml" if name in self._written else "a command"

    def _status(self, held: _Held) -> Status:
        link, listed, server = held.link, held.listed, held.server
        lines = [
            ToolLine(own=own, name=tool.name, said="read" if tool.risk is Risk.READ else "asks")
            for own, tool in zip(listed.own, listed.tools, strict=True)
        ]
        lines += [ToolLine(own=own, said=why) for own, why in listed.left_out]
        ready = link.state is State.READY
        return Status(
            name=server.name,
            where=server.where,
            state=link.state,
            trouble=held.fault if ready else link.trouble,
            printed="" if ready else link.printed,
            title=held.offer.title,
            origin=self._origin(server.name),
            shared=server.shared,
            tools=tuple(lines),
            resources=held.offer.resources,
            prompts=held.offer.prompts,
            size=held.size,
        )


def _signing() -> Any:
    """Return the module with the SDK's transport; blocking, for it may be imported now."""
    from connectors.mcp import http as mcp_http

    return mcp_http


async def _over(
    tasks: Sequence[asyncio.Task[None]] | set[asyncio.Task[None]], limit: float
) -> None:
    """Cancel the tasks and wait for their end, for `limit` seconds at most."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=limit)
