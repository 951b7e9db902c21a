"""MCP servers that were added by a command, and what was switched since; one row of the store.

A table of nod.toml wins over a server of the same name: no command can put another program in its
place.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from connectors import accounts
from connectors.accounts import Account
from connectors.mcp.servers import Server, read_server, read_servers
from engine import audit
from engine.canonical import dumps, loads
from engine.errors import NodError, SettingsError
from engine.permissions import rules
from engine.store.base import Tx

__all__ = ["HOW", "Kept", "add", "declare", "effective", "kept", "remove", "switch"]

_ROW = "mcp"

_log = logging.getLogger(__name__)

#: What can be said of a tool: it is not offered, it only reads, it is asked about; or nothing.
HOW = ("off", "read", "ask", "default")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What commands made of it."""

    #: Name -> table, as in nod.toml.
    servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: Names of servers that are switched off.
    off: tuple[str, ...] = ()
    #: Server -> its tool -> 'off', 'read' or 'ask'.
    tools: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def kept(tx: Tx, tenant: str) -> Kept:
    """Return what is kept."""
    row = tx.one("setting_get", tenant=tenant, name=_ROW)
    if row is None:
        return Kept()
    held = loads(row["value"])
    return Kept(servers=held["servers"], off=tuple(held["off"]), tools=held["tools"])


def effective(written: Mapping[str, Any], held: Kept) -> list[Server]:
    """Return the servers that are on, from nod.toml's tables and what is kept, by name.

    A kept one that no longer fits is left out; raises SettingsError for a table of nod.toml.
    """
    found = {each.name: each for each in read_servers(written)}
    for name, table in held.servers.items():
        try:
            found.setdefault(name, read_server(name, table))
        except SettingsError as error:
            _log.error("an MCP server is left out: %s", error)
    on = [found[name] for name in sorted(found) if name not in held.off]
    return [_switched(each, held.tools.get(each.name, {})) for each in on]


def _switched(server: Server, tools: Mapping[str, str]) -> Server:
    """Lay what was said of single tools over the server; it wins over patterns."""
    said: dict[str, list[str]] = {how: [] for how in HOW}
    for tool, how in tools.items():
        said[how].append(_exactly(tool))
    return replace(
        server,
        exclude=(*server.exclude, *said["off"]),
        read=(*server.read, *said["read"]),
        ask=(*[each for each in server.ask if each not in said["read"]], *said["ask"]),
    )


def _exactly(tool: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in tool)


def add(tx: Tx, tenant: str, name: str, table: Mapping[str, Any], *, by: str, now: float) -> None:
    """Keep a server; one of that name that a command added is replaced. Raises SettingsError."""
    server = read_server(name, table)
    held = kept(tx, tenant)
    servers = {**held.servers, name: dict(table)}
    off = tuple(each for each in held.off if each != name)
    _write(tx, tenant, replace(held, servers=servers, off=off), now)
    _audit(tx, tenant, "granted", by, name, server.fingerprint, now)


def remove(tx: Tx, tenant: str, name: str, *, by: str, now: float) -> list[Account]:
    """Forget a server a command added, with its switches; its standing rules end.

    Returns the accounts it was signed in to with, which are dropped: the caller forgets what opens
    them once this is committed.
    """
    held = kept(tx, tenant)
    if name not in held.servers:
        raise NodError(
            f"No command added an MCP server '{name[:40]}'.",
            "One of nod.toml is taken out there, or switched off: /mcp off NAME",
        )
    servers = {each: table for each, table in held.servers.items() if each != name}
    tools = {each: said for each, said in held.tools.items() if each != name}
    _write(tx, tenant, replace(held, servers=servers, tools=tools), now)
    for each in rules.list_rules(tx, tenant):
        if each.revoked_at is None and each.rule.tool.startswith(f"mcp_{name}_"):
            rules.revoke(tx, tenant, each.rule.id, now)
    opened = [each for each in accounts.listed(tx, tenant) if each.connector == f"mcp:{name}"]
    for account in opened:
        tx.run("connection_drop", id=account.id)
        _audit(tx, tenant, "disconnected", by, name, account.id, now)
    _audit(tx, tenant, "revoked", by, name, "", now)
    return opened


def switch(tx: Tx, tenant: str, name: str, *, on: bool, by: str, now: float) -> None:
    """Switch a server on or off; off, none of its tools is offered and nothing of it runs."""
    held = kept(tx, tenant)
    off = {each for each in held.off if each != name} | (set() if on else {name})
    _write(tx, tenant, replace(held, off=tuple(sorted(off))), now)
    _audit(tx, tenant, "granted" if on else "revoked", by, name, "", now)


def declare(tx: Tx, tenant: str, name: str, tool: str, how: str, *, by: str, now: float) -> None:
    """Say of one tool that it is off, only reads, or is asked about; 'default' takes that back."""
    if how not in HOW:
        raise SettingsError(f"'{how[:40]}' cannot be said of a tool.", f"Say {', '.join(HOW)}.")
    held = kept(tx, tenant)
    said = {each: was for each, was in held.tools.get(name, {}).items() if each != tool}
    said |= {} if how == "default" else {tool: how}
    _write(tx, tenant, replace(held, tools={**held.tools, name: said}), now)
    _audit(tx, tenant, "granted", by, f"{name}/{tool}", how, now)


def _write(tx: Tx, tenant: str, held: Kept, now: float) -> None:
    value = dumps({"servers": held.servers, "off": list(held.off), "tools": held.tools})
    tx.run("setting_put", tenant=tenant, name=_ROW, value=value, now=now)


def _audit(tx: Tx, tenant: str, kind: str, by: str, subject: str, outcome: str, now: float) -> None:
    entry = audit.Entry(kind=kind, actor=by, subject=f"mcp:{subject}", outcome=outcome)
    audit.append(tx, tenant, audit.tenant_chain(tenant), [entry], now)
