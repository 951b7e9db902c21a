"""Background jobs, with real processes: what they write down, what bounds them, what ends them."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ToolError
from engine.sandbox import jobs
from engine.sandbox.jobs import Ended, Task
from engine.sandbox.leftovers import MARK
from engine.sandbox.local import LocalExecutor
from engine.sandbox.reaper import PIECE
from tests.fakes.jobs import ended, is_gone, pid_in, until


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of a job, which is ended with the test."""
    made = tmp_path / "jobs" / "jtest"
    yield made
    jobs.end_rest(made.name)
    with suppress(FileNotFoundError):
        os.kill(reaper_of(made), signal.SIGKILL)


def reaper_of(folder: Path) -> int:
    return int(json.loads((folder / "started").read_text())["pid"])


def start(folder: Path, command: str, limit: float = 60.0) -> None:
    env = {"PATH": os.environ["PATH"], MARK: jobs.mark(folder.name)}
    cwd = folder.parent.parent
    argv = ["/bin/sh", "-c", command]
    jobs.begin(Task(folder=folder, argv=argv, env=env, cwd=cwd, limit=limit))


def text_of(folder: Path) -> str:
    return jobs.read(folder, 0, 10_000_000).text


async def test_a_job_tells_its_code_and_what_it_printed(folder: Path) -> None:
    start(folder, "echo out; echo err >&2; exit 3")
    found = await ended(folder)
    assert (found.how, found.exit_code, found.unwritten) == ("exited", 3, 0)
    assert text_of(folder) == "out\nerr\n"


async def test_a_job_ended_by_a_signal_tells_what_a_shell_would(folder: Path) -> None:
    start(folder, "kill -9 $$")
    assert (await ended(folder)).exit_code == 137


async def test_a_job_is_no_child_of_ours_and_in_a_session_of_its_own(folder: Path) -> None:
    start(folder, "echo $$ > pid; exec sleep 999")
    pid = await pid_in(folder.parent.parent / "pid")
    mine = {each.pid for each in psutil.Process().children(recursive=True)}
    assert mine.isdisjoint({pid, reaper_of(folder)})
    assert len({os.getsid(0), os.getsid(pid), os.getsid(reaper_of(folder))}) == 3
    jobs.stop(folder)
    await ended(folder)


async def test_the_same_job_handed_over_again_starts_nothing(folder: Path) -> None:
    for _ in range(2):
        start(folder, "echo once >> count")
    await ended(folder)
    assert (folder.parent.parent / "count").read_text() == "once\n"


