"""Looks at what somebody waits for in other people's services, and fires events of what is new.

What an account brings acts only in sessions of the person who connected it. Of several processes
one looks at an account; what is new and how far it was looked at are written in one transaction, so
that a crash neither loses nor doubles an event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from connectors import accounts, gates
from connectors.accounts import Account
from connectors.registry import CONNECTORS, Connectors, Entry, sources
from engine.canonical import dumps, loads
from engine.clock import Now, mint
from engine.errors import NeedsConnection, NodError, ScheduleError
from engine.schedule import hooks, named, notices
from engine.store.base import Row, Store, Tx

if TYPE_CHECKING:
    from connectors.base import Found

__all__ = ["Sources", "check_event"]

#: Seconds between looks for what is waited for, and in which another process may have written it.
RESCAN = 30.0
#: Seconds one look may take, and those after which another process takes it for dead.
PATIENCE, LEASE = 90.0, 180.0
#: Seconds for which it is kept how far an account was looked at when nobody waits any more: whoever
#: was woken may wait again, and misses nothing of the meantime.
KEPT = 900.0
#: Seconds until a look that failed is tried again, doubled each time, and at most; and at most when
#: the service itself says how long to wait.
PAUSE, LONGEST, ASKED = 60.0, 3_600.0, 86_400.0
#: Characters of one field of what an event carries.
FIELD = 500
#: Failures in a row of which the account's owner is told.
TELLING = 6

_log = logging.getLogger(__name__)


def check_event(
    tx: Tx, tenant: str, owner: str, event: str, catalogue: Mapping[str, Entry] = CONNECTORS
) -> None:
    """Raise ScheduleError when the event is named like a connector's and cannot come for `owner`.

    Any other name may be one that a hook or a job is yet to bring.
    """
    name = event.strip().lower()
    connector, known = named.connector_of(name), sources(catalogue)
    if connector not in catalogue or any(each.name == name for each in hooks.standing(tx, tenant)):
        return
    title = catalogue[connector].title
    if name not in known:
        raise ScheduleError(
            f"{title} brings no event {name}.",
            f"There are {', '.join(sorted(known))}; or make a hook of that name first.",
        )
    own = (each for each in accounts.listed(tx, tenant) if each.owner == owner)
    if all(each.connector != connector for each in own):
        raise ScheduleError(
            f"{title} is not connected, so {name} would never come.",
            f"Connect it first: /connect {connector}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A source of an account that somebody waits for."""

    account: Account
    source: str
    #: Its row; None: it was never looked at.
    row: Row | None

    @property
    def event(self) -> str:
        return f"{self.account.connector}-{self.source}"

    @property
    def at(self) -> float | None:
        """When to look; None: not before it is connected again, which its owner knows."""
        if self.account.status != "ok" and self.row is not None and self.row["told"]:
            return None
        return 0.0 if self.row is None else float(self.row["next_at"])


