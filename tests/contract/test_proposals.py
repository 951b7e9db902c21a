"""A schedule is proposed on a card and made by a person, on both stores."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bot.inbound import answers
from bot.inbound.answers import Defaults, House
from engine import inbox, people, sessions
from engine.canonical import loads
from engine.errors import NodError, PromptError, ScheduleError, TargetError
from engine.inbox import Person, Prompt
from engine.permissions.rules import live_rules, of_schedule
from engine.schedule import fires, proposals, runs, schedules
from engine.schedule.proposals import Proposal
from engine.schedule.schedules import Schedule
from engine.schedule.words import understand
from engine.store.base import Store, Tx

BERLIN, PLACE = "Europe/Berlin", "slack:T1/C1"
ANA = Person(id="console", role="owner", name="ana")
MEMBER = Person(id="u7", role="member", name="bo")


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(BERLIN)).timestamp()


#: A Sunday.
NOW = at("2026-11-29T16:20")


@pytest.fixture
def house(tmp_path: Path) -> House:
    defaults = Defaults(persona="cowork", model="practice:rules", mode="interactive")
    return House(tenant="local", data=tmp_path, now=lambda: NOW, defaults=defaults)


def asked(said: str = "every weekday at 8", **changes: Any) -> Proposal:
    made = Proposal(
        tenant="local",
        owner="console",
        home="console:main",
        persona="cowork",
        model="practice:rules",
        when=understand(said, BERLIN, NOW),
        said=said,
        instructions="Brief us.",
        report_to=PLACE,
    )
    return replace(made, **changes)


async def proposed(store: Store, proposal: Proposal, now: float = NOW) -> Prompt:
    return await store.write(lambda tx: proposals.propose(tx, proposal, now))


async def take(
    store: Store, house: House, prompt: Prompt, answer: dict[str, Any], by: Person = ANA
) -> list[str]:
    taken = await store.write(lambda tx: answers.take(tx, house, prompt, answer, by, "console"))
    return taken[1]


async def made(store: Store) -> list[Schedule]:
    return await store.read(lambda tx: schedules.listed(tx, "local"))


async def confirmed(store: Store, house: House, *, ruled: bool, **changes: Any) -> Schedule:
    before = {each.id for each in await made(store)}
    prompt = await proposed(store, asked(**changes))
    await take(store, house, prompt, {"kind": "approve", **({"rule": True} if ruled else {})})
    [schedule] = [each for each in await made(store) if each.id not in before]
    return schedule


async def targets(store: Store, schedule: Schedule) -> list[tuple[str, ...]]:
    rules = await store.read(lambda tx: of_schedule(tx, schedule.id))
    return [each.rule.target for each in rules]


async def test_the_card_shows_what_was_understood_and_nothing_is_scheduled(store: Store) -> None:
    prompt = await proposed(store, asked())
    facts = dict(prompt.payload["facts"])
    assert facts["When"] == "At 08:00, Monday through Friday (Europe/Berlin)"
    assert facts["Next"] == (
        "Mon 30 Nov 2026, 08:00; Tue 01 Dec 2026, 08:00; Wed 02 Dec 2026, 08:00"
    )
    assert facts["Reports to"] == PLACE
    assert "only if you say so" in facts["Without asking"]
    assert prompt.options == {"approve", "edit", "deny"}
    assert await made(store) == []


async def test_the_same_proposal_is_one_card_while_it_waits(store: Store, house: House) -> None:
    first, again = await proposed(store, asked()), await proposed(store, asked())
    assert first.id == again.id
    await take(store, house, first, {"kind": "deny", "reason": ""})
    assert (await proposed(store, asked())).id != first.id
    assert await made(store) == []


async def test_confirming_makes_it_as_shown_and_only_once(store: Store, house: House) -> None:
    prompt = await proposed(store, asked(read=("/srv/repo",)))
    for _ in range(2):
        await take(store, house, prompt, {"kind": "approve"})
    [schedule] = await made(store)
    assert (schedule.cron, schedule.zone, schedule.instructions) == (
        "0 8 * * 1-5",
        BERLIN,
        "Brief us.",
    )
    assert (schedule.report_to, schedule.home, schedule.owner) == (PLACE, "console:main", "console")
    assert schedule.next_at == at("2026-11-30T08:00")
    assert await targets(store, schedule) == []


async def test_a_moment_is_not_counted_again_when_it_is_confirmed_later(
    store: Store, house: House
) -> None:
    prompt = await proposed(store, asked("in 2 hours"))
    assert prompt.deadline == at("2026-11-29T18:20"), "a card past its moment is no yes"
    await take(store, replace(house, now=lambda: NOW + 3600), prompt, {"kind": "approve"})
    [schedule] = await made(store)
    assert (schedule.cron, schedule.next_at) == ("", at("2026-11-29T18:20"))


async def test_a_moment_that_passed_while_the_card_waited_makes_nothing(
    store: Store, house: House
) -> None:
    """C-08: the press is refused with the present time."""
    prompt = await proposed(store, asked("in 2 hours"))
    late = replace(house, now=lambda: NOW + 7200)
    with pytest.raises(PromptError):
        await take(store, late, prompt, {"kind": "approve"})
    assert await made(store) == []


async def test_it_comes_once_and_is_switched_off(
    store: Store, house: House, tmp_path: Path
) -> None:
    schedule = await confirmed(store, house, ruled=False, said="tomorrow 17:30")
    due = at("2026-11-30T17:30")
    # Nod was down meanwhile: a missed moment is caught up
    fired = await store.write(
        lambda tx: fires.fire(tx, schedule.id, due, due + 7200, data=tmp_path)
    )
    assert fired is not None and fired.status == "started"
    [after] = await made(store)
    assert (after.enabled, after.next_at, after.outcome) == (False, None, "started")
    again = await store.write(lambda tx: fires.fire(tx, schedule.id, due, due, data=tmp_path))
    assert again is None
    with pytest.raises(ScheduleError, match="Its time is past: it is now Tue 01 Dec 2026"):
        await store.write(lambda tx: schedules.enable(tx, schedule.id, True, due + 86_400))


async def test_an_edit_in_the_evening_leaves_the_next_morning(store: Store, house: House) -> None:
    """C-06: New York, edited at 22:37; it does not jump a day."""
    schedule = await confirmed(store, house, ruled=False, said="25 6 * * * America/New_York")
    evening = datetime(2026, 11, 30, 22, 37, tzinfo=ZoneInfo("America/New_York")).timestamp()
    after = await store.write(
        lambda tx: schedules.change(
            tx,
            schedule.id,
            title="Other",
            when=schedule.when,
            instructions=schedule.instructions,
            report_to=schedule.report_to,
            policy=schedule.policy,
            now=evening,
        )
    )
    assert after.next_at == evening + 7 * 3600 + 48 * 60


# -- the standing rule


async def rules_in(store: Store, session: str) -> list[tuple[str, tuple[str, ...]]]:
    found = await store.read(lambda tx: live_rules(tx, "local", session, "console", NOW))
    return [(each.tool, each.target) for each in found]


async def test_the_rule_the_card_showed_holds_in_its_runs_and_nowhere_else(
    store: Store, house: House, tmp_path: Path
) -> None:
    schedule = await confirmed(store, house, ruled=True)
    other = await confirmed(store, house, ruled=False, said="every day at 9")
    runs = [
        await store.write(lambda tx, each=each: fires.run_now(tx, each.id, NOW, data=tmp_path))
        for each in (schedule, other)
    ]
    person = await store.write(lambda tx: house.open(tx, "console:main", "console", NOW))
    assert await rules_in(store, str(runs[0].session)) == [("send_message", (PLACE,))]
    assert await rules_in(store, str(runs[1].session)) == []
    assert await rules_in(store, person) == []


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        pytest.param({"said": "every day at 9"}, 1, id="another-time"),
        pytest.param({"instructions": "Post all passwords."}, 0, id="other-instructions"),
        pytest.param({"report_to": "slack:T1/C2"}, 0, id="another-place"),
        pytest.param({"title": "Standup"}, 1, id="another-name"),
    ],
)
async def test_the_rule_ends_when_it_does_something_else(
    store: Store, house: House, changes: dict[str, Any], left: int
) -> None:
    schedule = await confirmed(store, house, ruled=True)
    said = changes.get("said", "every weekday at 8")
    proposal = asked(said, changes=schedule.id, **{k: v for k, v in changes.items() if k != "said"})
    prompt = await proposed(store, proposal)
    told = dict(prompt.payload["facts"])["Without asking"]
    assert ("as before send_message" in told) is bool(left)
    assert len(await targets(store, schedule)) == 1, "nothing changes before the card is confirmed"
    await take(store, house, prompt, {"kind": "approve"})
    assert len(await targets(store, schedule)) == left
    assert len(await made(store)) == 1


async def test_the_rule_ends_with_the_schedule(store: Store, house: House) -> None:
    schedule = await confirmed(store, house, ruled=True)
    assert await targets(store, schedule) == [(PLACE,)]
    await store.write(lambda tx: schedules.remove(tx, schedule.id, NOW))
    assert await targets(store, schedule) == []


@pytest.mark.parametrize(
    ("owner", "by", "says"),
    [
        pytest.param("u7", MEMBER, "role operator", id="member"),
        pytest.param(
            "console", Person(id="u8", role="operator"), "for others", id="not-their-schedule"
        ),
    ],
)
async def test_who_may_not_make_the_rule_makes_nothing(
    store: Store, house: House, owner: str, by: Person, says: str
) -> None:
    prompt = await proposed(store, asked(owner=owner))
    with pytest.raises(PromptError, match=says):
        await take(store, house, prompt, {"kind": "approve", "rule": True}, by)
    assert await made(store) == []
    await take(store, house, prompt, {"kind": "approve"}, by)
    assert len(await made(store)) == 1


async def test_outside_text_in_play_is_named_in_the_rule(store: Store, house: House) -> None:
    schedule = await confirmed(store, house, ruled=True, taint=("web:example.org",))
    [rule] = await store.read(lambda tx: of_schedule(tx, schedule.id))
    assert rule.made_under == ("web:example.org",)
    assert (rule.uses_left, rule.expires_at) == (None, None), "it ends with its schedule"


# -- changing the card


async def again(store: Store, first: Prompt) -> Prompt:
    waiting = await store.read(lambda tx: inbox.pending(tx, "local"))
    [card] = [each for each in waiting if each.id != first.id]
    return card


async def test_what_is_changed_on_the_card_is_asked_again(store: Store, house: House) -> None:
    first = await proposed(store, asked())
    await store.write(lambda tx: answers.show_in(tx, first, "console:main", NOW))
    arguments = {**first.payload["arguments"], "when": "every friday at 16", "report_to": ""}
    await take(store, house, first, {"kind": "edit", "arguments": arguments})
    assert await made(store) == []
    card = await again(store, first)
    assert dict(card.payload["facts"])["When"].startswith("At 16:00, only on Friday")
    shown = await store.read(
        lambda tx: tx.all("deliveries_of", tenant="local", subject=f"prompt:{card.id}")
    )
    assert [row["destination"] for row in shown] == ["console:main"]
    await take(store, house, card, {"kind": "approve"})
    [schedule] = await made(store)
    assert (schedule.cron, schedule.report_to) == ("0 16 * * 5", "")


async def test_a_moment_that_is_not_touched_stays(store: Store, house: House) -> None:
    first = await proposed(store, asked("in 2 hours"))
    later = replace(house, now=lambda: NOW + 600)
    await take(store, later, first, {"kind": "edit", "arguments": {"instructions": "Call Bo."}})
    card = await again(store, first)
    assert card.payload["schedule"]["once"] == at("2026-11-29T18:20")
    assert card.payload["text"] == "Call Bo."


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param({"when": "soon"}, "do not surely understand", id="when"),
        pytest.param({"zone": "Mars/Base"}, "no time zone", id="zone"),
        pytest.param({"report_to": "standup"}, "no thread target", id="place"),
        pytest.param({"instructions": " "}, "instructions", id="nothing-to-do"),
        pytest.param({"cron": "* * * * *"}, "has no cron", id="unknown"),
    ],
)
async def test_a_change_that_cannot_be_leaves_the_card_as_it_was(
    store: Store, house: House, arguments: dict[str, Any], says: str
) -> None:
    prompt = await proposed(store, asked())
    with pytest.raises(PromptError, match=says):
        await take(store, house, prompt, {"kind": "edit", "arguments": arguments})
    found = await store.read(lambda tx: inbox.get(tx, prompt.id))
    assert found.status == "pending"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        pytest.param({"instructions": "  "}, ScheduleError, id="nothing-to-do"),
        pytest.param({"report_to": "#standup"}, TargetError, id="no-target"),
        pytest.param({"title": "x" * 121}, ScheduleError, id="long-title"),
    ],
)
async def test_what_cannot_be_gets_no_card(
    store: Store, changes: dict[str, Any], error: type[NodError]
) -> None:
    with pytest.raises(error):
        await proposed(store, asked(**changes))
    assert await store.read(lambda tx: inbox.pending(tx, "local")) == []


async def test_the_session_that_proposed_it_is_told(store: Store, house: House) -> None:
    def opened(tx: Tx) -> str:
        people.seed_console(tx, "local", NOW)
        return house.open(tx, "console:main", "console", NOW)

    session = await store.write(opened)
    prompt = await proposed(store, asked(session=session))
    assert session in await take(store, house, prompt, {"kind": "approve"})
    [row] = await store.read(lambda tx: tx.all("mail_waiting", session=session))
    assert row["kind"] == "note"
    assert "ana confirmed schedule c" in loads(row["body"])["message"]["content"]
    assert (await store.read(lambda tx: sessions.get(tx, session))).wanted > 0


# -- what runs leave


async def test_the_history_says_how_long_a_run_took_and_what_it_cost(
    store: Store, house: House, tmp_path: Path
) -> None:
    """C-14: a failure is in the list."""
    schedule = await confirmed(store, house, ruled=False)
    fired = await store.write(lambda tx: fires.run_now(tx, schedule.id, NOW, data=tmp_path))

    def spent(tx: Tx) -> None:
        for number, cost in enumerate((0.5, 0.25, None)):
            tx.run(
                "usage_add",
                id=f"u{number}",
                tenant="local",
                session=fired.session,
                principal="console",
                turn=1,
                iteration=number,
                purpose="turn",
                model="m",
                input=1,
                output=1,
                cache_read=0,
                cache_write=0,
                cost=cost,
                estimated=0,
                at=NOW,
            )
        runs.ended(tx, str(fired.session), "error", NOW + 90)

    await store.write(spent)
    [run] = await store.read(lambda tx: runs.history(tx, schedule.id))
    assert (run.status, run.cost, run.unpriced, run.ended_at) == ("failed", 0.75, 1, NOW + 90)
    assert run.thread.startswith(f"console:{schedule.id}-")
    [listed] = await made(store)
    assert listed.outcome == "failed"
