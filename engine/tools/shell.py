"""Tools that run programs: one command and its result, and jobs in the background.

Starting something is EXEC. What a running job printed is READ. Ending an own job is CONTROL: it
changes nothing but what this session itself started, and must never have to wait for a person.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from engine.errors import ToolError
from engine.sandbox.base import Executor, JobOutput, Ran
from engine.tools.base import Result, Risk, ToolContext, tool

__all__ = ["TOOLS", "run_shell", "shell_kill", "shell_output", "shell_start"]

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


def _checked(command: str) -> str:
    if not command.strip() or "\0" in command:
        raise ToolError("The command is empty or holds a NUL byte.", "Write a shell command.")
    return command


async def _shell(ctx: ToolContext) -> Executor:
    return cast(Executor, await ctx.executor())


async def _preview(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    """Show the whole command, never a part of it, and where it will run."""
    state = await (await _shell(ctx)).state()
    return f"In {state.cwd}:\n{arguments['command']}"


# The tool's own limit is above the longest command's, with its grace, so that the shell ends it.
@tool(risk=Risk.EXEC, preview=_preview, accept=_straight, timeout=_CAP + 30, result_budget=24_000)
async def run_shell(
    ctx: ToolContext,
    command: str,
    timeout: float = _DEFAULT,  # noqa: ASYNC109  # the model's argument, not a way to be cancelled
    description: str = "",
) -> Result:
    """Run a shell command and return its exit code and the end of its output.

    The shell stays: a folder you change to, variables you export and an environment you activate
    are there for the next command. Commands read an empty input, so pass flags such as --yes. For
    what should go on running, use shell_start.

    Args:
        command: What to run, for bash.
        timeout: Seconds after which it is ended; 120 when left out, 600 at most.
        description: What it is for, in a few words, for the person who is asked.
    """
    shell = await _shell(ctx)
    ctx.before_act()
    seconds = _seconds(timeout)
    ran = await shell.run(_checked(command), seconds)
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


@tool(risk=Risk.EXEC, preview=_preview)
async def shell_start(ctx: ToolContext, command: str, description: str = "") -> Result:
    """Start a shell command in the background and return its job id at once.

    It starts in the folder and with the exports of the shell, and ends when this turn ends or
    waits for a person.

    Args:
        command: What to run, for bash.
        description: What it is for, in a few words, for the person who is asked.
    """
    shell = await _shell(ctx)
    ctx.before_act()
    job = await shell.start(_checked(command))
    display = {"command": command, "description": description, "job": job}
    return Result(text=f"Started as {job}. Read it with shell_output.", display=display)


@tool(risk=Risk.READ, result_budget=24_000)
async def shell_output(ctx: ToolContext, job: str) -> Result:
    """Return what a background job printed since you last asked, and whether it still runs.

    Args:
        job: The id that shell_start returned, for example bg-1.
    """
    return Result(text=_told(await (await _shell(ctx)).output(job)))


@tool(risk=Risk.CONTROL, result_budget=24_000)
async def shell_kill(ctx: ToolContext, job: str) -> Result:
    """End a background job and everything it started; returns what it printed last.

    Args:
        job: The id that shell_start returned, for example bg-1.
    """
    return Result(text=_told(await (await _shell(ctx)).kill(job)))


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


def _told(said: JobOutput) -> str:
    state = "running" if said.running else f"exited with code {said.exit_code}"
    lost = f"; {said.dropped} bytes before this were dropped" if said.dropped else ""
    return _joined(said.output, f"[{said.job} {state}{lost}]")


def _joined(output: str, note: str) -> str:
    return f"{output}{'' if not output or output.endswith(chr(10)) else chr(10)}{note}"


TOOLS = [run_shell, shell_kill, shell_output, shell_start]
