"""What a look-up may say: it happened, it did not, or, where its sight ends before, nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import stamina

from connectors.http import Limits, Unsure
from engine.clock import system_now
from engine.errors import ToolError
from engine.store.base import Store
from engine.tools.base import LookUp
from tests.fakes.vendors import github, gmail, jira, linear, notion, slack
from tests.fakes.vendors.desk import Desk, opened
from tests.fakes.vendors.service import Fault, Service

DAY = 86_400.0
VENDORS: dict[str, Callable[[], Service]] = {
    "github": github.Fake,
    "gmail": gmail.Fake,
    "jira": jira.Fake,
    "linear": linear.Fake,
    "notion": notion.Fake,
    "slack": slack.Fake,
}
QUICK = Limits(per_minute=1_000_000)


@pytest.fixture
def at_desk(sqlite_store: Store, tmp_path: Path) -> Any:
    """Opens a session whose owner has connected the vendor."""

    @asynccontextmanager
    async def desk(name: str) -> AsyncIterator[tuple[Desk, Any]]:
        async with (
            VENDORS[name]() as service,
            opened(name, service, sqlite_store, tmp_path, limits=QUICK) as made,
        ):
            await made.connect()
            yield made, service

    return desk


async def _witness(desk: Desk, tool: str, arguments: dict[str, Any]) -> Any:
    found = desk.tool(tool)
    return await found.witness(desk.ctx, found.check(arguments)) if found.witness else None


async def _looked(
    desk: Desk, tool: str, arguments: dict[str, Any], seen: Any, later: float = 0.0
) -> LookUp:
    from dataclasses import replace

    found = desk.tool(tool)
    assert found.look_up is not None
    ctx = replace(desk.ctx, now=lambda: system_now() + later)
    return (await found.look_up(ctx, found.check(arguments), seen)).found


DONE_BEFORE_A_WEEKEND = [
    ("github", "github_comment", {"repo": "acme/app", "number": 1, "body": "Seen."}),
    ("github", "github_create_issue", {"repo": "acme/app", "title": "Slow"}),
    ("jira", "jira_create_issue", {"project": "OPS", "title": "Slow"}),
    ("gmail", "gmail_send", {"to": ["bo@acme.example"], "subject": "Lunch", "body": "?"}),
    ("slack", "slack_send", {"channel": "C0000000001", "text": "Hello"}),
    ("notion", "notion_comment", {"page_id": "page-1", "text": "Good."}),
]


@pytest.mark.parametrize(
    ("name", "tool", "arguments"), DONE_BEFORE_A_WEEKEND, ids=[r[1] for r in DONE_BEFORE_A_WEEKEND]
)
async def test_an_act_is_found_however_long_nod_was_down(
    at_desk: Any, name: str, tool: str, arguments: dict[str, Any]
) -> None:
    async with at_desk(name) as (desk, service):
        seen = await _witness(desk, tool, arguments)
        await desk.call(tool, arguments)
        assert await _looked(desk, tool, arguments, seen, later=3 * DAY) is LookUp.HAPPENED
        if name == "jira":
            (asked,) = [each.query["jql"] for each in service.seen if "jql" in each.query]
            minutes = int(asked.rpartition("created >= -")[2].partition("m")[0])
            assert 3 * 24 * 60 <= minutes <= 3 * 24 * 60 + 5


async def test_a_letter_is_found_behind_many_that_were_sent_since(at_desk: Any) -> None:
    letter = {"to": ["bo@acme.example"], "subject": "Lunch", "body": "At noon?"}
    async with at_desk("gmail") as (desk, service):
        seen = await _witness(desk, "gmail_send", letter)
        await desk.call("gmail_send", letter)
        for n in range(60):
            await desk.call("gmail_send", letter, call=f"c_{n}")
        assert await _looked(desk, "gmail_send", letter, seen) is LookUp.HAPPENED
        for each in service.mail.values():
            each["internalDate"] = "1000"
        assert await _looked(desk, "gmail_send", letter, seen) is LookUp.DID_NOT


async def test_a_comment_is_found_behind_a_hundred_others(at_desk: Any) -> None:
    said = {"page_id": "page-1", "text": "Good."}
    async with at_desk("notion") as (desk, service):
        seen = await _witness(desk, "notion_comment", said)
        await desk.call("notion_comment", said)
        other = {**service.comments[0], "rich_text": [{"plain_text": "Other"}]}
        service.comments[:0] = [other] * 150
        assert await _looked(desk, "notion_comment", said, seen) is LookUp.HAPPENED


async def test_where_a_look_up_does_not_reach_the_end_it_cannot_tell(at_desk: Any) -> None:
    added = {"page_id": "page-1", "text": "More."}
    async with at_desk("notion") as (desk, service):
        service.blocks["page-1"] *= 600
        assert await _looked(desk, "notion_add_text", added, 0.0) is LookUp.CANNOT_TELL


async def test_a_busy_channel_leaves_it_open(at_desk: Any) -> None:
    sent = {"channel": "C0000000001", "text": "Hello"}
    async with at_desk("slack") as (desk, service):
        service.messages *= 1_100
        assert await _looked(desk, "slack_send", sent, 1_000.0) is LookUp.CANNOT_TELL


async def test_what_somebody_else_changed_meanwhile_is_not_written_over(at_desk: Any) -> None:
    file = {"repo": "acme/app", "path": "src/a b.py", "text": "x = 1\n", "message": "m"}
    file["branch"] = "main"
    async with at_desk("github") as (desk, service):
        seen = await _witness(desk, "github_write_file", file)
        assert await _looked(desk, "github_write_file", file, seen) is LookUp.DID_NOT
        service.files["src/a b.py"] = b"somebody else's\n"
        assert await _looked(desk, "github_write_file", file, seen) is LookUp.CANNOT_TELL
        service.files["src/a b.py"] = b"x = 1\n"
        assert await _looked(desk, "github_write_file", file, seen) is LookUp.HAPPENED


async def test_an_issue_that_somebody_moved_elsewhere_is_not_moved_again(at_desk: Any) -> None:
    moved = {"issue": "OPS-1", "status": "Done"}
    async with at_desk("jira") as (desk, service):
        seen = await _witness(desk, "jira_move", moved)
        assert await _looked(desk, "jira_move", moved, seen) is LookUp.DID_NOT
        service.issues["OPS-1"]["fields"]["status"] = {"name": "Won't do"}
        assert await _looked(desk, "jira_move", moved, seen) is LookUp.CANNOT_TELL


CHANGES = [
    ("github", "github_update_issue", {"repo": "acme/app", "number": 1, "state": "closed"}),
    ("jira", "jira_update_issue", {"issue": "OPS-1", "description": "One.\n\nTwo."}),
    ("linear", "linear_update_issue", {"issue": "ENG-1", "state": "done"}),
]


def _touched(service: Any, name: str) -> None:
    """Have somebody else change the thing."""
    if name == "github":
        service.issues[1] |= {"title": "Other", "updated_at": "2026-03-09T08:00:00Z"}
    elif name == "jira":
        service.issues["OPS-1"]["fields"] |= {"summary": "Other", "updated": "2026-03-09"}
    else:
        service.rows["ENG-1"] |= {"title": "Other", "updatedAt": "2026-03-09T08:00:00Z"}


@pytest.mark.parametrize(("name", "tool", "arguments"), CHANGES, ids=[r[1] for r in CHANGES])
async def test_a_change_is_not_made_over_what_somebody_did_since(
    at_desk: Any, name: str, tool: str, arguments: dict[str, Any]
) -> None:
    """Nod was down for a weekend; meanwhile the issue was opened again."""
    async with at_desk(name) as (desk, service):
        seen = await _witness(desk, tool, arguments)
        assert await _looked(desk, tool, arguments, seen) is LookUp.DID_NOT
        _touched(service, name)
        assert await _looked(desk, tool, arguments, seen) is LookUp.CANNOT_TELL
        await desk.call(tool, arguments)
        assert await _looked(desk, tool, arguments, seen) is LookUp.HAPPENED


async def test_a_look_up_that_is_answered_with_nonsense_is_an_error(at_desk: Any) -> None:
    said = {"issue": "OPS-1", "body": "Seen."}
    async with at_desk("jira") as (desk, service):
        service.fail(Fault(status=200, body={"comments": [7]}))
        with pytest.raises(ToolError, match="not understood"):
            await _looked(desk, "jira_comment", said, 0.0)


# -- a service that broke on the way, by its own means

BROKE = [
    ("slack", {"ok": False, "error": "internal_error"}, DONE_BEFORE_A_WEEKEND[4]),
    ("slack", {"ok": False, "error": "fatal_error"}, DONE_BEFORE_A_WEEKEND[4]),
    (
        "linear",
        {"errors": [{"message": "oh", "extensions": {"code": "INTERNAL_SERVER_ERROR"}}]},
        ("linear", "linear_comment", {"issue": "ENG-1", "body": "Seen."}),
    ),
]


@pytest.mark.parametrize(("name", "body", "act"), BROKE, ids=["internal", "fatal", "graphql"])
async def test_a_service_that_says_it_broke_may_have_done_the_act(
    at_desk: Any, name: str, body: Any, act: tuple[str, str, dict[str, Any]]
) -> None:
    async with at_desk(name) as (desk, service):
        holding = "mutation" if name == "linear" else ""
        service.fail(Fault(status=200, body=body, method="POST", holding=holding))
        with pytest.raises(Unsure):
            await desk.call(act[1], act[2])


# -- pages


@pytest.fixture
def at_once() -> Any:
    """Nothing is waited for between two tries."""
    stamina.set_testing(True, attempts=1, cap=True)
    yield
    stamina.set_testing(False)


def _empty(cursor: str) -> Fault:
    body = {"ok": True, "members": [], "response_metadata": {"next_cursor": cursor}}
    return Fault(status=200, body=body)


async def test_a_page_with_nothing_on_it_is_not_the_end(at_desk: Any) -> None:
    """Slack and Google leave out what they do not show after they have cut the page."""
    async with at_desk("slack") as (desk, service):
        service.fail(_empty("200"), _empty("400"))
        assert "Bo 402" in (await desk.call("slack_people", {"limit": 1})).text


async def test_pages_without_end_and_without_anything_are_given_up(
    at_desk: Any, at_once: Any
) -> None:
    async with at_desk("slack") as (desk, service):
        service.fail(*[_empty("200")] * 150)
        with pytest.raises(ToolError, match="nothing on it"):
            await desk.call("slack_people", {})


async def test_a_page_shorter_than_asked_for_leaves_nothing_out(at_desk: Any) -> None:
    async with at_desk("jira") as (desk, service):
        said = service.comments["OPS-1"][0]
        service.comments["OPS-1"] = [{**said, "id": str(n)} for n in range(5)]
        service.fail(
            Fault(),
            Fault(status=200, body={"comments": service.comments["OPS-1"][:2], "total": 5}),
        )
        assert (await desk.call("jira_read", {"issue": "OPS-1"})).text.count("Here, too") == 5


async def test_a_page_is_read_with_what_lies_within_its_blocks(at_desk: Any) -> None:
    async with at_desk("notion") as (desk, service):
        toggle = {**service.blocks["page-1"][1], "id": "t-1", "has_children": True}
        inner = {**service.blocks["page-1"][1]}
        service.blocks["page-1"].append(toggle)
        service.blocks["t-1"] = [inner]
        text = (await desk.call("notion_read", {"page_id": "page-1"})).text
        assert "\\n  Step one" in text
        service.blocks["page-1"] += [toggle] * 80
        assert "goes on" in (await desk.call("notion_read", {"page_id": "page-1"})).text


async def test_a_next_page_on_another_host_gets_no_credentials(at_desk: Any) -> None:
    async with at_desk("github") as (desk, service):
        elsewhere = {"Link": '<https://evil.example/issues?page=2>; rel="next"'}
        service.fail(Fault(status=200, body=[service.issues[1]], headers=elsewhere))
        with pytest.raises(ToolError, match="another host"):
            await desk.call("github_list_issues", {"repo": "acme/app"})
