"""Public MCP servers, pinned, as people run them: three from npm, three from PyPI."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from connectors.mcp.ports import State
from engine.models.schemas import wire_tools
from engine.store.base import Store
from engine.store.opening import open_store
from engine.tools.base import Risk
from tests.fakes.mcp_house import McpHouse, house

pytestmark = pytest.mark.timeout(180)

#: Installed once into pytest's cache, without running anybody's install scripts.
NPM = (
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
)


@pytest.fixture(scope="module")
def npm(pytestconfig: pytest.Config) -> Path:
    """The folder of the npm servers' programs."""
    if shutil.which("npm") is None:
        pytest.skip("there is no npm here")
    folder = Path(pytestconfig.cache.mkdir("mcp-npm"))  # type: ignore[union-attr]
    done = folder / "installed.txt"
    if not done.exists() or done.read_text() != "\n".join(NPM):
        quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        subprocess.run(
            ["npm", "install", "--prefix", str(folder), *quiet, *NPM], check=True, timeout=150
        )
        done.write_text("\n".join(NPM))
    return folder / "node_modules" / ".bin"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(str(tmp_path / "nod.db"))
    yield opened
    await opened.close()


@pytest.fixture
def page() -> Iterator[str]:
    """A web page on this machine, for the server that fetches."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<html><body><h1>Opening hours</h1><p>9 to 5</p></body></html>")

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hours"
    server.shutdown()
    thread.join()
    server.server_close()


def _python(name: str) -> str:
    return str(Path(sys.executable).parent / name)


async def _fits_all_providers(nod: McpHouse, tools: int) -> None:
    """Every tool is offered, in a form that each provider takes."""
    assert (await nod.servers.check("it", 60)).state == State.READY
    (status,) = nod.servers.status()
    assert [each for each in status.tools if not each.name] == []
    assert len(status.tools) == tools
    declared = nod.tools.offered("interactive")
    asking = [each.name for each in declared if each.risk is Risk.EXTERNAL]
    assert asking == sorted(each.name for each in status.tools)
    for protocol in ("openai", "anthropic", "gemini"):
        schemas = [each.schema() for each in declared]
        wired = wire_tools(schemas, protocol)
        assert [each["function"]["name"] for each in wired] == [each.name for each in declared]
        assert "$ref" not in str(wired)


async def test_everything(store: Store, tmp_path: Path, npm: Path) -> None:
    table: dict[str, Any] = {"command": str(npm / "mcp-server-everything")}
    async with house(store, tmp_path, it=table) as nod:
        assert (await nod.servers.check("it", 60)).state == State.READY
        assert (await nod.call("mcp_it_echo", message="Hi")).text == "Echo: Hi"
        assert "5" in (await nod.call("mcp_it_get-sum", a=2, b=3)).text
        picture = await nod.call("mcp_it_get-tiny-image")
        assert [each.media_type for each in picture.artifacts] == ["image/png"]
        weather = await nod.call("mcp_it_get-structured-content", location="Chicago")
        assert "temperature" in weather.text
        slow = await nod.call("mcp_it_trigger-long-running-operation", duration=1, steps=2)
        assert slow.ok
        environment = await nod.call("mcp_it_get-env")
        assert "PYTEST_CURRENT_TEST" not in environment.text
        assert "[Resource " in (await nod.call("mcp_it_get-resource-links", count=2)).text
        listed = await nod.call("mcp_it_list_resources")
        uri = listed.text.split()[0]
        assert (await nod.call("mcp_it_read_resource", uri=uri)).ok
        assert "simple" in (await nod.call("mcp_it_list_prompts")).text


async def test_filesystem(store: Store, tmp_path: Path, npm: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "note.txt").write_text("Buy milk.")
    table = {"command": str(npm / "mcp-server-filesystem"), "args": [str(folder)]}
    async with house(store, tmp_path, it=table) as nod:
        await _fits_all_providers(nod, 14)
        assert "note.txt" in (await nod.call("mcp_it_list_directory", path=str(folder))).text
        read = await nod.call("mcp_it_read_text_file", path=str(folder / "note.txt"))
        assert read.text == "Buy milk."
        outside = await nod.call("mcp_it_read_text_file", path="/etc/hostname")
        assert not outside.ok


async def test_memory(store: Store, tmp_path: Path, npm: Path) -> None:
    async with house(store, tmp_path, it={"command": str(npm / "mcp-server-memory")}) as nod:
        await _fits_all_providers(nod, 9)
        ana = {"name": "Ana", "entityType": "person", "observations": ["likes tea"]}
        assert (await nod.call("mcp_it_create_entities", entities=[ana])).ok
        assert "likes tea" in (await nod.call("mcp_it_read_graph")).text


async def test_git(store: Store, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    subprocess.run(["git", "init", "-q", str(repo)], check=True)
    (repo / "new.txt").write_text("x")
    async with house(store, tmp_path, it={"command": _python("mcp-server-git")}) as nod:
        await _fits_all_providers(nod, 12)
        assert "new.txt" in (await nod.call("mcp_it_git_status", repo_path=str(repo))).text


async def test_time(store: Store, tmp_path: Path) -> None:
    async with house(store, tmp_path, it={"command": _python("mcp-server-time")}) as nod:
        await _fits_all_providers(nod, 2)
        converted = await nod.call(
            "mcp_it_convert_time",
            source_timezone="UTC",
            time="12:00",
            target_timezone="Asia/Kolkata",
        )
        assert "17:30" in converted.text


async def test_fetch(store: Store, tmp_path: Path, page: str) -> None:
    table = {
        "command": _python("mcp-server-fetch"),
        "args": ["--ignore-robots-txt", "--allow-private-ips"],
    }
    async with house(store, tmp_path, it=table) as nod:
        await _fits_all_providers(nod, 1)
        fetched = await nod.call("mcp_it_fetch", url=page)
        assert "Opening hours" in fetched.text
        assert fetched.taint == "mcp:it"
