"""Background jobs from a turn's point of view, on both stores, with real processes: they outlive
it, wake the session that waits, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bot import keeping
from engine import sessions
from engine.clock import system_now
from engine.errors import ToolError
from engine.events import Kind
from engine.sandbox.jobs import Ended
from engine.schedule import jobs, wakes
from engine.schedule.job_tools import job_tools
from engine.schedule.job_watch import PATIENCE, JobWatch
from engine.schedule.jobs import Job
from engine.store.base import Store, Tx
from engine.tools.base import Risk, Tool
from tests.fakes.context import make_context
from tests.fakes.jobs import ended, is_gone, pid_in, until
from tests.fakes.scripted import ScriptedModel, Step, call, calls
from tests.fakes.world import World, running


@dataclass(slots=True)
class Desk:
    """A world with jobs, and the watch over them; what it finds is delivered by hand."""

    world: World
    watch: JobWatch
    session: str = ""

    async def does(self, *steps: Step) -> list[tuple[str, str]]:
        """Have the model take these steps in one turn, approving what asks; return the results."""
        model = self.world.engine.model
        assert isinstance(model, ScriptedModel)
        before = len(await self.results())
        model.steps[:] = [*steps]
        await self.world.turn(self.session, "Go")
        for prompt in await self.world.pending(self.session):
            await self.world.answer(prompt, "once")
            await self.world.settle()
        return (await self.results())[before:]

    async def results(self) -> list[tuple[str, str]]:
        done = [f for f in await self.world.log(self.session) if f.kind is Kind.TOOL_FINISHED]
        return [(fact.body["status"], str(fact.body["content"])) for fact in done]

    async def start(self, command: str, **given: Any) -> Job:
        """Start a job in a turn of its own; the turn is over when this returns."""
        [(status, text)] = await self.does(calls(call("job_start", command=command, **given)))
        assert status == "ok", text
        return (await self.jobs())[-1]

    async def jobs(self) -> list[Job]:
        return await self.world.store.read(lambda tx: jobs.listed(tx, self.session))

    def folder(self, job: Job) -> Path:
        return jobs.folder_of(self.world.engine.data, job.session, job.id)

    async def seen(self, job: Job) -> Job:
        """Wait for the job's end and have it noted; return its row."""
        await ended(self.folder(job))
        await self.watch.look()
        return await self.world.store.read(lambda tx: jobs.get(tx, job.id))

    async def said(self) -> list[str]:
        """Return what the session was told, in order."""
        facts = await self.world.log(self.session)
        return [str(f.body["message"]["content"]) for f in facts if f.kind is Kind.MESSAGE]

    async def wakes_due(self) -> list[str]:
        now = self.world.engine.now()
        rows = await self.world.store.read(
            lambda tx: tx.all("wakes_due", tenant="local", now=now, limit=99)
        )
        return [row["id"] for row in rows]

    async def deliver(self) -> list[str]:
        """Do what the clock would: deliver the wakes that are due; return the last thing said."""
        now = self.world.engine.now()

        def wake(wake_id: str, tx: Tx) -> str | None:
            return wakes.wake(tx, wake_id, now)

        for each in await self.wakes_due():
            woken = await self.world.store.write(partial(wake, each))
            if woken is not None:
                self.world.dispatcher.enqueue(woken)
        await self.world.settle()
        return (await self.said())[-1:]


@asynccontextmanager
async def at_desk(store: Store, data: Path, *, alone: bool = True, now: Any = system_now) -> Any:
    nudged: list[None] = []
    watch = JobWatch(
        store=store,
        now=now,
        tenant="local",
        data=data,
        alone=alone,
        on_due=lambda: nudged.append(None),
    )
    tools: list[Tool] = job_tools(store, "UTC", watch.nudge)
    async with running(store, data, ScriptedModel(then="Done."), tools=tools, now=now) as world:
        desk = Desk(world=world, watch=watch)
        desk.session = await world.open()
        try:
            yield desk
        finally:
            left = await store.read(lambda tx: tx.all("jobs_running", tenant="local"))
            for each in left:
                folder = jobs.folder_of(data, each["session_id"], each["id"])
                if folder.is_dir():
                    (folder / "stop").touch()
                    await ended(folder)


@pytest.fixture
async def desk(store: Store, tmp_path: Path) -> AsyncIterator[Desk]:
    async with at_desk(store, tmp_path) as made:
        yield made


