"""Folders given to a schedule: each of its runs may read them, until they are taken back."""

from __future__ import annotations

from pathlib import Path

from engine import audit, grants, sessions
from engine.schedule import fires, schedules
from engine.schedule.words import When
from engine.store.base import Store, Tx
from engine.tools.base import Root

FOLDER = Root(path=Path("/srv/repo"))


def schedule_with_folder(tx: Tx) -> str:
    schedule = schedules.add(
        tx,
        tenant="local",
        owner="console",
        title="Briefing",
        when=When(cron="0 9 * * *", zone="UTC"),
        instructions="Prepare it.",
        home="console:main",
        persona="cowork",
        model="practice:rules",
        now=1000.0,
    )
    thing = grants.of_schedule(schedule.id)
    grants.give_folders(tx, "local", thing, [FOLDER], by="console", now=1000.0)
    return schedule.id


async def test_a_run_may_read_what_its_schedule_was_given(store: Store, tmp_path: Path) -> None:
    schedule = await store.write(schedule_with_folder)
    fired = await store.write(lambda tx: fires.run_now(tx, schedule, 2000.0, data=tmp_path))
    run = await store.read(lambda tx: sessions.get(tx, str(fired.session)))
    assert [root.own for root in run.roots] == [True, False]
    assert run.roots[1] == FOLDER
    assert await store.read(lambda tx: audit.verify(tx, "local")) == []


async def test_a_removed_schedule_has_no_folders_left(store: Store) -> None:
    schedule = await store.write(schedule_with_folder)
    thing = grants.of_schedule(schedule)
    assert await store.read(lambda tx: grants.given_folders(tx, "local", thing)) == [FOLDER]
    assert await store.read(lambda tx: grants.given_folders(tx, "other", thing)) == []
    await store.write(lambda tx: schedules.remove(tx, schedule, 3000.0))
    assert await store.read(lambda tx: grants.given_folders(tx, "local", thing)) == []
