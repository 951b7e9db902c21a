"""The command about MCP servers: add, remove, switch, look into; a program needs a card."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NoReturn

from bot.commands.base import Command, Context
from bot.inbound import answers
from bot.markup import code, fenced, plain
from connectors.mcp import kept as mcp_kept
from connectors.mcp.hosted import HOSTED, OWN
from connectors.mcp.house import Servers, Status
from connectors.mcp.servers import read_server
from engine.errors import NodError
from engine.store.base import Tx

__all__ = ["MCP"]

#: Surfaces that only whoever runs the process reaches: it was typed at the machine.
_CONSOLE = ("console", "shell")
#: Seconds a check waits for a server to start: at the machine, and in a chat, where the next
#: message of the same person may wait behind it.
CHECK, CHECK_IN_CHAT = 45.0, 3.0
#: Seconds for finding out how a server is signed in to.
FIND = 20.0
#: Characters of a schema a token stands for, roughly.
CHARACTERS_A_TOKEN = 4
#: Tools of a server that are listed.
LISTED = 60


async def _mcp(context: Context, given: list[str]) -> str:
    verb, rest = (given[0].lower(), given[1:]) if given else ("list", [])
    run = _VERBS.get(verb)
    if run is None or (not rest and verb not in ("list", "hosted")):
        raise NodError("/mcp was not understood.", f"Write: /mcp {MCP.usage}")
    return await run(context, rest)


def _servers(context: Context) -> Servers:
    if context.mcp is None:
        raise NodError("This needs a running Nod.", "Start `nod` or `nod serve` first.")
    return context.mcp


# -- looking


async def _list(context: Context, given: list[str]) -> str:
    lines = [_line(each) for each in _servers(context).status()]
    return "\n".join(lines) or "No MCP server is set up. Add one: /mcp add NAME URL"


def _line(each: Status) -> str:
    offered = sum(bool(tool.name) for tool in each.tools)
    tools = f", {offered} tool{'' if offered == 1 else 's'}" if each.tools else ""
    where = f" — {code(each.where)}" if each.where else ""
    trouble = f"\n  {plain(each.trouble)}" if each.trouble and each.state != "ready" else ""
    return f"{code(each.name)} {each.state}{tools}{where}{trouble}"


async def _show(context: Context, given: list[str]) -> str:
    return _whole(_found(context, given[0]))


async def _check(context: Context, given: list[str]) -> str:
    return _whole(await _tried(context, given[0]))


async def _tried(context: Context, name: str) -> Status:
    limit = CHECK if context.surface in _CONSOLE else CHECK_IN_CHAT
    return await _servers(context).check(name, limit)


def _found(context: Context, name: str) -> Status:
    known = _servers(context).status()
    for each in known:
        if each.name == name:
            return each
    names = ", ".join(each.name for each in known) or "none yet"
    raise NodError(f"There is no MCP server '{plain(name)[:40]}'.", f"There are: {names}.")


def _whole(each: Status) -> str:
    lines = [_line(each), f"From {each.origin}{'' if each.shared else '; for owners only'}."]
    if each.title:
        lines.append(f"It calls itself {code(each.title[:80])}.")
    lines += [f"- {code(tool.own)} {plain(tool.said)}" for tool in each.tools[:LISTED]]
    if len(each.tools) > LISTED:
        lines.append(f"- … and {len(each.tools) - LISTED} more")
    more = [n for n, has in (("resources", each.resources), ("prompts", each.prompts)) if has]
    if more:
        lines.append(f"It also has {' and '.join(more)}.")
    if each.size:
        tokens = each.size // CHARACTERS_A_TOKEN
        lines.append(f"Every model call carries about {tokens:,} tokens for it.")
    if each.printed:
        lines += ["It printed last:", fenced(each.printed)]
    return "\n".join(lines)


# -- changing


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise NodError(f"/mcp add was not understood: {message}.", f"Write: /mcp {_ADD}")


_ADD = "add NAME URL | add NAME [--env SECRET] [--folder PATH] -- PROGRAM ARGS"


def _read(given: list[str]) -> tuple[str, dict[str, Any]]:
    """Return name and table of what was typed; raises NodError."""
    options, words = _before_dashes(given)
    parser = _Parser(prog="/mcp add", add_help=False, allow_abbrev=False)
    parser.add_argument("name")
    parser.add_argument("url", nargs="?", default="")
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--header", action="append", default=[])
    parser.add_argument("--read", action="append", default=[])
    parser.add_argument("--folder", default="")
    parser.add_argument("--oauth", action="store_true")
    asked = parser.parse_args(options)
    headers = dict(_pair(each) for each in asked.header)
    table = {
        "command": words[0] if words else "",
        "args": list(words[1:]),
        "url": asked.url,
        "env": asked.env,
        "headers": headers,
        "read": asked.read,
        "folder": asked.folder,
        "oauth": asked.oauth,
    }
    return asked.name, {key: value for key, value in table.items() if value}


def _before_dashes(given: Sequence[str]) -> tuple[list[str], list[str]]:
    if "--" not in given:
        return list(given), []
    at = given.index("--")
    return list(given[:at]), list(given[at + 1 :])


def _pair(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark:
        raise NodError(
            f"'{plain(text)[:40]}' is no header.", "Write --header 'Name=Bearer {TOKEN}'."
        )
    return name, value


async def _add(context: Context, given: list[str]) -> str:
    name, table = _read(given)
    server = read_server(name, table)
    if _servers(context).is_written(name):
        raise NodError(f"{name} stands in nod.toml.", "Change it there, or choose another name.")
    if server.command and context.surface not in _CONSOLE:
        await context.store.write(
            lambda tx: answers.offer_server(tx, context.house, name, table, context.target)
        )
        context.poke()
        return "A program runs on the machine Nod runs on, so the card asks first."
    await _changed(
        context,
        lambda tx: mcp_kept.add(
            tx, context.tenant, name, table, by=context.person.id, now=context.house.now()
        ),
    )
    return _whole(await _tried(context, name))


async def _connect(context: Context, given: list[str]) -> str:
    """Give the link to a server's sign-in; one of the hosted ones is added with it."""
    name, servers = given[0].lower(), _servers(context)
    if context.connecting is None:
        raise NodError("This needs a running Nod.", "Start `nod` or `nod serve` first.")
    if name in HOSTED and name not in {each.name for each in servers.status()}:
        table = {"url": HOSTED[name].url, "oauth": True}
        await _changed(
            context,
            lambda tx: mcp_kept.add(
                tx, context.tenant, name, table, by=context.person.id, now=context.house.now()
            ),
        )
    redirect = await context.connecting.callback(context.target)
    if not redirect:
        raise NodError(
            "Signing in needs a page of mine that your browser reaches.",
            f"Set web.url, or write where I run: nod mcp connect {plain(name)[:40]}",
        )
    try:
        async with asyncio.timeout(FIND):
            await servers.register(name, redirect)
    except TimeoutError:
        raise NodError(f"{name} did not answer in time.", "Try again later.") from None
    return await context.connecting.offer(context.person, f"mcp:{name}", context.target)


