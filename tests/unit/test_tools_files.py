"""Reading, listing, writing, editing and patching real files, inside the session's folders only."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from engine.canonical import digest
from engine.errors import ToolError
from engine.tools.base import LookUp, Result, Root, Tool, ToolContext
from engine.tools.files import apply_patch, edit_file, list_files, read_file, write_file
from tests.fakes.context import make_context


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    return make_context(tmp_path)


async def call(tool: Tool, ctx: ToolContext, **arguments: Any) -> Result:
    return await tool.run(ctx, **tool.check(arguments))


def envelope(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


# -- reading


async def test_lines_are_numbered_and_pages_say_where_they_go_on(ctx: ToolContext) -> None:
    (ctx.cwd / "a").write_text("\n".join(f"line {n}" for n in range(1, 11)))
    page = (await call(read_file, ctx, path="a", start=3, lines=2)).text
    assert page == "     3\tline 3\n     4\tline 4\n[a goes on: start=5]"
    assert (await call(read_file, ctx, path="a", start=9)).text == "     9\tline 9\n    10\tline 10"
    assert (await call(read_file, ctx, path="a", start=99)).text == "[a ends at line 10]"


async def test_a_page_stays_within_its_budget_and_the_pages_hold_every_line(
    ctx: ToolContext,
) -> None:
    (ctx.cwd / "a").write_text("".join(f"{n} {'x' * 400}\n" for n in range(500)))
    start, seen = 1, 0
    while True:
        text = (await call(read_file, ctx, path="a", start=start)).text
        assert len(text) <= read_file.result_budget
        *lines, last = text.split("\n")
        seen += len(lines) + (not last.startswith("["))
        if not last.startswith("["):
            break
        start = int(last.rpartition("=")[2].rstrip("]"))
    assert seen == 500


async def test_a_long_line_is_cut_at_500_characters_and_said(ctx: ToolContext) -> None:
    (ctx.cwd / "a").write_bytes(b"x" * 3_000_000 + b"\nend\n")
    first, second = (await call(read_file, ctx, path="a")).text.split("\n")
    assert first == f"     1\t{'x' * 500} … (3,000,001 bytes in this line)"
    assert second == "     2\tend"


async def test_undecodable_bytes_are_replaced(ctx: ToolContext) -> None:
    (ctx.cwd / "a").write_bytes(b"caf\xe9\n")
    assert (await call(read_file, ctx, path="a")).text == "     1\tcaf�"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(b"%PDF-1.7\n", "is a PDF of 9 bytes", id="pdf"),
        pytest.param(b"\x89PNG\r\n", "is a PNG image", id="png"),
        pytest.param(b"\xff\xd8\xff\xe0", "is a JPEG image", id="jpeg"),
        pytest.param(b"a\0b", "is no text file", id="binary"),
    ],
)
async def test_what_is_no_text_is_told_kindly(ctx: ToolContext, data: bytes, said: str) -> None:
    (ctx.cwd / "f").write_bytes(data)
    with pytest.raises(ToolError, match=said):
        await call(read_file, ctx, path="f")


async def test_a_named_pipe_is_refused_and_not_waited_for(ctx: ToolContext) -> None:
    os.mkfifo(ctx.cwd / "pipe")
    with pytest.raises(ToolError, match="pipe is no regular file"):
        await call(read_file, ctx, path="pipe")


async def test_a_missing_file_and_a_folder_are_named(ctx: ToolContext) -> None:
    with pytest.raises(ToolError, match=r"gone\.txt does not exist"):
        await call(read_file, ctx, path="gone.txt")
    with pytest.raises(ToolError, match="is a folder"):
        await call(read_file, ctx, path=".")


async def test_a_listing_leaves_out_caches_and_does_not_follow_links(
    ctx: ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").touch()
    for folder in ("b/deep", ".git", "node_modules"):
        (ctx.cwd / folder).mkdir(parents=True)
    (ctx.cwd / "a.txt").write_text("abc")
    (ctx.cwd / "b/c.txt").write_text("")
    (ctx.cwd / "link").symlink_to(tmp_path / "outside")
    flat = (await call(list_files, ctx)).text.split("\n")
    assert flat == ["a.txt  3", "b/", f"link -> {tmp_path / 'outside'}"]
    deep = (await call(list_files, ctx, recursive=True)).text.split("\n")
    assert deep == ["a.txt  3", f"link -> {tmp_path / 'outside'}", "b/", "b/c.txt  0", "b/deep/"]


async def test_a_listing_is_cut_at_its_limit(ctx: ToolContext) -> None:
    for n in range(30):
        (ctx.cwd / f"f{n:02}").touch()
    lines = (await call(list_files, ctx, limit=10)).text.split("\n")
    assert len(lines) == 11
    assert lines[-1].startswith("[more than 10")


# -- writing


async def test_writing_makes_folders_and_keeps_mode_bits(ctx: ToolContext) -> None:
    made = await call(write_file, ctx, path="x/y/run.sh", content="one\n")
    assert made.text == "Created x/y/run.sh (+1 −0 lines)."
    file = ctx.cwd / "x/y/run.sh"
    file.chmod(0o750)
    await call(write_file, ctx, path="x/y/run.sh", content="two\n")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("two\n", 0o750)
    assert [p.name for p in file.parent.iterdir()] == ["run.sh"]


async def test_an_edit_wants_the_exact_text_the_exact_number_of_times(ctx: ToolContext) -> None:
    file = ctx.cwd / "a"
    file.write_text("x = 1\ny = 1\n")
    with pytest.raises(ToolError, match="in a 2 times, not 1"):
        await call(edit_file, ctx, path="a", old="= 1", new="= 2")
    with pytest.raises(ToolError, match="in a 0 times"):
        await call(edit_file, ctx, path="a", old="x=1", new="x=2")
    assert file.read_text() == "x = 1\ny = 1\n"
    await call(edit_file, ctx, path="a", old="= 1", new="= 2", count=2)
    assert file.read_text() == "x = 2\ny = 2\n"


async def test_an_edit_keeps_bytes_and_line_ends_it_does_not_touch(ctx: ToolContext) -> None:
    (ctx.cwd / "a").write_bytes(b"caf\xe9\r\none\r\ntwo\r\n")
    await call(edit_file, ctx, path="a", old="one\ntwo\n", new="1\n2\n")
    assert (ctx.cwd / "a").read_bytes() == b"caf\xe9\r\n1\r\n2\r\n"


async def test_a_patch_adds_updates_moves_and_deletes(ctx: ToolContext) -> None:
    for name in ("old.py", "gone.py", "moved.py"):
        (ctx.cwd / name).write_text("a\nb\n")
    (ctx.cwd / "moved.py").chmod(0o755)
    text = envelope(
        "*** Add File: new/n.py", "+hello",
        "*** Update File: old.py", " a", "-b", "+c",
        "*** Update File: moved.py", "*** Move to: lib/m.py", "@@", "-a", "+z",
        "*** Delete File: gone.py",
    )  # fmt: skip
    result = await call(apply_patch, ctx, patch=text)
    found = {p.relative_to(ctx.cwd).as_posix(): p.read_text() for p in ctx.cwd.rglob("*.py")}
    assert found == {"new/n.py": "hello\n", "old.py": "a\nc\n", "lib/m.py": "z\nb\n"}
    assert stat.S_IMODE((ctx.cwd / "lib/m.py").stat().st_mode) == 0o755
    assert len(result.undo) == 5


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        pytest.param(["*** Add File: a", "+x"], "a exists already", id="add-existing"),
        pytest.param(["*** Delete File: b"], "b does not exist", id="delete-missing"),
        pytest.param(
            ["*** Delete File: a", "*** Update File: ./a", "-x", "+y"], "twice", id="same-file"
        ),
    ],
)
async def test_a_patch_that_does_not_fit_changes_nothing(
    ctx: ToolContext, lines: list[str], said: str
) -> None:
    (ctx.cwd / "a").write_text("x\n")
    with pytest.raises(ToolError, match=said):
        await call(apply_patch, ctx, patch=envelope("*** Add File: first", "+1", *lines))
    assert [p.name for p in ctx.cwd.iterdir()] == ["a"]


def test_a_patch_declares_every_path_it_names() -> None:
    text = envelope("*** Add File: a", "+", "*** Update File: b", "*** Move to: /etc/x", "-q")
    assert apply_patch.find_paths is not None
    found = apply_patch.find_paths({"patch": text})
    assert list(found) == [("a", "write"), ("b", "write"), ("/etc/x", "write")]


# -- the fence


@pytest.fixture
def outside(ctx: ToolContext, tmp_path: Path) -> Path:
    """A file outside the roots, and links to it and its folder inside."""
    secret = tmp_path / "outside/secret.txt"
    secret.parent.mkdir()
    secret.write_text("secret")
    (ctx.cwd / "link.txt").symlink_to(secret)
    (ctx.cwd / "folder").symlink_to(secret.parent)
    (ctx.cwd / "dangling").symlink_to(tmp_path / "outside/new.txt")
    return secret


OUTSIDE = [
    pytest.param("link.txt", id="X-10-link"),
    pytest.param("folder/secret.txt", id="X-10-through-a-folder"),
    pytest.param("dangling", id="X-10-dangling"),
    pytest.param("../outside/secret.txt", id="dots"),
    pytest.param("/etc/hosts", id="absolute"),
]


@pytest.mark.parametrize("path", OUTSIDE)
async def test_nothing_outside_is_read_or_written(
    ctx: ToolContext, outside: Path, path: str
) -> None:
    attempts: list[tuple[Tool, dict[str, Any]]] = [
        (read_file, {"path": path}),
        (write_file, {"path": path, "content": "x"}),
        (edit_file, {"path": path, "old": "secret", "new": "x"}),
        (apply_patch, {"patch": envelope(f"*** Delete File: {path}")}),
    ]
    for tool, arguments in attempts:
        with pytest.raises(ToolError, match=r"not in a (writable )?directory"):
            await call(tool, ctx, **arguments)
    assert outside.read_text() == "secret"
    assert [p.name for p in outside.parent.iterdir()] == ["secret.txt"]


async def test_a_read_only_folder_is_read_and_not_written(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a").write_text("x")
    ctx = make_context(tmp_path, roots=(Root(path=other),))
    assert (await call(read_file, ctx, path=str(other / "a"))).text.endswith("x")
    with pytest.raises(ToolError, match="writable"):
        await call(write_file, ctx, path=str(other / "a"), content="y")


async def test_a_link_inside_the_folder_is_written_through_and_stays_a_link(
    ctx: ToolContext,
) -> None:
    (ctx.cwd / "real").write_text("1")
    (ctx.cwd / "link").symlink_to("real")
    await call(write_file, ctx, path="link", content="2")
    assert (ctx.cwd / "link").is_symlink()
    assert (ctx.cwd / "real").read_text() == "2"


async def test_a_patch_does_not_remove_what_a_link_leads_to(ctx: ToolContext) -> None:
    (ctx.cwd / "real").write_text("1\n")
    (ctx.cwd / "link").symlink_to("real")
    for lines in (
        ["*** Delete File: link"],
        ["*** Update File: link", "*** Move to: moved"],
    ):
        with pytest.raises(ToolError, match="link is a link"):
            await call(apply_patch, ctx, patch=envelope(*lines))
    assert (ctx.cwd / "real").read_text() == "1\n"


@pytest.mark.parametrize("path", ["sub/secret.txt", "sub/deep/secret.txt"])
async def test_a_link_put_in_place_after_the_check_is_not_followed(
    tmp_path: Path, path: str
) -> None:
    def swap() -> None:
        (tmp_path / "files/sub").rename(tmp_path / "files/was")
        (tmp_path / "files/sub").symlink_to(tmp_path / "outside")

    ctx = make_context(tmp_path, before_act=swap)
    for folder in ("files/sub/deep", "outside/deep"):
        (tmp_path / folder).mkdir(parents=True)
    secrets = [tmp_path / "outside/secret.txt", tmp_path / "outside/deep/secret.txt"]
    for secret in secrets:
        secret.write_text("secret")
        # What was staged is there, too, so that only the link can make the switch fail.
        (secret.parent / ".nod-c_test-0.new").write_text("overwritten")
    with pytest.raises(ToolError):
        await call(write_file, ctx, path=path, content="overwritten")
    assert [secret.read_text() for secret in secrets] == ["secret", "secret"]


# -- preview, witness, look-up

WRITES = [
    pytest.param(write_file, {"path": "a", "content": "two\n"}, id="write"),
    pytest.param(edit_file, {"path": "a", "old": "one", "new": "two"}, id="edit"),
    pytest.param(
        apply_patch, {"patch": envelope("*** Update File: a", "-one", "+two")}, id="patch"
    ),
]


@pytest.mark.parametrize(("tool", "arguments"), WRITES)
async def test_the_preview_is_the_whole_diff_and_changes_nothing(
    ctx: ToolContext, tool: Tool, arguments: dict[str, Any]
) -> None:
    (ctx.cwd / "a").write_text("one\n")
    assert tool.preview is not None
    shown = await tool.preview(ctx, tool.check(arguments))
    assert shown == "--- a\n+++ a\n@@ -1 +1 @@\n-one\n+two\n"
    assert (ctx.cwd / "a").read_text() == "one\n"


async def test_the_preview_of_a_long_new_file_shows_every_line(ctx: ToolContext) -> None:
    content = "".join(f"{n}\n" for n in range(5_000))
    assert write_file.preview is not None
    shown = await write_file.preview(ctx, {"path": "a", "content": content})
    assert shown.count("\n+") == 5_001


async def test_the_diff_of_two_large_files_does_not_take_long(ctx: ToolContext) -> None:
    (ctx.cwd / "a").write_text("".join(f"old {n}\n" for n in range(20_000)))
    content = "".join(f"new {n}\n" for n in range(20_000))
    assert write_file.preview is not None
    shown = await write_file.preview(ctx, {"path": "a", "content": content})
    assert shown.count("\n+new") == shown.count("\n-old") == 20_000


@pytest.mark.parametrize(("tool", "arguments"), WRITES)
async def test_a_look_up_tells_what_happened(
    ctx: ToolContext, tool: Tool, arguments: dict[str, Any]
) -> None:
    (ctx.cwd / "a").write_text("one\n")
    checked = tool.check(arguments)
    assert tool.witness is not None
    assert tool.look_up is not None
    seen = await tool.witness(ctx, checked)
    assert (await tool.look_up(ctx, checked, seen)).found is LookUp.DID_NOT

    run = await tool.run(ctx, **checked)
    outcome = await tool.look_up(ctx, checked, seen)
    assert outcome.found is LookUp.HAPPENED
    assert outcome.result is not None
    assert outcome.result.undo == run.undo
    assert outcome.result.artifacts == run.artifacts

    (ctx.cwd / "a").write_text("someone else\n")
    assert (await tool.look_up(ctx, checked, seen)).found is LookUp.CANNOT_TELL
    assert (await tool.look_up(ctx, checked, None)).found is LookUp.CANNOT_TELL


async def test_a_half_done_patch_cannot_be_told(ctx: ToolContext) -> None:
    for name in ("a", "b"):
        (ctx.cwd / name).write_text("one\n")
    arguments = {
        "patch": envelope("*** Update File: a", "-one", "+two", "*** Delete File: b"),
    }
    assert apply_patch.witness is not None
    assert apply_patch.look_up is not None
    seen = await apply_patch.witness(ctx, arguments)
    (ctx.cwd / "a").write_text("two\n")
    assert (await apply_patch.look_up(ctx, arguments, seen)).found is LookUp.CANNOT_TELL


async def test_the_undo_entry_holds_hashes_and_the_kept_content(ctx: ToolContext) -> None:
    (ctx.cwd / "a").write_text("one\n")
    result = await call(write_file, ctx, path="a", content="two\n")
    (entry,) = result.undo
    assert entry["path"] == str(ctx.cwd / "a")
    assert (entry["before"], entry["after"]) == (digest("one\n"), digest("two\n"))
    assert Path(entry["kept"]).read_text() == "one\n"
    assert [each.kind for each in result.artifacts] == ["preimage"]
    assert Path(entry["kept"]).is_relative_to(ctx.keep)
