"""Turns what an MCP server lists into tools: safe names, cleaned schemas, risk never below our own.

What the server says of a tool is a stranger's text: it is cut, marked as the server's words, and
can only make Nod more careful. That a tool only reads is the owner's word, never the server's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from connectors.mcp.schemas import Unfit, clean, shortened
from connectors.mcp.servers import Server
from engine.canonical import digest, dumps
from engine.models.schemas import wire_name
from engine.tools.base import Result, Risk, Tool, ToolContext

__all__ = ["Listed", "Perform", "group_of", "taint_of", "tool_name", "tools_of"]

#: Tools of one server that are taken; a model is lost among more.
TOOLS = 128
#: Characters of a tool's description that a model is shown.
DESCRIPTION = 1_024
#: Seconds beyond the call's own time: the server may have to be started first.
START = 45.0

#: Runs a tool of a server: (ctx, its own name, arguments, it only reads) -> what it gave.
Perform = Callable[[ToolContext, str, Mapping[str, Any], bool], Awaitable[Result]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A server's tools as Nod takes them."""

    tools: tuple[Tool, ...] = ()
    #: The server's own name of each tool, in the same order.
    own: tuple[str, ...] = ()
    #: (own name, why it is not offered).
    left_out: tuple[tuple[str, str], ...] = ()


def group_of(server: str) -> str:
    """Return the group a server's tools are registered under."""
    return f"mcp:{server}"


def taint_of(server: str) -> str:
    """Return the label of text that came from the server."""
    return f"mcp:{server}"


def tool_name(server: str, own: str) -> str:
    """Return the name a model calls the tool by: letters, digits, _ and -, at most 64.

    A name that had to be changed ends in a digest of the whole one, so no two meet.
    """
    return wire_name(f"mcp_{server}_{own}")


def tools_of(server: Server, listing: Sequence[Mapping[str, Any]], perform: Perform) -> Listed:
    """Return the tools of a listing (the tools of `tools/list`, as JSON)."""
    made: dict[str, tuple[str, Tool]] = {}
    left: list[tuple[str, str]] = []
    for entry in listing:
        own = str(entry.get("name") or "")
        name = tool_name(server.name, own)
        if not own or not server.offers(own):
            left.append((own, "switched off"))
        elif name in made:
            left.append((own, "the server names two tools so"))
        elif len(made) >= TOOLS:
            left.append((own, f"more than {TOOLS} tools"))
        else:
            try:
                made[name] = (own, _tool(server, name, own, entry, perform))
            except Unfit as error:
                left.append((own, str(error)))
    return Listed(
        tools=tuple(tool for _, tool in made.values()),
        own=tuple(own for own, _ in made.values()),
        left_out=tuple(left),
    )


def _tool(server: Server, name: str, own: str, entry: Mapping[str, Any], perform: Perform) -> Tool:
    reads = server.only_reads(own) and not cautioned(entry)

    async def run(ctx: ToolContext, /, **arguments: Any) -> Result:
        return await perform(ctx, own, arguments, reads)

    async def preview(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        return _preview(server, own, entry)

    text = shortened(str(entry.get("description") or entry.get("title") or own), DESCRIPTION)
    return Tool(
        name=name,
        description=f"[{own}, of the MCP server {server.name}, in that server's words] {text}",
        run=run,
        risk=Risk.READ if reads else Risk.EXTERNAL,
        parameters=clean(entry.get("inputSchema") or {}),
        target=_target(server, own, entry),
        preview=preview,
        egress=(lambda arguments: taint_of(server.name)) if reads else None,
        timeout=server.timeout + START,
    )


def cautioned(entry: Mapping[str, Any]) -> bool:
    """Say whether the server itself says that the tool does more than read."""
    said = entry.get("annotations") or {}
    return said.get("destructiveHint") is True or said.get("readOnlyHint") is False


def _target(
    server: Server, own: str, entry: Mapping[str, Any]
) -> Callable[[Mapping[str, Any]], Sequence[str]] | None:
    """Return what a standing rule pins: the tool as it is now, and all the owner calls recipients.

    Without the owner's word no argument is known to be a recipient, so there can be no rule.
    """
    names = server.targets.get(own, ())
    if not names:
        return None
    said = [entry.get(key) for key in ("name", "description", "inputSchema", "annotations")]
    version = digest(dumps(said))[:8]  # a tool that changes is another one

    def target(arguments: Mapping[str, Any]) -> Sequence[str]:
        given = [(name, arguments[name]) for name in names if arguments.get(name)]
        pinned = [f"{name}={each}" for name, value in given for each in _each(value)]
        return [f"mcp:{server.name}/{own}#{version}", *pinned] if pinned else []

    return target


def _each(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [each if isinstance(each, str) else dumps(each) for each in values]


def _preview(server: Server, own: str, entry: Mapping[str, Any]) -> str:
    lines = [f"Tool {own} of the MCP server {server.name}: {server.where}"]
    said = entry.get("annotations") or {}
    if said.get("destructiveHint") is True:
        lines.append("The server says that it may change or delete what is there.")
    return "\n".join(lines)
