"""Wires what Nod's hands in other people's systems need: the vault, tokens, connectors, links."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from bot import log
from bot.connect.connecting import Connecting
from connectors.credentials import Credentials
from connectors.oauth import Vendor
from connectors.registry import CONNECTORS, Connectors, Entry, Secrets, load
from connectors.sources import Sources
from engine.clock import Now
from engine.store.base import Store
from engine.tools.base import Registry

if TYPE_CHECKING:
    from bot.inbound.answers import House
    from bot.web.address import Web

__all__ = ["Hands"]


class Hands:
    """The connectors of one process; an async context manager.

    Args:
        tools: where their tools go.
        options: connector -> its table of the settings, such as `base_url`.
        on_event: called when something came of a connector by itself; must not wait.
    """

    def __init__(
        self,
        *,
        store: Store,
        secrets: Secrets,
        tools: Registry,
        now: Now,
        tenant: str,
        options: Mapping[str, Mapping[str, Any]],
        catalogue: Mapping[str, Entry] = CONNECTORS,
        on_event: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._vendor = Vendor(now)
        self.credentials = Credentials(
            store=store,
            secrets=secrets,
            vendor=self._vendor,
            ways=lambda name: load(name, catalogue).auth,
            now=now,
            hide=log.hide,
        )
        self.connectors = Connectors(
            store=store,
            tools=tools,
            credentials=self.credentials,
            tenant=tenant,
            options=options,
            catalogue=catalogue,
            now=now,
        )
        #: To be entered once there is something to wake.
        self.sources = Sources(
            store=store, connectors=self.connectors, now=now, tenant=tenant, on_event=on_event
        )

    async def __aenter__(self) -> Hands:
        await self.connectors.__aenter__()
        return self

    async def __aexit__(self, *given: object) -> None:
        await self.connectors.__aexit__(*given)
        await self.credentials.aclose()
        await self._vendor.aclose()

    def connecting(
        self,
        *,
        house: House,
        key: bytes,
        web: Web | None,
        enqueue: Callable[[str], None],
        poke: Callable[[], None],
        whisper: Callable[[str, str], Awaitable[object]] | None = None,
    ) -> Connecting:
        """Return what gives links, to be entered while this is."""
        return Connecting(
            store=self._store,
            house=house,
            connectors=self.connectors,
            credentials=self.credentials,
            vendor=self._vendor,
            key=key,
            web=web,
            enqueue=enqueue,
            poke=poke,
            whisper=whisper,
            catalogue=self._catalogue,
        )