async def test_a_job_that_runs_has_no_ending(folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        jobs.ending(folder)
    start(folder, "exec sleep 999")
    assert jobs.ending(folder) is None
    jobs.stop(folder)
    await ended(folder)


FAR = "setsid sh -c 'echo $$ > far; exec sleep 999' &"
BARE = "(env -i /bin/sh -c 'echo $$ > bare; exec sleep 999' &);"
NEAR = "sh -c 'echo $$ > near; trap \"\" TERM; sleep 999; sleep 999'"


async def test_a_stop_ends_all_that_the_job_started(folder: Path, tmp_path: Path) -> None:
    """Also what left its group, wiped its environment, or is deaf to SIGTERM."""
    start(folder, f"{FAR} {BARE} {NEAR}; :")
    pids = [await pid_in(tmp_path / name) for name in ("far", "bare", "near")]
    jobs.stop(folder)
    assert (await ended(folder)).how == "stopped"
    assert [is_gone(pid) for pid in pids] == [True] * 3


async def test_what_a_job_left_running_ends_with_it(folder: Path, tmp_path: Path) -> None:
    start(folder, f"{FAR} {BARE} while [ ! -s far -o ! -s bare ]; do sleep 0.01; done; echo done")
    assert (await ended(folder)).exit_code == 0
    assert [is_gone(await pid_in(tmp_path / name)) for name in ("far", "bare")] == [True] * 2
    assert text_of(folder) == "done\n"


async def test_a_job_may_end_itself_in_order(folder: Path) -> None:
    start(folder, "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done")
    await until(lambda: text_of(folder) == "up\n")
    jobs.stop(folder)
    found = await ended(folder)
    assert (found.how, found.exit_code) == ("stopped", 5) and text_of(folder).endswith("bye\n")


async def test_the_time_limit_is_kept_without_nod(folder: Path, tmp_path: Path) -> None:
    start(folder, "echo $$ > pid; exec sleep 999", limit=0.3)
    found = await ended(folder)
    assert (found.how, found.exit_code) == ("time", 143)
    assert is_gone(await pid_in(tmp_path / "pid"))


async def test_a_shutdown_of_the_machine_is_a_stop(folder: Path) -> None:
    start(folder, "exec sleep 999")
    os.kill(reaper_of(folder), signal.SIGTERM)
    assert (await ended(folder)).how == "stopped"


async def test_a_killed_reaper_takes_the_job_with_it_and_the_job_is_lost(
    folder: Path, tmp_path: Path
) -> None:
    start(folder, "sh -c 'echo $$ > near; exec sleep 999' & echo $$ > pid; wait; :")
    pids = [await pid_in(tmp_path / name) for name in ("pid", "near")]
    os.kill(reaper_of(folder), signal.SIGKILL)
    assert await ended(folder) == Ended(how="lost")
    jobs.end_rest(folder.name)
    await until(lambda: all(is_gone(pid) for pid in pids))


async def test_a_job_whose_folder_is_removed_ends(folder: Path, tmp_path: Path) -> None:
    start(folder, "echo $$ > pid; exec yes")
    pid, reaper = await pid_in(tmp_path / "pid"), reaper_of(folder)
    shutil.rmtree(folder, ignore_errors=True)  # it may write while this removes
    await until(lambda: is_gone(pid) and is_gone(reaper))
    assert not folder.exists()


async def test_a_job_that_prints_for_ever_is_bounded_and_its_end_is_kept(folder: Path) -> None:
    start(folder, "yes line | head -c 7000000; echo END")
    assert (await ended(folder)).exit_code == 0
    kept = sum(each.stat().st_size for each in folder.glob("out-*"))
    assert PIECE <= kept <= 2 * PIECE + 65_536
    end = jobs.read(folder, None, 100)
    assert end.text.endswith("line\nEND\n") and (end.end, end.more) == (7_000_004, False)
    first = jobs.read(folder, 0, 100)
    assert first.begin >= 5_000_000 and first.more, "what was asked for is gone, and it says so"


@contextmanager
def full_beyond(size: int) -> Iterator[None]:
    """A limit of file size stands for a full disk: both make writing fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


async def test_a_full_disk_loses_output_and_neither_the_job_nor_its_end(folder: Path) -> None:
    with full_beyond(1_000):
        start(folder, "yes | head -c 5000; exit 4")
    found = await ended(folder)
    assert (found.how, found.exit_code) == ("exited", 4)
    assert found.unwritten > 0
    kept = sum(each.stat().st_size for each in folder.glob("out-*"))
    assert kept + found.unwritten == 5_000


async def test_on_a_full_disk_no_job_is_started_whose_end_could_not_be_kept(folder: Path) -> None:
    with full_beyond(100), pytest.raises(ToolError, match=r"could not be started: .*too large"):
        start(folder, "touch ran")
    assert not (folder / "started").exists() and not (folder.parent.parent / "ran").exists()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        pytest.param("file", "Not a directory", id="no-folder"),
        pytest.param("cwd", "No such file", id="no-place-to-run"),
        pytest.param("program", "No such file", id="no-program"),
    ],
)
async def test_a_job_that_cannot_start_says_why(
    folder: Path, tmp_path: Path, spoil: str, says: str
) -> None:
    (tmp_path / "file").write_text("")
    env = {MARK: jobs.mark(folder.name)}
    task = Task(
        folder=tmp_path / "file" / "jtest" if spoil == "file" else folder,
        argv=["/no/such/program"] if spoil == "program" else ["/bin/sh", "-c", ":"],
        env=env,
        cwd=tmp_path / "gone" if spoil == "cwd" else tmp_path,
        limit=60.0,
    )
    with pytest.raises(ToolError, match=f"could not be started: .*{says}"):
        jobs.begin(task)
    if spoil != "file":
        assert (await ended(folder)).how == "failed"


async def test_a_job_has_the_shells_folder_and_exports_and_no_secret_of_ours(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither does the process that answers for it, whose environment others may look into."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    shell = LocalExecutor(tmp_path)
    await shell.run("mkdir sub; cd sub; export A=1", 20.0)
    await shell.start("pwd; printenv; exec sleep 999", folder, 60.0)
    await shell.close()
    await until(lambda: f"{MARK}=" in text_of(folder))
    said = text_of(folder)
    assert said.startswith(f"{tmp_path}/sub\n") and "\nA=1\n" in said
    environs = [said, str(psutil.Process(reaper_of(folder)).environ())]
    assert "sk-secret" not in "".join(environs)
    words = psutil.Process(reaper_of(folder)).cmdline()
    assert "printenv" not in " ".join(words)
    jobs.stop(folder)
    await ended(folder)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), max_size=6), st.integers(8, 40))
def test_output_read_bit_by_bit_is_the_whole_text(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], limit: int
) -> None:
    folder = tmp_path_factory.mktemp("output")
    text = "".join(texts)
    cuts, at = [0], 0
    for each in texts:
        at += max(1, len(each.encode()) - 1)  # pieces begin within characters too
        cuts.append(at)
    data = text.encode()
    for begin, end in zip(cuts, [*cuts[1:], len(data)], strict=True):
        (folder / f"out-{begin:015d}").write_bytes(data[begin:end])
    got, at, more = "", 0, True
    while more:
        part = jobs.read(folder, at, limit)
        assert part.begin == at
        got, at, more = got + part.text, part.end, part.more
    assert (got, at) == (text, len(data))


def test_what_a_full_disk_left_out_is_skipped_and_seen(tmp_path: Path) -> None:
    (tmp_path / "out-000000000000000").write_bytes(b"begin")
    (tmp_path / "out-000000000000900").write_bytes(b"end")
    first = jobs.read(tmp_path, 0, 100)
    assert (first.text, first.begin, first.end, first.more) == ("begin", 0, 5, True)
    rest = jobs.read(tmp_path, 5, 100)
    assert (rest.text, rest.begin, rest.end, rest.more) == ("end", 900, 903, False)
