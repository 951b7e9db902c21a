"""What opens an account: kept in the vault, renewed once for everybody, told as headers.

A refresh token may be good for one use only. So one process at a time renews an account, under a
lease in the store, and whoever waited takes what it brought; what came back is in the vault before
anybody uses it, also when the call that asked was stopped meanwhile. The one gap is a crash between
the service's answer and the vault: then the person connects anew.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from connectors import accounts
from connectors.accounts import Account
from connectors.oauth import Client, OAuthError, Token, Vendor
from engine.clock import Now, mint
from engine.errors import NeedsConnection, NodError, ToolError

if TYPE_CHECKING:
    from connectors.base import Auth, OAuth
    from connectors.secrets import Secrets
    from engine.store.base import Store

__all__ = ["Credentials", "held_values", "secret_name"]

#: Seconds before its end at which a token is renewed.
MARGIN = 30.0
#: Seconds one process may take to renew; a token endpoint has 20 of them.
LEASE = 60.0
#: Seconds between two looks at what another process is renewing.
LOOK = 0.1

#: Seconds after which what opens no account is dropped; until then it may be under way.
ORPHAN = 3600.0

#: Where the vault keeps what opens an account.
_PREFIX = "connection."

_log = logging.getLogger(__name__)


def secret_name(account_id: str) -> str:
    """Return the name under which the vault keeps what opens the account."""
    return f"{_PREFIX}{account_id}"


def held_values(name: str, value: str) -> list[str]:
    """Return the secret words inside one entry of the vault, for the list of what no log shows."""
    if not name.startswith(_PREFIX):
        return [value]
    held = json.loads(value)
    return [each for key, each in held.items() if key != "kind" and isinstance(each, str) and each]


class Credentials:
    """Opens accounts. Every method may raise VaultError.

    Args:
        ways: how a connector of this name is opened; raises NodError for a name nobody knows.
        hide: learns values that no log may show.
    """

    def __init__(
        self,
        *,
        store: Store,
        secrets: Secrets,
        vendor: Vendor,
        ways: Callable[[str], Sequence[Auth]],
        now: Now,
        hide: Callable[[Iterable[str]], None] = lambda values: None,
    ) -> None:
        self._store = store
        self._secrets = secrets
        self._vendor = vendor
        self._ways = ways
        self._now = now
        self._hide = hide
        self._holder = mint("c")
        self._renewing: dict[str, asyncio.Task[Mapping[str, Any]]] = {}

    async def aclose(self) -> None:
        """Let renewals under way end, so that what they bring is kept."""
        await asyncio.gather(*self._renewing.values(), return_exceptions=True)

    # -- for connectors

    async def headers(self, account: Account) -> dict[str, str]:
        """Return the headers that open the account, renewed first when they are about to end.

        Raises NeedsConnection: its owner must connect it anew. ToolError: not now.
        """
        held = await self.secret(account)
        if held["kind"] == "oauth" and _ends(held, self._now() + MARGIN) and held.get("refresh"):
            held = await self._renewed(account, held)
        return self._headers(account, held)

    async def renewed(self, account: Account, spent: Mapping[str, str]) -> dict[str, str]:
        """Return other headers than `spent`, which the service refused.

        Raises NeedsConnection when there are none: the account is then marked as revoked.
        """
        held = await self.secret(account)
        headers = self._headers(account, held)
        if headers == dict(spent):
            if held["kind"] != "oauth" or not held.get("refresh"):
                raise await self._refused(account, "The service does not take it any more.")
            headers = self._headers(account, await self._renewed(account, held))
        return headers

    async def secret(self, account: Account) -> Mapping[str, Any]:
        """Return what opens the account, with its `kind`: oauth or key.

        Raises NeedsConnection when there is nothing.
        """
        held = await self._read(account)
        if held is None:
            raise _needs(account, f"{_named(account)} is not connected any more.")
        return held

    # -- for connecting

    async def keep(self, account_id: str, held: Token | Mapping[str, str]) -> None:
        """Keep what opens an account: a token, or the fields of a key."""
        entry = _entry(held) if isinstance(held, Token) else {"kind": "key", **held}
        await self._write(account_id, entry)

    async def forget(self, account: Account) -> bool:
        """Drop what opens the account, and say whether its service was told to end it, too."""
        held = await self._read(account)
        told = False
        if held is not None and held["kind"] == "oauth":
            try:
                auth = self._oauth(account)
                client = await self.client(auth)
                told = await self._vendor.revoke(auth, client, _token(held))
            except NodError as error:
                _log.info("%s could not be told of an end: %s", account.connector, error)
        await self.drop(account)
        return told

    async def sweep(self) -> int:
        """Drop what opens no account, which only a crash leaves behind; return how many."""
        before, dropped = self._now() - ORPHAN, 0
        names = await asyncio.to_thread(self._secrets.names)
        for name in (each for each in names if each.startswith(_PREFIX)):
            id_ = name.removeprefix(_PREFIX)
            text = await asyncio.to_thread(self._secrets.get, name)
            known = await self._store.read(partial(accounts.get, account_id=id_))
            if known is None and text and json.loads(text).get("at", 0.0) < before:
                await asyncio.to_thread(self._secrets.delete, name)
                dropped += 1
        return dropped

    async def drop(self, account: Account) -> None:
        """Forget what opens an account, here only."""
        await asyncio.to_thread(self._secrets.delete, secret_name(account.id))

    async def move(self, draft: Account, account: Account) -> None:
        """Let what opens `draft` open `account`."""
        held = await self.secret(draft)
        await self._write(account.id, held)
        await self.drop(draft)

    async def client(self, auth: OAuth) -> Client:
        """Return who Nod is to the service. Raises NodError: it was not set up."""
        found = await asyncio.to_thread(self._secrets.get, f"{auth.client}_CLIENT_ID")
        if not found:
            also = "" if auth.client_auth == "none" else f", and {auth.client}_CLIENT_SECRET"
            raise NodError(
                "Nod is not registered with this service yet.",
                "Make an OAuth client there (docs/operations.md), then: "
                f"nod secrets set {auth.client}_CLIENT_ID{also}",
            )
        secret = ""
        if auth.client_auth != "none":
            secret = await asyncio.to_thread(self._secrets.get, f"{auth.client}_CLIENT_SECRET")
        return Client(id=found, secret=secret)

    # -- ways to open

    def _headers(self, account: Account, held: Mapping[str, Any]) -> dict[str, str]:
        from connectors.base import Key

        if held["kind"] == "oauth":
            # RFC 6750: the scheme is Bearer, however the service spells the token's type.
            return {"Authorization": f"Bearer {held['access']}"}
        keys = [each for each in self._ways(account.connector) if isinstance(each, Key)]
        return dict(keys[0].headers(held)) if keys else {}

    def _oauth(self, account: Account) -> OAuth:
        from connectors.base import OAuth

        for each in self._ways(account.connector):
            if isinstance(each, OAuth):
                return each
        raise ToolError(f"{account.connector} is not connected by a page of its own any more.")

    # -- renewal

    async def _renewed(self, account: Account, spent: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what replaced `spent`; one renewal at a time, which no stop cuts short."""
        task = self._renewing.get(account.id)
        if task is None:
            task = asyncio.create_task(self._renew(account, spent), name=f"renew {account.id}")
            self._renewing[account.id] = task
            task.add_done_callback(lambda done: self._over(account.id, done))
        return await asyncio.shield(task)

    def _over(self, account_id: str, task: asyncio.Task[Mapping[str, Any]]) -> None:
        self._renewing.pop(account_id, None)
        if not task.cancelled() and task.exception() is not None:
            _log.info("an account was not renewed: %s", type(task.exception()).__name__)

    async def _renew(self, account: Account, spent: Mapping[str, Any]) -> Mapping[str, Any]:
        name, until = f"renew:{account.id}", self._now() + 2 * LEASE
        while not await self._lease(account.tenant, name):
            if self._now() > until:
                raise ToolError(f"{_named(account)} could not be renewed in time.", "Try again.")
            await asyncio.sleep(LOOK)
        try:
            held = await self.secret(account)
            if held["access"] != spent["access"]:
                return held  # another process was quicker
            return await self._ask(account, held)
        finally:
            await self._store.write(
                lambda tx: tx.run(
                    "lease_give_back", tenant=account.tenant, name=name, holder=self._holder
                )
            )

    async def _lease(self, tenant: str, name: str) -> bool:
        now = self._now()
        return bool(
            await self._store.write(
                lambda tx: tx.run(
                    "lease_renew",
                    tenant=tenant,
                    name=name,
                    holder=self._holder,
                    until=now + LEASE,
                    now=now,
                )
            )
        )

    async def _ask(self, account: Account, held: Mapping[str, Any]) -> Mapping[str, Any]:
        auth = self._oauth(account)
        try:
            client = await self.client(auth)
            token = await self._vendor.refresh(auth, client, _token(held))
        except OAuthError as error:
            if not error.gone:
                raise ToolError(error.what, error.fix) from None
            now_held = await self.secret(account)
            if now_held["access"] != held["access"]:  # a process that lost its lease was quicker
                return now_held
            raise await self._refused(account, "The service does not renew it.") from None
        except NodError as error:
            raise ToolError(error.what, error.fix) from None
        entry = _entry(token)
        await self._write(account.id, entry)
        if await self._store.read(lambda tx: accounts.get(tx, account.id)) is None:
            await self.forget(account)  # it was disconnected meanwhile
            raise _needs(account, f"{_named(account)} was disconnected.")
        return entry

    async def _refused(self, account: Account, why: str) -> NeedsConnection:
        now = self._now()
        await self._store.write(lambda tx: accounts.mark(tx, account, "revoked", now))
        return _needs(account, f"{_named(account)} must be connected again. {why}")

    # -- the vault

    async def _read(self, account: Account) -> Mapping[str, Any] | None:
        text = await asyncio.to_thread(self._secrets.get, secret_name(account.id))
        return dict(json.loads(text)) if text else None

    async def _write(self, account_id: str, entry: Mapping[str, Any]) -> None:
        name, text = secret_name(account_id), json.dumps({**entry, "at": self._now()})
        self._hide(held_values(name, text))
        await asyncio.to_thread(self._secrets.set, name, text)


def _ends(held: Mapping[str, Any], moment: float) -> bool:
    return held.get("expires_at") is not None and held["expires_at"] <= moment


def _entry(token: Token) -> dict[str, Any]:
    return {
        "kind": "oauth",
        "access": token.access,
        "refresh": token.refresh,
        "expires_at": token.expires_at,
        "token_type": token.token_type,
        "scopes": list(token.scopes),
        "extra": dict(token.extra),
    }


def _token(held: Mapping[str, Any]) -> Token:
    return Token(
        access=held["access"],
        refresh=held["refresh"],
        expires_at=held["expires_at"],
        token_type=held["token_type"],
        scopes=tuple(held["scopes"]),
        extra=held["extra"],
    )


def _named(account: Account) -> str:
    return f"{account.connector} ({account.label})"


def _needs(account: Account, why: str) -> NeedsConnection:
    return NeedsConnection(account.connector, account.label, why, account.owner)
