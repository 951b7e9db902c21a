"""Decides which session a message belongs to: its thread's, the one it replies to, or a new one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bot.inbound.answers import House
from bot.surfaces.base import Said
from engine import inbox, sessions
from engine.canonical import dumps, loads
from engine.errors import ScheduleError
from engine.inbox import Person
from engine.sessions import Session
from engine.store.base import Tx
from engine.targets import ThreadTarget

__all__ = [
    "Route",
    "alone",
    "before",
    "channel_of",
    "hops",
    "meant",
    "mention_needed",
    "named",
    "route",
    "set_mention",
    "set_name",
]

#: Seconds after which a direct message begins a new session.
IDLE = 12 * 60 * 60.0
#: Messages of machines in a row that a session takes; a person's message begins the count again.
HOPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a message goes."""

    #: None: a new session is opened, or, when `nobodys`, none.
    session: Session | None = None
    nobodys: bool = False
    #: Told to the person, when it is not what they may expect.
    text: str = ""


def route(tx: Tx, house: House, said: Said) -> Route:
    """Return where a message goes; nothing is written.

    A reply to one of Nod's messages goes to the session of that message. Else its thread decides:
    one that no session owns takes a message that is meant for Nod, and no other.
    """
    replied = _replied(tx, house, said)
    if replied is not None:
        return Route(session=replied)
    found = sessions.find_thread(tx, house.tenant, said.target)
    if found is None:
        return Route(nobodys=not (said.addressed or said.direct))
    session = sessions.get(tx, found)
    if said.direct and _rested(tx, session, said.target, house.now()):
        text = (
            "It has been more than 12 hours, so this begins a new session. "
            "`/back` goes on with the one before."
        )
        return Route(text=text)
    if not said.addressed and mention_needed(tx, house.tenant, said.target):
        return Route(nobodys=True)
    return Route(session=session)


def _replied(tx: Tx, house: House, said: Said) -> Session | None:
    """Return the session of the message of Nod's that this one replies to."""
    if not said.reply_to:
        return None
    row = tx.one("session_of_ref", tenant=house.tenant, ref=said.reply_to)
    return None if row is None else sessions.get(tx, row["session_id"])


def _rested(tx: Tx, session: Session, target: str, now: float) -> bool:
    waiting = session.turn_seq or session.wanted > session.seen or inbox.pending_in(tx, session.id)
    bound = tx.one("thread_bound", tenant=session.tenant, target=target)  # /back binds it anew
    last = max(session.updated_at, bound["created_at"] if bound is not None else 0.0)
    return not waiting and now - last > IDLE


def alone(tx: Tx, session: Session, person: Person) -> bool:
    """Say whether nobody but this person has written in the session's thread."""
    return tx.one("mail_of_others", session=session.id, by=person.id) is None


def hops(tx: Tx, session: Session) -> int:
    """Return how many of the session's last messages were machines', in a row."""
    count = 0
    for row in tx.all("mail_latest", session=session.id, limit=HOPS):
        if not loads(row["body"]).get("source", {}).get("bot"):
            break
        count += 1
    return count


def before(tx: Tx, house: House, target: str) -> str | None:
    """Return the session that was at home in the thread before the one that has it now."""
    current = sessions.find_thread(tx, house.tenant, target) or ""
    row = tx.one("session_before", tenant=house.tenant, home=target, current=current)
    return None if row is None else str(row["id"])


# -- the switch of a channel


def channel_of(target: str) -> str:
    """Return the channel a thread stands in: the surface and the first two parts."""
    parsed = ThreadTarget.parse(target)
    return str(ThreadTarget(surface=parsed.surface, path=parsed.path[:2]))


def mention_needed(tx: Tx, tenant: str, target: str) -> bool:
    """Say whether a reply in an owned thread must mention Nod there; else it needs none."""
    row = tx.one("setting_get", tenant=tenant, name=f"mention:{channel_of(target)}")
    return row is not None and bool(loads(row["value"]))


def set_mention(tx: Tx, tenant: str, target: str, needed: bool, now: float) -> str:
    """Set the switch for the channel of `target`; return the channel."""
    channel = channel_of(target)
    value = "true" if needed else "false"
    tx.run("setting_put", tenant=tenant, name=f"mention:{channel}", value=value, now=now)
    return channel


def named(tx: Tx, tenant: str, name: str) -> str:
    """Return the place that was given this name, a thread_target; empty: none was."""
    row = tx.one("setting_get", tenant=tenant, name=f"place:{name.lower()}")
    return "" if row is None else str(loads(row["value"]))


def set_name(tx: Tx, tenant: str, target: str, name: str, now: float) -> str:
    """Give the channel of `target` a name by which schedules can report there; return it."""
    channel = channel_of(target)
    place = dumps(channel)
    tx.run("setting_put", tenant=tenant, name=f"place:{name.lower()}", value=place, now=now)
    return channel


def meant(tx: Tx, tenant: str, here: str, said: str) -> str:
    """Return the thread_target that somebody in `here` named as a place.

    Raises ScheduleError when it is not known, TargetError when it can be none.
    """
    if said == "here":
        return here
    place = ThreadTarget.parse(here)
    if (channel := re.fullmatch(r"<#(\w+)(?:\|[^>]*)?>", said)) and len(place.path) > 1:
        return str(ThreadTarget(surface=place.surface, path=(place.path[0], channel[1])))
    if said.startswith("#"):
        known = named(tx, tenant, said)
        if not known:
            raise ScheduleError(
                f"I do not know which place {said} is.",
                f"Write there once: /settings name {said}",
            )
        return known
    return str(ThreadTarget.parse(said))
