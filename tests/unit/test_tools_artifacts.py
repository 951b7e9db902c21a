"""Results over their budget: cut on borders, kept whole, read back page by page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.artifacts import artifact_add, artifact_get, budget, measure
from engine.canonical import digest
from engine.errors import ToolError
from engine.store.base import Store
from engine.tools.artifacts import read_artifact
from engine.tools.base import Artifact
from tests.fakes.context import NOW, make_context


async def test_a_result_within_its_budget_is_sent_whole(tmp_path: Path) -> None:
    assert await budget("x" * 100, 100, tmp_path, "t") == ("x" * 100, None)


async def test_a_long_result_is_cut_between_lines_and_kept_whole(tmp_path: Path) -> None:
    text = "".join(f"line {n}\n" for n in range(10_000))
    shown, artifact = await budget(text, 2_000, tmp_path, "search")
    assert artifact is not None
    assert len(shown) <= 2_000
    *_, first_cut = shown.split("\n[… ")[0].split("\n")
    assert first_cut in text.split("\n")
    assert shown.endswith("line 9999\n")
    assert artifact.id in shown
    assert (artifact.kind, artifact.path.read_text()) == ("spill", text)
    assert artifact.path.is_relative_to(tmp_path)


async def test_json_is_cut_between_values(tmp_path: Path) -> None:
    value = [{"name": f"n{n}", "text": "ä" * 30} for n in range(1_000)]
    shown, artifact = await budget(json.dumps(value), 3_000, tmp_path, "rows")
    assert artifact is not None
    head, tail = shown.split("\n[… ")
    for line in (*head.split("\n")[1:], *tail.split("]\n", 1)[1].split("\n")[1:]):
        assert line.strip() in ("{", "}", "},", "]") or line.strip().startswith('"')
    assert json.loads(artifact.path.read_text()) == value
    assert artifact.media_type == "application/json"


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50
)
@given(st.text(min_size=1), st.integers(1, 2_000))
async def test_what_is_sent_never_exceeds_the_limit(tmp_path: Path, text: str, limit: int) -> None:
    shown, _ = await budget(text * 300, limit, tmp_path, "t")
    assert len(shown) <= limit


async def test_the_handle_reads_on_exactly_where_the_preview_stops(tmp_path: Path) -> None:
    text = "".join(f"{n}: größer\r\n" for n in range(20_000))
    shown, artifact = await budget(text, 5_000, tmp_path, "t")
    assert artifact is not None
    ctx = make_context(tmp_path, artifacts={artifact.id: artifact.path})
    start = int(shown.split(f"read_artifact('{artifact.id}', ")[1].split(")")[0])
    whole = text[:start]
    while True:
        page = (await read_artifact.run(ctx, id=artifact.id, start=start)).text
        body, mark, rest = page.rpartition("\n[goes on: read_artifact")
        whole += body if mark else page
        if not mark:
            break
        start = int(rest.split(", ")[1].rstrip(")]"))
    assert whole == text


async def test_reading_past_the_end_and_an_unknown_id_are_said(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("abc")
    ctx = make_context(tmp_path, artifacts={"art_1": tmp_path / "f"})
    assert (await read_artifact.run(ctx, id="art_1", start=9)).text.endswith("ends at character 3]")
    with pytest.raises(ToolError, match="no artifact 'art_2'"):
        await read_artifact.run(ctx, id="art_2")
    (tmp_path / "f").unlink()
    with pytest.raises(ToolError, match="Artifact art_1 does not exist"):
        await read_artifact.run(ctx, id="art_1")


async def test_an_artifact_is_stored_once_and_found_by_its_id(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "sessions/s1/files/a.md"
    file.parent.mkdir(parents=True)
    file.write_text("text")
    measured = await measure(Artifact(path=file, name="a.md", media_type="text/markdown"), tmp_path)
    named: dict[str, Any] = {
        "tenant": "t", "session": "s1", "call": "c1", "taint": ["web:example.org"], "now": NOW,
    }  # fmt: skip
    id = await store.write(lambda tx: artifact_add(tx, measured, **named))
    assert await store.write(lambda tx: artifact_add(tx, measured, **named)) == id
    row = await store.read(lambda tx: artifact_get(tx, id))
    assert (row.session, row.call, row.kind, row.name) == ("s1", "c1", "file", "a.md")
    assert (row.path, row.bytes, row.digest) == ("sessions/s1/files/a.md", 4, digest("text"))
    assert (row.taint, row.created_at) == (("web:example.org",), NOW)
    with pytest.raises(ToolError, match="no artifact 'x'"):
        await store.read(lambda tx: artifact_get(tx, "x"))
