"""What a command is, and what it may use, for one person in one thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from bot.connect.connecting import Connecting
from bot.inbound.answers import House
from bot.markup import plain
from connectors.mcp.house import Servers
from engine import sessions
from engine.errors import SessionError
from engine.inbox import Person
from engine.models.catalogue import Catalogue
from engine.schedule.hooks import Hook
from engine.sessions import Session
from engine.store.base import Store, Tx
from engine.targets import ThreadTarget
from engine.tools.base import Registry

__all__ = ["Command", "Context", "Doors", "Handler"]


class Doors(Protocol):
    """The addresses a running Nod answers, and the keys of what is signed there."""

    async def address(self, token: str) -> str:
        """Return the address of the hook with that token; it is answered from now on."""
        ...

    async def keep_key(self, hook: Hook, key: str) -> None:
        """Keep the key of the hook's signatures."""
        ...

    async def forget_key(self, hook: Hook) -> None:
        """Forget the key of the hook's signatures."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a command may use, for one person in one thread."""

    store: Store
    house: House
    catalogue: Catalogue
    #: Hints to the dispatcher and the presenter; neither waits.
    enqueue: Callable[[str], None]
    poke: Callable[[], None]
    #: Connects accounts; None: this process has no pages for it.
    connecting: Connecting | None = None
    zone: str = "UTC"
    #: The tools there are; None: nothing is running.
    tools: Registry | None = None
    #: The MCP servers at work; None: nothing is.
    mcp: Servers | None = None
    #: (name, value) of what is set, without secrets.
    settings: Sequence[tuple[str, str]] = ()
    person: Person = field(default_factory=lambda: Person(id="", role="guest"))
    #: None: nothing is running.
    doors: Doors | None = None
    #: thread_target the command was given in.
    target: str = "console:main"
    #: It was given in a channel of threads, and in none of them.
    beside: bool = False
    #: Time zone of the person's profile on the platform; empty: it tells none.
    profile_zone: str = ""

    def of(
        self, person: Person, target: str, *, beside: bool = False, profile_zone: str = ""
    ) -> Context:
        """Return the context for this person in this thread, or beside the threads of a channel."""
        return replace(self, person=person, target=target, beside=beside, profile_zone=profile_zone)

    @property
    def tenant(self) -> str:
        """The tenant everything belongs to."""
        return self.house.tenant

    @property
    def surface(self) -> str:
        """The surface the command was given on."""
        return ThreadTarget.parse(self.target).surface

    def session(self, tx: Tx) -> Session:
        """Return the session of this thread; raises SessionError when there is none.

        Beside the threads of a channel it is this person's own there that is at work, else the
        latest one.
        """
        found = sessions.find_thread(tx, self.tenant, self.target)
        if self.beside:
            prefix = f"{self.target}/%"
            row = tx.one("session_near", tenant=self.tenant, prefix=prefix, owner=self.person.id)
            found = None if row is None else row["session_id"]
        if found is None:
            raise SessionError(f"Nothing was said in {self.target} yet.", "Write a message first.")
        return sessions.get(tx, found)

    def own_thread(self) -> None:
        """Raise SessionError when no session can begin here: in a channel each mention has one."""
        if self.beside:
            raise SessionError(
                "In a channel every mention begins a session of its own.", "Mention me."
            )

    def named(self, session: Session) -> str:
        """Return what tells people which session is meant."""
        return f"“{plain(session.title)}”" if session.title else session.id


Handler = Callable[[Context, list[str]], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command, as it is listed and run."""

    name: str
    #: Its arguments, as the help shows them.
    usage: str
    help: str
    run: Handler
    #: How many arguments it takes, least and most; None: any number.
    least: int = 0
    most: int | None = 0
    #: Takes all that was typed as one argument, quotes and lines kept.
    whole: bool = False
    #: The least role that may give it.
    role: str = "member"
