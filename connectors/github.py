"""GitHub: search, issues, pull requests, reviews, commits, checks, deployments, files.

Our own declarations of its REST API (version 2022-11-28): the typed client on the index carries
every endpoint there is, 30 MB and half a second to import, for the twenty that are used here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.base import (
    Api,
    Connector,
    Field,
    Identity,
    Key,
    Limits,
    OAuth,
    Result,
    Risk,
    by_link,
)
from engine.errors import ToolError

__all__ = ["CONNECTOR", "PAGE", "WAITING", "checks", "found", "repository"]

CONNECTOR = github = Connector(
    name="github",
    title="GitHub",
    about="Issues, pull requests, reviews, commits, checks, deployments and files.",
    base="https://api.github.com",
    docs="https://docs.github.com/en/rest",
    auth=(
        OAuth(
            authorize_url="https://github.com/login/oauth/authorize",
            token_url="https://github.com/login/oauth/access_token",
            device_url="https://github.com/login/device/code",
            scopes=("repo", "read:org"),
            client="GITHUB",
        ),
        Key(
            fields=(
                Field(
                    name="token",
                    title="Personal access token",
                    hint="github.com/settings/personal-access-tokens: read issues, pull requests "
                    "and contents of the repositories it is for; write what Nod may write.",
                ),
            ),
            headers=lambda fields: {"Authorization": f"Bearer {fields['token']}"},
        ),
    ),
    # 5,000 an hour and account, at most 100 at once (docs: rate limits for the REST API).
    limits=Limits(per_minute=80, at_once=10),
    headers={"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"},
)

#: Items GitHub gives in one page, and in one search.
PAGE, FOUND = 100, 1_000
#: Pull requests that wait for a review by the account's person, in its search words.
WAITING = "is:open is:pr review-requested:@me archived:false"


@github.check
async def check(api: Api) -> Identity:
    """See whose the token is."""
    me = await api.get("/user")
    return Identity(label=me["login"], text=f"Signed in as {me['login']}.")


def repository(repo: str) -> dict[str, Any]:
    """Return owner and name of "acme/app"; raises ToolError when it is no repository."""
    owner, slash, name = repo.strip().removeprefix("https://github.com/").partition("/")
    if not (owner and slash and name) or "/" in name:
        raise ToolError(f"'{repo}' is no repository.", "Write owner/name, such as acme/app.")
    return {"owner": owner, "name": name}


def _brief(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a list tells of an issue or a pull request."""
    kept = ("number", "title", "state", "draft", "updated_at", "html_url", "comments")
    return {
        **{name: item[name] for name in kept if item.get(name) is not None},
        "by": _login(item),
        "labels": [each["name"] for each in item.get("labels") or ()],
        "assignees": [each["login"] for each in item.get("assignees") or ()],
    }


def _login(item: Mapping[str, Any]) -> str:
    return str((item.get("user") or {}).get("login", "ghost"))  # of a deleted account


async def found(api: Api, what: str, query: str, limit: int) -> list[Any]:
    asked = {"q": query, "per_page": min(limit, PAGE)}
    most = min(limit, FOUND)
    pages = api.pages("/search/" + what, query=asked, items="items", paging=by_link, most=most)
    return [item async for item in pages]


@github.tool(risk=Risk.READ)
async def search_issues(api: Api, query: str, limit: int = 20) -> Result:
    """Search issues and pull requests everywhere.

    Args:
        query: In GitHub's search words: repo:acme/app is:open is:pr author:ana label:bug crash.
        limit: How many, at most.
    """
    hits = await found(api, "issues", query, limit)
    where = [{**_brief(each), "repo": each["repository_url"].split("/repos/")[-1]} for each in hits]
    return api.result(where, "search")


@github.tool(risk=Risk.READ)
async def reviews_waiting(api: Api, limit: int = 30) -> Result:
    """List the open pull requests that wait for a review by the account's person.

    Args:
        limit: How many, at most.
    """
    hits = await found(api, "issues", WAITING, limit)
    where = [{**_brief(each), "repo": each["repository_url"].split("/repos/")[-1]} for each in hits]
    return api.result(where, "search")


