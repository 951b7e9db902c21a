"""Jira: issues made, changed, commented and moved on; a hidden property marks each act."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.base import (
    APART,
    Api,
    Result,
    Risk,
    as_wanted,
    by_cursor,
    by_page,
    sought,
    when_started,
)
from connectors.http import ServiceRefused
from connectors.jira import CONNECTOR as jira
from connectors.jira_texts import adf, lost_as_text, text_of
from engine.errors import ToolError
from engine.tools.base import LookUp, Outcome

__all__: list[str] = []

#: Key of the property that holds the id of the call (docs: issue properties, comment properties).
MARK = "nod"
#: Issues and comments a look-up goes through.
RECENT = 50
#: Seconds after which a new issue is found by a search: it is not at once (docs: search, JQL).
INDEXED = 12.0


def _mark(api: Api) -> list[dict[str, Any]]:
    return [{"key": MARK, "value": {"call": api.ctx.call}}]


def _project(arguments: Mapping[str, Any]) -> list[str]:
    return [str(arguments["project"])]


def _issue(arguments: Mapping[str, Any]) -> list[str]:
    return [str(arguments["issue"])]


async def _was_made(api: Api, arguments: Mapping[str, Any], seen: Any) -> Outcome:
    """Look through the issues this person has made in the project since the call began."""
    minutes = int((api.ctx.now() - seen + APART) / 60) + 1
    jql = 'project = "{}" AND creator = currentUser() AND created >= -{}m ORDER BY created DESC'
    query = {"jql": jql.format(_quoted(arguments["project"]), minutes), "fields": "summary"}
    following = by_cursor("nextPageToken", "nextPageToken")
    pages = api.pages("/search/jql", query=query, items="issues", paging=following, most=RECENT)

    def shown(held: tuple[str, Mapping[str, Any]]) -> Result | None:
        issue, mark = held
        ours = mark.get("call") == api.ctx.call
        return api.result({"issue": issue}, arguments["project"]) if ours else None

    marked = ((each["key"], await _property(api, each["key"])) async for each in pages)
    return await sought(marked, RECENT, shown)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


async def _property(api: Api, issue: str) -> Mapping[str, Any]:
    try:
        found = await api.get("/issue/{issue}/properties/{mark}", issue=issue, mark=MARK)
    except ServiceRefused as error:
        if error.status != 404:
            raise
        return {}
    held: Mapping[str, Any] = found["value"]
    return held


@jira.tool(
    risk=Risk.EXTERNAL,
    target=_project,
    look_up=_was_made,
    witness=when_started,
    settle=INDEXED,
)
async def create_issue(
    api: Api, project: str, title: str, description: str = "", type: str = "Task"
) -> Result:
    """Open an issue.

    Args:
        project: The project's key, such as OPS.
        title: Its title.
        description: Its text, plain.
        type: Task, Bug, Story, or another type of the project.
    """
    fields: dict[str, Any] = {"project": {"key": project}, "summary": title}
    fields |= {"issuetype": {"name": type}}
    if description:
        fields["description"] = adf(description)
    json = {"fields": fields, "properties": _mark(api)}
    made = await api.send("POST", "/issue", json=json)
    return api.result({"issue": made["key"]}, project)


async def _was_said(api: Api, arguments: Mapping[str, Any], _seen: Any) -> Outcome:
    """Look through the newest comments; only a list by their ids tells what marks them."""
    pages = api.pages(
        "/issue/{issue}/comment",
        query={"orderBy": "-created", "maxResults": RECENT, "startAt": 0},
        items="comments",
        paging=by_page("startAt", first=0, step=0),
        most=RECENT,
        issue=arguments["issue"],
    )
    ids = [int(each["id"]) async for each in pages]
    query = {"expand": "properties"}
    asked = await api.ask("POST", "/comment/list", query=query, json={"ids": ids}) if ids else None
    for each in asked.json()["values"] if asked else ():
        if _mark(api)[0] in (each.get("properties") or ()):
            return Outcome(found=LookUp.HAPPENED, result=api.result({"comment": each["id"]}))
    return Outcome(found=LookUp.DID_NOT if len(ids) < RECENT else LookUp.CANNOT_TELL)


@jira.tool(risk=Risk.EXTERNAL, target=_issue, look_up=_was_said)
async def comment(api: Api, issue: str, body: str) -> Result:
    """Comment on an issue.

    Args:
        issue: Such as OPS-12.
        body: The comment, plain.
    """
    json = {"body": adf(body), "properties": _mark(api)}
    said = await api.send("POST", "/issue/{issue}/comment", json=json, issue=issue)
    return api.result({"comment": said["id"]}, issue)


async def _held(api: Api, issue: str) -> Mapping[str, Any]:
    query = {"fields": "summary,description,priority,updated"}
    found: Mapping[str, Any] = (await api.get("/issue/{issue}", query=query, issue=issue))["fields"]
    return found


async def _changed_at(api: Api, arguments: Mapping[str, Any]) -> str:
    return str((await _held(api, arguments["issue"]))["updated"])


async def _is_changed(api: Api, arguments: Mapping[str, Any], seen: Any) -> Outcome:
    fields = await _held(api, arguments["issue"])
    held = {
        "title": fields["summary"],
        "description": text_of(fields["description"]),
        "priority": (fields["priority"] or {}).get("name"),
    }
    wanted = {name: arguments[name] for name in held if arguments[name]}
    if "description" in wanted:
        wanted["description"] = text_of(adf(wanted["description"]))
    return as_wanted(wanted, held, fields["updated"] == seen)


@jira.tool(risk=Risk.EXTERNAL, target=_issue, look_up=_is_changed, witness=_changed_at)
async def update_issue(
    api: Api, issue: str, title: str = "", description: str = "", priority: str = ""
) -> Result:
    """Change an issue; what is left empty stays as it is.

    Args:
        issue: Such as OPS-12.
        title: A new title.
        description: A new text, plain; a text with pictures, tables and the like is not replaced.
        priority: Such as High.
    """
    fields: dict[str, Any] = {"summary": title} if title else {}
    if description:
        lost = lost_as_text((await _held(api, issue))["description"])
        if lost:
            what = f"The text of {issue} holds what plain text would remove: {', '.join(lost)}."
            raise ToolError(what, "Comment on it, or have it changed in Jira.")
        fields["description"] = adf(description)
    if priority:
        fields["priority"] = {"name": priority}
    if not fields:
        raise ToolError("Nothing would change.", "Give a title, a description or a priority.")
    await api.send("PUT", "/issue/{issue}", json={"fields": fields}, issue=issue)
    return api.result({"issue": issue, "changed": sorted(fields)}, issue)


async def _status(api: Api, issue: str) -> str:
    found = await api.get("/issue/{issue}", query={"fields": "status"}, issue=issue)
    return str(found["fields"]["status"]["name"])


async def _status_before(api: Api, arguments: Mapping[str, Any]) -> str:
    return await _status(api, arguments["issue"])


async def _is_there(api: Api, arguments: Mapping[str, Any], seen: Any) -> Outcome:
    """Compare the status with the one before; where it is neither, somebody else moved it."""
    now = await _status(api, arguments["issue"])
    if now.lower() == str(arguments["status"]).lower():
        return Outcome(found=LookUp.HAPPENED)
    return Outcome(found=LookUp.DID_NOT if now == seen else LookUp.CANNOT_TELL)


@jira.tool(risk=Risk.EXTERNAL, target=_issue, look_up=_is_there, witness=_status_before)
async def move(api: Api, issue: str, status: str) -> Result:
    """Move an issue on to another status.

    Args:
        issue: Such as OPS-12.
        status: One that it can be moved to, such as In Progress.
    """
    found = (await api.get("/issue/{issue}/transitions", issue=issue))["transitions"]
    fitting = [each["id"] for each in found if each["to"]["name"].lower() == status.lower()]
    if not fitting:
        names = ", ".join(each["to"]["name"] for each in found) or "nothing"
        raise ToolError(f"{issue} cannot be moved to '{status}' now.", f"It can to: {names}.")
    json = {"transition": {"id": fitting[0]}}
    await api.send("POST", "/issue/{issue}/transitions", json=json, issue=issue)
    return api.result({"issue": issue, "status": status}, issue)
