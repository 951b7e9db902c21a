"""Asks a person once in which time zone the times they write are, and goes on with what they wrote.

What was typed is kept with the question, so that nobody types it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from engine import inbox, people
from engine.canonical import loads
from engine.clock import mint
from engine.errors import PromptError, ScheduleError, Unclear
from engine.inbox import Prompt
from engine.schedule import digests, proposals
from engine.schedule.cron import known_zones, zone_of
from engine.schedule.proposals import Proposal
from engine.store.base import Tx

if TYPE_CHECKING:  # which knows of answers, and they of this
    from bot.commands.base import Context

__all__ = ["answered", "ask", "is_needed", "proposal", "typed"]

#: From the first to the last to see a day: what means the same there means the same everywhere.
_EVERYWHERE = tuple(f"Etc/GMT{hours:+d}" for hours in range(-14, 13))
#: Runs that are compared, and zones that are offered.
RUNS, OFFERED = 3, 4

_QUESTION = (
    "In which time zone are the times you write to me? I ask this once. If it is none of these, "
    "answer with its name or its city, for example Europe/Lisbon or Lisbon."
)


def typed(context: Context, when: str, task: str, report_to: str) -> dict[str, str]:
    """Return what somebody typed to make a schedule, as it is kept with the question."""
    return {
        "when": when,
        "at": str(context.house.now()),
        "task": task,
        "report_to": report_to,
        "by": context.person.id,
        "target": context.target,
        "persona": context.house.defaults.persona,
        "model": context.house.defaults.model,
    }


def proposal(tenant: str, said: Mapping[str, str], zone: str, now: float) -> Proposal:
    """Return the schedule that was asked for, its times read in `zone` as when they were typed.

    Raises ScheduleError for a time that is not understood, cannot be, or is past by now.
    """
    when, words, policy = proposals.read(said["when"], zone, float(said.get("at", now)))
    if when.once is not None and when.once <= now:
        raise ScheduleError(f"{when}: that is past by now.", "Type it again with a later time.")
    return Proposal(
        tenant=tenant,
        owner=said["by"],
        home=said["target"],
        persona=said["persona"],
        model=said["model"],
        when=when,
        said=words,
        policy=policy,
        instructions=said["task"],
        report_to=said["report_to"],
    )


def is_needed(tx: Tx, context: Context, when: str) -> bool:
    """Say whether a time means another moment elsewhere, and nobody knows where the person is.

    Whoever sits at the console is where Nod is set to be. Raises Unclear for what is no time.
    """
    known = context.surface == "console" or context.profile_zone
    if known or people.zone_of(tx, context.tenant, context.person.id):
        return False
    here = _times(when, context.zone, context)
    return any(_times(when, each, context) != here for each in _EVERYWHERE)


def _times(when: str, zone: str, context: Context) -> list[float]:
    now = context.house.now()
    try:
        found = proposals.read(when, zone, now)[0]
    except Unclear:
        raise
    except ScheduleError:  # past there, perhaps
        return []
    times: list[float] = []
    moment: float | None = now
    while len(times) < RUNS and (moment := found.next_after(moment or now)) is not None:
        times.append(moment)
    return times


def ask(tx: Tx, context: Context, said: Mapping[str, str]) -> Prompt:
    """Raise the question; the answer goes on with what was said."""
    now = context.house.now()
    zones = [context.zone, *(each for each in _of_others(tx, context) if each != context.zone)]
    options = [
        {"label": zone, "description": f"{datetime.fromtimestamp(now, zone_of(zone)):%H:%M} now"}
        for zone in zones[:OFFERED]
    ]
    question = {"question": _QUESTION, "header": "zone", "options": options, "allow_text": True}
    return inbox.ask(
        tx,
        Prompt(
            id=mint("p"),
            tenant=context.tenant,
            session=None,
            kind="question",
            subject=f"zone/{mint('n')}",
            payload={
                "title": "Where are you?",
                "questions": [question],
                "zoned": dict(said),
                "options_allowed": ["answer"],
            },
            approvers={"role": "owner", "person": context.person.id, "own_suffices": True},
            created_at=now,
            deadline=now + inbox.DEADLINE,
        ),
    )


def _of_others(tx: Tx, context: Context) -> list[str]:
    """Return the zones other people here have said they are in, most of them first."""
    return [str(loads(row["zone"])) for row in tx.all("zones_said", tenant=context.tenant)]


def answered(tx: Tx, prompt: Prompt, now: float) -> Prompt | None:
    """Keep the zone that was answered, and propose the schedule; return its card's prompt.

    None: the question was about something else, or nobody answered. Raises PromptError for what
    is no zone, or when the schedule cannot be in it.
    """
    said, answer = prompt.payload.get("zoned"), prompt.answer or {}
    if not said or answer.get("kind") != "answer":
        return None
    words = answer.get("text") or next(iter((answer.get("answers") or {}).values()), "")
    try:
        zone = _named(words[0] if isinstance(words, list) else str(words))
        people.set_zone(tx, prompt.tenant, said["by"], zone, now)
        digests.move(tx, prompt.tenant, said["by"], zone, now)
        return proposals.propose(tx, proposal(prompt.tenant, said, zone, now), now)
    except ScheduleError as error:
        raise PromptError(error.what, error.fix) from error


def _named(words: str) -> str:
    """Return the zone somebody named, by its name or its city; raises ScheduleError."""
    wanted = "_".join(words.split()).strip("._,").casefold()
    known = known_zones()
    for each in known:
        if each.casefold() == wanted:
            return each
    cities = [
        each for each in known if "/" in each and each.rpartition("/")[2].casefold() == wanted
    ]
    shortest = sorted(cities, key=lambda each: (each.count("/"), each))
    return shortest[0] if shortest else zone_of(words.strip()).key
