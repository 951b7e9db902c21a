"""Cards: their text is held in golden files; tokens bind a press to a prompt and its arguments."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot import cards
from engine.canonical import argument_hash
from engine.clock import mint
from engine.errors import PromptError, SettingsError
from engine.inbox import ANSWERS, Prompt

GOLDEN = Path(__file__).parent / "golden"
KEY = b"k" * 32
ZONE = ZoneInfo("Europe/Berlin")
NINE = 1_750_057_320.0  # 2025-06-16 09:02 in Berlin
ARGUMENTS = {"target": "slack:T1/C1", "text": "Good morning."}


def approval(**changes: Any) -> Prompt:
    payload = {
        "card": "s1/1/1",
        "title": "Run send_message?",
        "tool": "send_message",
        "risk": "external",
        "arguments": ARGUMENTS,
        "preview": "To slack:T1/C1:\n\nGood morning.",
        "target": ["slack:T1/C1"],
        "rule_target": ["slack:T1/C1"],
        "reason": "Other people will see it.",
        "taint": [],
        **changes.pop("payload", {}),
    }
    fields: dict[str, Any] = {
        "id": "p0123456789ab",
        "tenant": "local",
        "session": "s1",
        "kind": "approval",
        "subject": "c1/0",
        "hash": argument_hash("send_message", ARGUMENTS),
        "payload": payload,
        "created_at": NINE - 60,
        **changes,
    }
    return Prompt(**fields)


def of_kind(kind: str, payload: dict[str, Any], **changes: Any) -> Prompt:
    return replace(approval(kind=kind, hash="", **changes), payload=payload)


def decided(prompt: Prompt, answer: dict[str, Any], by: str = "u1") -> Prompt:
    return replace(
        prompt, status="resolved", answer=answer, resolved_by=by, resolved_at=NINE, resolved_on="x"
    )


def shown(*prompts: Prompt, place: str = "console:main") -> str:
    card = cards.card_of(prompts, place, KEY, lambda who: {"u1": "ana"}.get(who, who), ZONE)
    return cards.text_of(card) + "\n"


QUESTION = {
    "card": "s1/1/2",
    "questions": [
        {
            "key": "Colour",
            "header": "Colour",
            "question": "Which colour?",
            "options": [
                {"label": "Red", "description": "warm", "recommended": True},
                {"label": "Blue", "description": "", "recommended": False},
            ],
            "multi": False,
            "allow_text": True,
        }
    ],
}
PLAN = {"card": "s1/1/3", "title": "A plan", "plan": "Move the files.", "steps": ["Copy", "Check"]}
TAINTED = {"taint": ["web:example.org"], "rule_target": []}
SCHEDULE = {
    "title": "Schedule this?",
    "tool": "propose_schedule",
    "text": "Read the calendar and write the briefing.",
    "facts": [
        ["When", "At 08:00, Monday through Friday (Europe/Berlin)"],
        ["Understood from", "every weekday at 8"],
        ["Next", "Tue 17 Jun 2025, 08:00; Wed 18 Jun 2025, 08:00; Thu 19 Jun 2025, 08:00"],
        ["Reports to", "slack:T1/C1"],
        ["Without asking", "reads; messages to slack:T1/C1 only if you say so here"],
    ],
    "taint": [],
    "arguments": {"report_to": "slack:T1/C1"},
    "schedule": {"owner": "u1"},
    "options_allowed": ["approve", "edit", "deny"],
}
NO_REPORT = {**SCHEDULE, "arguments": {"report_to": ""}, "taint": ["web:example.org"]}
EXEC = {
    "tool": "shell",
    "title": "Run shell?",
    "risk": "exec",
    "target": [],
    "rule_target": [],
    "preview": "ls && curl evil",
    "reason": "A program runs only after a nod.",
}

GOLDENS = {
    "approval": lambda: shown(approval()),
    "approval_tainted": lambda: shown(approval(payload=TAINTED)),
    "approval_exec": lambda: shown(approval(payload=EXEC)),
    "approval_in_its_own_place": lambda: shown(approval(), place="slack:T1/C1"),
    "approval_long": lambda: shown(approval(payload={"preview": "line of text\n" * 400})),
    "two_rows_one_decided": lambda: shown(
        decided(approval(), {"kind": "once"}), approval(id="pba9876543210", payload=EXEC)
    ),
    "question": lambda: shown(of_kind("question", QUESTION)),
    "plan": lambda: shown(of_kind("plan", PLAN)),
    "access": lambda: shown(
        of_kind("access", {"text": "Bo (telegram:7) wrote in telegram:B/7.", "identity": {}})
    ),
    "outcome": lambda: shown(
        of_kind("outcome", {**approval().payload, "title": "Did send_message take effect?"})
    ),
    "notice": lambda: shown(of_kind("notice", {"text": "A run was skipped.", "retry": True})),
    "once": lambda: shown(decided(approval(), {"kind": "once"})),
    "always": lambda: shown(decided(approval(), {"kind": "always"})),
    "denied": lambda: shown(decided(approval(), {"kind": "deny", "reason": "Ask Bo first."})),
    "silence": lambda: shown(
        decided(approval(), {"kind": "deny", "silence": True, "reason": "no answer"}, "clock")
    ),
    "stopped": lambda: shown(decided(approval(), {"kind": "stopped", "reason": "stopped"})),
    "answered": lambda: shown(
        decided(of_kind("question", QUESTION), {"kind": "answer", "answers": {"Colour": "Red"}})
    ),
    "schedule": lambda: shown(of_kind("grant", SCHEDULE)),
    "schedule_without_report": lambda: shown(of_kind("grant", NO_REPORT)),
    "schedule_confirmed": lambda: shown(
        decided(of_kind("grant", SCHEDULE), {"kind": "approve", "rule": True})
    ),
    "schedule_cancelled": lambda: shown(
        decided(of_kind("grant", SCHEDULE), {"kind": "deny", "reason": ""})
    ),
    "full": lambda: cards.full_text(approval(payload=TAINTED)) + "\n",
}


@pytest.mark.parametrize("name", GOLDENS)
def test_a_card_reads_as_its_golden_file(name: str) -> None:
    assert GOLDENS[name]() == (GOLDEN / f"card_{name}.md").read_text(encoding="utf-8")


def test_there_is_no_golden_file_without_a_card() -> None:
    assert {path.stem.removeprefix("card_") for path in GOLDEN.glob("card_*.md")} == set(GOLDENS)


def test_a_decided_row_has_no_buttons() -> None:
    card = cards.card_of([decided(approval(), {"kind": "once"})], "", KEY, str, ZONE)
    assert (card.rows[0].buttons, card.open) == ((), False)


def test_text_that_waits_for_a_nod_is_not_shown_where_it_would_go() -> None:
    assert "Good morning" not in shown(approval(), place="slack:T1/C1")
    assert "Good morning" in shown(approval(), place="console:main")


@pytest.mark.parametrize(
    "hidden",
    ["slack:T1\u202e/C1", "slack:T1\u200b/C1", "slack:T1\x1b[2J/C1"],
    ids=["turned", "zero width", "escape"],
)
def test_nothing_in_a_target_stays_unseen(hidden: str) -> None:
    text = shown(approval(payload={"target": [hidden]}))
    assert hidden not in text
    assert f"\\u{ord(hidden[8]):04x}" in text


def test_a_preview_cannot_leave_its_block() -> None:
    evil = "```\n**Approved by @ana**\n```"
    text = shown(approval(payload={"preview": evil}))
    assert f"````\n{evil}\n````" in text


@pytest.mark.parametrize("kind", sorted(ANSWERS))
def test_every_kind_of_prompt_can_be_answered_by_buttons(kind: str) -> None:
    payload = {**approval().payload, **QUESTION, "plan": "x", "retry": True}
    prompt = of_kind(kind, payload)
    for answer in cards.choices(prompt):
        if answer == "link":
            continue  # its press gives a link; what is connected with it is the answer
        made = cards.answer_of(prompt, answer, NINE, "why", {"a": 1})
        assert made["kind"] in prompt.options


def test_keys_of_one_row_differ() -> None:
    for kind in ANSWERS:
        offered = cards.choices(of_kind(kind, {**approval().payload, **QUESTION, "plan": ""}))
        keys = [choice.key for choice in offered.values()]
        assert len(set(keys)) == len(keys), kind


@pytest.mark.parametrize(
    ("question", "offered"),
    [
        ({"options": [{"label": "A"}], "multi": False, "allow_text": False}, False),
        ({"options": [{"label": "A"}], "multi": False, "allow_text": True}, True),
        ({"options": [{"label": "A"}], "multi": True, "allow_text": False}, True),
        ({"options": [], "multi": False, "allow_text": True}, True),
    ],
    ids=["one-of-these", "or-own-words", "several", "free"],
)
def test_words_are_offered_where_no_button_says_it_all(
    question: dict[str, Any], offered: bool
) -> None:
    prompt = of_kind("question", {"questions": [{"question": "Which?", **question}]})
    assert ("answer" in cards.choices(prompt)) == offered


def test_an_answer_in_words_takes_words() -> None:
    prompt = of_kind("question", QUESTION)
    with pytest.raises(PromptError, match="Reply to the card"):
        cards.answer_of(prompt, "answer", 0.0)
    said = cards.answer_of(prompt, "answer", 0.0, text=" neither ")
    assert said == {"kind": "answer", "text": "neither"}


def test_a_rule_is_offered_only_where_one_can_be_made() -> None:
    assert "always" in cards.choices(approval())
    assert "always" not in cards.choices(approval(payload=TAINTED))


def test_a_rule_made_by_a_press_ends() -> None:
    answer = cards.answer_of(approval(), "always", NINE)
    assert answer["expires_at"] == NINE + cards.RULE_DAYS * 86_400


# -- tokens


@pytest.mark.parametrize("kind", sorted(ANSWERS))
def test_every_token_fits_the_smallest_button(kind: str) -> None:
    prompt = of_kind(kind, {**approval().payload, **QUESTION, "plan": "", "retry": True})
    prompt = replace(prompt, id=mint("p"))
    for answer in [*cards.choices(prompt), "o99"]:
        assert len(cards.token(prompt, answer, KEY).encode()) <= cards.TOKEN_BYTES


def test_a_token_says_what_was_pressed() -> None:
    press = cards.read_token(cards.token(approval(), "once", KEY), KEY)
    assert press == cards.Press(
        prompt="p0123456789ab", answer="once", mark=cards.mark_of(approval())
    )


def test_a_token_is_bound_to_the_arguments() -> None:
    press = cards.read_token(cards.token(approval(), "once", KEY), KEY)
    edited = replace(approval(), hash=argument_hash("send_message", {**ARGUMENTS, "text": "x"}))
    assert press.mark != cards.mark_of(edited)


def test_another_installations_token_is_refused() -> None:
    with pytest.raises(PromptError, match="not one of mine"):
        cards.read_token(cards.token(approval(), "once", b"x" * 32), KEY)


@given(st.data())
def test_a_token_with_any_bit_changed_is_refused(data: st.DataObject) -> None:
    value = cards.token(approval(), "deny", KEY)
    place = data.draw(st.integers(0, len(value) - 1))
    letter = data.draw(st.sampled_from("ABCabc019-_"))
    changed = value[:place] + letter + value[place + 1 :]
    try:
        assert cards.read_token(changed, KEY) == cards.read_token(value, KEY)  # spare bits only
    except PromptError:
        assert changed != value


@given(st.text(max_size=80))
def test_any_text_is_refused_as_a_token(text: str) -> None:
    with pytest.raises(PromptError):
        cards.read_token(text, KEY)


def test_the_key_is_made_once_and_only_for_its_owner(tmp_path: Path) -> None:
    key = cards.token_key(tmp_path)
    assert cards.token_key(tmp_path) == key
    assert stat.S_IMODE((tmp_path / "button.key").stat().st_mode) == 0o600


def test_a_damaged_key_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "button.key").write_bytes(b"short")
    with pytest.raises(SettingsError, match=r"button\.key"):
        cards.token_key(tmp_path)
    assert (tmp_path / "button.key").read_bytes() == b"short"


# -- what a line means


def question(**changes: Any) -> Prompt:
    first = {**QUESTION["questions"][0], **changes}  # type: ignore[dict-item]
    return of_kind("question", {"questions": [first]})


@pytest.mark.parametrize(
    ("prompt", "text", "answer"),
    [
        pytest.param(approval(), "Ask Bo", {"kind": "deny", "reason": "Ask Bo"}, id="approval"),
        pytest.param(approval(), "yes", {"kind": "deny", "reason": "yes"}, id="never a yes"),
        pytest.param(
            question(), "2", {"kind": "answer", "answers": {"Colour": "Blue"}}, id="number"
        ),
        pytest.param(
            question(multi=True),
            "1, 2",
            {"kind": "answer", "answers": {"Colour": ["Red", "Blue"]}},
            id="numbers",
        ),
        pytest.param(question(), "green", {"kind": "answer", "text": "green"}, id="own words"),
        pytest.param(question(options=[]), "2", {"kind": "answer", "text": "2"}, id="no options"),
    ],
)
def test_a_line_answers(prompt: Prompt, text: str, answer: dict[str, Any]) -> None:
    assert cards.text_answer(prompt, text) == answer


@pytest.mark.parametrize("text", ["0", "3", "1, 2"], ids=["zero", "too high", "two of one"])
def test_a_number_that_is_no_option_is_refused(text: str) -> None:
    with pytest.raises(PromptError):
        cards.text_answer(question(), text)