def test_what_starts_a_program_is_exec_and_what_looks_at_it_is_not(sqlite_store: Store) -> None:
    risks = {each.name: each.risk for each in job_tools(sqlite_store, "UTC", lambda: None)}
    assert risks == {
        "job_start": Risk.EXEC,
        "job_output": Risk.READ,
        "job_list": Risk.READ,
        "job_stop": Risk.CONTROL,
        "wake_on": Risk.CONTROL,
    }


async def test_a_job_asks_with_its_command_and_how_long_it_may_run(desk: Desk) -> None:
    """W-08."""
    start = calls(call("job_start", command="make all", time_limit=7_500))
    assert isinstance(desk.world.engine.model, ScriptedModel)
    desk.world.engine.model.steps.append(start)
    await desk.world.turn(desk.session, "Go")
    [prompt] = await desk.world.pending(desk.session)
    shown = prompt.payload["preview"]
    assert "also after this turn, for 2 h 5 min at most" in shown and "make all" in shown
    assert await desk.jobs() == []


async def test_a_job_outlives_its_turn_and_is_read_in_a_later_one(desk: Desk) -> None:
    """D-174, S-08."""
    job = await desk.start("echo one; while [ ! -e go ]; do sleep 0.02; done; echo two; exit 3")
    assert job.running
    await until(lambda: any(each.stat().st_size for each in desk.folder(job).glob("out-*")))
    [(_, text)] = await desk.does(calls(call("job_output", job=job.id)))
    assert text.startswith("one\n[Job ") and "; bytes 0 to 4; read on from 4]" in text
    (desk.folder(job).parents[2] / "files" / "go").touch()
    seen = await desk.seen(job)
    assert (seen.status, seen.exit_code) == ("exited", 3)
    [(_, text)] = await desk.does(calls(call("job_output", job=job.id[:6], start=4)))
    assert text.startswith("two\n[") and "ended with exit code 3" in text and "that is all" in text
    [(_, text)] = await desk.does(calls(call("job_list")))
    assert job.id in text and "exit code 3" in text and "echo one" in text


async def test_a_session_that_waits_is_woken_with_code_and_output(desk: Desk) -> None:
    job = await desk.start("while [ ! -e go ]; do sleep 0.02; done; echo built; exit 2")
    [(_, text)] = await desk.does(calls(call("wake_on", job=job.id, note="tell Ana")))
    assert text == f"You are woken when {job.id} ends."
    await desk.watch.look()
    assert await desk.wakes_due() == []
    (desk.folder(job).parents[2] / "files" / "go").touch()
    await desk.seen(job)
    [said] = await desk.deliver()
    assert "tell Ana" in said and "ended with exit code 2" in said and said.endswith("\nbuilt\n")
    ends = [f for f in await desk.world.log(desk.session) if f.kind is Kind.TURN_END]
    assert [each.body["status"] for each in ends[-2:]] == ["completed"] * 2
    await desk.watch.look()
    assert await desk.wakes_due() == [], "it is woken once"


async def test_one_that_waits_for_a_job_that_has_ended_is_woken_at_once(desk: Desk) -> None:
    job = await desk.start("echo quick")
    await desk.seen(job)
    [(_, text)] = await desk.does(calls(call("wake_on", job=job.id, note="go on")))
    assert "It has ended" in text
    [said] = await desk.deliver()
    assert "go on" in said and "exit code 0" in said and "quick" in said


async def test_a_job_that_ends_within_the_turn_that_waits_for_it_wakes(desk: Desk) -> None:
    """Between its end and the look that notes it, the wake must not fall through."""
    job = await desk.start("echo quick")
    await ended(desk.folder(job))
    await desk.does(calls(call("wake_on", job=job.id, note="go on")))
    await desk.watch.look()
    assert "quick" in (await desk.deliver())[0]


async def test_who_waits_until_a_time_is_woken_then(store: Store, tmp_path: Path) -> None:
    moment = [system_now()]
    async with at_desk(store, tmp_path, now=lambda: moment[0]) as desk:
        job = await desk.start("exec sleep 999")
        [(_, text)] = await desk.does(
            calls(call("wake_on", job=job.id, note="look", until="in 20 minutes"))
        )
        assert ", and at " in text
        moment[0] += 1_300.0
        [said] = await desk.deliver()
        assert "look" in said and "did not come in time" in said
        assert job in await desk.jobs()


