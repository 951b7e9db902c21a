"""Linear's GraphQL API: the part of its published schema that our connector uses, checked for real.

Documents are parsed, validated and executed by graphql-core against the schema below, so a field,
a type or an argument that Linear does not have is refused as Linear refuses it.
"""

from __future__ import annotations

import uuid
from types import MappingProxyType
from typing import Any

from aiohttp import web
from graphql import GraphQLError, build_schema, graphql

from tests.fakes.vendors.cases import Case
from tests.fakes.vendors.service import Refused, Service

__all__ = ["ACTS", "KEY", "MANY", "READS", "Fake"]

KEY = "lin_api_1"

READS = (
    Case(tool="linear_search", arguments={"words": "crash"}, gives="ENG-1", method="POST"),
    Case(
        tool="linear_issues",
        arguments={"team": "ENG", "state": "todo", "mine": True},
        gives="It crashes",
        method="POST",
    ),
    Case(tool="linear_read", arguments={"issue": "ENG-1"}, gives="Here, too", method="POST"),
)
ACTS = (
    Case(
        tool="linear_comment",
        arguments={"issue": "ENG-1", "body": "Looking."},
        gives="url",
        target=("linear:ENG-1",),
        method="POST",
        holding="mutation",
    ),
    Case(
        tool="linear_create_issue",
        arguments={"team": "ENG", "title": "Slow", "assignee": "bo@acme.example"},
        gives="Slow",
        target=("linear:ENG", "linear:bo@acme.example"),
        method="POST",
        holding="mutation",
    ),
    Case(
        tool="linear_update_issue",
        arguments={"issue": "ENG-1", "state": "done"},
        gives="Done",
        target=("linear:ENG-1",),
        method="POST",
        holding="mutation",
    ),
)
MANY = Case(
    tool="linear_search",
    arguments={"words": "many", "limit": 10_000},
    gives="ENG-9999",
    method="POST",
)

_SCHEMA = """
type Query {
  viewer: User!
  organization: Organization!
  searchIssues(term: String!, first: Int, after: String): IssueConnection!
  issues(
    filter: IssueFilter first: Int after: String orderBy: PaginationOrderBy
  ): IssueConnection!
  issue(id: String!): Issue!
  comment(id: String): Comment!
  teams(filter: TeamFilter): TeamConnection!
  users(filter: UserFilter): UserConnection!
  workflowStates(filter: WorkflowStateFilter): WorkflowStateConnection!
}
type Mutation {
  issueCreate(input: IssueCreateInput!): IssuePayload!
  issueUpdate(id: String!, input: IssueUpdateInput!): IssuePayload!
  commentCreate(input: CommentCreateInput!): CommentPayload!
}
enum PaginationOrderBy { createdAt updatedAt }
input StringComparator { eq: String eqIgnoreCase: String }
input BooleanComparator { eq: Boolean }
input TeamFilter { key: StringComparator }
input UserFilter { email: StringComparator isMe: BooleanComparator }
input WorkflowStateFilter { name: StringComparator team: TeamFilter }
input IssueFilter { team: TeamFilter state: WorkflowStateFilter assignee: UserFilter }
input IssueCreateInput {
  id: String teamId: String! title: String description: String priority: Int assigneeId: String
}
input IssueUpdateInput { title: String description: String stateId: String assigneeId: String }
input CommentCreateInput { id: String issueId: String body: String }
type IssuePayload { success: Boolean! issue: Issue }
type CommentPayload { success: Boolean! comment: Comment! }
type PageInfo { hasNextPage: Boolean! endCursor: String }
type IssueConnection { nodes: [Issue!]! pageInfo: PageInfo! }
type CommentConnection { nodes: [Comment!]! }
type TeamConnection { nodes: [Team!]! }
type UserConnection { nodes: [User!]! }
type WorkflowStateConnection { nodes: [WorkflowState!]! }
type IssueLabelConnection { nodes: [IssueLabel!]! }
type IssueLabel { name: String! }
type Organization { name: String! urlKey: String! }
type User { id: ID! name: String! email: String! }
type Team { id: ID! key: String! }
type WorkflowState { id: ID! name: String! }
type Comment { id: ID! body: String! createdAt: String! url: String! user: User }
type Issue {
  id: ID! identifier: String! title: String! url: String! priorityLabel: String! updatedAt: String!
  description: String state: WorkflowState! assignee: User team: Team!
  labels: IssueLabelConnection! comments(first: Int): CommentConnection!
}
"""
_BUILT = build_schema(_SCHEMA)
_WHEN = "2026-03-01T08:00:00.000Z"
_BO = {"id": "u1", "name": "Bo", "email": "bo@acme.example"}
_STATES = {"Todo": {"id": "s1", "name": "Todo"}, "Done": {"id": "s2", "name": "Done"}}
_MOST = 250  # of one page


