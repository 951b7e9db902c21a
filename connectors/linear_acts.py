"""Linear: issues made and changed, and comments, each under an id that is the call's own."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from typing import Any

from connectors import graphql
from connectors.base import Api, Result, Risk, as_wanted
from connectors.http import ServiceRefused
from connectors.linear import CONNECTOR as linear
from connectors.linear import ISSUE, brief
from engine.errors import ToolError
from engine.tools.base import LookUp, Outcome

__all__: list[str] = []


async def _one(api: Api, document: str, what: str, name: str, **variables: Any) -> str:
    """Return the id of the one thing of that name; raises ToolError when there is none."""
    found = (await graphql.ask(api, document, name=name, **variables))[what]["nodes"]
    if not found:
        raise ToolError(f"Linear has no '{name}' among its {what}.", "List what there is.")
    return str(found[0]["id"])


async def _team(api: Api, key: str) -> str:
    document = "query($name: String!) { teams(filter: {key: {eq: $name}}) { nodes { id } } }"
    return await _one(api, document, "teams", key)


async def _person(api: Api, email: str) -> str:
    document = "query($name: String!) { users(filter: {email: {eq: $name}}) { nodes { id } } }"
    return await _one(api, document, "users", email)


def _own_id(api: Api) -> str:
    """Return an id of the call's own: Linear takes ours and refuses the same one twice."""
    return str(uuid.UUID(bytes=hashlib.sha256(api.ctx.call.encode()).digest()[:16], version=4))


async def _issue_is_there(api: Api, arguments: Mapping[str, Any], _seen: Any) -> Outcome:
    return await _is_there(api, f"query($id: String!) {{ issue(id: $id) {{ {ISSUE} }} }}")


async def _comment_is_there(api: Api, arguments: Mapping[str, Any], _seen: Any) -> Outcome:
    return await _is_there(api, "query($id: String!) { comment(id: $id) { id } }")


async def _is_there(api: Api, document: str) -> Outcome:
    try:
        await graphql.ask(api, document, id=_own_id(api))
    except ServiceRefused as error:
        if "not found" not in str(error).lower():
            raise
        return Outcome(found=LookUp.DID_NOT)
    return Outcome(found=LookUp.HAPPENED)


def _team_and_person(arguments: Mapping[str, Any]) -> list[str]:
    return [str(arguments["team"]), *_assigned(arguments)]


def _assigned(arguments: Mapping[str, Any]) -> list[str]:
    """Who gets the issue: Linear tells them."""
    return [str(arguments["assignee"]).lower()] if arguments.get("assignee") else []


@linear.tool(risk=Risk.EXTERNAL, target=_team_and_person, look_up=_issue_is_there)
async def create_issue(
    api: Api, team: str, title: str, description: str = "", priority: int = 0, assignee: str = ""
) -> Result:
    """Open an issue.

    Args:
        team: The team's key, such as ENG.
        title: Its title.
        description: Its text, in Markdown.
        priority: 0 none, 1 urgent, 2 high, 3 medium, 4 low.
        assignee: The address of a person.
    """
    given: dict[str, Any] = {"id": _own_id(api), "teamId": await _team(api, team)}
    given |= {"title": title, "description": description, "priority": priority}
    if assignee:
        given["assigneeId"] = await _person(api, assignee)
    document = (
        "mutation($input: IssueCreateInput!) "
        f"{{ issueCreate(input: $input) {{ success issue {{ {ISSUE} }} }} }}"
    )
    made = await graphql.act(api, document, input=given)
    return api.result(brief(made["issueCreate"]["issue"]), team)


def _issue_itself(arguments: Mapping[str, Any]) -> list[str]:
    return [str(arguments["issue"]), *_assigned(arguments)]


@linear.tool(risk=Risk.EXTERNAL, target=_issue_itself, look_up=_comment_is_there)
async def comment(api: Api, issue: str, body: str) -> Result:
    """Comment on an issue.

    Args:
        issue: Such as ENG-12.
        body: The comment, in Markdown.
    """
    given = {"id": _own_id(api), "issueId": issue, "body": body}
    document = (
        "mutation($input: CommentCreateInput!) "
        "{ commentCreate(input: $input) { success comment { id url } } }"
    )
    made = await graphql.act(api, document, input=given)
    return api.result(made["commentCreate"]["comment"], issue)


async def _held(api: Api, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    document = (
        "query($id: String!) { issue(id: $id) "
        "{ title description updatedAt state { name } assignee { email } } }"
    )
    found: Mapping[str, Any] = (await graphql.ask(api, document, id=arguments["issue"]))["issue"]
    return found


async def _changed_at(api: Api, arguments: Mapping[str, Any]) -> str:
    return str((await _held(api, arguments))["updatedAt"])


async def _is_changed(api: Api, arguments: Mapping[str, Any], seen: Any) -> Outcome:
    issue = await _held(api, arguments)
    held = {
        "title": issue["title"],
        "description": issue["description"],
        "state": issue["state"]["name"].lower(),
        "assignee": ((issue["assignee"] or {}).get("email") or "").lower(),
    }
    wanted = {name: arguments[name] for name in held if arguments[name]}
    wanted |= {name: wanted[name].lower() for name in ("state", "assignee") if name in wanted}
    return as_wanted(wanted, held, issue["updatedAt"] == seen)


@linear.tool(risk=Risk.EXTERNAL, target=_issue_itself, look_up=_is_changed, witness=_changed_at)
async def update_issue(
    api: Api,
    issue: str,
    title: str = "",
    description: str = "",
    state: str = "",
    assignee: str = "",
) -> Result:
    """Change an issue; what is left empty stays as it is.

    Args:
        issue: Such as ENG-12.
        title: A new title.
        description: A new text.
        state: The name of another state, such as Done.
        assignee: The address of the person it is assigned to now.
    """
    given = {name: v for name, v in (("title", title), ("description", description)) if v}
    if state:
        document = (
            "query($name: String!, $team: String!) { workflowStates(filter: {name: "
            "{eqIgnoreCase: $name}, team: {key: {eq: $team}}}) { nodes { id } } }"
        )
        team = issue.partition("-")[0]
        given["stateId"] = await _one(api, document, "workflowStates", state, team=team)
    if assignee:
        given["assigneeId"] = await _person(api, assignee)
    if not given:
        raise ToolError("Nothing would change.", "Give a title, text, state or assignee.")
    document = (
        "mutation($id: String!, $input: IssueUpdateInput!) "
        f"{{ issueUpdate(id: $id, input: $input) {{ success issue {{ {ISSUE} }} }} }}"
    )
    changed = await graphql.act(api, document, id=issue, input=given)
    return api.result(brief(changed["issueUpdate"]["issue"]), issue)
