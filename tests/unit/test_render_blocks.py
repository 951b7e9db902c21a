"""The one parse: blocks that stand alone, with all that was written; and how text is measured."""

from __future__ import annotations

import pytest

from bot.render import discord, slack, telegram
from bot.render.blocks import Code, Rule, Run, Table, Text, parse
from bot.render.measure import border, columns, seen, units

PARSED = {
    "item": ("- a\n  > b", [Text(runs=(Run(text="a"),), depth=1, marker="-")]),
    "rule": ("***", [Rule()]),
    "fence": ("~~~ c++ x\na\n\nb\n~~~", [Code(text="a\n\nb", language="c++")]),
    "indented": ("    a\n     b", [Code(text="a\n b")]),
    "unclosed fence": ("```py\na", [Code(text="a", language="py")]),
    "item of code": (
        "- ```\n  x\n  ```",
        [Text(runs=(), depth=1, marker="-"), Code(text="x", depth=1)],
    ),
    "task": (
        "3) [X] a",
        [Text(runs=(Run(text="a"),), depth=1, marker="3)", task=True)],
    ),
    "no task": ("[x] a", [Text(runs=(Run(text="[x] a"),))]),
    "address in the sentence": (
        "(https://e.org/a_(b)).",
        [
            Text(
                runs=(
                    Run(text="("),
                    Run(text="https://e.org/a_(b)", href="https://e.org/a_(b)"),
                    Run(text=")."),
                )
            )
        ],
    ),
    "link without text": (
        "[](https://e.org)",
        [Text(runs=(Run(text="https://e.org", href="https://e.org"),))],
    ),
    "picture in a link": (
        "[![alt](https://e.org/p.png)](https://e.org)",
        [Text(runs=(Run(text="alt", href="https://e.org"),))],
    ),
    "control signs": ("a\x1b[31mb\u202ec", [Text(runs=(Run(text="a[31mbc"),))]),
    "half a pair": ("a\ud83d", [Text(runs=(Run(text="a\ufffd"),))]),
}


@pytest.mark.parametrize(("text", "expected"), PARSED.values(), ids=PARSED)
def test_markdown_is_read_into_blocks(text: str, expected: list[object]) -> None:
    assert parse(text)[: len(expected)] == expected


def test_cells_beyond_the_last_column_are_kept() -> None:
    [table] = parse("> | a | b |\n> |---|---|\n> | 1 | `x | y` |")
    assert isinstance(table, Table)
    assert table.rows == (((Run(text="1"),), (Run(text="x | y", code=True),)),)


def test_a_line_break_of_a_cell_is_one() -> None:
    [table] = parse("|a|\n|-|\n|x<br/>y `<br>`|")
    assert isinstance(table, Table)
    assert table.rows == (((Run(text="x\ny "), Run(text="<br>", code=True)),),)


@pytest.mark.parametrize(
    "text", [">" * 400 + " deep", "- " * 300 + "deep", "> - " * 100 + "deep"], ids=["q", "l", "ql"]
)
def test_nesting_beyond_the_parsers_limit_loses_no_text(text: str) -> None:
    assert "deep" in "".join(part.plain for part in telegram.render(text))
    assert "deep" in "".join(discord.render(text))
    assert "deep" in "".join(part.fallback for part in slack.render(text))


def test_definitions_that_no_link_uses_are_kept() -> None:
    blocks = parse("see [a]\n\n[a]: https://e.org/a\n[b]: https://e.org/b\n[a]: https://e.org/c")
    assert [run.text for run in blocks[-1].runs if run.href] == [  # type: ignore[attr-defined]
        "https://e.org/b",
        "https://e.org/c",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("abc", 3), ("日本", 4), ("ｶﾞ", 2), ("e\u0301", 1), ("👨\u200d👩\u200d👧", 2), ("a\u200bb", 2)],
    ids=["ascii", "wide", "narrow", "combining", "joined", "unseen"],
)
def test_width_is_that_of_a_monospaced_font(text: str, expected: int) -> None:
    assert columns(text) == expected


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        ("abcd", 2, 2),
        ("ae\u0301b", 2, 1),
        ("a👨\u200d👩b", 3, 1),
        ("a👍🏽b", 2, 1),
        ("🇩🇪🇫🇷", 3, 2),
        ("🇩🇪🇫🇷", 2, 2),
        ("e" + "\u0301" * 200, 100, 100),
        ("ab", 2, 2),
    ],
    ids=["plain", "combining", "joined", "skin", "flag", "flags", "piled up", "end"],
)
def test_no_cut_falls_into_a_sign(text: str, at: int, expected: int) -> None:
    assert border(text, at) == expected


def test_units_and_sight() -> None:
    assert units("a👍") == 3
    assert seen("x") and seen("👍") and seen("\u0301")
    assert not seen(" \n\u200b\u3164\ufe0f\u2060\xa0")


EVIL = {
    "brackets": "[" * 4_000,
    "ticks": "".join("`" * n + " " for n in range(140)),
    "stars": "*a **b " * 1500,
    "images": "![" * 1_500,
    "angles": "<" * 10_000,
    "tildes": "~" * 10_000,
    "pipes": "|" * 2_000 + "\n" + "|-" * 1_999 + "|\n" + "|a" * 1_999 + "|",
    "lines": "a\n" * 4_000,
    "addresses": "http://a.b/" + "(" * 5_000 + ")" * 5_000,
    "one line": "x" * 50_000,
    "accents": "e" + "\u0301" * 20_000,
    "spaces": ("x" + " " * 200) * 100,
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", EVIL.values(), ids=EVIL)
def test_no_text_takes_forever(text: str) -> None:
    assert telegram.render(text)
    assert discord.render(text)
    assert slack.render(text)
