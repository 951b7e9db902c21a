"""Slack as a tool beyond the common suite: files, reactions, channels by id."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.errors import ToolError
from engine.store.base import Store
from tests.fakes.vendors import slack
from tests.fakes.vendors.desk import Desk, opened

C = {"channel": "C0000000001"}


@pytest.fixture
async def desk(sqlite_store: Store, tmp_path: Path) -> AsyncIterator[Desk]:
    """A session of somebody who has connected Slack."""
    async with (
        slack.Fake() as service,
        opened("slack", service, sqlite_store, tmp_path) as made,
    ):
        await made.connect()
        yield made


async def test_a_file_is_uploaded_without_the_token_and_then_shared(desk: Desk) -> None:
    (desk.ctx.cwd / "plan.txt").write_text("the plan")
    await desk.call("slack_share_file", {**C, "path": "plan.txt", "comment": "Here"})
    assert isinstance(desk.service, slack.Fake)
    assert desk.service.uploads == {"F1": b"the plan"}
    assert desk.service.acts[0]["initial_comment"] == "Here"


async def test_a_preview_of_a_file_uploads_nothing(desk: Desk) -> None:
    (desk.ctx.cwd / "plan.txt").write_text("the plan")
    tool = desk.tool("slack_share_file")
    assert tool.preview is not None
    shown = await tool.preview(desk.ctx, tool.check({**C, "path": "plan.txt"}))
    assert isinstance(desk.service, slack.Fake)
    assert desk.service.uploads == {}
    assert "plan.txt" in shown


async def test_a_file_outside_the_session_is_not_shared(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("not yours")
    with pytest.raises(ToolError):
        await desk.call("slack_share_file", {**C, "path": str(tmp_path / "other.txt")})
    assert desk.service.acts == []


async def test_reacting_twice_is_no_error(desk: Desk) -> None:
    mark = {**C, "ts": "1700000000.000100", "emoji": "eyes"}
    await desk.call("slack_react", mark)
    again = await desk.call("slack_react", mark)
    assert again.ok and len(desk.service.acts) == 1


@pytest.mark.parametrize("name", ["#alerts", "alerts", "C1/../x", ""], ids=str)
async def test_a_channel_is_named_by_its_id(desk: Desk, name: str) -> None:
    with pytest.raises(ToolError):
        await desk.call("slack_send", {"channel": name, "text": "Hello"})
    assert desk.service.acts == []


async def test_links_are_not_looked_into(desk: Desk) -> None:
    await desk.call("slack_send", {**C, "text": "https://evil.example/?q=secret"})
    assert desk.service.acts[0]["unfurl_links"] is False
    assert desk.service.acts[0]["unfurl_media"] is False


async def test_a_file_that_somebody_shared_is_saved(desk: Desk) -> None:
    await desk.call("slack_save_file", {"file_id": "F2", "path": "plan.txt"})
    assert (desk.ctx.cwd / "plan.txt").read_bytes() == b"the plan"


async def test_the_token_goes_to_slack_and_nobody_else(desk: Desk) -> None:
    with pytest.raises(ToolError, match="not kept by Slack"):
        await desk.call("slack_save_file", {"file_id": "F3", "path": "plan.txt"})
    assert not (desk.ctx.cwd / "plan.txt").exists()


@pytest.mark.parametrize(
    ("tool", "arguments", "shown"),
    [
        ("slack_send", {"text": "Hi all", "thread": "17.1"}, "To #alerts (C0000000001), in the"),
        ("slack_react", {"ts": "17.1", "emoji": ":eyes:"}, ":eyes: on the message 17.1 in #alerts"),
        ("slack_share_file", {"path": "plan.txt"}, "plan.txt, to #alerts (C0000000001)"),
        ("slack_send", {"text": "Hi", "channel": "D0000000009"}, "To D0000000009:"),
    ],
    ids=["send", "react", "file", "direct"],
)
async def test_a_card_names_the_channel_as_people_do(
    desk: Desk, tool: str, arguments: dict[str, str], shown: str
) -> None:
    found = desk.tool(tool)
    assert found.preview is not None
    assert shown in await found.preview(desk.ctx, found.check({**C, **arguments}))
