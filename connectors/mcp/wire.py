"""One open connection to an MCP server, in plain JSON; what the protocol's errors mean for a call.

The SDK is used here and in the two transports only. Enter and leave it in the same task; calls may
come from any.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client, MCPError
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    InputRequiredResult,
    ServerNotification,
)
from pydantic import BaseModel, TypeAdapter, ValidationError

from connectors.blot import words_of
from connectors.mcp.http import BUSY, FAILED, REFUSED, UNAUTHORIZED, UNREACHABLE, http
from connectors.mcp.servers import Server, filled
from connectors.mcp.stdio import Tail, stdio
from engine.errors import ToolError

__all__ = ["Broke", "Ended", "Unauthorized", "Wire", "first", "open_wire"]

#: Entries and pages of one list.
ENTRIES, PAGES = 1_000, 50
#: Characters of a question of the server that a model is told.
QUESTION = 500

_ANSWER: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(
    CallToolResult | InputRequiredResult
)


class Broke(Exception):
    """The connection failed while a call was out: nobody knows whether it took effect."""


class Ended(Exception):
    """The server has forgotten the connection, and did nothing."""


class Unauthorized(Exception):
    """The server refused the credentials, and did nothing."""


class Wire:
    """A connection that is open."""

    def __init__(self, client: Client) -> None:
        self._client = client
        offered = client.server_capabilities
        self.has_tools = offered.tools is not None
        self.has_resources = offered.resources is not None
        self.has_prompts = offered.prompts is not None
        #: What the server calls itself.
        info = client.server_info
        self.title = f"{info.name} {info.version}".strip() if info else ""
        self.version = client.protocol_version

    async def tools(self) -> list[dict[str, Any]]:
        """Return the server's tools."""
        if not self.has_tools:
            return []
        return await _pages(lambda cursor: self._client.list_tools(cursor=cursor), "tools")

    async def resources(self) -> list[dict[str, Any]]:
        """Return the server's resources, then its templates of resources."""
        client = self._client
        found = await _pages(lambda cursor: client.list_resources(cursor=cursor), "resources")
        with suppress(ToolError):  # a server may have none, and not know the question
            found += await _pages(
                lambda cursor: client.list_resource_templates(cursor=cursor), "resourceTemplates"
            )
        return found

    async def prompts(self) -> list[dict[str, Any]]:
        """Return the server's prompts."""
        return await _pages(lambda cursor: self._client.list_prompts(cursor=cursor), "prompts")

    async def read(self, uri: str) -> dict[str, Any]:
        """Return the contents of a resource."""
        return _plain(await _asked(self._client.read_resource(uri)))

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> dict[str, Any]:
        """Return the messages of a prompt."""
        return _plain(await _asked(self._client.get_prompt(name, dict(arguments))))

    async def alive(self) -> None:
        """Return when the server answers; raises what a call does."""
        if self._client.protocol_version >= "2026":  # has no ping any more
            await _asked(self._client.list_tools())
        else:
            await _asked(self._client.session.send_ping())

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of a tool; an error the server answers with is one, too.

        Not by the SDK's `call_tool`: that throws an answer away which does not fit the schema the
        server itself gave for it.

        Raises ToolError, Ended, Unauthorized (nothing was done) and Broke (nobody knows).
        """
        params = CallToolRequestParams(name=tool, arguments=dict(arguments))
        try:
            answer = await self._client.session.send_request(
                CallToolRequest(params=params), _ANSWER
            )
        except MCPError as error:
            _raise(error)
            return _failed(error.message)
        except ValidationError:
            return _failed("The answer does not follow the protocol. It may have taken effect.")
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise Broke("the connection is closed") from error
        if isinstance(answer, InputRequiredResult):
            return _failed(f"{_NO_QUESTIONS}{_questions(answer)}")
        return _plain(answer)


_NO_QUESTIONS = (
    "The server wants to ask in the middle of the call, and Nod does not pass that on. "
    "Ask the person yourself, and give the answer as an argument if the tool takes one."
)


def _questions(answer: InputRequiredResult) -> str:
    """Return what the server wanted to ask, in its words."""
    asked = _plain(answer).get("inputRequests") or {}
    words = [str((each.get("params") or {}).get("message") or "") for each in asked.values()]
    told = [f"\n{word[:QUESTION]}" for word in words[:3] if word]
    return f" It asks:{''.join(told)}" if told else ""


def _failed(text: str) -> dict[str, Any]:
    return {"isError": True, "content": [{"type": "text", "text": text}]}


def _plain(answer: BaseModel) -> dict[str, Any]:
    return answer.model_dump(mode="json", by_alias=True, exclude_none=True)


async def _asked(asking: Awaitable[Any]) -> Any:
    """Wait for an answer that is no call; raises ToolError where the server refuses."""
    try:
        return await asking
    except MCPError as error:
        _raise(error)
        raise ToolError(f"The server says: {error.message[:500]}") from error
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(each) for each in fault["loc"])[-120:]
        why = f"{place}: {fault['msg'][:120]}"
        raise ToolError(f"The server's answer does not follow the protocol ({why}).") from None
    except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
        raise Broke("the connection is closed") from error


async def _pages(ask: Callable[[str | None], Awaitable[Any]], key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(PAGES):
        page = _plain(await _asked(ask(cursor)))
        found += page.get(key, [])
        cursor = page.get("nextCursor")
        if cursor is None or len(found) >= ENTRIES:
            break
    return found[:ENTRIES]


def _raise(error: MCPError) -> None:
    """Raise what an error means; return where the server itself answers that the call failed."""
    text = error.message[:500]
    if error.code == UNAUTHORIZED:
        raise Unauthorized from error
    if error.code in (REFUSED, BUSY, UNREACHABLE):
        raise ToolError(f"The server {text}. Nothing was done.") from error
    if error.code == FAILED:
        raise Broke(text) from error
    if error.code in (CONNECTION_CLOSED, PARSE_ERROR):  # the latter: what came was no whole answer
        raise Broke("the connection was lost") from error
    if text == "Session terminated":  # the SDK's words for a 404 to a session's call
        raise Ended from error
    if error.code in (METHOD_NOT_FOUND, INVALID_PARAMS):
        raise ToolError(f"The server refused the call: {text}") from error


@asynccontextmanager
async def open_wire(
    server: Server,
    values: Mapping[str, str],
    env: Mapping[str, str],
    folder: Path,
    tail: Tail,
    *,
    auth: httpx2.Auth | None,
    lost: Callable[[str], None],
    changed: Callable[[], None],
) -> AsyncIterator[Wire]:
    """Connect and yield the open connection.

    Args:
        values: the server's secrets by name.
        env: the whole environment of a server that is started here.
        lost, changed: told when the connection is over, and when the server's lists have changed.
    """

    async def heard(message: IncomingMessage) -> None:
        if isinstance(message, ServerNotification) and message.method.endswith("list_changed"):
            changed()

    hidden = words_of(values.values())
    if server.command:
        transport = stdio(server.command, env, folder, tail, lost, hidden)
    else:
        headers = {name: filled(text, values) for name, text in server.headers.items()}
        transport = http(server.url, headers, auth, hidden)
    client = Client(
        transport,
        client_info=Implementation(name="nod", version="1"),
        message_handler=heard,
        cache=None,  # what is listed is kept here, and never asked for twice
    )
    try:
        async with client, anyio.create_task_group() as group:
            group.start_soon(_follow, client, changed)
            yield Wire(client)
            group.cancel_scope.cancel()
    except Exception as error:  # broad: looked at, and raised again
        cause = first(error)
        if isinstance(cause, MCPError):
            _raise(cause)
        raise


def first(error: BaseException) -> BaseException:
    """Return what went wrong first, where tasks failed together."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _follow(client: Client, changed: Callable[[], None]) -> None:
    """Hear of changed lists the newer protocol's way: by a subscription."""
    tools = client.server_capabilities.tools
    if tools is None or not tools.list_changed:
        return
    with suppress(ListenNotSupportedError, SubscriptionLost, MCPError):
        async with client.listen(tools_list_changed=True) as subscription:
            async for _ in subscription:
                changed()
