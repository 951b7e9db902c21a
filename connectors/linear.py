"""Linear: search, issues, comments; issues made and changed.

Our own declarations of its GraphQL API: there is no client of its own for Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors import graphql
from connectors.base import Api, Connector, Field, Identity, Key, Limits, OAuth, Result, Risk

__all__ = ["CONNECTOR", "ISSUE", "brief"]

CONNECTOR = linear = Connector(
    name="linear",
    title="Linear",
    about="Issues and comments.",
    base="https://api.linear.app/graphql",
    docs="https://linear.app/developers/graphql",
    auth=(
        OAuth(
            authorize_url="https://linear.app/oauth/authorize",
            token_url="https://api.linear.app/oauth/token",
            revoke_url="https://api.linear.app/oauth/revoke",
            scopes=("read", "write"),
            client="LINEAR",
        ),
        Key(
            fields=(
                Field(
                    name="token",
                    title="Personal API key",
                    hint="In Linear: Settings, Security & access, Personal API keys.",
                ),
            ),
            headers=lambda fields: {"Authorization": fields["token"]},  # a key goes without Bearer
        ),
    ),
    limits=Limits(per_minute=40),  # 2,500 an hour and person (docs: rate limiting)
    fault=graphql.fault,
)

ISSUE = (
    "id identifier title url priorityLabel updatedAt state { name } "
    "assignee { name } team { key } labels { nodes { name } }"
)
_LIST = f"nodes {{ {ISSUE} }} pageInfo {{ hasNextPage endCursor }}"


@linear.check
async def check(api: Api) -> Identity:
    """See whose the key is."""
    found = await graphql.ask(api, "query { viewer { email } organization { name urlKey } }")
    email, where = found["viewer"]["email"], found["organization"]
    # A person has the same address in all workspaces; an account is of one of them.
    return Identity(label=where["urlKey"], text=f"Signed in to {where['name']} as {email}.")


def brief(issue: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "issue": issue["identifier"],
        "title": issue["title"],
        "state": issue["state"]["name"],
        "priority": issue["priorityLabel"],
        "assignee": (issue["assignee"] or {}).get("name"),
        "labels": [each["name"] for each in issue["labels"]["nodes"]],
        "updated": issue["updatedAt"],
        "url": issue["url"],
    }


@linear.tool(risk=Risk.READ)
async def search(api: Api, words: str, limit: int = 20) -> Result:
    """Search issues by their text.

    Args:
        words: Words that must be in it.
        limit: How many, at most.
    """
    document = (
        "query($term: String!, $first: Int!, $after: String) "
        f"{{ searchIssues(term: $term, first: $first, after: $after) {{ {_LIST} }} }}"
    )
    found = graphql.pages(api, document, "searchIssues", most=limit, term=words)
    return api.result([brief(each) async for each in found], "search")


@linear.tool(risk=Risk.READ)
async def issues(
    api: Api, team: str = "", state: str = "", mine: bool = False, limit: int = 30
) -> Result:
    """List issues, the ones last changed first.

    Args:
        team: Only of this team, by its key, such as ENG.
        state: Only in this state, by its name, such as In Progress.
        mine: Only those assigned to the account's person.
        limit: How many, at most.
    """
    chosen: dict[str, Any] = {}
    if team:
        chosen["team"] = {"key": {"eq": team}}
    if state:
        chosen["state"] = {"name": {"eqIgnoreCase": state}}
    if mine:
        chosen["assignee"] = {"isMe": {"eq": True}}
    document = (
        "query($filter: IssueFilter, $first: Int!, $after: String) { issues(filter: $filter, "
        f"first: $first, after: $after, orderBy: updatedAt) {{ {_LIST} }} }}"
    )
    found = graphql.pages(api, document, "issues", most=limit, filter=chosen)
    return api.result([brief(each) async for each in found], team)


@linear.tool(risk=Risk.READ)
async def read(api: Api, issue: str) -> Result:
    """Read an issue with its comments.

    Args:
        issue: Such as ENG-12.
    """
    document = (
        f"query($id: String!) {{ issue(id: $id) {{ {ISSUE} description "
        "comments(first: 50) { nodes { body createdAt user { name } } } } }"
    )
    found = (await graphql.ask(api, document, id=issue))["issue"]
    said = [
        {"by": (each["user"] or {}).get("name"), "at": each["createdAt"], "body": each["body"]}
        for each in found["comments"]["nodes"]
    ]
    text = {"description": found["description"], "comments": said}
    return api.result({**brief(found), **text}, found["team"]["key"])
