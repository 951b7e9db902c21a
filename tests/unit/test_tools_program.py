"""A program a tool runs is ended with all it started, and sees nothing of our environment."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import psutil
import pytest

from engine.tools.program import environment, run_program


async def test_output_exit_code_and_stdin_are_passed_on() -> None:
    code = "import sys; print(sys.stdin.read()); print('e', file=sys.stderr); sys.exit(3)"
    ended = await run_program([sys.executable, "-c", code], limit=10, stdin="hello")
    assert (ended.exit_code, ended.out, ended.err) == (3, "hello\n", "e\n")


async def test_a_program_over_its_time_is_gone_with_its_children(tmp_path: Path) -> None:
    words = ["/bin/sh", "-c", f"sleep 60 & echo $! > {tmp_path / 'pid'}; wait"]
    began = time.monotonic()
    ended = await run_program(words, limit=0.5)
    assert ended.timed_out
    assert time.monotonic() - began < 5
    pid = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def test_a_program_that_prints_without_end_is_ended() -> None:
    ended = await run_program(["/bin/sh", "-c", "while :; do echo y; done"], limit=20, max_bytes=9)
    assert (ended.full, ended.timed_out, len(ended.out)) == (True, False, 9)


async def test_a_cancelled_run_leaves_no_program(tmp_path: Path) -> None:
    words = ["/bin/sh", "-c", f"echo $$ > {tmp_path / 'pid'}; exec sleep 60"]
    running = asyncio.ensure_future(run_program(words, limit=60))
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


async def test_the_environment_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    ended = await run_program(
        [sys.executable, "-c", "import os; print(dict(os.environ))"], limit=10
    )
    assert "secret" not in ended.out
    assert set(environment()) == {"PATH", "LC_ALL"}


async def test_a_missing_program_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        await run_program(["/nonexistent/program"], limit=1)
