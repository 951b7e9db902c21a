"""The local executor, with real processes: what stays, what is bounded, and nothing left over."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ToolError
from engine.sandbox.base import Ran, ShellState
from engine.sandbox.capture import Tail
from engine.sandbox.local import LocalExecutor
from tests.fakes.jobs import is_gone, pid_in, until

LONG = 20.0  # seconds; no test waits for it


@asynccontextmanager
async def opened(folder: Path, **given: Any) -> AsyncIterator[LocalExecutor]:
    executor = LocalExecutor(folder, **given)
    try:
        yield executor
    finally:
        await executor.close()


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[LocalExecutor]:
    async with opened(tmp_path, grace=0.3) as executor:
        yield executor


# -- a shell that stays


async def test_nothing_is_started_before_the_first_command(tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    async with opened(tmp_path) as shell:
        assert await shell.state() == ShellState(cwd=tmp_path, exports={})
        assert set(psutil.Process().children()) == before


async def test_folder_exports_variables_and_functions_stay(shell: LocalExecutor) -> None:
    """D-170, S-01."""
    await shell.run("mkdir sub; cd sub; export A='x y'; plain=1; f() { echo f; }", LONG)
    ran = await shell.run('echo "$A $plain"; f; pwd', LONG)
    assert ran.output.splitlines()[:2] == ["x y 1", "f"]
    assert ran.cwd.endswith("/sub") and ran.output.splitlines()[2] == ran.cwd


async def test_a_failing_command_tells_its_code_and_the_shell_lives_on(
    shell: LocalExecutor,
) -> None:
    """D-170."""
    await shell.run("kept=1", LONG)
    assert (await shell.run("(exit 7)", LONG)).exit_code == 7
    assert (await shell.run("echo $kept; no-such-program-here", LONG)).exit_code == 127
    assert (await shell.run("echo $kept", LONG)).output == "1\n"


@pytest.mark.parametrize("command", ["if", "echo 'a", "echo )", "cat <<X\na", "f() {"])
async def test_a_command_that_does_not_parse_is_told_and_the_shell_lives_on(
    shell: LocalExecutor, command: str
) -> None:
    await shell.run("kept=1", LONG)
    await shell.run(command, LONG)
    assert (await shell.run("echo $kept", LONG)).output == "1\n"


async def test_stdout_and_stderr_come_together_in_order(shell: LocalExecutor) -> None:
    ran = await shell.run("echo a; echo b >&2; echo c", LONG)
    assert ran == Ran(exit_code=0, output="a\nb\nc\n", cwd=ran.cwd)


async def test_a_command_that_leaves_the_shell_keeps_the_last_known_state(
    shell: LocalExecutor,
) -> None:
    await shell.run("mkdir sub; cd sub; export A=1", LONG)
    assert (await shell.run("exit 3", LONG)).exit_code == 3
    ran = await shell.run("echo $A", LONG)
    assert ran.output == "1\n" and ran.cwd.endswith("/sub")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("exec 1>/dev/null 2>&1", id="output-sent-away"),
        pytest.param("exec 1>&- 2>&-", id="output-closed"),
        pytest.param("printf() { :; }; command_() { :; }", id="printf-taken"),
        pytest.param("alias printf=false; shopt -s expand_aliases", id="alias"),
        pytest.param("set -u; set -o pipefail", id="strict-options"),
        pytest.param("trap 'echo bye' EXIT; trap 'echo d' DEBUG", id="traps"),
        pytest.param("PATH=", id="no-path"),
        pytest.param(
            "rmdir $PWD/gone 2>/dev/null; mkdir gone; cd gone; rmdir $PWD", id="no-folder"
        ),
        pytest.param("exec 3</dev/null; exec 4>&1", id="numbered-pipes"),
    ],
)
async def test_no_command_loses_the_end_of_the_next(shell: LocalExecutor, command: str) -> None:
    await shell.run(command, LONG)
    ran = await shell.run("echo here; (exit 5)", LONG)
    assert (ran.exit_code, ran.output.splitlines()[-1]) == (5, "here")


async def test_a_command_sees_nothing_but_its_own_three_streams(shell: LocalExecutor) -> None:
    """S-10: neither the word that marks the end nor the way it takes is within reach."""
    found = await shell.run("ls /proc/self/fd; ls -l /proc/self/fd/0", LONG)
    assert "/dev/null" in found.output
    assert found.output.split()[:4] == ["0", "1", "2", "3"]  # 3 is the folder that ls reads
    assert (await shell.run("bash -c 'echo x >&10' 2>/dev/null", LONG)).exit_code != 0


async def test_a_forged_end_is_output(shell: LocalExecutor) -> None:
    ran = await shell.run("printf '%032d 0\\n/\\0\\0:%032d\\n' 0 0; (exit 4)", LONG)
    assert ran.exit_code == 4 and ran.output.startswith("0" * 32)


async def test_text_of_any_kind_reaches_the_shell_whole(shell: LocalExecutor) -> None:
    text = "größe 漢字 😀 'q' \"d\" $x `y` \\ " * 500
    await shell.run(f"cat > kept <<'END OF TEXT'\n{text}\nEND OF TEXT", LONG)
    ran = await shell.run("cat kept", LONG)
    assert ran.output == f"{text}\n"


async def test_two_commands_at_once_run_one_after_the_other(shell: LocalExecutor) -> None:
    both = await asyncio.gather(shell.run("sleep 0.1; echo a", LONG), shell.run("echo b", LONG))
    assert [ran.output for ran in both] == ["a\n", "b\n"]


# -- what it is given


async def test_no_secret_of_ours_reaches_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-01."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-secret")
    monkeypatch.setenv("EXTRA", "let through")
    async with opened(tmp_path, passed=["EXTRA"]) as shell:
        ran = await shell.run("printenv", LONG)
    assert "sk-secret" not in ran.output and "xoxb" not in ran.output
    assert f"HOME={tmp_path}\n" in ran.output and "EXTRA=let through\n" in ran.output


@pytest.mark.parametrize("profile", [".bashrc", ".bash_profile", ".profile"])
async def test_no_start_up_file_is_read(tmp_path: Path, profile: str) -> None:
    """X-02: neither of the shell's home nor through BASH_ENV."""
    (tmp_path / profile).write_text("export KEY=from-profile\necho noise\n")
    async with opened(tmp_path) as shell:
        assert (await shell.run("echo [$KEY]", LONG)).output == "[]\n"


