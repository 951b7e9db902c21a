"""A change of several files is made whole or not at all, also by a process that is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import ToolError
from engine.tools.base import ToolContext
from engine.tools.changes import commit, read_change
from engine.tools.files import apply_patch
from tests.fakes.context import make_context

PATCH = """*** Begin Patch
*** Update File: a.txt
-old a
+new a
*** Add File: made/b.txt
+new b
*** Update File: c.txt
-old c
+new c
*** Delete File: d.txt
*** End Patch"""

BEFORE = {"a.txt": "old a\n", "c.txt": "old c\n", "d.txt": "old d\n"}
AFTER = {"a.txt": "new a\n", "made/b.txt": "new b\n", "c.txt": "new c\n"}


def prepare(ctx: ToolContext) -> None:
    for name, text in BEFORE.items():
        (ctx.cwd / name).write_text(text)


def found(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


async def test_when_the_third_file_fails_all_are_put_back(tmp_path: Path) -> None:
    def obstruct() -> None:  # after everything was checked and staged: the file becomes a folder
        (tmp_path / "files/c.txt").unlink()
        (tmp_path / "files/c.txt").mkdir()

    ctx = make_context(tmp_path, before_act=obstruct)
    prepare(ctx)
    with pytest.raises(ToolError, match=r"c\.txt is a folder"):
        await apply_patch.run(ctx, patch=PATCH)
    (ctx.cwd / "c.txt").rmdir()
    assert found(ctx.cwd) == {"a.txt": "old a\n", "d.txt": "old d\n"}
    assert not (ctx.cwd / "made").exists()


async def test_when_it_is_too_late_to_start_nothing_is_written(tmp_path: Path) -> None:
    def too_late() -> None:
        raise ToolError("Too late.")

    ctx = make_context(tmp_path, before_act=too_late)
    prepare(ctx)
    with pytest.raises(ToolError, match="Too late"):
        await apply_patch.run(ctx, patch=PATCH)
    assert found(ctx.cwd) == BEFORE
    assert not (ctx.cwd / "made").exists()


async def test_a_file_that_changed_since_it_was_read_is_not_overwritten(tmp_path: Path) -> None:
    ctx = make_context(tmp_path)
    prepare(ctx)
    planned = [
        read_change(ctx.cwd / "a.txt", "a.txt", b"mine"),
        read_change(ctx.cwd / "c.txt", "c.txt", b"mine"),
    ]
    (ctx.cwd / "c.txt").write_text("someone else's")
    with pytest.raises(ToolError, match=r"c\.txt was changed by someone else"):
        commit(planned, call="c_1", keep=ctx.keep)
    assert found(ctx.cwd) == {**BEFORE, "c.txt": "someone else's"}


_CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
from engine.tools.files import apply_patch
from tests.fakes.context import make_context

edge, seen = int(sys.argv[2]), 0

def killing(call, counts):
    def wrapped(*args, **named):
        global seen
        if counts(args[0]):
            if seen == edge:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1
        return call(*args, **named)
    return wrapped

def armed():
    staged = lambda name: str(name).startswith(".nod-")
    os.rename = killing(os.rename, staged)
    os.unlink = killing(os.unlink, lambda name: not staged(name))
    os.fsync = killing(os.fsync, lambda folder: True)

ctx = make_context(Path(sys.argv[1]), before_act=armed)
asyncio.run(apply_patch.run(ctx, patch=sys.stdin.read()))
print("done")
"""


@pytest.mark.parametrize("edge", range(9))
def test_a_process_killed_in_the_middle_leaves_every_file_whole(tmp_path: Path, edge: int) -> None:
    ctx = make_context(tmp_path)
    prepare(ctx)
    child = subprocess.run(
        [sys.executable, "-c", _CHILD, str(tmp_path), str(edge)],
        input=PATCH, text=True, capture_output=True, timeout=30, check=False,
    )  # fmt: skip
    files = {n: t for n, t in found(ctx.cwd).items() if not Path(n).name.startswith(".nod-")}
    if edge == 8:  # four switches and four syncs are all there is to kill at
        assert (child.returncode, child.stdout) == (0, "done\n"), child.stderr
        assert files == AFTER
        return
    assert child.returncode == -signal.SIGKILL, child.stderr
    order = ["a.txt", "made/b.txt", "c.txt", "d.txt"]
    for place, name in enumerate(order):
        assert files.get(name) == (AFTER if place < edge else BEFORE).get(name)


async def test_a_second_attempt_clears_away_what_a_killed_one_left(tmp_path: Path) -> None:
    ctx = make_context(tmp_path)
    prepare(ctx)
    (ctx.cwd / ".nod-c_test-0.new").write_text("half")
    await apply_patch.run(ctx, patch=PATCH)
    assert found(ctx.cwd) == AFTER
