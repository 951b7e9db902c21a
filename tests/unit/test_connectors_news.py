"""What each source of a connector finds new, against its vendor's server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import stamina

from connectors import github_news, gmail
from connectors.accounts import Account
from connectors.base import Api, Found
from connectors.declaring import Source
from engine.clock import system_now
from engine.store.base import Store
from tests.fakes.vendors import github as github_fake
from tests.fakes.vendors import gmail as gmail_fake
from tests.fakes.vendors import google_calendar as calendar_fake
from tests.fakes.vendors.desk import Desk, connector_of, opened
from tests.fakes.vendors.service import Fault, Service

NEVER = ["from:payroll@acme.example", "label:private"]


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    """Nothing is waited for between two tries."""
    stamina.set_testing(True, attempts=2, cap=True)
    yield
    stamina.set_testing(False)


class Eye:
    """Looks at one source, from where it looked before."""

    def __init__(self, desk: Desk, account: Account, source: str) -> None:
        self.desk, self.account, self.source = desk, account, source
        self.seen: Any = None

    async def look(self) -> Found:
        found, every = await self.desk.connectors.look(self.account, self.source, self.seen)
        assert every >= 60, "once a minute is often enough"
        self.seen = found.seen
        return found

    async def keys(self) -> list[str]:
        return [key for key, _ in (await self.look()).items]


@asynccontextmanager
async def watching(
    name: str, source: str, service: Service, store: Store, data: Path, **options: Any
) -> AsyncIterator[Eye]:
    async with service, opened(name, service, store, data, options=options) as desk:
        yield Eye(desk, await desk.connect(), source)


async def test_a_source_can_only_read(sqlite_store: Store, tmp_path: Path) -> None:
    async def acting(api: Api, seen: Any) -> Found:
        await api.send("POST", "/repos/{owner}/{name}/issues", owner="acme", name="app", json={})
        return Found(seen=1)

    connector = connector_of("github")
    rogue = Source(name="rogue", every=60, poll=acting)
    connector.sources.append(rogue)
    service = github_fake.Fake()
    try:
        async with watching("github", "rogue", service, sqlite_store, tmp_path) as eye:
            with pytest.raises(Exception, match="issues"):
                await eye.look()
    finally:
        connector.sources.remove(rogue)
    assert service.acts == [] and service.seen == []


# -- GitHub


async def test_a_review_that_is_asked_for_is_new_with_what_it_is(
    sqlite_store: Store, tmp_path: Path
) -> None:
    service = github_fake.Fake()
    async with watching("github", "review", service, sqlite_store, tmp_path) as eye:
        await eye.look()
        service.ask_review(8, "Faster start")
        ((key, payload),) = (await eye.look()).items
        assert key == "acme/app#8@2026-03-02T08:00:00Z"
        assert payload["title"] == "Faster start" and payload["by"] == "bo"
        assert "body" not in payload
        service.issues[8]["updated_at"] = "2026-03-05T08:00:00Z"  # somebody commented
        assert await eye.keys() == []
        assert len(service.seen) == 3, "one request a look"


async def test_of_more_than_a_page_none_is_new_because_it_was_not_shown(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(github_news, "PAGE", 2)
    service = github_fake.Fake()
    async with watching("github", "review", service, sqlite_store, tmp_path) as eye:
        await eye.look()
        for number in (8, 9, 10):
            service.ask_review(number, "More", f"2026-03-0{number - 5}T08:00:00Z")
            assert len(await eye.keys()) == 1
        service.issues[8]["updated_at"] = "2026-04-01T08:00:00Z"  # back on the page
        assert await eye.keys() == []


# -- Gmail


def letter(sender: str, subject: str) -> bytes:
    return f"From: {sender}\nTo: ana@acme.example\nSubject: {subject}\n\nThe body.".encode()


async def test_new_mail_comes_without_its_body_and_never_what_is_never_shown(
    sqlite_store: Store, tmp_path: Path
) -> None:
    service = gmail_fake.Fake()
    async with watching(
        "gmail", "message", service, sqlite_store, tmp_path, never_show=NEVER
    ) as eye:
        assert await eye.keys() == []
        service.put("n1", letter("bo@acme.example", "Tests are red"))
        service.put("n2", letter("payroll@acme.example", "Your pay"))
        service.put("n3", letter("cy@acme.example", "Doctor"), "Label_2")
        service.mail["n1b"] = {**service.mail["n1"], "id": "n1b", "labelIds": ["SENT"]}
        service.history.append((9_000, service.mail["n1b"]))
        found = await eye.look()
        told = {"id": "n1", "from": "bo@acme.example", "subject": "Tests are red"}
        assert list(found.items) == [("n1", told)]
        assert await eye.keys() == []


async def test_much_mail_comes_in_parts_and_whole(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gmail, "NEW", 3)
    service = gmail_fake.Fake()
    async with watching("gmail", "message", service, sqlite_store, tmp_path) as eye:
        await eye.look()
        for n in range(7):
            service.put(f"n{n}", letter("bo@acme.example", f"{n}"))
        parts = [await eye.keys() for _ in range(4)]
        assert parts == [["n0", "n1", "n2"], ["n3", "n4", "n5"], ["n6"], []]


async def test_mail_that_is_gone_again_is_no_news(sqlite_store: Store, tmp_path: Path) -> None:
    service = gmail_fake.Fake()
    async with watching("gmail", "message", service, sqlite_store, tmp_path) as eye:
        await eye.look()
        service.put("n1", letter("bo@acme.example", "Tests are red"))
        del service.mail["n1"]
        assert await eye.keys() == []


async def test_when_gmail_no_longer_knows_the_past_it_begins_anew(
    sqlite_store: Store, tmp_path: Path
) -> None:
    service = gmail_fake.Fake()
    async with watching("gmail", "message", service, sqlite_store, tmp_path) as eye:
        await eye.look()
        service.put("n1", letter("bo@acme.example", "Long ago"))
        service.oldest = service.history[-1][0]
        assert await eye.keys() == []
        service.put("n2", letter("bo@acme.example", "Now"))
        assert await eye.keys() == ["n2"]


async def test_a_refusal_of_gmail_is_no_beginning_anew(sqlite_store: Store, tmp_path: Path) -> None:
    service = gmail_fake.Fake()
    async with watching("gmail", "message", service, sqlite_store, tmp_path) as eye:
        await eye.look()
        service.put("n1", letter("bo@acme.example", "Tests are red"))
        service.fail(Fault(status=403))
        with pytest.raises(Exception, match="does not allow"):
            await eye.look()
        assert await eye.keys() == ["n1"]


# -- Google Calendar


def meeting(id: str, minutes: float, *, length: float = 30, **more: Any) -> dict[str, Any]:
    begins = datetime.fromtimestamp(system_now(), UTC) + timedelta(minutes=minutes)
    ends = begins + timedelta(minutes=length)
    times = {"start": {"dateTime": begins.isoformat()}, "end": {"dateTime": ends.isoformat()}}
    return {"id": id, "status": "confirmed", "summary": id, "description": "Long.", **times, **more}


async def test_a_meeting_is_told_once_shortly_before_it_begins_and_again_when_it_is_moved(
    sqlite_store: Store, tmp_path: Path
) -> None:
    service = calendar_fake.Fake()
    async with watching("google_calendar", "soon", service, sqlite_store, tmp_path) as eye:
        declined = [{"email": "ana@acme.example", "self": True, "responseStatus": "declined"}]
        service.events = {
            "begun": meeting("begun", -5),
            "later": meeting("later", 20),
            "no": meeting("no", 10, attendees=declined),
            "off": meeting("off", 10, status="cancelled"),
        }
        await eye.look()
        service.events["soon"] = soon = meeting("soon", 10)
        ((key, payload),) = (await eye.look()).items
        assert key == f"soon@{soon['start']['dateTime']}"
        assert payload["summary"] == "soon" and "description" not in payload
        assert await eye.keys() == []
        service.events["soon"] = meeting("soon", 14)
        assert len(await eye.keys()) == 1
        assert len(service.seen) == 4, "one request a look"


async def test_a_whole_day_begins_at_no_time_of_day(sqlite_store: Store, tmp_path: Path) -> None:
    service = calendar_fake.Fake()
    async with watching("google_calendar", "soon", service, sqlite_store, tmp_path) as eye:
        await eye.look()
        today = datetime.fromtimestamp(system_now(), UTC).date()
        days = {"start": {"date": f"{today}"}, "end": {"date": f"{today + timedelta(days=2)}"}}
        fair: dict[str, Any] = {"id": "day", "status": "confirmed", "summary": "Fair", **days}
        service.events["day"] = fair
        service.events["soon"] = meeting("soon", 10)
        assert len(await eye.keys()) == 1
