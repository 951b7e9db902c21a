"""`/mode`: shows and switches how much may be done without asking, and keeps the person's own list.

The list of mode custom is a session's; each tool on it is allowed, asked about or refused. What it
cannot turn (folders, programs beyond the allowlist) is policy's, see engine/permissions/policy.py.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from bot.commands.base import Context
from engine.errors import NodError
from engine.permissions.base import Answer, Mode
from engine.tools.base import Risk

__all__ = ["shown", "switched"]

#: What takes a tool off the list again.
DEFAULT = "default"
#: Tools on one list.
MOST = 100


def shown(mode: str, custom: Mapping[str, str]) -> str:
    """Return how it stands in a session, with the own list."""
    lines = [f"Mode {mode}. There are: {', '.join(Mode)}."]
    if custom:
        listed = ", ".join(f"{tool}={answer}" for tool, answer in sorted(custom.items()))
        lines.append(f"Your own list, for mode custom: {listed}")
    return "\n".join(lines)


def switched(context: Context, given: list[str], custom: Mapping[str, str]) -> dict[str, object]:
    """Return the change to the session: a mode, and for custom the whole list as it is then.

    `given` is the mode's name, for custom followed by TOOL=ANSWER. Raises NodError for a mode,
    tool or answer that is none, and for what the person may not allow.
    """
    name, *entries = given
    if name not in tuple(Mode):
        raise NodError(f"There is no mode '{name}'.", f"Choose one of: {', '.join(Mode)}.")
    if name == Mode.AUTO and context.person.role != "owner":
        raise NodError("Only an owner may switch to auto.", "Ask an owner.")
    if name != Mode.CUSTOM:
        if entries:
            raise NodError(f"Mode {name} has no list.", "Only custom has: /mode custom TOOL=ask")
        return {"mode": name}
    listed = dict(custom)
    for entry in entries:
        tool, answer = _entry(context, entry)
        listed.pop(tool, None)
        if answer != DEFAULT:
            listed[tool] = answer
    if len(listed) > MOST:
        raise NodError(f"The list has {len(listed)} tools, {MOST} are the limit.", "Shorten it.")
    if Answer.ALLOW in listed.values() and context.person.role != "owner":
        raise NodError("Only an owner may let tools run unasked.", "Use ask or refuse.")
    return {"mode": name, "custom": listed}


def _entry(context: Context, entry: str) -> tuple[str, str]:
    tool, equals, answer = entry.partition("=")
    answers = [*Answer, DEFAULT]
    if not equals or answer not in answers:
        raise NodError(
            f"'{entry}' cannot be understood.",
            f"Write TOOL=ANSWER; answers: {', '.join(answers)}.",
        )
    if context.tools is None:
        return tool, answer
    known = {each.name: each for each in context.tools.offered(Mode.CUSTOM)}
    if tool not in known:
        near = difflib.get_close_matches(tool, known, n=2)
        raise NodError(
            f"There is no tool '{tool}'.",
            f"Did you mean {' or '.join(near)}?" if near else "Cards name the tools.",
        )
    if known[tool].risk is Risk.EXEC and answer == Answer.ALLOW:
        raise NodError(
            f"{tool} runs programs; no list lets it run unasked.", "Put commands on the allowlist."
        )
    return tool, answer
