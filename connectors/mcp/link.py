"""Keeps one MCP server connected: one task opens, watches and closes it, and mends what it can.

    off ──► starting ──► ready ──► (lost) ──► failing ──► starting …
               │                                 ▲
               ├── no answer, an error ──────────┘  waits longer each time
               ├── it can never work so ──► broken     until somebody asks for it again
               └── credentials refused ───► connect    until somebody connects it

A call goes straight to the open connection from its own task; it never waits for a server that
is known to be down. Who owns the task is `mcp_house.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from connectors.http import Unsure
from connectors.mcp.ports import Broken, Listing, Ports, State
from connectors.mcp.servers import Server, secret_names
from connectors.mcp.setup import prepared
from engine.errors import NeedsConnection, ToolError

if TYPE_CHECKING:
    from connectors.mcp.http import Signed
    from connectors.mcp.wire import Wire

__all__ = ["Link"]

#: Seconds a server has to start and list its tools; many fetch themselves on their first start.
START = 40.0
#: Seconds a call waits for a server that starts again and again.
AGAIN = 3.0
#: Seconds an idle server has to answer whether it is alive, and one has to close.
PROBE, CLOSE = 10.0, 8.0
#: Seconds between tries after a failure, the last for all that follow; a call hurries them, but
#: not more often than `HURRY`.
PAUSES = (1.0, 2.0, 5.0, 15.0, 60.0, 300.0)
HURRY = 5.0
#: A server that stayed ready so many seconds has recovered.
STEADY = 30.0
#: Failures in a row after which the owner is told.
TOLD = 2
#: Calls at once, and calls that wait for a place.
AT_ONCE, WAITING = 8, 64
#: Seconds between two listings, however often a server says that something changed.
RELIST = 1.0

_log = logging.getLogger(__name__)


class _Locked(Exception):
    """It does not take the credentials it is given."""


class Link:
    """One server. `run` is the body of its task; everything else may be called from any task."""

    def __init__(self, server: Server, ports: Ports) -> None:
        self.server = server
        self.state = State.OFF
        #: Why it is not ready, one sentence; what it printed last, while it fails.
        self.why = ""
        self.printed = ""
        self._ports = ports
        self._wire: Wire | None = None
        self._failures = 0
        self._told = False
        self._tried = 0.0
        self._pause = 0.0
        self._moved = asyncio.Condition()
        self._kick = asyncio.Event()
        self._event = asyncio.Event()
        self._lost = ""
        self._changed = False
        self._suspect = False
        self._places = asyncio.Semaphore(AT_ONCE)
        self._queued = 0
        self._person = ""

    # -- the owner's task

    async def run(self) -> None:
        """Keep the server connected until cancelled."""
        while True:
            self._kick.clear()
            self._tried = time.monotonic()
            await self._set(State.STARTING)
            try:
                await self._connected()
            except Broken as error:
                await self._set(State.BROKEN, str(error))
            except (_Locked, NeedsConnection) as error:
                await self._set(State.CONNECT, getattr(error, "why", str(error)))
            except TimeoutError:
                await self._failed(f"it did not answer within {START:.0f} s")
            except Exception as error:  # noqa: BLE001  # broad: a plug-in border; retried
                await self._failed(_said(error))
            self._tell()
            await self._rest()

    async def _connected(self) -> None:
        """Open the connection and stay with it until it is lost; raises why it was."""
        module = await asyncio.to_thread(_wire_module)  # the SDK takes a second to import
        setup = await asyncio.to_thread(prepared, self.server, self._ports)
        auth = await self._ports.auth(self.server)
        self._person = auth.person if auth else ""
        tail = module.Tail()
        self._lost, self._changed, self._suspect = "", False, False
        self._event.clear()
        try:
            async with asyncio.timeout(START) as limit:
                async with module.open_wire(
                    self.server,
                    setup.values,
                    setup.env,
                    setup.folder,
                    tail,
                    auth=auth,
                    lost=self._lose,
                    changed=self._note_change,
                ) as wire:
                    await self._list(wire)
                    limit.reschedule(None)
                    await self._serve(wire)
                    limit.reschedule(asyncio.get_running_loop().time() + CLOSE)
        except Exception as error:  # broad: looked at, and raised again
            if isinstance(module.first(error), module.Unauthorized):
                raise _Locked("it refused the credentials") from None
            raise
        finally:
            self._wire = None
            self.printed = setup.redacted(str(tail))
        raise ConnectionError(self._lost or "the connection was closed")

    async def _serve(self, wire: Wire) -> None:
        """Stay until the connection is lost; list anew what changed, look after what hangs."""
        self._wire = wire
        await self._set(State.READY)
        since = time.monotonic()
        while not self._lost:
            steady = STEADY - (time.monotonic() - since) if self._failures else None
            try:
                async with asyncio.timeout(None if steady is None else max(steady, 0.0)):
                    await self._event.wait()
            except TimeoutError:
                self._recovered()
                continue
            self._event.clear()
            if self._lost:
                return
            if self._suspect:
                await self._probe(wire)
            if self._changed:
                self._changed = False
                async with asyncio.timeout(START):
                    await self._list(wire)
                await asyncio.sleep(RELIST)

    async def _probe(self, wire: Wire) -> None:
        self._suspect = False
        try:
            async with asyncio.timeout(PROBE):
                await wire.alive()
        except TimeoutError:
            self._lose("it hangs: it did not answer for a while")
        except ToolError:
            return  # it answers, and that is enough

    async def _list(self, wire: Wire) -> None:
        tools = tuple(await wire.tools())
        offer = Listing(
            tools=tools,
            resources=wire.has_resources and await _any(wire.resources()),
            prompts=wire.has_prompts and await _any(wire.prompts()),
            title=wire.title,
        )
        self._ports.listed(offer)

    async def _failed(self, why: str) -> None:
        self._failures += 1
        self._pause = PAUSES[min(self._failures, len(PAUSES)) - 1]
        await self._set(State.FAILING, why)

    async def _rest(self) -> None:
        """Wait until it is to be tried again."""
        waits = self._pause if self.state is State.FAILING else None
        try:
            async with asyncio.timeout(waits):
                await self._kick.wait()
        except TimeoutError:
            pass

    def _recovered(self) -> None:
        self._failures = 0
        if self._told:
            self._told = False
            self._ports.trouble("")

    def _tell(self) -> None:
        """Tell the owner, once in an episode."""
        locked = self.state is State.CONNECT and not self.server.oauth
        lasting = locked or self.state is State.BROKEN or self._failures >= TOLD
        if lasting and not self._told:
            self._told = True
            printed = f"\nIt printed:\n{self.printed}" if self.printed else ""
            self._ports.trouble(f"{self.trouble}{printed}")

    async def _set(self, state: State, why: str = "") -> None:
        async with self._moved:
            self.state, self.why = state, why
            self._moved.notify_all()
        _log.info("MCP server %s: %s %s", self.server.name, state, why)

    def _lose(self, why: str) -> None:
        self._lost = self._lost or why
        self._wire = None  # what is asked from now on waits for the next connection
        if self.state is State.READY:
            self.state, self.why = State.FAILING, self._lost
        self._event.set()

    def _note_change(self) -> None:
        self._changed = True
        self._event.set()

    async def tried(self, auth: Signed) -> int:
        """Return how many tools the server lists to who signs so, on a connection of its own.

        Raises NeedsConnection when it refuses them, ToolError for anything else.
        """
        module = await asyncio.to_thread(_wire_module)
        try:
            setup = await asyncio.to_thread(prepared, self.server, self._ports)
            async with module.open_wire(
                self.server,
                setup.values,
                setup.env,
                setup.folder,
                module.Tail(),
                auth=auth,
                lost=lambda why: None,
                changed=lambda: None,
            ) as wire:
                return len(await wire.tools())
        except Exception as error:  # noqa: BLE001  # broad: a plug-in border; told in words
            if isinstance(module.first(error), module.Unauthorized):
                raise self._needs("The server does not take it.") from None
            raise ToolError(f"The MCP server {self.server.name}: {_said(error)}") from None

    # -- for whoever calls

    @property
    def trouble(self) -> str:
        """One sentence on why it is not there, and what happens next."""
        name = self.server.name
        if self.state is State.READY:
            return ""
        after = {
            State.FAILING: f"It is tried again in {max(self._pause, PAUSES[0]):.0f} s at most.",
            State.BROKEN: f"Mend it, then: /mcp check {name}",
            State.CONNECT: self._connect,
        }.get(self.state, "It is starting.")
        why = f": {self.why.rstrip('.')}" if self.why else ""
        return f"The MCP server {name} is {self.state}{why}. {after}"

    @property
    def _connect(self) -> str:
        name = self.server.name
        if self.server.oauth:
            return f"Connect it: /mcp connect {name}"
        secrets = secret_names(self.server)
        how = f"Run: nod secrets set {secrets[0]}" if secrets else "It needs a header with a secret"
        return f"{how}. Then: /mcp check {name}"

    def kick(self) -> None:
        """Try again now, if it rests."""
        self._kick.set()

    async def again(self) -> None:
        """Try again now, whatever became of it last; `settled` then waits for this try."""
        async with self._moved:
            self.state = State.STARTING
        self.kick()

    async def settled(self, limit: float) -> State:
        """Wait until it is neither off nor starting, for `limit` seconds at most."""
        await self._until(lambda: self.state not in (State.OFF, State.STARTING), limit)
        return self.state

    async def _until(self, holds: Callable[[], bool], limit: float) -> None:
        try:
            async with asyncio.timeout(limit), self._moved:
                await self._moved.wait_for(holds)
        except TimeoutError:
            pass

    async def call(
        self, ask: Callable[[Wire], Awaitable[Any]], *, harmless: bool, before: Callable[[], None]
    ) -> Any:
        """Let `ask` make one request of the open connection, and return what it gives.

        Args:
            harmless: it changes nothing, so a failure is only an error.
            before: called right before the request leaves; may raise.

        Raises ToolError and NeedsConnection (nothing was done), and Unsure.
        """
        async with self._place():
            for _ in range(2):
                wire = await self._open()
                before()
                answer = await self._asked(wire, ask, harmless)
                if answer is not None:
                    return answer
        name = self.server.name
        raise ToolError(f"The MCP server {name} ended the connection. Nothing was done.")

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        if self._queued >= WAITING:
            raise ToolError(f"The MCP server {self.server.name} is busy. Nothing was done.")
        self._queued += 1
        try:
            async with asyncio.timeout(self.server.timeout):
                await self._places.acquire()
        except TimeoutError:
            raise ToolError(
                f"The MCP server {self.server.name} is busy. Nothing was done."
            ) from None
        finally:
            self._queued -= 1
        try:
            yield
        finally:
            self._places.release()

    async def _open(self) -> Wire:
        """Return the open connection; one that starts, or fell only once, is waited for."""
        if self._wire is None and not self._gave_up:
            often = self._failures > 1
            if not often or time.monotonic() - self._tried > HURRY:
                self.kick()
            await self._until(lambda: self._settled, AGAIN if often else START)
        if self.state is State.CONNECT:  # somebody may just have connected it
            await self.again()
            if await self.settled(START) is State.CONNECT:
                raise self._needs(self.trouble)
        if self._wire is None:
            raise ToolError(f"{self.trouble} Nothing was done.")
        return self._wire

    @property
    def _settled(self) -> bool:
        """It is there, or will not be for a while."""
        down = self.state is State.FAILING and self._failures > 1
        return self._wire is not None or self._gave_up or down

    @property
    def _gave_up(self) -> bool:
        return self.state in (State.BROKEN, State.CONNECT)

    async def _asked(
        self, wire: Wire, ask: Callable[[Wire], Awaitable[Any]], harmless: bool
    ) -> Any:
        """Return the answer; None: the server had forgotten us, and it is worth another try."""
        module = _wire_module()
        name = self.server.name
        try:
            async with asyncio.timeout(self.server.timeout):
                return await ask(wire)
        except module.Ended:
            self._lose("the server ended the connection")
            return None
        except module.Unauthorized:
            self._lose("the server refused the credentials")
            raise self._needs(f"The MCP server {name} refused the credentials.") from None
        except module.Broke as error:
            text = f"The MCP server {name} failed while it worked: {error}."
        except TimeoutError:
            self._doubt()
            text = f"The MCP server {name} did not answer within {self.server.timeout:g} s."
        except asyncio.CancelledError:
            self._doubt()
            raise
        if harmless:
            raise ToolError(text, "Try once more, or another way.")
        raise Unsure(text)

    def _needs(self, why: str) -> ToolError:
        """Return what a call raises without credentials that hold; a sign-in can be waited for."""
        if self.server.oauth:
            return NeedsConnection(f"mcp:{self.server.name}", "", why, self._person)
        return ToolError(f"{why.rstrip('.')}. Nothing was done.", self._connect)

    def _doubt(self) -> None:
        """A call was given up: see whether the server still answers."""
        self._suspect = True
        self._event.set()


def _wire_module() -> Any:
    """Return the module that uses the SDK; only a server that is set up has it imported."""
    from connectors.mcp import wire as mcp_wire

    return mcp_wire


async def _any(asking: Awaitable[Sequence[Any]]) -> bool:
    """Say whether there are any; many servers offer to tell, and have none."""
    try:
        return bool(await asking)
    except ToolError:
        return False


def _said(error: BaseException) -> str:
    """Return what went wrong, in words; a group tells of its first error."""
    error = _wire_module().first(error)
    return " ".join(str(error).split())[:300] or type(error).__name__
