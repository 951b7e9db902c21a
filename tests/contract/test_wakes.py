"""What becomes of wakes, on both stores: tried again and told, dropped with the session, ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bot import keeping
from engine import inbox
from engine.errors import ScheduleError
from engine.events import Kind
from engine.models.base import ModelError
from engine.schedule import named, promises, wakes
from engine.schedule.event_tools import event_tools
from engine.store.base import Store
from tests.contract.later import NOW, a_session, due_wakes
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.world import World, running


async def added(store: Store, data: Path, note: str = "look at CI") -> tuple[str, str]:
    """Have a session woken, and return the wake and the session."""
    session = await a_session(store, data)
    wake = await store.write(lambda tx: wakes.add(tx, session, NOW + 60, note, NOW))
    return wake, session.id


async def told(store: Store) -> list[str]:
    prompts = await store.read(lambda tx: inbox.pending(tx, "local"))
    return [str(each.payload["text"]) for each in prompts if each.kind == "notice"]


async def test_a_wake_of_a_deleted_session_is_dropped_and_said_so(
    store: Store, tmp_path: Path
) -> None:
    wake, session = await added(store, tmp_path)
    assert await keeping.delete(store, tmp_path, session, "console", NOW)
    assert await told(store) == [
        f"Session {session} is deleted, so this will not be done: look at CI"
    ]
    rows = await store.read(lambda tx: tx.all("audit_recent", tenant="local", limit=9))
    assert ("dropped", wake, session) in [(r["kind"], r["subject"], r["outcome"]) for r in rows]
    assert await store.write(lambda tx: wakes.wake(tx, wake, NOW + 60)) is None


async def test_a_session_without_wakes_is_deleted_without_a_word(
    store: Store, tmp_path: Path
) -> None:
    session = await a_session(store, tmp_path)
    await keeping.delete(store, tmp_path, session.id, "console", NOW)
    assert await told(store) == []


async def test_a_wake_is_listed_until_it_is_called_off(store: Store, tmp_path: Path) -> None:
    wake, session = await added(store, tmp_path)
    [found] = await store.read(lambda tx: wakes.waiting(tx, "local"))
    assert (found.id, found.session, found.note) == (wake, session, "look at CI")
    same = await store.read(lambda tx: wakes.find(tx, "local", wake[:6]))
    assert await store.write(lambda tx: wakes.cancel(tx, same, "console", NOW))
    assert not await store.write(lambda tx: wakes.cancel(tx, same, "console", NOW))
    assert await due_wakes(store, NOW + 60) == []
    with pytest.raises(ScheduleError, match="No wake"):
        await store.read(lambda tx: wakes.find(tx, "local", wake))


async def run_due(made: World, moment: float) -> int:
    """Deliver what is due, as the clock does; return how many."""
    found = await due_wakes(made.store, moment)
    for each in found:
        session = await made.store.write(lambda tx, each=each: wakes.wake(tx, each, moment))
        assert session is not None
        made.dispatcher.enqueue(session)
    await made.settle()
    return len(found)


async def test_a_wake_whose_turn_fails_is_tried_again_and_then_told(
    store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(then=ModelError("The model is gone."))
    at = [NOW]
    async with running(store, tmp_path, model, now=lambda: at[0]) as made:
        session = await a_session(store, tmp_path)
        await store.write(lambda tx: wakes.add(tx, session, NOW + 60, "look at CI", NOW))
        for wait, expected in ((60, 1), (59, 0), (1, 1), (599, 0), (1, 1), (9_999, 0)):
            at[0] += wait
            assert await run_due(made, at[0]) == expected
        ends = [f for f in await made.log(session.id) if f.kind is Kind.TURN_END]
        assert [end.body["status"] for end in ends] == ["error"] * 3
        assert await told(store) == ["It was tried 3 times: look at CI"]


async def test_a_wake_that_works_at_the_second_try_is_over(store: Store, tmp_path: Path) -> None:
    model = ScriptedModel([ModelError("Busy.")], then="Looked.")
    at = [NOW]
    async with running(store, tmp_path, model, now=lambda: at[0]) as made:
        session = await a_session(store, tmp_path)
        await store.write(lambda tx: wakes.add(tx, session, NOW + 60, "look", NOW))
        for wait, expected in ((60, 1), (60, 1), (9_999, 0)):
            at[0] += wait
            assert await run_due(made, at[0]) == expected
        assert await told(store) == []


async def test_a_failed_turn_that_no_wake_began_wakes_nobody(store: Store, tmp_path: Path) -> None:
    model = ScriptedModel(then=ModelError("The model is gone."))
    async with running(store, tmp_path, model, now=lambda: NOW) as made:
        session = await made.open()
        await made.turn(session, "Go")
        assert await due_wakes(store, NOW + 1e9) == []


# -- the tool


def results(facts: Any) -> list[tuple[str, str]]:
    done = [fact.body for fact in facts if fact.kind is Kind.TOOL_FINISHED]
    return [(body["status"], str(body["content"])) for body in done]


def asking(event: str, **more: Any) -> Any:
    return calls(call("wake_on_event", event=event, note="Say so.", **more))


async def test_a_wake_on_an_event_from_outside_waits_for_a_persons_yes(
    store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([asking("Deploy-Done", until="in 2 hours")], then="Waiting.")
    tools = event_tools(store, "UTC")
    async with running(store, tmp_path, model, tools=tools, now=lambda: NOW) as made:
        session = await made.open()
        [(status, text)] = results(await made.turn(session, "Tell me when it is deployed"))
        assert status == "ok" and '"event":"deploy-done"' in text and '"waiting":false' in text
        [prompt] = await made.pending(session)
        assert prompt.payload["promise"]["until"] == NOW + 7_200
        assert await store.read(lambda tx: wakes.waiting(tx, "local")) == []


async def test_the_end_of_another_session_of_the_same_person_wakes(
    store: Store, tmp_path: Path
) -> None:
    tools = event_tools(store, "UTC")
    model = ScriptedModel()
    async with running(store, tmp_path, model, tools=tools, now=lambda: NOW) as made:
        waited, other = await made.open("console:a"), await made.open("console:b")
        model.steps += [asking(f"session:{waited}")]
        model.then = "Waiting."
        # The other has something to do, so there is something to wait for.
        await store.write(lambda tx: tx.run("session_want", id=waited))
        [(status, text)] = results(await made.turn(other, "Tell me when the other is done"))
        assert status == "ok" and '"waiting":true' in text
        assert await made.pending(other) == []
        await made.turn(waited, "Go")
        [wake] = await due_wakes(store, NOW)
        assert await store.write(lambda tx: wakes.wake(tx, wake, NOW)) == other
        [mail] = await store.read(lambda tx: tx.all("mail_waiting", session=other))
        assert "completed" in mail["body"] and '"taint"' not in mail["body"]


@pytest.mark.parametrize(
    ("event", "more", "says"),
    [
        pytest.param("two words", {}, "no name of an event", id="name"),
        pytest.param("session:s9", {}, "no other session", id="no-session"),
        pytest.param("job:j1", {}, "own session may wait", id="job"),
        pytest.param("deploy", {"until": "today 7:00"}, "it is now Mon", id="past"),
        pytest.param("deploy", {"until": "every day at 8"}, "no moment", id="rhythm"),
    ],
)
async def test_what_cannot_be_waited_for_is_told_to_the_model(
    store: Store, tmp_path: Path, event: str, more: dict[str, str], says: str
) -> None:
    model = ScriptedModel([asking(event, **more)], then="Sorry.")
    tools = event_tools(store, "UTC")
    async with running(store, tmp_path, model, tools=tools, now=lambda: NOW) as made:
        session = await made.open()
        [(status, text)] = results(await made.turn(session, "Go"))
        assert status == "error" and says in text
        assert await made.pending(session) == []


async def test_nobody_waits_for_the_session_of_another_person(store: Store, tmp_path: Path) -> None:
    tools = event_tools(store, "UTC")
    model = ScriptedModel()
    async with running(store, tmp_path, model, tools=tools, now=lambda: NOW) as made:
        theirs, mine = await made.open("console:a", owner="bo"), await made.open("console:b")
        model.steps += [asking(f"session:{theirs}")]
        model.then = "Sorry."
        await store.write(lambda tx: tx.run("session_want", id=theirs))
        [(status, text)] = results(await made.turn(mine, "Go"))
        assert status == "error" and "no other session" in text


async def test_an_event_between_the_card_and_the_yes_counts(store: Store, tmp_path: Path) -> None:
    session = await a_session(store, tmp_path)
    prompt = await store.write(
        lambda tx: promises.ask_wake(
            tx, session, "deploy", "look", NOW, until=NOW + 900, since=NOW, zone="UTC"
        )
    )
    await store.write(lambda tx: named.fire_event(tx, "local", "deploy", "", "1", NOW + 5))
    by = inbox.Person(id="console", role="owner")
    await store.write(lambda tx: promises.keep(tx, prompt, by, NOW + 9, data=tmp_path))
    assert len(await due_wakes(store, NOW + 9)) == 1
