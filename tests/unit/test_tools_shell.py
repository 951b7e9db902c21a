"""The shell tools: what is declared, what the model reads, and what a card shows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ToolError
from engine.sandbox.local import LocalExecutor
from engine.tools.base import Risk, ToolContext
from engine.tools.shell import run_shell
from tests.fakes.context import make_context


@pytest.fixture
async def ctx(tmp_path: Path) -> AsyncIterator[ToolContext]:
    plain = make_context(tmp_path)
    shell = LocalExecutor(plain.cwd, grace=0.3)

    async def executor() -> LocalExecutor:
        return shell

    yield replace(plain, executor=executor)
    await shell.close()


def test_what_starts_a_program_is_exec() -> None:
    assert run_shell.risk is Risk.EXEC and run_shell.target is None
    assert run_shell.timeout > 600


async def test_a_command_tells_output_code_and_folder(ctx: ToolContext) -> None:
    """S-07."""
    result = await run_shell.run(ctx, command="echo hi; (exit 2)", description="say hi")
    assert result.text == f"hi\n[exit code 2; folder {ctx.cwd}]"
    assert not result.ok
    assert result.display is not None
    assert (result.display["command"], result.display["description"]) == (
        "echo hi; (exit 2)",
        "say hi",
    )


async def test_a_quiet_success_is_still_an_answer(ctx: ToolContext) -> None:
    result = await run_shell.run(ctx, command="true")
    assert result.ok and result.text.startswith("[exit code 0;")


async def test_a_command_that_took_too_long_says_so(ctx: ToolContext) -> None:
    result = await run_shell.run(ctx, command="echo a; sleep 99", timeout=0.2)
    assert result.text.startswith("a\n[ended after 0.2 s, its time limit;") and not result.ok


async def test_output_that_was_cut_says_so(ctx: ToolContext) -> None:
    result = await run_shell.run(ctx, command="yes | head -c 100000")
    assert "[the beginning of the output was cut off; exit code 0;" in result.text


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        pytest.param(0, 120.0, id="D-173-zero"),
        pytest.param(-5, 120.0, id="D-173-negative"),
        pytest.param("soon", 120.0, id="D-173-text"),
        pytest.param(None, 120.0, id="S-02-nothing"),
        pytest.param(True, 120.0, id="S-02-truth"),
        pytest.param([], 120.0, id="S-02-list"),
        pytest.param(float("nan"), 120.0, id="S-02-no-number"),
        pytest.param(10_000, 600.0, id="D-173-cap"),
        pytest.param(float("inf"), 600.0, id="S-02-endless"),
        pytest.param(10**400, 120.0, id="S-02-huge"),
        pytest.param("30", 30.0, id="S-02-number-as-text"),
        pytest.param(1.5, 1.5, id="S-02-fraction"),
    ],
)
def test_a_timeout_is_brought_within_bounds(asked: Any, given: float) -> None:
    accepted = run_shell.check({"command": "ls", "timeout": asked})
    assert accepted["timeout"] == given


def test_the_default_timeout_is_two_minutes() -> None:
    assert run_shell.check({"command": "ls"})["timeout"] == 120.0


async def test_the_card_shows_the_whole_command_and_its_folder(ctx: ToolContext) -> None:
    """W-08."""
    await run_shell.run(ctx, command="mkdir sub; cd sub")
    command = "echo " + "x" * 5_000 + "\nrm -rf build"
    assert run_shell.preview is not None
    shown = await run_shell.preview(ctx, {"command": command})
    assert shown == f"In {ctx.cwd}/sub:\n{command}"


async def test_a_preview_starts_no_process(ctx: ToolContext) -> None:
    assert run_shell.preview is not None
    await run_shell.preview(ctx, {"command": "ls"})
    shell = await ctx.executor()
    assert shell._shell is None


@pytest.mark.parametrize("command", ["", "  \n", "echo a\0b"])
async def test_a_command_that_is_none_is_refused(ctx: ToolContext, command: str) -> None:
    with pytest.raises(ToolError, match="empty or holds a NUL"):
        await run_shell.run(ctx, command=command)


async def test_nothing_starts_when_it_is_too_late(ctx: ToolContext) -> None:
    def late() -> None:
        raise TimeoutError("act_by has passed")

    with pytest.raises(TimeoutError):
        await run_shell.run(replace(ctx, before_act=late), command="touch done")
    assert not (ctx.cwd / "done").exists()
