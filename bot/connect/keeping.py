"""Keeps what a person connected: checked first, then stored; what waited for it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.connect.links import LINK, ConnectError, over
from bot.inbound import answers
from bot.inbound.answers import House
from bot.markup import plain
from connectors import accounts
from connectors.accounts import Account
from connectors.registry import Connectors
from engine import inbox, sessions
from engine.canonical import dumps
from engine.clock import mint
from engine.errors import NeedsConnection, ToolError
from engine.inbox import Person
from engine.store.base import Store, Tx
from engine.targets import ThreadTarget

if TYPE_CHECKING:  # loaded when something is connected
    from connectors.base import Identity
    from connectors.credentials import Credentials
    from connectors.oauth import Token

__all__ = ["CONSOLE", "Connected", "Keeping"]

#: Seconds for a service to say whom the credentials are for.
CHECK = 30.0
#: Characters of an account's label.
LABEL = 200
#: Surfaces that only whoever runs the process reaches.
CONSOLE = frozenset({"console", "shell"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """What was connected."""

    title: str
    account: Account
    #: What the service says of it.
    text: str


class Keeping:
    """Stores accounts, and tells those who waited for them.

    Args:
        title: a connector's name in words.
        enqueue, poke: the hints to the dispatcher and the presenter.
    """

    def __init__(
        self,
        *,
        store: Store,
        house: House,
        connectors: Connectors,
        credentials: Credentials,
        title: Callable[[str], str],
        enqueue: Callable[[str], None],
        poke: Callable[[], None],
    ) -> None:
        self._store = store
        self._house = house
        self._connectors = connectors
        self._credentials = credentials
        self._title = title
        self._enqueue = enqueue
        self._poke = poke
        self._outcomes: asyncio.Queue[str] = asyncio.Queue(1)

    async def keep(
        self,
        person: Person,
        name: str,
        held: Token | Mapping[str, str],
        scopes: Iterable[str],
        place: str,
    ) -> Connected:
        """Check what opens an account, keep it, and let go on what waited for it.

        `held` is a token, or the fields of a key; `place` is where the person asked for it, a
        thread_target. Raises ConnectError when it opens nothing.
        """
        draft = Account(
            id=mint("k"), tenant=self._house.tenant, connector=name, label="", owner=person.id
        )
        await self._credentials.keep(draft.id, held)
        try:
            identity = await self._identity(draft)
            label = plain(identity.label)[:LABEL] or name
            known = await self._store.read(
                lambda tx: accounts.named(tx, draft.tenant, name, label, person.id)
            )
            if known is not None:  # before the calls that wait for it go on
                await self._credentials.move(draft, known)
        except BaseException:
            await self._credentials.drop(draft)
            raise
        now = self._house.now()

        def stored(tx: Tx) -> tuple[Account, list[str]]:
            account = accounts.add(
                tx, draft.tenant, name, label, person.id, scopes=scopes, now=now, id=draft.id
            )
            return account, self._resolve(tx, account, person, place)

        account, moved = await self._store.write(stored)
        for session in moved:
            self._enqueue(session)
        self._poke()
        done = Connected(title=self._title(name), account=account, text=identity.text)
        self._came(f"{done.title} is connected: {done.text}")
        return done

    async def failed(self, place: str, text: str) -> None:
        """Say in `place` that nothing came of it."""
        await self._store.write(lambda tx: self._tell(tx, place, text, mint("n")))
        self._poke()
        self._came(text)

    async def outcome(self) -> str:
        """Wait for what comes next, and return it in words. Raises ConnectError."""
        try:
            async with asyncio.timeout(LINK):
                return await self._outcomes.get()
        except TimeoutError:
            raise over() from None

    def _came(self, text: str) -> None:
        if not self._outcomes.full():
            self._outcomes.put_nowait(text)

    async def _identity(self, draft: Account) -> Identity:
        """Return whom the service takes the credentials for; raises ConnectError."""
        title = self._title(draft.connector)
        try:
            async with asyncio.timeout(CHECK):
                return await self._connectors.identity(draft)
        except NeedsConnection:
            raise ConnectError(f"{title} does not take this.", "Check it, and try again.") from None
        except ToolError as error:
            raise ConnectError(f"{title} was not connected: {error.what}", error.fix) from None
        except TimeoutError:
            raise ConnectError(f"{title} did not answer in time.", "Try again.") from None

    def _resolve(self, tx: Tx, account: Account, person: Person, place: str) -> list[str]:
        """Answer the prompts that waited for this, and say so where it was asked for."""
        house, moved = self._house, []
        surface = ThreadTarget.parse(place).surface
        for row in tx.all("prompts_to_connect", tenant=house.tenant):
            prompt = inbox.prompt_from(row)
            meant = prompt.payload.get("account") or account.label
            theirs = prompt.approvers.get("person") == person.id
            same = prompt.payload["connector"] == account.connector and meant == account.label
            if theirs and same:
                taken = answers.take(tx, house, prompt, {"kind": "done"}, person, surface)
                moved += taken[1]
        whose = "" if surface in CONSOLE else f" for {plain(person.name)}"
        text = f"{self._title(account.connector)} is connected{whose}."
        self._tell(tx, place, text, account.id)
        return moved

    def _tell(self, tx: Tx, place: str, text: str, about: str) -> None:
        now = self._house.now()
        tx.run(
            "delivery_add",
            id=mint("d"),
            tenant=self._house.tenant,
            session=sessions.find_thread(tx, self._house.tenant, place) or "",
            kind="show",
            subject=f"connect:{about}/{now:.3f}",
            destination=place,
            part=1,
            payload=dumps({"text": text}),
            status="open",
            attempted=None,
            now=now,
        )
