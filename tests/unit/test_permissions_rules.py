"""Standing rules as rows, on both stores: exact, limited, revocable, used up once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from engine.errors import PromptError
from engine.permissions.base import Rule
from engine.permissions.rules import list_rules, live_rules, make_rule, revoke, take_use
from engine.store.base import Store
from engine.tools.base import Risk

NOW = 1_000.0
Made = Mapping[str, Any]


async def keep(store: Store, **changes: Any) -> Rule:
    given: dict[str, Any] = {
        "tenant": "t",
        "session": "s1",
        "principal": "ana",
        "tool": "send_message",
        "risk": Risk.EXTERNAL,
        "target": ["b", "a", "b"],
        "uses": 2,
        "expires_at": NOW + 60,
        "taint": (),
        "made_under": (),
        "now": NOW,
    }
    return await store.write(lambda tx: make_rule(tx, **{**given, **changes}))


async def live(store: Store, session: str = "s1", who: str = "ana", at: float = NOW) -> list[str]:
    rules = await store.read(lambda tx: live_rules(tx, "t", session, who, at))
    return [rule.id for rule in rules]


async def test_a_rule_pins_the_sorted_set_and_is_live_at_once(store: Store) -> None:
    rule = await keep(store)
    assert rule.target == ("a", "b")
    assert await store.read(lambda tx: live_rules(tx, "t", "s1", "ana", NOW)) == (rule,)


async def test_a_rule_belongs_to_its_session_and_its_person(store: Store) -> None:
    """P-10: what one person allowed is nobody else's right."""
    here, anywhere = await keep(store), await keep(store, session=None)
    assert await live(store) == sorted([here.id, anywhere.id])
    assert await live(store, session="s2") == [anywhere.id]
    assert await live(store, who="ben") == []


async def test_a_rule_ends_at_its_time(store: Store) -> None:
    rule = await keep(store)
    assert await live(store, at=NOW + 59) == [rule.id]
    assert await live(store, at=NOW + 60) == []


async def test_a_rule_is_used_up(store: Store) -> None:
    rule = await keep(store)
    assert await store.write(lambda tx: take_use(tx, rule.id))
    assert await store.write(lambda tx: take_use(tx, rule.id))
    assert not await store.write(lambda tx: take_use(tx, rule.id))
    assert await live(store) == []


async def test_the_last_use_is_taken_by_one_of_many(store: Store) -> None:
    rule = await keep(store, uses=1)
    taken = await asyncio.gather(
        *(store.write(lambda tx: take_use(tx, rule.id)) for _ in range(10))
    )
    assert sorted(taken) == [False] * 9 + [True]


async def test_a_use_comes_back_when_the_intent_is_not_committed(store: Store) -> None:
    rule = await keep(store, uses=1)

    def failing(tx: Any) -> None:
        assert take_use(tx, rule.id)
        raise RuntimeError("the stop mark moved")

    with pytest.raises(RuntimeError, match="stop mark"):
        await store.write(failing)
    assert await live(store) == [rule.id]


async def test_a_revoked_rule_neither_lives_nor_is_used(store: Store) -> None:
    rule = await keep(store)
    assert not await store.write(lambda tx: revoke(tx, "other", rule.id, NOW))
    assert await store.write(lambda tx: revoke(tx, "t", rule.id, NOW))
    assert not await store.write(lambda tx: revoke(tx, "t", rule.id, NOW))
    assert await live(store) == []
    assert not await store.write(lambda tx: take_use(tx, rule.id))


async def test_the_list_shows_ended_rules_too(store: Store) -> None:
    rule = await keep(store, taint=["web:x"], made_under=["web:x"])
    await store.write(lambda tx: revoke(tx, "t", rule.id, NOW + 5))
    (kept,) = await store.read(lambda tx: list_rules(tx, "t"))
    assert (kept.rule, kept.session, kept.principal, kept.uses_left) == (rule, "s1", "ana", 2)
    assert (kept.made_under, kept.expires_at) == (("web:x",), NOW + 60)
    assert (kept.created_at, kept.revoked_at) == (NOW, NOW + 5)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param(
            {"tool": "run_shell", "risk": Risk.EXEC}, "no standing rule covers it", id="A-07-shell"
        ),
        pytest.param(
            {"tool": "write_file", "risk": Risk.WRITE_LOCAL},
            "no standing rule covers it",
            id="P-08-write",
        ),
        pytest.param({"target": []}, "names no recipient", id="D-030-empty"),
        pytest.param({"target": ["a", " "]}, "names no recipient", id="D-030-blank"),
        pytest.param({"uses": 0}, "number of uses", id="no-uses"),
        pytest.param({"expires_at": NOW}, "time in the future", id="ended-already"),
        pytest.param({"taint": ["web:x"]}, "not named: web:x", id="taint-not-named"),
        pytest.param(
            {"taint": ["mail:y", "web:x"], "made_under": ["web:x"]},
            "not named: mail:y",
            id="taint-half-named",
        ),
    ],
)
async def test_a_rule_that_would_be_too_broad_is_refused(
    store: Store, changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(PromptError, match=why):
        await keep(store, **changes)
    assert await live(store) == []
