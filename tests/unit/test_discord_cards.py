"""Cards, forms and presses on Discord: laid out within its limits, decided once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.cards import card_of
from bot.forms import Field, Form
from bot.surfaces import discord_cards, discord_commands
from engine.inbox import Prompt
from engine.store.base import Store
from tests.fakes import discord_rules
from tests.fakes.discord import discord
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.unit.discord_scene import SEND, labels, scene, words
from tests.unit.test_cards import approval, of_kind

KEY, ZONE = b"k" * 32, ZoneInfo("UTC")
OF_COMPONENTS = {"flags": 1 << 15, "allowed_mentions": {"parse": [], "replied_user": False}}


def laid_out(prompts: Sequence[Prompt], text: str = "", footer: str = "") -> list[dict[str, Any]]:
    """Return the components of a card, as Discord takes them."""
    card = card_of(prompts, "discord:1/2", KEY, str, ZONE)
    made = discord_cards.components(card, text, footer, discord_cards.mark_of("prompt:p1"))
    discord_rules.check_message({"components": made, **OF_COMPONENTS})
    return made


# -- layout


def test_a_card_shows_target_risk_preview_and_its_buttons() -> None:
    made = laid_out([approval()])
    for part in ("send_message", "`slack:T1/C1`", "other people will see it", "Good morning."):
        assert part in words(made)
    assert labels(made)[:4] == [
        "Approve",
        "Always for exactly this target, 30 days",
        "Edit",
        "Deny",
    ]
    assert "Show everything" in labels(made)


def test_a_decided_card_has_no_buttons_and_says_who_and_when() -> None:
    prompt = replace(
        approval(), status="resolved", answer={"kind": "once"}, resolved_by="ana", resolved_at=60.0
    )
    made = laid_out([prompt])
    assert labels(made) == []
    assert "Approved by @ana" in words(made)


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 12, 30])
def test_rows_beyond_the_limits_are_named_and_none_is_lost(rows: int) -> None:
    preview = {"preview": "x" * 1500}
    prompts = [approval(id=f"p{number:012d}", payload=preview) for number in range(rows)]
    made = laid_out(prompts, text="t" * 3000, footer="f" * 900)
    shown = [prompt.id for prompt in prompts if prompt.id in words(made)]
    assert len(shown) == rows or f"{rows - len(shown) + 10} more" in words(made)


def test_a_question_with_many_options_keeps_them_all() -> None:
    options = [{"label": f"{n} " + "long " * 30} for n in range(20)]
    asked = {"questions": [{"question": "Which?", "options": options, "multi": False}]}
    made = laid_out([of_kind("question", asked)])
    assert len(labels(made)) == 21


def test_a_card_pings_nobody_and_hides_nothing_behind_markup() -> None:
    text = "@everyone <@123456789012345678> ||secret|| # x"
    made = laid_out([approval(payload={"preview": text})], text=text, footer=text)
    assert "||secret||" in words(made).replace("\\", "")
    assert "<@123456789012345678>" not in words(made).replace("```", "").split("secret")[0]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text(max_size=3000), min_size=1, max_size=4), st.text(), st.text())
def test_whatever_a_card_says_discord_takes_it(previews: list[str], text: str, footer: str) -> None:
    prompts = [
        approval(id=f"p{n:012d}", payload={"preview": preview, "reason": preview[:200]})
        for n, preview in enumerate(previews)
    ]
    laid_out(prompts, text, footer)


# -- forms

FIELDS = [
    Field(name="text", label="Text", kind="long", value="Good morning"),
    Field(name="count", label="Count", kind="number", value="3", required=False),
    Field(name="loud", label="Loud", kind="flag", value="true"),
    Field(name="mood", label="Mood", kind="choice", value="b", choices=("a", "b")),
    Field(name="more", label="More", kind="json", value="", required=False),
]


def shown(form: Form) -> dict[str, Any]:
    made = discord_cards.modal(form, "t" * 64)
    discord_rules.check_callback(9, 3, made)
    return made


def test_a_form_of_every_kind_of_field_is_a_modal() -> None:
    made = shown(Form(title="send_message", fields=tuple(FIELDS), full=""))
    kinds = [each["component"]["type"] for each in made["components"]]
    assert kinds == [4, 4, 3, 3, 4]
    assert discord_cards.act_of(made["custom_id"]) == (discord_cards.FILLED, "t" * 64)


def test_what_does_not_fit_a_modal_is_named_and_left_as_it_is() -> None:
    many = [replace(FIELDS[0], name=f"f{n}") for n in range(6)]
    long = replace(FIELDS[0], name="essay", value="x" * 4001)
    made = shown(Form(title="t" * 99, fields=(long, *many), full=""))
    assert [each["type"] for each in made["components"]] == [18, 18, 18, 18, 10]
    told = made["components"][-1]["content"]
    assert "essay" in told and "f4" in told and "f5" in told


def test_a_form_without_fields_shows_what_there_is() -> None:
    made = shown(Form(title="", fields=(), full="Everything."))
    assert made["components"] == [{"type": 10, "content": "Everything."}]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.builds(
            Field,
            name=st.text(max_size=120),
            label=st.text(max_size=80),
            kind=st.sampled_from(["text", "long", "number", "flag", "choice", "json"]),
            value=st.text(max_size=5000),
            choices=st.lists(st.text(max_size=120), unique=True, max_size=30).map(tuple),
            required=st.booleans(),
        ),
        max_size=7,
        unique_by=lambda field: field.name,
    ),
    st.text(),
)
def test_whatever_a_form_asks_discord_takes_it(fields: list[Field], title: str) -> None:
    shown(Form(title=title, fields=tuple(fields), full="x"))


def test_a_filled_form_is_read_by_its_names() -> None:
    submitted = [
        {"type": 18, "component": {"type": 4, "custom_id": "text", "value": "hi"}},
        {"type": 18, "component": {"type": 3, "custom_id": "mood", "values": ["a"]}},
        {"type": 18, "component": {"type": 3, "custom_id": "none", "values": []}},
        {"type": 1, "components": [{"type": 4, "custom_id": "old", "value": "form"}]},
        {"type": 10, "content": "told"},
    ]
    assert discord_cards.values(submitted) == {"text": "hi", "mood": "a", "none": "", "old": "form"}


def test_a_custom_id_that_is_not_ours_is_none() -> None:
    for custom_id in ("", "approve", "nod:x:abc", "nod:p:", "nod:p:a b", "nod:p:" + "a" * 65):
        assert discord_cards.act_of(custom_id) == ("", "")


def test_the_list_of_commands_is_one_that_discord_takes() -> None:
    made = discord_commands.commands()
    discord_rules.check_commands(made)
    assert {"help", "status", "inbox", "approve", "stop"} <= {each["name"] for each in made}


# -- in a running chat


async def test_an_answer_streams_into_one_message_of_the_thread(
    sqlite_store: Store, tmp_path: Path
) -> None:
    hold = asyncio.Event()
    model = ScriptedModel(["Hello **Ana**, all is well."], chunk=5, hold=hold)
    async with scene(sqlite_store, tmp_path, model=model) as at:
        said = await at.fake.say(at.fake.general, at.ana, f"<@{at.fake.me['id']}> hello")
        await at.fake.until(lambda: at.fake.shown(said["id"]))
        hold.set()
        await at.fake.until(lambda: at.fake.shown(said["id"]) == ["Hello **Ana**, all is well."])
        assert at.fake.typed == [said["id"]]


async def test_a_press_decides_and_the_card_says_who(sqlite_store: Store, tmp_path: Path) -> None:
    async with scene(sqlite_store, tmp_path, SEND, "Posted.") as at:
        card = await at.ask()
        press = await at.fake.press(card, "Approve", at.ana)
        assert "Approved by @" in await at.decided(card)
        await at.fake.until(lambda: "Posted." in at.fake.shown(at.thread))
    assert press.kinds == [6]
    assert press.told == []


async def test_a_card_pressed_after_a_restart_still_counts(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with discord() as fake:
        async with scene(sqlite_store, tmp_path, SEND, fake=fake) as at:
            card = await at.ask()
        async with scene(sqlite_store, tmp_path, "Posted.", fake=fake) as again:
            await fake.press(card, "Approve", at.ana)
            assert "Approved by @" in await again.decided(card)
            await fake.until(lambda: "Posted." in fake.shown(at.thread))


async def test_of_two_presses_the_first_counts_and_the_second_is_told(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with scene(sqlite_store, tmp_path, SEND, "Posted.") as at:
        card = await at.ask()
        button = {**card, "components": list(card["components"])}
        await at.fake.press(button, "Approve", at.ana)
        await at.decided(card)
        late = await at.fake.press(button, "Approve", at.ana)
        assert "Already decided. Approved by @" in await at.told(late)


@pytest.mark.parametrize("who", ["bob", "eve"])
async def test_the_wrong_person_is_told_privately_and_nothing_changes(
    sqlite_store: Store, tmp_path: Path, who: str
) -> None:
    async with scene(sqlite_store, tmp_path, SEND) as at:
        card = await at.ask()
        before = list(card["components"])
        for label in ("Approve", "Edit", "Deny", "Show everything"):
            press = await at.fake.press(card, label, getattr(at, who))
            assert await at.told(press)
            assert press.kinds == [4]
        assert card["components"] == before
        assert len(await at.pending()) == 1


@pytest.mark.parametrize(
    ("custom_id", "told"),
    [
        pytest.param("old-view:approve", "not one I know any more", id="unknown"),
        pytest.param("nod:p:" + "A" * 64, "not one of mine", id="forged"),
        pytest.param("nod:f:" + "A" * 64, "not one of mine", id="forged_form"),
    ],
)
async def test_a_button_that_is_not_ours_has_a_clear_answer(
    sqlite_store: Store, tmp_path: Path, custom_id: str, told: str
) -> None:
    async with scene(sqlite_store, tmp_path, SEND) as at:
        card = await at.ask()
        press = await at.fake.press(card, "", at.ana, custom_id)
        assert told in await at.told(press)
        assert len(await at.pending()) == 1


async def test_an_edit_in_a_form_runs_with_what_was_written(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with scene(sqlite_store, tmp_path, SEND, "Posted.") as at:
        card = await at.ask()
        opened = await at.fake.press(card, "Edit", at.ana)
        await at.fake.until(lambda: opened.answers)
        await at.fake.submit(opened, {"text": "Good evening"}, at.ana)
        assert "Approved with changes by @" in await at.decided(card)
        await at.fake.until(lambda: "Posted." in at.fake.shown(at.thread))
        history = await at.chat.console.history("console:standup", 0.0)
    assert [line.text for line in history] == ["Good evening"]


async def test_a_denial_may_carry_a_reason(sqlite_store: Store, tmp_path: Path) -> None:
    async with scene(sqlite_store, tmp_path, SEND, "As you wish.") as at:
        card = await at.ask()
        opened = await at.fake.press(card, "Deny", at.ana)
        await at.fake.until(lambda: opened.answers)
        await at.fake.submit(opened, {"reason": "too early"}, at.ana)
        assert "too early" in await at.decided(card)


async def test_everything_is_one_press_away_and_private(
    sqlite_store: Store, tmp_path: Path
) -> None:
    long = calls(call("send_message", target="console:standup", text="x" * 3500 + "END"))
    async with scene(sqlite_store, tmp_path, long) as at:
        card = await at.ask()
        assert "END" not in words(card["components"])
        press = await at.fake.press(card, "Show everything", at.ana)
        await at.fake.until(lambda: "END" in "".join(press.texts))
        why = await at.fake.press(card, "Why do you ask?", at.ana)
        assert await at.told(why)
        assert len(await at.pending()) == 1


async def test_a_card_decided_elsewhere_loses_its_buttons(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with scene(sqlite_store, tmp_path, SEND, "Done.") as at:
        card = await at.ask()
        (prompt,) = await at.pending()
        given = await at.fake.command(at.fake.direct(at.ana), at.ana, "deny", f"{prompt.id} no")
        assert "Denied" in await at.told(given)
        assert "Denied by @" in await at.decided(card)


async def test_a_stop_in_the_thread_closes_its_card(sqlite_store: Store, tmp_path: Path) -> None:
    async with scene(sqlite_store, tmp_path, SEND) as at:
        card = await at.ask()
        await at.fake.say(at.thread, at.ana, "stop")
        assert "Stopped" in await at.decided(card)


async def test_several_calls_share_a_card_and_may_be_approved_together(
    sqlite_store: Store, tmp_path: Path
) -> None:
    both = calls(
        call("send_message", target="console:a", text="one"),
        call("send_message", target="console:b", text="two"),
    )
    async with scene(sqlite_store, tmp_path, both, "Both done.") as at:
        card = await at.ask()
        assert labels(card["components"]).count("Approve") == 2
        await at.fake.press(card, "Approve all", at.ana)
        await at.decided(card)
        await at.fake.until(lambda: "Both done." in at.fake.shown(at.thread))


async def test_a_card_pings_no_approver(sqlite_store: Store, tmp_path: Path) -> None:
    async with scene(sqlite_store, tmp_path, SEND) as at:
        card = await at.ask()
    assert at.fake.pinged == []
    assert f"<@{at.ana['id']}>" not in words(card["components"])


async def test_what_waits_is_offered_while_a_command_is_typed(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with scene(sqlite_store, tmp_path, SEND) as at:
        await at.ask()
        (prompt,) = await at.pending()
        private = at.fake.direct(at.ana)
        assert [
            each["value"] for each in await at.fake.complete(private, at.ana, "approve", "")
        ] == [prompt.id]
        typed = await at.fake.complete(private, at.ana, "deny", f"{prompt.id[:5]} too early")
        assert [each["value"] for each in typed] == [f"{prompt.id} too early"]
        modes = await at.fake.complete(private, at.ana, "mode", "pl")
        assert [each["value"] for each in modes] == ["plan"]
        assert await at.fake.complete(private, at.eve, "approve", "") == []


async def test_a_stranger_has_one_polite_line_and_the_owner_a_card(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with scene(sqlite_store, tmp_path) as at:
        mention = f"<@{at.fake.me['id']}>"
        for text in ("hello", "anybody?"):
            await at.fake.say(at.fake.general, at.eve, f"{mention} {text}")
        await at.fake.until(lambda: at.fake.shown(at.fake.general))
        (prompt,) = await at.pending()
    assert prompt.kind == "access"
    assert len(at.fake.shown(at.fake.general)) == 1


async def test_two_machines_do_not_talk_for_ever(sqlite_store: Store, tmp_path: Path) -> None:
    """Another machine that answers each answer, mentioning Nod in the thread, is left alone."""
    async with scene(sqlite_store, tmp_path) as at:
        model: Any = at.chat.world.engine.model
        model.then = "I heard you."
        mention, robot = f"<@{at.fake.me['id']}>", at.fake.user("robot", bot=True)
        await at.admit(robot)
        said = await at.fake.say(at.fake.general, at.ana, f"{mention} hello")
        await at.fake.until(lambda: at.fake.shown(said["id"]))
        for turn in range(8):
            await at.fake.say(said["id"], robot, f"{mention} and you? {turn}")
        await at.fake.say(said["id"], at.ana, f"{mention} the last word")
        await at.fake.until(lambda: "last word" in str([each.messages for each in model.requests]))
    heard = str(model.requests[-1].messages)
    assert "and you? 0" in heard
    assert "and you? 7" not in heard
