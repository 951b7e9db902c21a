"""Notion's API, version 2022-06-28, as far as our connector uses it; developers.notion.com.

One page and one database. It refuses what the real one refuses: no version header, unknown fields,
pages over 100, texts over 2,000 characters, more than 100 blocks, an id that is not shared.
"""

from __future__ import annotations

from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from aiohttp import web

from tests.fakes.vendors.cases import Case
from tests.fakes.vendors.service import Refused, Service

__all__ = ["ACTS", "MANY", "READS", "Fake"]

READS = (
    Case(tool="notion_search", arguments={"words": "plan"}, gives="The plan", method="POST"),
    Case(tool="notion_read", arguments={"page_id": "page-1"}, gives="Step one"),
    Case(tool="notion_query", arguments={"database_id": "db-1"}, gives="Open", method="POST"),
)
ACTS = (
    Case(
        tool="notion_create_page",
        arguments={"parent_id": "page-1", "title": "Notes", "text": "One.\n\nTwo."},
        gives="page-",
        target=("notion:page-1",),
        method="POST",
    ),
    Case(
        tool="notion_add_text",
        arguments={"page_id": "page-1", "text": "More.\n\nAnd more."},
        gives="added_to",
        target=("notion:page-1",),
        method="PATCH",
    ),
    Case(
        tool="notion_comment",
        arguments={"page_id": "page-1", "text": "Good."},
        gives="comment",
        target=("notion:page-1",),
        method="POST",
    ),
)
MANY = Case(
    tool="notion_search",
    arguments={"words": "many", "limit": 10_000},
    gives="page 9999",
    method="POST",
)


