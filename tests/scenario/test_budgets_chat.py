"""A budget from the chat side: set by a command, asked about on a card, answered by a press."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from bot import cards
from bot.surfaces.base import Author, Commanded, Pressed, Said
from engine import inbox, people
from engine.inbox import Prompt
from engine.models.base import Answer
from engine.store.base import Store, Tx
from tests.fakes.chat import Chat, chatting
from tests.fakes.scripted import ScriptedModel
from tests.fakes.surface import MemorySurface, Posted

ANA, BO = Author(id="U1", name="ana"), Author(id="U2", name="bo")
THREAD, DM = "memory:T/C/1", "memory:T/D1"
_numbers = itertools.count(1)


def said(text: str) -> Answer:
    return Answer(text=text, model="practice:test", cost=0.5)


@asynccontextmanager
async def at_home(
    store: Store, data: Path, *texts: str
) -> AsyncIterator[tuple[Chat, MemorySurface]]:
    """Ana, the owner, whom Nod reaches in DM, and Bo, a member."""
    surface = MemorySurface("memory")

    def meet(tx: Tx) -> None:
        people.join_owner(tx, "local", "memory", "U1", name="ana", now=1.0)
        people.seen_at(tx, "local", "memory", "U1", DM, 1.0)
        bo = {"name": "bo", "role": "member", "by": people.CONSOLE, "now": 1.0}
        people.add_person(tx, "local", "memory", "U2", **bo)

    model = ScriptedModel([said(text) for text in texts])
    async with chatting(store, data, model, surfaces=[surface]) as chat:
        await store.write(meet)
        yield chat, surface


async def say(chat: Chat, text: str, by: Author = ANA, target: str = THREAD) -> None:
    event = Said(event=f"e{next(_numbers)}", target=target, person=by, text=text)
    await chat.take(event)
    await chat.world.settle()


async def command(chat: Chat, name: str, arguments: str, by: Author = ANA) -> str:
    event = f"c{next(_numbers)}"
    given = Commanded(event=event, target=THREAD, person=by, name=name, arguments=arguments)
    return (await chat.take(given)).text


async def press(chat: Chat, prompt: Prompt, answer: str, by: Author = ANA) -> str:
    token = cards.token(prompt, answer, chat.key)
    event = f"p{next(_numbers)}"
    receipt = await chat.take(Pressed(event=event, target=THREAD, person=by, token=token, ref=""))
    await chat.world.settle()
    return receipt.text


async def shown(surface: MemorySurface, where: str, words: str) -> Posted:
    """Wait until a message in `where` holds these words."""

    def found() -> list[Posted]:
        return [each for each in surface.posted if each.target == where and words in each.shown]

    async with asyncio.timeout(5), surface.changed:
        await surface.changed.wait_for(found)
    return found()[0]


async def card(chat: Chat) -> Prompt:
    [waiting] = await chat.store.read(lambda tx: inbox.pending(tx, "local"))
    return waiting


def count(surface: MemorySurface, test: Callable[[Posted], bool]) -> int:
    return sum(1 for each in surface.posted if test(each))


async def test_a_budget_is_set_asked_about_and_raised_with_one_press(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with at_home(sqlite_store, tmp_path, "One.", "Two.") as (chat, surface):
        assert "$0.50 a day for everything" in await command(chat, "budget", "all $0.50 a day")
        await say(chat, "Hi")
        await shown(surface, THREAD, "One.")
        await say(chat, "And?")
        asked = await shown(surface, THREAD, "A budget is used up")
        for words in (
            "Spent so far: $0.50 of $0.50",
            "Go on: $0.25 more today",
            "Raise it to $1.00",
        ):
            assert words in asked.shown
        await press(chat, await card(chat), "raise")
        await shown(surface, THREAD, "Two.")
        decided = await shown(surface, THREAD, "Raised for good by @")
        assert decided.ref == asked.ref
        assert count(surface, lambda each: "A budget is used up" in each.shown) == 1
        assert "$1.00 a day · " in await command(chat, "budget", "")


async def test_a_line_in_words_neither_stops_nor_extends_and_is_read_when_it_goes_on(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with at_home(sqlite_store, tmp_path, "One.", "Two.") as (chat, surface):
        await command(chat, "budget", "me $0.50 a day")
        await say(chat, "Hi", target=DM)
        await say(chat, "And?", target=DM)
        await say(chat, "What did that cost?", target=DM)
        await press(chat, await card(chat), "approve")
        await shown(surface, DM, "Two.")
        model = chat.world.engine.model
        assert isinstance(model, ScriptedModel)
        assert "What did that cost?" in str(model.requests[-1].messages[-1])


async def test_the_card_of_a_members_turn_goes_to_the_owner(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with at_home(sqlite_store, tmp_path, "One.", "Two.") as (chat, surface):
        await command(chat, "budget", "@bo $0.50 a day")
        await say(chat, "Hi", BO)
        await say(chat, "And?", BO)
        await shown(surface, DM, "A budget is used up")
        await shown(surface, THREAD, "Waiting for a nod.")
        assert "needs somebody with the role owner" in await press(
            chat, await card(chat), "approve", BO
        )
        await press(chat, await card(chat), "approve")
        await shown(surface, THREAD, "Two.")
        await shown(surface, DM, "Extended once by @")


async def test_the_end_at_the_hard_limit_says_what_to_do(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with at_home(sqlite_store, tmp_path, "One.") as (chat, surface):
        await command(chat, "budget", "all stop at $0.50 a day")
        await say(chat, "Hi")
        await say(chat, "And?")
        told = await shown(surface, THREAD, "The budget for everything is spent")
        assert "Something went wrong" not in told.shown
        assert "Wait for tomorrow, or have it raised: see /budget" in told.shown
