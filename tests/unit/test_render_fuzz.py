"""No Markdown, however odd, becomes a message that a platform refuses or that loses text.

`NOD_FUZZ` sets how many random texts are tried.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.render import discord, slack, telegram
from tests.fakes import markup
from tests.unit.render_texts import documents, keeps, markdown_seen, mrkdwn_seen, slack_seen

TEXTS = int(os.environ.get("NOD_FUZZ", "2000"))


def check_telegram(text: str, limit: int) -> str:
    shown = ""
    for part in telegram.render(text, limit):
        seen, entities = markup.telegram_html(part.html, limit)
        markup.telegram_entities(part.plain, [], limit)
        assert not markup.telegram_pings(seen, entities)
        assert not markup.telegram_pings(part.plain)
        shown += seen
    return shown


def check_telegram_plain(text: str, limit: int) -> str:
    parts = telegram.plain(text, limit)
    for part in parts:
        markup.telegram_entities(part, [], limit)
        assert not markup.telegram_pings(part)
    return "".join(parts)


def check_discord(text: str, limit: int) -> str:
    parts = discord.render(text, limit)
    for part in parts:
        markup.discord_content(part, limit)
        assert markup.units(part) <= limit
        assert not markup.discord_pings(part)
    return "".join(map(markdown_seen, parts))


def check_slack(text: str, limit: int) -> str:
    parts = slack.render(text)
    for part in parts:
        markup.slack_message(part.blocks, part.fallback)
        assert not markup.slack_pings(part.blocks, part.fallback)
    return "".join(slack_seen(part.blocks) for part in parts)


def check_slack_sections(text: str, limit: int) -> str:
    parts = slack.sections(text)
    for part in parts:
        markup.slack_message(part.blocks, part.fallback)
        assert not markup.slack_pings(part.blocks, part.fallback)
    return "".join(slack_seen(part.blocks) for part in parts)


def check_slack_text(text: str, limit: int) -> str:
    assert len(slack.mrkdwn(text, limit)) <= limit
    parts = slack.texts(text)
    for part in parts:
        markup.slack_message([], part)
        assert not markup.slack_pings([], part)
    return mrkdwn_seen("".join(parts))


CHECKS = (
    check_telegram,
    check_telegram_plain,
    check_discord,
    check_slack,
    check_slack_sections,
    check_slack_text,
)
each_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__[6:])


@pytest.mark.timeout(1200)
@each_check
def test_random_markdown_is_taken_and_kept(check: Callable[[str, int], str]) -> None:
    limits = random.Random(7)
    for number, text in enumerate(documents(seed=4711, count=TEXTS)):
        limit = limits.choice((200, 500, 1024, 2000))
        try:
            shown = check(text, limit)
        except (markup.Refused, AssertionError) as error:
            raise AssertionError(f"text {number}, limit {limit}: {text!r}: {error}") from error
        assert keeps(text, shown), f"text {number}, limit {limit}: {text!r}: {shown!r}"


@each_check
@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=400))
def test_any_text_at_all_is_taken(check: Callable[[str, int], str], text: str) -> None:
    check(text, 200)


def test_the_open_end_is_taken_at_every_length() -> None:
    for text in documents(seed=99, count=40):
        for end in range(0, len(text), 7):
            for part in telegram.render_open(text[:end], 500):
                markup.telegram_html(part.html, 500)
            for content in discord.render_open(text[:end], 500):
                markup.discord_content(content, 500)
            for message in slack.render_open(text[:end]):
                markup.slack_message(message.blocks, message.fallback)
