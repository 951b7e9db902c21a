"""MCP servers in a house of their own: a registry, a session, an owner who is told things."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from connectors.mcp.house import Servers
from connectors.mcp.link import Link
from connectors.mcp.ports import State
from connectors.registry import Secrets
from engine.store.base import Store
from engine.tools.base import Registry, Result, ToolContext
from tests.fakes.context import make_context
from tests.fakes.mcp_server import command

__all__ = ["McpHouse", "Told", "fake", "house"]


class Told:
    """What the owner was told."""

    def __init__(self) -> None:
        self.notices: list[tuple[str, str]] = []

    async def notify(self, cause: str, title: str, text: str) -> None:
        self.notices.append((cause, text))


class McpHouse:
    """Servers under test with what they stand on."""

    def __init__(self, servers: Servers, tools: Registry, told: Told, folder: Path) -> None:
        self.servers, self.tools, self.told = servers, tools, told
        self.ctx: ToolContext = make_context(folder / "session")

    async def call(self, called: str, /, **arguments: Any) -> Result:
        tool = self.tools.get(called)
        assert tool is not None, f"no tool {called} in {self.names()}"
        return await tool.run(self.ctx, **tool.check(arguments))

    def names(self) -> list[str]:
        return [each.name for each in self.tools.offered("interactive")]

    async def until(self, holds: Callable[[], bool], seconds: float = 15.0) -> None:
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(0.01)

    async def ready(self, name: str = "fake") -> None:
        await self.until(lambda: self.state(name) == State.READY)

    def state(self, name: str = "fake") -> str:
        return next(each.state for each in self.servers.status() if each.name == name)

    def link(self, name: str = "fake") -> Link:
        return self.servers._held[name].link


@asynccontextmanager
async def house(
    store: Store, tmp_path: Path, secrets: Mapping[str, str] | None = None, **tables: Any
) -> AsyncIterator[McpHouse]:
    tools, told = Registry(), Told()
    servers = Servers(
        written=tables,
        store=store,
        tools=tools,
        tenant="local",
        data=tmp_path / "data",
        secrets=Secrets(secrets or {}, tmp_path / "data"),
        notify=told.notify,
    )
    async with servers:
        yield McpHouse(servers, tools, told, tmp_path)


def fake(*flags: str, **more: Any) -> dict[str, Any]:
    program, *args = command(*flags)
    return {"command": program, "args": args, **more}
