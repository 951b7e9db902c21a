"""The inbox on both stores: one row, one decision, votes, roles, deadlines, reminders."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from engine import inbox
from engine.errors import PromptError
from engine.inbox import DAY, Person, Prompt, Resolution
from engine.permissions import rules
from engine.store.base import Store

NOW = 1_000.0
OWNER = Person(id="owner", role="owner")
ANA = Person(id="ana", role="operator")
BEN = Person(id="ben", role="operator")


async def ask(store: Store, **changes: Any) -> Prompt:
    given: dict[str, Any] = {
        "id": "",
        "tenant": "local",
        "session": None,
        "kind": "approval",
        "subject": "c1/0",
        "hash": "h1",
        "payload": {"tool": "send_message", "risk": "external"},
        "approvers": {"role": "operator", "person": "mia"},
        "created_at": NOW,
        "remind_at": NOW + DAY,
        "deadline": NOW + 7 * DAY,
        **changes,
    }
    return await store.write(lambda tx: inbox.ask(tx, Prompt(**given)))


async def press(
    store: Store,
    prompt: Prompt,
    by: Person,
    answer: Mapping[str, Any] | str = "once",
    now: float = NOW + 1,
) -> Resolution:
    given = {"kind": answer} if isinstance(answer, str) else answer
    return await store.write(lambda tx: inbox.resolve(tx, prompt.id, given, by, "phone", now))


async def test_the_first_answer_decides_and_the_next_learns_who(store: Store) -> None:
    prompt = await ask(store)
    first = await press(store, prompt, ANA)
    second = await press(store, prompt, BEN, "deny")
    assert (first.status, second.status) == ("resolved", "already")
    assert second.prompt.resolved_by == "ana"
    assert second.prompt.answer == {"kind": "once"}
    assert second.prompt.resolved_on == "phone"


async def test_a_quorum_needs_two_people_and_the_same_person_twice_is_one(store: Store) -> None:
    prompt = await ask(store, needs=2)
    assert (await press(store, prompt, ANA)).status == "voted"
    assert (await press(store, prompt, ANA)).status == "voted"
    assert (await press(store, prompt, BEN)).status == "resolved"


async def test_one_denial_decides_against_a_quorum(store: Store) -> None:
    prompt = await ask(store, needs=2)
    await press(store, prompt, ANA)
    denied = await press(store, prompt, BEN, "deny")
    assert denied.status == "resolved"
    assert denied.prompt.answer == {"kind": "deny"}


async def test_two_votes_at_once_decide_once(store: Store) -> None:
    prompt = await ask(store, needs=2)
    both = await asyncio.gather(press(store, prompt, ANA), press(store, prompt, BEN))
    assert sorted(each.status for each in both) == ["resolved", "voted"]


@pytest.mark.parametrize(
    ("kind", "role", "person", "own", "may"),
    [
        pytest.param("approval", "operator", "ana", False, True, id="operator-approves"),
        pytest.param("approval", "member", "mia", False, False, id="member-does-not-in-own"),
        pytest.param("question", "member", "mia", True, True, id="member-answers-own-question"),
        pytest.param("question", "member", "zoe", True, False, id="member-not-in-anothers"),
        pytest.param("question", "guest", "mia", True, False, id="guest-never"),
        pytest.param("approval", "owner", "root", False, True, id="owner-always"),
        pytest.param("approval", "president", "ana", False, False, id="unknown-role-never"),
    ],
)
async def test_who_may_answer(
    store: Store, kind: str, role: str, person: str, own: bool, may: bool
) -> None:
    approvers = {"role": "operator", "person": "mia", "own_suffices": own}
    prompt = await ask(store, kind=kind, approvers=approvers)
    assert inbox.may_answer(prompt, Person(id=person, role=role)) is may


async def test_a_program_outside_a_sandbox_is_the_owners(store: Store) -> None:
    prompt = await ask(store, approvers={"role": "owner", "person": "mia"})
    with pytest.raises(PromptError, match="role owner"):
        await press(store, prompt, ANA)
    assert (await press(store, prompt, OWNER)).status == "resolved"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param({"kind": "yes"}, "is no answer", id="no-such-answer"),
        pytest.param({"kind": "happened"}, "is no answer", id="of-another-kind"),
        pytest.param({"kind": "always"}, "No standing rule", id="no-target-to-pin"),
        pytest.param({"kind": "edit"}, "arguments as an object", id="edit-without-arguments"),
    ],
)
async def test_an_answer_that_does_not_fit_changes_nothing(
    store: Store, answer: Mapping[str, Any], why: str
) -> None:
    prompt = await ask(store)
    with pytest.raises(PromptError, match=why):
        await press(store, prompt, OWNER, answer)
    assert [each.id for each in await store.read(lambda tx: inbox.pending(tx, "local"))] == [
        prompt.id
    ]


@pytest.mark.parametrize(
    ("kind", "silence"),
    [
        pytest.param("approval", "deny", id="approval"),
        pytest.param("question", "deny", id="question"),
        pytest.param("plan", "deny", id="plan"),
        pytest.param("grant", "deny", id="grant"),
        pytest.param("connect", "deny", id="connect"),
        pytest.param("outcome", "unknown", id="outcome"),
        pytest.param("access", "dismiss", id="access"),
        pytest.param("notice", "seen", id="notice"),
    ],
)
async def test_silence_is_never_a_yes(store: Store, kind: str, silence: str) -> None:
    prompt = await ask(store, kind=kind)
    assert await store.write(lambda tx: inbox.expire(tx, prompt.deadline - 1)) == []
    (expired,) = await store.write(lambda tx: inbox.expire(tx, prompt.deadline))
    assert expired.answer is not None and expired.answer["kind"] == silence
    assert expired.answer["silence"] is True and expired.resolved_by == "clock"
    assert (await press(store, prompt, OWNER)).status == "already"


async def test_a_press_and_the_clock_at_one_moment_decide_once(store: Store) -> None:
    prompt = await ask(store)
    pressed, expired = await asyncio.gather(
        press(store, prompt, ANA, now=prompt.deadline - 0.001),
        store.write(lambda tx: inbox.expire(tx, prompt.deadline)),
    )
    assert (pressed.status == "resolved") != bool(expired)


async def test_a_press_that_arrives_before_the_clock_looks_counts_past_the_deadline(
    store: Store,
) -> None:
    prompt = await ask(store)
    late = await press(store, prompt, ANA, now=prompt.deadline + 60)
    assert late.status == "resolved"
    assert await store.write(lambda tx: inbox.expire(tx, prompt.deadline + 60)) == []


async def test_only_the_owner_makes_a_rule_for_somebody_else(store: Store) -> None:
    payload = {"tool": "send", "risk": "external", "rule_target": ["x"], "taint": []}
    always = {"kind": "always", "expires_at": NOW + DAY}
    prompt = await ask(store, payload=payload)  # of mia's session
    with pytest.raises(PromptError, match="Only the owner makes rules for others"):
        await press(store, prompt, ANA, always)
    assert await store.read(lambda tx: rules.list_rules(tx, "local")) == []
    assert (await press(store, prompt, OWNER, always)).status == "resolved"
    (rule,) = await store.read(lambda tx: rules.list_rules(tx, "local"))
    assert rule.principal == "mia"


async def test_reminders_come_once_a_day_until_the_deadline(store: Store) -> None:
    prompt = await ask(store)
    due = [
        len(await store.write(lambda tx, day=day: inbox.remind(tx, NOW + day * DAY)))  # type: ignore[misc]
        for day in range(1, 9)
    ]
    assert due == [1, 1, 1, 1, 1, 1, 0, 0]
    assert prompt.deadline == NOW + 7 * DAY


async def test_an_id_is_found_by_its_beginning_only_when_it_is_one(store: Store) -> None:
    first = await ask(store, id="pabc1")
    await ask(store, id="pabd1", subject="c2/0")
    found = await store.read(lambda tx: inbox.find(tx, "local", "pabc"))
    assert found.id == first.id
    for start in ("pab", "px", "", "%", "p_bc"):
        with pytest.raises(PromptError):
            await store.read(lambda tx, start=start: inbox.find(tx, "local", start))  # type: ignore[misc]
