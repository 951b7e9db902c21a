"""Hands lines that nobody addressed to Nod to the watches of their channel."""

from __future__ import annotations

from bot.inbound import routing
from bot.inbound.answers import House
from bot.markup import plain
from bot.surfaces.base import Said
from engine.schedule import subscriptions
from engine.schedule.subscriptions import Line
from engine.store.base import Tx

__all__ = ["is_watched", "take"]


def is_watched(tx: Tx, house: House, said: Said) -> bool:
    """Say whether anything watches the channel in which the line stands."""
    return subscriptions.heard_in(tx, house.tenant, routing.channel_of(said.target))


def take(tx: Tx, house: House, said: Said) -> tuple[bool, bool]:
    """Keep the line for the watches it concerns; say whether any does, and whether one now waits.

    The line is from others, whoever wrote it: it answers nothing, steers nothing, stops nothing.
    """
    if said.direct:
        return False, False
    channel = routing.channel_of(said.target)
    files = "".join(f"\n[file {plain(each.name)}]" for each in said.files)
    who = plain(said.person.name) or said.person.id
    line = Line(who=who, text=f"{plain(said.text)}{files}", taint=f"channel:{channel}")
    return subscriptions.hear(tx, house.tenant, channel, line, house.now())
