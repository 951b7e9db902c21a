"""Commands about accounts: what is listed, connected, shared and switched off, and by whom."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.commands.base import Context
from bot.commands.table import run
from bot.inbound.answers import Defaults, House
from connectors import accounts, gates
from connectors.accounts import Account
from connectors.credentials import secret_name
from engine import people
from engine.canonical import loads
from engine.errors import NodError
from engine.inbox import Person
from engine.models.catalogue import Catalogue
from engine.store.base import Store
from tests.fakes.acme import ANA, BO, Acme, acme_at
from tests.fakes.oauth import FakeOAuth, fake_oauth, oauth_at

DM, CHANNEL = "telegram:7/42", "telegram:7/-100/9"


@pytest.fixture
async def fake() -> AsyncIterator[FakeOAuth]:
    async with fake_oauth() as server:
        yield server


@pytest.fixture
async def acme(
    fake: FakeOAuth, sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Acme]:
    auth = oauth_at(fake.url)
    async with acme_at(
        fake.url, sqlite_store, tmp_path, monkeypatch, oauth=auth, keyed=True
    ) as made:
        yield made


def context(acme: Acme, person: Person, target: str, **changed: Any) -> Context:
    defaults = Defaults(persona="cowork", model="practice:rules", mode="interactive")
    made = Context(
        store=acme.store,
        house=House(
            tenant="local", data=Path("nowhere"), now=lambda: acme.clock[0], defaults=defaults
        ),
        catalogue=Catalogue.load(),
        enqueue=lambda session: None,
        poke=lambda: None,
        connecting=acme.connecting,
    )
    return replace(made, person=person, target=target, **changed)


async def do(
    acme: Acme, line: str, person: Person = ANA, target: str = "console:main", **changed: Any
) -> str:
    name, _, arguments = line.partition(" ")
    return await run(context(acme, person, target, **changed), name, arguments)


async def connected(acme: Acme, label: str, owner: str = ANA.id) -> Account:
    account = await acme.store.write(
        lambda tx: accounts.add(tx, "local", "acme", label, owner, now=1.0)
    )
    await acme.credentials.keep(account.id, {"key": "good-key"})
    return account


async def off(acme: Acme) -> list[tuple[str, str]]:
    return await acme.store.read(lambda tx: gates.listed(tx, "local"))


async def test_the_list_says_what_is_there_and_whose(acme: Acme) -> None:
    assert "**Acme & Co** `acme`: not connected." in await do(acme, "connect")
    await connected(acme, "ana-work")
    bos = await connected(acme, "bo-team", BO.id)
    listed = await do(acme, "connect")
    assert "- `ana-work`, yours" in listed
    assert "bo-team" not in listed
    await do(acme, "share acme", BO)
    await acme.store.write(lambda tx: accounts.mark(tx, bos, "revoked", 1.0))
    listed = await do(acme, "connect")
    assert "- `bo-team`, of Bo, shared with everybody, **to be connected again**" in listed
    await do(acme, "unshare acme", BO)
    assert "bo-team" not in await do(acme, "connect")


async def test_what_nobody_knows_is_told_with_what_there_is(acme: Acme) -> None:
    with pytest.raises(NodError, match=r"no connector 'githbu'.*There are: acme"):
        await do(acme, "connect githbu")


async def test_a_process_without_pages_says_so(acme: Acme) -> None:
    with pytest.raises(NodError, match="needs a running Nod"):
        await do(acme, "connect", connecting=None)


async def test_without_an_address_a_code_is_given_and_waited_for(
    acme: Acme, fake: FakeOAuth
) -> None:
    fake.device_answers = ["yes"]
    said = await do(acme, "connect acme", BO, "slack:T1/C1/1.1")
    assert f"open {fake.url}/activate and enter the code `WDJB-MJHT`" in said
    assert await acme.connecting.outcome() == "Acme & Co is connected: Signed in as ana."
    (account,) = await acme.accounts()
    assert account.owner == BO.id
    ((place, payload),) = await acme.told()
    assert (place, loads(payload)["text"]) == ("slack:T1/C1/1.1", "Acme & Co is connected for Bo.")


async def test_a_code_that_is_turned_down_is_told_in_the_thread(
    acme: Acme, fake: FakeOAuth
) -> None:
    fake.device_answers = ["access_denied"]
    await do(acme, "connect acme device")
    assert "was not connected" in await acme.connecting.outcome()
    ((_, payload),) = await acme.told()
    assert "access_denied" in loads(payload)["text"]


async def test_where_there_is_no_way_it_says_what_to_set(
    fake: FakeOAuth, sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with acme_at(
        fake.url, sqlite_store, tmp_path, monkeypatch, oauth=None, keyed=True
    ) as acme:
        with pytest.raises(NodError, match=r"Set web\.url.*nod connect acme"):
            await do(acme, "connect acme", BO, "slack:T1/C1/1.1")


async def test_a_link_goes_where_only_the_person_reads_it(
    fake: FakeOAuth, sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with acme_at(
        fake.url,
        sqlite_store,
        tmp_path,
        monkeypatch,
        oauth=oauth_at(fake.url),
        public="https://nod.example",
    ) as acme:
        said = await do(acme, "connect acme", BO, "slack:T1/C1/1.1")
        assert "https://nod.example/connect/" in said  # only its sender sees it on Slack
        with pytest.raises(NodError, match="in private"):
            await do(acme, "connect acme", BO, CHANNEL)

        def known(tx: Any) -> None:
            people.add_person(
                tx,
                "local",
                "telegram",
                "42",
                name="Bo",
                role="member",
                by="console",
                now=1.0,
                principal=BO.id,
            )
            people.seen_at(tx, "local", "telegram", "42", DM, 2.0)

        await acme.store.write(known)
        assert await do(acme, "connect acme", BO, CHANNEL) == "I have sent you the link in private."
        ((place, text),) = list(acme.whispers)
        assert (place, "https://nod.example/connect/" in text) == (DM, True)
        assert "https://nod.example/connect/" in await do(acme, "connect acme", BO, DM)
        said = await acme.connecting.offer(BO, "acme", DM, pressed=True)
        assert said == "I have sent you the link in private."
        assert [place for place, _ in acme.whispers] == [DM, DM]
        assert text.split("/connect/")[1].split()[0].encode() not in b"".join(
            file.read_bytes() for file in tmp_path.glob("nod.db*")
        )


async def test_an_account_is_disconnected_with_its_secret(acme: Acme, fake: FakeOAuth) -> None:
    await connected(acme, "ana-work")
    other = await connected(acme, "ana-home")
    with pytest.raises(NodError, match="several accounts"):
        await do(acme, "disconnect acme")
    said = await do(acme, "disconnect acme ana-work")
    assert "ana-work) is disconnected" in said
    assert "Its service was not told" in said
    assert acme.secrets.names() == [secret_name(other.id)]
    with pytest.raises(NodError, match="have not connected"):
        await do(acme, "disconnect acme", BO)


async def test_a_key_from_a_shell_is_taken_over_once_and_only_from_there(acme: Acme) -> None:
    entry = json.dumps({"kind": "key", "key": "good-key", "site": ""})
    acme.secrets.set(secret_name("k0000000000aa"), entry)
    with pytest.raises(NodError, match="never passes through chat"):
        await do(acme, "connect acme k0000000000aa", BO, "slack:T1/C1/1.1")
    assert await do(acme, "connect acme k0000000000aa") == (
        "Acme & Co is connected: Signed in as ana."
    )
    (account,) = await acme.accounts()
    assert acme.secrets.names() == [secret_name(account.id)]
    with pytest.raises(NodError, match="holds no such key"):
        await do(acme, "connect acme k0000000000aa")
    with pytest.raises(NodError, match="cannot be connected with this"):
        await do(acme, f"connect acme {account.id}")


@pytest.mark.parametrize(
    ("line", "scope"),
    [
        pytest.param("off acme here", f"channel:{'telegram:7/-100'}", id="here"),
        pytest.param("off acme for me", "person:console", id="for-me"),
        pytest.param("off acme persona cowork", "persona:cowork", id="for-a-persona"),
    ],
)
async def test_a_connector_is_switched_off_and_on_again(acme: Acme, line: str, scope: str) -> None:
    await connected(acme, "ana-work")
    said = await do(acme, f"connectors {line}", target=CHANNEL)
    assert "no tools, and no events of it" in said
    assert await off(acme) == [("acme", scope)]
    assert "already off" in await do(acme, f"connectors {line}", target=CHANNEL)
    assert "(off " in await do(acme, "connect", target=CHANNEL)
    assert scope in await do(acme, "connectors")
    await do(acme, f"connectors {line.replace('off', 'on')}", target=CHANNEL)
    assert await off(acme) == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("off acme here", "Ask an operator"),
        ("off acme persona cowork", "Only an owner"),
        ("off other for me", "no connector 'other'"),
        ("off acme everywhere", "was not understood"),
        ("acme", "was not understood"),
    ],
)
async def test_what_a_member_may_not_switch(acme: Acme, line: str, why: str) -> None:
    with pytest.raises(NodError, match=why):
        await do(acme, f"connectors {line}", BO, CHANNEL)
    assert await off(acme) == []


async def test_a_persona_that_there_is_not_is_told(acme: Acme) -> None:
    with pytest.raises(NodError, match="no persona 'cowrok'"):
        await do(acme, "connectors off acme persona cowrok")
    assert await off(acme) == []


async def test_an_account_with_a_name_of_several_words_is_meant_without_quotes(acme: Acme) -> None:
    for label in ("Acme (North)", "Acme (South)"):
        await connected(acme, label)
    assert "Acme (South)) is now" in await do(acme, "share acme Acme (South)")
    assert "Acme (North)) is disconnected" in await do(acme, "disconnect acme Acme (North)")


async def test_leaving_while_a_code_is_waited_for_ends_the_wait(
    acme: Acme, fake: FakeOAuth
) -> None:
    fake.device_answers = ["authorization_pending"] * 900
    await do(acme, "connect acme device")
    async with asyncio.timeout(5):
        await acme.connecting.__aexit__(None, None, None)
    assert await acme.accounts() == []
