"""The file that keeps what an MCP server offered, so that its tools are there before it is."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from connectors.mcp.ports import Listing
from connectors.mcp.servers import Server
from engine.canonical import dumps, loads

__all__ = ["read_offer", "write_offer"]

#: Bytes of such a file.
FILE = 8_000_000


def read_offer(file: Path, server: Server) -> Listing | None:
    """Return what the same server offered when it was last asked; blocking."""
    try:
        if file.stat().st_size > FILE:
            return None
        held = loads(file.read_bytes())
        if held["fingerprint"] != server.fingerprint:
            return None  # another program, or another address
        return Listing(
            tools=tuple(held["tools"]),
            resources=bool(held["resources"]),
            prompts=bool(held["prompts"]),
            title=str(held["title"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None  # it is only there to be quicker


def write_offer(file: Path, server: Server, offer: Listing) -> None:
    """Keep what the server offers; blocking. Raises OSError."""
    text = dumps(
        {
            "fingerprint": server.fingerprint,
            "tools": list(offer.tools),
            "resources": offer.resources,
            "prompts": offer.prompts,
            "title": offer.title,
        }
    )
    if len(text) > FILE:
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    with suppress(OSError):
        new.replace(file)
