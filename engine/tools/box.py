"""The tools every session has."""

from __future__ import annotations

from engine.tools import artifacts, ask, files, git, messages, plan, search, shell, todo
from engine.tools.base import Tool

__all__ = ["standard_tools"]


def standard_tools() -> list[Tool]:
    """Return the tools in the box, sorted by name."""
    modules = (artifacts, ask, files, git, messages, plan, search, shell, todo)
    return sorted((each for module in modules for each in module.TOOLS), key=lambda t: t.name)