class Fake(Service):
    """The vendor, with one team."""

    unauthorized = MappingProxyType(
        {
            "errors": [
                {
                    "message": "Authentication required",
                    "extensions": {"code": "AUTHENTICATION_ERROR"},
                }
            ]
        }
    )

    def routes(self) -> None:
        self.comments: dict[str, dict[str, Any]] = {}
        self.many = [self._issue(f"ENG-{n}", "many", f"m{n}") for n in range(10_000)]
        self.rows = {"ENG-1": self._issue("ENG-1", "It crashes", "i1")}
        said = {
            "id": "c1",
            "body": "Here, too",
            "createdAt": _WHEN,
            "url": "https://l/c1",
            "user": _BO,
        }
        self.rows["ENG-1"]["comments"] = _nodes([said])
        self.on("POST", "/", self._execute)

    def _issue(self, identifier: str, title: str, id: str) -> dict[str, Any]:
        return {
            "id": id,
            "identifier": identifier,
            "title": title,
            "url": f"https://linear.app/acme/issue/{identifier}",
            "priorityLabel": "No priority",
            "updatedAt": _WHEN,
            "description": "On start.",
            "state": _STATES["Todo"],
            "assignee": _BO,
            "team": {"id": "t1", "key": "ENG"},
            "labels": {"nodes": []},
            "comments": _nodes([]),
        }

    def who(self, request: web.Request) -> str:
        """A key of one's own goes without a scheme, as the real one wants it."""
        held = request.headers.get("Authorization", "")
        return "ana" if held == KEY else super().who(request)

    async def _execute(self, request: web.Request) -> Any:
        asked = await request.json()
        if set(asked) - {"query", "variables"}:
            raise Refused(400, {"errors": [{"message": "unknown field"}]})
        result = await graphql(
            _BUILT, asked["query"], root_value=self, variable_values=asked["variables"]
        )
        body: dict[str, Any] = {"data": result.data}
        if result.errors:
            body["errors"] = [{"message": each.message} for each in result.errors]
        return web.json_response(body, status=200 if result.data else 400)

    # -- resolvers, named as Linear's fields are: graphql-core finds them so

    def viewer(self, _info: Any) -> Any:
        return _BO

    def organization(self, _info: Any) -> Any:
        return {"name": "Acme", "urlKey": "acme"}

    def searchIssues(self, _info: Any, term: str, first: int = 50, after: str | None = None) -> Any:
        found = list(self.rows.values())
        if term == "many":
            found = self.many
        return _page(found, first, after)

    def issues(
        self,
        _info: Any,
        filter: Any = None,
        first: int = 50,
        after: str | None = None,
        orderBy: str = "createdAt",
    ) -> Any:
        return _page(list(self.rows.values()), first, after)

    def issue(self, _info: Any, id: str) -> Any:
        return self._found(id)

    def comment(self, _info: Any, id: str) -> Any:
        if id not in self.comments:
            raise GraphQLError("Entity not found: Comment")
        return self.comments[id]

    def teams(self, _info: Any, filter: Any) -> Any:
        return {"nodes": [{"id": "t1", "key": "ENG"}] if filter["key"]["eq"] == "ENG" else []}

    def users(self, _info: Any, filter: Any) -> Any:
        return {"nodes": [_BO] if filter["email"]["eq"] == _BO["email"] else []}

    def workflowStates(self, _info: Any, filter: Any) -> Any:
        name = filter["name"]["eqIgnoreCase"].title()
        return {"nodes": [_STATES[name]] if name in _STATES else []}

    def issueCreate(self, _info: Any, input: Any) -> Any:
        self._free(input["id"], [each["id"] for each in self.rows.values()])
        if input["teamId"] != "t1":
            raise GraphQLError("Entity not found: Team")
        identifier = f"ENG-{len(self.rows) + 1}"
        self.rows[identifier] = self._issue(identifier, input["title"], input["id"])
        self.acts.append(input)
        return {"success": True, "issue": self.rows[identifier]}

    def issueUpdate(self, _info: Any, id: str, input: Any) -> Any:
        issue = self._found(id)
        if "stateId" in input:
            issue["state"] = next(
                each for each in _STATES.values() if each["id"] == input["stateId"]
            )
        self.acts.append(input)
        return {"success": True, "issue": issue}

    def commentCreate(self, _info: Any, input: Any) -> Any:
        self._free(input["id"], self.comments)
        self._found(input["issueId"])
        made = {"id": input["id"], "body": input["body"], "createdAt": _WHEN, "url": "https://l/c"}
        self.comments[input["id"]] = {**made, "user": _BO}
        self.acts.append(input)
        return {"success": True, "comment": self.comments[input["id"]]}

    def _free(self, id: str, taken: Any) -> None:
        if uuid.UUID(id).version != 4:
            raise GraphQLError("Argument Validation Error: id must be a UUID")
        if id in taken:
            raise GraphQLError("Entity with this id already exists")

    def _found(self, id: str) -> dict[str, Any]:
        for each in self.rows.values():
            if id in (each["identifier"], each["id"]):
                return each
        raise GraphQLError("Entity not found: Issue")


def _nodes(nodes: list[Any]) -> Any:
    return lambda _info, first=50: {"nodes": nodes[:first]}


def _page(found: list[Any], first: int, after: str | None) -> dict[str, Any]:
    if not 1 <= first <= _MOST:
        raise GraphQLError(f"Argument Validation Error: first must be 1 to {_MOST}")
    begin = int(after or 0)
    more = len(found) > begin + first
    info = {"hasNextPage": more, "endCursor": str(begin + first)}
    return {"nodes": found[begin : begin + first], "pageInfo": info}
