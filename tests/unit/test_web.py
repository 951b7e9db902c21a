"""The HTTP address: opened only when needed; health, counts and surfaces' routes answered."""

from __future__ import annotations

import asyncio
import io
import json
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import ClientSession, web

from bot import settings
from bot.web.address import Web
from bot.web.counts import SERIES, Counts
from engine.errors import SettingsError


@dataclass
class House:
    """What the server is asked of."""

    counts: Counts = field(default_factory=Counts)
    ready: bool = True
    parts: Mapping[str, str] = field(default_factory=lambda: {"store": "ok"})

    async def told(self) -> tuple[bool, Mapping[str, str]]:
        return self.ready, self.parts


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
async def served(house: House) -> AsyncIterator[Web]:
    async with Web(settings.Web(port=0), house.counts, house.told) as made:
        yield made


async def asked(served: Web, path: str, method: str = "GET", **more: Any) -> tuple[int, str]:
    async with ClientSession() as client, client.request(method, served.url + path, **more) as got:
        return got.status, await got.text()


async def hello(request: web.Request) -> web.StreamResponse:
    return web.Response(text=f"hello {await request.text()}")


async def test_without_a_port_or_a_route_nothing_listens(house: House) -> None:
    async with Web(settings.Web(), house.counts, house.told) as made:
        assert made.port == 0


async def test_health_and_readiness_are_told(served: Web, house: House) -> None:
    assert await asked(served, "/healthz") == (200, "ok\n")
    status, text = await asked(served, "/readyz")
    assert (status, json.loads(text)) == (200, {"ready": True, "store": "ok"})
    house.ready, house.parts = False, {"store": "StoreBusy"}
    status, text = await asked(served, "/readyz")
    assert (status, json.loads(text)) == (503, {"ready": False, "store": "StoreBusy"})


async def test_a_store_that_hangs_is_not_ready(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.web.serving.LOOK", 0.05)

    async def hanging() -> tuple[bool, Mapping[str, str]]:
        await asyncio.Event().wait()
        raise AssertionError

    async with Web(settings.Web(port=0), house.counts, hanging) as made:
        assert (await asked(made, "/readyz"))[0] == 503
        assert (await asked(made, "/healthz"))[0] == 200


async def test_a_route_is_answered_from_when_it_is_added_until_it_is_removed(served: Web) -> None:
    assert (await asked(served, "/slack/events", "POST", data="x"))[0] == 404
    await served.add("POST", "/slack/events", hello)
    assert await asked(served, "/slack/events", "POST", data="you") == (200, "hello you")
    assert (await asked(served, "/slack/events"))[0] == 404
    served.remove("POST", "/slack/events")
    assert (await asked(served, "/slack/events", "POST", data="x"))[0] == 404


async def test_a_first_route_opens_the_server(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr("bot.web.address.PORT", free.getsockname()[1])
    async with Web(settings.Web(), house.counts, house.told) as made:
        await asyncio.gather(made.add("GET", "/a", hello), made.add("GET", "/b", hello))
        assert (await asked(made, "/b"))[0] == 200


async def test_a_route_has_one_owner(served: Web) -> None:
    await served.add("GET", "/a", hello)
    with pytest.raises(ValueError, match="answered already"):
        await served.add("GET", "/a", hello)


async def test_an_address_in_use_is_told_with_what_to_set(house: House) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listening = settings.Web(port=taken.getsockname()[1])
        with pytest.raises(SettingsError, match=r"cannot listen.*web\.port"):
            await Web(listening, house.counts, house.told).__aenter__()


async def test_a_failing_route_is_a_500_that_tells_nothing(
    served: Web, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        raise RuntimeError("xoxb-secret")

    await served.add("POST", "/hook", broken)
    status, text = await asked(served, "/hook", "POST")
    assert (status, "xoxb" in text, "xoxb" in caplog.text) == (500, False, False)
    assert house.counts.get("nod_requests_total", path="/hook", status="500") == 1


async def test_a_body_over_the_limit_is_refused(served: Web) -> None:
    await served.add("POST", "/hook", hello)
    status, _ = await asked(served, "/hook", "POST", data=io.BytesIO(b"x" * 4_100_000))
    assert status == 413


async def test_counts_are_told_as_prometheus_reads_them(served: Web, house: House) -> None:
    house.counts.add("nod_events_total", surface="slack", status="accepted")
    house.counts.add("nod_events_total", 2, surface='a"b\\', status="accepted")
    status, text = await asked(served, "/metrics")
    assert status == 200
    assert 'nod_events_total{status="accepted",surface="slack"} 1\n' in text
    assert 'nod_events_total{status="accepted",surface="a\\"b\\\\"} 2\n' in text
    assert "# TYPE nod_events_total counter\n" in text


async def test_unknown_paths_do_not_grow_the_counts(served: Web, house: House) -> None:
    for n in range(3):
        await asked(served, f"/wp-login-{n}.php")
    assert house.counts.get("nod_requests_total", path="other", status="404") == 3


def test_labels_without_end_are_counted_together() -> None:
    counts = Counts()
    for n in range(SERIES + 5):
        counts.add("nod_refused_total", reason=str(n))
    assert counts.get("nod_refused_total") == 5
    with pytest.raises(KeyError):
        counts.add("nod_no_such_total")
