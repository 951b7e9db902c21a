"""What showing anything needs, in whichever session: the store, the outbox, how cards look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path

from bot import cards
from bot.outbound.outbox import Outbox
from bot.surfaces.base import Message
from engine import inbox, people
from engine.clock import Now
from engine.events import Event, Kind
from engine.inbox import Prompt
from engine.store.base import Row, Store, Tx

__all__ = ["Stage", "Touched"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """The cards a decision changes: their prompts, grouped, and the rows that say where."""

    groups: Sequence[Sequence[Prompt]]
    rows: Sequence[Row]
    names: Mapping[str, str]

    def places(self, group: Sequence[Prompt]) -> dict[tuple[str, str], str]:
        """Return (destination, ref) -> hash of what is shown there, for one card."""
        subjects = {f"prompt:{prompt.id}" for prompt in group}
        return {
            (row["destination"], row["ref"]): row["shown"]
            for row in self.rows
            if row["subject"] in subjects and row["ref"]
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Shared by the presenter and everyone it follows sessions with."""

    store: Store
    outbox: Outbox
    now: Now
    #: The data folder; artifacts' paths start there.
    data: Path
    #: Signs the buttons.
    key: bytes = field(repr=False)
    zone: tzinfo
    tenant: str = "local"
    #: thread_target where the owner reads what has no other private place.
    inbox: str = "console:main"
    #: Below an answer it says what it took, where the platform has small letters.
    footers: bool = False

    def card(self, prompts: Sequence[Prompt], place: str, names: Mapping[str, str]) -> Message:
        """Return the card of prompts that were asked together, as it looks in `place`."""
        made = cards.card_of(prompts, place, self.key, lambda who: names.get(who, who), self.zone)
        return Message(card=made)

    def small(self, target: str) -> bool:
        """Say whether answers in `target` carry a footer about what they took."""
        return self.footers and self.outbox.surface(target).capabilities.small_text

    def private(self, tx: Tx, principal: str) -> str:
        """Return where the person reads private messages and can be reached; empty: nowhere."""
        places = people.places_of(tx, self.tenant, principal)
        return next((place for place in places if self.outbox.has(place)), "")

    def aside(self, tx: Tx, home: str, prompts: Sequence[Prompt]) -> str:
        """Return where cards of an unattended turn go instead of the session's home; empty: home.

        They go to the person whose session it is, if they may answer, else to the owner.
        """
        if all(prompt.payload.get("attended", True) for prompt in prompts):
            return ""
        person = people.get(tx, self.tenant, str(prompts[0].approvers.get("person", "")))
        able = person is not None and inbox.may_answer(prompts[0], person)
        place = self.private(tx, person.id if able and person else people.CONSOLE)
        return "" if place == home else place

    def names(self, tx: Tx, prompts: Sequence[Prompt]) -> dict[str, str]:
        """Return the names of those who decided."""
        found = {p.resolved_by: people.get(tx, self.tenant, p.resolved_by) for p in prompts}
        return {who: person.name for who, person in found.items() if person is not None}

    def asked(self, tx: Tx, ids: Sequence[str]) -> tuple[list[Prompt], dict[str, str]]:
        """Return these prompts as they are now, and the names of those who decided."""
        prompts = [inbox.get(tx, prompt) for prompt in ids]
        return prompts, self.names(tx, prompts)

    def touched(self, tx: Tx, fact: Event) -> Touched:
        """Return every card that shows a prompt which `fact` (DECIDED, STOPPED) closed."""
        if fact.kind is Kind.DECIDED:
            closed = [inbox.get(tx, fact.body["prompt"])]
        else:
            rows = tx.all("prompts_closed", session=fact.session, seq=fact.seq)
            closed = [inbox.prompt_from(row) for row in rows]
        together: list[Prompt] = []
        for turn in dict.fromkeys(prompt.turn for prompt in closed):
            rows = tx.all("prompts_of_turn", session=fact.session, turn=turn)
            together += [inbox.prompt_from(row) for row in rows]
        ids = {prompt.id for prompt in closed}
        groups = [
            group
            for group in inbox.choices(together).values()
            if any(prompt.id in ids for prompt in group)
        ]
        found = [
            row
            for group in groups
            for prompt in group
            for row in tx.all("deliveries_of", tenant=self.tenant, subject=f"prompt:{prompt.id}")
        ]
        names = self.names(tx, [prompt for group in groups for prompt in group])
        return Touched(groups=groups, rows=found, names=names)
