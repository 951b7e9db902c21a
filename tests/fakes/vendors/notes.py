"""A small connector and its vendor, for what all connectors have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from connectors.base import Api, Connector, Field, Identity, Key, Limits, OAuth, by_page
from engine.tools.base import LookUp, Outcome, Result, Risk
from tests.fakes.vendors.cases import Case
from tests.fakes.vendors.service import Refused, Service

__all__ = ["ACTS", "CONNECTOR", "MANY", "READS", "Fake"]

CONNECTOR = notes = Connector(
    name="notes",
    title="Notes",
    about="Notes of a team.",
    base="https://api.notes.example",
    auth=(
        OAuth(
            authorize_url="https://notes.example/authorize",
            token_url="https://notes.example/token",
            client="NOTES",
        ),
        Key(
            fields=(Field(name="token", title="Token"),),
            headers=lambda fields: {"Authorization": f"Bearer {fields['token']}"},
        ),
    ),
    limits=Limits(per_minute=100_000),
)


@notes.check
async def check(api: Api) -> Identity:
    """See whose the token is."""
    me = await api.get("/me")
    return Identity(label=me["login"], text=f"Signed in as {me['login']}.")


@notes.tool(risk=Risk.READ)
async def search(api: Api, query: str, limit: int = 20) -> Result:
    """Search the notes.

    Args:
        query: Words that must be in them.
        limit: How many, at most.
    """
    asked = {"q": query, "size": 100, "page": 1}
    pages = api.pages("/notes", query=asked, paging=by_page("page"), most=limit)
    return api.result([note["text"] async for note in pages], query)


@notes.tool(risk=Risk.READ)
async def read(api: Api, book: str, number: int) -> Result:
    """Read one note.

    Args:
        book: The book it is in.
        number: Its number.
    """
    return api.result(await api.get("/books/{book}/notes/{number}", book=book, number=number), book)


async def _was_added(api: Api, arguments: Mapping[str, Any], seen: Any) -> Outcome:
    found = await api.get("/notes", query={"key": api.ctx.call})
    return Outcome(found=LookUp.HAPPENED if found else LookUp.DID_NOT)


@notes.tool(risk=Risk.EXTERNAL, target=lambda arguments: [arguments["book"]], look_up=_was_added)
async def add(api: Api, book: str, text: str) -> Result:
    """Write a note that all readers of the book see.

    Args:
        book: The book.
        text: The note.
    """
    body = {"text": text, "key": api.ctx.call}
    made = await api.send("POST", "/books/{book}/notes", json=body, book=book)
    return api.result({"number": made["number"]}, book)


READS = (
    Case(tool="notes_search", arguments={"query": "tea"}, gives="green tea"),
    Case(tool="notes_read", arguments={"book": "a/b c", "number": 1}, gives="green tea"),
)
ACTS = (
    Case(
        tool="notes_add",
        arguments={"book": "a/b c", "text": "black tea"},
        gives='"number":2',
        target=("notes:a/b c",),
        method="POST",
    ),
)
MANY = Case(tool="notes_search", arguments={"query": "many", "limit": 10_000}, gives="many 9999")


class Fake(Service):
    """The vendor: books of notes, searched page by page."""

    def routes(self) -> None:
        self.on("GET", "/me", self._me)
        self.on("GET", "/notes", self._search)
        self.on("GET", "/books/{book}/notes/{number}", self._read)
        self.on("POST", "/books/{book}/notes", self._add)

    async def _me(self, request: web.Request) -> Any:
        return {"login": self.who(request)}

    async def _search(self, request: web.Request) -> Any:
        if "key" in request.query:
            return [act for act in self.acts if act["key"] == request.query["key"]]
        size, page = int(request.query["size"]), int(request.query["page"])
        if not 1 <= size <= 100:
            raise Refused(422, {"message": "size must be 1 to 100"})
        texts = [f"many {n}" for n in range(10_000)] if request.query["q"] == "many" else [_TEA]
        return [{"text": text} for text in texts[size * (page - 1) : size * page]]

    async def _read(self, request: web.Request) -> Any:
        if request.match_info["book"] != "a/b c":
            raise Refused(404, {"message": "no such book"})
        return {"text": _TEA}

    async def _add(self, request: web.Request) -> Any:
        body = await request.json()
        if not body.get("text"):
            raise Refused(422, {"message": "text is missing"})
        self.acts.append(body)
        return {"number": len(self.acts) + 1}


_TEA = "green tea"
