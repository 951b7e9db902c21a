"""A worker is told from its predecessors: dead is said only of who is surely dead."""

from __future__ import annotations

import subprocess
import sys

import pytest

from engine.work.base import is_gone, worker_id

PRINT_ID = "from engine.work.base import worker_id; print(worker_id(), flush=True); input()"


@pytest.fixture
def other() -> tuple[subprocess.Popen[str], str]:
    """Another worker at work, and its id."""
    process = subprocess.Popen(
        [sys.executable, "-c", PRINT_ID], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_a_worker_at_work_is_not_gone_and_one_that_was_killed_is(
    other: tuple[subprocess.Popen[str], str],
) -> None:
    process, worker = other
    assert not is_gone(worker)
    process.kill()
    process.communicate(timeout=10)
    assert is_gone(worker)


def test_two_ids_of_one_process_differ() -> None:
    assert worker_id() != worker_id()


def _with(worker: str, place: int, change: str) -> str:
    parts = worker.split(":")
    parts[place] = change
    return ":".join(parts)


@pytest.mark.parametrize(
    ("place", "change", "gone"),
    [
        pytest.param(0, "elsewhere", False, id="another-host"),
        pytest.param(2, "1", True, id="its-pid-belongs-to-another-process-now"),
        pytest.param(1, "4194305", True, id="no-such-process"),
    ],
)
def test_only_a_process_of_this_host_can_be_known_to_be_gone(
    place: int, change: str, gone: bool
) -> None:
    assert is_gone(_with(worker_id(), place, change)) is gone


def test_the_start_of_a_process_does_not_move_with_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A date of the start would: whoever sets the clock would declare every worker dead."""
    import psutil

    worker = worker_id()
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: 1.0)
    assert not sys.platform.startswith("linux") or not is_gone(worker)
