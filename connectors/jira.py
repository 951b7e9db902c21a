"""Jira Cloud: search, issues, projects; issues made, changed, commented and moved on.

Our own declarations of the REST API v3: the clients for Python are synchronous, and most still ask
for the search that the vendor has retired. Texts are written in its document format (ADF) as
paragraphs and read back as plain text.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from connectors.base import (
    Api,
    Connector,
    Field,
    Identity,
    Key,
    Limits,
    Paging,
    Result,
    Risk,
    by_cursor,
    by_page,
)
from connectors.jira_texts import text_of
from engine.errors import ToolError

__all__ = ["CONNECTOR", "site"]


def site(fields: Mapping[str, Any]) -> str:
    """Return the address of the API of a site: "acme", or acme.atlassian.net."""
    host = str(fields["site"]).strip().removeprefix("https://").split("/")[0]
    name, _, domain = host.lower().partition(".")
    if not name.replace("-", "").isalnum() or domain not in ("", "atlassian.net"):
        raise ToolError("That is no site of Jira Cloud.", "Write acme for acme.atlassian.net.")
    return f"https://{name}.atlassian.net/rest/api/3"


def _basic(fields: Mapping[str, Any]) -> dict[str, str]:
    pair = f"{fields['email']}:{fields['token']}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


CONNECTOR = jira = Connector(
    name="jira",
    title="Jira",
    about="Search, issues, comments and their progress.",
    base="",
    docs="https://developer.atlassian.com/cloud/jira/platform/rest/v3",
    auth=(
        Key(
            fields=(
                Field(name="site", title="Site", secret=False, hint="acme for acme.atlassian.net"),
                Field(name="email", title="Address you sign in with", secret=False),
                Field(
                    name="token",
                    title="API token",
                    hint="id.atlassian.com, Security, API tokens.",
                ),
            ),
            headers=_basic,
        ),
    ),
    address=site,
    limits=Limits(per_minute=120),
)

#: Issues of one page (docs: search).
PAGE = 100
_FIELDS = ("summary", "status", "issuetype", "priority", "assignee", "reporter", "updated")
_next: Paging = by_cursor("nextPageToken", "nextPageToken")
_counted: Paging = by_page("startAt", first=0, step=0)


@jira.check
async def check(api: Api) -> Identity:
    """See whose the token is."""
    me = await api.get("/myself")
    where = site(await api.secret()).removeprefix("https://").partition("/")[0]
    return Identity(label=where, text=f"Signed in to {where} as {me['displayName']}.")


def _brief(issue: Mapping[str, Any]) -> dict[str, Any]:
    fields = issue["fields"]
    people = {name: _name(fields, name, "displayName") for name in ("assignee", "reporter")}
    return {
        "issue": issue["key"],
        "title": fields["summary"],
        "status": fields["status"]["name"],
        "type": fields["issuetype"]["name"],
        "priority": _name(fields, "priority", "name"),
        **people,
        "updated": fields["updated"],
    }


def _name(fields: Mapping[str, Any], which: str, key: str) -> str | None:
    found = fields.get(which)
    return None if found is None else str(found[key])


@jira.tool(risk=Risk.READ)
async def search(api: Api, jql: str, limit: int = 20) -> Result:
    """Search issues.

    Args:
        jql: Jira's query language: project = OPS AND status != Done ORDER BY updated DESC.
        limit: How many, at most.
    """
    query = {"jql": jql, "fields": ",".join(_FIELDS), "maxResults": min(limit, PAGE)}
    pages = api.pages("/search/jql", query=query, items="issues", paging=_next, most=limit)
    return api.result([_brief(each) async for each in pages], "search")


@jira.tool(risk=Risk.READ)
async def projects(api: Api, limit: int = 50) -> Result:
    """List the projects, with the keys that issues begin with.

    Args:
        limit: How many, at most.
    """
    query = {"maxResults": min(limit, 50), "startAt": 0}
    pages = api.pages("/project/search", query=query, items="values", paging=_counted, most=limit)
    return api.result([{"key": each["key"], "name": each["name"]} async for each in pages])


@jira.tool(risk=Risk.READ)
async def read(api: Api, issue: str, comments: int = 30) -> Result:
    """Read an issue with its comments.

    Args:
        issue: Such as OPS-12.
        comments: How many comments, at most, the oldest first.
    """
    query = {"fields": ",".join((*_FIELDS, "description"))}
    found = await api.get("/issue/{issue}", query=query, issue=issue)
    asked = {"maxResults": min(comments, 100), "startAt": 0}
    pages = api.pages(
        "/issue/{issue}/comment",
        query=asked,
        items="comments",
        paging=_counted,
        most=comments,
        issue=issue,
    )
    said = [
        {"by": each["author"]["displayName"], "at": each["created"], "text": text_of(each["body"])}
        async for each in pages
    ]
    text = {"description": text_of(found["fields"].get("description")), "comments": said}
    return api.result({**_brief(found), **text}, issue)


@jira.tool(risk=Risk.READ)
async def transitions(api: Api, issue: str) -> Result:
    """List where an issue can be moved to from its status.

    Args:
        issue: Such as OPS-12.
    """
    found = (await api.get("/issue/{issue}/transitions", issue=issue))["transitions"]
    return api.result([each["to"]["name"] for each in found], issue)
