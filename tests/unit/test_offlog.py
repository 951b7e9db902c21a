"""What no log tells of is shown once, in its place, whatever other places and rows do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bot import cards
from bot.inbound import answers, pressing
from bot.outbound import follower
from bot.outbound.outbox import Shown
from bot.surfaces.base import Message, Pressed, SurfaceError
from engine.inbox import Prompt
from engine.store.base import Store
from engine.tools.base import Risk
from tests.fakes.chat import ANA, Chat, chatting
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.surface import MemorySurface
from tests.fakes.world import probe

DM = "memory:dm"


class Watched(MemorySurface):
    """Tells when a post or an edit was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.edits_asked = 0

    async def post(self, target: str, message: Message, delivery: str) -> str:
        self.asked.set()
        return await super().post(target, message, delivery)

    async def edit(self, ref: str, message: Message) -> None:
        self.edits_asked += 1
        await super().edit(ref, message)


@pytest.fixture
def surface() -> Watched:
    return Watched()


@pytest.fixture
async def chat(sqlite_store: Store, tmp_path: Path, surface: Watched) -> AsyncIterator[Chat]:
    """A presenter that shows what is due, and a model that sends something."""
    model = ScriptedModel([calls(call("send", label="a"))], then="Done.")
    tools = [probe("send", Risk.EXTERNAL, [])]
    async with chatting(sqlite_store, tmp_path, model, tools=tools, surfaces=[surface]) as made:
        yield made


async def due(chat: Chat, name: str, place: str, at: float, **payload: Any) -> None:
    """Write a row that carries what is to be shown."""
    await chat.store.write(lambda tx: add(tx, name, place, at, payload))


def add(tx: Any, name: str, place: str, at: float, payload: Any) -> None:
    tx.run(
        "delivery_add",
        id=name,
        tenant="local",
        session="",
        kind="show",
        subject=f"mail:{name}",
        destination=place,
        part=1,
        payload=json.dumps(payload),
        status="open",
        attempted=None,
        now=at,
    )


async def notice(chat: Chat, place: str) -> Prompt:
    """Raise a notice whose card is shown in `place`."""

    def work(tx: Any) -> Prompt:
        now = chat.world.engine.now()
        prompt = answers.notify(tx, "local", now, "test", "A title", "A text")
        assert prompt is not None, "it is the first of its cause"
        answers.show_in(tx, prompt, place, now)
        return prompt

    return await chat.store.write(work)


async def approval(chat: Chat, place: str) -> Prompt:
    """Have a turn ask for a nod, and its card handed to `place`."""
    receipt = await chat.said("hello", "e1")
    await chat.shown(str(receipt.session))
    (prompt,) = await chat.world.pending(str(receipt.session))
    await chat.store.write(lambda tx: answers.show_in(tx, prompt, place, chat.world.engine.now()))
    return prompt


@pytest.mark.parametrize(
    ("raised", "answer", "decided"),
    [(notice, "seen", "Seen by @console"), (approval, "once", "Approved by @console")],
    ids=["card-of-no-session", "card-handed-over"],
)
async def test_a_card_decided_while_it_is_on_its_way_loses_its_buttons(
    chat: Chat, surface: Watched, raised: Any, answer: str, decided: str
) -> None:
    gate = surface.slow[DM] = asyncio.Event()
    prompt = await raised(chat, DM)
    chat.presenter.poke()
    async with asyncio.timeout(5):
        await surface.asked.wait()
    token = cards.token(prompt, answer, chat.key)
    await chat.take(Pressed(event="e2", target="console:x", person=ANA, token=token, ref=""))
    await chat.world.settle()
    gate.set()
    await surface.until(lambda platform: any(decided in text for text in platform.of(DM)))


