"""The presenter: what the log says is shown once, in its thread, whatever happens in between."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot import cards, keeping
from bot.outbound.follower import Follower, Posting
from bot.surfaces.base import Author, Message, Pressed, Said, SurfaceError
from engine import sessions
from engine.errors import ToolError
from engine.events import Event, Kind
from engine.models.base import Answer
from engine.store.base import Store, Tx
from engine.store.opening import open_store
from engine.tools.base import LookUp, Risk
from engine.turn.journal import Batch, commit, take
from engine.turn.state import Limits
from tests.fakes.chat import ANA, OWNER, Chat, chatting
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.surface import MemorySurface
from tests.fakes.world import HOME, probe


def posts(data: Path, thread: str = "main") -> list[dict[str, Any]]:
    """Return the lines of a console thread that Nod wrote."""
    file = data / "console" / f"{thread}.jsonl"
    if not file.exists():
        return []
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [line for line in lines if line["op"] != "said"]


def texts(data: Path) -> list[str]:
    return [line["text"] for line in posts(data)]


async def write_facts(chat: Chat, session: str, *facts: tuple[Kind, dict[str, Any]]) -> int:
    """Append facts to the log as a worker does, without publishing them; returns the last place."""

    def work(tx: Tx) -> int:
        tx.run("session_want", id=session)
        taken = take(tx, session, "worker", 1000.0, Limits())
        assert taken is not None, "nobody else advances the session"
        seq = taken.session.seq
        written = [
            Event(session=session, kind=kind, seq=seq + n, turn=1, iteration=1, at=1e3, body=body)
            for n, (kind, body) in enumerate(facts, 1)
        ]
        batch = Batch(facts=written, calls=(), release="idle")
        commit(tx, taken.session, batch, taken.noted, 0, 1000.0)
        return seq + len(facts)

    return await chat.store.write(work)


def answer(text: str, finish: str = "stop") -> tuple[Kind, dict[str, Any]]:
    message = {"role": "assistant", "content": text}
    return Kind.ASSISTANT_MESSAGE, {"message": message, "finish": finish}


@pytest.fixture
async def quiet(sqlite_store: Store, tmp_path: Path) -> AsyncIterator[Chat]:
    """A presenter and no worker: facts come from the test."""
    async with chatting(sqlite_store, tmp_path, ScriptedModel(), at_work=False) as chat:
        yield chat


# -- a turn, end to end


async def test_an_answer_is_posted_once_in_its_thread(store: Store, tmp_path: Path) -> None:
    async with chatting(store, tmp_path, ScriptedModel(["Good morning."])) as chat:
        receipt = await chat.said("hello", "e1")
        await chat.shown(str(receipt.session))
    (line,) = posts(tmp_path)
    assert line["text"] == "Good morning."
    assert line["delivery"] == f"answer:{receipt.session}/1/1"


@pytest.mark.parametrize(
    ("small", "switched", "footer"),
    [(True, True, True), (True, False, False), (False, True, False)],
    ids=["small-letters", "switched-off", "no-small-letters"],
)
async def test_the_last_answer_says_what_it_took(
    sqlite_store: Store, tmp_path: Path, small: bool, switched: bool, footer: bool
) -> None:
    model = ScriptedModel([calls(call("look", label="a"), text="I look first."), "Done."])
    surface = MemorySurface()
    surface.capabilities = replace(surface.capabilities, small_text=small)
    tools = [probe("look", Risk.READ, [])]
    async with chatting(sqlite_store, tmp_path, model, tools=tools, surfaces=[surface]) as chat:
        object.__setattr__(chat.stage, "footers", switched)
        session = await chat.world.open("memory:x")
        await chat.world.say(session, "hello")
        await chat.shown(session)
    first, last = surface.posted
    assert first.shown == "I look first.", "only the last one"
    took = f"practice:test · 2 steps · {session}"
    assert last.shown == (f"Done.\n{took}" if footer else "Done.")


async def test_a_plain_turn_costs_the_presenter_one_write(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with chatting(sqlite_store, tmp_path, ScriptedModel(["Good morning."])) as chat:
        written: list[str] = []
        store, write = chat.stage.store, chat.stage.store.write

        class Counted:
            dialect, read, close = store.dialect, store.read, store.close

            async def write(self, work: Any) -> Any:
                written.append("write")
                return await write(work)

        object.__setattr__(chat.stage, "store", Counted())
        receipt = await chat.said("hello", "e1")
        await chat.shown(str(receipt.session))
        rows = await chat.rows("sessions_unpresented", tenant="local", after="", limit=9)
    assert (len(written), rows) == (1, [])


async def test_text_beside_tool_calls_is_shown_too(sqlite_store: Store, tmp_path: Path) -> None:
    log: list[Any] = []
    model = ScriptedModel([calls(call("look", label="a"), text="I look first."), "Done."])
    tools = [probe("look", Risk.READ, log)]
    async with chatting(sqlite_store, tmp_path, model, tools=tools) as chat:
        receipt = await chat.said("hello", "e1")
        await chat.shown(str(receipt.session))
    assert texts(tmp_path) == ["I look first.", "Done."]


async def test_prompts_asked_together_are_one_card_and_its_decision_is_shown(
    store: Store, tmp_path: Path
) -> None:
    log: list[Any] = []
    model = ScriptedModel([calls(call("send", label="a"), call("send", label="b")), "Done."])
    tools = [probe("send", Risk.EXTERNAL, log)]
    async with chatting(store, tmp_path, model, tools=tools) as chat:
        receipt = await chat.said("hello", "e1")
        session = str(receipt.session)
        await chat.shown(session)
        (card,) = posts(tmp_path)
        first, second = await chat.world.pending(session)
        assert card["prompts"] == [first.id, second.id]
        assert card["delivery"] == f"prompt:{first.id}"
        await chat.world.answer(first, "once")
        await chat.shown(session)
        assert posts(tmp_path)[-1]["prompts"] == [second.id]
        await chat.world.answer(second, "deny", reason="no")
        await chat.shown(session)
        refs = {
            row["ref"]
            for prompt in (first, second)
            for row in await chat.rows(
                "deliveries_of", tenant="local", subject=f"prompt:{prompt.id}"
            )
        }
    lines = posts(tmp_path)
    edits = [line for line in lines if line["op"] == "edit"]
    assert refs == {card["ref"]}
    assert [line["op"] for line in lines].count("post") == 2  # the card and the answer
    assert "Approved by @console" in edits[-1]["card"]
    assert "Denied by @console" in edits[-1]["card"]
    assert edits[-1]["prompts"] == []


async def test_a_stop_closes_the_card(sqlite_store: Store, tmp_path: Path) -> None:
    model = ScriptedModel([calls(call("send", label="a"))])
    tools = [probe("send", Risk.EXTERNAL, [])]
    async with chatting(sqlite_store, tmp_path, model, tools=tools) as chat:
        receipt = await chat.said("hello", "e1")
        await chat.shown(str(receipt.session))
        await chat.said("stop", "e2")
        await chat.shown(str(receipt.session))
    lines = posts(tmp_path)
    assert "Stopped by @console" in [line["card"] for line in lines if line["op"] == "edit"][-1]
    assert lines[-1]["text"].startswith("Stopped after 1 step")


async def test_a_turn_that_is_ended_closes_its_card(sqlite_store: Any, tmp_path: Path) -> None:
    sqlite_store.queries["t_deadly"] = "update sessions set attempts = 3"
    model = ScriptedModel([calls(call("send", label="a"))])
    tools = [probe("send", Risk.EXTERNAL, [])]
    async with chatting(sqlite_store, tmp_path, model, tools=tools) as chat:
        session = str((await chat.said("hello", "e1")).session)
        await chat.shown(session)
        await sqlite_store.write(lambda tx: tx.run("t_deadly"))
        await chat.world.post(session, "switch", {"mode": "interactive"})
        await chat.shown(session)
    edits = [line for line in posts(tmp_path) if line["op"] == "edit"]
    assert edits[-1]["prompts"] == []
    assert "send" in edits[-1]["card"]


async def test_progress_is_one_message_that_is_edited(sqlite_store: Store, tmp_path: Path) -> None:
    def todos(first: str, second: str) -> Answer:
        items = [{"content": "read", "status": first}, {"content": "write", "status": second}]
        return calls(call("todo_write", todos=items))

    model = ScriptedModel([todos("in_progress", "pending"), todos("done", "in_progress"), "Ok."])
    async with chatting(sqlite_store, tmp_path, model) as chat:
        receipt = await chat.said("hello", "e1")
        await chat.shown(str(receipt.session))
    progress = [line for line in posts(tmp_path) if "read" in line["text"]]
    assert progress[0]["op"] == "post"
    assert {line["op"] for line in progress[1:]} <= {"edit"}
    assert progress[-1]["text"] == "✓ read\n▸ write"


async def test_a_delivered_file_is_not_uploaded_again(sqlite_store: Store, tmp_path: Path) -> None:
    write = call("write_file", path="a.md", content="hello")
    deliver = call("deliver_file", path="a.md", comment="here it is")
    model = ScriptedModel([calls(write), calls(deliver), "Done."])
    async with chatting(sqlite_store, tmp_path, model) as chat:
        receipt = await chat.said("hello", "e1")
        await chat.shown(str(receipt.session))
    files = [line for line in posts(tmp_path) if line.get("files")]
    assert [line["text"] for line in files] == ["here it is"]
    assert Path(files[0]["files"][0]["path"]).read_text() == "hello"


# -- what the other facts look like


@pytest.mark.parametrize(
    ("fact", "said"),
    [
        pytest.param((Kind.ERROR, {"text": "The model is down."}), "went wrong", id="error"),
        pytest.param((Kind.NOTICE, {"text": "undo is refused"}), "undo is refused", id="notice"),
        pytest.param((Kind.INTERRUPTED, {"iterations": 2}), "Stopped after 2 steps.", id="stop"),
        pytest.param(
            (Kind.INTERRUPTED, {"iterations": 1, "reason": "it reached its deadline"}),
            "Stopped after 1 step: it reached its deadline.",
            id="deadline",
        ),
        pytest.param(
            (Kind.INTERRUPTED, {"iterations": 1, "reason": "superseded"}),
            "Stopped after 1 step: the next run was due.",
            id="superseded",
        ),
        pytest.param(
            (Kind.TURN_END, {"status": "max_iterations", "iterations": 150, "reason": ""}),
            "limit of 150 steps",
            id="cap",
        ),
        pytest.param(
            (Kind.TURN_END, {"status": "max_iterations", "reason": "repeat", "iterations": 5}),
            "again and again",
            id="repeat",
        ),
        pytest.param(answer("half", "length"), "Cut off", id="cut off"),
        pytest.param(answer("", "refusal"), "refused", id="refusal"),
    ],
)
async def test_what_went_wrong_is_said_plainly(
    quiet: Chat, fact: tuple[Kind, dict[str, Any]], said: str
) -> None:
    session = await quiet.world.open()
    seq = await write_facts(quiet, session, fact)
    await quiet.presenter.caught_up(session, seq)
    shown = [line["text"] + line.get("footer", "") for line in posts(quiet.data)]
    assert [said in text for text in shown] == [True]


@pytest.mark.parametrize(
    "fact",
    [
        (Kind.TURN_END, {"status": "completed", "iterations": 1, "reason": ""}),
        (Kind.TURN_END, {"status": "parked", "iterations": 1, "reason": ""}),
        answer("  \n "),
    ],
    ids=["completed", "parked", "blank"],
)
async def test_nothing_is_shown_of_what_needs_no_word(
    quiet: Chat, fact: tuple[Kind, dict[str, Any]]
) -> None:
    session = await quiet.world.open()
    seq = await write_facts(quiet, session, fact)
    await quiet.presenter.caught_up(session, seq)
    assert posts(quiet.data) == []


async def test_a_models_escape_sequences_are_not_shown(quiet: Chat) -> None:
    session = await quiet.world.open()
    seq = await write_facts(quiet, session, answer("a\x1b]0;owned\x07b\u202ec\td\n"))
    await quiet.presenter.caught_up(session, seq)
    assert texts(quiet.data) == ["a]0;ownedbc\td\n"]


# -- crashes


async def test_what_was_posted_before_a_crash_is_found_and_not_posted_again(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with chatting(
        sqlite_store, tmp_path, ScriptedModel(), at_work=False, presenting=False
    ) as chat:
        session = await chat.world.open()
        await write_facts(chat, session, answer("Good morning."))
        # The crash: the post reached the file, the ref never reached the store.
        message, subject = Message(text="Good morning."), f"answer:{session}/1/1"
        ref = await chat.console.post("console:main", message, subject)
    async with chatting(sqlite_store, tmp_path, ScriptedModel(), at_work=False) as chat:
        await chat.presenter.caught_up(session, 1)
        (row,) = await chat.rows("deliveries_of", tenant="local", subject=subject)
        rows = await chat.rows("sessions_unpresented", tenant="local", after="", limit=9)
    assert [line["op"] for line in posts(tmp_path)].count("post") == 1
    assert (row["ref"], row["status"], rows) == (ref, "sent", [])


async def test_what_was_never_posted_is_posted_after_the_restart(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with chatting(
        sqlite_store, tmp_path, ScriptedModel(), at_work=False, presenting=False
    ) as chat:
        session = await chat.world.open()
        notices = [(Kind.NOTICE, {"text": text}) for text in ("one", "two")]
        await write_facts(chat, session, *notices)
    for _ in range(2):
        async with chatting(sqlite_store, tmp_path, ScriptedModel(), at_work=False) as chat:
            await chat.presenter.caught_up(session, 2)
    assert texts(tmp_path) == ["one", "two"]


async def test_where_nothing_can_be_looked_up_a_second_showing_is_marked(
    sqlite_store: Store, tmp_path: Path
) -> None:
    surface = MemorySurface(look_up=False)
    async with chatting(
        sqlite_store, tmp_path, ScriptedModel(), at_work=False, presenting=False, surfaces=[surface]
    ) as chat:
        session = await chat.world.open("memory:x")
        await write_facts(chat, session, answer("Good morning."))
    async with chatting(
        sqlite_store, tmp_path, ScriptedModel(), at_work=False, surfaces=[surface]
    ) as chat:
        await chat.presenter.caught_up(session, 1)
    assert ["Possibly shown twice" in text for text in surface.of("memory:x")] == [True]


async def test_a_card_decided_while_nod_was_down_is_drawn_decided(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([calls(call("send", label="a"))], then="Done.")
    tools = [probe("send", Risk.EXTERNAL, [])]
    async with chatting(sqlite_store, tmp_path, model, tools=tools) as chat:
        receipt = await chat.said("hello", "e1")
        session = str(receipt.session)
        await chat.shown(session)
    async with chatting(sqlite_store, tmp_path, model, tools=tools, presenting=False) as chat:
        (prompt,) = await chat.world.pending(session)
        await chat.world.answer(prompt, "once")
        await chat.world.settle()
    async with chatting(sqlite_store, tmp_path, model, tools=tools) as chat:
        await chat.shown(session)
    lines = posts(tmp_path)
    assert [line["op"] for line in lines] == ["post", "edit", "post"]
    assert "Approved by @console" in lines[1]["card"]


# -- failures and slowness


async def test_a_failed_post_is_tried_again(sqlite_store: Store, tmp_path: Path) -> None:
    surface = MemorySurface()
    surface.failures = [SurfaceError("busy", retry_after=0.01), TimeoutError()]
    async with chatting(
        sqlite_store, tmp_path, ScriptedModel(), at_work=False, surfaces=[surface]
    ) as chat:
        session = await chat.world.open("memory:x")
        await write_facts(chat, session, answer("Good morning."))
        await chat.presenter.caught_up(session, 1)
    assert surface.of("memory:x") == ["Good morning."]


async def test_a_post_whose_reply_was_lost_is_not_repeated(
    sqlite_store: Store, tmp_path: Path
) -> None:
    surface = MemorySurface()
    surface.losses = [SurfaceError("cut", certain=False, retry_after=0.01)]
    async with chatting(
        sqlite_store, tmp_path, ScriptedModel(), at_work=False, surfaces=[surface]
    ) as chat:
        session = await chat.world.open("memory:x")
        await write_facts(chat, session, answer("Good morning."))
        await chat.presenter.caught_up(session, 1)
    assert surface.of("memory:x") == ["Good morning."]


async def test_a_thread_that_takes_nothing_does_not_hold_its_own_later_facts(
    sqlite_store: Store, tmp_path: Path
) -> None:
    surface = MemorySurface()
    surface.failures = [SurfaceError("this message is not allowed here")]
    async with chatting(
        sqlite_store, tmp_path, ScriptedModel(), at_work=False, surfaces=[surface]
    ) as chat:
        session = await chat.world.open("memory:x")
        await write_facts(
            chat, session, (Kind.NOTICE, {"text": "first"}), (Kind.NOTICE, {"text": "second"})
        )
        await chat.presenter.caught_up(session, 2)
    assert surface.of("memory:x") == ["second"]


async def test_a_message_that_breaks_the_surface_holds_up_none_after_it(
    sqlite_store: Store, tmp_path: Path
) -> None:
    surface = MemorySurface()
    surface.failures = [ZeroDivisionError("what it said")]
    async with chatting(
        sqlite_store, tmp_path, ScriptedModel(), at_work=False, surfaces=[surface]
    ) as chat:
        session = await chat.world.open("memory:x")
        await write_facts(chat, session, answer("first"), (Kind.NOTICE, {"text": "second"}))
        await chat.presenter.caught_up(session, 2)
        (told,) = await chat.world.pending()
    assert surface.of("memory:x") == ["second"]
    assert "ZeroDivisionError" in told.payload["text"] and "what it" not in told.payload["text"]


async def test_a_slow_thread_holds_no_other(sqlite_store: Store, tmp_path: Path) -> None:
    surface = MemorySurface()
    surface.slow["memory:slow"] = asyncio.Event()
    model = ScriptedModel(then="Good morning.")
    async with chatting(sqlite_store, tmp_path, model, surfaces=[surface]) as chat:
        slow = await chat.world.open("memory:slow")
        await chat.world.say(slow, "hello")
        await chat.world.settle()
        receipt = await chat.said("hello", "e1")
        async with asyncio.timeout(5):
            await chat.shown(str(receipt.session))
        assert (surface.of("memory:slow"), texts(tmp_path)) == ([], ["Good morning."])
        surface.slow["memory:slow"].set()
        await surface.until(lambda platform: platform.of("memory:slow") == ["Good morning."])


async def test_an_idle_session_is_no_longer_followed_and_taken_up_again(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(["one", "two"])
    async with chatting(sqlite_store, tmp_path, model, idle=0.01) as chat:
        receipt = await chat.said("hello", "e1")
        await chat.shown(str(receipt.session))
        async with asyncio.timeout(5):
            while chat.presenter._followers:
                await asyncio.sleep(0.01)
        await chat.said("again", "e2")
        await chat.shown(str(receipt.session))
    assert texts(tmp_path) == ["one", "two"]


async def test_facts_the_bus_dropped_are_read_from_the_log(quiet: Chat) -> None:
    session = await quiet.world.open()
    await write_facts(quiet, session, *[(Kind.NOTICE, {"text": str(n)}) for n in range(450)])
    quiet.world.engine.bus.publish(
        Event(session=session, kind=Kind.NOTICE, seq=450, turn=1, body={"text": "449"})
    )
    await quiet.presenter.caught_up(session, 450)
    assert texts(quiet.data) == [str(n) for n in range(450)]


async def test_what_the_bus_lost_at_the_end_is_found_by_the_next_look(quiet: Chat) -> None:
    session = await quiet.world.open()
    await write_facts(quiet, session, (Kind.NOTICE, {"text": "heard"}))
    quiet.world.engine.bus.publish(
        Event(session=session, kind=Kind.NOTICE, seq=1, turn=1, body={"text": "heard"})
    )
    await quiet.presenter.caught_up(session, 1)
    await write_facts(quiet, session, (Kind.NOTICE, {"text": "lost on the bus"}))
    quiet.presenter.poke()
    async with asyncio.timeout(5):
        while texts(quiet.data) != ["heard", "lost on the bus"]:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("known", [False, True], ids=["before-it-was-followed", "while-followed"])
async def test_who_waits_for_a_deleted_session_waits_no_longer(quiet: Chat, known: bool) -> None:
    session = await quiet.world.open()
    await write_facts(quiet, session, (Kind.NOTICE, {"text": "one"}))
    if known:
        await quiet.presenter.caught_up(session, 1)
    assert await keeping.delete(quiet.store, quiet.data, session, OWNER.id, 1000.0)
    async with asyncio.timeout(5):
        await quiet.presenter.caught_up(session, 9)


# -- streaming


async def test_an_answer_grows_by_edits_and_ends_whole(sqlite_store: Store, tmp_path: Path) -> None:
    surface, hold = MemorySurface(edit_every=0.01), asyncio.Event()
    model = ScriptedModel(["Good morning to you."], chunk=5, hold=hold)
    async with chatting(sqlite_store, tmp_path, model, surfaces=[surface]) as chat:
        session = await chat.world.open("memory:x")
        await chat.presenter.caught_up(session, 0)
        await chat.world.say(session, "hello")
        await surface.until(lambda platform: platform.of("memory:x") != [])
        (row,) = await chat.rows("deliveries_of", tenant="local", subject=f"answer:{session}/1/1")
        assert row is not None
        hold.set()
        await chat.shown(session)
    assert surface.of("memory:x") == ["Good morning to you."]
    assert surface.typed == ["memory:x"]


@pytest.mark.parametrize("edit_every", [0.01, 0.0], ids=["shown-while-it-grows", "not-shown"])
async def test_a_piece_that_comes_before_the_home_is_known_is_not_lost(
    sqlite_store: Store, tmp_path: Path, edit_every: float
) -> None:
    surface = MemorySurface(edit_every=edit_every)
    model = ScriptedModel()
    async with chatting(sqlite_store, tmp_path, model, surfaces=[surface], at_work=False) as chat:
        session = await chat.world.open("memory:x")
        follower = Follower(session, chat.stage, Posting(), 0.0)
        for seq, text in enumerate(["Good ", "morning"]):
            follower.hear_delta(
                Event(
                    session=session,
                    kind=Kind.ASSISTANT_DELTA,
                    seq=0,
                    turn=1,
                    iteration=1,
                    at=1e3 + seq,
                    body={"text": text},
                )
            )
        await follower.advance()
        assert surface.of("memory:x") == (["Good morning …"] if edit_every else [])


async def test_a_streamed_message_is_edited_after_a_crash_not_posted_beside(
    sqlite_store: Store, tmp_path: Path
) -> None:
    surface, hold = MemorySurface(edit_every=0.01), asyncio.Event()
    model = ScriptedModel(["lost"], chunk=2, hold=hold)
    async with chatting(sqlite_store, tmp_path, model, surfaces=[surface]) as chat:
        session = await chat.world.open("memory:x")
        await chat.presenter.caught_up(session, 0)
        await chat.world.say(session, "hello")
        await surface.until(lambda platform: platform.of("memory:x") != [])
    again = ScriptedModel(["The new answer."])
    async with chatting(sqlite_store, tmp_path, again, surfaces=[surface]) as chat:
        await chat.shown(session)
    assert surface.of("memory:x") == ["The new answer."]


# -- what no log tells of


async def test_an_access_card_is_shown_to_the_owner_and_decided(
    sqlite_store: Store, tmp_path: Path
) -> None:
    surface = MemorySurface()
    model = ScriptedModel(["Hi Bo."])
    async with chatting(sqlite_store, tmp_path, model, surfaces=[surface]) as chat:
        bo = Author(id="7", name="Bo")
        await chat.take(Said(event="e1", target="memory:x", person=bo, text="hi"))
        async with asyncio.timeout(5):
            while not posts(tmp_path):
                await asyncio.sleep(0.01)
        (prompt,) = await chat.world.pending()
        token = cards.token(prompt, "deliver", chat.key)
        ref = posts(tmp_path)[0]["ref"]
        await chat.take(
            Pressed(event="e2", target="console:main", person=ANA, token=token, ref=ref)
        )
        await surface.until(lambda platform: platform.of("memory:x") == ["Hi Bo."])
        async with asyncio.timeout(5):
            while len(posts(tmp_path)) < 2:
                await asyncio.sleep(0.01)
    lines = posts(tmp_path)
    assert [line["op"] for line in lines] == ["post", "edit"]
    assert "Allowed and delivered by @console" in lines[1]["card"]


async def test_a_reminder_is_posted_once(quiet: Chat) -> None:
    session = await quiet.world.open()
    await quiet.store.write(
        lambda tx: tx.run(
            "delivery_add",
            id="d1",
            tenant="local",
            session=session,
            kind="show",
            subject="remind:p1/1",
            destination="console:main",
            part=1,
            payload=json.dumps({"text": "Still waiting."}),
            status="open",
            attempted=None,
            now=quiet.world.engine.now(),
        )
    )
    for _ in range(2):
        quiet.presenter.poke()
        async with asyncio.timeout(5):
            while await quiet.rows(
                "deliveries_open", tenant="local", after_at=0.0, after="", limit=9
            ):
                await asyncio.sleep(0.01)
    assert texts(quiet.data) == ["Still waiting."]


# -- the outbox's acts


async def act(chat: Chat, target: str, subject: str = "act:c1/1") -> None:
    """Write the row that is committed with a call's start."""
    now = chat.world.engine.now()
    await chat.store.write(
        lambda tx: tx.run(
            "delivery_add",
            id=f"d-{subject}",
            tenant="local",
            session="s1",
            kind="act",
            subject=subject,
            destination=target,
            part=1,
            payload="{}",
            status="sending",
            attempted=now,
            now=now,
        )
    )


