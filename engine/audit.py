"""The audit: a hash-chained row per step from request to decision to outcome; ids and hashes only.

Each session is a chain of its own; when it is deleted, its head is written on a row of the tenant's
chain, so that what stays of it cannot be cut off or dropped unnoticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.canonical import digest, dumps
from engine.store.base import Row, Tx

__all__ = ["Entry", "append", "tenant_chain", "verify"]

GENESIS = "0" * 64

_FIELDS = (
    "tenant_id",
    "chain",
    "n",
    "at",
    "kind",
    "actor",
    "surface",
    "rule",
    "subject",
    "arguments_hash",
    "outcome",
    "previous",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One step to be audited."""

    #: proposed, judged, asked, voted, decided, started, looked_up, finished, stopped, deleted, …
    kind: str
    #: A principal's id, 'nod' or 'clock'.
    actor: str
    surface: str = ""
    #: The policy step or standing rule that decided.
    rule: str = ""
    #: The call's or prompt's id.
    subject: str = ""
    arguments_hash: str = ""
    outcome: str = ""


def tenant_chain(tenant: str) -> str:
    """Return the name of the chain that holds a tenant's own rows."""
    return f"tenant:{tenant}"


def append(tx: Tx, tenant: str, chain: str, entries: Sequence[Entry], now: float) -> None:
    """Add `entries` to `chain`.

    For a session's chain the caller's transaction must hold the session's row; the tenant's own
    chain has no such row, and is locked here until the transaction ends.
    """
    if not entries:
        return
    if chain == tenant_chain(tenant):
        tx.one("audit_lock", chain=chain)
    head = tx.one("audit_head", chain=chain)
    n, previous = (head["n"], head["hash"]) if head is not None else (0, GENESIS)
    rows = []
    for entry in entries:
        n += 1
        row = {
            "tenant": tenant,
            "chain": chain,
            "n": n,
            "at": now,
            "kind": entry.kind,
            "actor": entry.actor,
            "surface": entry.surface,
            "rule": entry.rule,
            "subject": entry.subject,
            "arguments_hash": entry.arguments_hash,
            "outcome": entry.outcome,
            "previous": previous,
        }
        previous = digest(dumps(list(row.values())))
        rows.append({**row, "hash": previous})
    tx.many("audit_add", rows)


def verify(tx: Tx, tenant: str) -> list[str]:
    """Return one sentence for every fault found in the tenant's chains; empty: all is well."""
    faults = []
    heads: dict[str, tuple[int, str]] = {}
    for chain in [row["chain"] for row in tx.all("audit_chains", tenant=tenant)]:
        rows = tx.all("audit_chain", chain=chain)
        faults += _verify_chain(chain, rows)
        heads[chain] = (rows[-1]["n"], rows[-1]["hash"])
    for row in tx.all("audit_chain", chain=tenant_chain(tenant)):
        if row["kind"] == "deleted" and row["outcome"]:
            chain = row["subject"]
            n, head = str(row["outcome"]).split(":")
            if chain not in heads or heads[chain][0] < int(n):
                faults.append(f"The chain of {chain} is cut off before its row {n}.")
            elif not _has(tx, chain, int(n), head):
                faults.append(f"Row {n} of {chain} is not the one its end was recorded with.")
    return faults


def _has(tx: Tx, chain: str, n: int, head: str) -> bool:
    return any(row["n"] == n and row["hash"] == head for row in tx.all("audit_chain", chain=chain))


def _verify_chain(chain: str, rows: Sequence[Row]) -> list[str]:
    previous = GENESIS
    for place, row in enumerate(rows, start=1):
        if row["n"] != place:
            return [f"Row {place} of {chain} is missing."]
        if row["previous"] != previous or _hash(row) != row["hash"]:
            return [f"Row {place} of {chain} was changed after it was written."]
        previous = row["hash"]
    return []


def _hash(row: Row) -> str:
    return digest(dumps([row[name] for name in _FIELDS]))
