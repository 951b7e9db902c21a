"""`nod demo`, as a person on a fresh machine sees it: real processes, a real kill, one post."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bot import sample

ROOT = Path(__file__).parents[2]


def environ(tmp_path: Path, **more: str) -> dict[str, str]:
    """A machine with nothing of ours on it, and no model."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "NOD_MODEL": "practice:rules",
        **more,
    }


def demo(tmp_path: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "bot.cli", "demo", *words],
        cwd=tmp_path,
        env=environ(tmp_path, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
    )


def posts(data: Path) -> list[dict[str, Any]]:
    file = data / "console" / "standup.jsonl"
    if not file.exists():
        return []
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["op"] == "post"]


def folder_of(tmp_path: Path) -> Path:
    (data,) = tmp_path.glob("nod-demo-*")
    return data


def test_the_demo_kills_its_process_while_it_waits_and_posts_once(tmp_path: Path) -> None:
    done = demo(tmp_path, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    data = folder_of(tmp_path)
    assert "is not an AI" in done.stdout
    assert "so a sample was made" in done.stdout
    started = re.findall(r"Started `nod serve` as process (\d+)", done.stdout)
    killed = re.findall(r"process (\d+) was killed \(SIGKILL\)", done.stdout)
    assert len(started) == 2
    assert killed == started[:1]
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    (post,) = posts(data)
    assert re.fullmatch(r"act:s\w+-1-\d+-0/1", post["delivery"])
    (briefing,) = data.glob("sessions/*/files/briefing.md")
    text = briefing.read_text(encoding="utf-8")
    assert "Stand-up" in text
    assert "Try five times before giving up" in text
    assert post["text"] == text
    for place in (str(briefing), str(data / "transcript.txt"), "whole; see NOD_HOME="):
        assert place in done.stdout
    assert "once by console on socket" in (data / "transcript.txt").read_text(encoding="utf-8")


def test_the_demo_reads_the_persons_own_repository_and_calendar(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    sample.make_repository(tmp_path / "repo", now.timestamp())
    calendar = tmp_path / "mine.ics"
    calendar.write_text(
        "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//x//EN\r\nBEGIN:VEVENT\r\nUID:1\r\n"
        f"DTSTAMP:20260101T000000Z\r\nDTSTART;VALUE=DATE:{now:%Y%m%d}\r\n"
        "SUMMARY:Launch of the ferry\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n",
        encoding="utf-8",
    )
    words = ["--repo", str(tmp_path / "repo"), "--calendar", str(calendar), "--yes"]
    done = demo(tmp_path, *words, TZ="UTC")
    assert done.returncode == 0, done.stdout + done.stderr
    (post,) = posts(folder_of(tmp_path))
    assert "Launch of the ferry" in post["text"]
    assert "Say nothing at night" in post["text"]


def test_without_git_the_demo_reads_a_written_history_and_says_so(tmp_path: Path) -> None:
    done = demo(tmp_path, "--yes", PATH=str(tmp_path / "nothing"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "git is not installed" in done.stdout
    (post,) = posts(folder_of(tmp_path))
    assert "Try five times before giving up" in post["text"]


def test_a_key_denies_and_nothing_is_posted(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "bot.cli", "demo"],
        cwd=tmp_path,
        env=environ(tmp_path),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    shown = ""
    for line in process.stdout:
        shown += line
        if "Press a to approve" in line:
            break
    # What is typed before the terminal listens is thrown away, so the keys are pressed again.
    while process.poll() is None:
        os.write(ours, b"d")
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
    shown += process.stdout.read()
    process.stdout.close()
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 0, shown
    assert "Denied by @console" in shown
    assert posts(folder_of(tmp_path)) == []


WRONG = [
    ("no_terminal", [], "There is no terminal to answer the card at. Say --yes."),
    ("no_calendar", ["--yes", "--calendar", "none.ics"], "The calendar none.ics cannot be read"),
    ("no_ics", ["--yes", "--calendar", "note.txt"], "note.txt is no iCalendar file. Export"),
    ("no_repository", ["--yes", "--repo", "home"], "There is no git repository at home"),
]


@pytest.mark.parametrize(("words", "told"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_bad_input_is_told_in_one_sentence(tmp_path: Path, words: list[str], told: str) -> None:
    (tmp_path / "note.txt").write_text("buy milk", encoding="utf-8")
    done = demo(tmp_path, *words)
    assert done.returncode == 1
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_calendar_that_breaks_while_it_is_read_fails_the_demo(tmp_path: Path) -> None:
    (tmp_path / "bad.ics").write_text("BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:x\n", "utf-8")
    done = demo(tmp_path, "--yes", "--calendar", "bad.ics")
    assert done.returncode == 1
    assert "✗ calendar_events: " in done.stdout