async def test_a_relative_search_path_is_not_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")
    (tmp_path / "ls").write_text("#!/bin/sh\necho evil\n")
    (tmp_path / "ls").chmod(0o755)
    async with opened(tmp_path) as shell:
        assert "evil" not in (await shell.run("ls", LONG)).output


@pytest.mark.parametrize("how", ["settings in HOME", "a folder that looks like a repository"])
async def test_a_file_cannot_make_git_start_a_program(tmp_path: Path, how: str) -> None:
    """R-04: a hostile config, written where a model may write."""
    config = f'[core]\n\tfsmonitor = "touch {tmp_path}/pwned; false"\n'
    async with opened(tmp_path) as shell:
        if how == "settings in HOME":
            (tmp_path / ".gitconfig").write_text(config)
            await shell.run("git init -q repo; cd repo", LONG)
        else:
            await shell.run("git init -q --bare repo; mkdir work; cd repo", LONG)
            (tmp_path / "repo/config").write_text(
                f"{config}\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ../work\n"
            )
        await shell.run("git status", LONG)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("command", ["cat", "read x; echo read: $?", "python3 -c 'input()'"])
async def test_input_is_empty(shell: LocalExecutor, command: str) -> None:
    """R-05, S-10."""
    ran = await shell.run(command, LONG)
    assert not ran.timed_out
    assert ran.output in ("", "read: 1\n") or "EOFError" in ran.output


# -- limits


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("sleep 999; echo next", id="R-05-sleep"),
        pytest.param("(sleep 999; echo inner); echo next", id="subshell"),
        pytest.param("sleep 999 | cat; echo next", id="pipe"),
        pytest.param("while :; do sleep 1; done; echo next", id="loop"),
        pytest.param("while :; do :; done; echo next", id="busy-loop"),
        pytest.param(
            "g() { sleep 999; echo g; }; f() { g; echo f; }; f; f; echo next", id="functions"
        ),
        pytest.param(
            "f() { [ $1 = 0 ] && sleep 999 || f 0; echo f; }; f 1; echo next", id="recursion"
        ),
        pytest.param("f() { while :; do sleep 1; done; }; f; echo next", id="loop-in-a-function"),
        pytest.param(
            "h() { sleep 9; echo h; }; g() { h; echo g; }; f() { g; echo f; }; f", id="deep"
        ),
        pytest.param("for i in 1 2 3; do sleep 999 || echo next; done", id="or"),
    ],
)
async def test_time_is_up_for_the_command_and_not_for_the_shell(
    shell: LocalExecutor, command: str
) -> None:
    """D-171, S-04: nothing of the command runs after its time, and variables survive."""
    await shell.run("mkdir sub; cd sub; plain=1", LONG)
    began = time.monotonic()
    ran = await shell.run(f"echo first; {command}", 0.2)
    assert time.monotonic() - began < 0.2 + 0.3 + 0.7
    assert (ran.timed_out, ran.interrupted, ran.output) == (True, False, "first\n")
    after = await shell.run("echo $plain; pwd", LONG)
    assert after.output.startswith("1\n") and after.cwd.endswith("/sub")


