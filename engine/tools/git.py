"""Looks at git repositories: status, log, diff, branches; changes none, runs no program of theirs.

A repository can name programs to run: monitors, filters, drivers, pagers, hooks, transports. One
that Nod was merely asked to look at must not get that far, so each way is closed by name, and
git is told itself where the repository is.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ToolError
from engine.tools.base import Result, Risk, ToolContext, tool
from engine.tools.places import locate
from engine.tools.program import Ended, environment, run_program

__all__ = ["TOOLS"]

#: Seconds one git command may take, and bytes of its output we read.
_SECONDS, _MAX_BYTES = 15.0, 400_000
#: Names of commits and branches; nothing that git could take for an option.
_REVISION = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_./@{}~^+-]*")
_FILTER = re.compile(r"filter\.(?P<name>.+)\.(clean|smudge|process|required)", re.S)
#: More filters than this no honest repository has.
_MAX_FILTERS = 100

#: Settings of a repository that name a program, or how git prints, and what we put in their place.
_CLOSED = {
    "color.ui": "false",
    "core.quotePath": "false",
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "core.hooksPath": "/dev/null",
    "diff.autoRefreshIndex": "false",
    "diff.external": "",
    "log.showSignature": "false",
    "protocol.allow": "never",
}

_ENVIRONMENT = {
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    # Missing objects would be fetched; a config may allow a protocol, but not against this.
    "GIT_ALLOW_PROTOCOL": "none",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Repository:
    named: str
    top: Path
    git_dir: Path


@tool(risk=Risk.READ, paths={"repo": "read"}, timeout=60)
async def git_status(ctx: ToolContext, repo: str = ".") -> Result:
    """Show the branch of a git repository and which files differ from the last commit.

    Args:
        repo: A folder in the repository.
    """
    found = _repository(ctx, repo)
    words = ["status", "--short", "--branch", "--ignore-submodules=all"]
    return Result(text=await _git(found, words) or "[clean]")


@tool(risk=Risk.READ, paths={"repo": "read"}, timeout=60)
async def git_log(
    ctx: ToolContext,
    repo: str = ".",
    since: str = "",
    revision: str = "",
    all_branches: bool = False,
    path: str = "",
    limit: int = 20,
) -> Result:
    """List commits, newest first: hash, date, author, subject.

    Args:
        repo: A folder in the repository.
        since: Only commits after this, for example 2026-03-01 or '24 hours ago'.
        revision: Start at this branch or commit instead of the current one; a..b is a range.
        all_branches: Commits of all branches, not of one.
        path: Only commits that touch this path, from the top of the repository.
        limit: At most this many commits, up to 200.
    """
    found = _repository(ctx, repo)
    words = [
        "log",
        f"--max-count={max(1, min(limit, 200))}",
        "--date=iso-strict",
        "--no-show-signature",
    ]
    words += ["--format=%h %ad %an: %s%d", "--no-ext-diff", "--no-textconv"]
    words += [f"--since={since}"] if since else []
    words += ["--branches", "--remotes"] if all_branches else []
    words += [*_revisions(revision), "--", *([path] if path else [])]
    return Result(text=await _git(found, words) or "[no commits]")


@tool(risk=Risk.READ, paths={"repo": "read"}, timeout=60)
async def git_diff(
    ctx: ToolContext,
    repo: str = ".",
    revision: str = "",
    staged: bool = False,
    path: str = "",
    names_only: bool = False,
) -> Result:
    """Show changes as a diff: of the working files, of what is staged, or between commits.

    Args:
        repo: A folder in the repository.
        revision: Compare with this commit; a..b compares two. Empty: the working files.
        staged: Show what is staged for the next commit.
        path: Only this path, from the top of the repository.
        names_only: Only list the files and how many lines changed.
    """
    found = _repository(ctx, repo)
    words = ["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all"]
    words += ["--cached"] if staged else []
    words += ["--stat=120"] if names_only else []
    words += [*_revisions(revision), "--", *([path] if path else [])]
    return Result(text=await _git(found, words) or "[no differences]")


@tool(risk=Risk.READ, paths={"repo": "read"}, timeout=60)
async def git_branches(ctx: ToolContext, repo: str = ".", remotes: bool = False) -> Result:
    """List branches, last changed first: name, date, last commit; * marks the current one.

    Args:
        repo: A folder in the repository.
        remotes: Also the branches last seen at remotes.
    """
    found = _repository(ctx, repo)
    shape = "%(HEAD) %(refname:short) %(committerdate:iso-strict) %(objectname:short) "
    shape += "%(upstream:track) %(contents:subject)"
    words = ["for-each-ref", "--sort=-committerdate", "--count=100", f"--format={shape}"]
    words += ["refs/heads", *(["refs/remotes"] if remotes else [])]
    return Result(text=await _git(found, words) or "[no branches]")


def _revisions(text: str) -> list[str]:
    if not text:
        return []
    if not _REVISION.fullmatch(text):
        raise ToolError(f"'{text[:80]}' is no revision.", "Name a branch, a tag or a commit.")
    return [text]


def _repository(ctx: ToolContext, named: str) -> _Repository:
    """Find the repository that holds the folder `named`, without asking git."""
    start = locate(ctx, named)
    for top in (start, *start.parents):
        mark = top / ".git"
        if mark.is_dir() or mark.is_file():
            locate(ctx, str(top))
            git_dir = _linked(mark) if mark.is_file() else mark
            return _Repository(named=named, top=top, git_dir=_inside(ctx, named, git_dir))
    raise ToolError(f"{named} is in no git repository.", "Name a folder of one.")


def _linked(mark: Path) -> Path:
    """Return where a .git file (of a work tree or a submodule) points."""
    with mark.open(encoding="utf-8", errors="replace") as file:
        text = file.read(4096)
    return mark.parent / text.removeprefix("gitdir:").strip()


def _inside(ctx: ToolContext, named: str, git_dir: Path) -> Path:
    """Refuse a repository whose data lies outside the session's folders."""
    try:
        common = git_dir / "commondir"
        if common.is_file():
            locate(ctx, str(git_dir / common.read_text(encoding="utf-8", errors="replace").strip()))
        return locate(ctx, str(git_dir))
    except ToolError as error:
        raise ToolError(
            f"The data of the repository at {named} lies outside the folders of this session.",
            error.fix,
        ) from error


