"""The ways to answer a prompt, as they are offered: what a button says, its key, what it asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.markup import plain
from engine.inbox import Prompt

__all__ = ["RULE_DAYS", "Choice", "choices"]

#: How long a standing rule made from a card holds.
RULE_DAYS = 30


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to answer, as it is offered."""

    label: str
    key: str
    style: str = "plain"
    asks: str = ""


_CHOICES: Mapping[str, Mapping[str, Choice]] = {
    "approval": {
        "once": Choice("Approve", "a", "yes"),
        "always": Choice(f"Always for exactly this target, {RULE_DAYS} days", "w"),
        "edit": Choice("Edit", "e", asks="arguments"),
        "deny": Choice("Deny", "d", "no", asks="reason"),
    },
    "question": {
        "answer": Choice("Answer in words", "a", asks="answer"),
        "deny": Choice("Leave it open", "d", "no", asks="reason"),
    },
    "plan": {
        "approve": Choice("Approve", "a", "yes"),
        "auto": Choice("Approve, and ask less (auto)", "r"),
        "deny": Choice("Deny", "d", "no", asks="reason"),
    },
    "grant": {
        "approve": Choice("Approve", "a", "yes"),
        "deny": Choice("Deny", "d", "no", asks="reason"),
    },
    "access": {
        "deliver": Choice("Allow and deliver", "a", "yes"),
        "allow": Choice("Allow", "w"),
        "dismiss": Choice("Dismiss", "d", "no"),
    },
    "outcome": {
        "happened": Choice("It happened", "h"),
        "run": Choice("It did not: run it now", "r"),
        "leave": Choice("It did not: leave it", "l"),
        "unknown": Choice("I don't know", "u"),
    },
    "connect": {
        "link": Choice("Connect", "a", "yes"),
        "deny": Choice("Not now", "d", "no", asks="reason"),
    },
    "notice": {"seen": Choice("Seen", "s"), "retry": Choice("Retry", "r")},
}

#: Words that a command did not understand, and that the model may read.
_UNCLEAR: Mapping[str, Choice] = {
    "approve": Choice("Ask Nod", "a", "yes"),
    "deny": Choice("Leave it", "d", "no"),
}

#: A grant that is a schedule; what confirms it may allow its one message too.
_SCHEDULE: Mapping[str, Choice] = {
    "approve": Choice("Confirm", "a", "yes"),
    "rule": Choice("Confirm, and post there without asking", "w"),
    "edit": Choice("Change", "e", asks="arguments"),
    "deny": Choice("Cancel", "d", "no"),
}


def _table(prompt: Prompt) -> Mapping[str, Choice]:
    if prompt.payload.get("budget"):
        return _spending(prompt)
    if prompt.payload.get("schedule"):
        return _SCHEDULE
    return _UNCLEAR if prompt.payload.get("unclear") else _CHOICES[prompt.kind]


def _spending(prompt: Prompt) -> Mapping[str, Choice]:
    """A grant that lets more be spent; its buttons say how much."""
    asked = prompt.payload["budget"]
    return {
        "approve": Choice(plain(asked["extend"]), "a", "yes"),
        "raise": Choice(plain(asked["raise"]), "r"),
        "deny": Choice("Stop", "d", "no"),
    }


def choices(prompt: Prompt) -> dict[str, Choice]:
    """Return what can be pressed; an option has a button only when one press can answer it all."""
    offered: dict[str, Choice] = {}
    if prompt.kind == "question":
        questions = prompt.payload["questions"]
        if len(questions) == 1 and not questions[0].get("multi"):
            for number, option in enumerate(questions[0].get("options") or (), 1):
                offered[f"o{number}"] = Choice(plain(option["label"]), str(number))
    for answer, choice in _table(prompt).items():
        allowed = "approve" if answer in ("auto", "rule", "raise") else answer
        allowed = "done" if answer == "link" else allowed  # the connection itself is the answer
        ruled = answer != "always" or bool(prompt.payload.get("rule_target"))
        ruled = ruled and (answer != "rule" or bool(prompt.payload["arguments"]["report_to"]))
        again = answer != "retry" or bool(prompt.payload.get("retry"))
        again = again and (answer != "answer" or not _is_pressed(prompt))
        if allowed in prompt.options and ruled and again:
            drop = answer == "seen" and prompt.payload.get("held")
            offered[answer] = Choice("Drop", "d", "no") if drop else choice
    return offered


def _is_pressed(prompt: Prompt) -> bool:
    """Say whether every answer to a question is one of its buttons."""
    first, *more = prompt.payload["questions"]
    return bool(first.get("options")) and not (
        more or first.get("multi") or first.get("allow_text")
    )
