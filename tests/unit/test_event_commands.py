"""`/schedule when EVENT`, `/wakes` and `nod hook` as people type them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bot.commands.table import run
from connectors import accounts
from engine import inbox, people, sessions
from engine.errors import NodError
from engine.inbox import Person
from engine.schedule import hooks, named, schedules, subscriptions, wakes
from engine.schedule.words import When
from engine.store.base import Store
from tests.fakes.chat import Chat, chatting
from tests.fakes.scripted import ScriptedModel

NOW = 1_750_057_320.0  # Mon 16 Jun 2025, 07:02 UTC


@pytest.fixture
async def chat(sqlite_store: Store, tmp_path: Path) -> AsyncIterator[Chat]:
    async with chatting(
        sqlite_store, tmp_path, ScriptedModel(), at_work=False, presenting=False, now=lambda: NOW
    ) as made:
        yield made


async def do(
    chat: Chat, line: str, *, target: str = "console:main", role: str = "owner", by: str = "console"
) -> str:
    name, _, arguments = line.partition(" ")
    context = replace(chat.context, person=Person(id=by, role=role, name=by), target=target)
    return await run(context, name, arguments)


async def cards(chat: Chat) -> list[inbox.Prompt]:
    return await chat.store.read(lambda tx: inbox.pending(tx, "local"))


async def test_a_schedule_on_an_event_is_confirmed_listed_paused_and_resumed(chat: Chat) -> None:
    told = await do(chat, "schedule when Deploy-Done, queue: check the dashboards")
    assert "Whenever the event deploy-done comes" in told
    [card] = await cards(chat)
    facts = dict(card.payload["facts"])
    assert facts["When"] == "Whenever the event deploy-done comes" and "Next" not in facts
    await do(chat, f"approve {card.id}")
    [made] = await chat.store.read(lambda tx: schedules.listed(tx, "local"))
    assert (made.when.event, made.policy.overlap, made.next_at) == ("deploy-done", "queue", None)
    assert "when deploy-done" in await do(chat, "schedule list")
    assert "waits for it" in await do(chat, "schedule list")
    shown = await do(chat, f"schedule show {made.id}")
    assert "When: Whenever the event deploy-done comes\nNext: waits for it" in shown
    assert "switched off" not in shown
    await do(chat, f"schedule pause {made.id}")
    assert "switched off" in await do(chat, "schedule list")
    resumed = await do(chat, f"schedule resume {made.id}")
    assert "Whenever the event deploy-done comes" in resumed


async def test_what_it_does_can_be_changed_and_the_event_stays(chat: Chat) -> None:
    await do(chat, "schedule when deploy-done: check the dashboards")
    await do(chat, f"approve {(await cards(chat))[0].id}")
    [made] = await chat.store.read(lambda tx: schedules.listed(tx, "local"))
    await do(chat, f"schedule edit {made.id}: read the log")
    [card] = await cards(chat)
    await do(chat, f"approve {card.id}")
    [after] = await chat.store.read(lambda tx: schedules.listed(tx, "local"))
    assert (after.when, after.instructions) == (made.when, "read the log")
    await do(chat, f"schedule edit {made.id} every day at 8")
    await do(chat, f"approve {(await cards(chat))[0].id}")
    [timed] = await chat.store.read(lambda tx: schedules.listed(tx, "local"))
    assert (timed.cron, timed.next_at is not None) == ("0 8 * * *", True)


async def test_nobody_is_asked_for_a_zone_that_an_event_does_not_need(chat: Chat) -> None:
    await do(chat, "schedule when deploy-done: go", target="slack:T1/D1", by="bo", role="member")
    [card] = await cards(chat)
    assert dict(card.payload["facts"])["When"] == "Whenever the event deploy-done comes"


async def woken(chat: Chat) -> str:
    def work(tx: object) -> str:
        made = chat.context.house.open(tx, "console:main", "console", NOW)  # type: ignore[arg-type]
        session = sessions.get(tx, made)  # type: ignore[arg-type]
        wakes.add_on(tx, session, "deploy-done", "look at it", NOW, until=NOW + 900)  # type: ignore[arg-type]
        return wakes.add(tx, session, NOW + 60, "say hello", NOW)  # type: ignore[arg-type]

    return await chat.store.write(work)


async def test_wakes_are_listed_the_nearest_first_and_called_off(chat: Chat) -> None:
    assert await do(chat, "wakes") == "Nothing is to go on by itself."
    wake = await woken(chat)
    first, second = (await do(chat, "wakes")).splitlines()
    assert wake in first and "Mon 16 Jun 2025, 07:03" in first and "say hello" in first
    assert "when `deploy-done` comes, until Mon 16 Jun 2025, 07:17" in second
    assert "Goes on by itself: 2 (/wakes)" in await do(chat, "status")
    assert "called off" in await do(chat, f"wakes cancel {wake[:7]}")
    assert "say hello" not in await do(chat, "wakes")
    await chat.store.write(lambda tx: named.fire_event(tx, "local", "deploy-done", "", "1", NOW))
    assert len((await do(chat, "wakes")).splitlines()) == 1  # due, and not yet delivered


async def test_many_wakes_of_others_hide_none_of_a_members_own(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.schedule.wakes.LISTED", 2)
    await woken(chat)

    def later(tx: object) -> None:
        made = chat.context.house.open(tx, "console:bo", "bo", NOW)  # type: ignore[arg-type]
        wakes.add(tx, sessions.get(tx, made), NOW + 9_999, "mine", NOW)  # type: ignore[arg-type]

    await chat.store.write(later)
    assert "mine" in await do(chat, "wakes", role="member", by="bo")
    told = await do(chat, "wakes")
    assert "mine" not in told and told.endswith("These are the next 2.")
    assert "Goes on by itself: 1" in await do(chat, "status", target="console:bo")


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("schedule when job:j1: look", id="schedule"),
        pytest.param("watch event job:j1: look", id="watch"),
    ],
)
async def test_what_a_job_printed_is_for_its_own_session(chat: Chat, line: str) -> None:
    with pytest.raises(NodError, match="its own session may"):
        await do(chat, line)
    assert await cards(chat) == []


@pytest.mark.parametrize(
    ("line", "role", "says"),
    [
        pytest.param("wakes cancel w0", "owner", "No wake", id="no-such"),
        pytest.param("wakes stop x", "owner", "not understood", id="verb"),
    ],
)
async def test_what_cannot_be_called_off_is_refused(
    chat: Chat, line: str, role: str, says: str
) -> None:
    with pytest.raises(NodError, match=says):
        await do(chat, line, role=role)


async def test_nobody_sees_or_calls_off_the_wakes_of_another(chat: Chat) -> None:
    wake = await woken(chat)
    assert await do(chat, "wakes", role="member", by="bo") == "Nothing is to go on by itself."
    with pytest.raises(NodError, match="somebody else"):
        await do(chat, f"wakes cancel {wake}", role="member", by="bo")


async def test_what_somebody_planned_who_is_sent_away_comes_to_rest(chat: Chat) -> None:
    def plan(tx: Any) -> str:
        role = {"role": "member", "by": "console", "now": NOW}
        bo = people.add_person(tx, "local", "slack", "U2", name="Bo", **role)
        for owner in (bo.id, "console"):
            made = chat.context.house.open(tx, f"console:{owner}", owner, NOW)
            session = sessions.get(tx, made)
            wakes.add(tx, session, NOW + 60, "say hello", NOW)
            words: dict[str, Any] = {"task": "look", "any_of": (), "all_of": (), "window": 60.0}
            subscriptions.add(tx, session=session, source="slack:T1/C1", **words, now=NOW)
            schedules.add(
                tx,
                tenant="local",
                owner=owner,
                title="Daily",
                when=When(zone="UTC", cron="0 8 * * *"),
                instructions="Look.",
                home="console:main",
                persona="cowork",
                model="practice:test",
                now=NOW,
            )
        return bo.id

    bo = await chat.store.write(plan)
    assert "At rest" not in await do(chat, f"role {bo} operator")
    told = await do(chat, f"role {bo} guest")
    assert "At rest from now on: 1 schedule, 1 watch, 1 wake of theirs." in told
    planned = await chat.store.read(lambda tx: schedules.listed(tx, "local"))
    assert {each.owner: each.enabled for each in planned} == {bo: False, "console": True}
    watched = await chat.store.read(lambda tx: subscriptions.listed(tx, "local"))
    assert {each.owner: each.status for each in watched} == {bo: "paused", "console": "active"}
    woken = await chat.store.read(lambda tx: wakes.waiting(tx, "local"))
    assert [each.owner for each in woken] == ["console"]


# -- what connectors bring


async def connected(chat: Chat, owner: str = "console") -> None:
    await chat.store.write(lambda tx: accounts.add(tx, "local", "github", "ana", owner, now=NOW))


@pytest.mark.parametrize(
    "line", ["watch event {}: tell me", "schedule when {}: tell me"], ids=["watch", "schedule"]
)
async def test_an_event_of_no_connector_is_answered_with_those_there_are(
    chat: Chat, line: str
) -> None:
    await connected(chat)
    with pytest.raises(NodError, match="GitHub brings no event github-reviews") as refused:
        await do(chat, line.format("github-reviews"))
    assert "github-review, gmail-message" in refused.value.fix and await cards(chat) == []
    made = partial(hooks.add, tenant="local", name="github-reviews", owner="console", signed=False)
    await chat.store.write(lambda tx: made(tx, now=NOW))
    await do(chat, line.format("github-reviews"))
    assert len(await cards(chat)) == 1, "a hook may be named so"


@pytest.mark.parametrize(
    "line", ["watch event {}: tell me", "schedule when {}: tell me"], ids=["watch", "schedule"]
)
async def test_what_could_never_come_is_refused_until_its_account_is_connected(
    chat: Chat, line: str
) -> None:
    await connected(chat, owner="u-bo")
    with pytest.raises(NodError, match="never come") as refused:
        await do(chat, line.format("GitHub-Review"))
    assert "/connect github" in refused.value.fix
    await connected(chat)
    await do(chat, line.format("GitHub-Review"))
    [card] = await cards(chat)
    assert "github-review" in str(card.payload["facts"])


async def test_any_other_name_may_be_waited_for(chat: Chat) -> None:
    await do(chat, "watch event githubber-push: tell me")
    assert len(await cards(chat)) == 1
