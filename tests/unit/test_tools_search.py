"""Searching real folders, with our own scan and with ripgrep where it is installed."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ToolError
from engine.tools import search as searching
from engine.tools.base import ToolContext
from engine.tools.scan import matches
from engine.tools.search import find_files, search
from tests.fakes.context import make_context

needs_ripgrep = pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")


@pytest.fixture(
    params=[pytest.param("scan"), pytest.param("rg", marks=needs_ripgrep)],
)
def ctx(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A context, once where only our own scan can be found and once with ripgrep."""
    if request.param == "scan":
        monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    return make_context(tmp_path)


async def hits(ctx: ToolContext, pattern: str, **arguments: Any) -> list[str]:
    checked = search.check({"pattern": pattern, **arguments})
    return (await search.run(ctx, **checked)).text.split("\n")


async def test_hits_are_path_line_and_text(ctx: ToolContext) -> None:
    (ctx.cwd / "sub").mkdir()
    (ctx.cwd / "a.py").write_text("x = 1\ny: int = 2\n")
    (ctx.cwd / "sub/b.md").write_text("y: int = 3\n")
    assert await hits(ctx, r"^y.*\d") == ["a.py:2: y: int = 2", "sub/b.md:1: y: int = 3"]
    assert await hits(ctx, "int", glob="*.md") == ["sub/b.md:1: y: int = 3"]
    assert await hits(ctx, "int", glob="sub/**") == ["sub/b.md:1: y: int = 3"]
    assert await hits(ctx, "INT", ignore_case=True, path="a.py") == ["a.py:2: y: int = 2"]
    assert await hits(ctx, "INT") == ["[no hits]"]


async def test_caches_binaries_and_links_are_left_out(ctx: ToolContext, tmp_path: Path) -> None:
    for name in (".git/config", "node_modules/m.js", "bin", "seen/.env"):
        (ctx.cwd / name).parent.mkdir(parents=True, exist_ok=True)
        (ctx.cwd / name).write_text("needle\0" if name == "bin" else "needle")
    (tmp_path / "secret").write_text("needle")
    (ctx.cwd / "link").symlink_to(tmp_path / "secret")
    assert await hits(ctx, "needle") == ["seen/.env:1: needle"]


async def test_hits_and_lines_have_limits(ctx: ToolContext) -> None:
    (ctx.cwd / "a").write_text(("needle " + "ä" * 2_000 + "\n") * 50)
    found = await hits(ctx, "needle", limit=5)
    assert len(found) == 6
    assert found[-1].startswith("[more than 5 hits")
    assert all(len(line) <= len("a:10: ") + 300 + len(" …") for line in found)


async def test_a_wrong_pattern_is_named(ctx: ToolContext) -> None:
    (ctx.cwd / "a").write_text("x")
    with pytest.raises(ToolError, match="The search failed"):
        await hits(ctx, "a(b")


async def test_a_pattern_that_looks_like_an_option_is_a_pattern(ctx: ToolContext) -> None:
    (ctx.cwd / "a").write_text("use --pre=sh here\n")
    assert await hits(ctx, "--pre=sh") == ["a:1: use --pre=sh here"]


async def test_a_hopeless_pattern_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    monkeypatch.setattr(searching, "_SECONDS", 0.5)
    ctx = make_context(tmp_path)
    (ctx.cwd / "a").write_text("a" * 60 + "!\n")
    began = time.monotonic()
    with pytest.raises(ToolError, match="took longer"):
        await hits(ctx, "(a+)+$")
    assert time.monotonic() - began < 5


async def test_the_loop_stays_free_while_a_search_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    ctx = make_context(tmp_path)
    (ctx.cwd / "a").write_text("a" * 60 + "!\n")
    running = asyncio.ensure_future(hits(ctx, "(a+)+$"))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_outside_is_not_searched(ctx: ToolContext) -> None:
    for tool, arguments in ((search, {"pattern": "x"}), (find_files, {"glob": "*"})):
        with pytest.raises(ToolError, match="not in a directory"):
            await tool.run(ctx, **tool.check({**arguments, "path": ".."}))


async def test_files_are_found_by_glob(tmp_path: Path) -> None:
    ctx = make_context(tmp_path)
    for name in ("a.csv", "x/b.csv", "x/y/c.csv", "x/y/c.txt", ".git/d.csv"):
        (ctx.cwd / name).parent.mkdir(parents=True, exist_ok=True)
        (ctx.cwd / name).touch()

    async def found(glob: str, **more: Any) -> list[str]:
        return (await find_files.run(ctx, **find_files.check({"glob": glob, **more}))).text.split()

    assert await found("*.csv") == ["a.csv", "x/b.csv", "x/y/c.csv"]
    assert await found("x/*.csv") == ["x/b.csv"]
    assert await found("**/y/*") == ["x/y/c.csv", "x/y/c.txt"]
    assert await found("c.*", path="x") == ["x/y/c.csv", "x/y/c.txt"]
    assert (await found("*", limit=1))[0] == "a.csv"


@pytest.mark.parametrize(
    ("path", "glob", "fits"),
    [
        pytest.param("a/b/c.py", "*.py", True, id="name"),
        pytest.param("a/b/c.py", "a/*.py", False, id="one-folder"),
        pytest.param("a/b/c.py", "a/**/*.py", True, id="any-folders"),
        pytest.param("a/c.py", "a/**/*.py", True, id="no-folder"),
        pytest.param("a/b/c.py", "**", True, id="all"),
        pytest.param("a/b/c.py", "a/**", True, id="below"),
        pytest.param("b/c.py", "a/**", False, id="elsewhere"),
        pytest.param("a/b/c.py", "**/b", False, id="folder-is-no-file"),
    ],
)
def test_a_glob_fits(path: str, glob: str, fits: bool) -> None:
    assert matches(path, glob) is fits


@given(st.text("ab/*?", max_size=40), st.text("ab/", max_size=40))
def test_a_glob_never_takes_long(glob: str, path: str) -> None:
    matches(path * 5, glob * 5)
