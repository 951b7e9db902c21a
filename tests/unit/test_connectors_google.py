"""Google's services beyond the common suite: what is never shown or saved, whose day it is."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from connectors.http import ServiceRefused
from engine.errors import ToolError
from engine.store.base import Store
from engine.tools.base import LookUp
from tests.fakes.vendors import gmail, google_calendar, google_drive
from tests.fakes.vendors.desk import Desk, opened
from tests.fakes.vendors.service import Fault

NEVER = ["from:payroll@acme.example", "label:private", "subject:salary"]


@pytest.fixture
async def mail(sqlite_store: Store, tmp_path: Path) -> AsyncIterator[Desk]:
    """A mailbox of which some is never shown."""
    async with (
        gmail.Fake() as service,
        opened("gmail", service, sqlite_store, tmp_path, options={"never_show": NEVER}) as desk,
    ):
        await desk.connect()
        yield desk


@pytest.fixture
async def files(sqlite_store: Store, tmp_path: Path) -> AsyncIterator[Desk]:
    """A drive with a few files."""
    async with (
        google_drive.Fake() as service,
        opened("google_drive", service, sqlite_store, tmp_path) as desk,
    ):
        await desk.connect()
        yield desk


async def test_what_is_never_shown_is_in_no_search(mail: Desk) -> None:
    result = await mail.call("gmail_search", {"query": "anything"})
    assert "Report of March" in result.text
    assert "pay" not in result.text and "Doctor" not in result.text
    assert result.display == {"hidden": 2}, "only people are told that something was left out"


@pytest.mark.parametrize("hidden", ["m2", "m3"])
async def test_a_hidden_message_is_as_one_that_is_not_there(mail: Desk, hidden: str) -> None:
    said = []
    for message in (hidden, "m404"):
        with pytest.raises(ServiceRefused) as refused:
            await mail.call("gmail_read", {"message_id": message})
        said.append((refused.value.status, str(refused.value)))
    assert said[0] == said[1]
    with pytest.raises(ServiceRefused):
        await mail.call("gmail_label", {"message_id": hidden, "add": ["Later"], "remove": []})
    assert mail.service.acts == []


async def test_a_rule_that_is_none_is_told(sqlite_store: Store, tmp_path: Path) -> None:
    rules = {"never_show": ["sender=boss"]}
    async with (
        gmail.Fake() as service,
        opened("gmail", service, sqlite_store, tmp_path, options=rules) as desk,
    ):
        await desk.connect()
        with pytest.raises(ToolError, match="never_show"):
            await desk.call("gmail_search", {"query": "x"})


async def test_an_attachment_is_saved_once_and_a_file_in_its_place_is_left(mail: Desk) -> None:
    call = {"message_id": "m1", "name": "march.csv", "path": "in/march.csv"}
    tool = mail.tool("gmail_save_attachment")
    assert tool.look_up is not None
    before = await tool.look_up(mail.ctx, call, None)
    await mail.call("gmail_save_attachment", call)
    after = await tool.look_up(mail.ctx, call, None)
    assert (mail.ctx.cwd / "in/march.csv").read_bytes() == b"a,b\n"
    assert (before.found, after.found) == (LookUp.DID_NOT, LookUp.HAPPENED)
    with pytest.raises(ToolError, match="already"):
        await mail.call("gmail_save_attachment", call)
    assert list(mail.ctx.keep.iterdir()) == [], "nothing is left behind"


async def test_nothing_is_saved_outside_the_sessions_folders(mail: Desk, tmp_path: Path) -> None:
    call = {"message_id": "m1", "name": "march.csv", "path": str(tmp_path / "elsewhere.csv")}
    with pytest.raises(ToolError):
        await mail.call("gmail_save_attachment", call)
    assert not (tmp_path / "elsewhere.csv").exists()


async def test_an_answer_stays_in_its_thread(mail: Desk) -> None:
    letter = {"to": ["bo@acme.example"], "subject": "Re: Report of March", "body": "Thanks."}
    await mail.call("gmail_send", {**letter, "answers": "m1"})
    assert isinstance(mail.service, gmail.Fake)
    sent = mail.service.mail["s1"]
    assert sent["threadId"] == "t-m1"
    assert b"In-Reply-To: <Report.of.March@acme.example>" in sent["letter"]


async def test_a_files_bytes_go_out_with_the_letter(mail: Desk) -> None:
    (mail.ctx.cwd / "plan.txt").write_text("the plan")
    letter = {"to": ["bo@acme.example"], "subject": "Plan", "body": "See there."}
    await mail.call("gmail_send", {**letter, "files": ["plan.txt"]})
    assert isinstance(mail.service, gmail.Fake)
    assert b'filename="plan.txt"' in mail.service.mail["s1"]["letter"]


@pytest.mark.parametrize(
    "wrong",
    [
        "no address",
        "bo@acme.example\nBcc: x@evil.example",
        "",
        "bo@acme.example (work)",
        "bo@acme.example, cy@acme.example",
        "Bo <bo@acme.example>",
    ],
    ids=["word", "head", "none", "a comment", "two", "a name"],
)
async def test_no_head_can_be_smuggled_in_by_an_address(mail: Desk, wrong: str) -> None:
    with pytest.raises(ToolError):
        await mail.call("gmail_send", {"to": [wrong], "subject": "s", "body": "b"})
    assert mail.service.acts == []


@pytest.mark.parametrize(
    ("file", "why"), [("none.csv", "no file|not there|none.csv"), ("big.bin", "carries")]
)
async def test_a_letter_with_a_file_that_cannot_go_is_not_sent(
    mail: Desk, file: str, why: str
) -> None:
    """And nobody is asked whether it was."""
    with (mail.ctx.cwd / "big.bin").open("wb") as big:
        big.truncate(18_000_001)
    letter = {"to": ["bo@acme.example"], "subject": "s", "body": "b", "files": [file]}
    with pytest.raises(ToolError, match=why):
        await mail.call("gmail_send", letter)
    assert mail.service.acts == []


async def test_no_head_can_be_smuggled_in_by_a_subject(mail: Desk) -> None:
    letter = {"to": ["bo@acme.example"], "subject": "s\r\nBcc: x@evil.example", "body": "b"}
    await mail.call("gmail_send", letter)
    assert isinstance(mail.service, gmail.Fake)
    assert b"\nBcc:" not in mail.service.mail["s1"]["letter"]


async def test_a_preview_shows_all_recipients_and_the_text(mail: Desk) -> None:
    tool = mail.tool("gmail_send")
    assert tool.preview is not None
    letter = {"to": ["bo@acme.example"], "bcc": ["di@acme.example"], "subject": "s", "body": "b!"}
    shown = await tool.preview(mail.ctx, tool.check(letter))
    assert "Bcc: di@acme.example" in shown and "b!" in shown


@pytest.mark.parametrize(
    ("file", "path", "held"),
    [("d1", "plan.md", b"# The plan\n"), ("t1", "words.txt", b"plain words")],
    ids=["a document", "a file"],
)
async def test_a_file_of_the_drive_is_saved(files: Desk, file: str, path: str, held: bytes) -> None:
    await files.call("google_drive_export", {"file_id": file, "path": path})
    assert (files.ctx.cwd / path).read_bytes() == held


async def test_a_download_renews_a_token_that_ended(sqlite_store: Store, tmp_path: Path) -> None:
    async with (
        google_drive.Fake() as service,
        opened("google_drive", service, sqlite_store, tmp_path) as desk,
    ):
        service.refreshes = {"refresh-1": "token-2"}
        await desk.connect(refresh="refresh-1")
        about = {"file_id": "t1", "path": "words.txt"}
        service.tokens = {}
        await desk.call("google_drive_read", {"file_id": "t1"})
        service.tokens = {}
        service.refreshes = {"refresh-1+": "token-3"}
        service.fail(Fault(), Fault(status=401))
        service.tokens["token-2"] = "ana"
        await desk.call("google_drive_export", about)
    assert (desk.ctx.cwd / "words.txt").read_bytes() == b"plain words"


async def test_a_download_that_fails_leaves_nothing_behind(files: Desk) -> None:
    files.service.fail(Fault(), *[Fault(how="truncated")] * 4)
    for path in ("in.pdf", "../../outside.pdf"):
        with pytest.raises(ToolError):
            await files.call("google_drive_export", {"file_id": "doc", "path": path})
    assert list(files.ctx.keep.iterdir()) == []


async def test_a_document_is_not_saved_as_what_it_cannot_be(files: Desk) -> None:
    with pytest.raises(ToolError, match="as what"):
        await files.call("google_drive_export", {"file_id": "d1", "path": "plan"})


async def test_a_picture_is_not_read_as_text(files: Desk) -> None:
    with pytest.raises(ToolError, match="no text"):
        await files.call("google_drive_read", {"file_id": "p1"})


async def test_words_cannot_leave_their_place_in_a_query(files: Desk) -> None:
    result = await files.call("google_drive_search", {"words": r"it's \' or name contains 'x"})
    assert result.ok, "the vendor takes it as one string"


@pytest.mark.parametrize(
    ("zone", "begin"),
    [
        ("Europe/Berlin", "2026-03-29T00:00:00+01:00"),
        ("America/New_York", "2026-03-29T00:00:00-04:00"),
        ("", "2026-03-29T00:00:00+01:00"),
    ],
    ids=["Berlin", "New York", "the calendar's own"],
)
async def test_a_day_is_that_of_its_zone(
    sqlite_store: Store, tmp_path: Path, zone: str, begin: str
) -> None:
    """On the day of the change of clocks, too: it ends 23 hours later."""
    async with (
        google_calendar.Fake() as service,
        opened("google_calendar", service, sqlite_store, tmp_path) as desk,
    ):
        await desk.connect()
        await desk.call("google_calendar_events", {"day": "2026-03-29", "zone": zone})
        query = service.seen[-1].query
    assert query["timeMin"] == begin
    ends = "+02:00" if "Berlin" in zone or not zone else "-04:00"
    assert query["timeMax"] == f"2026-03-30T00:00:00{ends}"


@pytest.mark.parametrize("wrong", [{"day": "someday"}, {"zone": "Mars/Base"}], ids=str)
async def test_a_day_or_zone_that_is_none_is_told(
    sqlite_store: Store, tmp_path: Path, wrong: dict[str, str]
) -> None:
    async with (
        google_calendar.Fake() as service,
        opened("google_calendar", service, sqlite_store, tmp_path) as desk,
    ):
        await desk.connect()
        with pytest.raises(ToolError):
            await desk.call("google_calendar_events", {"day": "today", **wrong})


async def test_of_a_cancelled_event_little_is_left_and_that_is_enough(
    sqlite_store: Store, tmp_path: Path
) -> None:
    """Its card says so, and an invitation that somebody took back meanwhile was made."""
    async with (
        google_calendar.Fake() as service,
        opened("google_calendar", service, sqlite_store, tmp_path) as desk,
    ):
        await desk.connect()
        made = {"title": "Lunch", "begin": "2026-03-02T12:00:00Z", "end": "2026-03-02T13:00:00Z"}
        create, cancel = (
            desk.tool(f"google_calendar_{name}_event") for name in ("create", "cancel")
        )
        told = await desk.call(create.name, made)
        arguments = cancel.check({"event_id": json.loads(told.text)["id"]})
        await desk.call(cancel.name, arguments)
        assert cancel.preview is not None and create.look_up is not None
        shown = await cancel.preview(desk.ctx, arguments)
        assert shown == "As ana:\nIt was cancelled before."
        outcome = await create.look_up(desk.ctx, create.check(made), None)
    assert outcome.found is LookUp.HAPPENED


@pytest.fixture
async def days(sqlite_store: Store, tmp_path: Path) -> AsyncIterator[Desk]:
    """A calendar with one meeting."""
    async with (
        google_calendar.Fake() as service,
        opened("google_calendar", service, sqlite_store, tmp_path) as desk,
    ):
        await desk.connect()
        yield desk


async def test_a_card_names_everybody_who_is_invited(days: Desk) -> None:
    assert isinstance(days.service, google_calendar.Fake)
    crowd = [{"email": f"p{n}@acme.example"} for n in range(70)]
    days.service.events["e1"]["attendees"] = crowd
    tool = days.tool("google_calendar_cancel_event")
    assert tool.preview is not None
    shown = await tool.preview(days.ctx, tool.check({"event_id": "e1"}))
    assert all(each["email"] in shown for each in crowd)
    told = (await days.call("google_calendar_events", {"day": "2026-03-02"})).text
    assert '"more_attendees":20' in told


async def test_a_meeting_becomes_one_of_all_day(days: Desk) -> None:
    assert isinstance(days.service, google_calendar.Fake)
    all_day = {"event_id": "e1", "begin": "2026-03-02", "end": "2026-03-03"}
    await days.call("google_calendar_update_event", all_day)
    assert days.service.events["e1"]["start"] == {"date": "2026-03-02"}


async def test_a_change_that_is_made_is_known_in_whatever_zone_it_is_told(days: Desk) -> None:
    """So the people invited are not told twice."""
    change = {"event_id": "e1", "begin": "2026-03-02T08:00:00Z", "end": "2026-03-02T08:15:00Z"}
    tool = days.tool("google_calendar_update_event")
    assert tool.look_up is not None
    found = await tool.look_up(days.ctx, tool.check(change), None)
    assert found.found is LookUp.HAPPENED
    later = tool.check({**change, "title": "Other"})
    assert (await tool.look_up(days.ctx, later, None)).found is LookUp.DID_NOT


async def test_an_update_of_nothing_tells_nobody(days: Desk) -> None:
    with pytest.raises(ToolError, match="Nothing would change"):
        await days.call("google_calendar_update_event", {"event_id": "e1"})
    assert days.service.acts == []


async def test_more_people_than_can_be_asked_about_are_not_left_out_silently(days: Desk) -> None:
    asked = {"people": ["a@b.example"] * 51, "begin": "2026-03-02T08:00:00Z"}
    with pytest.raises(ToolError, match="At most 50"):
        await days.call("google_calendar_busy", {**asked, "end": "2026-03-02T09:00:00Z"})


async def test_a_403_that_says_to_slow_down_is_no_refusal_of_rights(files: Desk) -> None:
    """So Google tells that a limit is reached (docs: handle errors, 403)."""
    error = {"errors": [{"reason": "userRateLimitExceeded"}], "message": "Rate Limit Exceeded"}
    files.service.fail(Fault(status=403, body={"error": {"code": 403, **error}}))
    with pytest.raises(ServiceRefused, match="asks to slow down") as refused:
        await files.call("google_drive_search", {"words": "plan"})
    assert refused.value.retry_after == 60.0


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("create_event", {"title": "Lunch", "begin": "2026-03-02", "end": "2026-03-03"}),
        ("update_event", {"event_id": "e1", "title": "Lunch"}),
        ("cancel_event", {"event_id": "e1"}),
    ],
)
async def test_whoever_is_invited_is_told(days: Desk, tool: str, arguments: dict[str, str]) -> None:
    await days.call(f"google_calendar_{tool}", arguments)
    assert days.service.seen[-1].query["sendUpdates"] == "all"
