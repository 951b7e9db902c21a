"""A schedule through weeks of outages, failures, cards and deletions: what always holds."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from engine import sessions
from engine.schedule import runs, schedules
from engine.schedule.policy import WAITING, Policy, Quiet
from engine.schedule.runs import Fire
from engine.schedule.schedules import Schedule
from engine.store.base import Store
from engine.store.retention import delete_session
from tests.contract.test_schedules import HOUR, START, Clock, added, advance_to, alarm_on

NIGHT = Quiet.parse("22:00-07:00")
OPEN = ("started", "retrying")
STEPS = 40


class Walk:
    """One schedule, a clock, and a worker that does what chance says."""

    def __init__(self, store: Store, data: Path, schedule: Schedule, seed: int) -> None:
        self.store, self.data, self.schedule = store, data, schedule
        self.clock = Clock(START)
        self.chance = random.Random(seed)
        self.slept = 0.0

    async def history(self) -> list[Fire]:
        found = await self.store.read(lambda tx: runs.history(tx, self.schedule.id, 9_999))
        return found[::-1]

    async def step(self) -> None:
        """Let time pass, ring unless Nod is down, and let something become of the run."""
        self.clock.moment += self.chance.choice([60, 600, 1_800, HOUR, 5 * HOUR])
        if self.chance.random() < 0.15:
            self.clock.moment += self.chance.choice([6, 30]) * HOUR  # down meanwhile
        await self.ring()
        run = next((each for each in await self.history() if each.status == "started"), None)
        if run is not None:
            await self.become(str(run.session))
        await self.ring()

    async def ring(self) -> None:
        """Ring two clocks at once, as two processes do."""
        clocks = [alarm_on(self.store, self.clock, self.data) for _ in range(2)]
        for _ in range(3):  # what one ring makes due is of the next
            await asyncio.gather(*(each.ring() for each in clocks))

    async def become(self, session: str) -> None:
        what = self.chance.choice(["nothing", "park", "completed", "error", "interrupted", "gone"])
        if what == "gone":
            await self.store.write(lambda tx: delete_session(tx, session, lambda tx, row: None))
        elif what != "nothing":
            found = await self.store.read(lambda tx: sessions.get(tx, session))
            if found.wanted > found.seen:
                await advance_to(self.store, session, "parked" if what == "park" else "idle")
            if what != "park":
                now = self.clock.moment
                await self.store.write(lambda tx: runs.ended(tx, session, what, now))

    async def removed(self) -> None:
        now = self.clock.moment
        await self.store.write(lambda tx: schedules.remove(tx, self.schedule.id, now))

    async def check(self) -> None:
        history, policy = await self.history(), self.schedule.policy
        states = [run.status for run in history]
        busy, queued = sum(states.count(each) for each in OPEN), states.count("queued")
        assert busy <= 1, "one at a time"
        assert queued <= WAITING
        night = policy.begins(self.clock.moment, "UTC") > self.clock.moment
        assert busy or not queued or night, "what waits begins when nothing is at work"
        began = [run for run in history if run.session is not None or run.worked]
        for run in began:
            assert policy.begins(run.fired_at, "UTC") == run.fired_at, "nothing begins at night"
            assert run.fired_at >= run.due
        starts = [run.fired_at for run in began]
        assert starts == sorted(starts), "in the order in which they were due"
        if policy.overlap != "queue" and policy.catch_up != "all":
            assert not queued


@pytest.mark.parametrize("quiet", [None, NIGHT], ids=["day-and-night", "quiet-nights"])
@pytest.mark.parametrize("overlap", ["skip", "queue"])
@pytest.mark.parametrize("catch_up", ["once", "skip", "all"])
async def test_whatever_happens_its_runs_keep_the_rules(
    sqlite_store: Store, tmp_path: Path, catch_up: str, overlap: str, quiet: Quiet | None
) -> None:
    policy = Policy(catch_up=catch_up, overlap=overlap, quiet=quiet, retries=2)
    for seed in range(3):
        schedule = await added(sqlite_store, cron="0 */2 * * *", policy=policy)
        walk = Walk(sqlite_store, tmp_path, schedule, seed)
        for _ in range(STEPS):
            await walk.step()
            await walk.check()
        history = await walk.history()
        assert len({run.due for run in history}) == len(history) > 10
        row = await sqlite_store.read(lambda tx, each=schedule: schedules.get(tx, each.id))
        assert row.next_at is not None and row.next_at > walk.clock.moment
        await walk.removed()
        open_now = [run.status for run in await walk.history() if run.ended_at is None]
        assert set(open_now) <= {"started", "skipped", "failed"}, "nothing waits for it any more"
