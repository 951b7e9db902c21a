"""Links by which one person connects one thing once, as rows; no secret is in them.

A link is random and holds for ten minutes. The store has only its hash, and so it has of the state
the service is sent, and of the cookie of the browser that began.
"""

from __future__ import annotations

import hashlib
import secrets

from engine.clock import Now
from engine.errors import NodError
from engine.store.base import Row, Store

__all__ = ["LINK", "ConnectError", "Links", "over"]

#: Seconds a link holds, and again once the service's own page was opened.
LINK = 600.0
#: Seconds after which a row is swept away.
KEPT = 24 * 3600.0


class ConnectError(NodError):
    """Something cannot be connected; told on the page, and to the person."""


class Links:
    """Every method but `add` may raise ConnectError: the link is used up, or over."""

    def __init__(self, store: Store, now: Now, tenant: str) -> None:
        self._store = store
        self._now = now
        self._tenant = tenant

    async def sweep(self) -> bool:
        """Drop what is long over, and say whether any link still holds."""
        now = self._now()
        await self._store.write(lambda tx: tx.run("connecting_swept", before=now - KEPT))
        return await self._store.read(lambda tx: tx.one("connecting_live", now=now)) is not None

    async def add(self, connector: str, principal: str, place: str) -> str:
        """Return the secret part of a new link."""
        token, now = secrets.token_hex(24), self._now()  # nothing in it is Markdown
        await self._store.write(
            lambda tx: tx.run(
                "connecting_add",
                id=_hash(token),
                tenant=self._tenant,
                connector=connector,
                principal=principal,
                place=place,
                until=now + LINK,
            )
        )
        return token

    async def live(self, token: str) -> Row:
        """Return the row of a link that holds."""
        row = await self._store.read(lambda tx: tx.one("connecting_get", id=_hash(token)))
        if row is None or row["used_at"] is not None or row["until"] <= self._now():
            raise over()
        return row

    async def begin(self, row: Row, state: str) -> str:
        """Bind the link to the state the service is sent, and return the browser's cookie.

        Beginning anew ends what began before.
        """
        cookie, now = secrets.token_urlsafe(24), self._now()
        begun = await self._store.write(
            lambda tx: tx.run(
                "connecting_begun",
                id=row["id"],
                state=_hash(state),
                browser=_hash(cookie),
                until=now + LINK,
                now=now,
            )
        )
        if not begun:
            raise over()
        return cookie

    async def of_state(self, state: str, cookie: str) -> Row:
        """Return the row that began with this state, in the browser that has this cookie."""
        row = await self._store.read(lambda tx: tx.one("connecting_of_state", state=_hash(state)))
        if row is None or not secrets.compare_digest(row["browser_hash"], _hash(cookie)):
            raise ConnectError(
                "This did not begin in this browser, or it began anew since.",
                "Open the link again.",
            )
        return row

    async def use(self, row: Row) -> None:
        """Take the link's one use."""
        now = self._now()
        if not await self._store.write(lambda tx: tx.run("connecting_used", id=row["id"], now=now)):
            raise over()

    async def reopen(self, row: Row) -> None:
        """Give the use back: nothing was connected with it."""
        await self._store.write(lambda tx: tx.run("connecting_reopened", id=row["id"]))


def over() -> ConnectError:
    """Return what is told of a link that holds no more."""
    return ConnectError(
        "This link is used up, or older than ten minutes.", "Ask for a new one in chat: /connect"
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
