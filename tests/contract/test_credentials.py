"""What opens an account is renewed once, kept whole, and refused in words, on both stores."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from connectors import accounts
from connectors.accounts import Account
from connectors.base import Field, Key, Open
from connectors.credentials import Credentials, held_values, secret_name
from connectors.oauth import Token, Vendor
from connectors.secrets import Secrets
from engine.errors import NeedsConnection, NodError, ToolError
from engine.store.base import Store
from tests.fakes.oauth import FakeOAuth, fake_oauth, oauth_at

TENANT = "local"
FIELD = (Field(name="key", title="Key"),)
ENVIRON = {
    "NOD_VAULT_PASSPHRASE": "correct horse battery",
    "ACME_CLIENT_ID": "nod-client",
    "ACME_CLIENT_SECRET": "nod-client-secret",
}


@dataclass
class Bench:
    """One process's credentials, at a token server."""

    store: Store
    server: FakeOAuth
    data: Path
    now: float = 1_000_000.0
    hidden: list[str] = field(default_factory=list)
    ways: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.vendor = Vendor(lambda: self.now)
        self.secrets = Secrets(ENVIRON, self.data)
        self.ways["acme"] = (oauth_at(self.server.url),)
        self.credentials = Credentials(
            store=self.store,
            secrets=self.secrets,
            vendor=self.vendor,
            ways=self.ways.__getitem__,
            now=lambda: self.now,
            hide=self.hidden.extend,
        )

    async def connected(
        self, *, lasts: float | None = 3600.0, refreshes: bool = True, connector: str = "acme"
    ) -> Account:
        made = await self.store.write(
            lambda tx: accounts.add(tx, TENANT, connector, "ana", "ana", now=self.now)
        )
        given = self.server.grant()
        token = Token(
            access=given["access_token"],
            refresh=given["refresh_token"] if refreshes else "",
            expires_at=None if lasts is None else self.now + lasts,
        )
        await self.credentials.keep(made.id, token)
        return made

    async def status(self, account: Account) -> str:
        found = await self.store.read(lambda tx: accounts.get(tx, account.id))
        assert found is not None
        return found.status


@pytest.fixture
async def bench(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Bench]:
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
    async with fake_oauth() as server:
        made = Bench(store, server, tmp_path)
        yield made
        await made.credentials.aclose()
        await made.vendor.aclose()


def live(bench: Bench, headers: Mapping[str, str]) -> bool:
    return headers["Authorization"].removeprefix("Bearer ") in bench.server.live


async def test_a_token_that_lasts_is_used_as_it_is(bench: Bench) -> None:
    account = await bench.connected()
    assert live(bench, await bench.credentials.headers(account))
    assert bench.server.refreshes == 0


async def test_a_token_about_to_end_is_renewed_before_it_is_used(bench: Bench) -> None:
    account = await bench.connected(lasts=20.0)
    first = await bench.credentials.headers(account)
    assert live(bench, first)
    assert first == await bench.credentials.headers(account)
    assert bench.server.refreshes == 1


async def test_many_callers_share_one_renewal(bench: Bench) -> None:
    account = await bench.connected(lasts=0.0)
    got = await asyncio.gather(*(bench.credentials.headers(account) for _ in range(20)))
    assert len({each["Authorization"] for each in got}) == 1
    assert bench.server.refreshes == 1


async def test_what_the_service_refused_is_renewed_once(bench: Bench) -> None:
    account = await bench.connected(lasts=None)
    spent = await bench.credentials.headers(account)
    first = await bench.credentials.renewed(account, spent)
    second = await bench.credentials.renewed(account, spent)  # who came late takes what is there
    assert first == second != spent
    assert bench.server.refreshes == 1
    assert await bench.status(account) == "ok"


async def test_a_stop_of_who_asked_loses_no_refresh_token(bench: Bench) -> None:
    account = await bench.connected(lasts=0.0)
    asking = asyncio.create_task(bench.credentials.headers(account))
    while not bench.server.refreshes:
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await bench.credentials.aclose()
    bench.now += 7200.0
    assert live(bench, await bench.credentials.headers(account))
    assert bench.server.refreshes == 2


async def test_a_refused_renewal_asks_the_owner_to_connect_it_again(bench: Bench) -> None:
    account = await bench.connected()
    spent = await bench.credentials.headers(account)
    bench.server.refresh.clear()
    with pytest.raises(NeedsConnection) as caught:
        await bench.credentials.renewed(account, spent)
    assert (caught.value.connector, caught.value.account) == ("acme", "ana")
    assert caught.value.person == "ana"
    assert await bench.status(account) == "revoked"


@pytest.mark.parametrize("fault", [(503, "x"), (429, "x"), (401, "invalid_client"), (400, "odd")])
async def test_a_passing_fault_or_one_of_set_up_revokes_nothing(
    bench: Bench, fault: tuple[int, str]
) -> None:
    account = await bench.connected(lasts=0.0)
    bench.server.faults.append(fault)
    with pytest.raises(ToolError) as caught:
        await bench.credentials.headers(account)
    assert not isinstance(caught.value, NeedsConnection)
    assert await bench.status(account) == "ok"
    assert live(bench, await bench.credentials.headers(account))


