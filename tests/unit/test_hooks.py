"""`POST /hooks/<token>` over a real server: whose it is, how much, how often, signed, and once."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import io
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from aiohttp import ClientSession

from bot import settings
from bot.commands.table import run
from bot.web.address import Web
from bot.web.counts import Counts
from bot.web.hooks import BURST, Hooks, fits
from engine.errors import NodError, VaultError
from engine.inbox import Person
from engine.schedule import hooks, named
from engine.schedule.hooks import Hook
from engine.store.base import Store
from tests.fakes.chat import chatting
from tests.fakes.scripted import ScriptedModel

NOW = 1_750_057_320.0
LIMIT = named.PAYLOAD_LIMIT - 1_000


@dataclass
class Kept:
    """Secrets in a dict."""

    values: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> str:
        return self.values.get(name, "")

    def set(self, name: str, value: str) -> None:
        self.values[name] = value

    def delete(self, name: str) -> bool:
        return self.values.pop(name, None) is not None


@dataclass
class Door:
    """A served hook, and what calling it led to."""

    store: Store
    web: Web
    hooks: Hooks
    counts: Counts
    kept: Kept
    fired: list[int]
    at: list[float]

    async def made(self, *, signed: bool = False) -> tuple[Hook, str]:
        """Make a hook and return it with its address."""
        hook, token = await self.store.write(
            lambda tx: hooks.add(
                tx, tenant="local", name="deploy-done", owner="console", signed=signed, now=NOW
            )
        )
        return hook, await self.hooks.address(token)

    async def events(self) -> list[str]:
        rows = await self.store.read(lambda tx: tx.all("t_events"))
        return [row["payload"] for row in rows]


@pytest.fixture
async def door(sqlite_store: Any) -> AsyncIterator[Door]:
    sqlite_store.queries["t_events"] = "select payload from events order by at, id"
    counts, kept, fired, at = Counts(), Kept(), [0], [NOW]

    async def ready() -> tuple[bool, Mapping[str, str]]:
        return True, {}

    def told() -> None:
        fired[0] += 1

    async with Web(settings.Web(port=0), counts, ready) as web:
        served: Any = Hooks(
            store=sqlite_store, web=web, secrets=kept, now=lambda: at[0], fired=told
        )  # type: ignore[arg-type]
        yield Door(sqlite_store, web, served, counts, kept, fired, at)


async def post(url: str, body: Any = b"{}", **headers: str) -> tuple[int, str, Mapping[str, str]]:
    named_so = {name.replace("_", "-"): value for name, value in headers.items()}
    async with ClientSession() as client, client.post(url, data=body, headers=named_so) as got:
        return got.status, await got.text(), got.headers


async def test_a_call_is_the_event_before_it_is_answered(door: Door) -> None:
    _, url = await door.made()
    status, text, _ = await post(url, b'{"ok":true}')
    assert status == 202 and '"event": "e' in text
    assert await door.events() == ['{"ok":true}']
    assert door.fired == [1]


@pytest.mark.parametrize("header", ["X-GitHub-Delivery", "Idempotency-Key", "Webhook-Id"])
async def test_the_same_delivery_counts_once(door: Door, header: str) -> None:
    _, url = await door.made()
    told = [(await post(url, **{header: delivery}))[0] for delivery in ("a", "a", "b")]
    assert told == [202, 200, 202]
    assert len(await door.events()) == 2 and door.fired == [2]


async def test_calls_at_once_of_one_delivery_count_once(door: Door) -> None:
    _, url = await door.made()
    told = await asyncio.gather(*(post(url, Idempotency_Key="a") for _ in range(8)))
    assert sorted(status for status, _, _ in told) == [200] * 7 + [202]


async def test_a_path_that_is_no_hook_s_is_a_404_and_so_is_a_revoked_one(door: Door) -> None:
    hook, url = await door.made()
    for path in ("nothing", "", "a/b", "x" * 5_000):
        assert (await post(f"{door.web.url}/hooks/{path}"))[0] == 404
    assert (await post(url[:-1] + ("A" if url[-1] != "A" else "B")))[0] == 404
    await door.store.write(lambda tx: hooks.revoke(tx, hook, "console", NOW))
    status, text, _ = await post(url)
    assert (status, text) == (404, "There is nothing here.\n")
    assert await door.events() == []


async def test_a_path_that_can_be_no_token_costs_no_look_at_the_store(door: Door) -> None:
    await door.made()

    async def refused(work: Any) -> Any:
        raise AssertionError("the store was asked")

    door.store.read = refused  # type: ignore[method-assign]
    for path in ("nothing", "x" * 31, "x" * 33, "%C3%A4" * 32, "x" * 31 + "."):
        assert (await post(f"{door.web.url}/hooks/{path}"))[0] == 404


async def test_no_count_and_no_row_holds_a_token(door: Door, caplog: Any) -> None:
    _, url = await door.made()
    token = url.rpartition("/")[2]
    await post(url)
    assert door.counts.get("nod_requests_total", path="/hooks/*", status="202") == 1
    rows = await door.store.read(lambda tx: tx.all("hooks_standing", tenant="local"))
    assert token not in door.counts.text() + str([dict(row) for row in rows]) + caplog.text


@pytest.mark.parametrize("told", [True, False], ids=["told", "streamed"])
async def test_a_body_over_the_limit_is_refused_and_one_at_it_taken(door: Door, told: bool) -> None:
    _, url = await door.made()

    def body(size: int) -> Any:
        return b"x" * size if told else io.BytesIO(b"x" * size)

    assert (await post(url, body(LIMIT + 1)))[0] == 413
    assert await door.events() == []
    assert (await post(url, body(LIMIT)))[0] == 202


async def test_what_is_no_text_is_refused(door: Door) -> None:
    _, url = await door.made()
    assert (await post(url, b"\xff\xfe"))[0] == 415


async def test_calls_without_end_are_told_to_wait(door: Door) -> None:
    _, url = await door.made()
    _, other = await door.made()
    told = [(await post(url))[0] for _ in range(BURST)]
    status, _, headers = await post(url)
    assert (set(told), status, headers["Retry-After"]) == ({202}, 429, "1")
    assert (await post(other))[0] == 202  # each hook has its own share
    door.at[0] += 1
    assert [(await post(url))[0] for _ in range(2)] == [202, 429]


def github(key: str, body: bytes) -> dict[str, str]:
    return {"X-Hub-Signature-256": "sha256=" + hmac.new(key.encode(), body, "sha256").hexdigest()}


def slack(key: str, body: bytes, at: int) -> dict[str, str]:
    signed = hmac.new(key.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
    return {"X-Slack-Request-Timestamp": str(at), "X-Slack-Signature": f"v0={signed}"}


BODY = b'{"a":1}'


@pytest.mark.parametrize(
    ("headers", "good"),
    [
        pytest.param(github("key", BODY), True, id="github"),
        pytest.param(github("other", BODY), False, id="github-other-key"),
        pytest.param(github("key", b"{}"), False, id="github-other-body"),
        pytest.param(slack("key", BODY, int(NOW) - 299), True, id="slack"),
        pytest.param(slack("key", BODY, int(NOW) - 301), False, id="slack-old"),
        pytest.param(slack("key", BODY, int(NOW) + 301), False, id="slack-ahead"),
        pytest.param(
            {**slack("key", BODY, 7), "X-Slack-Request-Timestamp": "²"}, False, id="no-time"
        ),
        pytest.param({"X-Hub-Signature-256": "sha256=ü"}, False, id="not-ascii"),
        pytest.param({"X-Hub-Signature": "sha1=00"}, False, id="sha1"),
        pytest.param({}, False, id="unsigned"),
    ],
)
def test_a_signature_fits_its_key_body_and_time(headers: dict[str, str], good: bool) -> None:
    assert fits("key", headers, BODY, NOW) is good


# GitHub's own example: https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
def test_a_known_signature_fits() -> None:
    signed = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    key, body = "It's a Secret to Everybody", b"Hello, World!"
    assert fits(key, {"X-Hub-Signature-256": signed}, body, NOW)


async def test_a_signed_hook_takes_only_what_is_signed(door: Door) -> None:
    hook, url = await door.made(signed=True)
    assert (await post(url))[0] == 503  # its key is gone: nobody is let in for that
    await door.hooks.keep_key(hook, "key")
    assert (await post(url))[0] == 401
    assert await door.events() == []
    assert (await post(url, BODY, **github("key", BODY)))[0] == 202


async def test_github_s_ping_is_no_event_and_its_kind_is_told(door: Door) -> None:
    _, url = await door.made()
    assert (await post(url, X_GitHub_Event="ping"))[0] == 200
    assert (await post(url, X_GitHub_Event="push"))[0] == 202
    assert await door.events() == ["X-GitHub-Event: push\n{}"]


async def test_the_path_is_open_from_the_start_where_the_server_is(door: Door) -> None:
    """Another process, on the same store, may make the hook later."""
    await door.hooks.start("local")
    _, token = await door.store.write(
        lambda tx: hooks.add(tx, tenant="local", name="x", owner="console", signed=False, now=NOW)
    )
    assert (await post(f"{door.web.url}/hooks/{token}"))[0] == 202


async def test_without_a_hook_or_a_port_no_server_is_opened(sqlite_store: Store) -> None:
    async def ready() -> tuple[bool, Mapping[str, str]]:
        return True, {}

    async with Web(settings.Web(), Counts(), ready) as web:
        kept: Any = Kept()
        served = Hooks(
            store=sqlite_store, web=web, secrets=kept, now=lambda: NOW, fired=lambda: None
        )
        await served.start("local")
        assert web.port == 0


# -- the command


@pytest.fixture
async def told(sqlite_store: Store, tmp_path: Any, door: Door) -> AsyncIterator[Any]:
    async with chatting(
        sqlite_store, tmp_path, ScriptedModel(), at_work=False, presenting=False, now=lambda: NOW
    ) as chat:

        async def do(line: str, target: str = "console:main", role: str = "owner") -> str:
            person = Person(id="console", role=role, name="ana")
            context = replace(chat.context, person=person, target=target, doors=door.hooks)
            return await run(context, "hook", line)

        yield do


async def test_a_hook_is_made_told_once_listed_and_revoked(told: Any, door: Door) -> None:
    said = await told("add Deploy-Done")
    url = next(word for word in said.replace("`", " ").split() if "/hooks/" in word)
    assert (await post(url))[0] == 202
    listed = await told("list")
    assert "deploy-done" in listed and "1 call" in listed and url.rpartition("/")[2] not in listed
    assert "revoked" in await told("revoke deploy-done")
    assert (await post(url))[0] == 404
    assert "no hooks" in await told("")


async def test_a_signed_hook_s_key_is_kept_in_the_vault_and_forgotten(
    told: Any, door: Door
) -> None:
    said = await told("add deploy signed")
    [(name, key)] = door.kept.values.items()
    assert name.startswith("NOD_HOOK_H") and key in said
    await told("revoke deploy")
    assert door.kept.values == {}


async def test_a_key_that_cannot_be_kept_leaves_no_hook(
    told: Any, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(name: str, value: str) -> None:
        raise VaultError("No room.")

    monkeypatch.setattr(door.kept, "set", full)
    with pytest.raises(VaultError):
        await told("add deploy signed")
    assert "no hooks" in await told("list")


@pytest.mark.parametrize(
    ("line", "target", "role", "says"),
    [
        pytest.param("add x", "slack:T1/C1", "owner", "others read here", id="in-a-channel"),
        pytest.param("add x", "console:main", "member", "role operator", id="member"),
        pytest.param("add", "console:main", "owner", "not understood", id="no-name"),
        pytest.param("add a|b", "console:main", "owner", "no name of an event", id="bad-name"),
        pytest.param("add x unsigned", "console:main", "owner", "not understood", id="word"),
        pytest.param("add GitHub-review", "console:main", "owner", "Only connected", id="an-apps"),
        pytest.param("revoke x", "console:main", "owner", "No hook", id="no-such"),
    ],
)
async def test_what_cannot_be_is_refused(
    told: Any, line: str, target: str, role: str, says: str
) -> None:
    with pytest.raises(NodError, match=says):
        await told(line, target, role)
