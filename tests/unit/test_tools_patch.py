"""The patch format: what it says, and where it fits."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ToolError
from engine.tools.patch import apply, parse, paths


def patched(text: str, *lines: str) -> str:
    (section,) = parse(
        "\n".join(["*** Begin Patch", "*** Update File: f", *lines, "*** End Patch"])
    )
    return apply(section, text)


@pytest.mark.parametrize(
    ("text", "lines", "result"),
    [
        pytest.param("a\nb\nc\n", ["@@", " a", "-b", "+B", " c"], "a\nB\nc\n", id="replace"),
        pytest.param("a\nb\n", [" a", "+x", " b"], "a\nx\nb\n", id="no-at-line"),
        pytest.param("a\n\nb\n", [" a", "", "-b", "+c"], "a\n\nc\n", id="blank-context"),
        pytest.param("a", ["-a", "+b"], "b", id="no-final-newline-is-kept"),
        pytest.param("a\nb", [" b", "+c"], "a\nb\nc", id="append-without-final-newline"),
        pytest.param("a\r\nb\r\n", [" a", "-b", "+c"], "a\r\nc\r\n", id="carriage-returns"),
        pytest.param("a\r\nb\nc\r\n", ["-b", "+x"], "a\r\nx\r\nc\r\n", id="mixed-line-ends"),
        pytest.param("x\ny\nx\n", ["@@ y", "-x", "+z"], "x\ny\nz\n", id="anchor"),
        pytest.param("x\nx\n", ["-x", "+z", "*** End of File"], "x\nz\n", id="end-of-file"),
        pytest.param("x\n", ["+z", "*** End of File"], "x\nz\n", id="append"),
        pytest.param("", ["+z"], "z\n", id="into-empty"),
        pytest.param("a\n", ["-a"], "", id="to-empty"),
        pytest.param("a\nb\n", ["@@ a", "+x"], "a\nx\nb\n", id="insert-after-anchor"),
        pytest.param("a\nb\n", ["@@ -1,2 +1,2 @@", "-a", "+c"], "c\nb\n", id="numbers-ignored"),
        pytest.param("a\nb\nc\n", ["-c", "+C", "@@", "-a", "+A"], "A\nb\nC\n", id="any-order"),
        pytest.param("a\fb\nc\n", ["-c", "+d"], "a\fb\nd\n", id="form-feed-is-no-line-end"),
    ],
)
def test_a_hunk_changes_its_place_only(text: str, lines: list[str], result: str) -> None:
    assert patched(text, *lines) == result


@pytest.mark.parametrize(
    ("text", "lines", "said"),
    [
        pytest.param("x\ny\nx\n", ["-x", "+z"], "ambiguous in f", id="ambiguous"),
        pytest.param("a\n", ["-b", "+c"], "does not fit f", id="absent"),
        pytest.param("a\n", ["-a ", "+c"], "does not fit f", id="inexact"),
        pytest.param("a\nb\n", ["+c"], "without saying where", id="nowhere"),
        pytest.param("q\nq\na\n", ["@@ q", "-a", "+c"], "2 times, not once", id="two-anchors"),
        pytest.param("a\nb\n", ["-a", "-b", "@@", " b", "+c"], "overlap in f", id="overlap"),
    ],
)
def test_a_hunk_without_one_clear_place_is_refused(text: str, lines: list[str], said: str) -> None:
    with pytest.raises(ToolError, match=said):
        patched(text, *lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "must begin", id="empty"),
        pytest.param("*** Begin Patch\n*** Update File: a\n-x", "must begin", id="no-end"),
        pytest.param("*** Begin Patch\n*** End Patch", "changes no file", id="no-file"),
        pytest.param("*** Begin Patch\nhello\n*** End Patch", "belongs to no file", id="stray"),
        pytest.param(
            "*** Begin Patch\n*** Add File: a\nx\n*** End Patch", "cannot be read", id="no-plus"
        ),
        pytest.param(
            "*** Begin Patch\n*** Update File: a\n*** End Patch", "nothing to change", id="no-hunk"
        ),
        pytest.param(
            "*** Begin Patch\n*** Update File: a\n?x\n*** End Patch", "cannot be read", id="sign"
        ),
    ],
)
def test_what_is_no_patch_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        parse(text)


def test_every_path_is_found_even_in_a_broken_patch() -> None:
    text = "*** Add File: a b.txt \r\nnonsense\n*** Update File: c\n*** Move to: ../d\n"
    text += "+*** Add File: e"
    assert paths(text) == ["a b.txt", "c", "../d"]


_LINES = st.lists(st.text(st.characters(exclude_characters="\r\n"), max_size=5), unique=True)


@given(_LINES, _LINES)
def test_a_patch_made_from_two_texts_turns_one_into_the_other(
    old: list[str], new: list[str]
) -> None:
    signs = [line for line in difflib.ndiff(old, new) if line[0] in " -+"]
    if old and old != new:
        before, after = ("".join(f"{line}\n" for line in side) for side in (old, new))
        assert patched(before, "@@", *(line[0] + line[2:] for line in signs)) == after
