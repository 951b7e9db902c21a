"""Watches, and wakes on events from outside, that somebody asks for: a card, and a person says yes.

Both let the words of others in later, when nobody may be looking; so neither begins before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import inbox, sessions
from engine.canonical import digest, dumps
from engine.clock import mint
from engine.errors import ScheduleError
from engine.inbox import Person, Prompt
from engine.schedule import named, subscriptions, wakes
from engine.schedule.cron import in_zone
from engine.schedule.words import for_all
from engine.sessions import Session
from engine.store.base import Tx
from engine.targets import ThreadTarget

__all__ = ["EVENT", "Asked", "ask_wake", "ask_watch", "keep", "source_of"]

#: What the source of a watch begins with, when it is no channel.
EVENT = "event:"

#: Seconds a watch gathers what comes, when nobody says how long, and what may be said.
WINDOW, LEAST, MOST = 60.0, 10.0, 3_600.0
TASK_LIMIT = 4_000  # characters
#: Words of a watch, and characters of each.
WORDS, WORD = 20, 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A watch that somebody asks for."""

    tenant: str
    owner: str
    #: thread_target where it says what it has to say.
    home: str
    persona: str
    model: str
    #: thread_target of a channel, or event:<name>.
    source: str
    task: str
    any: tuple[str, ...] = ()
    all: tuple[str, ...] = ()
    window: float = WINDOW
    #: The session it was asked for in; None: a command.
    session: str | None = None
    #: Labels of the outside text that was in play there.
    taint: tuple[str, ...] = ()


def source_of(text: str) -> str:
    """Return what can be watched: an event, or the channel in which the thread `text` stands.

    Raises ScheduleError or TargetError when it is neither.
    """
    if text.startswith(EVENT):
        return f"{EVENT}{for_all(named.event_name(text.removeprefix(EVENT)))}"
    target = ThreadTarget.parse(text)
    if target.surface == "console" or len(target.path) < 2:
        raise ScheduleError(
            f"{text} is no channel in which others write.", "Name a channel, or event:NAME."
        )
    return str(ThreadTarget(surface=target.surface, path=target.path[:2]))


def ask_watch(tx: Tx, asked: Asked, now: float) -> Prompt:
    """Raise the card of a watch and return it, or the same one while it waits.

    Raises ScheduleError or TargetError when no such watch can be.
    """
    task = asked.task.strip()
    if not task or len(task) > TASK_LIMIT:
        raise ScheduleError(
            "A watch needs to know what to look for and to do.",
            f"Say it in at most {TASK_LIMIT:,} characters.",
        )
    _check_words([*asked.any, *asked.all])
    if not LEAST <= asked.window <= MOST:
        raise ScheduleError(
            f"What comes cannot be gathered for {asked.window:g} seconds.",
            f"Choose {LEAST:.0f} to {MOST:.0f}.",
        )
    promise = {
        "kind": "watch",
        "owner": asked.owner,
        "home": asked.home,
        "persona": asked.persona,
        "model": asked.model,
        "source": source_of(asked.source),
        "task": task,
        "any": list(asked.any),
        "all": list(asked.all),
        "window": asked.window,
    }
    facts = [
        ["Watches", promise["source"]],
        *([["Only with one of", ", ".join(asked.any)]] if asked.any else []),
        *([["Only with all of", ", ".join(asked.all)]] if asked.all else []),
        ["Gathers for", f"{asked.window:g} seconds"],
        ["Reports to", f"{asked.home} (here), and is silent unless it concerns this"],
        ["Without asking", "reads, and writes in a folder of its own; everything else is asked"],
    ]
    payload = {
        "title": "Watch this?",
        "text": task,
        "facts": facts,
        "taint": list(asked.taint),
        "promise": promise,
    }
    return _ask(tx, asked.tenant, asked.session, asked.owner, asked.home, payload, "owner", now)


def ask_wake(
    tx: Tx,
    session: Session,
    event: str,
    note: str,
    now: float,
    *,
    until: float,
    since: float,
    zone: str,
) -> Prompt:
    """Raise the card of a wake on an event from outside, and return it, or the one that waits.

    Args:
        until: when the session is told that it did not come.
        since: an event from then on (both epoch seconds) counts.
        zone: in which the card tells the time.

    Raises ScheduleError when no such wake can be.
    """
    name = for_all(named.event_name(event))
    wakes.check(tx, session, until, note, now)
    promise = {"kind": "wake", "event": name, "note": note, "until": until, "since": since}
    payload = {
        "title": "Go on here when this event comes?",
        "text": note,
        "facts": [
            ["Event", name],
            ["Waits until", f"{in_zone(until, zone)} ({zone})"],
            ["Then", "a turn begins here by itself; what comes with it is outside text"],
        ],
        "taint": list(session.taint),
        "promise": promise,
    }
    return _ask(
        tx, session.tenant, session.id, session.owner, session.home, payload, "operator", now
    )


def _check_words(words: Sequence[str]) -> None:
    if len(words) > WORDS or any(not word.strip() or len(word) > WORD for word in words):
        raise ScheduleError(
            "These words cannot be looked for.",
            f"Name up to {WORDS}, of up to {WORD} characters each.",
        )


def _ask(
    tx: Tx,
    tenant: str,
    session: str | None,
    owner: str,
    home: str,
    payload: dict[str, Any],
    role: str,
    now: float,
) -> Prompt:
    same = digest(dumps(payload["promise"]))[:16]
    thing = f"{session or home}/promise:{same}"
    open_one = tx.one("grant_open", tenant=tenant, prefix=f"{thing}/%")
    if open_one is not None:
        return inbox.get(tx, open_one["id"])
    return inbox.ask(
        tx,
        Prompt(
            id=mint("p"),
            tenant=tenant,
            session=session,
            kind="grant",
            subject=f"{thing}/{mint('n')}",
            payload=payload,
            approvers={"role": role, "person": owner, "own_suffices": role != "owner"},
            created_at=now,
            remind_at=now + inbox.REMINDER,
            deadline=now + inbox.DEADLINE,
        ),
    )


def keep(tx: Tx, prompt: Prompt, by: Person, now: float, *, data: Path) -> str:
    """Begin what the confirmed card promised; return what became of it, as a sentence's end.

    Raises ScheduleError or SessionError when it can no longer be.
    """
    made = prompt.payload["promise"]
    if made["kind"] == "wake":
        assert prompt.session is not None, "a wake is a session's"
        session = sessions.get(tx, prompt.session)
        until = max(made["until"], now + LEAST)
        wakes.add_on(
            tx,
            session,
            made["event"],
            made["note"],
            now,
            until=until,
            since=made["since"],
            key=prompt.id,
        )
        return f"said yes: this session is woken when {made['event']} comes"
    watch = _begin(tx, prompt.tenant, made, now, data)
    return f"said yes: watch {watch.id} of {watch.source} is at work, in a session of its own"


def _begin(
    tx: Tx, tenant: str, made: dict[str, Any], now: float, data: Path
) -> subscriptions.Watch:
    session = sessions.open_session(
        tx,
        tenant=tenant,
        home=made["home"],
        owner=made["owner"],
        origin=subscriptions.ORIGIN,
        persona=made["persona"],
        model=made["model"],
        mode="interactive",
        data=data,
        now=now,
        title=f"Watch of {made['source']}",
        route=False,
    )
    return subscriptions.add(
        tx,
        session=sessions.get(tx, session),
        source=made["source"],
        task=made["task"],
        any_of=made["any"],
        all_of=made["all"],
        window=made["window"],
        now=now,
    )
