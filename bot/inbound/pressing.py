"""What a press means: an answer to a prompt, to all prompts of its card, or a wish to see more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot import cards
from bot.cards import Press
from bot.surfaces.base import Pressed
from engine import inbox
from engine.errors import PromptError
from engine.inbox import Person, Prompt
from engine.store.base import Tx

__all__ = ["Meant", "add_ref", "meant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """What is to be done."""

    #: Each prompt with its answer.
    answers: Sequence[tuple[Prompt, Mapping[str, Any]]] = ()
    #: What is shown to the person instead; nothing is answered.
    text: str = ""


def meant(tx: Tx, press: Press, person: Person, event: Pressed, now: float) -> Meant:
    """Return what the press of `person` means now.

    Raises PromptError when the card shows something else by now, or the person may not see it.
    """
    prompt = inbox.get(tx, press.prompt)
    if press.answer == cards.ALL:
        return _all(tx, prompt, press)
    if cards.mark_of(prompt) != press.mark:
        raise PromptError("What this card shows has changed.", "Answer on the newest card.")
    if press.answer in cards.LOOKS:
        if not inbox.may_see(prompt, person):
            raise PromptError("This card is not yours to look into.", "Ask the one it is for.")
        return Meant(text=cards.looked_into(prompt, press.answer))
    answer = cards.answer_of(prompt, press.answer, now, event.text, event.arguments)
    return Meant(answers=[(prompt, answer)])


def _all(tx: Tx, prompt: Prompt, press: Press) -> Meant:
    """Every open row of the card, when they are still the ones it was pressed for."""
    rows = tx.all("prompts_of_turn", session=prompt.session, turn=prompt.turn)
    groups = inbox.choices([inbox.prompt_from(row) for row in rows]).values()
    group = next(each for each in groups if any(one.id == prompt.id for one in each))
    waiting = [each for each in group if each.status == "pending"]
    if not waiting:
        return Meant(answers=[(prompt, {"kind": "once"})])  # the inbox says who decided
    if cards.mark_of_all(waiting) != press.mark:
        raise PromptError("What this card shows has changed.", "Answer on the newest card.")
    return Meant(answers=[(each, {"kind": "once"}) for each in waiting])


def add_ref(tx: Tx, prompt: Prompt, event: Pressed, now: float) -> None:
    """The message a press came from shows the prompt: it too is edited when it is decided."""
    if not event.ref:
        return
    subject = f"prompt:{prompt.id}"
    rows = tx.all("deliveries_of", tenant=prompt.tenant, subject=subject)
    if any(row["ref"] == event.ref for row in rows):
        return
    part = 1 + sum(row["destination"] == event.target for row in rows)
    tx.run(
        "delivery_ref_add",
        id=f"{prompt.id}-{len(rows)}",
        tenant=prompt.tenant,
        session=prompt.session or "",
        subject=subject,
        destination=event.target,
        part=part,
        ref=event.ref,
        now=now,
    )
