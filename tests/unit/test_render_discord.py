"""Discord's dialect: within its limit, no sign cut, nobody mentioned, no link unfurled."""

from __future__ import annotations

import pytest

from bot.render import discord
from tests.fakes.markup import Refused, discord_content, discord_pings, units

CASES = {
    "D-10 mentions": (
        "@everyone hi <@&5> <@7> <#9> @here",
        "@\u200beveryone hi <\u200b@&5> <\u200b@7> <\u200b#9> @\u200bhere",
    ),
    "code is left alone": ("`@everyone`", "`@everyone`"),
    "link": ("[docs](https://example.org/a_(b))", "[docs](<https://example.org/a_(b)>)"),
    "bare address": ("see https://e.org/a_b_c.", "see <https://e.org/a_b_c>."),
    "address as text": (
        "[https://bank.org](https://e.org)",
        "https://bank.org (<https://e.org>)",
    ),
    "mail": ("[write](mailto:a@b.co) <c@d.co>", "write (a@b.co) c@d.co"),
    "brackets in a link": ("[a \\[b\\]](https://e.org)", "[a \\[b\\]](<https://e.org>)"),
    "exclamation": ("wow![t](https://e.org)", "wow[t](<https://e.org>)"),
    "exclamation before a link": ("wow\\![t](https://e.org)", "wow!\u200b[t](<https://e.org>)"),
    "styles": ("**b *both*** ~~old~~ __x__", "**b *both*** ~~old~~ **x**"),
    "literal signs": ("2 * 3 \\*x\\* snake_case ||no||", "2 * 3 \\*x\\* snake_case \\|\\|no\\|\\|"),
    "a style over lines": ("**a\nb**", "**a**\n**b**"),
    "no list, no heading": (
        "1\\. a\n\\- b\n\\# c\n\\> d\n\\-# e",
        "1\\. a\n\\- b\n\\# c\n\\> d\n\\-# e",
    ),
    "mention in an address": ("https://e.org/@everyone", "<https://e.org/%40everyone>"),
    "signs at a heading's end": ("a ##\n===", "# a \\##"),
    "headings": ("# A\n\n#### B", "# A\n\n**B**"),
    "nested list": ("- a\n  1. b\n     c", "- a\n  1. b\n     c"),
    "tasks": ("- [ ] open\n- [x] done", "- ☐ open\n- ☑ done"),
    "quote": ("> a\n> b\n>\n> ```\n> x\n> ```", "> a\n> b\n> \n> ```\n> x\n> ```"),
    "code holds a fence": ("````\n```x\n````", "```\n``\u200b`x\n```"),
    "code holds a tick": ("``a`b``", "`` a`b ``"),
    "table": ("|a|家|\n|-|-:|\n|1|x|", "```\na  家\n─  ──\n1   x\n```"),
    "timestamp": ("<t:1:R>", "<\u200bt:1:R>"),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_markdown_becomes_discords(text: str, expected: str) -> None:
    assert discord.render(text) == [expected]


@pytest.mark.parametrize("length", [1999, 2000, 2001, 4001])
@pytest.mark.parametrize("sign", ["x", "👍", "語", "👨\u200d👩\u200d👧\u200d👦"], ids=len)
def test_every_part_is_within_the_limit_and_no_sign_is_cut(length: int, sign: str) -> None:
    """D-01: 2,000 characters, not 4,000, and not bytes."""
    parts = discord.render(sign * length)
    for part in parts:
        discord_content(part)
        assert units(part) <= 2000
        assert part == sign * (len(part) // len(sign))
    assert "".join(parts) == sign * length
    assert len(parts) == -(-length * units(sign) // (2000 // units(sign) * units(sign)))


def test_long_code_is_cut_between_lines_and_fenced_again() -> None:
    lines = [f"select {number};" for number in range(400)]
    parts = discord.render("```sql\n" + "\n".join(lines) + "\n```")
    inside = [part.removeprefix("```sql\n").removesuffix("\n```") for part in parts]
    assert all(part.startswith("```sql\n") and part.endswith("\n```") for part in parts)
    assert "\n".join(inside).split("\n") == lines


def test_a_long_table_repeats_its_head() -> None:
    rows = "\n".join(f"|{number}|{'v' * 40}|" for number in range(100))
    parts = discord.render(f"|number|value|\n|-|-|\n{rows}")
    assert len(parts) > 2
    assert all(part.startswith("```\nnumber  value\n──────") for part in parts)


def test_a_wide_table_becomes_a_list() -> None:
    [part] = discord.render(f"|name|note|\n|-|-|\n|Ana|{'long ' * 20}|\n|Bob|short|")
    assert part.startswith("**name**: Ana\n**note**: long")
    assert part.endswith("\n\n**name**: Bob\n**note**: short")


REFUSED = {
    "too long": ("x" * 2001, "50035"),
    "empty": (" \n", "50006"),
    "half a pair": ("\ud83d", "50109"),
}


@pytest.mark.parametrize(("content", "error"), REFUSED.values(), ids=REFUSED)
def test_the_fake_refuses_what_discord_refuses(content: str, error: str) -> None:
    with pytest.raises(Refused, match=error):
        discord_content(content)


def test_the_fake_sees_mentions_outside_of_code() -> None:
    assert discord_pings("@everyone `@here` \\`<@7>\\` <@&5>") == ["@everyone", "<@7>", "<@&5>"]
