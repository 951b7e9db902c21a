"""Telegram with the house behind it: chains, cards, edits of arguments, moves; one turn each."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot import cards
from bot.cards import token_key
from bot.commands.table import run
from bot.surfaces.config import TelegramConfig
from bot.surfaces.telegram import TelegramSurface
from engine import inbox, people, sessions
from engine.models.base import Model, Request
from engine.store.base import Store
from tests.fakes.chat import Chat, chatting
from tests.fakes.ground import grounded
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.telegram import BOT, TOKEN, FakeTelegram, Sent

ANA, BOB, EVE = 501, 502, 666
GROUP, TEAM = -1005, -1006
REPORT = f"telegram:{BOT}/{TEAM}"
SEND = calls(call("send_message", target=REPORT, text="Good morning"))


@dataclass(slots=True)
class Scene:
    chat: Chat
    fake: FakeTelegram
    surface: TelegramSurface

    async def shown(self, chat: int, text: str) -> Sent:
        """Wait until the chat shows a message with this text, and return it."""

        def find() -> Sent | None:
            return next((each for each in self.fake.of(chat) if text in each.text), None)

        await self.fake.until(find)
        found = find()
        assert found is not None
        return found

    async def card(self, chat: int) -> Sent:
        def find() -> Sent | None:
            return next((each for each in self.fake.of(chat) if each.buttons), None)

        await self.fake.until(find)
        found = find()
        assert found is not None
        return found

    async def pressed(self, card: Sent, label: str, user: int) -> str:
        """Press and return what only the presser is told."""
        query = await self.fake.press(card, label, user)
        await self.fake.until(lambda: query in self.fake.answers)
        return self.fake.answers[query]

    async def listed(self) -> list[sessions.Session]:
        return await self.chat.store.read(lambda tx: sessions.listed(tx, "local", 50))


@asynccontextmanager
async def scene(
    store: Store,
    data: Path,
    model: Model,
    *,
    members: Sequence[int] = (),
    fake: FakeTelegram | None = None,
) -> AsyncIterator[Scene]:
    """Nod at work on a fake Telegram; Ana is the owner, `members` are known people."""
    async with _server(fake) as served:
        await store.write(lambda tx: people.seed_console(tx, "local", 1.0))
        await store.write(
            lambda tx: people.join_owner(tx, "local", "telegram", str(ANA), name="ana", now=1.0)
        )
        for member in members:
            await store.write(
                lambda tx, who=member: people.add_person(
                    tx,
                    "local",
                    "telegram",
                    str(who),
                    name=f"user{who}",
                    role="member",
                    by="",
                    now=1.0,
                )
            )
        async with grounded(data, store, token_key(data)) as told:
            config = TelegramConfig(tokens=(TOKEN,), base_url=served.url)
            surface = TelegramSurface(config, told.ground)
            async with chatting(store, data, model, surfaces=[surface]) as chat:
                yield Scene(chat=chat, fake=served, surface=surface)


@asynccontextmanager
async def _server(fake: FakeTelegram | None) -> AsyncIterator[FakeTelegram]:
    if fake is not None:
        yield fake
        return
    async with FakeTelegram() as made:
        for user in (ANA, BOB, EVE):
            made.private(user)
        made.group(GROUP)
        made.group(TEAM)
        yield made


def last_said(request: Request) -> str:
    content = next(m["content"] for m in reversed(request.messages) if m["role"] == "user")
    return content if isinstance(content, str) else str(content)


# -- threads that are not threads


async def test_a_reply_to_any_message_of_nods_goes_on_with_its_session(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(["First answer.", "Second answer.", "Third answer."])
    async with scene(sqlite_store, tmp_path, model, members=[BOB]) as at:
        await at.fake.say(GROUP, ANA, "@nod_bot one")
        first = await at.shown(GROUP, "First answer.")
        await at.fake.say(GROUP, ANA, "two", reply_to=first.id)
        second = await at.shown(GROUP, "Second answer.")
        await at.fake.say(GROUP, BOB, "a bare line")
        await at.fake.say(GROUP, BOB, "three", reply_to=second.id)
        await at.shown(GROUP, "Third answer.")
        assert len(await at.listed()) == 1
        assert [last_said(r).splitlines()[0] for r in model.requests] == ["one", "two", "three"]
        assert {each.reply_to for each in at.fake.of(GROUP)} == {1}


async def test_a_command_beside_the_chains_is_for_the_persons_own_session_there(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(["Never said."], hold=asyncio.Event())
    async with scene(sqlite_store, tmp_path, model, members=[BOB]) as at:
        await at.fake.say(GROUP, ANA, "@nod_bot begin")
        await model.streamed.wait()
        await at.fake.say(GROUP, BOB, "/stop")  # Bob has none there
        await at.shown(BOB, "Nothing was said")
        await at.fake.say(GROUP, ANA, "/stop@nod_bot")
        await at.shown(GROUP, "Stopped")
        await at.fake.say(GROUP, ANA, "/new")
        await at.shown(ANA, "every mention begins a session of its own")


async def test_two_mentions_are_two_sessions_each_answered_in_its_chain(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(then=lambda request: f"To {last_said(request).splitlines()[0]}.")
    async with scene(sqlite_store, tmp_path, model) as at:
        one = await at.fake.say(GROUP, ANA, "@nod_bot apples")
        two = await at.fake.say(GROUP, ANA, "@nod_bot pears")
        assert (await at.shown(GROUP, "To apples.")).reply_to == one
        assert (await at.shown(GROUP, "To pears.")).reply_to == two
        assert len(await at.listed()) == 2


async def test_a_redelivered_update_is_no_second_turn_also_after_a_restart(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with FakeTelegram() as fake:
        fake.private(ANA)
        async with scene(sqlite_store, tmp_path, ScriptedModel(["Once."]), fake=fake) as at:
            await fake.say(ANA, ANA, "hello")
            await fake.say(ANA, ANA, "/new")
            await at.shown(ANA, "Once.")
            await at.shown(ANA, "A new session begins here.")
            shown = len(fake.of(ANA))
        for update in list(fake.history):
            await fake.again(update["update_id"])
        async with scene(sqlite_store, tmp_path, ScriptedModel(["After."]), fake=fake) as at:
            await fake.say(ANA, ANA, "next")
            await at.shown(ANA, "After.")
            assert len(fake.of(ANA)) == shown + 1
            assert len(await at.listed()) == 2


async def test_an_edit_replaces_what_was_said_and_runs_nothing(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(["Yes.", "Changed, I see."])
    async with scene(sqlite_store, tmp_path, model) as at:
        number = await at.fake.say(ANA, ANA, "hello")
        await at.shown(ANA, "Yes.")
        await at.fake.change(ANA, number, "/new", 5)
        await at.shown(ANA, "Changed, I see.")
        await at.fake.change(ANA, number, "/new", 9)  # only its metadata
        await at.fake.say(ANA, ANA, "/whoami")
        await at.shown(ANA, "owner")
        assert len(model.requests) == 2 and len(await at.listed()) == 1


# -- cards


async def test_only_the_right_person_decides_once_and_everybody_is_told_their_part(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([SEND, "Sent."])
    async with scene(sqlite_store, tmp_path, model, members=[BOB]) as at:
        await at.fake.say(GROUP, ANA, "@nod_bot greet the team")
        card = await at.card(GROUP)
        before = card.text
        assert REPORT in card.text
        assert await at.pressed(card, "Approve", EVE) != ""
        assert await at.pressed(card, "Approve", BOB) != ""
        assert card.text == before and card.buttons and at.fake.of(TEAM) == []
        pressed = [await at.fake.press(card, label, ANA) for label in ("Approve", "Deny")]
        await at.fake.until(lambda: set(pressed) <= set(at.fake.answers))
        await at.shown(GROUP, "Sent.")
        answers = [at.fake.answers[each] for each in pressed]
        assert answers[0] == "" and answers[1].startswith("Already decided. Approved by")
        assert [each.text for each in at.fake.of(TEAM)] == ["Good morning"]
        await at.fake.until(lambda: not card.buttons)
        assert "Approved by @" in card.text


@pytest.mark.parametrize("data", ["signed with another key", "forged", "x" * 64, "AAAA"])
async def test_a_forged_button_changes_nothing(
    sqlite_store: Store, tmp_path: Path, data: str
) -> None:
    async with scene(sqlite_store, tmp_path, ScriptedModel([SEND])) as at:
        await at.fake.say(ANA, ANA, "greet the team")
        card = await at.card(ANA)
        if data == "signed with another key":
            (prompt,) = await at.chat.world.pending()
            data = cards.token(prompt, "once", b"a key of somebody else's")
        query = await at.fake.press_data(ANA, card.id, data, ANA)
        await at.fake.until(lambda: query in at.fake.answers)
        assert "not one of mine" in at.fake.answers[query]
        assert card.buttons and at.fake.of(TEAM) == []


@pytest.mark.parametrize("words", ["yes, but later", "always", '{"folder": "/", "write": true}'])
async def test_a_reply_to_a_card_is_a_no_with_what_to_do_instead(
    sqlite_store: Store, tmp_path: Path, words: str
) -> None:
    model = ScriptedModel([SEND, "Then not."])
    async with scene(sqlite_store, tmp_path, model, members=[BOB]) as at:
        await at.fake.say(GROUP, ANA, "@nod_bot greet the team")
        card = await at.card(GROUP)
        await at.fake.say(GROUP, BOB, "no!", reply_to=card.id)
        await at.fake.say(GROUP, ANA, words, reply_to=card.id)
        await at.shown(GROUP, "Then not.")
        assert at.fake.of(TEAM) == []
        results = [m for m in model.requests[1].messages if m["role"] == "tool"]
        assert words in str(results[0]["content"]) and "no!" not in str(results[0]["content"])
        assert await at.chat.rows("rules_listed", tenant="local") == []


async def test_a_card_decided_elsewhere_loses_its_buttons_and_a_late_press_is_told(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([SEND, "Denied, I see."])
    async with scene(sqlite_store, tmp_path, model) as at:
        await at.fake.say(ANA, ANA, "greet the team")
        card = await at.card(ANA)
        data = card.buttons[0][0]["callback_data"]
        (prompt,) = await at.chat.store.read(lambda tx: inbox.pending(tx, "local"))
        await run(at.chat.context, "deny", prompt.id)
        await at.fake.until(lambda: not card.buttons)
        query = await at.fake.press_data(ANA, card.id, data, ANA)
        await at.fake.until(lambda: query in at.fake.answers)
        assert at.fake.answers[query].startswith("Already decided. Denied by")
        assert at.fake.of(TEAM) == []


async def test_a_card_that_nobody_answers_in_time_loses_its_buttons_and_a_press_is_too_late(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with scene(sqlite_store, tmp_path, ScriptedModel([SEND, "Then not."])) as at:
        await at.fake.say(ANA, ANA, "greet the team")
        card = await at.card(ANA)
        data = card.buttons[0][0]["callback_data"]
        (prompt,) = await at.chat.store.read(lambda tx: inbox.pending(tx, "local"))
        await at.chat.store.write(lambda tx: inbox.expire(tx, prompt.deadline + 1.0))
        at.chat.world.dispatcher.enqueue(str(prompt.session))
        await at.fake.until(lambda: not card.buttons)
        assert "No answer in time" in card.text
        query = await at.fake.press_data(ANA, card.id, data, ANA)
        await at.fake.until(lambda: query in at.fake.answers)
        assert at.fake.answers[query].startswith("Too late")
        assert at.fake.of(TEAM) == []


async def test_a_question_takes_words_by_a_reply_and_its_button_says_so(
    sqlite_store: Store, tmp_path: Path
) -> None:
    ask = calls(call("ask", questions=[{"question": "Why?", "header": "Why"}]))
    seen: list[str] = []

    def after(request: Request) -> str:
        seen.append(str(request.messages[-1]))
        return "Noted."

    async with scene(sqlite_store, tmp_path, ScriptedModel([ask, after])) as at:
        await at.fake.say(ANA, ANA, "ask me")
        card = await at.card(ANA)
        assert "Reply to the card" in await at.pressed(card, "Answer in words", ANA)
        assert card.buttons
        await at.fake.say(ANA, ANA, "Because it rains.")
        await at.shown(ANA, "Noted.")
        assert "Because it rains." in seen[0]


async def test_ten_messages_during_a_turn_are_all_there_after_a_restart_in_order(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with _server(None) as fake:
        held = ScriptedModel(["Never shown."], hold=asyncio.Event())
        async with scene(sqlite_store, tmp_path, held, fake=fake) as at:
            await fake.say(ANA, ANA, "begin")
            while not held.requests:
                await asyncio.sleep(0.01)
            for number in range(10):
                await fake.say(ANA, ANA, f"more {number}")
            await fake.until(lambda: len(fake.reactions) == 11)
        then = ScriptedModel(then="All read.")
        async with scene(sqlite_store, tmp_path, then, fake=fake) as at:
            await at.shown(ANA, "All read.")
            await at.chat.world.settle()
        said = re.findall(r"more \d", str(then.requests[-1].messages))
        assert said == [f"more {number}" for number in range(10)]


async def test_arguments_are_edited_by_answering_the_form_also_after_a_restart(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with _server(None) as fake:
        first = ScriptedModel([SEND])
        async with scene(sqlite_store, tmp_path, first, fake=fake) as at:
            await fake.say(ANA, ANA, "greet the team")
            card = await at.card(ANA)
            assert await at.pressed(card, "Edit", ANA) == ""
            form = await at.shown(ANA, "Other arguments")
            assert "Good morning" in form.text and form.reply_to == card.id
        async with scene(sqlite_store, tmp_path, ScriptedModel(["Sent."]), fake=fake) as at:
            await fake.say(ANA, ANA, "no json", reply_to=form.id)
            await at.shown(ANA, "That is no JSON object.")
            changed = json.dumps({"text": "Good evening"})
            await fake.say(ANA, ANA, changed, reply_to=form.id)
            await at.shown(ANA, "Sent.")
            assert [each.text for each in fake.of(TEAM)] == ["Good evening"]
            await fake.until(lambda: not card.buttons)
            assert "with changes" in card.text


async def test_somebody_unknown_gets_one_line_and_the_owner_a_card(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with scene(sqlite_store, tmp_path, ScriptedModel(["Hello Eve."])) as at:
        await at.fake.say(EVE, EVE, "hi")
        await at.fake.say(EVE, EVE, "anybody?")
        await at.shown(EVE, "We have not met yet.")
        assert len(at.fake.of(EVE)) == 1


# -- streaming


async def test_a_growing_answer_is_a_draft_and_then_one_message(
    sqlite_store: Store, tmp_path: Path
) -> None:
    hold = asyncio.Event()
    model = ScriptedModel(["All of the answer."], latency=0.5, chunk=6, hold=hold)
    async with scene(sqlite_store, tmp_path, model) as at:
        await at.fake.say(ANA, ANA, "hello")
        await at.fake.until(lambda: at.fake.drafts)
        assert at.fake.of(ANA) == []
        hold.set()
        await at.shown(ANA, "All of the answer.")
        assert len(at.fake.of(ANA)) == 1


# -- files


async def test_a_picture_reaches_the_model_and_a_big_file_is_told(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(then=lambda request: "Seen.")
    async with scene(sqlite_store, tmp_path, model) as at:
        held = await at.fake.upload(b"\x89PNG" + b"0" * 9)
        size = {"file_id": held, "file_unique_id": held, "width": 9, "height": 9, "file_size": 13}
        await at.fake.say(ANA, ANA, photo=[size], caption="what is it?")
        await at.shown(ANA, "Seen.")
        assert "photo-1.jpg" in str(model.requests[0].messages)
        big = {"file_id": "f", "file_unique_id": "f", "file_size": 30_000_000, "file_name": "a.zip"}
        await at.fake.say(ANA, ANA, document=big, caption="and this?")
        assert "a.zip" in (await at.shown(ANA, "limit")).text


# -- a group that moves


async def test_after_a_migration_the_session_goes_on_in_the_supergroup(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([SEND, "Done here."])
    async with scene(sqlite_store, tmp_path, model) as at:
        at.fake.group(-7, kind="group")
        await at.fake.say(-7, ANA, "@nod_bot greet the team")
        await at.card(-7)
        await at.fake.migrate(-7, -1007)
        query = await at.fake.press_data(
            -7, 2, at.fake.of(-7)[0].buttons[0][0]["callback_data"], ANA
        )
        await at.fake.until(lambda: query in at.fake.answers)
        await at.shown(-1007, "Done here.")
        (session,) = await at.listed()
        assert session.home.startswith(f"telegram:{BOT}/-1007/")


async def test_a_card_that_waits_is_shown_anew_in_the_supergroup_and_answered_there(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([SEND, "Done here.", "And on."])
    async with scene(sqlite_store, tmp_path, model) as at:
        at.fake.group(-7, kind="group")
        await at.fake.say(-7, ANA, "@nod_bot greet the team")
        old = await at.card(-7)
        await at.fake.migrate(-7, -1007)
        await at.fake.until(lambda: at.fake.history and not at.fake.bot.updates)
        async with asyncio.timeout(10):
            while not at.fake.of(-1007):
                at.chat.presenter.poke()
                await asyncio.sleep(0.02)
        card = await at.card(-1007)
        assert card.labels == old.labels and "Good morning" in card.text
        assert await at.pressed(card, "Approve", ANA) == ""
        await at.fake.until(lambda: not card.buttons and "Approved" in card.text)
        answer = await at.shown(-1007, "Done here.")
        # Whoever answers goes on with the same session; a new mention of an old number does not.
        await at.fake.say(-1007, ANA, "and then?", reply_to=answer.id)
        await at.shown(-1007, "And on.")
        (session,) = await at.listed()
        assert session.home == f"telegram:{BOT}/-1007/m1"
        cards = [each for each in at.fake.of(-1007) if "Approved" in each.text]
        assert cards == [card], "it is not shown twice"


async def test_a_mention_in_the_supergroup_is_not_taken_for_one_of_the_old_number(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(["One.", "Two."])
    async with scene(sqlite_store, tmp_path, model) as at:
        at.fake.group(-7, kind="group")
        for _ in range(2):
            await at.fake.say(-7, ANA, "hm")  # nobody's
        assert await at.fake.say(-7, ANA, "@nod_bot begin") == 3
        await at.shown(-7, "One.")
        await at.fake.migrate(-7, -1007)
        await at.fake.say(-1007, ANA, "hm")
        assert await at.fake.say(-1007, ANA, "@nod_bot something else") == 3
        await at.shown(-1007, "Two.")
        homes = {session.home for session in await at.listed()}
        assert homes == {f"telegram:{BOT}/-1007/m3", f"telegram:{BOT}/-1007/r3"}


async def test_a_turn_that_was_at_work_when_the_group_moved_is_shown_in_the_new_one(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(["All of it."], chunk=4)
    model.hold = asyncio.Event()
    async with scene(sqlite_store, tmp_path, model) as at:
        at.fake.group(-7, kind="group")
        await at.fake.say(-7, ANA, "@nod_bot begin")
        await at.shown(-7, "All of")
        at.fake.moved[-7] = at.fake.group(-1007)  # and nobody has told Nod
        model.hold.set()
        await at.shown(-1007, "All of it.")
        (session,) = await at.listed()
        await at.chat.shown(session.id)
        assert session.home == f"telegram:{BOT}/-1007/m1"
        rows = await at.chat.rows(
            "deliveries_of", tenant="local", subject=f"answer:{session.id}/1/1"
        )
        assert [row["destination"] for row in rows] == [session.home]
        assert rows[0]["ref"] == f"{BOT}/-1007/1"


async def test_a_send_to_a_group_that_moved_finds_it_without_being_told(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([SEND, "Sent."])
    async with scene(sqlite_store, tmp_path, model) as at:
        at.fake.moved[TEAM] = at.fake.group(-1009)
        await at.fake.say(ANA, ANA, "greet the team")
        await at.pressed(await at.card(ANA), "Approve", ANA)
        await at.shown(ANA, "Sent.")
        assert [each.text for each in at.fake.of(-1009)] == ["Good morning"]


# -- many at once


async def test_twenty_people_in_ten_threads_each_get_their_own_answer_in_order(
    sqlite_store: Store, tmp_path: Path
) -> None:
    def step(request: Request) -> str:
        return f"<{last_said(request).splitlines()[0]}>"

    crowd = [1000 + number for number in range(20)]
    async with scene(sqlite_store, tmp_path, ScriptedModel(then=step), members=crowd) as at:
        forum = at.fake.group(-1010, forum=True)
        topics = list(range(50, 60))
        at.fake.topics[forum] |= set(topics)
        for turn in range(2):
            for number, person in enumerate(crowd):
                text = f"@nod_bot {person}-{turn}"
                await at.fake.say(forum, person, text, topic=topics[number % 10])

        def answered() -> bool:
            shown = " ".join(each.text for each in at.fake.of(forum))
            return all(f"{person}-1" in shown for person in crowd[10:])

        await at.fake.until(answered, 30)
        for each in at.fake.of(forum):
            number = int(each.text.strip("<>").partition("-")[0]) - 1000
            assert each.topic == topics[number % 10]
        assert len(await at.listed()) == 10


async def test_a_budget_is_asked_about_and_raised_and_usage_comes_with_a_chart(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(["One.", "Two."])
    async with scene(sqlite_store, tmp_path, model) as at:
        await at.fake.say(ANA, ANA, "/budget me 1 call a day")
        await at.shown(ANA, "1 call a day for @ana")
        await at.fake.say(ANA, ANA, "Hi")
        await at.shown(ANA, "One.")
        await at.fake.say(ANA, ANA, "And?")
        await at.pressed(await at.card(ANA), "Raise it to 2 calls a day", ANA)
        await at.shown(ANA, "Two.")
        await at.shown(ANA, "Raised for good by @ana")
        await at.fake.say(ANA, ANA, "/usage")
        await at.shown(ANA, "A chart comes")
        chart = await at.shown(ANA, "What was used, by day.")
        assert [content[:4] for _, content in chart.files] == [b"\x89PNG"]
