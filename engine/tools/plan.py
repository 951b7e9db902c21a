"""Proposes a plan: how plan mode ends. The call is a prompt; the decision is its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.canonical import dumps
from engine.errors import ToolError
from engine.events import Kind
from engine.tools.base import Result, Risk, ToolContext, tool

__all__ = ["TOOLS", "answered", "plan_of"]


def plan_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the prompt's payload: {"title", "plan", "steps"}."""
    return {
        "title": "A plan",
        "plan": arguments["plan"],
        "steps": list(arguments.get("steps") or []),
    }


def answered(arguments: Mapping[str, Any], answer: Mapping[str, Any]) -> Result:
    """Return the result of an approved plan: the mode the person chose begins with it.

    `answer` is the inbox's: {"kind": "approve", "mode": …}; an unknown mode means interactive. A
    denied plan never gets here: its result is the person's reason, and plan mode goes on.
    """
    mode = answer.get("mode")
    mode = mode if mode in ("interactive", "auto", "custom") else "interactive"
    note = "The plan is approved; carry it out now."
    return Result(
        text=dumps({"approved": True, "mode": mode, "note": note}),
        facts=((Kind.SWITCHED, {"mode": mode, "by": "plan"}),),
    )


def _accept(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    if not str(arguments.get("plan") or "").strip():
        raise ToolError("The plan is empty.", "Write in `plan` what you mean to do.")
    return arguments


@tool(
    risk=Risk.CONTROL,
    asks="plan",
    accept=_accept,
    card=plan_of,
    answered=answered,
    modes=frozenset({"plan"}),
)
async def propose_plan(ctx: ToolContext, plan: str, steps: list[str] | None = None) -> Result:
    """Show the person your plan and wait for approval; until then nothing may be changed.

    Args:
        plan: What you mean to do and why, in Markdown; name what will change.
        steps: The steps, one short line each.
    """
    raise ToolError("Nobody can approve a plan here.", "Describe the plan in your answer.")


TOOLS = [propose_plan]