async def test_a_token_that_cannot_be_renewed_needs_the_person(bench: Bench) -> None:
    account = await bench.connected(lasts=None, refreshes=False)
    spent = await bench.credentials.headers(account)
    with pytest.raises(NeedsConnection):
        await bench.credentials.renewed(account, spent)
    assert bench.server.refreshes == 0


async def test_an_account_without_a_secret_needs_the_person(bench: Bench) -> None:
    account = await bench.connected()
    bench.secrets.delete(secret_name(account.id))
    with pytest.raises(NeedsConnection, match="not connected any more"):
        await bench.credentials.headers(account)


@pytest.mark.parametrize(
    ("ways", "held", "headers"),
    [
        pytest.param(
            (Key(fields=FIELD, headers=lambda held: {"X-Api-Key": held["key"]}),),
            {"key": "lin_api_1"},
            {"X-Api-Key": "lin_api_1"},
            id="a-header-of-its-own",
        ),
        pytest.param(
            (
                oauth_at("http://127.0.0.1:1"),
                Key(fields=FIELD, headers=lambda held: {"Authorization": held["key"]}),
            ),
            {"key": "lin_api_2"},
            {"Authorization": "lin_api_2"},
            id="where-there-is-another-way-too",
        ),
    ],
)
async def test_a_key_becomes_the_header_its_service_wants(
    bench: Bench, ways: Any, held: dict[str, str], headers: dict[str, str]
) -> None:
    account = await bench.connected(connector="keyed")
    bench.ways["keyed"] = ways
    await bench.credentials.keep(account.id, held)
    assert await bench.credentials.headers(account) == headers
    with pytest.raises(NeedsConnection):
        await bench.credentials.renewed(account, headers)
    assert await bench.status(account) == "revoked"


async def test_what_was_disconnected_is_forgotten_here_and_there(bench: Bench) -> None:
    account = await bench.connected()
    assert await bench.credentials.forget(account)
    assert bench.server.revoked == ["refresh-token-0001"]
    assert bench.secrets.names() == []
    assert not await bench.credentials.forget(account)


async def test_an_account_disconnected_during_its_renewal_leaves_no_secret(bench: Bench) -> None:
    account = await bench.connected(lasts=0.0)
    await bench.store.write(lambda tx: accounts.disconnect(tx, account, by="ana", now=bench.now))
    with pytest.raises(NeedsConnection, match="disconnected"):
        await bench.credentials.headers(account)
    assert bench.secrets.names() == []


async def test_what_a_crash_left_in_the_vault_is_swept_away(bench: Bench) -> None:
    account = await bench.connected()
    await bench.credentials.keep("k0000000000bb", {"key": "left"})
    bench.secrets.set("SLACK_BOT_TOKEN", "xoxb-1")
    assert await bench.credentials.sweep() == 0  # it may be under way
    bench.now += 3601.0
    assert await bench.credentials.sweep() == 1
    assert bench.secrets.names() == ["SLACK_BOT_TOKEN", secret_name(account.id)]


async def test_every_secret_word_is_hidden_from_the_log(bench: Bench) -> None:
    account = await bench.connected(lasts=0.0)
    await bench.credentials.headers(account)
    assert {"access-token-0001", "refresh-token-0001", "access-token-0002"} <= set(bench.hidden)
    entry = bench.secrets.get(secret_name(account.id))
    assert "refresh-token-0002" in held_values(secret_name(account.id), entry)
    assert held_values("SLACK_BOT_TOKEN", "xoxb-1") == ["xoxb-1"]


async def test_without_a_client_it_says_what_to_set(bench: Bench) -> None:
    bench.secrets = Secrets({"NOD_VAULT_PASSPHRASE": "correct horse battery"}, bench.data)
    credentials = Credentials(
        store=bench.store,
        secrets=bench.secrets,
        vendor=bench.vendor,
        ways=bench.ways.__getitem__,
        now=lambda: bench.now,
    )
    with pytest.raises(NodError, match="nod secrets set ACME_CLIENT_ID"):
        await credentials.client(bench.ways["acme"][0])


async def test_what_needs_no_account_has_no_headers(bench: Bench) -> None:
    account = await bench.connected(connector="open")
    bench.ways["open"] = (Open(),)
    await bench.credentials.keep(account.id, {})
    assert await bench.credentials.headers(account) == {}


async def test_two_processes_renew_once_and_lose_no_refresh_token(
    store: Store, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round both find the token spent at once; a token used twice would revoke them all."""
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
    async with fake_oauth() as server:
        bench = Bench(store, server, tmp_path)
        account = await bench.connected(lasts=-1_000_000.0)  # spent, for a real clock, too
        given = [store_url, str(tmp_path), server.url, account.id, "4"]
        environ = {**os.environ, **ENVIRON}
        both = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.fakes.renewing", *given),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=environ,
            )
            for _ in range(2)
        ]
        assert [await _line(each) for each in both] == [b"ready\n"] * 2
        rounds = 5
        for number in range(rounds):
            for each in both:
                assert each.stdin is not None
                each.stdin.write(b"headers\n" if number == 0 else b"renewed\n")
            got = [json.loads(await _line(each)) for each in both]
            assert len({header for each in got for header in each}) == 1
            assert server.refreshes == number + 1
            assert server.live, "a refresh token was used twice"
        for each in both:
            await each.communicate(b"")
            assert each.returncode == 0


async def _line(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    async with asyncio.timeout(40):
        return await process.stdout.readline()
