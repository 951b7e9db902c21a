"""What one person finds on their board: cards that wait for them, what runs, what is planned."""

from __future__ import annotations

from dataclasses import dataclass
from zoneinfo import ZoneInfo

from bot import cards
from bot.cards import Card
from bot.commands import listings
from engine import inbox, people, sessions
from engine.inbox import ROLES, Person, Prompt
from engine.schedule import schedules
from engine.schedule.schedules import Schedule
from engine.sessions import Session
from engine.store.base import Store, Tx

__all__ = ["Board", "Page", "found_for"]

#: Cards and sessions of one page; the commands list the rest.
CARDS, SESSIONS = 10, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The board of one person at one moment."""

    cards: tuple[Card, ...]
    #: Cards that wait and are not on the page.
    more: int
    #: One line each.
    sessions: tuple[str, ...]
    schedules: tuple[str, ...]
    #: In which the times are that the person writes.
    zone: str = "UTC"


def found_for(
    tx: Tx, tenant: str, who: Person
) -> tuple[list[Prompt], list[Session], list[Schedule]]:
    """Return what waits that somebody may see, and what runs and is planned of theirs.

    Who may steer everything finds everything.
    """
    steers = ROLES.index(who.role) >= ROLES.index("operator")
    waiting = [each for each in inbox.pending(tx, tenant) if inbox.may_see(each, who)]
    running = [
        each
        for each in sessions.listed(tx, tenant, 100)
        if each.turn_seq and (steers or each.owner == who.id)
    ]
    planned = [each for each in schedules.listed(tx, tenant) if steers or each.owner == who.id]
    return waiting, running, planned


class Board:
    """Reads boards from the store."""

    def __init__(self, store: Store, tenant: str, key: bytes, zone: str) -> None:
        """`key` signs buttons; `zone` is an IANA name."""
        self._store = store
        self._tenant = tenant
        self._key = key
        self._zone = zone

    async def page(self, platform: str, person: str, place: str) -> Page | None:
        """Return the page of somebody, by their id on the platform; None: they have none.

        `place` is the thread_target it is shown in.
        """

        def look(tx: Tx) -> Page | None:
            who = people.person_of(tx, self._tenant, platform, person)
            if who is None or who.role == "guest":
                return None
            return self._page(tx, who, place)

        return await self._store.read(look)

    def _page(self, tx: Tx, who: Person, place: str) -> Page:
        waiting, running, planned = found_for(tx, self._tenant, who)
        groups = list(inbox.choices(waiting).values())
        zone = ZoneInfo(self._zone)
        shown = tuple(cards.card_of(group, place, self._key, str, zone) for group in groups[:CARDS])
        return Page(
            cards=shown,
            more=max(0, len(groups) - CARDS),
            sessions=tuple(listings.session_lines(running[:SESSIONS], self._zone))
            if running
            else (),
            schedules=tuple(listings.schedule_lines(planned)) if planned else (),
            zone=people.zone_of(tx, self._tenant, who.id) or self._zone,
        )
