"""Makes what the demo reads when there is nothing of the person's own: a small repository."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["find_repository", "make_repository"]

_SECONDS = 20.0  # one git command may take
_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class _Commit:
    branch: str
    hours_ago: float
    author: str
    file: str
    text: str
    subject: str


_COMMITS = (
    _Commit("main", 50, "Ana", "README.md", "# Ferry\n\nTimetables.\n", "Start the project"),
    _Commit("main", 44, "Ben", "ferry.py", "LIMIT = 3\n", "Read the timetable feed"),
    _Commit("main", 20, "Ana", "ferry.py", "LIMIT = 5\n", "Try five times before giving up"),
    _Commit(
        "retry", 9, "Ben", "retry.py", "WAIT = 2.0\n", "Wait longer after each lost connection"
    ),
    _Commit("main", 6, "Chi", "ferry.py", "LIMIT = 5\nQUIET = True\n", "Say nothing at night"),
    _Commit(
        "main", 2, "Ana", "CHANGES.md", "- Quiet at night\n", "Write down what changed for 2.4"
    ),
)


def find_repository(folder: Path) -> Path | None:
    """Return the top of the git repository `folder` lies in, or None; also without git."""
    try:
        found = _git(folder, ["rev-parse", "--show-toplevel"])
    except (OSError, subprocess.SubprocessError):
        return None
    return Path(found.strip()) if found.strip() else None


def make_repository(folder: Path, now: float) -> bool:
    """Make the sample in the new folder `folder`, its commits dated in the two days before `now`.

    Returns False when there is no git; then `history.txt` there tells what the commits would.
    """
    folder.mkdir(parents=True)
    try:
        _git(folder, ["init", "--quiet"])
        _git(folder, ["symbolic-ref", "HEAD", "refs/heads/main"])
    except FileNotFoundError:
        (folder / "history.txt").write_text(_history(now), encoding="utf-8")
        return False
    here = "main"
    for commit in _COMMITS:
        if commit.branch != here:
            known = any(c.branch == commit.branch for c in _COMMITS[: _COMMITS.index(commit)])
            _git(folder, ["checkout", "--quiet", *([] if known else ["-b"]), commit.branch])
            here = commit.branch
        (folder / commit.file).write_text(commit.text, encoding="utf-8")
        _git(folder, ["add", commit.file])
        _git(folder, ["commit", "--quiet", "--message", commit.subject], commit, now)
    return True


def _history(now: float) -> str:
    lines = ["Branches: main, retry (1 commit ahead of main)", "Commits, newest first:"]
    for commit in sorted(_COMMITS, key=lambda c: c.hours_ago):
        when = datetime.fromtimestamp(now - commit.hours_ago * _HOUR, UTC)
        lines.append(f"{when:%Y-%m-%dT%H:%M} {commit.author}: {commit.subject} ({commit.branch})")
    return "\n".join(lines) + "\n"


def _git(
    folder: Path, words: Sequence[str], commit: _Commit | None = None, now: float = 0.0
) -> str:
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),  # the person's own settings and hooks stay out
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }
    if commit is not None:
        when = f"{now - commit.hours_ago * _HOUR:.0f} +0000"
        for role in ("AUTHOR", "COMMITTER"):
            environment[f"GIT_{role}_NAME"] = commit.author
            environment[f"GIT_{role}_EMAIL"] = f"{commit.author.lower()}@example.org"
            environment[f"GIT_{role}_DATE"] = when
    done = subprocess.run(
        ["git", *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=True,
    )
    return done.stdout
