"""Looks at an event before the intake does: a pasted key goes no further, a link is given at once.

A key is deleted where the platform lets Nod, and told about; it reaches no store, log or model.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace

from bot import cards
from bot.connect.connecting import Connecting
from bot.inbound import pasted, pressing
from bot.inbound.answers import House
from bot.surfaces.base import Commanded, Edited, Inbound, Pressed, Receipt, Said, Surface
from engine import inbox, people, sessions
from engine.canonical import dumps
from engine.errors import NodError, PromptError
from engine.inbox import Person, Prompt
from engine.store.base import Store, Tx
from engine.targets import ThreadTarget

__all__ = ["Doorkeeper"]

#: Seconds a platform may take to delete a message.
ERASE = 10.0

_log = logging.getLogger(__name__)


class Doorkeeper:
    """Stands before the intake.

    Args:
        key: signs the buttons of cards.
        surfaces: by name; where a message is deleted.
        connecting: gives links; None: nothing can be connected here.
    """

    def __init__(
        self,
        *,
        store: Store,
        house: House,
        key: bytes,
        surfaces: Mapping[str, Surface],
        connecting: Connecting | None,
    ) -> None:
        self._store = store
        self._house = house
        self._key = key
        self._surfaces = surfaces
        self._connecting = connecting

    async def look(self, event: Inbound) -> Inbound | Receipt:
        """Return the event as it may go on, or what became of it already."""
        what = pasted.found(_words(event))
        if not what:
            return await self._pressed(event) if isinstance(event, Pressed) else event
        if isinstance(event, Said) and not await self._is_ours(event):
            return replace(event, text=pasted.blotted(event.text))
        return await self._refused(event, what)

    # -- pasted keys

    async def _is_ours(self, said: Said) -> bool:
        """Say whether the line would enter a session."""
        tenant = self._house.tenant
        return (
            said.addressed
            or said.direct
            or await self._store.read(lambda tx: sessions.find_thread(tx, tenant, said.target))
            is not None
        )

    async def _refused(self, event: Inbound, what: str) -> Receipt:
        platform = ThreadTarget.parse(event.target).surface
        key = f"{platform}:{event.event}"
        if not await self._store.write(lambda tx: self._note(tx, event, key, "key")):
            return Receipt(status="duplicate")
        gone = isinstance(event, Said | Edited) and await self._erase(platform, event)
        _log.warning("%s was pasted on %s; it was not taken", what, platform)
        if isinstance(event, Said) and event.bot:
            return Receipt(status="refused")
        first = "I have deleted your message" if gone else "I cannot delete it here: do so yourself"
        if platform == "console":
            first = "Nothing of it was kept"
        return Receipt(
            status="refused",
            text=(
                f"That looks like {what}. {first}. It was not stored, and no model has seen it. "
                "Whoever can read this place could: end it where it came from and make a new one. "
                "A key is connected on a page of mine, which /connect gives you, or set in a "
                "shell where I run: `nod secrets set NAME`."
            ),
        )

    async def _erase(self, platform: str, event: Said | Edited) -> bool:
        surface = self._surfaces.get(platform)
        if surface is None:
            return False
        post = event.original if isinstance(event, Edited) else event.event
        try:
            async with asyncio.timeout(ERASE):
                return await surface.erase(event.target, post)
        except (NodError, TimeoutError) as error:
            _log.warning("a message was not deleted: %s", type(error).__name__)
            return False

    def _note(self, tx: Tx, event: Inbound, key: str, kind: str, by: str = "") -> bool:
        """Remember the event; False: it came before."""
        if tx.one("mail_seen", tenant=self._house.tenant, key=key) is not None:
            return False
        tx.run(
            "mail_noted",
            tenant=self._house.tenant,
            session=None,
            kind=kind,
            key=key,
            target=event.target,
            by=by,
            now=self._house.now(),
        )
        return True

    # -- links

    async def _pressed(self, event: Pressed) -> Inbound | Receipt:
        if self._connecting is None or cards.says(event.token) != "link":
            return event
        try:
            press = cards.read_token(event.token, self._key)
            found = await self._store.write(lambda tx: self._asked(tx, press.prompt, event))
            if found is None:
                return event  # decided already, or nobody we know: the intake says so
            person, prompt = found
            name = str(prompt.payload["connector"])
            text = await self._connecting.offer(person, name, event.target, pressed=True)
        except NodError as error:
            return Receipt(status="refused", text=str(error))
        return Receipt(status="answered", session=prompt.session, text=text)

    def _asked(self, tx: Tx, prompt_id: str, event: Pressed) -> tuple[Person, Prompt] | None:
        platform = ThreadTarget.parse(event.target).surface
        person = people.person_of(tx, self._house.tenant, platform, event.person.id)
        prompt = inbox.get(tx, prompt_id)
        if person is None or person.role == "guest" or prompt.status != "pending":
            return None
        if prompt.approvers.get("person") != person.id:
            raise PromptError("Only the one who was asked can connect this.", "It acts as them.")
        pressing.add_ref(tx, prompt, event, self._house.now())
        return person, prompt


def _words(event: Inbound) -> str:
    """Return everything a person wrote with the event."""
    if isinstance(event, Commanded):
        return event.arguments
    if isinstance(event, Pressed):
        return f"{event.text}\n{dumps(event.arguments or {})}"
    return event.text
