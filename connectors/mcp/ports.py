"""What an MCP server's link is made with and tells: its state, its offer, its ways outside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors.mcp.servers import Server

if TYPE_CHECKING:
    from connectors.mcp.http import Signed

__all__ = ["Broken", "Listing", "Ports", "State"]


class State(StrEnum):
    """How a server is."""

    OFF = "off"  # not asked for yet, or switched off
    STARTING = "starting"
    READY = "ready"
    FAILING = "failing"  # tried again after a pause
    BROKEN = "broken"  # tried again only when somebody asks
    CONNECT = "connect"  # its credentials are missing or were refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a server offers, as JSON."""

    tools: tuple[Mapping[str, Any], ...] = ()
    resources: bool = False
    prompts: bool = False
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What a link needs from outside."""

    #: Returns a secret by name, empty when there is none. Blocking.
    secret: Callable[[str], str]
    #: Makes what signs the requests to a server with OAuth; raises NeedsConnection.
    auth: Callable[[Server], Awaitable[Signed | None]]
    #: Folder the server is started in.
    folder: Path
    #: Value of the variable that marks all it starts.
    mark: str
    #: Told what the server offers, each time that was asked.
    listed: Callable[[Listing], None]
    #: Told once in an episode of failures, and when it is over (empty text).
    trouble: Callable[[str], None]


class Broken(Exception):
    """It can never work so; says why."""
