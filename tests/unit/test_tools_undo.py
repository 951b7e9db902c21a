"""Undo puts back exactly what the tools changed, and nothing that changed since."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from engine.tools.files import apply_patch, edit_file, write_file
from engine.tools.undo import restore
from tests.fakes.context import make_context


def found(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in folder.iterdir() if p.is_file()}


async def test_a_turn_of_edits_is_taken_back_newest_first(tmp_path: Path) -> None:
    ctx = make_context(tmp_path)
    (ctx.cwd / "a").write_text("one\n")
    (ctx.cwd / "gone").write_text("here\n")
    (ctx.cwd / "gone").chmod(0o700)
    before = found(ctx.cwd)
    patch = "*** Begin Patch\n*** Delete File: gone\n*** Add File: new\n+n\n*** End Patch"
    entries: list[Any] = [
        *(await write_file.run(ctx, path="a", content="two\n")).undo,
        *(await edit_file.run(ctx, path="a", old="two", new="three", count=1)).undo,
        *(await apply_patch.run(ctx, patch=patch)).undo,
    ]
    restored, skipped = await restore(entries)
    assert found(ctx.cwd) == before
    assert stat.S_IMODE((ctx.cwd / "gone").stat().st_mode) == 0o700
    assert sorted(Path(path).name for path in restored) == ["a", "gone", "new"]
    assert skipped == []


async def test_a_file_changed_since_is_left_alone_and_listed(tmp_path: Path) -> None:
    ctx = make_context(tmp_path)
    (ctx.cwd / "a").write_text("one\n")
    entries = [
        *(await write_file.run(ctx, path="a", content="two\n")).undo,
        *(await write_file.run(ctx, path="b", content="b\n")).undo,
        *(await write_file.run(ctx, path="a", content="three\n")).undo,
    ]
    (ctx.cwd / "a").write_text("mine\n")
    restored, skipped = await restore(entries)
    assert found(ctx.cwd) == {"a": "mine\n"}
    assert restored == [str(ctx.cwd / "b")]
    assert skipped == [(str(ctx.cwd / "a"), "a was changed since.")]


async def test_lost_or_damaged_old_content_is_never_put_back(tmp_path: Path) -> None:
    ctx = make_context(tmp_path)
    (ctx.cwd / "a").write_text("one\n")
    (entry,) = (await write_file.run(ctx, path="a", content="two\n")).undo
    Path(entry["kept"]).write_text("forged")
    assert (await restore([entry]))[1] == [(entry["path"], "Its kept old content is damaged.")]
    Path(entry["kept"]).unlink()
    assert (await restore([entry]))[1] == [(entry["path"], "Its old content is no longer kept.")]
    assert found(ctx.cwd) == {"a": "two\n"}


async def test_undo_does_not_follow_a_link_put_in_place_since(tmp_path: Path) -> None:
    ctx = make_context(tmp_path)
    entries = (await write_file.run(ctx, path="sub/a", content="two\n")).undo
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/a").write_text("two\n")
    (ctx.cwd / "sub").rename(ctx.cwd / "was")
    (ctx.cwd / "sub").symlink_to(tmp_path / "outside")
    restored, skipped = await restore(entries)
    assert (restored, len(skipped)) == ([], 1)
    assert (tmp_path / "outside/a").exists()
