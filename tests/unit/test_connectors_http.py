"""The way out of connectors: where it may lead, how long it waits, what it never does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
import stamina
from aiohttp import web

from connectors import http
from connectors.http import Http, Limits, Request, ServiceRefused, Unsure
from connectors.jira import site
from connectors.registry import Connectors
from engine.errors import ToolError
from engine.store.base import Store
from tests.fakes.vendors import notes, webhook
from tests.fakes.vendors.desk import CATALOGUE, opened
from tests.fakes.vendors.service import Fault, Service

NOW = 1_772_438_400.0
QUICK = Limits(per_minute=100_000, seconds=2.0)


class Echo(Service):
    """A service that says what it was asked, and can send elsewhere."""

    def routes(self) -> None:
        self.elsewhere = ""
        self.on("GET", "/echo", self._echo, open=True)
        self.on("POST", "/echo", self._echo, open=True)
        self.on("PUT", "/echo", self._echo, open=True)
        self.on("GET", "/moved", self._moved, open=True)
        self.on("POST", "/moved", self._moved, open=True)

    async def _echo(self, request: web.Request) -> Any:
        if request.method != "GET":
            self.acts.append(request.method)
        return {"query": dict(request.query)}

    async def _moved(self, _request: web.Request) -> Any:
        return web.Response(status=307, headers={"Location": self.elsewhere})


@pytest.fixture(autouse=True)
def at_once() -> Any:
    """Nothing is waited for between two tries."""
    stamina.set_testing(True, attempts=4, cap=True)
    yield
    stamina.set_testing(False)


@pytest.fixture
async def service() -> AsyncIterator[Echo]:
    """The service."""
    async with Echo() as running:
        yield running


@pytest.fixture
async def own(service: Echo) -> AsyncIterator[Http]:
    """A way out that may reach the service: the owner has named it."""
    http = Http(allowed=(service.url,))
    yield http
    await http.close()


def _request(url: str, **given: Any) -> Request:
    fields = {"service": "Echo", "lane": "echo", "method": "GET", "limits": QUICK, **given}
    return Request(url=url, **fields)


# -- where it may lead


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "10.0.0.1",
     "192.168.1.1", "169.254.169.254", "[fd00::1]", "[fe80::1]", "2130706433", "0x7f.1",
     "[::127.0.0.1]", "[::ffff:0:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fec0::1]"],
    ids=str,
)  # fmt: skip
async def test_a_private_address_is_not_asked(service: Echo, host: str) -> None:
    port = service.url.rpartition(":")[2]
    http = Http()
    with pytest.raises(ToolError):
        await http.request(_request(f"http://{host}:{port}/echo"))
    await http.close()
    assert service.seen == []


@pytest.mark.parametrize(
    ("elsewhere", "said"),
    [
        pytest.param("http://169.254.169.254/", "not a public address", id="X-09-an-address"),
        pytest.param("http://localhost:{port}/echo", "not a public address", id="X-09-a-name"),
        pytest.param("http://[::1]:{port}/echo", "not a public address", id="X-09-in-brackets"),
        pytest.param("file:///etc/passwd", "cannot be reached", id="X-09-a-file"),
        pytest.param("gopher://x.test/", "cannot be reached", id="X-09-another-scheme"),
    ],
)
async def test_a_redirect_leads_no_further_inside_than_an_address(
    service: Echo, monkeypatch: pytest.MonkeyPatch, elsewhere: str, said: str
) -> None:
    """Only the service's own address counts as public here, and only for the first hop."""
    hops = iter([True])
    monkeypatch.setattr(http, "_public", lambda _host: next(hops, False))
    out = Http()
    service.elsewhere = elsewhere.format(port=service.url.rpartition(":")[2])
    with pytest.raises(ToolError, match=said):
        await out.request(_request(f"{service.url}/moved"))
    await out.close()
    assert {seen.path for seen in service.seen} == {"/moved"}


