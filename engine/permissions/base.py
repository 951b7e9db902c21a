"""The words of permission: mode, verdict, rule, and the scene a call is judged in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from engine.tools.base import Root

__all__ = ["Answer", "Mode", "Rule", "Scene", "Verdict"]


class Mode(StrEnum):
    """How much Nod may do without asking."""

    DISCUSS = "discuss"  # reads only
    PLAN = "plan"  # reads only, until a plan is approved
    INTERACTIVE = "interactive"  # asks before consequences
    AUTO = "auto"  # asks before programs, and under taint
    CUSTOM = "custom"  # interactive, with the person's own list


class Answer(StrEnum):
    """What policy says of a call. Order: allow < ask < refuse."""

    ALLOW = "allow"
    ASK = "ask"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Policy's answer for one call and one argument hash."""

    answer: Answer
    #: The step that ended the question: 'unknown', 'control', 'roots', 'mode', 'read', 'own_root',
    #: 'allowlist', 'exec', 'rule:<id>', 'home', 'auto', 'custom', 'default'.
    step: str
    #: One sentence for the card or the tool result.
    reason: str
    #: What a standing rule would pin; empty: no rule can be made from this call.
    target: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A standing rule: this tool, to exactly this set of targets, needs no asking."""

    id: str
    tool: str
    target: tuple[str, ...]  # sorted


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything a verdict depends on, read from the store right before judging."""

    mode: Mode
    roots: tuple[Root, ...]
    #: Command prefixes that need no asking, for example 'git status'.
    allowlist: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    #: Labels of outside text in the session's log.
    taint: tuple[str, ...] = ()
    #: The session's own thread_target, and whether a person opened the session there.
    home: str = ""
    home_open: bool = False
    #: Mode custom: tool name -> answer.
    custom: Mapping[str, Answer] = field(default_factory=dict)
