"""Says what was decided on a card, by whom and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, tzinfo
from typing import Any

from bot.markup import cut, plain, visible
from engine.inbox import DAY, Prompt

__all__ = ["decision"]

_SCHEDULED = {"approve": "Confirmed", "edit": "Changed, on a new card,", "deny": "Cancelled"}

_SPENDING = {"approve": "Extended once", "deny": "Stopped"}

_UNCLEAR = {"approve": "Nod was asked", "deny": "Left as it is"}

_DECIDED = {
    "once": "Approved",
    "always": "Approved, from now on without asking,",
    "edit": "Approved with changes",
    "approve": "Approved",
    "deny": "Denied",
    "answer": "Answered",
    "happened": "Happened, says",
    "run": "Did not happen, run now: decided",
    "leave": "Did not happen, left so: decided",
    "unknown": "Nobody knows whether it happened: said",
    "allow": "Allowed",
    "deliver": "Allowed and delivered",
    "dismiss": "Dismissed",
    "done": "Connected",
    "seen": "Seen",
    "retry": "Tried again",
    "stopped": "Stopped",
}


def decision(prompt: Prompt, name: Callable[[str], str], zone: tzinfo) -> str:
    """Return what was decided, by whom and when: "Approved by @ana, 09:02"."""
    answer = prompt.answer or {}
    at = _time(prompt, zone)
    if answer.get("silence"):
        return f"No answer in time, which is never a yes, {at}"
    if answer.get("over"):
        return f"This is over, {at}"
    kind = str(answer.get("kind", ""))
    by = "" if not prompt.resolved_by else f" by @{visible(name(prompt.resolved_by))}"
    if kind == "happened":
        by = by.replace(" by ", " ", 1)
    told = _told(prompt, answer)
    words = _DECIDED | (_SCHEDULED if prompt.payload.get("schedule") else {})
    words |= _UNCLEAR if prompt.payload.get("unclear") else {}
    if prompt.payload.get("budget"):
        words |= _SPENDING | ({"approve": "Raised for good"} if answer.get("raise") else {})
    return f"{words.get(kind, visible(kind))}{by}, {at}" + (f": {told}" if told else "")


def _told(prompt: Prompt, answer: Mapping[str, Any]) -> str:
    if answer.get("rule"):
        return "posts there without asking"
    if answer.get("kind") == "deny":
        return cut(plain(str(answer.get("reason", ""))), 200, 3)[0]
    if answer.get("kind") != "answer":
        return ""
    values = [answer["text"]] if answer.get("text") else (answer.get("answers") or {}).values()
    words = [", ".join(value) if isinstance(value, list) else str(value) for value in values]
    return cut(plain("; ".join(words)), 200, 3)[0]


def _time(prompt: Prompt, zone: tzinfo) -> str:
    same_day = prompt.resolved_at - prompt.created_at < DAY
    form = "%H:%M" if same_day else "%Y-%m-%d %H:%M"
    return datetime.fromtimestamp(prompt.resolved_at, zone).strftime(form)
