"""Where a connector is switched off: for a persona, in a channel, for a person. Functions of a tx.

Off means off in both directions: a session there is offered none of its tools, and what it brings
from outside is not handed over there.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine import audit
from engine.errors import NodError
from engine.sessions import Session
from engine.store.base import Tx

__all__ = ["closed", "holds", "listed", "open_again", "scope_of", "shut"]

#: The kinds of scope a gate has.
KINDS = ("persona", "channel", "person")


def scope_of(kind: str, name: str) -> str:
    """Return the scope of a gate: a persona's name, a thread_target or its beginning, a principal.

    Raises NodError for any other kind, or no name.
    """
    if kind not in KINDS or not name:
        raise NodError(f"A connector is not switched by '{kind}'.", f"Use: {', '.join(KINDS)}.")
    return f"{kind}:{name}"


def shut(tx: Tx, tenant: str, connector: str, scope: str, *, by: str, now: float) -> bool:
    """Switch the connector off there; False: it is off already."""
    done = tx.run("gate_shut", tenant=tenant, connector=connector, scope=scope, by=by, now=now) == 1
    if done:
        _noted(tx, tenant, connector, scope, by, "off", now)
    return done


def open_again(tx: Tx, tenant: str, connector: str, scope: str, *, by: str, now: float) -> bool:
    """Switch the connector on again there; False: it is not off there."""
    done = tx.run("gate_open", tenant=tenant, connector=connector, scope=scope) == 1
    if done:
        _noted(tx, tenant, connector, scope, by, "on", now)
    return done


def listed(tx: Tx, tenant: str) -> list[tuple[str, str]]:
    """Return (connector, scope) of everything that is off."""
    return [(row["connector"], row["scope"]) for row in tx.all("gates_listed", tenant=tenant)]


def closed(tx: Tx, session: Session) -> frozenset[str]:
    """Return the names of the connectors that are off in the session."""
    found = listed(tx, session.tenant)
    where = (session.home, session.persona, session.owner)
    return frozenset(name for name, scope in found if holds(scope, *where))


def holds(scope: str, home: str, persona: str, owner: str) -> bool:
    """Say whether a gate of this scope is one of a session that lives at `home`."""
    kind, _, name = scope.partition(":")
    if kind == "channel":
        return any(place == name for place in _around(home))
    return name == {"persona": persona, "person": owner}.get(kind)


def _around(target: str) -> Iterable[str]:
    """Yield the thread_target and every wider place it lies in."""
    while target:
        yield target
        target = target.rpartition("/")[0]


def _noted(
    tx: Tx, tenant: str, connector: str, scope: str, by: str, outcome: str, now: float
) -> None:
    entry = audit.Entry(kind="gate", actor=by, subject=f"{connector}@{scope}", outcome=outcome)
    audit.append(tx, tenant, audit.tenant_chain(tenant), [entry], now)
