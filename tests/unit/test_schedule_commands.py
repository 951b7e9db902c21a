"""`/schedule` as people type it: a card first, then what can be seen and steered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from bot import cards
from bot.commands.table import run
from bot.surfaces.base import Pressed
from engine import inbox
from engine.canonical import loads
from engine.errors import NodError
from engine.inbox import Person, Prompt
from engine.permissions import rules
from engine.schedule import runs, schedules
from engine.schedule.schedules import Schedule
from engine.store.base import Store
from tests.fakes.chat import ANA, Chat, chatting
from tests.fakes.scripted import ScriptedModel

NOW = 1_750_057_320.0  # Mon 16 Jun 2025, 07:02 UTC


@pytest.fixture
async def chat(sqlite_store: Store, tmp_path: Path) -> AsyncIterator[Chat]:
    async with chatting(
        sqlite_store, tmp_path, ScriptedModel(), at_work=False, presenting=False, now=lambda: NOW
    ) as made:
        yield made


async def do(
    chat: Chat, line: str, *, target: str = "console:main", role: str = "owner", by: str = "console"
) -> str:
    name, _, arguments = line.partition(" ")
    context = replace(chat.context, person=Person(id=by, role=role, name=by), target=target)
    return await run(context, name, arguments)


async def card(chat: Chat) -> Prompt:
    waiting = await chat.store.read(lambda tx: inbox.pending(tx, "local"))
    assert len(waiting) == 1, waiting
    return waiting[0]


async def planned(chat: Chat) -> list[Schedule]:
    return await chat.store.read(lambda tx: schedules.listed(tx, "local"))


async def made(chat: Chat, line: str = "schedule every weekday at 8: Brief us.") -> Schedule:
    """Type it, and confirm the card."""
    await do(chat, line)
    await do(chat, f"approve {(await card(chat)).id}")
    [schedule] = await planned(chat)
    return schedule


@pytest.mark.parametrize(
    ("said", "when", "task"),
    [
        pytest.param(
            "every weekday at 8: morning briefing",
            "At 08:00, Monday through Friday (UTC)",
            "morning briefing",
            id="rhythm",
        ),
        pytest.param(
            'tomorrow 17:30: say: "it\'s time"\nand go',
            "Once, Tue 17 Jun 2025, 17:30 (UTC)",
            'say: "it\'s time"\nand go',
            id="moment-and-words-kept-as-typed",
        ),
        pytest.param("in 2 hours: go", "Once, Mon 16 Jun 2025, 09:02 (UTC)", "go", id="C-13"),
        pytest.param("0 8 * * 1-5: go", "At 08:00, Monday through Friday (UTC)", "go", id="cron"),
        pytest.param("@daily: go", "At 00:00, every day (UTC)", "go", id="alias"),
    ],
)
async def test_what_is_typed_is_answered_with_a_card_and_not_scheduled(
    chat: Chat, said: str, when: str, task: str
) -> None:
    told = await do(chat, f"schedule {said}")
    assert when in told and "Nothing is scheduled before" in told
    prompt = await card(chat)
    assert dict(prompt.payload["facts"])["When"] == when
    assert prompt.payload["arguments"]["instructions"] == task
    assert await planned(chat) == []
    shown = await chat.rows("deliveries_of", tenant="local", subject=f"prompt:{prompt.id}")
    assert [row["destination"] for row in shown] == ["console:main"]


@pytest.mark.parametrize(
    ("said", "says"),
    [
        pytest.param("every weekday at 8:", "needs a", id="nothing-to-do"),
        pytest.param("today 7:00: go", "it is now Mon 16 Jun 2025, 07:02", id="C-08-past"),
        pytest.param("today 7:02: go", "is past", id="C-08-now"),
        pytest.param("every day at 8: brief to #standup", "/settings name #standup", id="place"),
        pytest.param("show nosuch", "No schedule", id="no-such"),
        pytest.param("edit x", "not understood", id="edit-what"),
        pytest.param("add x", "not understood", id="add-what"),
        pytest.param("add soon go", "do not surely understand 'soon'", id="exact-form"),
        pytest.param("every day at 8, retry 9: go", "0 to 5", id="rule-out-of-range"),
        pytest.param("add --retry 9 x y", "not surely|not understood|0 to 5", id="option"),
        pytest.param("0 0 31 2 *: go", "never comes", id="impossible-cron"),
        pytest.param("every day at 8 Mars/Base: go", "no time zone 'Mars/Base'", id="zone"),
    ],
)
async def test_what_cannot_be_is_refused_and_asks_nobody(chat: Chat, said: str, says: str) -> None:
    with pytest.raises(NodError, match=says):
        await do(chat, f"schedule {said}")
    assert await chat.store.read(lambda tx: inbox.pending(tx, "local")) == []


@pytest.mark.parametrize(
    ("said", "why"),
    [
        pytest.param("soon: go", "I do not surely understand 'soon'", id="when"),
        pytest.param("every weekday at 8", "I do not see when, and what to do", id="no-colon"),
        pytest.param("every day at 8, retry a lot: go", "'retry a lot'", id="rule"),
    ],
)
async def test_words_that_are_not_clear_are_read_by_the_model_only_after_a_press(
    chat: Chat, said: str, why: str
) -> None:
    told = await do(chat, f"schedule {said}")
    assert why in told and "Write for example" in told and "Ask Nod" in told
    again = await do(chat, f"schedule {said}")
    prompt = await card(chat)
    assert again == told
    assert await chat.rows("sessions_runnable", now=NOW, limit=9) == [], "nobody reads it yet"
    assert [choice.label for choice in cards.choices(prompt).values()] == ["Ask Nod", "Leave it"]
    await do(chat, f"approve {prompt.id}")
    [session] = await chat.rows("sessions_runnable", now=NOW, limit=9)
    [mail] = await chat.rows("mail_waiting", session=session["id"])
    content = loads(mail["body"])["message"]["content"]
    assert mail["kind"] == "message" and content.startswith(f"{said}\n<nod-note>")
    assert "propose_schedule" in content and "on Monday 2025-06-16 07:02, which" in content
    assert await planned(chat) == []


async def test_words_that_are_left_alone_are_read_by_nobody(chat: Chat) -> None:
    await do(chat, "schedule soon: go")
    await do(chat, f"deny {(await card(chat)).id}")
    assert await chat.rows("sessions_runnable", now=NOW, limit=9) == []


@pytest.mark.parametrize(
    ("target", "said", "place"),
    [
        pytest.param("slack:T1/C9", "<#C1|standup>", "slack:T1/C1", id="slack-mention"),
        pytest.param("discord:G1/C9/T1", "<#42>", "discord:G1/42", id="discord-mention"),
        pytest.param("console:main", "slack:T1/C1/17.1", "slack:T1/C1/17.1", id="target"),
        pytest.param("console:main", "#standup", "telegram:B/-100", id="name"),
        pytest.param("console:main", "here", "", id="here"),
    ],
)
async def test_the_place_it_reports_to_is_exact(
    chat: Chat, target: str, said: str, place: str
) -> None:
    """C-13: the target is kept with the schedule."""
    await do(chat, "settings zone UTC")
    await do(chat, "settings name #Standup", target="telegram:B/-100/7")
    await do(chat, f"schedule every day at 8: talk to people to {said}", target=target)
    arguments = (await card(chat)).payload["arguments"]
    assert (arguments["report_to"], arguments["instructions"]) == (place, "talk to people")


async def test_words_that_name_no_place_stay_words(chat: Chat) -> None:
    await do(chat, "schedule every day at 8: say hello to everybody")
    assert (await card(chat)).payload["arguments"]["instructions"] == "say hello to everybody"


async def test_times_are_read_in_the_zone_of_the_person(chat: Chat) -> None:
    told = await do(chat, "settings zone America/New_York")
    assert "America/New_York" in told
    assert "your zone: `America/New_York`" in await do(chat, "settings")
    assert "(not set)" in await do(chat, "settings", by="u2")
    schedule = await made(chat)
    assert schedule.zone == "America/New_York"
    zone = ZoneInfo("America/New_York")
    assert datetime.fromtimestamp(schedule.next_at or 0, zone).hour == 8
    with pytest.raises(NodError, match="no time zone"):
        await do(chat, "settings zone Mars/Base")


async def test_in_chat_the_exact_form_is_a_card_too(chat: Chat) -> None:
    """On the console, where whoever types it runs the process, it is there at once."""
    await do(chat, 'schedule add "0 8 * * 1-5" Brief us.', target="slack:T1/D1")
    assert (await card(chat)).payload["schedule"]["home"] == "slack:T1/D1"
    assert await planned(chat) == []
    await do(chat, 'schedule add "0 8 * * 1-5" Brief us.')
    assert len(await planned(chat)) == 1


async def test_a_press_confirms_with_the_rule_and_a_change_asks_again(chat: Chat) -> None:
    await do(chat, "schedule every day at 8: brief us to slack:T1/C1")
    first = await card(chat)
    arguments = {**first.payload["arguments"], "when": "every day at 9"}

    async def press(prompt: Prompt, answer: str, event: str = "once", **more: object) -> str:
        pressed = Pressed(
            event=f"{prompt.id}-{answer}-{event}",
            target="console:main",
            person=ANA,
            token=cards.token(prompt, answer, chat.key),
            ref="",
            **more,  # type: ignore[arg-type]
        )
        return (await chat.take(pressed)).text

    assert "surely" in await press(first, "edit", arguments={**arguments, "when": "soon"})
    refused = await card(chat)
    assert refused.id == first.id, "what cannot be leaves the card as it was"
    assert await press(first, "edit", "again", arguments=arguments) == ""
    second = await card(chat)
    await press(second, "rule")
    [schedule] = await planned(chat)
    assert schedule.cron == "0 9 * * *"
    [rule] = await chat.store.read(lambda tx: rules.of_schedule(tx, schedule.id))
    assert rule.rule.target == ("slack:T1/C1",)
    assert f"in runs of schedule {schedule.id}" in await do(chat, "rules")
    assert "send_message to slack:T1/C1" in await do(chat, f"schedule show {schedule.id}")


async def test_the_rule_can_be_chosen_in_words(chat: Chat) -> None:
    await do(chat, "schedule every day at 8: brief us")
    with pytest.raises(NodError, match="reports only here"):
        await do(chat, f"approve {(await card(chat)).id} always")
    await do(chat, f"deny {(await card(chat)).id}")
    await do(chat, "schedule every day at 8: brief us to slack:T1/C1")
    said = await do(chat, f"approve {(await card(chat)).id} always")
    assert "posts there without asking" in said
    [schedule] = await planned(chat)
    assert len(await chat.store.read(lambda tx: rules.of_schedule(tx, schedule.id))) == 1


async def test_a_member_is_shown_only_their_own(chat: Chat) -> None:
    await made(chat)
    assert "Brief us." not in await do(chat, "schedule list", role="member", by="bo")
    assert "Brief us." in await do(chat, "schedule list", role="operator", by="cy")


@pytest.mark.parametrize("verb", ["show", "history", "run", "pause", "resume", "remove"])
async def test_which_schedule_has_to_be_said(chat: Chat, verb: str) -> None:
    with pytest.raises(NodError, match="Say which schedule"):
        await do(chat, f"schedule {verb}")


async def test_one_that_is_added_from_a_script_says_when_in_words_and_where(chat: Chat) -> None:
    told = await do(chat, 'schedule add "0 17 * * 5" "List it."')
    assert "At 17:00, only on Friday (UTC) (0 17 * * 5)." in told
    assert "Next: Fri 20 Jun 2025, 17:00. It reports to console:main." in told
    told = await do(chat, 'schedule add "in 2 hours" "Look."')
    assert ": Once, Mon 16 Jun 2025, 09:02 (UTC). It reports to console:main." in told
    told = await do(chat, 'schedule add "when deploy-done" "Look."')
    assert ": Whenever the event deploy-done comes. It reports to" in told


async def test_it_is_shown_run_paused_resumed_and_removed(chat: Chat) -> None:
    schedule = await made(chat)
    assert "Brief us." in await do(chat, "schedule list")
    shown = await do(chat, f"schedule show {schedule.id[:6]}")
    assert "Next: Mon 16 Jun 2025, 08:00" in shown and "It has not run yet." in shown
    assert "runs now, in session" in await do(chat, f"schedule run {schedule.id}")
    with pytest.raises(NodError, match="this very moment"):
        await do(chat, f"schedule run {schedule.id}")
    assert "started" in await do(chat, f"schedule history {schedule.id}")
    assert "(last run: started)" in await do(chat, "schedule")
    await do(chat, f"schedule pause {schedule.id}")
    assert "switched off" in await do(chat, "schedule")
    assert "next Mon 16 Jun 2025, 08:00" in await do(chat, f"schedule resume {schedule.id}")
    await do(chat, f"schedule delete {schedule.id}")
    assert "There are no schedules" in await do(chat, "schedule")


@pytest.mark.parametrize(
    ("said", "cron", "task"),
    [
        pytest.param("every day at 9", "0 9 * * *", "Brief us.", id="time"),
        pytest.param(": Brief them.", "0 8 * * 1-5", "Brief them.", id="task"),
        pytest.param("every day at 9:30: Brief them.", "30 9 * * *", "Brief them.", id="both"),
    ],
)
async def test_an_edit_is_a_card_and_changes_the_same_schedule(
    chat: Chat, said: str, cron: str, task: str
) -> None:
    before = await made(chat)
    await do(chat, f"schedule edit {before.id} {said}".replace(" :", ":"))
    assert await planned(chat) == [before]
    await do(chat, f"approve {(await card(chat)).id}")
    [after] = await planned(chat)
    assert (after.id, after.cron, after.instructions) == (before.id, cron, task)
    assert after.next_at is not None and after.next_at > NOW, "C-06: the next one, from now"


RULES = "catch up all, queue, deadline 30 min, retry 3, quiet 22:00-07:00"


async def test_rules_are_shown_on_the_card_and_kept(chat: Chat) -> None:
    await do(chat, f"schedule every day at 23, {RULES}: Brief us.")
    prompt = await card(chat)
    facts = dict(prompt.payload["facts"])
    assert facts["Understood from"] == "every day at 23"
    assert facts["Next"].startswith("Tue 17 Jun 2025, 07:00 (due Mon 16 Jun 2025, 23:00);")
    assert facts["After an error"].startswith("tried again after 1 min, 5 min, 15 min;")
    assert facts["Deadline"].startswith("stopped after 30 min at work")
    await do(chat, f"approve {prompt.id}")
    [schedule] = await planned(chat)
    assert str(schedule.policy) == RULES
    shown = await do(chat, f"schedule show {schedule.id}")
    for label, rule in schedule.policy.told():
        assert f"{label}: {rule}" in shown
    assert "(due 2025-06-16 23:00, quiet hours)" in await do(chat, "schedule list")


async def test_a_schedule_without_rules_shows_those_that_hold(chat: Chat) -> None:
    await do(chat, "schedule every day at 8: Brief us.")
    facts = dict((await card(chat)).payload["facts"])
    assert facts["Missed while Nod was down"].startswith("one run makes up for all")
    assert facts["Due while a run is at work"].startswith("left out")
    assert [facts[n] for n in ("Deadline", "After an error", "Quiet hours")] == [
        "none",
        "not tried again",
        "none",
    ]


@pytest.mark.parametrize(
    ("said", "rules"),
    [
        pytest.param("retry 1", "deadline 10 min, retry 1", id="one-more"),
        pytest.param("no deadline, catch up all", "catch up all", id="one-less"),
        pytest.param("every day at 9", "deadline 10 min", id="another-time-keeps-them"),
        pytest.param("every day at 9, queue: Go.", "queue, deadline 10 min", id="all-at-once"),
    ],
)
async def test_an_edit_changes_the_rules_it_names_and_no_other(
    chat: Chat, said: str, rules: str
) -> None:
    before = await made(chat, "schedule every day at 8, deadline 10 min: Brief us.")
    await do(chat, f"schedule edit {before.id} {said}")
    await do(chat, f"approve {(await card(chat)).id}")
    [after] = await planned(chat)
    assert (str(after.policy), after.id) == (rules, before.id)


async def test_an_edit_that_is_not_clear_is_refused(chat: Chat) -> None:
    before = await made(chat)
    with pytest.raises(NodError, match=r"surely understand 'retry often'.*retry 3"):
        await do(chat, f"schedule edit {before.id} retry often")
    assert await planned(chat) == [before]


async def test_a_moment_is_not_counted_again_when_its_rules_change(chat: Chat) -> None:
    before = await made(chat, "schedule in 2 hours: Brief us.")
    await do(chat, f"schedule edit {before.id} retry 2")
    await do(chat, f"approve {(await card(chat)).id}")
    [after] = await planned(chat)
    assert (after.when, after.next_at) == (before.when, before.next_at)


async def test_the_exact_form_takes_the_rules_as_options(chat: Chat) -> None:
    options = "--catch-up all --overlap queue --deadline 30m --retry 3 --quiet 22:00-07:00"
    said = await do(chat, f'schedule add "every day at 8" {options} Brief us.')
    [schedule] = await planned(chat)
    assert str(schedule.policy) == RULES and f"Rules: {RULES}." in said


async def test_the_history_says_what_became_of_each_run_and_where(chat: Chat) -> None:
    schedule = await made(chat, "schedule every day at 8: Brief us.")
    await do(chat, f"schedule run {schedule.id}")
    [run] = await chat.store.read(lambda tx: runs.history(tx, schedule.id))
    await chat.store.write(lambda tx: runs.ended(tx, str(run.session), "completed", NOW + 90))
    line = await do(chat, f"schedule history {schedule.id}")
    assert "completed  manual  took 2 min, 0 s at work" in line
    assert f"console:{schedule.id}-20250616-0702" in line


@pytest.mark.parametrize("verb", ["run", "pause", "resume", "remove", "edit", "show", "history"])
async def test_what_belongs_to_others_is_left_alone(chat: Chat, verb: str) -> None:
    schedule = await made(chat)
    with pytest.raises(NodError, match="somebody else"):
        more = " every day at 9" if verb == "edit" else ""
        await do(chat, f"schedule {verb} {schedule.id}{more}", role="member", by="u7")
    assert await planned(chat) == [schedule]


async def test_of_two_changes_asked_for_at_once_none_takes_back_the_other(chat: Chat) -> None:
    schedule = await made(chat)
    await do(chat, f"schedule edit {schedule.id} retry 2")
    first = await card(chat)
    await do(chat, f"schedule edit {schedule.id}: Brief them.")
    waiting = await chat.store.read(lambda tx: inbox.pending(tx, "local"))
    [second] = [each for each in waiting if each.id != first.id]
    await do(chat, f"approve {first.id}")
    with pytest.raises(NodError, match="changed after this card"):
        await do(chat, f"approve {second.id}")
    [kept] = await planned(chat)
    assert (kept.policy.retries, kept.instructions) == (2, "Brief us.")
    await do(chat, f"deny {second.id}")


async def test_it_is_changed_from_a_script_and_what_is_not_said_stays(chat: Chat) -> None:
    schedule = await made(chat, "schedule every weekday at 8, retry 2: Brief us.")
    told = await do(chat, f"schedule set {schedule.id[:6]} --when 'every day at 9' --deadline 30m")
    assert "At 09:00, every day" in told and "Rules: deadline 30 min, retry 2." in told
    told = await do(chat, f"schedule set {schedule.id} --report-to slack:T1/C1 Brief them.")
    [after] = await planned(chat)
    assert (after.id, after.cron, after.policy.retries) == (schedule.id, "0 9 * * *", 2)
    assert (after.instructions, after.report_to) == ("Brief them.", "slack:T1/C1")
    assert after.title == "Brief us."
    await do(chat, f"schedule set {schedule.id} --title Briefing", target="slack:T1/D1")
    assert (await card(chat)).payload["title"] == "Change this schedule?"
    for line, said in (("", "was not understood"), (" --zone UTC", "'--zone' was not understood")):
        with pytest.raises(NodError, match=said):
            await do(chat, f"schedule set {schedule.id}{line}")
