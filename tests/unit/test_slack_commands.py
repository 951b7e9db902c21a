"""Slack as a person uses it: `/nod …`, commands in threads, hand-over, quorum, reminders."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bot.inbound import quarantine, routing
from bot.outbound.reminding import Reminders
from bot.surfaces.slack_words import command, typed
from engine import inbox, people
from engine.inbox import Prompt
from engine.store.base import Store
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.slack import FakeSlack
from tests.unit.test_slack_house import SEND, Scene, everything, scene


def said(ack: Any) -> str:
    """Return what a command was answered, to its author alone."""
    assert ack.ok
    assert ack.payload["response_type"] == "ephemeral"
    return str(ack.payload["text"])


async def opened(at: Scene, text: str = "@nod hi", answer: str = "Hello.") -> str:
    """Ana begins a thread; return its ts."""
    root = await at.fake.say(text)
    await at.fake.until(
        lambda: any(p.thread == root.ts and answer in everything(p) for p in at.nods())
    )
    await at.chat.world.settle()
    return root.ts


# -- every command


@pytest.mark.parametrize(
    ("typed", "answered"),
    [
        ("help", "/nod status"),
        ("", "/nod status"),
        ("status", "Mode interactive"),
        ("inbox", "Nothing waits for you."),
        ("approve", "Write: /nod approve ID"),
        ("stop", "Stopping. That is “hi”."),
        ("new", "every mention begins a session of its own"),
        ("retry", "Trying again. That is “hi”."),
        ("undo", "Undoing the file changes"),
        ("mode", "There are: discuss, plan, interactive, auto, custom"),
        ("mode plan", "Mode plan from now. That is “hi”."),
        ("mode fast", "There is no mode 'fast'"),
        ("model", "Model practice:test"),
        ("persona", "Persona cowork"),
        ("rules", "No standing rules"),
        ("rules list", "No standing rules"),
        ("rules revoke r1", "No rule has an id"),
        ("files", "no files yet"),
        ("usage", "15 tokens"),
        ("audit", "admitted"),
        ("audit verify", "The audit is whole"),
        ("sessions", "slack:T1/CGEN"),
        ("whoami", "owner, in slack:T1/CGEN"),
        ("settings", "mention in this channel's threads: not needed"),
        ("settings mention on", "must mention me"),
        ("statsu", "Did you mean /nod status?"),
        ("schedule list", "no schedules"),
    ],
    ids=lambda value: value.replace(" ", "-")[:20] or "nothing",
)
async def test_each_command_is_answered_to_its_author_alone(
    sqlite_store: Store, tmp_path: Path, typed: str, answered: str
) -> None:
    """In a channel they concern the person's own session there, and say which it is."""
    async with scene(sqlite_store, tmp_path, ScriptedModel(then="Hello.")) as at:
        await opened(at)
        posts = len(at.nods())
        assert answered in said(await at.fake.command(typed))
        await at.chat.world.settle()
        if typed != "retry":
            assert len(at.nods()) <= posts + (typed == "undo"), "nobody else sees it"