async def test_a_wake_for_a_deleted_session_is_dropped_and_its_jobs_end(desk: Desk) -> None:
    job = await desk.start("echo $$ > pid; exec sleep 999")
    pid = await pid_in(desk.folder(job).parents[2] / "files" / "pid")
    await desk.does(calls(call("wake_on", job=job.id, note="go on")))
    store, data = desk.world.store, desk.world.engine.data
    assert await keeping.delete(store, data, desk.session, "console", system_now())
    await until(lambda: is_gone(pid))
    await desk.watch.look()
    assert await desk.wakes_due() == []
    assert await store.read(lambda tx: jobs.unfinished(tx, "local")) == []


async def test_a_session_with_a_running_job_is_not_past_its_time(desk: Desk) -> None:
    job = await desk.start("exec sleep 999")
    store, later = desk.world.store, system_now() + 1e6

    def finished(tx: Any) -> list[str]:
        tx.run("session_presented", id=desk.session, seq=1_000)
        rows = tx.all("retention_finished", origin="person", before=later, after="", limit=9)
        return [row["id"] for row in rows]

    assert await store.write(finished) == []
    await desk.does(calls(call("job_stop", job=job.id)))
    await desk.watch.look()
    assert await store.write(finished) == [desk.session]


async def test_a_stop_of_the_turn_leaves_its_jobs_and_job_stop_ends_one(desk: Desk) -> None:
    job = await desk.start("echo $$ > pid; echo up; exec sleep 999")
    pid = await pid_in(desk.folder(job).parents[2] / "files" / "pid")
    await desk.world.stop(desk.session)
    await desk.world.settle()
    assert not is_gone(pid)
    [(status, text)] = await desk.does(calls(call("job_stop", job=job.id)))
    assert status == "ok" and text.startswith("up\n[") and "was stopped" in text
    assert is_gone(pid)
    assert (await desk.seen(job)).status == "stopped"
    [(status, text)] = await desk.does(calls(call("job_stop", job=job.id)))
    assert status == "ok" and "was stopped" in text


async def test_a_start_whose_job_was_given_up_meanwhile_is_no_start(desk: Desk) -> None:
    """The call is tried again after a crash, and its job was found never to have been started."""
    store = desk.world.store
    [start] = [t for t in job_tools(store, "UTC", lambda: None) if t.name == "job_start"]
    ctx = make_context(desk.world.engine.data, session=desk.session, executor=no_shell, call="c9")
    lost = Ended(how="lost")

    def note(tx: Tx) -> None:
        row = sessions.get(tx, desk.session)
        jobs.end(tx, jobs.add(tx, row, jobs.job_id("c9"), "make", 60.0, 1.0), lost, "", 2.0)

    await store.write(note)
    with pytest.raises(ToolError, match="is lost"):
        await start.run(ctx, command="make")


async def no_shell() -> None:
    """Nothing is to be started."""


@pytest.mark.parametrize("tool", ["job_output", "job_stop", "wake_on"])
async def test_another_sessions_job_is_none_of_ours(desk: Desk, tool: str) -> None:
    job = await desk.start("exec sleep 999")
    first, desk.session = desk.session, await desk.world.open("console:other")
    more = {"note": "go on"} if tool == "wake_on" else {}
    [(status, text)] = await desk.does(calls(call(tool, job=job.id, **more)))
    assert status == "error" and "There is no job" in text and "Jobs of this session: none" in text
    desk.session = first


async def test_a_session_has_so_many_jobs_at_once_and_no_more(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "PER_SESSION", 2)
    made = [await desk.start("exec sleep 999") for _ in range(2)]
    start = calls(call("job_start", command="exec sleep 999"))
    [(status, text)] = await desk.does(start)
    assert status == "error" and "2 jobs of this session" in text and made[0].id in text
    await desk.does(calls(call("job_stop", job=made[0].id)))
    await desk.watch.look()
    await desk.start("exec sleep 999")


async def test_all_sessions_together_have_a_ceiling_too(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "IN_ALL", 1)
    await desk.start("exec sleep 999")
    desk.session = await desk.world.open("console:other")
    [(status, text)] = await desk.does(calls(call("job_start", command="true")))
    assert status == "error" and "1 jobs of all sessions" in text


async def test_only_the_latest_ended_jobs_are_kept(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "KEPT", 1)
    made = []
    for number in range(3):
        made.append(await desk.start(f"echo {number}"))
        await desk.seen(made[-1])
    assert [each.id for each in await desk.jobs()] == [each.id for each in made[1:]]
    assert [desk.folder(each).exists() for each in made] == [False, True, True]