async def _hosted(context: Context, given: list[str]) -> str:
    lines = [
        f"{code(name)} **{each.title}**: {each.about}{'' if each.registers else '; ' + OWN}"
        for name, each in HOSTED.items()
    ]
    return "\n".join([*lines, "Connect one: `/mcp connect NAME`"])


async def _remove(context: Context, given: list[str]) -> str:
    name, servers = given[0], _servers(context)
    opened = await context.store.write(
        lambda tx: mcp_kept.remove(
            tx, context.tenant, name, by=context.person.id, now=context.house.now()
        )
    )
    if context.connecting is not None:
        for account in opened:
            await context.connecting.forget(account)
    await servers.forget(name, opened)
    await servers.apply()
    parts = [f"{name} is removed, and the standing rules about it have ended."]
    if opened:
        parts.append("It is disconnected, and what opened it is forgotten.")
    return " ".join(parts)


async def _on(context: Context, given: list[str]) -> str:
    await _switch(context, given[0], on=True)
    return _whole(await _tried(context, given[0]))


async def _off(context: Context, given: list[str]) -> str:
    await _switch(context, given[0], on=False)
    return f"{given[0]} is off: it is stopped, and none of its tools is offered."


async def _switch(context: Context, name: str, *, on: bool) -> None:
    _found(context, name)
    await _changed(
        context,
        lambda tx: mcp_kept.switch(
            tx, context.tenant, name, on=on, by=context.person.id, now=context.house.now()
        ),
    )


async def _tool(context: Context, given: list[str]) -> str:
    if len(given) != 3:
        raise NodError("/mcp tool was not understood.", f"Write: /mcp {MCP.usage}")
    name, tool, how = given
    status = _found(context, name)
    if status.tools and tool not in {each.own for each in status.tools}:
        raise NodError(f"{name} has no tool '{plain(tool)[:60]}'.", f"See: /mcp show {name}")
    await _changed(
        context,
        lambda tx: mcp_kept.declare(
            tx, context.tenant, name, tool, how, by=context.person.id, now=context.house.now()
        ),
    )
    said = next((t.said for t in _found(context, name).tools if t.own == tool), how)
    warned = " The server itself says that it does more than read, so it is asked about."
    return f"{code(tool)} of {name}: {said}.{warned if (how, said) == ('read', 'asks') else ''}"


async def _changed(context: Context, work: Callable[[Tx], None]) -> None:
    await context.store.write(work)
    await _servers(context).apply()


_VERBS: Mapping[str, Callable[[Context, list[str]], Awaitable[str]]] = {
    "list": _list,
    "show": _show,
    "check": _check,
    "add": _add,
    "hosted": _hosted,
    "connect": _connect,
    "remove": _remove,
    "on": _on,
    "off": _off,
    "tool": _tool,
}

MCP = Command(
    name="mcp",
    usage=(
        f"[list | show NAME | check NAME | {_ADD} | hosted | connect NAME | remove NAME | "
        "on NAME | off NAME | "
        "tool NAME TOOL off|read|ask|default]"
    ),
    help="MCP servers: what they offer, and which of it only reads",
    run=_mcp,
    most=None,
    role="owner",
)
