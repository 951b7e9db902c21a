"""Does a standing rule cover this call? Pure: what it needs is handed in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from engine.permissions.base import Rule, Scene
from engine.tools.base import Risk, Tool

__all__ = ["RULED", "home_rule", "matching_rule", "target_set"]

#: Tools that may reach the session's own thread without asking.
_TO_HOME = frozenset({"send_message", "deliver_file"})


#: Risks a standing rule can cover: what reaches other people, and, since under outside text it is
#: judged like that, a read that sends its arguments away.
RULED = frozenset({Risk.EXTERNAL, Risk.READ})


def target_set(tool: Tool, arguments: Mapping[str, Any], home: str) -> tuple[str, ...]:
    """Return the exact, sorted set a standing rule would pin; empty when there can be none.

    One blank or missing target makes the whole set empty: a rule must pin every recipient.
    """
    if tool.risk not in RULED or (tool.risk is Risk.READ and tool.egress is None):
        return ()
    try:
        if tool.risk is Risk.READ and tool.egress is not None:
            targets: Iterable[Any] = [tool.egress(arguments)]
        else:
            targets = tool.targets(arguments, home)
        found = list(targets)
    except Exception:  # noqa: BLE001  # broad: a connector's own code; without targets it asks
        return ()
    if not all(isinstance(each, str) and each.strip() for each in found):
        return ()
    return tuple(sorted(set(found)))


def matching_rule(rules: Iterable[Rule], tool: str, target: tuple[str, ...]) -> Rule | None:
    """Return the rule for exactly this tool and this sorted set of targets, or None."""
    if not target:
        return None
    return next((r for r in rules if r.tool == tool and r.target == target), None)


def home_rule(scene: Scene, tool: str, target: tuple[str, ...]) -> bool:
    """Tell whether this is a message or file to the very thread a person opened the session in."""
    opened = scene.home_open and bool(scene.home)
    return opened and tool in _TO_HOME and target == (scene.home,)