async def test_what_does_not_end_is_killed_and_the_shell_is_restored(
    shell: LocalExecutor, tmp_path: Path
) -> None:
    """S-04, S-07: no exit code; folder and exports come back."""
    await shell.run("mkdir sub; cd sub; export A='1 2'", LONG)
    stubborn = f"trap '' INT USR1; sh -c 'echo $$ > {tmp_path}/pid; exec sleep 999'"
    began = time.monotonic()
    ran = await shell.run(f"echo kept; {stubborn}", 0.3)
    assert time.monotonic() - began < 0.3 + 0.3 + 1.0
    assert (ran.exit_code, ran.timed_out, ran.output) == (None, True, "kept\n")
    assert is_gone(await pid_in(tmp_path / "pid"))
    after = await shell.run("echo $A", LONG)
    assert after.output == "1 2\n" and after.cwd.endswith("/sub")


async def test_a_child_that_holds_the_output_does_not_hold_the_command(
    shell: LocalExecutor,
) -> None:
    """R-05."""
    began = time.monotonic()
    ran = await shell.run("(sleep 60 &); sleep 60 & echo hi", 2.0)
    assert time.monotonic() - began < 1.5
    assert (ran.exit_code, ran.output, ran.timed_out) == (0, "hi\n", False)


@pytest.mark.parametrize(
    "command", ["yes line | head -c 3000000", "yes | head -c 2999990; echo END"]
)
async def test_the_end_of_a_long_output_is_kept(tmp_path: Path, command: str) -> None:
    """D-172, S-03."""
    async with opened(tmp_path) as shell:
        ran = await shell.run(command, LONG)
        assert ran.truncated and len(ran.output) == 20_000
        assert ran.output.endswith("END\n" if "END" in command else "line\n")
        assert not (await shell.run("echo short", LONG)).truncated


async def test_output_is_counted_in_characters(tmp_path: Path) -> None:
    async with opened(tmp_path, limit=10) as shell:
        ran = await shell.run("printf '漢%.0s' 1 2 3 4 5 6 7 8 9 10", LONG)
        assert (ran.output, ran.truncated) == ("漢" * 10, False)
        ran = await shell.run("printf 'x%s' 漢漢漢漢漢漢漢漢漢漢", LONG)
        assert (ran.output, ran.truncated) == ("漢" * 10, True)


async def test_bytes_that_are_no_text_are_replaced(shell: LocalExecutor) -> None:
    assert (await shell.run(r"printf 'a\377b'", LONG)).output == "a\N{REPLACEMENT CHARACTER}b"


# -- stop


@pytest.mark.parametrize(
    "command", ["sleep 999; echo next", "trap '' INT USR1; sleep 999; sleep 999; echo next"]
)
async def test_an_interrupt_ends_the_command_within_a_second(
    shell: LocalExecutor, command: str
) -> None:
    """S-05."""
    running = asyncio.ensure_future(shell.run(f"touch begun; {command}", LONG))
    folder = (await shell.state()).cwd
    await until(lambda: (folder / "begun").exists())
    began = time.monotonic()
    await shell.interrupt()
    ran = await running
    assert time.monotonic() - began < 1.0
    assert (ran.interrupted, ran.timed_out) == (True, False) and "next" not in ran.output
    assert (await shell.run("echo on", LONG)).output == "on\n"


async def test_an_interrupt_without_a_command_does_nothing(shell: LocalExecutor) -> None:
    await shell.interrupt()
    await shell.run("kept=1", LONG)
    await shell.interrupt()
    assert (await shell.run("echo $kept", LONG)).output == "1\n"


