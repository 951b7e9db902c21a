"""Holds an event that fails each time it comes, so that it stops nothing: three tries, then a card.

The card is the owner's: Retry takes the event once more, Drop forgets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from bot.inbound import answers
from bot.inbound.answers import House
from bot.surfaces.base import Author, Commanded, Edited, Inbound, Pressed, Said
from engine.canonical import dumps, loads
from engine.store.base import Store, Tx
from engine.targets import ThreadTarget

__all__ = ["Quarantine"]

TRIES = 3

_KINDS: Mapping[str, type[Said] | type[Edited] | type[Pressed] | type[Commanded]] = {
    each.__name__: each for each in (Said, Edited, Pressed, Commanded)
}


class Quarantine:
    """Counts the tries of events that fail, across restarts."""

    def __init__(self, store: Store, house: House) -> None:
        self._store = store
        self._house = house
        #: Keys that failed since the start: their success is worth a write.
        self._failing: set[str] = set()

    async def failed(self, event: Inbound, key: str, error: Exception) -> bool:
        """Count a failure; True: it is held now and may be acknowledged.

        Raises StoreError when that could not be stored.
        """
        self._failing.add(key)
        return await self._store.write(lambda tx: self._failed(tx, event, key, error))

    async def succeeded(self, key: str) -> None:
        """Forget the failures of an event that was taken after all."""
        if key in self._failing:
            self._failing.discard(key)
            await self._store.write(
                lambda tx: tx.run("held_drop", tenant=self._house.tenant, key=key)
            )

    async def again(self) -> list[Inbound]:
        """Return the events that are to be taken once more."""
        rows = await self._store.read(lambda tx: tx.all("held_again", tenant=self._house.tenant))
        self._failing |= {row["event_key"] for row in rows}
        return [_event(loads(row["event"])) for row in rows]

    def _failed(self, tx: Tx, event: Inbound, key: str, error: Exception) -> bool:
        tenant, now = self._house.tenant, self._house.now()
        tx.run("held_try", tenant=tenant, key=key, event=dumps(_plain(event)), now=now)
        row = tx.one("held_get", tenant=tenant, key=key)
        if row is None or row["tries"] < TRIES:
            return False
        tx.run("held_keep", tenant=tenant, key=key)
        surface = ThreadTarget.parse(event.target).surface
        text = (
            f"Something from {surface} in {event.target} could not be taken "
            f"({type(error).__name__}, {row['tries']} tries). The log says more. "
            "Retry takes it once more, without its files; Drop forgets it."
        )
        title = "An event could not be taken"
        answers.notify(tx, tenant, now, f"held:{key}", title, text, held=key)
        return True


def _plain(event: Inbound) -> dict[str, Any]:
    """Return the event as JSON; files cannot be kept, for only the platform has them."""
    held = {name: value for name, value in asdict(_bare(event)).items() if name != "files"}
    return {"kind": type(event).__name__, **held}


def _bare(event: Inbound) -> Inbound:
    return replace(event, files=()) if isinstance(event, Said) else event


def _event(held: Mapping[str, Any]) -> Inbound:
    fields = {name: value for name, value in held.items() if name != "kind"}
    fields["person"] = Author(**fields["person"])
    return _KINDS[held["kind"]](**fields)