@github.tool(risk=Risk.READ)
async def list_issues(
    api: Api, repo: str, state: str = "open", labels: str = "", limit: int = 30
) -> Result:
    """List the issues of a repository, newest first; pull requests are issues, too.

    Args:
        repo: Owner and name, such as acme/app.
        state: open, closed, or all.
        labels: Only with all of these, with commas between.
        limit: How many, at most.
    """
    query = {"state": state, "labels": labels, "per_page": min(limit, PAGE)}
    path = "/repos/{owner}/{name}/issues"
    pages = api.pages(path, query=query, paging=by_link, most=limit, **repository(repo))
    return api.result([_brief(each) async for each in pages], repo)


@github.tool(risk=Risk.READ)
async def read_issue(api: Api, repo: str, number: int, comments: int = 30) -> Result:
    """Read an issue or the conversation of a pull request.

    Args:
        repo: Owner and name, such as acme/app.
        number: Its number.
        comments: How many comments, at most, the oldest first.
    """
    where = {**repository(repo), "number": number}
    issue = await api.get("/repos/{owner}/{name}/issues/{number}", **where)
    path, query = "/repos/{owner}/{name}/issues/{number}/comments", {"per_page": PAGE}
    pages = api.pages(path, query=query, paging=by_link, most=comments, **where)
    said = [
        {"by": _login(each), "at": each["created_at"], "body": each["body"]} async for each in pages
    ]
    return api.result({**_brief(issue), "body": issue["body"], "said": said}, repo)


@github.tool(risk=Risk.READ)
async def list_pulls(api: Api, repo: str, state: str = "open", limit: int = 30) -> Result:
    """List the pull requests of a repository.

    Args:
        repo: Owner and name, such as acme/app.
        state: open, closed, or all.
        limit: How many, at most.
    """
    path, query = "/repos/{owner}/{name}/pulls", {"state": state, "per_page": min(limit, PAGE)}
    pages = api.pages(path, query=query, paging=by_link, most=limit, **repository(repo))
    return api.result([_pull(each) async for each in pages], repo)


def _pull(pull: Mapping[str, Any]) -> dict[str, Any]:
    asked = [each["login"] for each in pull.get("requested_reviewers") or ()]
    ends = {"from": pull["head"]["ref"], "into": pull["base"]["ref"]}
    return {**_brief(pull), **ends, "reviewers": asked}


@github.tool(risk=Risk.READ)
async def read_pull(api: Api, repo: str, number: int) -> Result:
    """Read a pull request: its text, its files with their sizes, its reviews, its checks.

    Args:
        repo: Owner and name, such as acme/app.
        number: Its number.
    """
    where = {**repository(repo), "number": number}
    path = "/repos/{owner}/{name}/pulls/{number}"
    pull = await api.get(path, **where)
    query = {"per_page": PAGE}
    files = api.pages(path + "/files", query=query, paging=by_link, most=300, **where)
    reviews = api.pages(path + "/reviews", query=query, paging=by_link, most=100, **where)
    parts = ("filename", "status", "additions", "deletions")
    read = {
        **_pull(pull),
        "body": pull["body"],
        "mergeable": pull.get("mergeable"),
        "files": [{name: each[name] for name in parts} async for each in files],
        "reviews": [
            {"by": _login(each), "state": each["state"], "body": each["body"]}
            async for each in reviews
        ],
        "checks": await checks(api, pull["head"]["sha"], repository(repo)),
    }
    return api.result(read, repo)


async def checks(api: Api, ref: str, where: Mapping[str, Any]) -> list[dict[str, Any]]:
    path, query = "/repos/{owner}/{name}/commits/{ref}/check-runs", {"per_page": PAGE}
    pages = api.pages(
        path, query=query, items="check_runs", paging=by_link, most=200, ref=ref, **where
    )
    kept = ("name", "status", "conclusion")
    return [{name: each[name] for name in kept} async for each in pages]


@github.tool(risk=Risk.READ)
async def read_diff(api: Api, repo: str, number: int) -> Result:
    """Read what a pull request changes, as a unified diff.

    Args:
        repo: Owner and name, such as acme/app.
        number: Its number.
    """
    accept = {"Accept": "application/vnd.github.diff"}
    path, where = "/repos/{owner}/{name}/pulls/{number}", repository(repo)
    reply = await api.ask("GET", path, headers=accept, number=number, **where)
    return api.result(reply.body.decode("utf-8", "replace"), repo)
