"""People: known by their platform's id, admitted once, with a role that can change."""

from __future__ import annotations

import pytest

from engine import audit, people
from engine.errors import NodError
from engine.inbox import Person
from engine.store.base import Store, Tx


def admit(tx: Tx, name: str = "Bo", **changes: str) -> Person:
    return people.add_person(
        tx, "local", "slack", "T1/U7", name=name, role="member", by="console", now=1.0, **changes
    )


async def test_nobody_is_known_before_they_are_admitted(store: Store) -> None:
    assert await store.read(lambda tx: people.person_of(tx, "local", "slack", "T1/U7")) is None


async def test_who_is_admitted_twice_stays_as_they_are(store: Store) -> None:
    first = await store.write(admit)
    second = await store.write(lambda tx: admit(tx, "Another"))
    assert first == second
    assert await store.read(lambda tx: people.listed(tx, "local")) == [first]


async def test_one_person_may_have_several_identities(store: Store) -> None:
    await store.write(lambda tx: people.seed_console(tx, "local", 1.0))
    joined = await store.write(lambda tx: admit(tx, principal=people.CONSOLE))
    assert (joined.id, joined.role) == (people.CONSOLE, "owner")


async def test_the_console_is_seeded_once_as_owner(store: Store) -> None:
    for _ in range(2):
        person = await store.write(lambda tx: people.seed_console(tx, "local", 1.0))
    assert (person.id, person.role) == ("console", "owner")
    assert len(await store.read(lambda tx: people.listed(tx, "local"))) == 1


async def test_a_changed_role_counts_at_once_and_is_audited(store: Store) -> None:
    person = await store.write(admit)
    await store.write(
        lambda tx: people.set_role(tx, "local", person.id, "operator", by="console", now=2.0)
    )
    now = await store.read(lambda tx: people.get(tx, "local", person.id))
    rows = await store.read(lambda tx: tx.all("audit_chain", chain=audit.tenant_chain("local")))
    assert now is not None
    assert now.role == "operator"
    assert [(row["kind"], row["outcome"]) for row in rows] == [
        ("admitted", "member"),
        ("role", "operator"),
    ]


@pytest.mark.parametrize(("who", "role"), [("nobody", "member"), ("", "king")])
async def test_no_such_person_or_role_is_told(sqlite_store: Store, who: str, role: str) -> None:
    with pytest.raises(NodError):
        await sqlite_store.write(
            lambda tx: people.set_role(tx, "local", who, role, by="console", now=1.0)
        )
