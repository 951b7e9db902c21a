"""Proposes a plan: how plan mode ends. The call is a prompt; the decision is its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.canonical import dumps
from engine.errors import ToolError
from engine.tools.base import Result, Risk, ToolContext, tool

__all__ = ["TOOLS", "plan_of", "result_text"]


def plan_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the prompt's payload: {"plan", "steps"}."""
    return {"plan": arguments["plan"], "steps": list(arguments.get("steps") or [])}


def result_text(answer: Mapping[str, Any]) -> str:
    """Return the tool result for a decision, as JSON text.

    `answer` is {"approved": true, "mode": the mode that begins} or {"approved": false,
    "feedback": what to do instead}.
    """
    if answer.get("approved") is True:
        note = "The plan is approved; carry it out now."
        return dumps({"approved": True, "mode": answer.get("mode", ""), "note": note})
    feedback = str(answer.get("feedback") or "").strip()
    note = "Still in plan mode: nothing may be changed. Mend the plan and propose it again."
    return dumps({"approved": False, "feedback": feedback or "No reason was given.", "note": note})


def _accept(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    if not str(arguments.get("plan") or "").strip():
        raise ToolError("The plan is empty.", "Write in `plan` what you mean to do.")
    return arguments


@tool(risk=Risk.CONTROL, asks="plan", accept=_accept, modes=frozenset({"plan"}))
async def propose_plan(ctx: ToolContext, plan: str, steps: list[str] | None = None) -> Result:
    """Show the person your plan and wait for approval; until then nothing may be changed.

    Args:
        plan: What you mean to do and why, in Markdown; name what will change.
        steps: The steps, one short line each.
    """
    raise ToolError("Nobody can approve a plan here.", "Describe the plan in your answer.")


TOOLS = [propose_plan]
