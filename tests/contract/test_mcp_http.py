"""MCP servers over HTTP: what each refusal means, sessions that end, and the newer protocol."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel

from connectors.http import Unsure
from connectors.mcp.ports import State
from engine.errors import ToolError
from engine.store.base import Store
from engine.store.opening import open_store
from tests.fakes.mcp_house import house
from tests.fakes.mcp_http import served


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(str(tmp_path / "nod.db"))
    yield opened
    await opened.close()


async def test_a_server_over_http_is_of_use(store: Store, tmp_path: Path) -> None:
    async with served() as server, house(store, tmp_path, fake={"url": server.url}) as nod:
        await nod.ready()
        assert (await nod.call("mcp_fake_add", a=1, b=2)).text == "3"


async def test_a_header_carries_the_secret_and_nothing_shows_it(
    store: Store, tmp_path: Path
) -> None:
    async with served() as server:
        server.token = "Bearer tok-12345678"
        table = {"url": server.url, "headers": {"Authorization": "Bearer {FAKE_TOKEN}"}}
        secrets = {"FAKE_TOKEN": "tok-12345678"}
        async with house(store, tmp_path, secrets, fake=table) as nod:
            await nod.ready()
            assert (await nod.call("mcp_fake_add", a=1, b=2)).text == "3"
            assert "tok-12345678" not in str(nod.servers.status())


async def test_no_secret_is_in_a_log_a_file_or_an_error(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    logging.getLogger("hpack").setLevel("INFO")
    token = "tok-canary-12345678"
    async with served() as server:
        server.token = f"Bearer {token}"
        table = {"url": server.url, "headers": {"Authorization": "Bearer {FAKE_TOKEN}"}}
        async with house(store, tmp_path, {"FAKE_TOKEN": token}, fake=table) as nod:
            await nod.ready()
            server.faults = [429, 500, "drop", "echo"]
            said = []
            for _ in range(5):
                try:
                    said.append((await nod.call("mcp_fake_add", a=1, b=2)).text)
                except (ToolError, Unsure) as error:
                    said.append(str(error))
            server.token = "Bearer other"
            with pytest.raises(ToolError) as refused:
                await nod.call("mcp_fake_add", a=1, b=2)
            told = [*said, str(refused.value), str(nod.servers.status()), str(nod.told.notices)]
    kept = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()]
    assert "You sent" in "".join(told)
    assert token not in "".join(told)
    assert token not in caplog.text
    assert not any(token.encode() in each for each in kept)


async def test_refused_credentials_did_nothing_and_the_owner_is_told_what_mends_it(
    store: Store, tmp_path: Path
) -> None:
    async with served() as server:
        server.token = "Bearer tok-12345678"
        table = {"url": server.url, "headers": {"Authorization": "Bearer {FAKE_TOKEN}"}}
        secrets = {"FAKE_TOKEN": "tok-12345678"}
        async with house(store, tmp_path, secrets, fake=table) as nod:
            await nod.ready()
            server.token = "Bearer other"
            with pytest.raises(ToolError, match=r"refused the credentials\. Nothing was done"):
                await nod.call("mcp_fake_add", a=1, b=2)
            await nod.until(lambda: bool(nod.told.notices))
            assert "nod secrets set FAKE_TOKEN. Then: /mcp check fake" in nod.told.notices[0][1]
            assert nod.state() == State.CONNECT
            with pytest.raises(ToolError, match="Nothing was done"):
                await nod.call("mcp_fake_add", a=1, b=2)
            server.token = "Bearer tok-12345678"
            assert (await nod.call("mcp_fake_add", a=1, b=2)).text == "3"
            assert server.calls == 1


@pytest.mark.parametrize(
    ("status", "said"),
    [
        pytest.param(403, "not allowed", id="forbidden"),
        pytest.param(404, "", id="session-gone"),
        pytest.param(422, "said 422", id="unprocessable"),
        pytest.param(429, "to wait 7 s", id="too-many"),
    ],
)
async def test_a_refusal_did_nothing(status: int, said: str, store: Store, tmp_path: Path) -> None:
    async with served() as server, house(store, tmp_path, fake={"url": server.url}) as nod:
        await nod.ready()
        server.faults = [status]
        if said:
            with pytest.raises(ToolError, match=said):
                await nod.call("mcp_fake_add", a=1, b=2)
        assert (await nod.call("mcp_fake_add", a=1, b=2)).text == "3"
        assert server.calls == 1


async def test_a_call_follows_no_redirect_to_another_server(store: Store, tmp_path: Path) -> None:
    async with served() as server, served() as other:
        server.token = "Bearer tok-12345678"
        table = {"url": server.url, "headers": {"Authorization": "Bearer {FAKE_TOKEN}"}}
        async with house(store, tmp_path, {"FAKE_TOKEN": "tok-12345678"}, fake=table) as nod:
            await nod.ready()
            server.faults = [other.url]
            answer = await nod.call("mcp_fake_add", a=1, b=2)
            assert not answer.ok and "not followed" in answer.text
            assert (await nod.call("mcp_fake_add", a=1, b=2)).text == "3"
            assert (other.headers, other.calls, server.calls) == ({}, 0, 1)


@pytest.mark.parametrize("fault", [500, 502, "drop", "endless"])
async def test_after_a_failure_of_the_server_nobody_knows(
    fault: int | str, store: Store, tmp_path: Path
) -> None:
    async with served() as server:
        table = {"url": server.url, "read": ["add"]}
        async with house(store, tmp_path, fake=table) as nod:
            await nod.ready()
            server.faults = [fault, fault]
            with pytest.raises(Unsure):
                await nod.call("mcp_fake_send", to=["a"], text="x")
            with pytest.raises(ToolError, match="Try once more"):
                await nod.call("mcp_fake_add", a=1, b=2)
            assert (await nod.call("mcp_fake_add", a=1, b=2)).text == "3"


async def test_a_session_the_server_forgot_is_opened_anew_and_the_call_goes_on(
    store: Store, tmp_path: Path
) -> None:
    async with served() as server, house(store, tmp_path, fake={"url": server.url}) as nod:
        await nod.ready()
        server.forget()
        assert (await nod.call("mcp_fake_add", a=1, b=2)).text == "3"
        assert server.calls == 1


async def test_a_server_that_is_down_is_found_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.mcp.link.PAUSES", (0.05,))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with house(store, tmp_path, fake={"url": f"http://127.0.0.1:{port}/mcp"}) as nod:
        await nod.until(lambda: nod.state() == State.FAILING)
        assert "cannot be reached" in nod.link().why
        async with sdk_server(port):
            await nod.ready()
            assert (await nod.call("mcp_fake_add", a=1, b=2)).text == "3"


class Board(BaseModel):
    """What the server asks for."""

    board: str


@asynccontextmanager
async def sdk_server(port: int = 0) -> AsyncIterator[str]:
    """Serve the SDK's own server, which speaks the newest protocol, and can grow a tool."""
    server = MCPServer("sdk")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @server.tool()
    async def grow(context: Context) -> str:
        """Bring another tool."""
        server.add_tool(lambda: "grown", name="grown", description="New.")
        await context.notify_tools_changed()
        return "grown"

    @server.tool()
    async def ask(context: Context) -> str:
        """Ask the person."""
        await context.elicit("Which board?", Board)
        return "asked"

    @server.tool()
    async def slow() -> str:
        """Take a while."""
        await asyncio.sleep(30)
        return "late"

    config = uvicorn.Config(
        server.streamable_http_app(),
        host="127.0.0.1",
        port=port,
        log_level="critical",
        ws="none",
        timeout_graceful_shutdown=1,
    )
    run = uvicorn.Server(config)
    run.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(run.serve())
    async with asyncio.timeout(10):
        while not run.started:
            await asyncio.sleep(0.01)
    bound = run.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{bound}/mcp"
    finally:
        run.should_exit = True
        await task


async def test_the_newest_protocol_over_http(store: Store, tmp_path: Path) -> None:
    async with sdk_server() as url:
        async with house(store, tmp_path, fake={"url": url, "timeout": 1}) as nod:
            await nod.ready()
            wire = nod.link()._wire
            assert wire and wire.version >= "2026"
            results = await asyncio.gather(*(nod.call("mcp_fake_add", a=n, b=n) for n in range(20)))
            assert [each.text for each in results] == [str(2 * n) for n in range(20)]
            with pytest.raises(Unsure, match="did not answer within 1 s"):
                await nod.call("mcp_fake_slow")
            assert (await nod.call("mcp_fake_add", a=1, b=1)).text == "2"
            await nod.call("mcp_fake_grow")
            await nod.until(lambda: "mcp_fake_grown" in nod.names())
            asked = await nod.call("mcp_fake_ask")
            assert not asked.ok, "a question of the server is not answered by itself"
