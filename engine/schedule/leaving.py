"""Brings to rest what a person had planned who may no longer work with Nod."""

from __future__ import annotations

from engine.schedule import schedules, subscriptions, wakes
from engine.store.base import Tx

__all__ = ["rest"]


def rest(tx: Tx, tenant: str, owner: str, by: str, now: float) -> list[str]:
    """Pause the person's schedules and watches, call off their wakes; say how many of each.

    To be called in the transaction that takes their rights.
    """
    planned = [
        each for each in schedules.listed(tx, tenant) if each.owner == owner and each.enabled
    ]
    for schedule in planned:
        schedules.enable(tx, schedule.id, False, now)
    watching = [
        each
        for each in subscriptions.listed(tx, tenant)
        if each.owner == owner and each.status == "active"
    ]
    for watch in watching:
        subscriptions.switch(tx, watch, False, by, now)
    called_off = 0
    while found := wakes.waiting(tx, tenant, owner):
        called_off += sum(wakes.cancel(tx, each, by, now) for each in found)
    counted = (("schedule", len(planned)), ("watch", len(watching)), ("wake", called_off))
    return [_many(count, what) for what, count in counted if count]


def _many(count: int, what: str) -> str:
    plural = "es" if what == "watch" else "s"
    return f"{count} {what}" + ("" if count == 1 else plural)