async def row_of(chat: Chat, subject: str = "act:c1/1") -> Any:
    (row,) = await chat.rows("deliveries_of", tenant="local", subject=subject)
    return row


async def test_an_act_is_posted_under_its_subject_and_its_ref_is_stored(quiet: Chat) -> None:
    await act(quiet, "console:team")
    ref = await quiet.outbox.send("console:team", "Good morning.", [], "act:c1/1")
    (line,) = posts(quiet.data, "team")
    row = await row_of(quiet)
    assert (line["delivery"], line["ref"], line["text"]) == ("act:c1/1", ref, "Good morning.")
    assert (row["status"], row["ref"]) == ("sent", ref)


async def test_an_unknown_surface_is_told_with_those_there_are(quiet: Chat) -> None:
    with pytest.raises(ToolError, match=r"no surface 'slack'.*console"):
        await quiet.outbox.send("slack:T1/C1", "x", [], "act:c1/1")


@pytest.mark.parametrize("loss", [TimeoutError(), SurfaceError("cut", certain=False)])
async def test_an_act_whose_reply_was_lost_is_found(
    sqlite_store: Store, tmp_path: Path, loss: BaseException
) -> None:
    surface = MemorySurface()
    surface.losses = [loss]
    async with chatting(
        sqlite_store, tmp_path, ScriptedModel(), at_work=False, surfaces=[surface]
    ) as chat:
        await act(chat, "memory:x")
        ref = await chat.outbox.send("memory:x", "hello", [], "act:c1/1")
    assert (surface.of("memory:x"), ref) == (["hello"], surface.posted[0].ref)


