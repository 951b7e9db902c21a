"""Cards of unattended turns: to their person alone, and a neutral line where they will act."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bot import cards
from bot.inbound import answers
from bot.outbound import follower
from bot.outbound.reminding import Reminders
from bot.surfaces.base import Author, Message, Pressed, SurfaceError
from engine import inbox, people
from engine.inbox import Prompt
from engine.sessions import Post, get, post
from engine.store.base import Store, Tx
from engine.tools.base import Risk
from tests.fakes.chat import Chat, chatting
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.surface import MemorySurface
from tests.fakes.world import probe

CHANNEL = "memory:T1/C1/100"
DM = "memory:T1/D1"
ANA = Author(id="1", name="Ana")
SECRET = "the salary list"


@asynccontextmanager
async def unattended(
    store: Store,
    data: Path,
    place: MemorySurface,
    *,
    home: str = CHANNEL,
    paired: bool = True,
    steps: Any = None,
    **options: Any,
) -> AsyncIterator[tuple[Chat, str]]:
    """A chat whose session, at home in a channel, was started by the clock and asks."""
    model = ScriptedModel(steps or [calls(call("send", label=SECRET)), "Done."])
    tools = [probe("send", Risk.EXTERNAL, [])]
    async with chatting(store, data, model, surfaces=[place], tools=tools, **options) as chat:
        if paired:
            await chat.store.write(_paired)
        session = await chat.world.open(home)
        await chat.store.write(lambda tx: _fire(tx, session))
        chat.context.enqueue(session)
        await chat.shown(session)
        yield chat, session


def _paired(tx: Tx) -> None:
    people.seed_console(tx, "local", 1.0)
    people.join_owner(tx, "local", "memory", ANA.id, name=ANA.name, now=1.0)
    people.seen_at(tx, "local", "memory", ANA.id, DM, 2.0)


def _fire(tx: Tx, session: str) -> None:
    body = {"message": {"role": "user", "content": "Send it."}}
    post(tx, get(tx, session), Post(kind="fire", key="f1", by=people.CONSOLE, body=body), 1.0)


async def asked(chat: Chat) -> Prompt:
    (prompt,) = await chat.world.pending()
    return prompt


async def test_the_card_goes_to_its_person_and_the_thread_learns_nothing_of_it(
    store: Store, tmp_path: Path
) -> None:
    place = MemorySurface()
    async with unattended(store, tmp_path, place) as (chat, session):
        assert place.of(CHANNEL) == [follower.WAITING]
        (card,) = place.of(DM)
        assert SECRET in card
        prompt = await asked(chat)
        token = cards.token(prompt, "once", chat.key)
        ref = place.posted[0].ref
        await chat.take(Pressed(event="e1", target=DM, person=ANA, token=token, ref=ref))
        await chat.shown(session)
        assert "Approved by @" in place.of(DM)[0]
        assert place.of(CHANNEL) == [follower.WAITING, "Done."]
        assert not [each for each in place.posted if each.target == CHANNEL and each.edits]


async def test_several_cards_of_a_turn_are_one_neutral_line(
    sqlite_store: Store, tmp_path: Path
) -> None:
    place = MemorySurface()
    steps = [calls(call("send", label="a")), calls(call("send", label="b")), "Done."]
    async with unattended(sqlite_store, tmp_path, place, steps=steps) as (chat, session):
        await chat.world.answer(await asked(chat), "once")
        await chat.shown(session)
        assert len(place.of(DM)) == 2
        assert place.of(CHANNEL) == [follower.WAITING]


async def test_without_a_private_place_the_card_is_where_it_always_was(
    sqlite_store: Store, tmp_path: Path
) -> None:
    place = MemorySurface()
    async with unattended(sqlite_store, tmp_path, place, paired=False):
        (card,) = place.of(CHANNEL)
        assert SECRET in card


async def test_a_session_at_home_in_the_private_place_has_one_card(
    sqlite_store: Store, tmp_path: Path
) -> None:
    place = MemorySurface()
    async with unattended(sqlite_store, tmp_path, place, home=DM):
        assert len(place.of(DM)) == 1


async def test_a_session_at_home_in_the_console_has_its_card_in_both(
    sqlite_store: Store, tmp_path: Path
) -> None:
    place = MemorySurface()
    async with unattended(sqlite_store, tmp_path, place, home="console:main") as (chat, session):
        assert len(place.of(DM)) == 1
        (line,) = await chat.console.history("console:main", 0.0)
        assert SECRET in line.text
        await chat.world.answer(await asked(chat), "deny")
        await chat.shown(session)
        assert "Denied by @" in place.of(DM)[0]
        assert "Denied by @" in (await chat.console.history("console:main", 0.0))[0].text


async def test_an_attended_turn_asks_in_its_thread(sqlite_store: Store, tmp_path: Path) -> None:
    place = MemorySurface()
    async with unattended(sqlite_store, tmp_path, place, steps=["Hi."]) as (chat, session):
        chat.world.engine.model.steps = [calls(call("send", label="x"))]  # type: ignore[attr-defined]
        body = {"message": {"role": "user", "content": "Send it now."}}
        mail = Post(kind="message", key="m1", by=people.CONSOLE, body=body)
        await chat.store.write(lambda tx: post(tx, get(tx, session), mail, 1.0))
        chat.context.enqueue(session)
        await chat.shown(session)
        assert place.of(DM) == []
        assert "Approve" in place.of(CHANNEL)[-1]


async def test_a_person_who_cannot_be_reached_has_an_inbox(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = MemorySurface()
    posted = place.post

    async def blocked(target: str, message: Message, delivery: str) -> str:
        if target == DM:
            raise SurfaceError("The person has blocked Nod.")
        return await posted(target, message, delivery)

    monkeypatch.setattr(place, "post", blocked)
    async with unattended(sqlite_store, tmp_path, place) as (chat, _):
        (line,) = await chat.console.history("console:main", 0.0)
        assert SECRET in line.text
        assert place.of(CHANNEL) == [follower.WAITING]


async def test_a_reminder_goes_where_the_card_is(sqlite_store: Store, tmp_path: Path) -> None:
    place = MemorySurface()
    async with unattended(sqlite_store, tmp_path, place) as (chat, _):
        now = chat.context.house.now
        prompt = await asked(chat)
        async with Reminders(chat.store, now, "console:main", chat.presenter.poke) as reminders:
            reminders.take([prompt])
            await place.until(lambda surface: len(surface.of(DM)) == 2)
        assert "Still waiting" in place.of(DM)[1]
        assert place.of(CHANNEL) == [follower.WAITING]


async def test_cards_of_no_session_go_where_the_owner_can_be_reached(
    sqlite_store: Store, tmp_path: Path
) -> None:
    place = MemorySurface()
    async with unattended(sqlite_store, tmp_path, place, steps=["Hi."]) as (chat, _):
        await chat.store.write(_notice)
        chat.presenter.poke()
        await place.until(lambda surface: len(surface.of(DM)) == 1)
        assert "Slack is not connected" in place.of(DM)[0]


def _notice(tx: Tx) -> None:
    """The owner was last seen on a platform that is broken now."""
    people.join_owner(tx, "local", "slack", "U1", name="Ana", now=3.0)
    people.seen_at(tx, "local", "slack", "U1", "slack:T1/D1", 4.0)
    answers.notify(tx, "local", 5.0, "surface:slack", "Slack is not connected", "Set a token.")


# -- what never arrives


async def test_a_message_a_thread_will_never_take_is_told_to_the_owner(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = MemorySurface()
    place.failures = [SurfaceError("The channel is archived.")]
    async with unattended(sqlite_store, tmp_path, place, paired=False, steps=["Hi."]) as (chat, s):
        pending = await chat.store.read(lambda tx: inbox.pending(tx, "local"))
        assert [(p.kind, p.payload["title"]) for p in pending] == [
            ("notice", "A message could not be delivered")
        ]
        (row,) = await chat.rows("deliveries_of", tenant="local", subject=f"answer:{s}/1/1")
        assert (row["status"], row["ref"]) == ("failed", None)
        assert "archived" in pending[0].payload["text"]
        assert place.of(CHANNEL) == []


async def test_what_a_platform_did_not_take_for_a_day_has_failed(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "TRIED_FOR", 0.0)
    place = MemorySurface()
    place.failures = [SurfaceError("Slow down.", retry_after=0.0)]
    async with unattended(sqlite_store, tmp_path, place, paired=False, steps=["Hi."]) as (chat, _):
        (prompt,) = await chat.world.pending()
        assert prompt.kind == "notice"
        await asyncio.sleep(0)