async def _git(repository: _Repository, words: Sequence[str]) -> str:
    """Run a git command that only looks; returns what it printed. Raises ToolError."""
    ended = await _run(repository, words, {**_CLOSED, **await _filters_closed(repository)})
    cause = ended.err.strip().splitlines()[:1] or [f"it ended with {ended.exit_code}"]
    if ended.timed_out:
        raise ToolError(
            f"git took longer than {_SECONDS:.0f} seconds on {repository.named}.",
            "Ask for less: a path, a shorter time, fewer commits.",
        )
    if "does not have any commits" in cause[0]:
        return ""
    if ended.exit_code and not ended.full:
        raise ToolError(f"git could not read {repository.named}: {cause[0][:300]}")
    more = f"\n[cut after {_MAX_BYTES:,} bytes; ask for less]" if ended.full else ""
    return ended.out.rstrip("\n") + more


async def _filters_closed(repository: _Repository) -> dict[str, str]:
    """Return settings that turn off every filter the repository's own settings name."""
    words = ["config", "--list", "--includes", "--name-only", "-z"]
    listed = await _run(repository, words, _CLOSED)
    names = {match["name"] for key in listed.out.split("\0") if (match := _FILTER.fullmatch(key))}
    if listed.exit_code or len(names) > _MAX_FILTERS:
        cause = listed.err.strip().splitlines()[:1] or ["its settings are too long"]
        raise ToolError(f"git could not read {repository.named}: {cause[0][:300]}")
    off = {"clean": "", "process": "", "required": "false"}
    return {f"filter.{name}.{key}": value for name in names for key, value in off.items()}


async def _run(repository: _Repository, words: Sequence[str], settings: Mapping[str, str]) -> Ended:
    program = shutil.which("git")
    if program is None:
        raise ToolError("git is not installed here.", "Ask the person to install it.")
    argv = [program, "--no-pager", "--no-optional-locks", "--literal-pathspecs"]
    argv += [f"--git-dir={repository.git_dir}", f"--work-tree={repository.top}", *words]
    # As variables, not as `-c key=value`: a name may hold an equals sign.
    given = {"GIT_CONFIG_COUNT": str(len(settings))}
    for n, (key, value) in enumerate(settings.items()):
        given |= {f"GIT_CONFIG_KEY_{n}": key, f"GIT_CONFIG_VALUE_{n}": value}
    return await run_program(
        argv,
        limit=_SECONDS,
        env=environment(**_ENVIRONMENT, **given),
        cwd=repository.top,
        max_bytes=_MAX_BYTES,
    )


TOOLS = [git_status, git_log, git_diff, git_branches]
