"""`nod schedule edit` and `nod jobs`: what is typed in a shell is taken as it was meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bot.cli import app


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOD_HOME", str(tmp_path))
    monkeypatch.setenv("NOD_MODEL", "practice:rules")
    monkeypatch.setenv("NOD_ZONE", "UTC")


def nod(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_a_schedule_is_changed_in_a_shell_and_keeps_what_is_not_said() -> None:
    added = nod("schedule", "add", "0 8 * * 1-5", 'It\'s "time".', "--retry", "2").stdout
    schedule = added.split()[1].rstrip(":")
    told = nod("schedule", "edit", schedule, "every day at 9", "--quiet", "22:00-07:00").stdout
    assert "At 09:00, every day (UTC)" in told
    assert "Rules: retry 2, quiet 22:00-07:00." in told
    nod("schedule", "edit", schedule, "--text", 'Don\'t "wait".', "--title", "Later")
    shown = nod("schedule", "show", schedule).stdout
    assert 'What to do: Don\'t "wait".' in shown and f"{schedule}  Later" in shown
    assert "At 09:00, every day" in shown


def test_an_edit_that_says_nothing_is_refused() -> None:
    said = nod("schedule", "edit", "c1")
    assert said.exit_code == 2 and "Say what is to change" in said.stderr


def test_jobs_are_listed_in_a_shell_also_while_no_nod_is_at_work() -> None:
    assert "No job is running." in nod("jobs", "--all").stdout
    said = nod("jobs", "--stop")
    assert said.exit_code == 2 and "Name one job" in said.stderr
