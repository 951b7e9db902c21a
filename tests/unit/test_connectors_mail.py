"""Mail by IMAP and SMTP, against servers others wrote, over TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from connectors import accounts, mail_reads
from connectors.http import ServiceRefused, Unreachable, Unsure
from engine.errors import NeedsConnection, ToolError
from engine.store.base import Store
from engine.tools.base import LookUp, Risk
from engine.turn.run import TooLate
from tests.fakes.vendors.desk import Desk, opened
from tests.fakes.vendors.mail import PASSWORD, USER, Provider, provided
from tests.fakes.vendors.notes import Fake

NEVER = ["from:payroll@acme.example"]
LETTER = {"to": ["bo@acme.example"], "subject": "Lunch", "body": "At noon?"}


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[Provider]:
    """A provider with three messages in the mailbox."""
    async with provided(tmp_path) as running:
        await asyncio.to_thread(_filled, running)
        yield running


@pytest.fixture
async def desk(provider: Provider, sqlite_store: Store, tmp_path: Path) -> AsyncIterator[Desk]:
    """A session of somebody who has connected the mailbox."""
    options = {**provider.options, "never_show": NEVER}
    async with (
        Fake() as unused,
        opened("mail", unused, sqlite_store, tmp_path, options=options) as made,
    ):
        await made.connect(USER, fields=provider.fields)
        yield made


def _filled(provider: Provider) -> None:
    """Put three messages in, and a folder for sent mail."""
    with provider.box() as box:
        if "Sent" not in [each.name for each in box.folder.list()]:
            box.folder.create("Sent")
        box.append(_letter("Bo <bo@acme.example>", "Report of März", "All is well."), "INBOX")
        box.append(_letter("payroll@acme.example", "Your pay", "Secret sum."), "INBOX")
        box.append(_letter("cy@other.example", "Re: hello", "Hi."), "INBOX")


def _letter(sender: str, subject: str, text: str) -> bytes:
    letter = EmailMessage()
    letter["From"], letter["To"], letter["Subject"] = sender, USER, subject
    letter.set_content(text)
    letter.add_attachment(b"a,b\n", maintype="text", subtype="csv", filename="march.csv")
    return letter.as_bytes()


async def _id_of(desk: Desk, words: str) -> str:
    import json

    found = json.loads((await desk.call("mail_search", {"words": words})).text)
    return str(found[0]["id"])


# -- reading


async def test_a_search_finds_and_marks_and_leaves_unread(desk: Desk) -> None:
    result = await desk.call("mail_search", {"words": "All is well"})
    assert "Report of März" in result.text and '"unread":true' in result.text
    again = await desk.call("mail_search", {"words": "All is well"})
    assert '"unread":true' in again.text
    assert result.taint.startswith("mail")


@pytest.mark.parametrize(
    ("wanted", "subject"),
    [
        ({"sender": "cy@other"}, "Re: hello"),
        ({"unread": True, "since": "2020-01-01"}, "Re: hello"),
    ],
    ids=["sender", "unread since"],
)
async def test_a_search_takes_what_is_asked(
    desk: Desk, wanted: dict[str, Any], subject: str
) -> None:
    assert subject in (await desk.call("mail_search", wanted)).text


async def test_what_is_never_shown_is_not_there(desk: Desk, provider: Provider) -> None:
    result = await desk.call("mail_search", {"limit": 200})
    assert "Your pay" not in result.text
    assert result.display == {"hidden": 1}

    def its_id() -> str:
        with provider.box() as box:
            return next(str(each.uid) for each in box.fetch() if each.subject == "Your pay")

    hidden = await asyncio.to_thread(its_id)
    said = []
    for message in (hidden, "99999"):
        with pytest.raises(ServiceRefused) as refused:
            await desk.call("mail_read", {"message_id": message})
        said.append(str(refused.value).replace(message, "N"))
    assert said[0] == said[1]


async def test_a_message_is_read_with_its_attachments(desk: Desk) -> None:
    message = await _id_of(desk, "All is well")
    result = await desk.call("mail_read", {"message_id": message})
    assert "All is well." in result.text and "march.csv" in result.text
    await desk.call(
        "mail_save_attachment", {"message_id": message, "name": "march.csv", "path": "m.csv"}
    )
    assert (desk.ctx.cwd / "m.csv").read_bytes() == b"a,b\n"


async def test_marking_as_read_waits_for_a_nod_and_can_be_done_twice(desk: Desk) -> None:
    message = await _id_of(desk, "All is well")
    tool = desk.tool("mail_mark")
    assert tool.risk is Risk.EXTERNAL and tool.idempotent
    assert tool.preview is not None
    marking = tool.check({"message_id": message, "as_read": True})
    shown = await tool.preview(desk.ctx, marking)
    assert "Mark as read: Report of März, from Bo" in shown
    assert '"unread":true' in (await desk.call("mail_search", {"words": "All is well"})).text
    for _ in range(2):
        await desk.call("mail_mark", {"message_id": message, "as_read": True})
    assert '"unread":true' not in (await desk.call("mail_search", {"words": "All is well"})).text


@pytest.mark.parametrize("id", ["1:*", "1,2", "x", ""], ids=str)
async def test_an_id_is_one_number(desk: Desk, id: str) -> None:
    with pytest.raises(ToolError, match="no message's id"):
        await desk.call("mail_read", {"message_id": id})


async def test_a_folder_that_is_not_there_is_told(desk: Desk) -> None:
    with pytest.raises(ToolError):
        await desk.call("mail_search", {"folder": "Nowhere"})


# -- sending


async def test_a_message_goes_to_all_and_a_copy_is_kept(desk: Desk, provider: Provider) -> None:
    letter = {**LETTER, "cc": ["Cy@other.example"], "bcc": ["di@acme.example"]}
    tool = desk.tool("mail_send")
    assert tool.targets(tool.check(letter), "console:main") == (
        "mail:bo@acme.example",
        "mail:cy@other.example",
        "mail:di@acme.example",
    )
    result = await desk.call("mail_send", letter)
    ((people, data),) = provider.taken.letters
    assert sorted(people) == ["bo@acme.example", "cy@other.example", "di@acme.example"]
    assert b"Bcc" not in data and b"At noon?" in data
    assert '"copy_in":"Sent"' in result.text
    assert tool.look_up is not None
    outcome = await tool.look_up(desk.ctx, tool.check(letter), None)
    assert outcome.found is LookUp.HAPPENED


async def test_whom_the_server_refuses_is_told(desk: Desk, provider: Provider) -> None:
    provider.taken.refused.add("nobody@acme.example")
    letter = {**LETTER, "cc": ["nobody@acme.example"]}
    result = await desk.call("mail_send", letter)
    assert '"refused":{"nobody@acme.example"' in result.text
    with pytest.raises(ToolError, match="none of them"):
        await desk.call("mail_send", {**LETTER, "to": ["nobody@acme.example"]})
    assert len(provider.taken.letters) == 1


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_connection_that_breaks_at_the_end_leaves_it_open(
    desk: Desk, provider: Provider, when: str
) -> None:
    provider.taken.hang_up = when
    with pytest.raises(Unsure):
        await desk.call("mail_send", LETTER)
    assert len(provider.taken.letters) == (1 if when == "after" else 0)
    tool = desk.tool("mail_send")
    assert tool.look_up is not None
    outcome = await tool.look_up(desk.ctx, tool.check(LETTER), None)
    assert outcome.found is LookUp.CANNOT_TELL, "only a copy would tell"


async def test_a_send_that_comes_too_late_is_not_sent(desk: Desk, provider: Provider) -> None:
    def too_late() -> None:
        raise TooLate

    with pytest.raises(TooLate):
        await desk.call("mail_send", LETTER, before_act=too_late)
    assert provider.taken.letters == []


async def test_a_preview_shows_the_message_and_sends_nothing(
    desk: Desk, provider: Provider
) -> None:
    tool = desk.tool("mail_send")
    assert tool.preview is not None
    shown = await tool.preview(desk.ctx, tool.check(LETTER))
    assert "To: bo@acme.example" in shown and "At noon?" in shown
    assert provider.taken.letters == []


# -- servers that are not as they should be


async def test_a_wrong_password_asks_to_connect(desk: Desk, provider: Provider) -> None:
    await desk.connect(USER, fields={**provider.fields, "password": "wrong"})
    for tool, arguments in (("mail_search", {}), ("mail_send", LETTER)):
        with pytest.raises(NeedsConnection) as refused:
            await desk.call(tool, arguments)
        assert PASSWORD not in str(refused.value) and "wrong" not in str(refused.value)
    assert provider.taken.letters == []


@pytest.mark.parametrize("which", ["imap", "smtp"])
async def test_a_server_that_is_not_there_is_told(
    desk: Desk, provider: Provider, which: str
) -> None:
    await desk.connect(USER, fields={**provider.fields, which: "localhost:1"})
    with pytest.raises(Unreachable):
        await desk.call(*(("mail_search", {}) if which == "imap" else ("mail_send", LETTER)))


# imaplib leaves the socket of a failed handshake to be collected, which closes it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_server_whose_certificate_nobody_vouches_for_gets_no_password(
    provider: Provider, sqlite_store: Store, tmp_path: Path
) -> None:
    options = {"hosts": ["localhost"]}
    async with (
        Fake() as unused,
        opened("mail", unused, sqlite_store, tmp_path, options=options) as made,
    ):
        await made.connect(USER, fields=provider.fields)
        for tool, arguments in (("mail_search", {}), ("mail_send", LETTER)):
            with pytest.raises(ToolError):
                await made.call(tool, arguments)
    assert provider.taken.letters == []


async def test_a_private_server_is_asked_only_when_the_owner_names_it(
    provider: Provider, sqlite_store: Store, tmp_path: Path
) -> None:
    options = {"ca_file": str(provider.ca)}
    async with (
        Fake() as unused,
        opened("mail", unused, sqlite_store, tmp_path, options=options) as made,
    ):
        await made.connect(USER, fields=provider.fields)
        for tool, arguments in (("mail_search", {}), ("mail_send", LETTER)):
            with pytest.raises(ToolError, match="not a public address"):
                await made.call(tool, arguments)


async def test_the_check_says_whose_it_is(desk: Desk, provider: Provider) -> None:
    account = await desk.connect(USER, fields=provider.fields)
    identity = await desk.connectors.identity(account)
    assert identity.label == USER


# -- what is new


async def test_new_mail_comes_once_without_its_body_and_never_what_is_never_shown(
    desk: Desk, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail_reads, "NEW", 2)
    (account,) = await desk.store.read(lambda tx: accounts.listed(tx, "local"))
    seen: Any = None

    async def look() -> list[dict[str, Any]]:
        nonlocal seen
        found, _ = await desk.connectors.look(account, "message", seen)
        seen = found.seen
        assert len({key for key, _ in found.items}) == len(found.items)
        return [dict(payload) for _, payload in found.items]

    def put(*letters: tuple[str, str]) -> None:
        with provider.box() as box:
            for sender, subject in letters:
                box.append(_letter(sender, subject, "The body."), "INBOX")

    assert await look() == [] and await look() == [], "what was there before is not new"
    await asyncio.to_thread(put, ("bo@acme.example", "One"), ("payroll@acme.example", "Your pay"))
    ((told),) = await look()
    assert told["from"] == "bo@acme.example" and told["subject"] == "One"
    assert set(told) == {"id", "from", "subject"}
    many = [("cy@acme.example", str(n)) for n in range(5)]
    await asyncio.to_thread(put, *many)
    parts = [[each["subject"] for each in await look()] for _ in range(4)]
    assert parts == [["0", "1"], ["2", "3"], ["4"], []]
    found = await desk.call("mail_read", {"message_id": told["id"]})
    assert "The body." in found.text, "its id is that of the tools"
    assert '"unread":true' in (await desk.call("mail_search", {"words": "One"})).text


async def test_when_a_mailbox_counts_anew_nothing_old_is_taken_for_new(desk: Desk) -> None:
    (account,) = await desk.store.read(lambda tx: accounts.listed(tx, "local"))
    found, _ = await desk.connectors.look(account, "message", {"validity": 1, "next": 1})
    assert found.items == [] and found.seen["validity"] != 1