async def test_a_cancelled_command_is_killed(shell: LocalExecutor, tmp_path: Path) -> None:
    await shell.run("export A=1", LONG)
    running = asyncio.ensure_future(shell.run("sh -c 'echo $$ > pid; exec sleep 999'", LONG))
    pid = await pid_in(tmp_path / "pid")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: is_gone(pid))
    assert (await shell.run("echo $A", LONG)).output == "1\n"


# -- the end


async def test_closing_leaves_no_process_behind(tmp_path: Path) -> None:
    """W-34: shell, children, and what went into a session of its own."""
    shell = LocalExecutor(tmp_path)
    mine = "sh -c 'echo $$ > {0}; exec sleep 999'"
    await shell.run(
        f"echo $$ > shell; {mine.format('child')} & (setsid {mine.format('away')} &);"
        f" trap '' TERM INT; nohup {mine.format('deaf')} & sleep 0",
        LONG,
    )
    names = ("shell", "child", "away", "deaf")
    pids = [await pid_in(tmp_path / name) for name in names]
    await shell.close()
    await shell.close()
    for pid in pids:
        await until(partial(is_gone, pid))
    with pytest.raises(ToolError, match="closed"):
        await shell.run("echo", LONG)
    with pytest.raises(ToolError, match="closed"):
        await shell.start("echo", tmp_path / "jtest", LONG)


async def test_closing_ends_a_command_that_runs(tmp_path: Path) -> None:
    shell = LocalExecutor(tmp_path)
    running = asyncio.ensure_future(shell.run("sh -c 'echo $$ > pid; exec sleep 999'", LONG))
    pid = await pid_in(tmp_path / "pid")
    await shell.close()
    assert (await running).exit_code is None
    await until(lambda: is_gone(pid))


async def test_a_later_shell_goes_on_from_what_was_written_down(tmp_path: Path) -> None:
    async with opened(tmp_path) as shell:
        await shell.run("mkdir sub; cd sub; export A='x\ny' B=2 PATH=/opt/x:$PATH; unset B", LONG)
        state = await shell.state()
    assert state.exports["A"] == "x\ny" and "B" not in state.exports
    assert set(state.exports) == {"A", "PATH"}
    async with opened(tmp_path, state=state) as later:
        ran = await later.run('echo "$A"; case $PATH in /opt/x:*) echo path;; esac', LONG)
        assert (ran.output, ran.cwd) == ("x\ny\npath\n", str(state.cwd))
        assert await later.state() == state


async def test_a_folder_that_is_gone_becomes_the_sessions_own(tmp_path: Path) -> None:
    state = ShellState(cwd=tmp_path / "gone", exports={})
    async with opened(tmp_path, state=state) as shell:
        assert (await shell.run("pwd", LONG)).output == f"{tmp_path}\n"


async def test_without_bash_plain_sh_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "env", "sleep"):
        found = next(Path(p, name) for p in ("/bin", "/usr/bin") if Path(p, name).exists())
        (programs / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(programs))
    async with opened(tmp_path, grace=0.5) as shell:
        await shell.run("cd bin; export A=1", LONG)
        assert (await shell.run("sleep 999; echo next", 0.2)).output == ""
        ran = await shell.run("echo $A; (exit 4)", LONG)
        assert (ran.output, ran.exit_code, ran.cwd) == ("1\n", 4, str(programs))


@given(st.text(), st.lists(st.integers(1, 7)), st.integers(1, 20))
def test_the_tail_is_the_end_of_the_text_however_it_comes(
    text: str, cuts: list[int], limit: int
) -> None:
    text = text.encode("utf-8", "replace").decode()
    data, tail = text.encode(), Tail(limit)
    for cut in cuts:
        tail.add(data[:cut])
        data = data[cut:]
    tail.add(data)
    got = tail.take(whole=True)
    assert got == text[-limit:]
    assert tail.dropped == len(text.encode()) - len(got.encode())


@given(st.text(max_size=10), st.lists(st.integers(1, 3)))
def test_what_is_taken_bit_by_bit_is_the_whole_text(text: str, cuts: list[int]) -> None:
    text = text.encode("utf-8", "replace").decode()
    data, tail, got = text.encode(), Tail(100), ""
    for cut in cuts:
        tail.add(data[:cut])
        data = data[cut:]
        got += tail.take(whole=False)
    tail.add(data)
    assert got + tail.take(whole=True) == text
