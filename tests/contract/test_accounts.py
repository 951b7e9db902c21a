"""Whose accounts a session may use, and where a connector is off, on both stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from connectors import accounts, gates
from connectors.accounts import Account
from engine import sessions
from engine.errors import NodError
from engine.permissions import rules
from engine.sessions import Session
from engine.store.base import Store, Tx
from engine.tools.base import Risk

TENANT, NOW = "local", 1_000_000.0


async def opened(
    store: Store,
    data: Path,
    *,
    owner: str = "ana",
    home: str = "slack:T1/C1/17.1",
    persona: str = "cowork",
) -> Session:
    def work(tx: Tx) -> Session:
        made = sessions.open_session(
            tx,
            tenant=TENANT,
            home=home,
            owner=owner,
            origin="person",
            persona=persona,
            model="practice:rules",
            mode="interactive",
            data=data,
            now=NOW,
        )
        return sessions.get(tx, made)

    return await store.write(work)


async def connected(store: Store, label: str, owner: str = "ana", name: str = "github") -> Account:
    return await store.write(
        lambda tx: accounts.add(tx, TENANT, name, label, owner, scopes=["repo", "user"], now=NOW)
    )


async def labels(store: Store, session: Session, connector: str = "") -> list[str]:
    found = await store.read(lambda tx: accounts.usable(tx, session, connector))
    return [each.label for each in found]


async def test_a_session_uses_its_owners_accounts_and_shared_ones(
    store: Store, tmp_path: Path
) -> None:
    session = await opened(store, tmp_path)
    await connected(store, "ana-work")
    bos = await connected(store, "bo-team", "bo")
    assert await labels(store, session) == ["ana-work"]
    await store.write(lambda tx: accounts.share(tx, bos, True, by="bo", now=NOW))
    assert await labels(store, session) == ["ana-work", "bo-team"]
    assert await labels(store, session, "google_drive") == []
    shared = await store.read(lambda tx: accounts.get(tx, bos.id))
    assert shared is not None
    await store.write(lambda tx: accounts.share(tx, shared, False, by="bo", now=NOW))
    assert await labels(store, session) == ["ana-work"]


async def test_an_account_that_is_connected_again_stays_the_same_one(store: Store) -> None:
    first = await connected(store, "ana")
    await store.write(lambda tx: accounts.mark(tx, first, "revoked", NOW))
    again = await connected(store, "ana")
    assert again == first
    assert again.status == "ok"
    assert again.scopes == ("repo", "user")


async def test_a_revoked_account_comes_last_and_still_counts(store: Store, tmp_path: Path) -> None:
    session = await opened(store, tmp_path)
    first = await connected(store, "first")
    await connected(store, "second")
    await store.write(lambda tx: accounts.mark(tx, first, "revoked", NOW))
    assert await labels(store, session) == ["second", "first"]


@pytest.mark.parametrize(
    ("scope", "off"),
    [
        pytest.param("persona:cowork", True, id="its-persona"),
        pytest.param("persona:coder", False, id="another-persona"),
        pytest.param("channel:slack:T1/C1", True, id="its-channel"),
        pytest.param("channel:slack:T1/C1/17.1", True, id="its-thread"),
        pytest.param("channel:slack:T1", True, id="its-workspace"),
        pytest.param("channel:slack:T1/C", False, id="a-channel-whose-name-begins-alike"),
        pytest.param("channel:slack:T1/C1/17.1/9", False, id="a-narrower-place"),
        pytest.param("person:ana", True, id="its-owner"),
        pytest.param("person:bo", False, id="another-person"),
    ],
)
async def test_where_a_gate_holds(store: Store, tmp_path: Path, scope: str, off: bool) -> None:
    session = await opened(store, tmp_path)
    await connected(store, "ana")
    await connected(store, "ana@x.example", name="gmail")

    def shut(tx: Tx) -> bool:
        return gates.shut(tx, TENANT, "github", scope, by="ana", now=NOW)

    assert await store.write(shut)
    assert not await store.write(shut)
    assert ("github" in await store.read(lambda tx: gates.closed(tx, session))) is off
    assert await labels(store, session) == (["ana@x.example"] if off else ["ana", "ana@x.example"])
    assert await store.read(lambda tx: gates.listed(tx, TENANT)) == [("github", scope)]
    back = await store.write(
        lambda tx: gates.open_again(tx, TENANT, "github", scope, by="ana", now=NOW)
    )
    assert back
    assert await labels(store, session, "github") == ["ana"]


def rule(tx: Tx, principal: str, target: str, tool: str = "github_comment") -> None:
    rules.make_rule(
        tx,
        tenant=TENANT,
        session=None,
        principal=principal,
        tool=tool,
        risk=Risk.EXTERNAL,
        target=[target],
        uses=9,
        expires_at=NOW + 9,
        taint=(),
        made_under=(),
        now=NOW,
    )


async def standing(store: Store) -> list[tuple[str, str]]:
    found = await store.read(lambda tx: rules.list_rules(tx, TENANT))
    return [(each.principal, each.rule.target[0]) for each in found if each.revoked_at is None]


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
async def test_with_an_account_go_the_rules_on_its_service(store: Store, shared: bool) -> None:
    made = await connected(store, "ana")

    def work(tx: Tx) -> None:
        rule(tx, "ana", "github:nod/nod#1")
        rule(tx, "ana", "slack:T1/C1")
        rule(tx, "bo", "github:nod/nod#1")
        accounts.share(tx, made, shared, by="ana", now=NOW)

    await store.write(work)

    def end(tx: Tx) -> int:
        found = accounts.find(tx, TENANT, "ana", "github")
        return accounts.disconnect(tx, found, by="ana", now=NOW)

    assert await store.write(end) == (2 if shared else 1)
    kept = [("ana", "slack:T1/C1")] + ([] if shared else [("bo", "github:nod/nod#1")])
    assert sorted(await standing(store)) == kept
    assert await store.read(lambda tx: accounts.listed(tx, TENANT)) == []


async def test_disconnecting_slack_leaves_the_rules_on_its_threads(store: Store) -> None:
    """A thread's target begins as one of the connector does; the rule is another tool's."""
    made = await connected(store, "Acme", name="slack")
    slack = {"slack_send": "slack:C1/17.1", "send_message": "slack:T1/C1/17.1"}

    def work(tx: Tx) -> int:
        for tool, target in slack.items():
            rule(tx, "ana", target, tool)
        return accounts.disconnect(tx, made, by="ana", now=NOW)

    assert await store.write(work) == 1
    assert await standing(store) == [("ana", "slack:T1/C1/17.1")]


@pytest.mark.parametrize("act", ["share", "disconnect"])
async def test_nobody_shares_or_disconnects_what_is_anothers(store: Store, act: str) -> None:
    made = await connected(store, "bo-team", "bo")
    more: dict[str, Any] = {"shared": True} if act == "share" else {}
    with pytest.raises(NodError, match="somebody else"):
        await store.write(lambda tx: getattr(accounts, act)(tx, made, **more, by="ana", now=NOW))


async def test_which_of_several_accounts_is_meant_must_be_said(store: Store) -> None:
    with pytest.raises(NodError, match="not connected github"):
        await store.read(lambda tx: accounts.find(tx, TENANT, "ana", "github"))
    await connected(store, "work")
    await connected(store, "home")
    with pytest.raises(
        NodError, match=r"several accounts.*work, home|several accounts.*home, work"
    ):
        await store.read(lambda tx: accounts.find(tx, TENANT, "ana", "github"))
    found = await store.read(lambda tx: accounts.find(tx, TENANT, "ana", "github", "home"))
    assert found.label == "home"
