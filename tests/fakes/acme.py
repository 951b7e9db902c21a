"""A service people connect, "Acme", and a Nod that can connect it: rows, vault, pages, no chat."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from bot import settings
from bot.connect.connecting import Connecting
from bot.inbound.answers import Defaults, House
from bot.web.address import Web
from bot.web.counts import Counts
from connectors import accounts
from connectors.accounts import Account
from connectors.base import Api, Connector, Field, Identity, Key, OAuth
from connectors.credentials import Credentials
from connectors.oauth import Vendor
from connectors.registry import Connectors, Entry, load
from connectors.secrets import Secrets
from engine import people
from engine.inbox import Person
from engine.store.base import Store
from engine.tools.base import Registry, Result, Risk

__all__ = ["ANA", "BO", "Acme", "acme_at"]

ANA = Person(id="console", role="owner", name="Ana <b>Bold</b>")
BO = Person(id="u-bo", role="member", name="Bo")

_FIELDS = (
    Field(name="site", title="Site", secret=False, hint="Such as acme.example.", optional=True),
    Field(name="key", title="API key", hint='Settings > "Keys".'),
)


@dataclass(slots=True)
class Acme:
    """What tests reach for."""

    store: Store
    web: Web
    connecting: Connecting
    connectors: Connectors
    credentials: Credentials
    secrets: Secrets
    tools: Registry
    clock: list[float]
    moved: list[str] = field(default_factory=list)
    whispers: list[tuple[str, str]] = field(default_factory=list)
    #: Where the hints go, besides to `moved`.
    hints: list[Callable[[str], None]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.web.port}"

    async def link(self, person: Person = ANA, place: str = "console:main") -> str:
        """Return the link the person is given."""
        text = await self.connecting.offer(person, "acme", place)
        return text.split("minutes: ")[1].split()[0]

    async def accounts(self) -> list[Account]:
        return await self.store.read(lambda tx: accounts.listed(tx, "local"))

    async def told(self) -> list[tuple[str, str]]:
        """Return (place, text) of what is to be shown."""
        rows = await self.store.read(
            lambda tx: tx.all("deliveries_open", tenant="local", after_at=0.0, after="", limit=99)
        )
        return [(row["destination"], row["payload"]) for row in rows]


def _connector(oauth: OAuth | None, base: str, *, keyed: bool) -> Connector:
    key = Key(fields=_FIELDS, headers=lambda held: {"Authorization": f"Bearer {held['key']}"})
    ways: tuple[Any, ...] = (*((oauth,) if oauth else ()), *((key,) if keyed else ()))
    made = Connector(name="acme", title="Acme & Co", about="Things.", base=base, auth=ways)

    @made.tool(risk=Risk.READ)
    async def search(api: Api, query: str) -> Result:
        """Search the things.

        Args:
            query: What for.
        """
        return api.result(await api.get("/me", query={"q": query}))

    @made.check
    async def check(api: Api) -> Identity:
        said = await api.get("/userinfo")
        return Identity(label=str(said["sub"]), text=f"Signed in as {said['sub']}.")

    return made


@asynccontextmanager
async def acme_at(
    base: str,
    store: Store,
    data: Path,
    monkeypatch: Any,
    *,
    oauth: OAuth | None,
    keyed: bool = False,
    environ: Mapping[str, str] | None = None,
    public: str = "",
    answering: bool = True,
) -> AsyncIterator[Acme]:
    """Run what connects Acme, whose API is at `base`."""
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
    module = ModuleType("tests_acme")
    module.CONNECTOR = _connector(oauth, base, keyed=keyed)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tests_acme", module)
    catalogue = {"acme": Entry(module="tests_acme", title="Acme & Co", about="Things <of> ours.")}
    clock = [1_000_000.0]

    async def ready() -> tuple[bool, dict[str, str]]:
        return True, {}

    await store.write(lambda tx: people.seed_console(tx, "local", clock[0], ANA.name))
    await store.write(
        lambda tx: people.add_person(
            tx,
            "local",
            "slack",
            "T1/U2",
            name="Bo",
            role="member",
            by="console",
            now=1.0,
            principal=BO.id,
        )
    )
    given = {"NOD_VAULT_PASSPHRASE": "correct horse battery", "ACME_CLIENT_ID": "nod-client"}
    secrets = Secrets(
        {**given, "ACME_CLIENT_SECRET": "nod-client-secret"} if environ is None else environ, data
    )
    vendor, tools = Vendor(lambda: clock[0]), Registry()
    credentials = Credentials(
        store=store,
        secrets=secrets,
        vendor=vendor,
        ways=lambda name: load(name, catalogue).auth,
        now=lambda: clock[0],
    )
    defaults = Defaults(persona="cowork", model="practice:rules", mode="interactive")
    house = House(tenant="local", data=data, now=lambda: clock[0], defaults=defaults)
    moved: list[str] = []
    whispers: list[tuple[str, str]] = []

    hints: list[Callable[[str], None]] = []

    def enqueue(session: str) -> None:
        moved.append(session)
        for hint in hints:
            hint(session)

    async def whisper(place: str, text: str) -> None:
        whispers.append((place, text))

    connectors = Connectors(
        store=store,
        tools=tools,
        credentials=credentials,
        tenant="local",
        options={"acme": {"base_url": base}},
        catalogue=catalogue,
    )
    listening = settings.Web(port=0 if answering else None, url=public)
    async with Web(listening, Counts(), ready) as web, connectors:
        connecting = Connecting(
            store=store,
            house=house,
            connectors=connectors,
            credentials=credentials,
            vendor=vendor,
            key=b"k" * 32,
            web=web,
            enqueue=enqueue,
            poke=lambda: enqueue(""),
            whisper=whisper,
            catalogue=catalogue,
        )
        async with connecting:
            yield Acme(
                store=store,
                web=web,
                connecting=connecting,
                connectors=connectors,
                credentials=credentials,
                secrets=secrets,
                tools=tools,
                clock=clock,
                moved=moved,
                whispers=whispers,
                hints=hints,
            )
        await credentials.aclose()
        await vendor.aclose()
