"""Connectors at work against a vendor's server: real store, vault, credentials and requests."""

from __future__ import annotations

import os
import tokenize
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from connectors import accounts
from connectors.accounts import Account
from connectors.base import Auth, Connector, Limits, OAuth
from connectors.credentials import Credentials
from connectors.oauth import Token, Vendor
from connectors.registry import CONNECTORS, Connectors, Entry, load
from connectors.secrets import Secrets
from connectors.vault import make_key_file
from engine import people, sessions
from engine.clock import system_now
from engine.store.base import Store
from engine.tools.base import Registry, Result, Tool, ToolContext
from tests.fakes.context import make_context
from tests.fakes.vendors.service import Service

__all__ = ["Desk", "connector_of", "lines_of_code", "opened"]

TENANT = "local"
#: Connectors that only tests know.
_SAMPLES = {"notes": Entry(module="tests.fakes.vendors.notes", title="Notes", about="Notes.")}
CATALOGUE = {**CONNECTORS, **_SAMPLES}


def connector_of(name: str) -> Connector:
    """Return the connector of that name."""
    return load(name, CATALOGUE)


def lines_of_code(module: str) -> int:
    """Return the lines of the module that hold code: no comment, text or blank line."""
    path = import_module(module).__file__
    assert path is not None
    kept: set[int] = set()
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER):
                kept.add(token.start[0])
    return len(kept)


@dataclass(slots=True)
class Desk:
    """One person's session, with the connector's tools."""

    service: Service
    connectors: Connectors
    tools: Registry
    store: Store
    credentials: Credentials
    session: str
    ctx: ToolContext
    name: str
    #: What a form is filled with, for a service that takes no token.
    fields: Mapping[str, str]

    def tool(self, name: str) -> Tool:
        """Return a tool of the registry."""
        found = self.tools.get(name)
        assert found is not None, f"there is no tool {name}"
        return found

    async def call(self, name: str, arguments: Mapping[str, Any], **changed: Any) -> Result:
        """Check the arguments as those of a model, and run the tool."""
        tool = self.tool(name)
        here = {key: self._here(value) for key, value in arguments.items()}
        return await tool.run(replace(self.ctx, **changed), **tool.check(here))

    def _here(self, value: Any) -> Any:
        """Put the server's address for `{url}`."""
        return value.replace("{url}", self.service.url) if isinstance(value, str) else value

    async def connect(
        self,
        label: str = "ana",
        token: str = "token-1",
        *,
        owner: str = people.CONSOLE,
        refresh: str = "",
        fields: Mapping[str, str] | None = None,
    ) -> Account:
        """Connect an account as its page would: with a token, or with the fields of a form."""
        now = self.ctx.now()
        if fields is None and not refresh and self.fields:
            fields = {name: self._here(value) for name, value in self.fields.items()}
        account = await self.store.write(
            lambda tx: accounts.add(tx, TENANT, self.name, label, owner, now=now)
        )
        held = fields if fields is not None else Token(access=token, refresh=refresh)
        await self.credentials.keep(account.id, held)
        return account


@asynccontextmanager
async def opened(
    name: str,
    service: Service,
    store: Store,
    data: Path,
    *,
    limits: Limits | None = None,
    options: Mapping[str, Any] | None = None,
) -> AsyncIterator[Desk]:
    """A desk on which nothing is connected yet; a slow answer is given up after `limits`."""
    (data / "vault").mkdir()
    make_key_file(data / "vault" / "vault.key")
    secrets = Secrets(_ENVIRONMENT, data / "vault")
    connector = connector_of(name)
    kept, connector.limits = connector.limits, limits or connector.limits
    vendor = Vendor(system_now)

    def ways(_name: str) -> tuple[Auth, ...]:
        token_url = f"{service.url}/oauth/token"
        moved = (
            replace(each, token_url=token_url, client="TEST") if isinstance(each, OAuth) else each
            for each in connector.auth
        )
        return tuple(moved)

    credentials = Credentials(
        store=store, secrets=secrets, vendor=vendor, ways=ways, now=system_now
    )
    tools = Registry()
    connectors = Connectors(
        store=store,
        tools=tools,
        credentials=credentials,
        tenant=TENANT,
        options={name: {"base_url": service.url, **(options or {})}},
        catalogue={name: CATALOGUE[name]},
    )
    try:
        async with connectors:
            await connectors.add(name)
            session = await store.write(lambda tx: _session(tx, data))
            ctx = make_context(data, session=session, now=system_now)
            yield Desk(
                service=service,
                connectors=connectors,
                tools=tools,
                store=store,
                credentials=credentials,
                session=session,
                ctx=ctx,
                name=name,
                fields=getattr(import_module(type(service).__module__), "FIELDS", {}),
            )
    finally:
        connector.limits = kept
        await credentials.aclose()
        await vendor.aclose()


#: Who Nod is to the vendor.
_ENVIRONMENT = {
    "PATH": os.defpath,
    "TEST_CLIENT_ID": "nod",
    "TEST_CLIENT_SECRET": "client-secret-for-tests",
}


def _session(tx: Any, data: Path) -> str:
    people.seed_console(tx, TENANT, system_now())
    return sessions.open_session(
        tx,
        tenant=TENANT,
        home="console:main",
        owner=people.CONSOLE,
        origin="person",
        persona="cowork",
        model="practice:test",
        mode="interactive",
        data=data,
        now=system_now(),
    )
