"""Slack's blocks and mrkdwn: within every limit, and no text of a model tells anybody."""

from __future__ import annotations

from typing import Any

import pytest

from bot.render import slack
from tests.fakes.markup import Refused, slack_message, slack_pings

MRKDWN = {
    "S-21 styles": (
        "**bold** and [docs](https://example.org)\n~~old~~",
        "*bold* and <https://example.org|docs>\n~old~",
    ),
    "S-21 title": ("# Title", "*Title*"),
    "S-21 table": ("|a|b|\n|-|-|\n|1|2|", "```\na  b\n─  ─\n1  2\n```"),
    "S-21 fence": (
        "```\n**bold** [a](b) ~~old~~ # x | y\n```",
        "```\n**bold** [a](b) ~~old~~ # x | y\n```",
    ),
    "S-21 bold stays bold": ("**x** *y*", "*x* _y_"),
    "entities": ("a & b <thinking> `<b>`", "a &amp; b &lt;thinking&gt; `&lt;b&gt;`"),
    "pings": ("<!channel> <@U1> <#C1>", "&lt;!channel&gt; &lt;@U1&gt; &lt;#C1&gt;"),
    "literal signs": ("\\*x\\* snake_case \\_y\\_", "*\u200bx* snake_case _\u200by_"),
    "inside a word": ("a**b**c 重要**です**。", "a\u200b*b*\u200bc 重要\u200b*です*\u200b。"),
    "a style over lines": ("**a\nb**", "*a*\n*b*"),
    "quote": ("> a\n> b\n>\n> c", "> a\n> b\n> \n> c"),
    "address": ("[x|y](https://e.org/?a=1&b=|)", "<https://e.org/?a=1&amp;b=%7C|x|y>"),
    "bare address": ("https://e.org/?a=1&b=2", "<https://e.org/?a=1&amp;b=2>"),
    "tick in code": ("``a`b``", "`aˋb`"),
    "no language": ("```py\nx\n```", "```\nx\n```"),
    "list": ("1. a\n   - [x] b", "1. a\n    ☑ b"),
}

MARKDOWN = {
    "pings": ("<!channel> <@U1> <#C1> <!subteam^S1>", ("<\u200b!channel>", "<\u200b!subteam^S1>")),
    "pings in code": ("`<!here>`\n\n```\n<@U1>\n<!DOCTYPE html>\n```", ("<\u200b!here", "<!DOC")),
    "tags are text": ("<thinking> &amp;amp;", ("\\<thinking> \\&amp;",)),
    "link": ("[d](https://e.org/a_(b))", ("[d](https://e.org/a_%28b%29)",)),
    "nested": ("1. a\n   - b\n     - c", ("1. a\n    - b\n        - c",)),
    "heading": ("## A #\n\nb\n\n---", ("## A\n\nb\n\n---",)),
    "language": ("```sql\nx\n```", ("```sql\nx\n```",)),
    "definition that is none": ("\\[a]: https://e.org", ("[a\\]: <https://e.org>",)),
}

TABLE = "|name|n|\n|:-|-:|\n|**Ana** [x](https://e.org)|1|\n||`c`|"


@pytest.mark.parametrize(("text", "expected"), MRKDWN.values(), ids=MRKDWN)
def test_markdown_becomes_mrkdwn(text: str, expected: str) -> None:
    assert slack.mrkdwn(text) == expected
    assert slack.texts(text) == [expected]


@pytest.mark.parametrize(("text", "expected"), MARKDOWN.values(), ids=MARKDOWN)
def test_markdown_stays_markdown_in_its_block(text: str, expected: tuple[str, ...]) -> None:
    [part] = slack.render(text)
    [block] = part.blocks
    slack_message(part.blocks, part.fallback)
    assert not slack_pings(part.blocks, part.fallback)
    assert block["type"] == "markdown"
    assert all(each in block["text"] for each in expected)


def test_a_single_table_is_a_block_of_its_own() -> None:
    [part] = slack.render(f"before\n\n{TABLE}\n\nafter")
    slack_message(part.blocks, part.fallback)
    assert [block["type"] for block in part.blocks] == ["markdown", "table", "markdown"]
    rows = part.blocks[1]["rows"]
    assert rows[2][0] == {"type": "raw_text", "text": " "}
    assert rows[1][0]["elements"][0]["elements"] == [
        {"type": "text", "text": "Ana", "style": {"bold": True}},
        {"type": "text", "text": " "},
        {"type": "link", "url": "https://e.org", "text": "x"},
    ]
    assert part.blocks[1]["column_settings"][1] == {"align": "right", "is_wrapped": True}
    assert "Ana" in part.fallback


@pytest.mark.parametrize(
    "text",
    [
        f"{TABLE}\n\ntext\n\n{TABLE}",
        f"- a\n\n  {TABLE.replace(chr(10), chr(10) + '  ')}",
        "|a|\n|-|\n" + "|x|\n" * 100,
        "|" + "a|" * 21 + "\n|" + "-|" * 21,
        f"|a|\n|-|\n|{'x' * 2001}|",
    ],
    ids=["two", "in a list", "101 rows", "21 columns", "a long cell"],
)
def test_other_tables_are_laid_out(text: str) -> None:
    for part in slack.render(text):
        slack_message(part.blocks, part.fallback)
        assert {block["type"] for block in part.blocks} == {"markdown"}