class Sources:
    """Looks while it is entered; an async context manager.

    Args:
        on_event: called when an event was fired, or something is to be told; must not wait.
    """

    def __init__(
        self,
        *,
        store: Store,
        connectors: Connectors,
        now: Now,
        tenant: str,
        on_event: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._connectors = connectors
        self._now = now
        self._tenant = tenant
        self._on_event = on_event
        self._rung = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Sources:
        self._task = asyncio.create_task(self._watch(), name="sources")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None, "only what was entered is left"
        self._task.cancel()  # what was not written is looked at again
        await asyncio.gather(self._task, return_exceptions=True)

    def nudge(self) -> None:
        """Look at once: somebody may wait for something new. Never waits."""
        self._rung.set()

    async def look(self) -> float | None:
        """Look at what is due, one account after the other; return when to look next, if ever."""
        wanted, left = await self._store.read(self._wanted)
        if left:
            await self._store.write(lambda tx: self._drop(tx, left))
        due = [each for each in wanted if each.at is not None and each.at <= self._now()]
        for each in due:
            await self._tend(each)
        if due:
            wanted, _ = await self._store.read(self._wanted)
        return min((each.at for each in wanted if each.at is not None), default=None)

    async def _watch(self) -> None:
        while True:
            wait = RESCAN
            try:
                if (at := await self.look()) is not None:
                    wait = min(RESCAN, max(1.0, at - self._now()))
            except Exception:  # noqa: BLE001  # broad: it goes on with the next look
                _log.exception("sources could not be looked at; again within %s s", RESCAN)
            try:
                async with asyncio.timeout(wait):
                    await self._rung.wait()
            except TimeoutError:
                continue
            self._rung.clear()

    # -- what is waited for

    def _wanted(self, tx: Tx) -> tuple[list[_Wanted], list[Row]]:
        """Return what somebody waits for where it is not off, and the rows nobody needs now."""
        rows = {
            (row["account_id"], row["source"]): row
            for row in tx.all("sources_listed", tenant=self._tenant)
        }
        waiting = self._waiting(tx)
        found = []
        for account in accounts.listed(tx, self._tenant) if waiting else ():
            for name, (connector, source) in self._connectors.sources.items():
                if connector == account.connector and (name, account.owner) in waiting:
                    row = rows.pop((account.id, source), None)
                    found.append(_Wanted(account=account, source=source, row=row))
        return found, [row for row in rows.values() if row["next_at"] < self._now() - KEPT]

    def _waiting(self, tx: Tx) -> set[tuple[str, str]]:
        """Return (event, principal) of what is waited for where its connector is not off."""
        known, shut = self._connectors.sources, gates.listed(tx, self._tenant)
        return {
            (row["name"], row["owner_id"])
            for row in tx.all("sources_awaited", tenant=self._tenant)
            if row["name"] in known
            and not any(
                connector == known[row["name"]][0]
                and gates.holds(scope, row["home"], row["persona"], row["owner_id"])
                for connector, scope in shut
            )
        }

    def _drop(self, tx: Tx, rows: list[Row]) -> None:
        for row in rows:
            key = {"account": row["account_id"], "source": row["source"]}
            tx.run("source_drop", before=self._now() - KEPT, **key)

    # -- one look

    async def _tend(self, wanted: _Wanted) -> None:
        row = await self._store.write(lambda tx: self._take(tx, wanted))
        if row is None:
            return  # another process looks
        if wanted.account.status != "ok":
            refused = NeedsConnection(wanted.account.connector, "", "The service refused it.")
            await self._ended(wanted, row, refused)
            return
        seen = loads(row["seen"]) if row["seen"] else None
        try:
            async with asyncio.timeout(PATIENCE):
                found, every = await self._connectors.look(wanted.account, wanted.source, seen)
            fired = await self._store.write(lambda tx: self._fire(tx, wanted, row, found, every))
        except Exception as error:  # noqa: BLE001  # broad: one account must not stop the others
            await self._ended(wanted, row, error)
            return
        if fired:
            self._on_event()

    def _take(self, tx: Tx, wanted: _Wanted) -> Row | None:
        now, key = self._now(), {"account": wanted.account.id, "source": wanted.source}
        tx.run("source_begin", tenant=self._tenant, now=now, **key)
        return tx.one("source_take", until=now + LEASE, now=now, **key)

    def _keep(self, tx: Tx, row: Row, **new: Any) -> bool:
        """Write how it stands; False: it took too long, or the account is gone."""
        values: Mapping[str, Any] = {"seen": row["seen"], "failures": 0, "told": 0, **new}
        key = {"account": row["account_id"], "source": row["source"], "until": row["next_at"]}
        return bool(tx.run("source_keep", **key, **values))

    def _fire(self, tx: Tx, wanted: _Wanted, row: Row, found: Found, every: float) -> int:
        """Fire what is new, with how far it was looked at; return how much it was."""
        now, account = self._now(), wanted.account
        if not self._keep(tx, row, seen=dumps(found.seen), next=now + every):
            return 0
        fired = 0
        for key, payload in found.items if row["seen"] else ():
            event = named.fire_event(
                tx,
                self._tenant,
                wanted.event,
                dumps({name: _cut(value) for name, value in payload.items()}),
                f"{account.id}:{key}",
                now,
                source=f"connector:{account.connector}",
                taint=f"{account.connector}:event",
                owner=account.owner,
            )
            fired += event is not None
        return fired

    async def _ended(self, wanted: _Wanted, row: Row, error: Exception) -> None:
        """Write that a look failed, and tell the owner when it is theirs to mend."""
        now, failures = self._now(), row["failures"] + 1
        refused = isinstance(error, NeedsConnection)
        again = refused and wanted.account.status == "ok"  # it was connected since it was told
        telling = again or (not row["told"] and (refused or failures >= TELLING))
        pause = min(LONGEST, PAUSE * 2 ** min(failures - 1, 10))
        pause = 0.0 if refused else max(pause, min(ASKED, getattr(error, "retry_after", 0.0)))
        _log.warning("%s of an account was not looked at: %s", wanted.event, error)

        def work(tx: Tx) -> bool:
            told = int(telling or row["told"])
            kept = self._keep(tx, row, next=now + pause, failures=failures, told=told)
            if kept and refused:
                accounts.mark(tx, wanted.account, "revoked", now)
            if kept and telling:
                self._tell(tx, wanted, error, now)
            return kept and telling

        if await self._store.write(work):
            self._on_event()

    def _tell(self, tx: Tx, wanted: _Wanted, error: Exception, now: float) -> None:
        account = wanted.account
        who = f"{account.connector} ({account.label})"
        if isinstance(error, NeedsConnection):
            title = "An account must be connected again"
            text = f"Nothing comes of {wanted.event} before: /connect {account.connector}"
        else:
            title = "An account cannot be looked at"
            why = str(error) if isinstance(error, NodError) else "An internal error, see the log."
            text = f"Nothing comes of {wanted.event} while that is so. It is tried again. {why}"
        notices.tell(
            tx,
            self._tenant,
            account.owner,
            subject=f"source:{account.id}/{mint('n')}",
            title=f"{title}: {who}",
            text=text,
            now=now,
        )


def _cut(value: Any) -> Any:
    return value[:FIELD] if isinstance(value, str) else value
