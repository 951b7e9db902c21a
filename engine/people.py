"""People: who is behind a platform's id, and their role. Functions of an open transaction."""

from __future__ import annotations

from engine import audit
from engine.canonical import dumps, loads
from engine.clock import mint
from engine.errors import NodError
from engine.inbox import ROLES, Person, Role
from engine.store.base import Tx

__all__ = [
    "CONSOLE",
    "add_person",
    "get",
    "join_owner",
    "listed",
    "on_platform",
    "person_of",
    "places_of",
    "seed_console",
    "seen_at",
    "set_role",
    "set_zone",
    "zone_of",
]

#: The principal at the terminal: whoever runs the process owns it.
CONSOLE = "console"


def person_of(tx: Tx, tenant: str, platform: str, external_id: str) -> Person | None:
    """Return who has this id on the platform, with the role of this moment; None: unknown."""
    row = tx.one("person_of", tenant=tenant, platform=platform, external=external_id)
    return None if row is None else Person(id=row["id"], role=row["role"], name=row["name"])


def get(tx: Tx, tenant: str, principal: str) -> Person | None:
    """Return the person of that principal id, or None."""
    row = tx.one("principal_get", tenant=tenant, id=principal)
    return None if row is None else Person(id=row["id"], role=row["role"], name=row["name"])


def listed(tx: Tx, tenant: str) -> list[Person]:
    """Return everybody, those who came first at the front."""
    rows = tx.all("principal_list", tenant=tenant)
    return [Person(id=row["id"], role=row["role"], name=row["name"]) for row in rows]


def add_person(
    tx: Tx,
    tenant: str,
    platform: str,
    external_id: str,
    *,
    name: str,
    role: Role,
    by: str,
    now: float,
    principal: str = "",
) -> Person:
    """Let somebody in and return them; one who is known already stays as they are.

    `by` is the principal who let them in, for the audit. `principal` joins an identity to a
    person who is known from another platform.
    """
    known = person_of(tx, tenant, platform, external_id)
    if known is not None:
        return known
    _check(role)
    chosen = principal or mint("u")
    tx.run("principal_add", id=chosen, tenant=tenant, name=name, role=role, now=now)
    tx.run(
        "identity_add",
        tenant=tenant,
        platform=platform,
        external=external_id,
        principal=chosen,
        now=now,
    )
    entry = audit.Entry(kind="admitted", actor=by, surface=platform, subject=chosen, outcome=role)
    audit.append(tx, tenant, audit.tenant_chain(tenant), [entry], now)
    found = person_of(tx, tenant, platform, external_id)
    assert found is not None, "a person who was just added is there"
    return found


def set_role(tx: Tx, tenant: str, principal: str, role: Role, *, by: str, now: float) -> None:
    """Change a person's role; it counts from their next press. Raises NodError when unknown."""
    _check(role)
    if not tx.run("principal_role", tenant=tenant, id=principal, role=role):
        raise NodError(f"Nobody has the id {principal}.", "See who is known with `nod whoami`.")
    entry = audit.Entry(kind="role", actor=by, subject=principal, outcome=role)
    audit.append(tx, tenant, audit.tenant_chain(tenant), [entry], now)


def seed_console(tx: Tx, tenant: str, now: float, name: str = CONSOLE) -> Person:
    """Make the person at the terminal known as owner, once; return them."""
    return add_person(
        tx,
        tenant,
        CONSOLE,
        CONSOLE,
        name=name,
        role="owner",
        by=CONSOLE,
        now=now,
        principal=CONSOLE,
    )


def join_owner(
    tx: Tx, tenant: str, platform: str, external_id: str, *, name: str, now: float
) -> Person:
    """Make whoever has this id the owner: the identity joins the principal of the console.

    The console knows the owner by no name: they are called from now on as where they pair first.
    """
    known = person_of(tx, tenant, platform, external_id)
    tx.run("principal_named", tenant=tenant, id=CONSOLE, nameless=CONSOLE, name=name or CONSOLE)
    if known is None:
        return add_person(
            tx,
            tenant,
            platform,
            external_id,
            name=name,
            role="owner",
            by=CONSOLE,
            now=now,
            principal=CONSOLE,
        )
    tx.run(
        "identity_join",
        tenant=tenant,
        platform=platform,
        external=external_id,
        principal=CONSOLE,
    )
    entry = audit.Entry(
        kind="admitted", actor=CONSOLE, surface=platform, subject=CONSOLE, outcome="owner"
    )
    audit.append(tx, tenant, audit.tenant_chain(tenant), [entry], now)
    found = person_of(tx, tenant, platform, external_id)
    assert found is not None, "a person who was just joined is there"
    return found


def on_platform(tx: Tx, tenant: str, platform: str, principal: str = CONSOLE) -> bool:
    """Say whether the person is known on the platform."""
    row = tx.one("identities_on", tenant=tenant, platform=platform, principal=principal)
    return row is not None and row["n"] > 0


def seen_at(tx: Tx, tenant: str, platform: str, external_id: str, place: str, now: float) -> None:
    """Remember the thread_target in which a person speaks to Nod alone; written once a day."""
    tx.run(
        "identity_dm",
        tenant=tenant,
        platform=platform,
        external=external_id,
        dm=place,
        now=now,
        before=now - 24 * 60 * 60.0,
    )


def places_of(tx: Tx, tenant: str, principal: str) -> list[str]:
    """Return the thread_targets where the person reads private messages, the latest first."""
    return [row["dm"] for row in tx.all("person_dms", tenant=tenant, principal=principal)]


def _check(role: Role) -> None:
    if role not in ROLES:
        raise NodError(f"There is no role '{role}'.", f"Choose one of: {', '.join(ROLES)}.")


def zone_of(tx: Tx, tenant: str, principal: str) -> str:
    """Return the time zone the person said is theirs; empty: none was said."""
    row = tx.one("setting_get", tenant=tenant, name=f"zone:{principal}")
    return "" if row is None else str(loads(row["value"]))


def set_zone(tx: Tx, tenant: str, principal: str, zone: str, now: float) -> None:
    """Keep the person's time zone; that there is one of this name is for the caller to check."""
    tx.run("setting_put", tenant=tenant, name=f"zone:{principal}", value=dumps(zone), now=now)