async def test_an_act_nobody_can_tell_of_is_not_called_failed(
    sqlite_store: Store, tmp_path: Path
) -> None:
    surface = MemorySurface(look_up=False)
    surface.losses = [SurfaceError("cut", certain=False)]
    async with chatting(
        sqlite_store, tmp_path, ScriptedModel(), at_work=False, surfaces=[surface]
    ) as chat:
        await act(chat, "memory:x")
        with pytest.raises(TimeoutError):
            await chat.outbox.send("memory:x", "hello", [], "act:c1/1")
        found = await chat.outbox.find("memory:x", "act:c1/1")
        assert (found, (await row_of(chat))["status"]) == ((LookUp.CANNOT_TELL, ""), "sending")


async def test_an_act_that_was_refused_is_a_failure(sqlite_store: Store, tmp_path: Path) -> None:
    surface = MemorySurface()
    surface.failures = [SurfaceError("The channel is archived.")]
    async with chatting(
        sqlite_store, tmp_path, ScriptedModel(), at_work=False, surfaces=[surface]
    ) as chat:
        await act(chat, "memory:x")
        with pytest.raises(ToolError, match="archived"):
            await chat.outbox.send("memory:x", "hello", [], "act:c1/1")
        assert (await row_of(chat))["status"] == "failed"
        assert await chat.outbox.find("memory:x", "act:c1/1") == (LookUp.DID_NOT, "")


