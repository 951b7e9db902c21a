"""MCP servers with a sign-in, from the command to the call, and what happens when it ends."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from bot import settings
from bot.app import App
from bot.commands import table as commands
from connectors import accounts
from connectors.accounts import Account
from connectors.mcp.house import Servers
from connectors.registry import Secrets
from engine import people, sessions
from engine.errors import NeedsConnection, NodError
from engine.events import Kind
from engine.inbox import Person
from engine.store.base import Store
from engine.tools.base import ToolContext
from tests.fakes.context import make_context
from tests.fakes.mcp_http import served
from tests.fakes.mcp_signin import SignIn, signed_in
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.world import running

OWNER = Person(id=people.CONSOLE, role="owner", name="console")


@pytest.fixture
async def far() -> AsyncIterator[SignIn]:
    async with signed_in() as server:
        yield server


@pytest.fixture
async def nod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")  # its server has no TLS here
    environ = {
        "NOD_HOME": str(tmp_path / "data"),
        "NOD_MODEL": "practice:rules",
        "NOD_WEB_PORT": "0",
        "NOD_VAULT_PASSPHRASE": "a passphrase of the test",
    }
    (tmp_path / "data").mkdir()
    async with App(settings.load(environ), environ) as running:
        yield running


async def said(nod: App, words: str, target: str = "console:main") -> str:
    return await commands.run(nod.context.of(OWNER, target), "mcp", words)


async def signed(nod: App, far: SignIn) -> str:
    """Add the server, ask for its link, and say yes at its page; returns the last page."""
    await said(nod, f"add far {far.server.url} --oauth", "shell:nod")
    return await visited(far, await said(nod, "connect far"))


async def visited(far: SignIn, told: str) -> str:
    link = re.search(r"http://\S+/connect/\S+", told)
    assert link, told
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as browser:
        async with browser.post(link[0], data={"way": "oauth"}) as answer:
            page = await answer.text()
        onward = re.search(r'http-equiv="refresh" content="0;url=([^"]+)"', page)
        assert onward, page
        asked = {k: v[0] for k, v in parse_qs(urlsplit(unescape(onward[1])).query).items()}
        assert asked["resource"] == far.server.url
        code = far.oauth.approve(asked["code_challenge"], asked["redirect_uri"])
        there = f"{asked['redirect_uri']}?code={code}&state={asked['state']}"
        async with browser.get(there) as answer:
            return await answer.text()


async def ready(nod: App, name: str = "far") -> None:
    async with asyncio.timeout(15):
        while next(e.state for e in nod._mcp.status() if e.name == name) != "ready":
            await asyncio.sleep(0.02)


async def called(nod: App, tmp_path: Path) -> str:
    tool = nod._tools.get("mcp_far_add")
    assert tool
    ctx: ToolContext = make_context(tmp_path / "session")
    return (await tool.run(ctx, a=20, b=22)).text


async def test_a_server_is_found_registered_connected_and_called(
    nod: App, far: SignIn, tmp_path: Path
) -> None:
    assert "MCP server far is connected" in await signed(nod, far)
    await ready(nod)
    assert await called(nod, tmp_path) == "42"
    (client,) = far.clients
    assert client["client_name"] == "Nod"
    assert far.resources == [far.server.url], "the token is not bound to the server"
    written = "".join(
        path.read_text(errors="replace") for path in (tmp_path / "data" / "mcp").glob("*.json")
    )
    assert far.oauth.client_secret not in written
    assert not any(token in written for token in far.oauth.live)


async def test_no_token_is_in_a_log_or_a_file(
    nod: App, far: SignIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    await signed(nod, far)
    await ready(nod)
    tokens = {*far.oauth.live, *far.oauth.refresh}
    far.server.faults = ["echo"]
    said = await called(nod, tmp_path)
    assert "Authorization" in said
    assert [each for each in tokens if each in said] == []
    far.oauth.live.clear()
    await called(nod, tmp_path)
    tokens |= {*far.oauth.live, *far.oauth.refresh, far.oauth.client_secret}
    assert len(tokens) == 5
    kept = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert [each for each in tokens if each in caplog.text] == []
    assert [each for each in tokens if each.encode() in kept] == []


async def test_its_tools_are_only_for_whose_account_it_is_until_it_is_shared(
    nod: App, far: SignIn
) -> None:
    await signed(nod, far)
    await ready(nod)
    now = nod.context.house.now()

    def look(tx: object) -> tuple[bool, bool]:
        person = people.add_person(
            tx, "local", "slack", "U1", name="Bo", role="member", by=people.CONSOLE, now=now
        )
        closed = []
        for owner in (people.CONSOLE, person.id):
            target = f"console:of-{owner.replace('_', '-')}"
            opened = nod.context.house.open(tx, target, owner, now)
            closed.append("mcp_far_add" in nod._closed(tx, sessions.get(tx, opened)))
        return closed[0], closed[1]

    assert await nod.store.write(look) == (False, True)
    await commands.run(nod.context.of(OWNER, "console:main"), "share", "mcp:far")
    assert await nod.store.write(look) == (False, False)


async def test_a_token_that_ends_is_renewed_without_a_word(
    nod: App, far: SignIn, tmp_path: Path
) -> None:
    await signed(nod, far)
    await ready(nod)
    far.oauth.live.clear()
    assert await called(nod, tmp_path) == "42"
    assert far.oauth.refreshes == 1
    assert far.resources[-1] == far.server.url


async def test_a_grant_that_was_taken_back_is_a_need_to_connect_and_is_healed_by_it(
    nod: App, far: SignIn, tmp_path: Path
) -> None:
    await signed(nod, far)
    await ready(nod)
    far.oauth.live.clear()
    far.oauth.refresh.clear()
    with pytest.raises(NeedsConnection) as needed:
        await called(nod, tmp_path)
    assert (needed.value.connector, needed.value.person) == ("mcp:far", people.CONSOLE)
    (account,) = await nod.store.read(lambda tx: accounts.listed(tx, "local"))
    assert account.status == "revoked"
    again = await commands.run(nod.context.of(OWNER, "console:main"), "connect", "mcp:far")
    assert "is connected" in await visited(far, again)
    assert await called(nod, tmp_path) == "42", "the call that waited goes on at once"
    assert len(far.clients) == 1, "Nod registers once"


class Opened:
    """Opens the account with a token that somebody may take back, and give anew."""

    def __init__(self, token: str) -> None:
        self.token = token

    async def headers(self, account: Account) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    async def renewed(self, account: Account, spent: Mapping[str, str]) -> dict[str, str]:
        raise NeedsConnection(account.connector, account.label, "It was taken back.", account.owner)

    async def secret(self, account: Account) -> Mapping[str, str]:
        return {"kind": "oauth"}


async def test_a_call_in_a_turn_waits_for_the_sign_in_and_runs_once(
    store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel([calls(call("mcp_far_add", a=20, b=22)), "It is 42."])
    opened = Opened("one")
    async with served() as server, running(store, tmp_path, model) as world:
        server.token = "Bearer one"
        await store.write(
            lambda tx: accounts.add(tx, "local", "mcp:far", "far", people.CONSOLE, now=1.0)
        )
        servers = Servers(
            written={"far": {"url": server.url, "oauth": True}},
            store=store,
            tools=world.engine.tools,
            tenant="local",
            data=tmp_path / "mcp-data",
            secrets=Secrets({}, tmp_path / "mcp-data"),
            notify=lambda *_: asyncio.sleep(0),
            credentials=opened,
        )
        async with servers:
            assert (await servers.check("far", 20)).state == "ready"
            server.token = "Bearer two"
            session = await world.open()
            await world.turn(session, "Add them.")
            (approval,) = await world.pending(session)
            await world.answer(approval, "once")
            await world.settle(20)
            (prompt,) = await world.pending(session)
            assert (prompt.kind, prompt.payload["connector"]) == ("connect", "mcp:far")
            assert server.calls == 0
            opened.token = "two"
            await world.answer(prompt, "done")
            await world.settle(20)
            facts = await world.log(session)
    (done,) = [fact for fact in facts if fact.kind is Kind.TOOL_FINISHED]
    assert (done.body["status"], done.body["content"]) == ("ok", "42")
    assert server.calls == 1


async def test_a_server_that_registers_nobody_says_what_to_do(
    nod: App, far: SignIn, tmp_path: Path
) -> None:
    far.registers = False
    await said(nod, f"add far {far.server.url} --oauth", "shell:nod")
    with pytest.raises(
        NodError, match=r"redirect address http://127\.0\.0\.1:\d+/connect/callback"
    ):
        await said(nod, "connect far")
    nod._secrets.set("MCP_FAR_CLIENT_ID", far.oauth.client_id)
    nod._secrets.set("MCP_FAR_CLIENT_SECRET", far.oauth.client_secret)
    assert "is connected" in await visited(far, await said(nod, "connect far"))
    await ready(nod)
    assert await called(nod, tmp_path) == "42"


async def test_a_server_that_claims_to_be_another_is_not_signed_in_to(
    nod: App, far: SignIn
) -> None:
    far.resource = "https://bank.example/mcp"
    await said(nod, f"add far {far.server.url} --oauth", "shell:nod")
    with pytest.raises(NodError, match="says that it is another server"):
        await said(nod, "connect far")


async def test_a_sign_in_elsewhere_inside_the_network_is_not_asked(nod: App, far: SignIn) -> None:
    async with signed_in() as inside:
        at, far.base = far.base, inside.base
        await said(nod, f"add far {at}/mcp --oauth", "shell:nod")
        with pytest.raises(NodError, match="no sign-in that could be found"):
            await said(nod, "connect far")
        assert not inside.clients


@pytest.mark.parametrize(
    "first",
    [["remove far"], ["off far", "remove far"], []],
    ids=["removed", "while-off", "replaced"],
)
async def test_what_opens_a_server_is_sent_to_no_other_that_takes_its_name(
    nod: App, far: SignIn, tmp_path: Path, first: list[str]
) -> None:
    await signed(nod, far)
    await ready(nod)
    old = {*far.oauth.live, *far.oauth.refresh}
    async with signed_in() as other:
        for _ in range(9):
            other.oauth.grant()  # its tokens are called otherwise
        for words in first:
            done = await said(nod, words)
        if first:
            assert "what opened it is forgotten" in done
            assert await nod.store.read(lambda tx: accounts.listed(tx, "local")) == []
            assert not list((tmp_path / "data" / "mcp").glob("far.oauth.json"))
        told = await said(nod, f"add far {other.server.url} --oauth", "shell:nod")
        assert "connect" in told
        kept = " ".join(nod._secrets.values())
        assert [each for each in old if each in kept] == []
        assert "is connected" in await visited(other, await said(nod, "connect far"))
        await ready(nod)
        assert await called(nod, tmp_path) == "42"
        assert len(other.clients) == 1, "Nod is registered there anew"
        assert [each for each in old if each in str(other.sent)] == []


async def test_a_server_that_is_switched_off_and_on_stays_connected(
    nod: App, far: SignIn, tmp_path: Path
) -> None:
    await signed(nod, far)
    await ready(nod)
    await said(nod, "off far")
    await said(nod, "on far")
    await ready(nod)
    assert await called(nod, tmp_path) == "42"


async def test_a_server_that_is_off_can_be_disconnected(nod: App, far: SignIn) -> None:
    await signed(nod, far)
    await said(nod, "off far")
    told = await commands.run(nod.context.of(OWNER, "console:main"), "disconnect", "mcp:far")
    assert "is disconnected and its secret forgotten" in told
    kept = " ".join(nod._secrets.values())
    assert [each for each in {*far.oauth.live, *far.oauth.refresh} if each in kept] == []


async def test_hosted_servers_are_listed(nod: App) -> None:
    told = await said(nod, "hosted")
    assert "`linear` **Linear**" in told
    assert "`asana` **Asana**: tasks, projects, portfolios; needs an OAuth client" in told
