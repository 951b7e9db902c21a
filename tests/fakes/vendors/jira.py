"""Jira Cloud's REST API v3, as far as our connector uses it; developer.atlassian.com.

Project OPS with one issue. It refuses what the real one refuses: the retired search (410), pages
over 100, text that is no ADF, unknown fields, a transition that is not open, a bad property.
"""

from __future__ import annotations

import base64
from types import MappingProxyType
from typing import Any

from aiohttp import web

from tests.fakes.vendors.cases import Case
from tests.fakes.vendors.service import Refused, Service

__all__ = ["ACTS", "FIELDS", "MANY", "READS", "Fake"]

FIELDS = {"site": "acme", "email": "ana@acme.example", "token": "token-1"}
READS = (
    Case(tool="jira_search", arguments={"jql": "project = OPS"}, gives="OPS-1"),
    Case(tool="jira_projects", arguments={}, gives="Operations"),
    Case(tool="jira_read", arguments={"issue": "OPS-1"}, gives="Here, too"),
    Case(tool="jira_transitions", arguments={"issue": "OPS-1"}, gives="Done"),
)
ACTS = (
    Case(
        tool="jira_comment",
        arguments={"issue": "OPS-1", "body": "Looking.\nSoon."},
        gives="comment",
        target=("jira:OPS-1",),
        method="POST",
    ),
    Case(
        tool="jira_create_issue",
        arguments={"project": "OPS", "title": "Slow", "description": "Very."},
        gives="OPS-2",
        target=("jira:OPS",),
        method="POST",
    ),
    Case(
        tool="jira_update_issue",
        arguments={"issue": "OPS-1", "title": "It crashes often"},
        gives="summary",
        target=("jira:OPS-1",),
        method="PUT",
    ),
    Case(
        tool="jira_move",
        arguments={"issue": "OPS-1", "status": "done"},
        gives="done",
        target=("jira:OPS-1",),
        method="POST",
    ),
)
MANY = Case(tool="jira_search", arguments={"jql": "text ~ many", "limit": 10_000}, gives="OPS-9999")

_WHEN = "2026-03-01T08:00:00.000+0000"
_ANA = {"displayName": "Ana", "emailAddress": "ana@acme.example"}
_TEXT = {"type": "doc", "version": 1, "content": []}


