"""Cards before chatter: who goes first after a pause, what is merged, and that nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bot.cards import Card
from bot.surfaces.base import Message, SurfaceError, Task
from bot.surfaces.pacing import CARD, CHATTER, PATIENCE, WORDS, Pacing, Paused, rank_of
from engine.models.base import Answer, Delta, Request
from engine.store.base import Store
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.unit import discord_scene, test_telegram_house
from tests.unit.test_telegram_house import ANA, GROUP

#: Seconds for which the fakes take nothing.
PAUSE = 0.6

CARDED = Message(card=Card(id="c", title="Nod asks", rows=()))
TODO = Message(text="▸ one", tasks=(Task(title="one", status="in_progress"),))


class Platform:
    """Takes what it is sent, or asks to wait."""

    def __init__(self) -> None:
        self.took: list[str] = []
        self.refusals: list[float] = []
        self.asked = 0
        self.open = asyncio.Event()
        self.open.set()

    def work(self, name: str) -> Callable[[], Awaitable[str]]:
        async def do() -> str:
            self.asked += 1
            if self.refusals:
                raise Paused("wait", retry_after=self.refusals.pop(0))
            await self.open.wait()
            self.took.append(name)
            return name

        return do

    async def edit(self, message: Message) -> None:
        await self.work(message.text)()


async def settled() -> None:
    """Let everybody come as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("message", "rank"),
    [
        (CARDED, CARD),
        (Message(text="the answer"), WORDS),
        (TODO, CHATTER),
        (Message(text="the ans …", growing=True), CHATTER),
    ],
    ids=["card", "answer", "progress", "growing"],
)
def test_how_urgent_a_message_is(message: Message, rank: int) -> None:
    assert rank_of(message) == rank


async def test_after_a_pause_the_most_urgent_goes_first_and_none_is_lost() -> None:
    pacing, platform = Pacing(), Platform()
    platform.refusals = [0.05]
    waiting = [
        asyncio.create_task(pacing.send("c", rank, platform.work(name)))
        for name, rank in [("typed", CHATTER), ("words", WORDS), ("more", WORDS), ("card", CARD)]
    ]
    assert await asyncio.gather(*waiting) == ["typed", "words", "more", "card"]
    assert platform.took == ["card", "words", "more", "typed"]
    assert platform.asked == 5, "nobody but the one who was told to wait asked in vain"


async def test_without_a_pause_one_goes_at_a_time_and_a_card_overtakes() -> None:
    pacing, platform = Pacing(), Platform()
    platform.open.clear()
    first = asyncio.create_task(pacing.send("c", WORDS, platform.work("first")))
    await settled()
    rest = [
        asyncio.create_task(pacing.send("c", rank, platform.work(name)))
        for name, rank in [("words", WORDS), ("card", CARD)]
    ]
    other = asyncio.create_task(pacing.send("d", WORDS, platform.work("elsewhere")))
    await settled()
    assert platform.asked == 2, "the other place does not wait for this one"
    platform.open.set()
    await asyncio.gather(first, other, *rest)
    assert platform.took.index("card") < platform.took.index("words")


async def test_of_many_edits_in_a_pause_the_newest_alone_is_shown_and_nobody_waits() -> None:
    pacing, platform = Pacing(), Platform()
    platform.refusals = [0.05]
    for number in range(5):
        step = Message(text=f"step {number}", tasks=TODO.tasks)
        await pacing.show("c", "ref", step, platform.edit)
    assert platform.took == [], "it returned while the place takes nothing"
    await pacing.send("c", CARD, platform.work("card"))
    await pacing.send("c", CHATTER, platform.work("after"))
    assert platform.took == ["card", "step 4", "after"]


async def test_a_whole_answer_replaces_the_edits_that_wait() -> None:
    pacing, platform = Pacing(), Platform()
    platform.refusals = [0.05]
    await pacing.show("c", "ref", Message(text="the …", growing=True), platform.edit)
    await pacing.show("c", "ref", Message(text="the ans …", growing=True), platform.edit)
    await pacing.show("c", "ref", Message(text="the answer"), platform.edit)
    await settled()
    assert platform.took == ["the answer"]


async def test_an_edit_that_comes_while_a_late_one_is_shown_follows_it() -> None:
    pacing, platform = Pacing(), Platform()
    platform.refusals = [0.01]
    await pacing.show("c", "ref", Message(text="one", tasks=TODO.tasks), platform.edit)
    platform.open.clear()
    while platform.asked < 2:
        await asyncio.sleep(0.005)
    await pacing.show("c", "ref", Message(text="two", tasks=TODO.tasks), platform.edit)
    platform.open.set()
    await settled()
    assert platform.took == ["one", "two"]


async def test_a_late_edit_that_is_refused_is_forgotten() -> None:
    pacing, platform = Pacing(), Platform()
    platform.refusals = [0.01]

    async def refused(message: Message) -> None:
        await platform.work(message.text)()
        raise SurfaceError("the message is gone")

    await pacing.show("c", "ref", TODO, refused)
    while platform.asked < 2:
        await asyncio.sleep(0.005)
    await settled()
    await pacing.show("c", "ref", Message(text="two", tasks=TODO.tasks), platform.edit)
    assert platform.took == ["▸ one", "two"]


