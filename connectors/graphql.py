"""GraphQL over a connector's `Api`: questions, acts and paged lists (Relay's connections)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from connectors.base import Api
from connectors.http import Reply, ServiceRefused, Unauthorized, Unreachable

__all__ = ["act", "ask", "fault", "pages"]

#: Items of one page.
PAGE = 50

#: Codes by which services say that they do not know us.
_UNKNOWN = frozenset({"AUTHENTICATION_ERROR", "UNAUTHENTICATED"})
_SLOWER = frozenset({"RATELIMITED", "RATE_LIMITED"})
#: Codes by which they say that they broke on the way: an act may have been done.
_BROKEN = frozenset({"INTERNAL_SERVER_ERROR", "INTERNAL_ERROR"})


async def ask(api: Api, document: str, **variables: Any) -> Any:
    """Return the data of a query. Raises what connectors/http.py lists."""
    body = {"query": document, "variables": variables}
    return (await api.ask("POST", "", json=body)).json()["data"]


async def act(api: Api, document: str, **variables: Any) -> Any:
    """Do a mutation and return its data."""
    body = {"query": document, "variables": variables}
    return (await api.send("POST", "", json=body))["data"]


async def pages(
    api: Api, document: str, at: str, *, most: int, **variables: Any
) -> AsyncIterator[Any]:
    """Give the nodes of the connection at `at` (dotted), at most `most`.

    The document takes $first and $after and asks for nodes and pageInfo.
    """
    given, after = 0, None
    while given < most:
        first = min(PAGE, most - given)
        found = await ask(api, document, first=first, after=after, **variables)
        for part in at.split("."):
            found = found[part]
        for node in found["nodes"]:
            given += 1
            yield node
        if not found["pageInfo"]["hasNextPage"] or not found["nodes"]:
            return
        after = found["pageInfo"]["endCursor"]


def fault(reply: Reply) -> Exception | None:
    """Say what the errors of an answer mean; None when it has none."""
    said = reply.json()
    errors = said.get("errors") if isinstance(said, dict) else None
    if not errors:
        return None
    codes = {str((each.get("extensions") or {}).get("code", "")) for each in errors}
    if codes & _UNKNOWN:
        return Unauthorized("The service does not take the credentials.")
    words = "; ".join(str(each.get("message", "")) for each in errors)[:500]
    if codes & _BROKEN:
        raise Unreachable(f"The service failed: {words}.", "Try again later.")
    if codes & _SLOWER:
        return ServiceRefused(429, f"The service asks to slow down: {words}.", "Try again later.")
    return ServiceRefused(200, f"The service refused it: {words}")
