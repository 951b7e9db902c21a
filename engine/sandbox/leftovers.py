"""Finds and ends what a program left behind, also where it left its process group."""

from __future__ import annotations

import psutil

__all__ = ["MARK", "end_children", "end_marked"]

#: The variable every child of an executor carries; its value says whose child it is.
MARK = "NOD_PROCESS"

_ROUNDS = 5  # a process may fork while we look


def end_marked(prefix: str) -> None:
    """Kill every process whose mark begins with `prefix`. Blocks for a few milliseconds.

    Only one that also wiped its environment escapes.
    """
    for _ in range(_ROUNDS):
        if not any([_killed(each, prefix) for each in psutil.process_iter()]):
            return


def end_children() -> None:
    """Kill all that descends from this process. Blocks for a few milliseconds."""
    for _ in range(_ROUNDS):
        if not any([_killed(each, "") for each in psutil.Process().children(recursive=True)]):
            return


def _killed(process: psutil.Process, prefix: str) -> bool:
    try:
        if prefix and not process.environ().get(MARK, "").startswith(prefix):
            return False
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        process.kill()
    except (psutil.Error, OSError):
        return False
    return True
