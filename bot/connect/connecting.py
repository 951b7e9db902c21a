"""Connecting an account: a link for one person, what comes back, and the word in their thread.

The verifier of PKCE is made from the state the service is sent, and kept nowhere. A key never
passes through chat: its form is on the page.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.connect.keeping import CONSOLE, Connected, Keeping
from bot.connect.links import LINK, ConnectError, Links
from bot.inbound.answers import House
from bot.markup import plain
from connectors import accounts
from connectors.accounts import Account
from connectors.registry import CONNECTORS, Connectors, Entry, load
from engine import people
from engine.errors import NeedsConnection, NodError
from engine.inbox import Person
from engine.store.base import Row, Store
from engine.targets import ThreadTarget

if TYPE_CHECKING:  # loaded when something is connected
    from bot.web.address import Web
    from connectors.base import Auth, Key, OAuth
    from connectors.credentials import Credentials
    from connectors.oauth import DeviceGrant, Vendor

__all__ = ["Asked", "Connecting"]

#: Characters of one field of a form.
FIELD = 5_000
#: Surfaces that answer a person privately.
PRIVATE = CONSOLE | {"slack", "discord"}
#: Grants of devices that are waited for at once.
DEVICES = 20

CALLBACK = "/connect/callback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a link is for, as its page shows it."""

    connector: str
    title: str
    about: str
    #: Whose account it will be.
    person: str
    #: The service's own page, when Nod is registered there.
    oauth: OAuth | None
    #: The form.
    key: Key | None
    #: What to do when neither is possible.
    lacks: str = ""