def test_a_message_is_within_all_limits_whatever_its_length() -> None:
    text = "\n\n".join(f"paragraph {number} & more <b>" * 9 for number in range(150))
    parts = slack.render(text)
    assert len(parts) == 3
    for part in [*parts, *slack.sections(text)]:
        slack_message(part.blocks, part.fallback)
    assert all(part.fallback.endswith("\n…") for part in parts)


def test_plain_text_is_cut_below_what_slack_refuses() -> None:
    """S-25: refused from about 4,000 characters, despite the figure of 40,000."""
    for text in ("w" * 4500, "word " * 900, "```\n" + "line of code\n" * 350 + "```"):
        parts = slack.texts(text)
        assert len(parts) == 2
        for part in parts:
            slack_message([], part)
            assert part.count("```") % 2 == 0


def test_a_card_of_a_long_script_fits_its_section_and_says_so() -> None:
    """S-23: 3,500 characters of script; the card is rebuilt after the press."""
    script = "\n".join(f"echo step {number} && run <{number}>" for number in range(110))
    shown = slack.mrkdwn(f"Run this?\n\n```sh\n{script}\n```")
    slack_message([{"type": "section", "text": {"type": "mrkdwn", "text": shown}}], shown)
    assert shown.endswith("\n```\n…")
    assert shown.count("```") == 2


def test_the_open_end_is_plain_and_a_closed_table_is_a_block() -> None:
    [part] = slack.render_open("**a** b\n\n*open")
    assert part.blocks[0]["text"] == "**a** b\n\n\\*open"
    assert slack.render_open("") == []


def blocks(*each: dict[str, Any]) -> list[dict[str, Any]]:
    return list(each)


def section(text: str, kind: str = "mrkdwn") -> dict[str, Any]:
    return {"type": "section", "text": {"type": kind, "text": text}}


def table(*rows: list[str]) -> dict[str, Any]:
    cells = [[{"type": "raw_text", "text": cell} for cell in row] for row in rows]
    return {"type": "table", "rows": cells}


def button(**parts: Any) -> dict[str, Any]:
    label = {"type": "plain_text", "text": "Approve"}
    return {"type": "button", "action_id": "a", "text": label, **parts}


REFUSED = {
    "no text": ([], "", "no_text"),
    "long text": ([], "x" * 4001, "msg_too_long"),
    "51 blocks": (blocks({"type": "divider"}) * 51, "", "invalid_blocks"),
    "long section": (blocks(section("x" * 3001)), "", "invalid_blocks"),
    "empty section": (blocks(section("")), "", "invalid_blocks"),
    "unknown text": (blocks(section("x", "markdown")), "", "invalid_blocks"),
    "unknown block": (blocks({"type": "heading"}), "", "invalid_blocks"),
    "long header": (
        blocks({"type": "header", "text": {"type": "plain_text", "text": "x" * 151}}),
        "",
        "invalid_blocks",
    ),
    "long markdown": (
        blocks({"type": "markdown", "text": "x" * 7000}) * 2,
        "",
        "msg_blocks_too_long",
    ),
    "long in all": (blocks(section("x" * 2700)) * 5, "", "msg_blocks_too_long"),
    "empty cell": (blocks(table(["a"], [""])), "", "invalid_blocks"),
    "uneven rows": (blocks(table(["a", "b"], ["c"])), "", "invalid_blocks"),
    "101 rows": (blocks(table(*([["a"]] * 101))), "", "invalid_blocks"),
    "21 columns": (blocks(table(["a"] * 21)), "", "invalid_blocks"),
    "two tables": (blocks(table(["a"]), table(["b"])), "", "invalid_blocks"),
    "long value": (
        blocks({"type": "actions", "elements": [button(value="x" * 2001)]}),
        "",
        "invalid_blocks",
    ),
    "26 buttons": (
        blocks({"type": "actions", "elements": [button(action_id=str(n)) for n in range(26)]}),
        "",
        "invalid_blocks",
    ),
    "one action twice": (
        blocks({"type": "actions", "elements": [button(), button()]}),
        "",
        "invalid_blocks",
    ),
}


@pytest.mark.parametrize(("message", "text", "error"), REFUSED.values(), ids=REFUSED)
def test_the_fake_refuses_what_slack_refuses(
    message: list[dict[str, Any]], text: str, error: str
) -> None:
    with pytest.raises(Refused, match=error):
        slack_message(message, text)


def test_the_fake_takes_a_card() -> None:
    card = blocks(section("*Send?*"), {"type": "actions", "elements": [button(style="primary")]})
    slack_message(card, "Send?")


def test_the_fake_sees_who_would_be_told() -> None:
    assert slack_pings([section("`<@U1>` <!here|x>")], "<#C1>") == ["<@U1>", "<!here|x>", "<#C1>"]
