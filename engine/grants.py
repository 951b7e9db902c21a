"""Folders a person gave to something that opens sessions, such as a schedule. Functions of a tx."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine import audit
from engine.canonical import dumps, loads
from engine.clock import mint
from engine.store.base import Tx
from engine.tools.base import Root

__all__ = ["give_folders", "given_folders", "of_schedule", "revoke"]


def of_schedule(schedule: str) -> str:
    """Return the name under which a schedule's folders are kept."""
    return f"schedule:{schedule}"


def give_folders(
    tx: Tx, tenant: str, thing: str, roots: Sequence[Root], *, by: str, now: float
) -> None:
    """Let every session that `thing` opens from now on into these folders."""
    for root in roots:
        body = dumps({"path": str(root.path), "writable": root.writable})
        tx.run("grant_add", id=mint("g"), tenant=tenant, by=by, thing=thing, body=body, now=now)
    if roots:
        entry = audit.Entry(kind="granted", actor=by, subject=thing, outcome=str(len(roots)))
        audit.append(tx, tenant, audit.tenant_chain(tenant), [entry], now)


def given_folders(tx: Tx, tenant: str, thing: str) -> list[Root]:
    """Return the folders `thing` was given and that were not taken back."""
    rows = [loads(row["body"]) for row in tx.all("grants_of", tenant=tenant, thing=thing)]
    return [Root(path=Path(row["path"]), writable=row["writable"]) for row in rows]


def revoke(tx: Tx, tenant: str, thing: str, now: float) -> None:
    """Take all folders back; sessions that are open already keep theirs."""
    tx.run("grants_revoke", tenant=tenant, thing=thing, now=now)
