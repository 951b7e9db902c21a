"""Looking at real git repositories; a hostile one gets nothing run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ToolError
from engine.tools.base import ToolContext
from engine.tools.git import TOOLS, git_branches, git_diff, git_log, git_status
from tests.fakes.context import make_context


def git(folder: Path, *words: str) -> None:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_DATE": "2026-03-01T10:00:00Z",
        "GIT_COMMITTER_DATE": "2026-03-01T10:00:00Z",
    }
    who = ["-c", "user.name=Ana", "-c", "user.email=ana@example.org"]
    subprocess.run(
        ["git", *who, *words], cwd=folder, env=env, check=True, capture_output=True, timeout=20
    )


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    """A context with a repository of two commits, one branch more, and a changed file."""
    ctx = make_context(tmp_path)
    repo = ctx.cwd / "repo"
    (repo / "sub").mkdir(parents=True)
    git(repo, "init", "-q", "-b", "main")
    (repo / "a.txt").write_text("one\n")
    (repo / "sub/b.txt").write_text("b\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "First")
    git(repo, "branch", "topic")
    (repo / "a.txt").write_text("two\n")
    git(repo, "commit", "-q", "-am", "Second: größer")
    (repo / "a.txt").write_text("three\n")
    (repo / "ü.txt").touch()
    return ctx


async def said(ctx: ToolContext, tool: Any, **arguments: Any) -> str:
    text: str = (await tool.run(ctx, **tool.check({"repo": "repo", **arguments}))).text
    return text


async def test_status_names_branch_and_files(ctx: ToolContext) -> None:
    assert await said(ctx, git_status) == "## main\n M a.txt\n?? ü.txt"
    assert await said(ctx, git_status, repo="repo/sub") == "## main\n M a.txt\n?? ü.txt"


async def test_log_is_newest_first_and_can_be_narrowed(ctx: ToolContext) -> None:
    both = (await said(ctx, git_log)).split("\n")
    assert [line.split(" ", 1)[1] for line in both] == [
        "2026-03-01T10:00:00+00:00 Ana: Second: größer (HEAD -> main)",
        "2026-03-01T10:00:00+00:00 Ana: First (topic)",
    ]
    assert len((await said(ctx, git_log, limit=1)).split("\n")) == 1
    assert "First" in await said(ctx, git_log, path="sub/b.txt")
    assert "Second" not in await said(ctx, git_log, revision="topic")
    assert "Second" in await said(ctx, git_log, revision="topic..main")
    assert "Second" in await said(ctx, git_log, all_branches=True)
    assert await said(ctx, git_log, since="2026-03-02T00:00:00Z") == "[no commits]"


async def test_diff_of_working_files_commits_and_names(ctx: ToolContext) -> None:
    assert "-two\n+three" in await said(ctx, git_diff)
    assert "-one\n+two" in await said(ctx, git_diff, revision="topic..main")
    assert "a.txt | 2 +-" in await said(ctx, git_diff, names_only=True)
    assert await said(ctx, git_diff, staged=True) == "[no differences]"
    assert await said(ctx, git_diff, path="sub/b.txt") == "[no differences]"


async def test_branches_say_which_is_current(ctx: ToolContext) -> None:
    lines = (await said(ctx, git_branches)).split("\n")
    assert any(line.startswith("* main 2026-03-01T10:00:00+00:00") for line in lines)
    assert any(line.startswith("  topic") and line.endswith("First") for line in lines)


async def test_a_repository_without_commits_is_no_error(tmp_path: Path) -> None:
    ctx = make_context(tmp_path)
    (ctx.cwd / "repo").mkdir()
    git(ctx.cwd / "repo", "init", "-q", "-b", "main")
    assert await said(ctx, git_log) == "[no commits]"
    assert await said(ctx, git_branches) == "[no branches]"
    assert "main" in await said(ctx, git_status)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
async def test_no_repository_no_git_and_outside_are_one_sentence(
    ctx: ToolContext, tool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ctx.cwd / "plain").mkdir()
    with pytest.raises(ToolError, match="plain is in no git repository"):
        await said(ctx, tool, repo="plain")
    with pytest.raises(ToolError, match="not in a directory"):
        await said(ctx, tool, repo="../..")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ToolError, match="git is not installed"):
        await said(ctx, tool)


@pytest.mark.parametrize(
    "revision", ["--output=/tmp/x", "-p", "a b", "main;ls", "main\n--all", "--"]
)
async def test_a_revision_is_never_an_option(ctx: ToolContext, revision: str) -> None:
    for tool in (git_log, git_diff):
        with pytest.raises(ToolError, match="is no revision"):
            await said(ctx, tool, revision=revision)


async def test_a_path_is_never_an_option_or_a_pattern(ctx: ToolContext) -> None:
    assert await said(ctx, git_log, path="--all") == "[no commits]"
    assert await said(ctx, git_diff, path=":(glob)**") == "[no differences]"


async def test_data_of_a_repository_outside_the_folders_is_refused(
    ctx: ToolContext, tmp_path: Path
) -> None:
    (ctx.cwd / "repo/.git").rename(tmp_path / "elsewhere")
    (ctx.cwd / "repo/.git").write_text(f"gitdir: {tmp_path / 'elsewhere'}\n")
    with pytest.raises(ToolError, match="lies outside the folders"):
        await said(ctx, git_log)


async def test_a_second_work_tree_inside_is_read(ctx: ToolContext) -> None:
    git(ctx.cwd / "repo", "worktree", "add", "-q", "../tree", "topic")
    assert "First" in await said(ctx, git_log, repo="tree")
    assert await said(ctx, git_status, repo="tree") == "## topic"


async def test_a_work_tree_named_by_the_repository_is_not_believed(
    ctx: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private/a.txt").write_text("private\n")
    git(ctx.cwd / "repo", "config", "core.worktree", str(tmp_path / "private"))
    assert "private" not in await said(ctx, git_diff)


HOSTILE = [
    pytest.param({"core.fsmonitor": "{run}"}, "", id="fsmonitor"),
    pytest.param({"diff.external": "{run}"}, "", id="external-diff"),
    pytest.param({"diff.x.command": "{run}"}, "* diff=x", id="diff-driver"),
    pytest.param({"diff.x.textconv": "{run}"}, "* diff=x", id="textconv"),
    pytest.param({"filter.x.clean": "{run}"}, "* filter=x", id="clean-filter"),
    pytest.param(
        {"filter.x.process": "{run}", "filter.x.required": "true"},
        "* filter=x",
        id="process-filter",
    ),
    pytest.param({"filter.a=b.clean": "{run}"}, "* filter=a=b", id="filter-with-equals-sign"),
    pytest.param({"core.pager": "{run}", "pager.log": "{run}"}, "", id="pager"),
    pytest.param({"core.hooksPath": "{folder}"}, "", id="hooks"),
    pytest.param({"log.showSignature": "true", "gpg.program": "{run}"}, "", id="signature"),
    pytest.param({"alias.status": "!{run}", "alias.log": "!{run}"}, "", id="alias"),
    pytest.param({"include.path": "{folder}/more"}, "* filter=y", id="included-settings"),
    pytest.param(
        {
            "core.repositoryFormatVersion": "1",
            "extensions.partialClone": "o",
            "remote.o.promisor": "true",
            "remote.o.url": "ext::{run}",
            "protocol.ext.allow": "always",
        },
        "missing",
        id="fetch-of-missing-objects",
    ),
]


@pytest.mark.parametrize(("settings", "attributes"), HOSTILE)
async def test_a_hostile_repository_runs_nothing(
    ctx: ToolContext, tmp_path: Path, settings: dict[str, str], attributes: str
) -> None:
    evil, ran = tmp_path / "evil", tmp_path / "ran"
    evil.mkdir()
    run = evil / "post-index-change"
    run.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    run.chmod(0o755)
    (evil / "more").write_text(f'[filter "y"]\n\tclean = {run}\n')
    repo = ctx.cwd / "repo"
    for key, value in settings.items():
        git(repo, "config", key, value.format(run=run, folder=evil))
    if attributes == "missing":
        for each in (repo / ".git/objects").glob("??/*"):
            each.unlink()
    elif attributes:
        (repo / ".gitattributes").write_text(attributes + "\n")
    (repo / "a.txt").write_text("four\n")
    for tool in TOOLS:
        try:
            await said(ctx, tool)
        except ToolError:
            assert attributes == "missing"
    assert not ran.exists()


async def test_the_hostile_repository_is_one_for_plain_git(tmp_path: Path) -> None:
    """Without our settings the same trap does go off, so the test above can fail."""
    ctx = make_context(tmp_path)
    git(ctx.cwd, "init", "-q")
    (ctx.cwd / "a").write_text("x")
    git(ctx.cwd, "config", "core.fsmonitor", f"touch {tmp_path / 'ran'};true")
    git(ctx.cwd, "status")
    assert (tmp_path / "ran").exists()


async def test_looking_changes_nothing_in_the_repository(ctx: ToolContext) -> None:
    def state() -> dict[str, bytes]:
        files = (p for p in (ctx.cwd / "repo/.git").rglob("*") if p.is_file())
        return {str(p): p.read_bytes() for p in files}

    os.utime(ctx.cwd / "repo/sub/b.txt", (1, 1))  # same content, other time: the index is stale
    before = state()
    for tool in TOOLS:
        await said(ctx, tool)
    assert state() == before