async def test_approve_and_rules_work_from_the_command_line_of_slack(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([SEND, "Posted."])
    async with scene(sqlite_store, tmp_path, model) as at:
        await at.fake.say("@nod greet them")
        card = await at.card()
        (prompt,) = await at.pending()
        assert prompt.id in said(await at.fake.command("inbox"))
        assert "Good morning" in json.dumps((await at.fake.command(f"inbox {prompt.id}")).payload)
        always = said(await at.fake.command(f"approve {prompt.id} always"))
        assert "from now on without asking" in always
        await at.shown("Posted.")
        await at.fake.until(lambda: not card.buttons())
        listed = said(await at.fake.command("rules list"))
        assert "slack:T1/CSTAND" in listed
        rule = listed.split("`")[1]
        assert "is revoked" in said(await at.fake.command(f"rules revoke {rule}"))
        assert "No standing rules" in said(await at.fake.command("rules"))


async def test_a_command_in_a_channel_without_a_session_of_ones_own_says_so(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(then="Hello.")
    async with scene(sqlite_store, tmp_path, model, members=["T1/UBEN"]) as at:
        await opened(at)
        told = said(await at.fake.command("stop", user="UBEN"))
        assert "Nothing was said" in told


async def test_stop_beside_threads_stops_the_turn_at_work_not_the_latest_session(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([SEND], then="Hello.")
    async with scene(sqlite_store, tmp_path, model) as at:
        await at.fake.say("@nod greet them")
        card = await at.card()
        await opened(at, "@nod something else")
        assert "“greet them”" in said(await at.fake.command("stop"))
        await at.fake.until(lambda: not card.buttons())
        assert "Stopped" in everything(card)


async def test_new_begins_a_session_in_a_direct_message(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with scene(sqlite_store, tmp_path, ScriptedModel(then="Hello.")) as at:
        await at.fake.direct_say("hi")
        await at.shown("Hello.", "DANA")
        assert "A new session begins here" in said(await at.fake.command("new", channel="DM"))
        assert "goes back" in said(await at.fake.command("persona cowork", channel="DM"))
        assert "We go on with" in said(await at.fake.command("back", channel="DM"))


# -- in threads, where Slack takes no slash commands


async def test_a_command_is_said_to_nod_in_a_thread_and_answered_to_its_author_alone(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(then="Hello.")
    async with scene(sqlite_store, tmp_path, model, members=["T1/UBEN"]) as at:
        root = await opened(at)
        await opened(at, "@nod another thread")
        calls, posts = len(model.requests), len(at.nods())
        await at.fake.say("@nod /mode plan", thread=root)
        await at.fake.until(lambda: at.fake.whispers)
        ((user, channel, text),) = at.fake.whispers
        assert (user, channel, text) == ("UANA", "CGEN", "Mode plan from now.")
        (told,) = at.fake.called("chat.postEphemeral")
        assert told["thread_ts"] == root
        await at.fake.say("@nod /nod status", thread=root)
        await at.fake.until(lambda: len(at.fake.whispers) == 2)
        assert f"in slack:T1/CGEN/{root}" in at.fake.whispers[1][2]
        await at.fake.say("@nod /whoami", thread=root, user="UBEN")
        await at.fake.until(lambda: len(at.fake.whispers) == 3)
        assert "member" in at.fake.whispers[2][2]
        assert (len(model.requests), len(at.nods())) == (calls, posts), "no model has read it"


async def test_a_command_that_is_said_and_comes_twice_is_carried_out_once(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with scene(sqlite_store, tmp_path, ScriptedModel(then="Hello.")) as at:
        await at.fake.direct_say("hi")
        await at.shown("Hello.", "DANA")
        await at.fake.direct_say(" /new")
        await at.fake.until(lambda: at.fake.whispers)
        assert (await at.fake.redeliver()).ok
        await at.fake.direct_say(" /whoami")
        await at.fake.until(lambda: len(at.fake.whispers) == 2)
        assert "A new session begins here" in at.fake.whispers[0][2]


async def test_what_is_no_command_is_a_message(sqlite_store: Store, tmp_path: Path) -> None:
    model = ScriptedModel(then="Hello.")
    async with scene(sqlite_store, tmp_path, model) as at:
        await opened(at, "@nod /etc/hosts is empty, why?")
        assert "/etc/hosts is empty" in str(model.requests[0].messages)
        await at.fake.say("/status of the build?", channel="CGEN")
        assert at.fake.whispers == []


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("/status", ("status", "")),
        (" /deny p1 not now ", ("deny", "p1 not now")),
        ("/nod deny p1 not now", ("deny", "p1 not now")),
        ("/nod /inbox", ("inbox", "")),
        ("status", None),
        ("/statusx", None),
        ("see /status", None),
        ("", None),
    ],
)
def test_which_message_is_a_command(text: str, meant: tuple[str, str] | None) -> None:
    assert command(text) == meant


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("See /help.", "See /nod help."),
        ("`/inbox p1`", "`/nod inbox p1`"),
        ("with /retry.", "with /nod retry."),
        ("Write: /settings zone Europe/Berlin", "Write: /nod settings zone Europe/Berlin"),
        ("/home/ana/files (write)", "/home/ana/files (write)"),
        ("/files/a.txt and /inbox.md", "/files/a.txt and /inbox.md"),
        ("https://x.org/help", "https://x.org/help"),
        ("/nod help", "/nod help"),
    ],
)
def test_own_words_name_commands_as_they_are_typed_here(text: str, shown: str) -> None:
    assert typed(text) == shown


async def test_what_went_wrong_names_the_command_slack_knows(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with scene(sqlite_store, tmp_path, ScriptedModel([])) as at:
        await at.fake.say("@nod hi")  # the model has nothing to say, and fails
        post = await at.shown("Something went wrong")
        assert "with /nod retry" in everything(post)


# -- more than one person


async def known(at: Scene, who: str, role: str, *, writes: bool = True) -> None:
    """Let somebody in who has written to Nod alone."""
    name = at.fake.teams["T1"].users[who]
    await at.chat.store.write(
        lambda tx: people.add_person(
            tx, "local", "slack", f"T1/{who}", name=name, role=role, by="", now=1.0
        )
    )
    if writes:
        await at.fake.direct_say("hi", user=who)
        await at.shown("Hello.", f"D{who[1:]}")


async def test_a_card_is_handed_over_and_decided_by_the_other_one(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(["Hello.", SEND, "Posted."])
    async with scene(sqlite_store, tmp_path, model) as at:
        await known(at, "UBEN", "operator")
        await at.fake.say("@nod greet them")
        card = await at.card()
        (prompt,) = await at.pending()
        told = said(await at.fake.command(f"hand {prompt.id} @ben"))
        assert told == "ben has the card too. Who answers first decides."
        copy = await at.card("DBEN")
        await at.fake.press("Approve", copy, user="UBEN", channel="DBEN")
        await at.shown("Posted.")
        await at.fake.until(lambda: not card.buttons() and not copy.buttons())
        assert "Approved by @ben" in everything(card) and "Approved by @ben" in everything(copy)


async def test_people_and_channels_in_a_command_are_those_that_were_chosen(
    sqlite_store: Store, tmp_path: Path
) -> None:
    """Slack sends them as marks; a person's handle may differ from the name they go by."""
    model = ScriptedModel(["Hello.", SEND, "Posted."])
    async with scene(sqlite_store, tmp_path, model) as at:
        await known(at, "UBEN", "operator")
        at.surface._teams.get("T1").names.clear()  # as after a restart
        await at.fake.say("@nod greet them")
        await at.card()
        (prompt,) = await at.pending()
        told = said(await at.fake.command(f"hand {prompt.id} <@UBEN|ben.miller>"))
        assert told.startswith("ben has the card too")
        await at.fake.command("settings zone Europe/Berlin", channel="DM")
        card = said(
            await at.fake.command(
                "schedule every day at 8: say &lt;hi&gt; to <#CSTAND|standup>", channel="DM"
            )
        )
        assert "card" in card or "confirm" in card.lower()
        shown = everything(await at.card("DANA"))
        assert "slack:T1/CSTAND" in shown and "say &lt;hi&gt;" in shown


async def test_a_call_of_the_quorum_takes_two_people_and_says_so_to_each(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([SEND, "Posted."])
    async with scene(sqlite_store, tmp_path, model, quorum=("send_message",)) as at:
        await known(at, "UBEN", "operator", writes=False)
        await at.fake.say("@nod greet them")
        card = await at.card()
        await at.fake.press("Approve", card)
        assert "Your vote counts: 1 of 2" in await at.told(1)
        await at.fake.press("Approve", card)
        assert "1 of 2" in await at.told(2), "one person is one vote"
        assert at.nods("CSTAND") == []
        await at.fake.press("Approve", card, user="UBEN")
        await at.shown("Posted.")
        await at.fake.until(lambda: not card.buttons())
        assert len(at.nods("CSTAND")) == 1


async def test_a_reminder_comes_where_the_card_is_and_names_it(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with scene(sqlite_store, tmp_path, ScriptedModel([SEND])) as at:
        root = await at.fake.say("@nod greet them")
        await at.card()
        (prompt,) = await at.pending()
        chat = at.chat
        remind = Reminders(
            chat.store, lambda: prompt.created_at + 86_400.0, "console:main", chat.presenter.poke
        )
        async with remind:
            remind.take([prompt])
            post = await at.shown("Still waiting for your nod, for 1 d")
        assert post.thread == root.ts
        assert f"/nod inbox {prompt.id}" in everything(post)


# -- what fails


async def test_an_event_that_always_fails_is_held_and_listed_with_retry_and_drop(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(sqlite_store, tmp_path, ScriptedModel(then="Hello.")) as at:
        await at.fake.direct_say("hi")
        await at.shown("Hello.", "DANA")
        whole = routing.route

        def crash(tx: Any, house: Any, message: Any) -> Any:
            if "poison" in message.text:
                raise ZeroDivisionError("xoxb-secret")
            return whole(tx, house, message)

        monkeypatch.setattr(routing, "route", crash)
        for number in range(2):
            poison = f"@nod poison {number}"
            await at.fake.say(poison, kinds=("message",))
            for _ in range(quarantine.TRIES - 1):
                await at.fake.redeliver()
            assert [ack.ok for ack in at.fake.acks[-3:]] == [False, False, True]
        await at.fake.until(lambda: sum(bool(p.buttons()) for p in at.nods("DANA")) == 2)
        first, second = (post for post in at.nods("DANA") if post.buttons())
        assert "xoxb" not in everything(first)
        await at.fake.open_home()
        await at.fake.until(lambda: "could not be taken" in json.dumps(at.fake.homes.get("UANA")))
        assert "An event could not be taken" in said(await at.fake.command("inbox"))
        monkeypatch.undo()
        await at.fake.press("Retry", first, channel="DANA")
        at.chat.intake.nudge()
        await at.fake.until(lambda: len(at.nods()) == 1)
        await at.fake.press("Drop", second, channel="DANA")
        await at.fake.until(lambda: not first.buttons() and not second.buttons())
        assert await at.pending() == []
        assert len(at.nods()) == 1


async def test_when_the_owners_own_workspace_is_lost_the_others_go_on_and_the_console_is_told(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(then="Hello.")
    async with scene(sqlite_store, tmp_path, model, members=["T2/UBEN"], teams=["T2"]) as at:
        await at.fake.direct_say("hi")
        await at.shown("Hello.", "DANA")
        at.fake.teams["T1"].revoked = True
        await at.chat.store.write(lambda tx: _notify(tx, at.chat.context.house.now()))
        at.chat.presenter.poke()
        await _until(lambda: "A Slack workspace is not connected" in _console(tmp_path))
        await at.fake.say("@nod hello", team="T2", user="UBEN")
        await at.fake.until(lambda: at.nods(team="T2"))


def _notify(tx: Any, now: float) -> Prompt | None:
    from bot.inbound import answers

    title = "A Slack workspace is not connected"
    return answers.notify(tx, "local", now, "slack:T1", title, "Its token is revoked.")


def _console(data: Path) -> str:
    file = data / "console" / "main.jsonl"
    return file.read_text() if file.exists() else ""


async def _until(holds: Any) -> None:
    async with asyncio.timeout(8.0):
        while not holds():
            await asyncio.sleep(0.02)


async def test_a_card_of_nobody_elses_is_private_to_who_may_see_it(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([SEND])
    async with scene(sqlite_store, tmp_path, model, members=["T1/UBEN"]) as at:
        await at.fake.say("@nod greet them")
        await at.card()
        (prompt,) = await at.chat.store.read(lambda tx: inbox.pending(tx, "local"))
        assert "not yours" in said(await at.fake.command(f"inbox {prompt.id}", user="UBEN"))
        assert "Nothing waits" in said(await at.fake.command("inbox", user="UBEN"))
        assert "role" in said(await at.fake.command("audit", user="UBEN"))


# -- other cards, and the Home


async def test_a_plan_is_shown_and_carried_out_in_the_mode_that_was_chosen(
    sqlite_store: Store, tmp_path: Path
) -> None:
    plan = calls(call("propose_plan", plan="First *look*.", steps=["look", "tidy"]))
    model = ScriptedModel([plan, "I begin."])
    async with scene(sqlite_store, tmp_path, model) as at:
        await at.fake.say("@nod plan it")
        card = await at.card()
        assert "First" in everything(card) and "tidy" in everything(card)
        labels = [button["text"]["text"] for _, button in card.buttons()]
        await at.fake.press(next(each for each in labels if each.startswith("Approve")), card)
        await at.shown("I begin.")
        await at.fake.until(lambda: not card.buttons())
        assert "Approved by @ana" in everything(card)


async def test_when_nobody_can_tell_whether_it_happened_a_person_is_asked(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([SEND, "Then it is done."])
    async with scene(sqlite_store, tmp_path, model) as at:
        await at.fake.say("@nod greet them")
        card = await at.card()
        at.fake.fail("chat.postMessage", after=True)
        at.fake.fail("conversations.history", "internal_error", status=500, times=20)
        await at.fake.press("Approve", card)
        await at.fake.until(lambda: any(p.rows("It happened") for p in at.nods()))
        asked = next(p for p in at.nods() if p.rows("It happened"))
        await at.fake.press("It happened", asked)
        await at.shown("Then it is done.")
        await at.fake.until(lambda: not asked.buttons())
        assert len(at.nods("CSTAND")) == 1, "it is not sent again"


async def test_the_home_lists_what_waits_runs_and_is_planned(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([SEND])
    async with scene(sqlite_store, tmp_path, model) as at:
        await at.fake.command("settings zone Europe/Berlin", channel="DM")
        told = said(await at.fake.command("schedule every day at 8: greet them", channel="DM"))
        assert "card" in told or "confirm" in told.lower()
        planned = await at.card("DANA")
        labels = [button["text"]["text"] for _, button in planned.buttons()]
        await at.fake.press(labels[0], planned, channel="DANA")
        await at.fake.until(lambda: not planned.buttons())
        await at.fake.say("@nod greet them")
        await at.card()
        await at.fake.open_home()
        await at.fake.until(lambda: "UANA" in at.fake.homes)
        home = json.dumps(at.fake.homes["UANA"], ensure_ascii=False)
        for each in ("Waiting for you", "Good morning", "At work", "Planned", "greet them"):
            assert each in home


# -- whom Nod does not know, and a whole organization


async def test_a_command_of_somebody_unknown_brings_the_owner_a_card(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with scene(sqlite_store, tmp_path, ScriptedModel(then="Hello.")) as at:
        await at.fake.direct_say("hi")
        await at.shown("Hello.", "DANA")
        assert "asked my owner" in said(await at.fake.command("inbox", user="UBEN"))
        card = await at.card("DANA")
        await at.fake.press("Allow", card, channel="DANA")
        await at.fake.until(lambda: not card.buttons())
        assert "Nothing waits" in said(await at.fake.command("inbox", user="UBEN"))


async def test_an_organization_is_served_from_mention_to_approved_post(
    sqlite_store: Store, tmp_path: Path
) -> None:
    send = calls(call("send_message", target="slack:E1/CSTAND", text="Good morning"))
    model = ScriptedModel([send, "Posted."])
    async with FakeSlack() as fake:
        fake.add_org("E1", "Starship", "T8", "T9")
        async with scene(sqlite_store, tmp_path, model, slack=fake) as at:
            await at.chat.store.write(
                lambda tx: people.join_owner(tx, "local", "slack", "E1/UANA", name="ana", now=1.0)
            )
            root = await fake.say("@nod greet them", team="E1")
            await fake.until(lambda: any(p.buttons() for p in at.nods(team="E1")))
            card = next(p for p in at.nods(team="E1") if p.buttons())
            assert card.thread == root.ts
            told = said(await fake.command("status", team="E1"))
            assert f"in slack:E1/CGEN/{root.ts}" in told
            await fake.press("Edit", card, team="E1")
            await fake.until(lambda: fake.views)
            await fake.submit({"text": "Good evening"}, team="E1")
            await fake.until(lambda: any("Posted." in everything(p) for p in at.nods(team="E1")))
            (post,) = at.nods("CSTAND", team="E1")
            assert "Good evening" in everything(post)
            assert at.nods("CGEN", team="T1") == at.nods("CSTAND", team="T1") == []