def _when() -> str:
    """Notion tells times by the minute."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:00.000Z}"


class Fake(Service):
    """The vendor, with one workspace."""

    unauthorized = MappingProxyType({"object": "error", "message": "API token is invalid."})

    def routes(self) -> None:
        self.pages = {"page-1": _page("page-1", "The plan")}
        self.many = [_page(f"m-{n}", f"page {n}") for n in range(10_000)]
        self.blocks: dict[str, list[dict[str, Any]]] = {
            "page-1": [_block("heading_1", "The plan"), _block("paragraph", "Step one")]
        }
        self.comments: list[dict[str, Any]] = []
        on = self.on
        on("GET", "/users/me", self._me)
        on("POST", "/search", self._search)
        on("GET", "/pages/{id}", self._read)
        on("POST", "/pages", self._create)
        on("GET", "/blocks/{id}/children", self._children)
        on("PATCH", "/blocks/{id}/children", self._append)
        on("POST", "/databases/{id}/query", self._query)
        on("GET", "/comments", self._comments)
        on("POST", "/comments", self._comment)

    async def _me(self, request: web.Request) -> Any:
        self._version(request)
        return {"object": "user", "name": "Nod", "bot": {"workspace_name": "Acme"}}

    async def _search(self, request: web.Request) -> Any:
        given = await self._body(request, {"query", "sort", "filter", "page_size", "start_cursor"})
        found = self.many if given.get("query") == "many" else list(self.pages.values())
        return _cut(found, given.get("page_size", 100), given.get("start_cursor"))

    async def _read(self, request: web.Request) -> Any:
        self._version(request)
        return self._page(request.match_info["id"])

    async def _children(self, request: web.Request) -> Any:
        self._version(request)
        found = self.blocks.get(request.match_info["id"])
        if found is None:
            raise _missing()
        query = request.query
        return _cut(found, int(query.get("page_size", 100)), query.get("start_cursor"))

    async def _query(self, request: web.Request) -> Any:
        given = await self._body(request, {"filter", "sorts", "page_size", "start_cursor"})
        if request.match_info["id"] != "db-1":
            raise _missing()
        status = {"type": "status", "status": {"name": "Open"}}
        row = {"object": "page", "id": "row-1", "properties": {"Status": status}}
        return _cut([row], given.get("page_size", 100), given.get("start_cursor"))

    async def _comments(self, request: web.Request) -> Any:
        self._page(request.query["block_id"])
        size, first = int(request.query.get("page_size", 100)), request.query.get("start_cursor")
        return _cut(self.comments, size, first)

    async def _create(self, request: web.Request) -> Any:
        given = await self._body(request, {"parent", "properties", "children"})
        parent = given["parent"]["page_id"]
        self._page(parent)
        title = _written(given["properties"]["title"]["title"])
        made = _page(f"page-{len(self.pages) + 1}", title)
        self.pages[made["id"]] = made
        child = {"id": made["id"], "type": "child_page", "child_page": {"title": title}}
        self.blocks[parent].append({**child, "created_time": _when()})
        self.blocks[made["id"]] = [_taken(each) for each in _few(given["children"])]
        self.acts.append(given)
        return made

    async def _append(self, request: web.Request) -> Any:
        given = await self._body(request, {"children", "after"})
        self._page(request.match_info["id"])
        new = [_taken(each) for each in _few(given["children"])]
        self.blocks[request.match_info["id"]] += new
        self.acts.append(given)
        return {"object": "list", "results": new}

    async def _comment(self, request: web.Request) -> Any:
        given = await self._body(request, {"parent", "rich_text", "discussion_id"})
        self._page(given["parent"]["page_id"])
        text = _written(given["rich_text"])
        said = {"id": "c-1", "rich_text": [{"plain_text": text}], "created_time": _when()}
        self.comments.append(said)
        self.acts.append(given)
        return said

    def _version(self, request: web.Request) -> None:
        if request.headers.get("Notion-Version") != "2022-06-28":
            raise _bad("Notion-Version header should be defined")

    async def _body(self, request: web.Request, known: set[str]) -> dict[str, Any]:
        self._version(request)
        given: dict[str, Any] = await request.json()
        if unknown := set(given) - known:
            raise _bad(f"body.{unknown} should be not present")
        return given

    def _page(self, id: str) -> dict[str, Any]:
        if id not in self.pages:
            raise _missing()
        return self.pages[id]


def _page(id: str, title: str) -> dict[str, Any]:
    titled = {"type": "title", "title": [{"plain_text": title}]}
    return {
        "object": "page",
        "id": id,
        "url": f"https://www.notion.so/{id}",
        "last_edited_time": _when(),
        "properties": {"title": titled},
    }


def _block(kind: str, text: str) -> dict[str, Any]:
    rich = {"rich_text": [{"plain_text": text}]}
    return {"id": "b", "type": kind, kind: rich, "created_time": _when()}


def _taken(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] != "paragraph":
        raise _bad("body.children is not valid")
    return _block("paragraph", _written(block["paragraph"]["rich_text"]))


def _few(blocks: list[Any]) -> list[Any]:
    if len(blocks) > 100:
        raise _bad("body.children.length should be ≤ `100`")
    return blocks


def _written(pieces: list[Any]) -> str:
    texts = [each["text"]["content"] for each in pieces]
    if any(len(each) > 2_000 for each in texts):
        raise _bad("text.content.length should be ≤ `2000`")
    return "".join(texts)


def _cut(found: list[Any], size: int, cursor: str | None) -> dict[str, Any]:
    if not 1 <= size <= 100:
        raise _bad("page_size should be ≤ `100`")
    begin = int(cursor or 0)
    more = len(found) > begin + size
    page = {"object": "list", "results": found[begin : begin + size], "has_more": more}
    return {**page, "next_cursor": str(begin + size) if more else None}


def _missing() -> Refused:
    words = "Could not find it. Make sure the relevant pages are shared with your integration."
    return Refused(404, {"object": "error", "code": "object_not_found", "message": words})


def _bad(message: str) -> Refused:
    return Refused(400, {"object": "error", "code": "validation_error", "message": message})