class Fake(Service):
    """The vendor, with one project."""

    unauthorized = MappingProxyType({"errorMessages": ["You are not authenticated."]})

    def routes(self) -> None:
        self.issues = {"OPS-1": _issue("OPS-1", "It crashes")}
        self.many = [_issue(f"OPS-{n}", "many") for n in range(10_000)]
        self.comments = {"OPS-1": [_said("10", _doc("Here, too"), [])]}
        self.properties: dict[str, Any] = {}
        on = self.on
        on("GET", "/myself", self._me)
        on("GET", "/search", self._retired)
        on("GET", "/search/jql", self._search)
        on("GET", "/project/search", self._projects)
        on("POST", "/issue", self._create)
        on("GET", "/issue/{key}", self._read)
        on("PUT", "/issue/{key}", self._update)
        on("GET", "/issue/{key}/comment", self._comments)
        on("POST", "/issue/{key}/comment", self._comment)
        on("POST", "/comment/list", self._by_ids)
        on("GET", "/issue/{key}/properties/{name}", self._property)
        on("GET", "/issue/{key}/transitions", self._transitions)
        on("POST", "/issue/{key}/transitions", self._move)

    def who(self, request: web.Request) -> str:
        scheme, _, held = request.headers.get("Authorization", "").partition(" ")
        email, _, token = (
            base64.b64decode(held if scheme == "Basic" else "").decode().partition(":")
        )
        if email != "ana@acme.example" or token not in self.tokens:
            raise Refused(401, dict(self.unauthorized))
        return email

    async def _me(self, request: web.Request) -> Any:
        return _ANA

    async def _retired(self, request: web.Request) -> Any:
        raise Refused(410, {"errorMessages": ["The requested API has been removed."]})

    async def _search(self, request: web.Request) -> Any:
        query = request.query
        size, first = int(query.get("maxResults", 50)), int(query.get("nextPageToken", 0))
        if not query.get("jql") or not 1 <= size <= 100:
            raise _bad("The JQL or the page is not valid.")
        found = self.many if "many" in query["jql"] else list(self.issues.values())[::-1]
        page = {"issues": found[first : first + size], "isLast": len(found) <= first + size}
        if not page["isLast"]:
            page["nextPageToken"] = str(first + size)
        return page

    async def _projects(self, request: web.Request) -> Any:
        first = int(request.query.get("startAt", 0))
        return {"values": [{"key": "OPS", "name": "Operations"}][first:], "isLast": True}

    async def _read(self, request: web.Request) -> Any:
        return self._issue(request)

    async def _comments(self, request: web.Request) -> Any:
        found = self.comments[self._issue(request)["key"]]
        if request.query.get("orderBy") == "-created":
            found = found[::-1]
        first, size = int(request.query.get("startAt", 0)), int(request.query["maxResults"])
        page = found[first : first + size]
        page = [{k: v for k, v in each.items() if k != "properties"} for each in page]
        return {"startAt": first, "total": len(found), "comments": page}

    async def _by_ids(self, request: web.Request) -> Any:
        """Only this list can be asked for properties (docs: get comments by ids)."""
        wanted = (await request.json())["ids"]
        if not all(isinstance(each, int) for each in wanted) or len(wanted) > 1_000:
            raise _bad("ids")
        found = [c for said in self.comments.values() for c in said if int(c["id"]) in wanted]
        if request.query.get("expand") != "properties":
            found = [{k: v for k, v in each.items() if k != "properties"} for each in found]
        return {"values": found, "isLast": True}

    async def _property(self, request: web.Request) -> Any:
        name, key = request.match_info["name"], self._issue(request)["key"]
        for each in self.properties.get(key, ()):
            if each["key"] == name:
                return each
        raise Refused(404, {"errorMessages": ["The property was not found."]})

    async def _transitions(self, request: web.Request) -> Any:
        self._issue(request)
        return {"transitions": [{"id": "31", "name": "Finish", "to": {"name": "Done"}}]}

    # -- acts

    async def _create(self, request: web.Request) -> Any:
        given = await request.json()
        fields = self._fields(given, {"fields", "properties"})
        if fields["project"] != {"key": "OPS"} or fields["issuetype"]["name"] not in (
            "Task",
            "Bug",
        ):
            raise _bad("project or issuetype is not valid")
        key = f"OPS-{len(self.issues) + 1}"
        self.issues[key] = _issue(key, fields["summary"])
        self.comments[key], self.properties[key] = [], given.get("properties", [])
        self.acts.append(key)
        return web.json_response({"id": "1", "key": key}, status=201)

    async def _update(self, request: web.Request) -> Any:
        issue = self._issue(request)
        issue["fields"] |= self._fields(await request.json(), {"fields"})
        self.acts.append(issue["key"])
        return web.Response(status=204)

    async def _comment(self, request: web.Request) -> Any:
        key, given = self._issue(request)["key"], await request.json()
        if set(given) - {"body", "properties"}:
            raise _bad("unknown field")
        self._adf(given["body"])
        self.comments[key].append(_said("11", given["body"], given.get("properties", [])))
        self.acts.append(given)
        return web.json_response({"id": "11"}, status=201)

    async def _move(self, request: web.Request) -> Any:
        issue = self._issue(request)
        if (await request.json()) != {"transition": {"id": "31"}}:
            raise _bad("Transition is not valid.")
        issue["fields"]["status"] = {"name": "Done"}
        self.acts.append(issue["key"])
        return web.Response(status=204)

    def _issue(self, request: web.Request) -> dict[str, Any]:
        key = request.match_info["key"]
        if key not in self.issues:
            raise Refused(404, {"errorMessages": ["Issue does not exist or no permission."]})
        return self.issues[key]

    def _fields(self, given: dict[str, Any], known: set[str]) -> dict[str, Any]:
        fields: dict[str, Any] = given["fields"]
        wrong = set(fields) - {"project", "summary", "issuetype", "description", "priority"}
        if set(given) - known or wrong:
            raise _bad(f"Field {wrong} cannot be set.")
        if "description" in fields:
            self._adf(fields["description"])
        return fields

    def _adf(self, document: Any) -> None:
        """Refuse what is no document: text nodes must not be empty, blocks have a known type."""
        if not isinstance(document, dict) or document.get("type") != "doc":
            raise _bad("Operation value must be an Atlassian Document.")
        for block in document["content"]:
            texts = [each.get("text") for each in block["content"] if each["type"] == "text"]
            if block["type"] != "paragraph" or "" in texts:
                raise _bad("INVALID_INPUT")


def _issue(key: str, title: str) -> dict[str, Any]:
    fields = {
        "summary": title,
        "status": {"name": "To Do"},
        "issuetype": {"name": "Bug"},
        "priority": {"name": "High"},
        "assignee": None,
        "reporter": _ANA,
        "updated": _WHEN,
        "description": _doc("On start."),
    }
    return {"id": key, "key": key, "fields": fields}


def _doc(text: str) -> dict[str, Any]:
    paragraph = {"type": "paragraph", "content": [{"type": "text", "text": text}]}
    return {**_TEXT, "content": [paragraph]}


def _said(id: str, body: Any, properties: list[Any]) -> dict[str, Any]:
    return {"id": id, "author": _ANA, "created": _WHEN, "body": body, "properties": properties}


def _bad(message: str) -> Refused:
    return Refused(400, {"errorMessages": [message], "errors": {}})
