"""The tool that runs a command in the session's shell; jobs: engine/schedule/job_tools.py."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from engine.errors import ToolError
from engine.sandbox.base import Executor, Ran
from engine.tools.base import Result, Risk, ToolContext, tool

__all__ = ["TOOLS", "checked", "preview", "run_shell", "shell_of"]

_DEFAULT = 120.0  # seconds
_CAP = 600.0  # seconds


def _straight(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Make a timeout that is no number of seconds the default, so the card shows what will be."""
    given = dict(arguments)
    if "timeout" in given:
        given["timeout"] = _seconds(given["timeout"])
    return given


def _seconds(value: Any) -> float:
    try:
        seconds = float(value) if not isinstance(value, bool) else 0.0
    except (TypeError, ValueError, OverflowError):
        return _DEFAULT
    return _DEFAULT if math.isnan(seconds) or seconds <= 0 else min(seconds, _CAP)


def checked(command: str) -> str:
    """Return the command; raises ToolError when it is none."""
    if not command.strip() or "\0" in command:
        raise ToolError("The command is empty or holds a NUL byte.", "Write a shell command.")
    return command


async def shell_of(ctx: ToolContext) -> Executor:
    """Return the session's shell, opened when first used."""
    return cast(Executor, await ctx.executor())


async def preview(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    """Show the whole command, never a part of it, and where it will run."""
    state = await (await shell_of(ctx)).state()
    return f"In {state.cwd}:\n{arguments['command']}"


# The tool's own limit is above the longest command's, with its grace, so that the shell ends it.
@tool(risk=Risk.EXEC, preview=preview, accept=_straight, timeout=_CAP + 30, result_budget=24_000)
async def run_shell(
    ctx: ToolContext,
    command: str,
    timeout: float = _DEFAULT,  # noqa: ASYNC109  # the model's argument, not a way to be cancelled
    description: str = "",
) -> Result:
    """Run a shell command and return its exit code and the end of its output.

    The shell stays: a folder you change to, variables you export and an environment you activate
    are there for the next command. Commands read an empty input, so pass flags such as --yes. For
    what takes longer, or should go on running, use job_start.

    Args:
        command: What to run, for bash.
        timeout: Seconds after which it is ended; 120 when left out, 600 at most.
        description: What it is for, in a few words, for the person who is asked.
    """
    shell = await shell_of(ctx)
    ctx.before_act()
    seconds = _seconds(timeout)
    ran = await shell.run(checked(command), seconds)
    return Result(
        text=_report(ran, seconds),
        ok=ran.exit_code == 0 and not ran.timed_out and not ran.interrupted,
        display={
            "command": command,
            "description": description,
            "cwd": ran.cwd,
            "exit_code": ran.exit_code,
            "timed_out": ran.timed_out,
            "truncated": ran.truncated,
        },
    )


def _report(ran: Ran, seconds: float) -> str:
    notes = []
    if ran.truncated:
        notes.append("the beginning of the output was cut off")
    if ran.timed_out:
        notes.append(f"ended after {seconds:g} s, its time limit")
    if ran.interrupted:
        notes.append("interrupted by the user")
    if ran.exit_code is None:
        notes.append("killed with the shell; the next command finds a new one")
    else:
        notes.append(f"exit code {ran.exit_code}")
    return _joined(ran.output, f"[{'; '.join(notes)}; folder {ran.cwd}]")


def _joined(output: str, note: str) -> str:
    return f"{output}{'' if not output or output.endswith(chr(10)) else chr(10)}{note}"


TOOLS = [run_shell]