class Connecting:
    """Gives links and finishes what they begin; an async context manager.

    Args:
        key: makes the verifiers of PKCE.
        web: where the pages are; None: this process answers no requests.
        enqueue, poke: the hints to the dispatcher and the presenter.
        whisper: posts a text to a thread_target, and keeps it nowhere.
    """

    def __init__(
        self,
        *,
        store: Store,
        house: House,
        connectors: Connectors,
        credentials: Credentials,
        vendor: Vendor,
        key: bytes,
        web: Web | None,
        enqueue: Callable[[str], None] = lambda session: None,
        poke: Callable[[], None] = lambda: None,
        whisper: Callable[[str, str], Awaitable[object]] | None = None,
        catalogue: Mapping[str, Entry] = CONNECTORS,
    ) -> None:
        self._store = store
        self._house = house
        self._links = Links(store, house.now, house.tenant)
        self._credentials = credentials
        self._vendor = vendor
        self._key = key
        self._web = web
        self._whisper = whisper
        #: Name of a connector -> what is known of it.
        self.catalogue = catalogue
        self._keeping = Keeping(
            store=store,
            house=house,
            connectors=connectors,
            credentials=credentials,
            title=lambda name: self._entry(name).title,
            enqueue=enqueue,
            poke=poke,
        )
        self._served = False
        self._waiting: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Connecting:
        """Answer links that were given before a restart, and clear up after a crash."""
        await self._credentials.sweep()
        if await self._links.sweep():
            await self._serve()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)

    # -- giving a link

    async def offer(
        self, person: Person, name: str, place: str, *, device: bool = False, pressed: bool = False
    ) -> str:
        """Return what the person is told, privately, so that they can connect `name`.

        `place` is the thread_target where they asked; the outcome is told there. `device` asks
        for a code, also where there is a page; `pressed` says that they pressed a button, whose
        answer some platforms show in a window that opens no link. Raises NodError when there is
        no such connector, or no way to it from there.
        """
        entry = self._entry(name)
        found = await self._ways(name)
        base = "" if device else await self._address(place)
        if not base:
            text = await self._by_device(person, name, entry, found, place)
            return await self._aside(person, place, text, pressed)
        link = await self._links.add(name, person.id, place)
        text = (
            f"Connect {entry.title} here, within {LINK / 60:.0f} minutes: {base}/connect/{link}\n"
            f"The link is for you alone and works once: what you connect acts as you."
        )
        return await self._aside(person, place, text, pressed)

    async def _aside(self, person: Person, place: str, text: str, pressed: bool) -> str:
        """Send the text to where only the person reads it, and return what is said in `place`."""
        if ThreadTarget.parse(place).surface in PRIVATE:
            return text
        tenant = self._house.tenant
        found = await self._store.read(lambda tx: people.places_of(tx, tenant, person.id))
        surface = ThreadTarget.parse(place).surface
        direct = next((each for each in found if ThreadTarget.parse(each).surface == surface), "")
        if place in found and not pressed:
            return text
        direct = place if place in found else direct
        if not direct or self._whisper is None:
            raise ConnectError("Others read this place.", "Write /connect to me in private.")
        await self._whisper(direct, text)
        return "I have sent you the link in private."

    async def _address(self, place: str) -> str:
        """Return the address of the pages, as whoever is in `place` reaches them; empty: none."""
        if self._web is None:
            return ""
        if self._web.public:
            await self._serve()
            return self._web.public
        if ThreadTarget.parse(place).surface not in CONSOLE:
            return ""
        await self._serve()
        return f"http://127.0.0.1:{self._web.port}"

    async def callback(self, place: str) -> str:
        """Return where a service sends a browser back to, for who is in `place`; empty: no page."""
        base = await self._address(place)
        return base and base + CALLBACK

    async def _serve(self) -> None:
        if not self._served and self._web is not None:
            from bot.connect.pages import Pages

            self._served = True
            await Pages(self).add_to(self._web)

    # -- what a page does

    async def asked(self, token: str) -> Asked:
        """Return what the link is for; raises ConnectError when it holds no more."""
        row = await self._links.live(token)
        entry = self._entry(row["connector"])
        found = await self._ways(row["connector"])
        person = await self._person(row)
        lacks, oauth = "", _first_oauth(found)
        if oauth is not None:
            try:
                await self._credentials.client(oauth)
            except NodError as error:
                oauth, lacks = None, str(error)
        return Asked(
            connector=row["connector"],
            title=entry.title,
            about=entry.about,
            person=person.name,
            oauth=oauth,
            key=_first_key(found),
            lacks=lacks,
        )

    async def begin(self, token: str) -> tuple[str, str]:
        """Return the address of the service's own page, and the cookie that binds the browser.

        Raises ConnectError, or NodError when Nod is not registered there.
        """
        row = await self._links.live(token)
        auth = await self._oauth(row["connector"])
        client = await self._credentials.client(auth)
        state = secrets.token_urlsafe(24)
        url = self._vendor.authorize_url(
            auth,
            client,
            redirect=await self._address(row["place"]) + CALLBACK,
            state=state,
            verifier=_verifier(self._key, state),
        )
        return url, await self._links.begin(row, state)

    async def finish(self, state: str, cookie: str, code: str, error: str) -> Connected:
        """Take what the service sent the browser back with. Raises ConnectError, NodError."""
        row = await self._links.of_state(state, cookie)
        title = self._entry(row["connector"]).title
        if error or not code:
            raise ConnectError(f"{title} was not connected: you, or it, said no.", "Try it again.")
        await self._links.use(row)
        try:
            auth = await self._oauth(row["connector"])
            token = await self._vendor.exchange(
                auth,
                await self._credentials.client(auth),
                code=code,
                redirect=await self._address(row["place"]) + CALLBACK,
                verifier=_verifier(self._key, state),
            )
            person = await self._person(row)
            return await self._keeping.keep(
                person, row["connector"], token, token.scopes or auth.scopes, row["place"]
            )
        except BaseException:
            await self._links.reopen(row)
            raise

    async def fill(self, token: str, values: Mapping[str, str]) -> Connected:
        """Connect with what the form was filled with. Raises ConnectError; the link holds on."""
        row = await self._links.live(token)
        key = _first_key(await self._ways(row["connector"]))
        if key is None:
            raise ConnectError(f"{self._entry(row['connector']).title} takes no keys.")
        held = read_fields(key, values)
        await self._links.use(row)
        try:
            person = await self._person(row)
            return await self._keeping.keep(person, row["connector"], held, (), row["place"])
        except BaseException:
            await self._links.reopen(row)
            raise

    async def adopt(self, person: Person, name: str, kept: str, place: str) -> Connected:
        """Connect with the fields that a shell put into the vault as `kept`, and drop them there.

        Raises ConnectError.
        """
        draft = Account(
            id=kept, tenant=self._house.tenant, connector=name, label="", owner=person.id
        )
        used = await self._store.read(lambda tx: accounts.get(tx, kept))
        key = _first_key(await self._ways(name))
        if used is not None or key is None:
            raise ConnectError(f"{self._entry(name).title} cannot be connected with this.")
        try:
            values = await self._credentials.secret(draft)
        except NeedsConnection:
            raise ConnectError("The vault holds no such key.", "Run nod connect again.") from None
        await self._credentials.drop(draft)
        return await self._keeping.keep(person, name, read_fields(key, values), (), place)

    async def forget(self, account: Account) -> bool:
        """Forget what opened an account that was dropped; True: its service was told, too."""
        return await self._credentials.forget(account)

    async def outcome(self) -> str:
        """Wait for what comes of a link or a code, and return it in words. Raises ConnectError."""
        return await self._keeping.outcome()

    # -- devices

    async def _by_device(
        self, person: Person, name: str, entry: Entry, found: tuple[Auth, ...], place: str
    ) -> str:
        auth = _first_oauth(found)
        if auth is None or not auth.device_url:
            raise ConnectError(
                f"To connect {entry.title} I need a page that you can open.",
                "Set web.url to an address of mine that people reach, or connect it in a shell "
                f"where I run: nod connect {name}",
            )
        if len(self._waiting) >= DEVICES:
            raise ConnectError("Too many connections are under way.", "Try again in a few minutes.")
        grant = await self._vendor.device_begin(auth, await self._credentials.client(auth))
        task = asyncio.create_task(self._wait(person, name, auth, grant, place), name="device")
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        text = (
            f"Connect {entry.title}: open {grant.url} and enter the code `{grant.user_code}` "
            f"within {(grant.until - self._house.now()) / 60:.0f} minutes."
        )
        return text

    async def _wait(
        self, person: Person, name: str, auth: OAuth, grant: DeviceGrant, place: str
    ) -> None:
        try:
            client = await self._credentials.client(auth)
            token = await self._vendor.device_wait(auth, client, grant)
            await self._keeping.keep(person, name, token, token.scopes or auth.scopes, place)
        except NodError as error:
            await self._keeping.failed(
                place, f"{self._entry(name).title} was not connected: {error}"
            )

    # -- connectors and rows

    def _entry(self, name: str) -> Entry:
        entry = self.catalogue.get(name)
        if entry is None:
            known = ", ".join(sorted(self.catalogue)) or "none"
            what = f"There is no connector '{plain(name)[:40]}'."
            raise ConnectError(what, f"There are: {known}.")
        return entry

    async def _ways(self, name: str) -> tuple[Auth, ...]:
        self._entry(name)
        return (await asyncio.to_thread(load, name, self.catalogue)).auth

    async def _oauth(self, name: str) -> OAuth:
        auth = _first_oauth(await self._ways(name))
        if auth is None:
            raise ConnectError(f"{self._entry(name).title} has no page to sign in at.")
        return auth

    async def _person(self, row: Row) -> Person:
        """Return whose link it is, with the role of this moment."""
        tenant = self._house.tenant
        found = await self._store.read(lambda tx: people.get(tx, tenant, row["principal_id"]))
        if found is None or found.role == "guest":
            raise ConnectError("Whoever this link was for may not connect anything any more.")
        return found


def read_fields(key: Key, values: Mapping[str, str]) -> dict[str, str]:
    """Return what a form was filled with; raises ConnectError, which tells no value."""
    held = {each.name: values.get(each.name, "").strip() for each in key.fields}
    for each in key.fields:
        if not held[each.name] and not each.optional:
            raise ConnectError(f"{each.title} is empty.", "Fill it in.")
        if len(held[each.name]) > FIELD or not held[each.name].isprintable():
            raise ConnectError(f"{each.title} cannot be right.", "Copy it again.")
    return held


def _first_oauth(found: tuple[Auth, ...]) -> OAuth | None:
    from connectors.base import OAuth

    return next((each for each in found if isinstance(each, OAuth)), None)


def _first_key(found: tuple[Auth, ...]) -> Key | None:
    from connectors.base import Key

    return next((each for each in found if isinstance(each, Key)), None)


def _verifier(key: bytes, state: str) -> str:
    from connectors.oauth import verifier_of

    return verifier_of(key, state)
