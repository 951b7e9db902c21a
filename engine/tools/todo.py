"""The session's to-do list: one tool that replaces it whole; people see it as progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from typing_extensions import TypedDict

from engine.events import Kind
from engine.tools.base import Result, Risk, ToolContext, tool

__all__ = ["TOOLS"]

_STATUSES = ("pending", "in_progress", "done")
_SAME = {"completed": "done", "complete": "done", "finished": "done", "in-progress": "in_progress"}

#: To-dos kept; more than anyone reads.
_MOST = 100


class Todo(TypedDict):
    """One line of the list."""

    content: str
    status: Literal["pending", "in_progress", "done"]


def _accept(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Take the list under the name models also use, and lines in every form they write."""
    rest = {name: value for name, value in arguments.items() if name not in ("todos", "items")}
    todos = arguments.get("todos", arguments.get("items"))
    if isinstance(todos, list):
        todos = [_line(each) for each in todos[:_MOST]]
    return rest if todos is None else {**rest, "todos": todos}


def _line(given: Any) -> Any:
    if isinstance(given, str):
        return {"content": given, "status": "pending"}
    if not isinstance(given, Mapping):
        return given
    text = next((given[key] for key in ("content", "text", "task", "title") if key in given), "")
    status = str(given.get("status", "pending")).strip().lower()
    status = _SAME.get(status, status)
    return {"content": text, "status": status if status in _STATUSES else "pending"}


@tool(risk=Risk.CONTROL, accept=_accept)
async def todo_write(ctx: ToolContext, todos: list[Todo]) -> Result:
    """Replace the to-do list of this task. People watch it to see how far you are.

    Use it for work of three steps or more; keep exactly one line in_progress.

    Args:
        todos: The whole list, in order.
    """
    left = sum(each["status"] != "done" for each in todos)
    text = f"The list has {len(todos)} lines, {left} of them not done."
    return Result(text=text, facts=((Kind.PROGRESS, {"todos": list(todos)}),))


TOOLS = [todo_write]