async def test_what_is_due_is_found_and_redrawn_on_either_store(
    store: Store, tmp_path: Path, surface: Watched
) -> None:
    async with chatting(store, tmp_path, ScriptedModel(), surfaces=[surface]) as chat:
        await due(chat, "a", "memory:x", 1.0, text="A reminder.")
        prompt = await notice(chat, DM)
        chat.presenter.poke()
        await surface.until(lambda platform: len(platform.posted) == 2)
        token = cards.token(prompt, "seen", chat.key)
        await chat.take(Pressed(event="e2", target="console:x", person=ANA, token=token, ref=""))
        await surface.until(lambda platform: "Seen by @console" in platform.of(DM)[0])
        assert surface.of("memory:x") == ["A reminder."]
        raised = await store.write(lambda tx: answers.notify(tx, "local", 2.0, "c", "Alone", "x"))
        chat.presenter.poke()
        async with asyncio.timeout(5):
            while not await chat.rows(
                "deliveries_of", tenant="local", subject=f"prompt:{raised and raised.id}"
            ):
                await asyncio.sleep(0.01)


async def test_a_slow_place_holds_no_other(chat: Chat, surface: Watched) -> None:
    surface.slow["memory:slow"] = asyncio.Event()
    await due(chat, "a", "memory:slow", 1.0, text="held")
    await due(chat, "b", "memory:quick", 2.0, text="shown")
    chat.presenter.poke()
    await surface.until(lambda platform: platform.of("memory:quick") == ["shown"])
    await due(chat, "c", "memory:quick", 3.0, text="also shown")
    chat.presenter.poke()
    await surface.until(lambda platform: len(platform.of("memory:quick")) == 2)


async def test_what_is_due_meanwhile_follows_at_once(chat: Chat, surface: Watched) -> None:
    gate = surface.slow[DM] = asyncio.Event()
    await due(chat, "a", DM, 1.0, text="first")
    chat.presenter.poke()
    async with asyncio.timeout(5):
        await surface.asked.wait()
    await due(chat, "b", DM, 2.0, text="second")
    await due(chat, "c", "memory:x", 3.0, text="elsewhere")
    chat.presenter.poke()
    await surface.until(lambda platform: platform.of("memory:x") == ["elsewhere"])
    gate.set()
    await surface.until(lambda platform: platform.of(DM) == ["first", "second"])


async def test_a_platform_that_hangs_holds_no_other(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "POSTING", 1)
    hung, other = MemorySurface("hung"), MemorySurface("other")
    hung.slow["hung:x"] = asyncio.Event()
    model = ScriptedModel(then="Good morning.")
    async with chatting(sqlite_store, tmp_path, model, surfaces=[hung, other]) as chat:
        for home in ("hung:x", "other:x"):
            await chat.world.say(await chat.world.open(home), "hello")
            await chat.world.settle()
        await other.until(lambda platform: platform.of("other:x") == ["Good morning."])


async def test_rows_that_cannot_be_shown_starve_no_newer_one(chat: Chat, surface: Watched) -> None:
    for number in range(250):
        await due(chat, f"a{number}", "gone:x", 1.0 + number % 2, text="nowhere")
    await due(chat, "b", DM, 3.0, text="shown")
    chat.presenter.poke()
    await surface.until(lambda platform: platform.of(DM) == ["shown"])


@pytest.mark.parametrize(
    "payload",
    [{"prompt": "p-of-nobody"}, {"text": ""}],
    ids=["its-prompt-was-deleted", "it-breaks-the-surface"],
)
async def test_a_row_that_breaks_its_showing_holds_up_no_other(
    chat: Chat, surface: Watched, payload: dict[str, str]
) -> None:
    await due(chat, "a", DM, 1.0, **payload)
    await due(chat, "b", DM, 2.0, text="shown")
    chat.presenter.poke()
    await surface.until(lambda platform: platform.of(DM) == ["shown"])


async def test_what_a_place_refuses_is_given_up_and_its_owner_told_once(
    chat: Chat, surface: Watched
) -> None:
    surface.failures = [SurfaceError("This channel is archived.")]
    await due(chat, "a", DM, 1.0, text="The file could not be fetched.")
    chat.presenter.poke()
    async with asyncio.timeout(5):
        while not (told := await chat.world.pending()):
            await asyncio.sleep(0.01)
    (row,) = await chat.rows("deliveries_of", tenant="local", subject="mail:a")
    assert row["status"] == "failed"
    assert [prompt.kind for prompt in told] == ["notice"]
    assert "archived" in told[0].payload["text"]
    assert "could not be fetched" in told[0].payload["text"]


