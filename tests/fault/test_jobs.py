"""A Nod that is killed while a job runs: the job runs once and to its end, and its wake comes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from engine.events import Event, Kind
from engine.schedule import jobs
from engine.store.base import Store
from tests.fakes.jobs import ended, is_gone, pid_in
from tests.fakes.world import World
from tests.fault.forks import KILLED, LIMIT, ROOT
from tests.fault.job_child import MOMENTS, life


async def _killed_at(moment: str, url: str, data: Path) -> None:
    words = ("-m", "tests.fault.job_child", url, str(data), moment)
    child = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=ROOT, stderr=asyncio.subprocess.PIPE
    )
    _, said = await asyncio.wait_for(child.communicate(), LIMIT)
    assert child.returncode == KILLED, said.decode()


async def _woken(world: World, session: str) -> list[Event]:
    """Wait until the session said what came of its job; return its log."""
    async with asyncio.timeout(LIMIT):
        while True:
            facts = await world.log(session)
            if "Told Ana." in str(facts[-2:]) and facts[-1].kind is Kind.TURN_END:
                return facts
            await asyncio.sleep(0.05)


@pytest.mark.timeout(180)  # seconds; on Postgres the lease of the killed worker holds 30 of them
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("meanwhile", [True, False], ids=["ends-meanwhile", "ends-later"])
async def test_a_killed_nod_neither_loses_nor_repeats_a_job_and_its_wake(
    store: Store, store_url: str, tmp_path: Path, moment: str, meanwhile: bool
) -> None:
    await _killed_at(moment, store_url, tmp_path)
    [session] = await store.read(
        lambda tx: [row["id"] for row in tx.all("session_list", tenant="local", limit=9)]
    )
    files = tmp_path / "sessions" / session / "files"
    if meanwhile:
        (files / "go").touch()
        if moment != "before":
            [job] = await store.read(lambda tx: jobs.unfinished(tx, "local"))
            await ended(jobs.folder_of(tmp_path, session, job.id))
    async with life(store, tmp_path) as world:
        pid = await pid_in(files / "pid")
        (files / "go").touch()
        facts = await _woken(world, session)
        [job] = await store.read(lambda tx: jobs.listed(tx, session))
        await world.settle()
    assert (files / "starts").read_text() == "start\n", "it ran once"
    assert (job.status, job.exit_code) == ("exited", 7) and is_gone(pid)
    said = [str(f.body["message"]["content"]) for f in facts if f.kind is Kind.MESSAGE]
    woken = [each for each in said if "tell Ana" in each]
    assert len(woken) == 1 and "exit code 7" in woken[0] and "built" in woken[0]