async def test_no_key_follows_a_redirect_to_another_host(
    service: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its header is called; on the same host it is still needed."""
    monkeypatch.setattr(http, "_public", lambda _host: True)
    keys = {"Authorization": "Bearer very-secret", "X-Api-Key": "very-secret"}
    out = Http()
    async with Echo() as other:
        for elsewhere in (f"{service.url}/echo", f"{other.url}/echo"):
            service.elsewhere = elsewhere
            await out.request(_request(f"{service.url}/moved", headers=keys))
        await out.close()
        assert "very-secret" not in str(other.seen[-1].headers)
    assert service.seen[1].path == "/echo"
    assert [service.seen[1].headers[name] for name in keys] == list(keys.values())


async def test_what_the_owner_has_named_is_reached(service: Echo, own: Http) -> None:
    reply = await own.request(_request(f"{service.url}/echo", query=(("a", "1 &b=2"),)))
    assert reply.json() == {"query": {"a": "1 &b=2"}}


async def test_naming_one_place_opens_no_other_port(service: Echo, own: Http) -> None:
    async with Echo() as other:
        with pytest.raises(ToolError, match="not a public address"):
            await own.request(_request(f"{other.url}/echo"))
        assert other.seen == []


@pytest.mark.parametrize("act", [False, True], ids=["a read", "an act"])
async def test_the_owners_own_host_leads_nowhere_else(service: Echo, own: Http, act: bool) -> None:
    async with Echo() as other:
        service.elsewhere = f"{other.url}/echo"
        method = "POST" if act else "GET"
        with pytest.raises(ServiceRefused, match="elsewhere"):
            await own.request(_request(f"{service.url}/moved", method=method, act=act))
        assert other.seen == []


async def test_what_is_named_for_one_connector_is_open_to_it_alone(
    sqlite_store: Store, tmp_path: Path
) -> None:
    """A model that chooses addresses does not come into the owner's network by another's name."""
    async with notes.Fake() as inside, opened("notes", inside, sqlite_store, tmp_path) as desk:
        connectors = Connectors(
            store=sqlite_store,
            tools=desk.tools,
            credentials=desk.credentials,
            tenant="local",
            options={"notes": {"base_url": inside.url}},
            catalogue={name: CATALOGUE[name] for name in ("notes", "feeds")},
        )
        async with connectors:
            await connectors.add("notes")
            await desk.connect()
            assert (await desk.call("notes_search", {"query": "tea"})).ok
            inside.seen.clear()
            with pytest.raises(ToolError, match="not a public address"):
                await desk.call("feeds_read", {"url": f"{inside.url}/notes"})
            assert inside.seen == []


@pytest.mark.parametrize("book", ["../acts", "a?b=c", "a#b", "%2e%2e", "x/../../me"], ids=str)
async def test_an_argument_stays_in_its_place_in_an_address(
    sqlite_store: Store, tmp_path: Path, book: str
) -> None:
    async with notes.Fake() as service, opened("notes", service, sqlite_store, tmp_path) as desk:
        await desk.connect()
        service.seen.clear()
        with pytest.raises(ToolError, match="no such book"):
            await desk.call("notes_read", {"book": book, "number": 1})
        [seen] = service.seen
        assert (seen.path, seen.query) == (f"/books/{book}/notes/1", {})


@pytest.mark.parametrize("book", ["", ".", ".."], ids=["nothing", "here", "up"])
async def test_what_would_lead_out_of_its_place_is_not_asked(
    sqlite_store: Store, tmp_path: Path, book: str
) -> None:
    async with notes.Fake() as service, opened("notes", service, sqlite_store, tmp_path) as desk:
        await desk.connect()
        service.seen.clear()
        with pytest.raises(ToolError, match="cannot be the book"):
            await desk.call("notes_read", {"book": book, "number": 1})
        assert service.seen == []


# -- how long it waits


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "120"}, 120.0),
        ({"Retry-After": formatdate(NOW + 90, usegmt=True)}, 90.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{NOW + 70:.0f}"}, 70.0),
        ({"x-ratelimit-remaining": "5", "x-ratelimit-reset": f"{NOW + 70:.0f}"}, 60.0),
        ({}, 60.0),
        ({"Retry-After": "soon"}, 60.0),
    ],
    ids=["seconds", "a date", "exhausted", "not exhausted", "unsaid", "nonsense"],
)
async def test_it_waits_as_the_service_asks(
    service: Echo, own: Http, headers: dict[str, str], wait: float
) -> None:
    dated = {"Date": formatdate(NOW, usegmt=True), **headers}
    service.fail(Fault(status=429, headers=dated))
    with pytest.raises(ServiceRefused) as refused:
        await own.request(_request(f"{service.url}/echo"))
    assert refused.value.retry_after == pytest.approx(wait)


async def test_a_service_is_not_asked_by_more_at_once_than_it_allows(
    service: Echo, own: Http
) -> None:
    import asyncio

    few = Limits(per_minute=100_000, at_once=3)
    asked = (own.request(_request(f"{service.url}/echo", limits=few)) for _ in range(30))
    await asyncio.gather(*asked)
    assert service.at_once <= 3
    assert len(service.seen) == 30


# -- what it never does


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_an_act_is_not_sent_again_when_its_connection_breaks(
    service: Echo, own: Http, method: str
) -> None:
    service.fail(Fault(how="cut", after=True))
    with pytest.raises(Unsure):
        await own.request(_request(f"{service.url}/echo", method=method, act=True))
    assert service.acts == [method]


async def test_an_act_goes_out_on_a_connection_of_its_own(service: Echo, own: Http) -> None:
    """A kept one may have been closed by now, and nobody could tell whether the act went out."""
    for act in (False, False, True):
        method = "POST" if act else "GET"
        await own.request(_request(f"{service.url}/echo", method=method, act=act))
    first, second, act_peer = (seen.peer for seen in service.seen)
    assert first == second, "reads share a connection"
    assert act_peer != first


async def test_no_header_is_in_what_an_error_says(service: Echo, own: Http) -> None:
    secret = {"Authorization": "Bearer very-secret"}
    service.fail(Fault(status=403, body={"message": "no"}))
    request = _request(f"{service.url}/echo", headers=secret)
    with pytest.raises(ServiceRefused) as refused:
        await own.request(request)
    assert "very-secret" not in f"{refused.value!r}{request!r}"


# -- addresses that people give


@pytest.mark.parametrize(
    "given", ["acme", "ACME", " acme.atlassian.net ", "https://acme.atlassian.net/jira/x"]
)
def test_a_site_of_jira_is_taken_as_people_write_it(given: str) -> None:
    assert site({"site": given}) == "https://acme.atlassian.net/rest/api/3"


@pytest.mark.parametrize(
    "given", ["acme.evil.example", "acme.atlassian.net.evil.example", "", "a b"]
)
def test_no_other_host_passes_for_a_site_of_jira(given: str) -> None:
    with pytest.raises(ToolError, match="no site"):
        site({"site": given})


@pytest.mark.parametrize("url", ["https://127.0.0.1/x", "https://[::1]/x", "http://example.org/x"])
async def test_a_webhook_that_leads_nowhere_is_told_when_it_is_connected(
    sqlite_store: Store, tmp_path: Path, url: str
) -> None:
    async with (
        webhook.Fake() as service,
        opened("webhook", service, sqlite_store, tmp_path) as desk,
    ):
        alone = Connectors(
            store=sqlite_store,
            tools=desk.tools,
            credentials=desk.credentials,
            tenant="local",
            options={},
            catalogue={"webhook": CATALOGUE["webhook"]},
        )
        account = await desk.connect(fields={"name": "ops", "url": url, "secret": ""})
        async with alone:
            with pytest.raises(ToolError, match=r"not a public address|https://"):
                await alone.identity(account)


async def test_a_try_that_failed_is_in_the_log_without_what_was_sent(
    service: Echo, own: Http, caplog: pytest.LogCaptureFixture
) -> None:
    service.fail(Fault(status=500))
    secret = {"Authorization": "Bearer very-secret"}
    with caplog.at_level("INFO"):
        assert (await own.request(_request(f"{service.url}/echo", headers=secret))).status == 200
    (noted,) = [each for each in caplog.records if each.name == "connectors.http"]
    assert noted.levelname == "INFO" and "try 1 failed (Unsure)" in noted.getMessage()
    assert "very-secret" not in caplog.text and "/echo" not in noted.getMessage()
