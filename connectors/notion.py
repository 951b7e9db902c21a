"""Notion: search, pages, databases; pages made, text added, comments.

Our own declarations of its API, version 2022-06-28: the client for Python brings a second HTTP
layer with retries of its own, which would send an act twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from connectors.base import Api, Connector, Field, Identity, Key, Limits, OAuth, Result, Risk

__all__ = ["CONNECTOR", "children", "plain", "questions"]

CONNECTOR = notion = Connector(
    name="notion",
    title="Notion",
    about="Search, pages, databases and comments.",
    base="https://api.notion.com/v1",
    docs="https://developers.notion.com/reference",
    auth=(
        OAuth(
            authorize_url="https://api.notion.com/v1/oauth/authorize",
            token_url="https://api.notion.com/v1/oauth/token",
            client="NOTION",
            extra={"owner": "user"},
            client_auth="basic",
        ),
        Key(
            fields=(
                Field(
                    name="token",
                    title="Internal integration secret",
                    hint="notion.so/profile/integrations; share the pages it may see with it.",
                ),
            ),
            headers=lambda fields: {"Authorization": f"Bearer {fields['token']}"},
        ),
    ),
    limits=Limits(per_minute=170, at_once=3),  # three a second (docs: request limits)
    headers={"Notion-Version": "2022-06-28"},
)

#: Items of one page (docs: limits).
PAGE = 100
#: Blocks of one page that are read, and requests it may take: each block with others in it is one.
READ, ASKED = 1_000, 60


@notion.check
async def check(api: Api) -> Identity:
    """See which workspace the secret is for."""
    me = await api.get("/users/me")
    name = (me.get("bot") or {}).get("workspace_name") or me["name"]
    return Identity(label=name, text=f"Connected to {name}.")


async def questions(
    api: Api, path: str, asked: Mapping[str, Any], most: int, **segments: Any
) -> AsyncIterator[Any]:
    """Give the results of a question that is asked by POST, page after page."""
    given = 0
    cursor: dict[str, str] = {}
    while given < most:
        body = {**asked, "page_size": min(PAGE, most - given), **cursor}
        page = (await api.ask("POST", path, json=body, **segments)).json()
        for each in page["results"]:
            given += 1
            yield each
        if not page["has_more"]:
            return
        cursor = {"start_cursor": page["next_cursor"]}


async def children(api: Api, block: str, most: int) -> AsyncIterator[Any]:
    """Give the blocks below a page or block, in order."""
    given, cursor = 0, ""
    while given < most:
        query = {"page_size": PAGE, "start_cursor": cursor}
        page = await api.get("/blocks/{block}/children", query=query, block=block)
        for each in page["results"]:
            given += 1
            yield each
        if not page["has_more"]:
            return
        cursor = page["next_cursor"]


def plain(pieces: Any) -> str:
    """Return rich text as plain text."""
    return "".join(str(each.get("plain_text", "")) for each in pieces or ())


def _title(thing: Mapping[str, Any]) -> str:
    if thing["object"] == "database":
        return plain(thing["title"])
    titles = (each for each in thing["properties"].values() if each["type"] == "title")
    return next((plain(each["title"]) for each in titles), "")


def _row(thing: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: thing.get(name) for name in ("id", "object", "url", "last_edited_time")}
    return {**kept, "title": _title(thing)}


@notion.tool(risk=Risk.READ)
async def search(api: Api, words: str, limit: int = 20) -> Result:
    """Search pages and databases by their title.

    Args:
        words: Words of the title; empty: what was changed last.
        limit: How many, at most.
    """
    sort = {"timestamp": "last_edited_time", "direction": "descending"}
    found = questions(api, "/search", {"query": words, "sort": sort}, limit)
    return api.result([_row(each) async for each in found], "search")


@notion.tool(risk=Risk.READ)
async def read(api: Api, page_id: str) -> Result:
    """Read a page: its properties and its text.

    Args:
        page_id: From a search, or the end of its address.
    """
    page = await api.get("/pages/{id}", id=page_id)
    lines = [line async for line in _lines(api, page_id)]
    values = {name: _value(each) for name, each in page["properties"].items()}
    text = "\n".join(each for each in lines if each.strip())
    return api.result({**_row(page), "properties": values, "text": text}, _title(page))


async def _lines(api: Api, page: str) -> AsyncIterator[str]:
    """Give the text of a page, what lies within a block indented below it."""
    waiting, asked, given = [(0, children(api, page, READ))], 1, 0
    while waiting:
        depth, rows = waiting[-1]
        block = await anext(rows, None)
        if block is None:
            waiting.pop()
            continue
        given += 1
        yield f"{'  ' * depth}{_line(block)}"
        inner = block.get("has_children") and block["type"] not in _PAGES
        if given >= READ or (inner and asked >= ASKED):
            yield "(The page goes on; this is as far as it is read.)"
            return
        if inner:
            asked += 1
            waiting.append((depth + 1, children(api, block["id"], READ)))


_PAGES = ("child_page", "child_database")
_MARKS = {
    "heading_1": "# ",
    "heading_2": "## ",
    "heading_3": "### ",
    "bulleted_list_item": "- ",
    "numbered_list_item": "1. ",
    "quote": "> ",
}


def _line(block: Mapping[str, Any]) -> str:
    kind = block["type"]
    held = block.get(kind) or {}
    if kind == "to_do":
        return f"- [{'x' if held.get('checked') else ' '}] {plain(held['rich_text'])}"
    if kind in _PAGES:
        return f"[{held.get('title', '')}] ({kind}, {block['id']})"
    return f"{_MARKS.get(kind, '')}{plain(held.get('rich_text'))}"


def _value(value: Mapping[str, Any]) -> Any:
    """Return a property's value in the shortest form that says it."""
    held = value.get(value["type"])
    if value["type"] in ("title", "rich_text"):
        return plain(held)
    if isinstance(held, dict):
        return held.get("name") or held.get("start") or held.get("string") or held
    if isinstance(held, list):
        return [each.get("name", each) if isinstance(each, dict) else each for each in held]
    return held


@notion.tool(risk=Risk.READ)
async def query(
    api: Api, database_id: str, filter: dict[str, Any] | None = None, limit: int = 30
) -> Result:
    """List the rows of a database.

    Args:
        database_id: From a search.
        filter: As Notion's API takes it: {"property": "Status", "status": {"equals": "Done"}}.
        limit: How many, at most.
    """
    asked = {"filter": filter} if filter else {}
    found = questions(api, "/databases/{id}/query", asked, limit, id=database_id)
    rows = [
        {"id": each["id"], **{name: _value(held) for name, held in each["properties"].items()}}
        async for each in found
    ]
    return api.result(rows, database_id)