async def test_a_place_that_is_busy_is_asked_again_and_nothing_is_given_up(
    chat: Chat, surface: Watched
) -> None:
    surface.failures = [SurfaceError("busy", retry_after=0.01)]

    def work(tx: Any) -> None:
        add(tx, "a", DM, 1.0, {"text": "first"})
        add(tx, "b", DM, 2.0, {"text": "second"})

    await chat.store.write(work)
    async with asyncio.timeout(5):
        while len(surface.posted) < 2:
            chat.presenter.poke()
            await asyncio.sleep(0.01)
    assert surface.of(DM) == ["first", "second"]
    assert await chat.world.pending() == []


async def test_a_notice_whose_cause_is_over_says_so_and_the_next_one_is_told(
    chat: Chat, surface: Watched
) -> None:
    await notice(chat, DM)
    chat.presenter.poke()
    await surface.until(lambda platform: len(platform.posted) == 1)
    now = chat.world.engine.now()
    for cause in ("another", "test"):
        await chat.store.write(partial(answers.settle, tenant="local", cause=cause, now=now))
        assert len(await chat.world.pending()) == (cause == "another")
    chat.presenter.poke()
    await surface.until(lambda platform: "This is over" in platform.of(DM)[0])
    await notice(chat, DM)


async def test_a_post_whose_reply_was_lost_is_found_and_not_repeated(
    chat: Chat, surface: Watched
) -> None:
    surface.losses = [SurfaceError("cut", certain=False)]
    now = chat.world.engine.now()
    await due(chat, "a", DM, now, text="once")
    async with asyncio.timeout(5):
        while await chat.rows("deliveries_open", tenant="local", after_at=0.0, after="", limit=9):
            chat.presenter.poke()
            await asyncio.sleep(0.01)
    assert (surface.of(DM), surface.losses) == (["once"], [])


async def test_a_decided_card_whose_message_is_gone_is_asked_for_once(
    chat: Chat, surface: Watched
) -> None:
    prompt = await notice(chat, DM)
    chat.presenter.poke()
    await surface.until(lambda platform: len(platform.posted) == 1)
    async with asyncio.timeout(5):
        while chat.presenter._offlog._lanes:
            await asyncio.sleep(0.01)
    surface.posted.clear()
    token = cards.token(prompt, "seen", chat.key)
    await chat.take(Pressed(event="e2", target="console:x", person=ANA, token=token, ref=""))
    async with asyncio.timeout(5):
        while not surface.edits_asked or chat.presenter._offlog._lanes:
            await asyncio.sleep(0.01)
    rows = await chat.rows("prompts_stale", tenant="local", after_at=0.0, after="", limit=9)
    assert (surface.edits_asked, rows) == (1, [])


async def test_each_message_that_shows_a_card_keeps_its_own_ref(
    chat: Chat, surface: Watched
) -> None:
    prompt = await notice(chat, DM)
    chat.presenter.poke()
    await surface.until(lambda platform: len(platform.posted) == 1)
    async with asyncio.timeout(5):
        while chat.presenter._offlog._lanes:
            await asyncio.sleep(0.01)
    twin = await surface.post(DM, Message(text="the same card, posted before a crash"), "twin")
    press = Pressed(event="e2", target=DM, person=ANA, token="", ref=twin)
    await chat.store.write(lambda tx: pressing.add_ref(tx, prompt, press, 1.0))
    subject = f"prompt:{prompt.id}"
    rows = await chat.rows("deliveries_of", tenant="local", subject=subject)
    refs = {row["ref"] for row in rows}
    for row in rows:
        shown = Shown(session="", subject=subject, destination=DM, ref=row["ref"], shown="x")
        await chat.store.write(partial(chat.outbox.record, shown=shown))
    rows = await chat.rows("deliveries_of", tenant="local", subject=subject)
    assert len(refs) == 2
    assert {(row["ref"], row["shown"]) for row in rows} == {(ref, "x") for ref in refs}
