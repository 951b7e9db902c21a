"""Accounts that people connected: whose they are and who may use them. Functions of a transaction.

What opens an account lies in the vault, see `credentials.py`; no row holds a secret.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from connectors import gates
from engine import audit
from engine.clock import mint
from engine.errors import NodError
from engine.permissions import rules
from engine.sessions import Session
from engine.store.base import Row, Tx

__all__ = [
    "Account",
    "add",
    "disconnect",
    "find",
    "get",
    "listed",
    "mark",
    "named",
    "reachable",
    "share",
    "usable",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One account of a service, as a person connected it."""

    id: str
    tenant: str
    connector: str
    #: What people and tools name it by: a login, an address, a workspace.
    label: str
    #: Principal whose it is.
    owner: str
    #: Everybody's sessions may use it.
    shared: bool = False
    scopes: tuple[str, ...] = ()
    #: ok, or revoked: the service refused it and it is to be connected again.
    status: str = "ok"


def add(
    tx: Tx,
    tenant: str,
    connector: str,
    label: str,
    owner: str,
    *,
    scopes: Iterable[str] = (),
    now: float,
    id: str = "",
) -> Account:
    """Keep an account and return it; one that is connected again stays the same one, and is ok.

    `id` is used when it is a new one. The caller keeps its secret under the id of what is
    returned, before or after: an account without a secret asks to be connected.
    """
    tx.run(
        "connection_put",
        id=id or mint("k"),
        tenant=tenant,
        connector=connector,
        account=label,
        principal=owner,
        scopes=" ".join(scopes),
        now=now,
    )
    found = named(tx, tenant, connector, label, owner)
    assert found is not None, "an account that was just written is there"
    _noted(tx, found, "connected", owner, now)
    return found


def get(tx: Tx, account_id: str) -> Account | None:
    """Return the account, or None when it is not there any more."""
    row = tx.one("connection_get", id=account_id)
    return None if row is None else _account(row)


def named(tx: Tx, tenant: str, connector: str, label: str, owner: str) -> Account | None:
    """Return the person's account of this label, or None."""
    row = tx.one(
        "connection_named", tenant=tenant, connector=connector, account=label, principal=owner
    )
    return None if row is None else _account(row)


def listed(tx: Tx, tenant: str) -> list[Account]:
    """Return all accounts, sorted by connector."""
    return [_account(row) for row in tx.all("connections_listed", tenant=tenant)]


def usable(tx: Tx, session: Session, connector: str = "") -> list[Account]:
    """Return the accounts the session may use: its owner's and shared ones, those that work first.

    Without those of connectors that are off there. A revoked one counts: using it asks its owner
    to connect it again.
    """
    shut = gates.closed(tx, session)
    found = reachable(tx, session)
    return [
        each for each in found if each.connector not in shut and connector in ("", each.connector)
    ]


def reachable(tx: Tx, session: Session) -> list[Account]:
    """Return the accounts of the session's owner and shared ones, also where they are off."""
    rows = tx.all("connections_usable", tenant=session.tenant, principal=session.owner)
    return [_account(row) for row in rows]


def find(tx: Tx, tenant: str, owner: str, connector: str, label: str = "") -> Account:
    """Return the one account of the person that is meant; raises NodError when it is not clear."""
    own = [
        each
        for each in listed(tx, tenant)
        if each.owner == owner and each.connector == connector and label in ("", each.label)
    ]
    if not own:
        what = f"{connector} ({label})" if label else connector
        raise NodError(f"You have not connected {what}.", "See /connect.")
    if len(own) > 1:
        labels = ", ".join(each.label for each in own)
        raise NodError(f"You have several accounts of {connector}.", f"Name one of: {labels}.")
    return own[0]


def mark(tx: Tx, account: Account, status: str, now: float) -> None:
    """Note that the service takes the account ('ok'), or refused it ('revoked')."""
    tx.run("connection_status", id=account.id, status=status, now=now)


def share(tx: Tx, account: Account, shared: bool, *, by: str, now: float) -> None:
    """Let everybody's sessions use the account, or only its owner's. Raises NodError: not `by`'s.

    What others were allowed through it ends with it.
    """
    _may(account, by)
    tx.run("connection_share", id=account.id, shared=int(shared))
    if account.shared and not shared:
        _end_rules(tx, account, [], now)
    _noted(tx, account, "shared" if shared else "unshared", by, now)


def disconnect(tx: Tx, account: Account, *, by: str, now: float) -> int:
    """Drop the account with the standing rules on its service; return how many rules ended.

    The caller forgets its secret once this is committed. Raises NodError: not `by`'s.
    """
    _may(account, by)
    tx.run("connection_drop", id=account.id)
    tx.run("sources_forget", account=account.id)
    ended = _end_rules(tx, account, [account.owner], now)
    _noted(tx, account, "disconnected", by, now)
    return ended


def _end_rules(tx: Tx, account: Account, people: Iterable[str], now: float) -> int:
    """End the rules on the service: those of `people`, and of everybody when it was shared."""
    whose = frozenset(people)
    return sum(
        rules.revoke(tx, account.tenant, each.rule.id, now)
        for each in rules.list_rules(tx, account.tenant)
        if each.revoked_at is None
        and (each.principal in whose or (account.shared and each.principal != account.owner))
        # Threads of a surface have targets of its name, too: slack:T1/C1 is one of send_message.
        and each.rule.tool.startswith(f"{account.connector}_")
        and any(target.startswith(f"{account.connector}:") for target in each.rule.target)
    )


def _may(account: Account, by: str) -> None:
    if account.owner != by:
        raise NodError("This account was connected by somebody else.", "Ask them.")


def _noted(tx: Tx, account: Account, kind: str, by: str, now: float) -> None:
    entry = audit.Entry(kind=kind, actor=by, subject=account.id, outcome=account.connector)
    audit.append(tx, account.tenant, audit.tenant_chain(account.tenant), [entry], now)


def _account(row: Row) -> Account:
    return Account(
        id=row["id"],
        tenant=row["tenant_id"],
        connector=row["connector"],
        label=row["account"],
        owner=row["principal_id"],
        shared=bool(row["shared"]),
        scopes=tuple(row["scopes"].split()),
        status=row["status"],
    )
