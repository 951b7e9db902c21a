"""Slack with the house behind it: threads, cards, forms, the Home, a crowd in two workspaces."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bot import cards
from bot.cards import token_key
from bot.commands.table import run
from bot.surfaces import slack_sending, slack_stream
from bot.surfaces.slack import SlackSurface
from engine import inbox, people
from engine.models.base import Model, Request
from engine.store.base import Store
from engine.tools.box import standard_tools
from tests.fakes.chat import Chat, chatting
from tests.fakes.ground import grounded
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.slack import FakeSlack
from tests.fakes.slack_state import Post
from tests.unit.slack_desk import config_for

SEND = calls(call("send_message", target="slack:T1/CSTAND", text="Good morning"))
WORDS = "word " * 300
TOOLS = {each.name: each for each in standard_tools()}


@dataclass(slots=True)
class Scene:
    chat: Chat
    fake: FakeSlack
    surface: SlackSurface

    def nods(self, channel: str = "CGEN", team: str = "T1") -> list[Post]:
        return self.fake.teams[team].channels[channel].of_nod

    async def shown(self, text: str, channel: str = "CGEN") -> Post:
        """Wait until a post of Nod shows the text, and return it."""

        def find() -> Post | None:
            return next((p for p in self.nods(channel) if text in everything(p)), None)

        await self.fake.until(find)
        found = find()
        assert found is not None
        return found

    async def card(self, channel: str = "CGEN") -> Post:
        await self.fake.until(lambda: any(p.buttons() for p in self.nods(channel)))
        return next(p for p in self.nods(channel) if p.buttons())

    async def told(self, number: int = 1) -> str:
        """Wait for a private answer and return it."""
        await self.fake.until(lambda: len(self.fake.responses) >= number)
        return str(self.fake.responses[number - 1][1]["text"])

    async def pending(self) -> list[inbox.Prompt]:
        return await self.chat.store.read(lambda tx: inbox.pending(tx, "local"))


def everything(post: Post) -> str:
    return json.dumps([post.text, post.blocks], ensure_ascii=False)


@asynccontextmanager
async def scene(
    store: Store,
    data: Path,
    model: Model,
    *,
    members: Sequence[str] = (),
    teams: Sequence[str] = (),
    slack: FakeSlack | None = None,
    **options: Any,
) -> AsyncIterator[Scene]:
    """Nod at work on a fake Slack; Ana is the owner, `members` are known people."""
    async with _served(slack) as fake:
        for team in teams:
            fake.add_team(team, team)
        await store.write(lambda tx: people.seed_console(tx, "local", 1.0))
        await store.write(
            lambda tx: people.join_owner(tx, "local", "slack", "T1/UANA", name="ana", now=1.0)
        )
        for member in members:
            await store.write(lambda tx, who=member: _admit(tx, who))
        find = TOOLS.get
        async with grounded(data, store, token_key(data), tool=find) as told:
            surface = SlackSurface(config_for(fake), told.ground)
            async with chatting(store, data, model, surfaces=[surface], **options) as chat:
                await fake.connected()
                yield Scene(chat, fake, surface)


@asynccontextmanager
async def _served(slack: FakeSlack | None) -> AsyncIterator[FakeSlack]:
    if slack is not None:
        yield slack
        return
    async with FakeSlack() as made:
        yield made


def _admit(tx: Any, who: str) -> None:
    name = who.partition("/")[2].lower()
    people.add_person(tx, "local", "slack", who, name=name, role="member", by="", now=1.0)


# -- say and answer


async def test_an_answer_is_streamed_into_its_thread_and_ends_with_what_it_took(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([WORDS], chunk=200, hold=asyncio.Event())
    async with scene(sqlite_store, tmp_path, model) as at:
        object.__setattr__(at.chat.stage, "footers", True)
        root = await at.fake.say("@nod hi")
        streamed = await at.shown("word word")
        assert streamed.streaming and streamed.thread == root.ts
        assert model.hold is not None
        model.hold.set()
        answer = await at.shown("1 step")
        assert answer is streamed and not answer.streaming
        await at.fake.until(lambda: not answer.streaming)
        assert everything(answer).count("word") >= 300
        assert at.nods() == [answer]


async def test_an_answer_that_rests_for_ten_minutes_is_one_whole_post_that_never_looks_broken(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slack_sending, "TEND", 0.02)
    model = ScriptedModel([WORDS], chunk=200, hold=asyncio.Event())
    async with scene(sqlite_store, tmp_path, model) as at:
        await at.fake.say("@nod hi")
        post = await at.shown("word word")
        monkeypatch.setattr(slack_stream, "QUIET", 0.0)
        await at.fake.until(lambda: "…" in everything(post))
        at.fake.ahead = 600.0
        assert not post.is_broken(at.fake)
        assert model.hold is not None
        model.hold.set()
        await at.fake.until(lambda: "…" not in everything(post))
        assert everything(post).count("word") >= 300
        assert at.nods() == [post]
        await at.fake.until(lambda: not at.fake.busy)


async def test_a_mention_is_answered_in_its_thread_once(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(["Hello **Ana**."])
    async with scene(sqlite_store, tmp_path, model) as at:
        root = await at.fake.say("@nod hi")  # comes as two events
        answer = await at.shown("Hello")
        await at.chat.world.settle()
        assert answer.thread == root.ts
        assert len(at.nods()) == 1
        assert len(model.requests) == 1


async def test_a_reply_in_the_thread_needs_no_mention_and_a_stranger_line_elsewhere_is_nobodys(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(["One.", "Two."])
    async with scene(sqlite_store, tmp_path, model) as at:
        root = await at.fake.say("@nod hi")
        await at.shown("One.")
        await at.fake.say("lunch?", user="UBEN")
        await at.fake.say("go on", thread=root.ts)
        await at.shown("Two.")
        await at.chat.world.settle()
        assert [post.thread for post in at.nods()] == [root.ts, root.ts]
        assert len(model.requests) == 2


async def test_an_answer_is_shown_while_it_grows_in_one_post_that_is_edited(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(["Part one. " * 40 + "The end."], chunk=40, latency=0.3)
    model.hold = asyncio.Event()
    async with scene(sqlite_store, tmp_path, model) as at:
        await at.fake.direct_say("write")
        growing = await at.shown("Part one", "DANA")
        assert "The end." not in everything(growing) or "…" in everything(growing)
        model.hold.set()
        await at.chat.world.settle()
        await at.fake.until(lambda: "…" not in everything(growing))
        assert len(at.nods("DANA")) == 1
        assert "The end." in everything(growing)


async def test_stop_in_words_stops_also_behind_a_mention(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(["never shown"])
    model.hold = asyncio.Event()
    async with scene(sqlite_store, tmp_path, model) as at:
        root = await at.fake.say("@nod hi")
        await at.fake.until(lambda: model.requests)
        await at.fake.say("@nod stop", thread=root.ts)
        await at.shown("Stopped")


async def test_two_bots_do_not_answer_each_other_for_ever(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(then="@other done")
    async with scene(sqlite_store, tmp_path, model, members=["T1/UBEN"]) as at:
        root = await at.fake.say("@nod hi")
        for n in range(8):
            await at.fake.say(
                f"@nod done {n}", user="UBEN", thread=root.ts, bot_id="BOTHER", kinds=("message",)
            )
            await at.chat.world.settle()
        assert len(model.requests) <= 4


# -- cards


async def test_approve_runs_the_call_once_and_the_card_says_who(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([SEND, "Posted."])
    async with scene(sqlite_store, tmp_path, model, members=["T1/UBEN"]) as at:
        await at.fake.say("@nod greet them")
        card = await at.card()
        assert "slack:T1/CSTAND" in everything(card) and "Good morning" in everything(card)
        async with asyncio.TaskGroup() as group:
            presses = [group.create_task(at.fake.press("Approve", card)) for _ in range(2)]
            presses.append(group.create_task(at.fake.press("Approve", card, user="UBEN")))
        assert all(press.result().ok for press in presses)
        await at.shown("Posted.")
        await at.fake.until(lambda: not card.buttons())
        (post,) = at.nods("CSTAND")
        assert "Good morning" in everything(post)
        assert "Approved by @" in everything(card)
        answers = [(user, shown["text"]) for user, shown in at.fake.responses]
        assert ("UANA" in [user for user, _ in answers]) and len(answers) == 2
        assert any("Already decided" in text for user, text in answers if user == "UANA")
        assert all(shown["response_type"] == "ephemeral" for _, shown in at.fake.responses)


async def test_a_wrong_person_a_forger_and_a_copy_change_nothing(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([SEND])
    async with scene(sqlite_store, tmp_path, model, members=["T1/UBEN"]) as at:
        await at.fake.say("@nod greet them")
        card = await at.card()
        before = everything(card)
        await at.fake.press("Approve", card, user="UBEN")
        assert await at.told(1)
        (prompt,) = await at.pending()
        forged = cards.token(prompt, "once", b"a key of somebody else's")
        await at.fake.press("Approve", card, value=forged)
        assert "not one of mine" in await at.told(2)
        await at.fake.press("Approve", card, user="UNKNOWN")
        assert "not met" in await at.told(3)
        assert len(await at.pending()) == 1
        assert everything(card) == before
        assert at.nods("CSTAND") == []


async def test_an_edit_opens_a_form_from_the_tools_schema_and_what_it_says_is_run(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([SEND, "Posted."])
    async with scene(sqlite_store, tmp_path, model) as at:
        await at.fake.say("@nod greet them")
        card = await at.card()
        await at.fake.press("Edit", card)
        await at.fake.until(lambda: at.fake.views)
        (view,) = at.fake.views.values()
        inputs = {b["block_id"]: b for b in view["blocks"] if b["type"] == "input"}
        assert set(inputs) >= {"target", "text"}
        assert inputs["text"]["element"]["initial_value"] == "Good morning"
        assert (await at.fake.submit({"text": "Good *evening*"})).payload is None
        await at.shown("Posted.")
        (post,) = at.nods("CSTAND")
        assert "evening" in everything(post)
        assert "with changes" in everything(card)


async def test_a_denial_carries_its_reason_to_the_model(
    sqlite_store: Store, tmp_path: Path
) -> None:
    seen: list[str] = []

    def after(request: Request) -> str:
        seen.append(str(request.messages[-1]))
        return "Understood."

    model = ScriptedModel([SEND, after])
    async with scene(sqlite_store, tmp_path, model) as at:
        await at.fake.say("@nod greet them")
        card = await at.card()
        await at.fake.press("Deny", card)
        await at.fake.until(lambda: at.fake.views)
        await at.fake.submit({"reason": "they are on holiday"})
        await at.shown("Understood.")
        assert "they are on holiday" in seen[0]
        assert at.nods("CSTAND") == []
        await at.fake.until(lambda: not card.buttons())


async def test_a_form_sent_after_the_decision_says_so_and_changes_nothing(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([SEND, "Posted."])
    async with scene(sqlite_store, tmp_path, model) as at:
        await at.fake.say("@nod greet them")
        card = await at.card()
        await at.fake.press("Deny", card)
        await at.fake.until(lambda: at.fake.views)
        await at.fake.press("Approve", card)
        await at.shown("Posted.")
        ack = await at.fake.submit({"reason": "too late"})
        assert ack.payload["response_action"] == "errors"
        assert "decided already" in str(ack.payload["errors"])
        assert len(at.nods("CSTAND")) == 1


async def test_who_may_not_answer_sees_no_form(sqlite_store: Store, tmp_path: Path) -> None:
    model = ScriptedModel([SEND])
    async with scene(sqlite_store, tmp_path, model, members=["T1/UBEN"]) as at:
        await at.fake.say("@nod greet them")
        card = await at.card()
        await at.fake.press("Edit", card, user="UBEN")
        assert "not yours" in await at.told()
        assert at.fake.views == {}


async def test_everything_a_prompt_holds_is_one_press_away_and_private(
    sqlite_store: Store, tmp_path: Path
) -> None:
    text = "line\n" * 700
    model = ScriptedModel([calls(call("send_message", target="slack:T1/CSTAND", text=text))])
    async with scene(sqlite_store, tmp_path, model) as at:
        await at.fake.say("@nod greet them")
        card = await at.card()
        assert everything(card).count("line") < 100, "the preview is cut to fit"
        await at.fake.press("Show everything", card)
        await at.fake.until(lambda: at.fake.views)
        (view,) = at.fake.views.values()
        assert json.dumps(view["blocks"]).count("line") >= 700


async def test_a_card_with_a_long_preview_loses_its_buttons_when_it_is_decided(
    sqlite_store: Store, tmp_path: Path
) -> None:
    script = "echo " + "x" * 3_500
    model = ScriptedModel([calls(call("run_shell", command=script)), "Left."])
    async with scene(sqlite_store, tmp_path, model) as at:
        await at.fake.say("@nod run it")
        card = await at.card()
        await at.fake.press("Deny", card)
        await at.fake.until(lambda: at.fake.views)
        await at.fake.submit({})
        await at.shown("Left.")
        await at.fake.until(lambda: not card.buttons())


async def test_a_line_in_the_thread_of_a_card_is_a_no_and_what_to_do(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([SEND, "I wait."])
    async with scene(sqlite_store, tmp_path, model) as at:
        root = await at.fake.say("@nod greet them")
        await at.card()
        await at.fake.say("not yet, wait for Ben", thread=root.ts)
        await at.shown("I wait.")
        assert at.nods("CSTAND") == []


async def test_several_calls_share_a_card_and_may_be_approved_together(
    sqlite_store: Store, tmp_path: Path
) -> None:
    sends = [call("send_message", target="slack:T1/CSTAND", text=f"part {n}") for n in range(3)]
    model = ScriptedModel([calls(*sends), "Posted."])
    async with scene(sqlite_store, tmp_path, model) as at:
        await at.fake.say("@nod greet them")
        card = await at.card()
        assert card.rows("Approve") == 3
        await at.fake.press("Approve all", card)
        await at.shown("Posted.")
        await at.fake.until(lambda: not card.buttons())
        shown = [everything(post) for post in at.nods("CSTAND")]
        assert [f"part {n}" in text for n, text in enumerate(shown)] == [True] * 3


async def test_each_row_of_a_card_is_answered_by_itself(
    sqlite_store: Store, tmp_path: Path
) -> None:
    sends = [call("send_message", target="slack:T1/CSTAND", text=f"part {n}") for n in range(2)]
    model = ScriptedModel([calls(*sends), "Posted."])
    async with scene(sqlite_store, tmp_path, model) as at:
        await at.fake.say("@nod greet them")
        card = await at.card()
        await at.fake.press("Approve", card, row=1)
        await at.fake.until(lambda: card.rows("Approve") == 1)
        await at.fake.press("Approve", card)
        await at.shown("Posted.")
        assert len(at.nods("CSTAND")) == 2


async def test_a_question_is_answered_by_a_press(sqlite_store: Store, tmp_path: Path) -> None:
    ask = call(
        "ask",
        questions=[
            {"question": "Tea?", "header": "Tea", "options": [{"label": "Yes"}, {"label": "No"}]}
        ],
    )
    seen: list[str] = []

    def after(request: Request) -> str:
        seen.append(str(request.messages[-1]))
        return "Noted."

    async with scene(sqlite_store, tmp_path, ScriptedModel([calls(ask), after])) as at:
        await at.fake.say("@nod ask me")
        card = await at.card()
        await at.fake.press("Yes", card)
        await at.shown("Noted.")
        assert "Yes" in seen[0]


async def test_a_card_decided_elsewhere_loses_its_buttons_and_a_late_press_is_told(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with scene(sqlite_store, tmp_path, ScriptedModel([SEND, "Posted."])) as at:
        await at.fake.say("@nod greet them")
        card = await at.card()
        (_, button) = next(each for each in card.buttons() if each[1]["text"]["text"] == "Approve")
        (prompt,) = await at.pending()
        await run(at.chat.context, "approve", prompt.id)  # from the console
        await at.shown("Posted.")
        await at.fake.until(lambda: not card.buttons())
        stale = Post(ts=card.ts, user=card.user, thread=card.thread, blocks=[_row(button)])
        await at.fake.press("Approve", stale)
        assert "Already decided" in await at.told()
        assert len(at.nods("CSTAND")) == 1


def _row(button: Any) -> dict[str, Any]:
    return {"type": "actions", "block_id": "old", "elements": [button]}


async def test_a_card_that_nobody_answers_in_time_says_so_and_loses_its_buttons(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with scene(sqlite_store, tmp_path, ScriptedModel([SEND, "Then not."])) as at:
        await at.fake.say("@nod greet them")
        card = await at.card()
        (_, button) = next(each for each in card.buttons() if each[1]["text"]["text"] == "Approve")
        (prompt,) = await at.pending()
        await at.chat.store.write(lambda tx: inbox.expire(tx, prompt.deadline + 1.0))
        at.chat.world.dispatcher.enqueue(str(prompt.session))
        await at.shown("Then not.")
        await at.fake.until(lambda: not card.buttons())
        assert "No answer in time" in everything(card)
        stale = Post(ts=card.ts, user=card.user, thread=card.thread, blocks=[_row(button)])
        await at.fake.press("Approve", stale)
        assert (await at.told()).startswith("Too late")
        assert at.nods("CSTAND") == []


async def test_a_stop_closes_the_card(sqlite_store: Store, tmp_path: Path) -> None:
    async with scene(sqlite_store, tmp_path, ScriptedModel([SEND])) as at:
        root = await at.fake.say("@nod greet them")
        card = await at.card()
        await at.fake.say("stop", thread=root.ts)
        await at.fake.until(lambda: not card.buttons())
        assert "Stopped" in everything(card)


# -- over restarts


async def test_a_redelivered_event_is_no_second_turn_also_after_a_restart(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with FakeSlack() as fake:
        async with scene(sqlite_store, tmp_path, ScriptedModel(["Once."]), slack=fake) as at:
            await fake.say("@nod hi", kinds=("message",))
            await at.shown("Once.")
            assert (await fake.redeliver()).ok
        model = ScriptedModel(["After."])
        async with scene(sqlite_store, tmp_path, model, slack=fake) as at:
            assert (await fake.redeliver()).ok
            assert (await fake.redeliver()).ok
            await fake.say("@nod next", kinds=("message",))
            await at.shown("After.")
            assert len(at.nods()) == 2
            assert len(model.requests) == 1


async def test_ten_messages_during_a_turn_are_all_there_after_a_restart_in_order(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with FakeSlack() as fake:
        held = ScriptedModel(["Never shown."], hold=asyncio.Event())
        async with scene(sqlite_store, tmp_path, held, slack=fake) as at:
            await fake.direct_say("begin")
            await fake.until(lambda: held.requests)
            for number in range(10):
                await fake.direct_say(f"more {number}")
            assert all(ack.ok for ack in fake.acks)
        then = ScriptedModel(then="All read.")
        async with scene(sqlite_store, tmp_path, then, slack=fake) as at:
            await at.shown("All read.", "DANA")
            await at.chat.world.settle()
        said = re.findall(r"more \d", str(then.requests[-1].messages))
        assert said == [f"more {number}" for number in range(10)]


async def test_a_card_pressed_after_a_restart_still_counts(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with FakeSlack() as fake:
        async with scene(sqlite_store, tmp_path, ScriptedModel([SEND]), slack=fake) as at:
            await fake.say("@nod greet them")
            card = await at.card()
            await fake.press("Edit", card)
            await fake.until(lambda: fake.views)
        async with scene(sqlite_store, tmp_path, ScriptedModel(["Posted."]), slack=fake) as at:
            await fake.submit({"text": "Good evening"})  # the form was open meanwhile
            await at.shown("Posted.")
            assert "Good evening" in everything(at.nods("CSTAND")[0])
            await fake.until(lambda: not card.buttons())


async def test_what_was_never_posted_is_posted_after_the_restart_once(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with FakeSlack() as fake:
        async with scene(sqlite_store, tmp_path, ScriptedModel(["The answer."]), slack=fake) as at:
            fake.fail("chat.postMessage", "internal_error", status=500, times=50)
            await fake.say("@nod hi")
            await at.chat.world.settle()
            assert at.nods() == []
        fake._failures.clear()
        async with scene(sqlite_store, tmp_path, ScriptedModel([]), slack=fake) as at:
            await at.shown("The answer.")
            assert len(at.nods()) == 1


async def test_an_answer_whose_reply_was_lost_is_not_posted_twice(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with scene(sqlite_store, tmp_path, ScriptedModel(["The answer."])) as at:
        at.fake.fail("chat.postMessage", after=True)
        await at.fake.say("@nod hi")
        await at.shown("The answer.")
        await at.fake.say("@nod again", user="UBEN")  # something else to wait for
        await at.fake.until(lambda: at.fake.called("conversations.replies"))
        assert len(at.nods()) == 1


async def test_the_text_arrives_when_the_upload_fails(sqlite_store: Store, tmp_path: Path) -> None:
    make = calls(
        call("write_file", path="a.md", content="x"),
        call("deliver_file", path="a.md", comment="here"),
    )
    async with scene(sqlite_store, tmp_path, ScriptedModel([make, "That is all."])) as at:
        at.fake.teams["T1"].scopes.discard("files:write")
        await at.fake.say("@nod a file")
        await at.shown("That is all.")
        assert at.fake.called("files.completeUploadExternal") == []


# -- the Home


async def test_the_home_is_the_inbox_and_takes_presses(sqlite_store: Store, tmp_path: Path) -> None:
    model = ScriptedModel([SEND, "Posted."])
    async with scene(sqlite_store, tmp_path, model) as at:
        await at.fake.open_home()
        await at.fake.until(lambda: "UANA" in at.fake.homes)
        assert "Nothing waits for you" in json.dumps(at.fake.homes["UANA"])
        await at.fake.say("@nod greet them")
        await at.card()
        await at.fake.open_home()
        await at.fake.until(lambda: "CSTAND" in json.dumps(at.fake.homes["UANA"]))
        assert (await at.fake.press("Approve")).ok
        await at.shown("Posted.")
        await at.fake.until(lambda: "Nothing waits" in json.dumps(at.fake.homes["UANA"]))
        assert len(at.nods("CSTAND")) == 1


async def test_a_stranger_sees_no_board(sqlite_store: Store, tmp_path: Path) -> None:
    async with scene(sqlite_store, tmp_path, ScriptedModel([])) as at:
        await at.fake.open_home("UBEN")
        await at.fake.until(lambda: "UBEN" in at.fake.homes)
        assert "not met yet" in json.dumps(at.fake.homes["UBEN"])


async def test_several_questions_are_answered_in_one_form(
    sqlite_store: Store, tmp_path: Path
) -> None:
    asked = [
        {"question": "Tea?", "options": [{"label": "Yes"}, {"label": "No"}], "allow_text": False},
        {"question": "Which days?", "options": [{"label": "Mon"}, {"label": "Tue"}], "multi": True},
        {"question": "Why?"},
        {"question": "Anything else?"},
    ]
    seen: list[str] = []

    def after(request: Request) -> str:
        seen.append(str(request.messages[-1]))
        return "Noted."

    model = ScriptedModel([calls(call("ask", questions=asked)), after])
    async with scene(sqlite_store, tmp_path, model) as at:
        await at.fake.say("@nod ask me")
        card = await at.card()
        await at.fake.press("Answer in words", card)
        await at.fake.until(lambda: at.fake.views)
        wrong = await at.fake.submit({"q0": "No", "q1": "3", "q2": "Because."})
        assert "no option 3" in str(wrong.payload["errors"]["q1"])
        await at.fake.submit({"q0": "No", "q1": "1, 2", "q2": "Because."})
        await at.shown("Noted.")
        for each in ("No", "Mon", "Tue", "Because."):
            assert each in seen[0]
        assert '"not_answered":["Anything else?"]' in seen[0]
        assert "Answered by @" in everything(card)


# -- many at once


async def test_twenty_people_in_ten_threads_of_two_workspaces_keep_apart(
    sqlite_store: Store, tmp_path: Path
) -> None:
    def echo(request: Request) -> str:
        said = [str(m["content"]) for m in request.messages if m["role"] == "user"]
        return "heard " + " then ".join(each.split("\n")[0] for each in said)

    members = [f"{team}/U{n:02}" for team in ("T1", "T2") for n in range(10)]
    model = ScriptedModel(then=echo)
    async with scene(sqlite_store, tmp_path, model, members=members, teams=["T2"]) as at:
        for team in ("T1", "T2"):
            for n in range(10):
                at.fake.teams[team].users[f"U{n:02}"] = f"person{n}"
                at.fake.teams[team].channels["CGEN"].members.add(f"U{n:02}")

        async def talk(team: str, thread: int) -> tuple[str, str, str]:
            name = f"{team}-{thread}"
            root = await at.fake.say(f"@nod {name}-a", user=f"U{2 * thread:02}", team=team)
            await at.fake.say(f"{name}-b", user=f"U{2 * thread + 1:02}", team=team, thread=root.ts)
            return team, root.ts, name

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(talk(team, n)) for team in ("T1", "T2") for n in range(5)]
        for team, ts, name in [task.result() for task in tasks]:

            def mine(team: str = team, ts: str = ts) -> str:
                return " ".join(everything(p) for p in at.nods("CGEN", team) if p.thread == ts)

            await at.fake.until(lambda name=name, mine=mine: f"{name}-b" in mine(), 20)
            shown = mine()
            assert shown.index(f"{name}-a") < shown.index(f"{name}-b")
            others = {f"{t}-{n}" for t in ("T1", "T2") for n in range(5)} - {name}
            assert not any(f"{other}-a" in shown for other in others)


async def test_a_budget_is_asked_about_on_a_card_and_raised_with_one_press(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(["One.", "Two."])
    async with scene(sqlite_store, tmp_path, model) as at:
        set_to = await at.fake.command("budget all 1 call a day")
        assert "1 call a day for everything" in json.dumps(set_to.payload)
        await at.fake.say("@nod hi")
        await at.shown("One.")
        await at.fake.say("@nod and?")
        card = await at.card()
        assert "A budget is used up" in everything(card)
        await at.fake.press("Raise it to 2 calls a day", card)
        await at.shown("Two.")
        await at.fake.until(lambda: not card.buttons())
        assert "Raised for good by @" in everything(card)