async def test_a_look_up_after_a_crash_finds_and_stores_the_ref(quiet: Chat) -> None:
    await act(quiet, "console:team")
    ref = await quiet.console.post("console:team", Message(text="x"), "act:c1/1")
    assert await quiet.outbox.find("console:team", "act:c1/1") == (LookUp.HAPPENED, ref)
    assert (await row_of(quiet))["ref"] == ref
    assert await quiet.outbox.find("console:team", "act:c2/1") == (LookUp.DID_NOT, "")
    assert await quiet.outbox.find("gone:x", "act:c3/1") == (LookUp.CANNOT_TELL, "")


DYING = """
import asyncio, os, signal, sys
from pathlib import Path
from bot.surfaces.console import ConsoleSurface
from engine.clock import system_now
from engine.store.opening import open_store
from tests.fakes.chat import chatting
from tests.fakes.scripted import ScriptedModel

class Dying(ConsoleSurface):
    async def post(self, target, message, delivery):
        await super().post(target, message, delivery)
        os.kill(os.getpid(), signal.SIGKILL)

async def main(data):
    store = await open_store(str(data / "nod.db"))
    model = ScriptedModel(["Good morning."])
    async with chatting(store, data, model, surfaces=[Dying(data, system_now)]) as chat:
        receipt = await chat.said("hello", "e1")
        await chat.shown(receipt.session)

asyncio.run(main(Path(sys.argv[1])))
"""


async def test_a_process_killed_between_post_and_ref_has_posted_once(tmp_path: Path) -> None:
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", DYING, str(tmp_path))
    assert await child.wait() == -signal.SIGKILL
    store = await open_store(str(tmp_path / "nod.db"))
    async with chatting(store, tmp_path, ScriptedModel(), at_work=False) as chat:
        session = await chat.store.read(lambda tx: sessions.find_thread(tx, "local", HOME))
        subject = f"answer:{session}/1/1"
        (before,) = await chat.rows("deliveries_of", tenant="local", subject=subject)
        facts = await chat.world.log(str(session))
        await chat.presenter.caught_up(str(session), facts[-1].seq)
        (after,) = await chat.rows("deliveries_of", tenant="local", subject=subject)
    await store.close()
    (line,) = [line for line in posts(tmp_path) if line["op"] == "post"]
    assert (before["ref"], before["status"]) == (None, "open")
    assert (after["ref"], after["status"]) == (line["ref"], "sent")
