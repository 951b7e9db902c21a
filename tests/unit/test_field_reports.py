"""Every test that docs/field-reports.md names is there; of three groups no report is left out."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/field-reports.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)
ROWS = re.findall(r"^\| ([A-Z]-\d\d(?:(?:, | to )[A-Z]-\d\d)*) \| (.*) \|$", PAGE, re.MULTILINE)

#: The groups of which every report has a row, and the numbers there are.
WHOLE = {
    "C": (1, 2, 3, 5, 6, 8, 9, 11, 12, 13, 14),
    "M": (1, 2, 3, 5, 7, 8, 10, 11, 12, 13),
    "X": (1, 2, 4, 5, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17),
}


@cache
def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED)))
def test_a_test_that_is_named_is_there(path: str, name: str) -> None:
    assert (ROOT / path).is_file()
    assert not name or name in names_in(path)


def test_many_are_named() -> None:
    assert len(NAMED) > 40


@pytest.mark.parametrize("group", WHOLE)
def test_every_report_of_a_whole_group_has_a_row(group: str) -> None:
    told = {each for ids, _ in ROWS for each in ids.split(", ")}
    assert [n for n in WHOLE[group] if f"{group}-{n:02}" not in told] == []


def test_a_row_names_a_test_or_says_why_there_is_none() -> None:
    assert len(ROWS) == PAGE.count("\n| ") - PAGE.count("\n| id |")
    assert [ids for ids, said in ROWS if "`tests/" not in said and len(said.split()) < 4] == []