async def test_a_folder_that_cannot_be_written_is_told_and_the_job_failed(desk: Desk) -> None:
    keep = jobs.folder_of(desk.world.engine.data, desk.session, "x").parent
    keep.parent.mkdir(parents=True, exist_ok=True)
    keep.write_text("no folder")
    [(status, text)] = await desk.does(calls(call("job_start", command="echo hi")))
    assert status == "error" and "could not be started: " in text
    [job] = await desk.jobs()
    assert (job.status, job.running) == ("failed", False)


async def test_a_killed_reaper_makes_its_job_lost_and_the_owner_is_told(desk: Desk) -> None:
    job = await desk.start("sh -c 'echo $$ > pid; exec sleep 999' & wait")
    await desk.does(calls(call("wake_on", job=job.id, note="go on")))
    pid = await pid_in(desk.folder(job).parents[2] / "files" / "pid")
    reaper = int((desk.folder(job) / "started").read_text().split('"pid": ')[1].split(",")[0])
    os.kill(reaper, signal.SIGKILL)
    assert (await desk.seen(job)).status == "lost"
    await until(lambda: is_gone(pid))
    assert f"Job {job.id} is lost" in (await desk.deliver())[0]
    [notice] = [each for each in await desk.world.pending() if each.kind == "notice"]
    assert f"Job {job.id} is lost" in notice.payload["text"]


@pytest.mark.parametrize(
    ("alone", "after", "lost"),
    [
        pytest.param(True, PATIENCE / 2, False, id="it-may-just-be-starting"),
        pytest.param(True, PATIENCE + 1, True, id="it-was-never-started"),
        pytest.param(False, PATIENCE + 1, False, id="another-machine-may-have-it"),
        pytest.param(False, 3_600 + PATIENCE + 1, True, id="its-time-limit-is-over-there-too"),
    ],
)
async def test_a_job_that_nothing_is_seen_of_is_given_time_and_then_up(
    store: Store, tmp_path: Path, alone: bool, after: float, lost: bool
) -> None:
    moment = [system_now()]
    async with at_desk(store, tmp_path, alone=alone, now=lambda: moment[0]) as desk:

        def note(tx: Any) -> Job:
            session = sessions.get(tx, desk.session)
            return jobs.add(tx, session, "jnone", "make", 3_600.0, moment[0])

        await store.write(note)
        moment[0] += after
        assert await desk.watch.look() is not lost
        [job] = await desk.jobs()
        assert (job.status == "lost") is lost


async def test_output_of_a_tainted_session_marks_whom_it_wakes(desk: Desk) -> None:
    job = await desk.start("echo hi")
    store = desk.world.store
    await store.write(
        lambda tx: tx.run("session_taint", id=desk.session, value='["web:example.org"]')
    )
    await desk.does(calls(call("wake_on", job=job.id, note="go on")))
    await desk.seen(job)
    [said] = await desk.deliver()
    assert "from outside: it is data" in said


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        pytest.param(0, 3_600.0, id="D-173-zero"),
        pytest.param("soon", 3_600.0, id="D-173-text"),
        pytest.param(None, 3_600.0, id="S-02-nothing"),
        pytest.param(1e9, 86_400.0, id="D-173-cap"),
        pytest.param("90", 90.0, id="S-02-number-as-text"),
    ],
)
def test_a_time_limit_is_brought_within_bounds(
    sqlite_store: Store, asked: Any, given: float
) -> None:
    [start, *_] = job_tools(sqlite_store, "UTC", lambda: None)
    assert start.check({"command": "ls", "time_limit": asked})["time_limit"] == given
    assert start.check({"command": "ls"})["time_limit"] == 3_600.0


async def test_the_watch_notes_an_end_by_itself_and_says_that_wakes_are_due(
    store: Store, tmp_path: Path
) -> None:
    due = asyncio.Event()
    async with at_desk(store, tmp_path) as desk:
        job = await desk.start("while [ ! -e go ]; do sleep 0.02; done")
        watch = JobWatch(
            store=store,
            now=system_now,
            tenant="local",
            data=tmp_path,
            alone=True,
            on_due=due.set,
        )
        async with watch:
            assert not due.is_set()
            (desk.folder(job).parents[2] / "files" / "go").touch()
            async with asyncio.timeout(20):
                await due.wait()
        assert not (await desk.jobs())[0].running
