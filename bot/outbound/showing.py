"""Says what people are shown of a run of facts: a pure function from the log to its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.markup import plain
from bot.surfaces.base import Message, Task
from engine.events import Event, Kind
from engine.schedule.subscriptions import is_silence

__all__ = ["Part", "last_words", "parts", "taken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One thing to show."""

    #: typing, answer, text, progress, file, card, decided
    kind: str
    #: What it shows; several only for the prompts of one card.
    facts: tuple[Event, ...]
    message: Message = field(default_factory=Message)
    #: The last answer of its turn.
    final: bool = False


def parts(facts: Sequence[Event]) -> list[Part]:
    """Return what to show, in order. Prompts of one card, and progress of one turn, are joined."""
    shown: list[Part] = []
    for fact in facts:
        part = _part(fact)
        if part is None:
            continue
        if part.kind == "progress":
            shown = [each for each in shown if not _same_turn(each, part)]
        earlier = next((n for n, each in enumerate(shown) if _same_card(each, part)), None)
        if earlier is None:
            shown.append(part)
        else:
            joined = (*shown[earlier].facts, fact)
            shown[earlier] = Part(kind="card", facts=joined)
    return shown


def last_words(shown: Sequence[Part]) -> list[Part]:
    """Return what is shown of a session that nobody asked: no sign of work, nothing on the way,
    and no last word that means silence. Its errors go to the owner as notices."""
    return [part for part in shown if part.kind in ("card", "decided", "file") or _is_told(part)]


def _is_told(part: Part) -> bool:
    fact = part.facts[0]
    if part.kind == "text":
        return fact.kind in (Kind.INTERRUPTED, Kind.TURN_END)
    if part.kind != "answer" or fact.body.get("finish") in ("tool_calls", "error"):
        return False
    return not is_silence(part.message.text)


def _same_turn(old: Part, new: Part) -> bool:
    return old.kind == "progress" and old.facts[0].turn == new.facts[0].turn


def _same_card(old: Part, new: Part) -> bool:
    return old.kind == new.kind == "card" and _card(old.facts[0]) == _card(new.facts[0])


def _card(fact: Event) -> str:
    prompt = fact.body["prompt"]
    return str(prompt["payload"].get("card") or prompt["id"])


def _part(fact: Event) -> Part | None:
    if "prompt" in fact.body and fact.kind is not Kind.DECIDED:
        return Part(kind="card", facts=(fact,))
    show = _SHOW.get(fact.kind)
    return None if show is None else show(fact)


def taken(answer: Event, cost: float, unpriced: int) -> str:
    """Return the footer of a turn's last answer: model, steps, cost and the session's id.

    `cost` is in US dollars, `unpriced` how many calls it does not know the price of.
    """
    steps = f"{answer.iteration} step{'' if answer.iteration == 1 else 's'}"
    money = f"${cost:.4f}{'+' if unpriced else ''}" if cost else ""
    words = (str(answer.body.get("model") or ""), steps, money, answer.session)
    return " · ".join(word for word in words if word)


def _turn_start(fact: Event) -> Part:
    return Part(kind="typing", facts=(fact,))


def _answer(fact: Event) -> Part | None:
    text = fact.body["message"].get("content") or ""
    footer = _FINISH.get(fact.body.get("finish", ""), "")
    if not str(text).strip() and not footer:
        return None
    message = Message(text=plain(str(text)), footer=footer)
    final = fact.body.get("finish") == "stop"
    return Part(kind="answer", facts=(fact,), message=message, final=final)


_FINISH = {
    "length": "Cut off: the model reached its limit for one answer. Say “go on” for the rest.",
    "refusal": "The model refused to go on.",
    "stopped": "Stopped here.",
    "error": "Broken off here.",
}


def _text(fact: Event) -> Part:
    return Part(kind="text", facts=(fact,), message=Message(text=plain(str(fact.body["text"]))))


def _error(fact: Event) -> Part:
    text, footer = plain(str(fact.body["text"])), "Go on then with /retry."
    if fact.body.get("error_type") != "BudgetSpent":
        text = f"**Something went wrong.** {text}"
        footer = "Try again from your last message with /retry."
    return Part(kind="text", facts=(fact,), message=Message(text=text, footer=footer))


def _interrupted(fact: Event) -> Part:
    steps = fact.body.get("iterations", 0)
    why = fact.body.get("reason", "")
    why = f": {plain(_WHY.get(why, why))}" if why else ""
    text = f"Stopped after {steps} step{'' if steps == 1 else 's'}{why}."
    return Part(kind="text", facts=(fact,), message=Message(text=text))


_WHY = {"superseded": "the next run was due"}

_CAPS = {
    "iterations": "I stopped at the limit of {n} steps for one turn. Say “go on” to continue.",
    "repeat": "I stopped because I was doing the same thing again and again.",
    "failures": "I stopped because everything I tried failed.",
}


def _turn_end(fact: Event) -> Part | None:
    if fact.body["status"] == "error":
        return _decided(fact)  # what its cards asked about is closed
    if fact.body["status"] != "max_iterations":
        return None
    why = _CAPS.get(fact.body.get("reason", ""), _CAPS["iterations"])
    text = why.format(n=fact.body.get("iterations", fact.iteration))
    return Part(kind="text", facts=(fact,), message=Message(text=text))


_SIGNS = {"done": "✓", "in_progress": "▸"}


def _progress(fact: Event) -> Part:
    todos: Sequence[Mapping[str, Any]] = fact.body["todos"]
    tasks = tuple(Task(title=plain(str(each["content"])), status=each["status"]) for each in todos)
    lines = [f"{_SIGNS.get(each.status, '·')} {each.title}" for each in tasks]
    message = Message(text="\n".join(lines), tasks=tasks)
    return Part(kind="progress", facts=(fact,), message=message)


def _file(fact: Event) -> Part | None:
    if fact.body["kind"] != "file":
        return None
    return Part(kind="file", facts=(fact,), message=Message(text=plain(str(fact.body["name"]))))


def _decided(fact: Event) -> Part:
    return Part(kind="decided", facts=(fact,))


_SHOW: Mapping[Kind, Callable[[Event], Part | None]] = {
    Kind.TURN_START: _turn_start,
    Kind.ASSISTANT_MESSAGE: _answer,
    Kind.PROGRESS: _progress,
    Kind.ARTIFACT: _file,
    Kind.NOTICE: _text,
    Kind.ERROR: _error,
    Kind.INTERRUPTED: _interrupted,
    Kind.TURN_END: _turn_end,
    Kind.DECIDED: _decided,
    Kind.STOPPED: _decided,
}
