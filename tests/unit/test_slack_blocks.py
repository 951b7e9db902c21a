"""Whatever a card, a form or a board holds, what is built of it is within Slack's limits."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bot.board import Page
from bot.cards import Button, Card, Row
from bot.forms import Field, Form
from bot.surfaces import slack_blocks
from bot.surfaces.base import Message
from tests.fakes.markup import slack_message, slack_pings
from tests.fakes.slack_views import check_view

#: A card that fails is shown as it is: to make it smaller takes minutes.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
SIGNS = "aB *_`~<>&!@#|\n-1.[]()é👩‍💻\u200b"


def written(seed: int, length: int) -> str:
    """Return a text of such signs: drawn one by one, a card of many would take minutes."""
    return "".join(random.Random(seed).choices(SIGNS, k=length))


TEXT = st.builds(written, st.integers(0, 2**32), st.integers(0, 300))
LONG = st.one_of(TEXT, st.integers(1, 4_000).map(lambda n: "x" * n))

BUTTON = st.builds(
    Button,
    label=LONG,
    key=st.just("a"),
    answer=st.sampled_from(["once", "always", "edit", "deny", "o1", "o2", "o3", "why", "full"]),
    token=st.just("abcXYZ-_" * 8),
    style=st.sampled_from(["yes", "no", "plain"]),
    asks=st.sampled_from(["", "reason", "arguments"]),
)
BUTTONS = st.lists(BUTTON, max_size=30, unique_by=lambda each: each.answer).map(tuple)


def rows(count: int) -> st.SearchStrategy[tuple[Row, ...]]:
    made = [
        st.builds(
            Row,
            prompt=st.just(f"p{n}"),
            title=LONG,
            facts=st.lists(st.tuples(TEXT, LONG), max_size=4).map(tuple),
            preview=LONG,
            buttons=BUTTONS,
            decided=st.one_of(st.just(""), LONG),
        )
        for n in range(count)
    ]
    return st.tuples(*made)


CARD = st.integers(1, 14).flatmap(
    lambda n: st.builds(Card, id=st.just("c1"), title=LONG, rows=rows(n), buttons=BUTTONS)
)
FIELD = st.builds(
    Field,
    name=st.sampled_from("abcdefgh"),
    label=st.text(min_size=1, max_size=50),
    kind=st.sampled_from(["text", "long", "number", "flag", "choice", "json"]),
    value=st.sampled_from(["", "true", "a", "x" * 2_000, "x" * 4_000]),
    choices=st.just(("true", "a", "x" * 2_000)),
    required=st.booleans(),
)


@given(CARD)
@settings(max_examples=150, deadline=None, phases=PHASES)
def test_a_card_is_one_message_slack_takes_and_pings_nobody(card: Card) -> None:
    (parts,) = slack_blocks.levels(Message(card=card))
    (part,) = parts
    slack_message(part.blocks, part.fallback)
    assert slack_pings(part.blocks, part.fallback) == []


@given(st.lists(FIELD, max_size=8, unique_by=lambda each: each.name).map(tuple), LONG)
@settings(max_examples=150, deadline=None)
def test_a_form_is_a_modal_slack_takes(fields: tuple[Field, ...], title: str) -> None:
    check_view(slack_blocks.form(Form(title=title, fields=fields, full=""), "{}"), "modal")


@given(LONG, LONG)
@settings(max_examples=100, deadline=None)
def test_a_page_is_a_modal_slack_takes(title: str, text: str) -> None:
    check_view(slack_blocks.page(title, text), "modal")


@pytest.mark.parametrize("size", [0, 1_000, 500_000])
def test_a_page_of_any_length_is_within_the_limits(size: int) -> None:
    check_view(slack_blocks.page("Everything", "word " * (size // 5)), "modal")


@given(st.lists(CARD, max_size=10).map(tuple), st.lists(LONG, max_size=10).map(tuple))
@settings(max_examples=40, deadline=None)
def test_a_board_is_a_home_slack_takes(cards: tuple[Card, ...], lines: tuple[str, ...]) -> None:
    named = tuple(_renamed(card, n) for n, card in enumerate(cards))
    page = Page(cards=named, more=3, sessions=lines, schedules=lines)
    check_view(slack_blocks.board(page), "home")


def _renamed(card: Card, number: int) -> Card:
    """Prompts and cards have ids of their own."""
    rows = tuple(replace(row, prompt=f"{row.prompt}-{number}") for row in card.rows)
    return replace(card, id=f"c{number}", rows=rows)