async def test_a_long_pause_is_told_at_once_in_time_to_queue_again_and_nobody_is_asked() -> None:
    pacing, platform = Pacing(), Platform()
    platform.refusals = [1000.0]
    for _ in range(2):
        with pytest.raises(Paused) as told:
            await pacing.send("c", WORDS, platform.work("words"))
        assert told.value.certain and 1000 - PATIENCE <= (told.value.retry_after or 0) < 1000
    await pacing.sign("c", platform.work("typing"))
    assert platform.asked == 1


async def test_who_waits_too_long_is_told_that_nothing_was_sent() -> None:
    pacing, platform = Pacing(), Platform()
    platform.open.clear()
    first = asyncio.create_task(pacing.send("c", WORDS, platform.work("first")))
    await settled()
    with pytest.raises(Paused) as told:
        await pacing.send("c", WORDS, platform.work("second"), patience=0.01)
    assert told.value.certain
    platform.open.set()
    await first
    assert platform.took == ["first"]


async def test_who_gives_up_in_the_queue_lets_the_next_one_go() -> None:
    pacing, platform = Pacing(), Platform()
    platform.open.clear()
    first = asyncio.create_task(pacing.send("c", WORDS, platform.work("first")))
    await settled()
    second = asyncio.create_task(pacing.send("c", CARD, platform.work("second")))
    third = asyncio.create_task(pacing.send("c", WORDS, platform.work("third")))
    await settled()
    second.cancel()
    platform.open.set()
    assert await asyncio.gather(first, third) == ["first", "third"]


async def test_a_slow_upload_holds_nothing_back() -> None:
    pacing, platform = Pacing(), Platform()
    platform.open.clear()
    slow = asyncio.create_task(pacing.send("c", WORDS, platform.work("file"), holds=False))
    await settled()
    quick = Platform()
    await pacing.send("c", WORDS, quick.work("words"))
    platform.open.set()
    await slow
    assert (quick.took, platform.took) == (["words"], ["file"])


# -- on the platforms


class Unhurried(ScriptedModel):
    """Shows a list; then the place is closed; goes on with the list, and asks for a nod.

    Two more lists are written while nothing is taken; the last of them is "three".
    """

    def __init__(self) -> None:
        act = call("write_file", path="notes.md", content="so far")  # lets the list be shown
        lists = [
            calls(call("todo_write", todos=listed(each)), act) for each in ("one", "two", "three")
        ]
        ask = call("send_message", target="console:standup", text="Good morning")
        super().__init__([*lists, calls(ask), "Done."])
        #: What is waited for before each answer.
        self.before: list[Callable[[], Awaitable[object]]] = []

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Answer, None]:
        if self.before:
            await self.before.pop(0)()
        async for each in super().stream(request):
            yield each


def listed(title: str) -> list[dict[str, Any]]:
    return [{"content": title, "status": "in_progress"}]


async def nothing() -> None:
    """Wait for nothing."""


async def test_on_telegram_a_card_goes_before_progress_after_a_pause(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = Unhurried()
    async with test_telegram_house.scene(sqlite_store, tmp_path, model) as at:
        fake = at.fake

        async def close() -> None:
            await at.shown(GROUP, "one")
            fake.throttle(GROUP, PAUSE)

        model.before = [nothing, close, lambda: fake.until(lambda: GROUP in fake.warned)]
        await fake.say(GROUP, ANA, "@nod_bot greet the team")
        await at.shown(GROUP, "three")
        out = [
            (name, "card" if given.get("reply_markup") else "words")
            for name, given in fake.done
            if name in ("sendRichMessage", "editMessageText")
        ]
        assert out == [
            ("sendRichMessage", "words"),
            ("sendRichMessage", "card"),
            ("editMessageText", "words"),
        ]
        assert fake.impatient == []
        await at.pressed(await at.card(GROUP), "Approve", ANA)
        await at.shown(GROUP, "Done.")


async def test_on_discord_a_card_goes_before_progress_after_a_pause(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = Unhurried()
    async with discord_scene.scene(sqlite_store, tmp_path, model=model) as at:
        fake = at.fake

        def shown(text: str) -> Callable[[], bool]:
            return lambda: text in str(fake.shown(at.thread))

        async def close() -> None:
            await fake.until(shown("one"))
            fake.throttle(at.thread, PAUSE)

        model.before = [nothing, close, lambda: fake.until(lambda: at.thread in fake.warned)]
        said = await fake.say(fake.general, at.ana, f"<@{fake.me['id']}> greet them")
        at.thread = said["id"]
        await fake.until(shown("three"))
        out = [
            (method, "card" if body.get("flags", 0) & 1 << 15 else "words")
            for method, path, body in fake.done
            if path.startswith(f"/channels/{at.thread}/messages") and method in ("POST", "PATCH")
        ]
        assert out == [("POST", "words"), ("POST", "card"), ("PATCH", "words")]
        assert fake.impatient == []
        card = next(each for each in fake.of(at.thread) if each["components"])
        await fake.press(card, "Approve", at.ana)
        await fake.until(shown("Done."))
