"""Texts as services take them: long ones arrive whole and in order, and none destroys another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.errors import ToolError
from engine.store.base import Store
from tests.fakes.vendors import jira, notion
from tests.fakes.vendors.desk import opened

#: One paragraph over Notion's limit of a piece, in signs that show their order.
LONG = "".join(f"{n:04} " for n in range(675))
TEXT = {"type": "text", "text": "Read this."}


async def test_a_long_paragraph_arrives_whole_and_in_order(
    sqlite_store: Store, tmp_path: Path
) -> None:
    """R-08."""
    async with notion.Fake() as service, opened("notion", service, sqlite_store, tmp_path) as desk:
        await desk.connect()
        await desk.call("notion_add_text", {"page_id": "page-1", "text": f"{LONG}\n\nThe end."})
        read = await desk.call("notion_read", {"page_id": "page-1"})
    assert f"Step one\\n{LONG}\\nThe end." in read.text


async def test_more_paragraphs_than_one_request_takes_are_refused_before_any_is_written(
    sqlite_store: Store, tmp_path: Path
) -> None:
    """R-08: of a text in two requests, half could be left."""
    text = "\n\n".join(f"Paragraph {n}" for n in range(191))
    async with notion.Fake() as service, opened("notion", service, sqlite_store, tmp_path) as desk:
        await desk.connect()
        with pytest.raises(ToolError, match="191 paragraphs, 100 are the limit"):
            await desk.call("notion_add_text", {"page_id": "page-1", "text": text})
        assert service.acts == []


@pytest.mark.parametrize(
    ("node", "lost"),
    [
        pytest.param({"type": "panel", "content": [TEXT]}, "panel", id="panel"),
        pytest.param({"type": "mediaSingle", "content": [{"type": "media"}]}, "media", id="file"),
        pytest.param(
            {"type": "paragraph", "content": [{"type": "mention"}]}, "mention", id="mention"
        ),
        pytest.param({"type": "paragraph", "content": [TEXT]}, "", id="words"),
        pytest.param(
            {"type": "bulletList", "content": [{"type": "listItem", "content": [TEXT]}]},
            "",
            id="list",
        ),
    ],
)
async def test_what_plain_text_cannot_hold_is_not_replaced_by_it(
    sqlite_store: Store, tmp_path: Path, node: dict[str, Any], lost: str
) -> None:
    """R-09."""
    changed = {"issue": "OPS-1", "description": "Read that."}
    async with jira.Fake() as service, opened("jira", service, sqlite_store, tmp_path) as desk:
        await desk.connect()
        held = {"type": "doc", "version": 1, "content": [node]}
        service.issues["OPS-1"]["fields"]["description"] = held
        if lost:
            with pytest.raises(ToolError, match=f"would remove: .*{lost}"):
                await desk.call("jira_update_issue", changed)
        else:
            await desk.call("jira_update_issue", changed)
        assert (service.issues["OPS-1"]["fields"]["description"] == held) is bool(lost)
        assert service.acts == ([] if lost else ["OPS-1"])
