"""Words that /schedule did not understand: a card offers to let the model read them.

Nothing is guessed: without a press nobody reads them, and what the model makes of them is a
proposal on a card of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from bot.markup import defused, plain
from engine import inbox, people, sessions
from engine.canonical import digest
from engine.clock import mint
from engine.errors import Unclear
from engine.inbox import Prompt
from engine.sessions import Post
from engine.store.base import Tx

if TYPE_CHECKING:  # which knows of answers, and they of this
    from bot.commands.base import Context

__all__ = ["asked", "offer"]

_NOTE = (
    "This was typed to /schedule on {typed}, which did not surely understand it ({why}). Nothing "
    "is scheduled. Propose what they mean with propose_schedule, or ask what is not clear."
)


def offer(tx: Tx, context: Context, said: str, why: Unclear) -> Prompt:
    """Raise the card, or return the same one while it waits."""
    now, person = context.house.now(), context.person
    thing = f"{context.target}/unclear:{digest(f'{person.id} {said}')[:16]}"
    open_one = tx.one("grant_open", tenant=context.tenant, prefix=f"{thing}/%")
    if open_one is not None:
        return inbox.get(tx, open_one["id"])
    payload = {
        "title": "Shall Nod read this?",
        "text": said,
        "facts": [["Not understood", why.what], ["What Nod would do", "propose a schedule"]],
        "unclear": {
            "target": context.target,
            "by": person.id,
            "why": why.what,
            "at": now,
            "zone": people.zone_of(tx, context.tenant, person.id) or context.zone,
        },
        "options_allowed": ["approve", "deny"],
    }
    return inbox.ask(
        tx,
        Prompt(
            id=mint("p"),
            tenant=context.tenant,
            session=None,
            kind="grant",
            subject=f"{thing}/{mint('n')}",
            payload=payload,
            approvers={"role": "operator", "person": person.id, "own_suffices": True},
            created_at=now,
            deadline=now + inbox.DEADLINE,
        ),
    )


def asked(tx: Tx, prompt: Prompt, now: float, opened: Callable[[str, str], str]) -> list[str]:
    """Say the words to the model, in the thread they were typed in; return the session.

    `opened` opens a session at a thread_target for a principal and returns its id.
    """
    words = prompt.payload["unclear"]
    if (prompt.answer or {}).get("kind") != "approve":
        return []
    found = sessions.find_thread(tx, prompt.tenant, words["target"])
    session = sessions.get(tx, found) if found else None
    if session is None or session.home != words["target"]:  # it went on in a thread of its own
        session = sessions.get(tx, opened(words["target"], words["by"]))
    body = {
        "message": {"role": "user", "content": _content(tx, prompt, now)},
        "source": {"target": words["target"], "length": len(defused(prompt.payload["text"]))},
    }
    mail = Post(kind="message", key=f"unclear:{prompt.id}", by=words["by"], body=body)
    sessions.post(tx, session, mail, now)
    return [session.id]


def _content(tx: Tx, prompt: Prompt, now: float) -> str:
    words = prompt.payload["unclear"]
    person = people.get(tx, prompt.tenant, words["by"])
    name = defused(plain(person.name if person else words["by"])).replace("\n", " ")
    typed, when = (
        f"{datetime.fromtimestamp(at, ZoneInfo(words['zone'])):%A %Y-%m-%d %H:%M}"
        for at in (words.get("at", now), now)
    )
    note = _NOTE.format(typed=typed, why=defused(words["why"]).rstrip("."))
    stamp = f"<nod-context>{when} {words['zone']}; {name} speaks to you</nod-context>"
    return f"{defused(prompt.payload['text'])}\n<nod-note>{note}</nod-note>\n{stamp}"
