"""GitHub: what others see. Each act leaves a mark that is not shown, by which it is looked up."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from connectors.base import Api, Result, Risk, by_link
from connectors.github import CONNECTOR as github
from connectors.github import repository
from connectors.http import ServiceRefused
from engine.errors import ToolError
from engine.tools.base import LookUp, Outcome

__all__: list[str] = []

#: Items a look-up goes through; an act is looked up minutes after it, not months.
PAGE, RECENT = 100, 500


def _marked(api: Api, body: str) -> str:
    return f"{body}\n\n{_mark(api)}"


def _mark(api: Api) -> str:
    """Return a comment that GitHub's Markdown does not show."""
    return f"<!-- nod {api.ctx.call} -->"


async def _with_mark(api: Api, path: str, query: Mapping[str, Any], where: Any) -> Outcome:
    """Look for the act's mark in the bodies of a list."""
    asked = {**query, "per_page": PAGE}
    async for each in api.pages(path, query=asked, paging=by_link, most=RECENT, **where):
        if _mark(api) in (each.get("body") or ""):
            done = api.result(_made(each), path)
            return Outcome(found=LookUp.HAPPENED, result=done)
    return Outcome(found=LookUp.DID_NOT)


def _made(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item[name] for name in ("number", "state", "html_url") if name in item}


def _repo(arguments: Mapping[str, Any]) -> list[str]:
    return [str(arguments["repo"])]


def _thread(arguments: Mapping[str, Any]) -> list[str]:
    return [f"{arguments['repo']}#{arguments['number']}"]


async def _issue_was_made(api: Api, arguments: Mapping[str, Any], _seen: Any) -> Outcome:
    query = {"state": "all", "sort": "created", "direction": "desc"}
    where = repository(arguments["repo"])
    return await _with_mark(api, "/repos/{owner}/{name}/issues", query, where)


@github.tool(risk=Risk.EXTERNAL, target=_repo, look_up=_issue_was_made)
async def create_issue(
    api: Api,
    repo: str,
    title: str,
    body: str = "",
    labels: list[str] | None = None,
    assignees: list[str] | None = None,
) -> Result:
    """Open an issue.

    Args:
        repo: Owner and name, such as acme/app.
        title: Its title.
        body: Its text, in Markdown.
        labels: Labels that the repository has.
        assignees: Logins of people.
    """
    people = {"labels": labels or [], "assignees": assignees or []}
    json = {"title": title, "body": _marked(api, body), **people}
    made = await api.send("POST", "/repos/{owner}/{name}/issues", json=json, **repository(repo))
    return api.result(_made(made), repo)


async def _was_said(api: Api, arguments: Mapping[str, Any], _seen: Any) -> Outcome:
    """Comments come oldest first: only those of the last day are gone through."""
    day_before = datetime.fromtimestamp(api.ctx.now() - 86_400, UTC)
    where = {**repository(arguments["repo"]), "number": arguments["number"]}
    path = "/repos/{owner}/{name}/issues/{number}/comments"
    return await _with_mark(api, path, {"since": f"{day_before:%Y-%m-%dT%H:%M:%SZ}"}, where)


@github.tool(risk=Risk.EXTERNAL, target=_thread, look_up=_was_said)
async def comment(api: Api, repo: str, number: int, body: str) -> Result:
    """Comment on an issue or a pull request.

    Args:
        repo: Owner and name, such as acme/app.
        number: The number of the issue or pull request.
        body: The comment, in Markdown.
    """
    where = {**repository(repo), "number": number}
    path = "/repos/{owner}/{name}/issues/{number}/comments"
    said = await api.send("POST", path, json={"body": _marked(api, body)}, **where)
    return api.result(_made(said), repo)


@github.tool(risk=Risk.EXTERNAL, target=_thread, idempotent=True)
async def update_issue(
    api: Api,
    repo: str,
    number: int,
    title: str = "",
    state: str = "",
    labels: list[str] | None = None,
    assignees: list[str] | None = None,
) -> Result:
    """Change an issue or a pull request; what is left empty stays as it is.

    Args:
        repo: Owner and name, such as acme/app.
        number: Its number.
        title: A new title.
        state: open, or closed.
        labels: All labels it is to have.
        assignees: The logins of all it is assigned to.
    """
    given = {"title": title, "state": state, "labels": labels, "assignees": assignees}
    json = {name: value for name, value in given.items() if value not in ("", None)}
    if not json:
        raise ToolError("Nothing would change.", "Give a title, a state, labels or assignees.")
    where = {**repository(repo), "number": number}
    changed = await api.send("PATCH", "/repos/{owner}/{name}/issues/{number}", json=json, **where)
    return api.result(_made(changed), repo)


async def _pull_was_made(api: Api, arguments: Mapping[str, Any], _seen: Any) -> Outcome:
    query = {"state": "all", "sort": "created", "direction": "desc"}
    where = repository(arguments["repo"])
    return await _with_mark(api, "/repos/{owner}/{name}/pulls", query, where)


@github.tool(risk=Risk.EXTERNAL, target=_repo, look_up=_pull_was_made)
async def create_pull(
    api: Api, repo: str, title: str, head: str, base: str, body: str = "", draft: bool = False
) -> Result:
    """Open a pull request.

    Args:
        repo: Owner and name, such as acme/app.
        title: Its title.
        head: The branch with the change; of a fork: owner:branch.
        base: The branch it goes into, such as main.
        body: Its text, in Markdown.
        draft: Open it as a draft.
    """
    json = {"title": title, "head": head, "base": base, "draft": draft, "body": _marked(api, body)}
    made = await api.send("POST", "/repos/{owner}/{name}/pulls", json=json, **repository(repo))
    return api.result(_made(made), repo)


async def _was_reviewed(api: Api, arguments: Mapping[str, Any], _seen: Any) -> Outcome:
    where = {**repository(arguments["repo"]), "number": arguments["number"]}
    return await _with_mark(api, "/repos/{owner}/{name}/pulls/{number}/reviews", {}, where)


@github.tool(risk=Risk.EXTERNAL, target=_thread, look_up=_was_reviewed)
async def review_pull(api: Api, repo: str, number: int, event: str, body: str) -> Result:
    """Review a pull request.

    Args:
        repo: Owner and name, such as acme/app.
        number: Its number.
        event: APPROVE, REQUEST_CHANGES or COMMENT.
        body: The review, in Markdown.
    """
    if event not in ("APPROVE", "REQUEST_CHANGES", "COMMENT"):
        raise ToolError(f"'{event}' is no review.", "Use APPROVE, REQUEST_CHANGES or COMMENT.")
    where = {**repository(repo), "number": number}
    json = {"event": event, "body": _marked(api, body)}
    path = "/repos/{owner}/{name}/pulls/{number}/reviews"
    return api.result(_made(await api.send("POST", path, json=json, **where)), repo)


async def _was_written(api: Api, arguments: Mapping[str, Any], _seen: Any) -> Outcome:
    held = await _held(api, arguments["repo"], arguments["path"], arguments["branch"])
    same = held is not None and base64.b64decode(held["content"]) == arguments["text"].encode()
    return Outcome(found=LookUp.HAPPENED if same else LookUp.DID_NOT)


async def _held(api: Api, repo: str, path: str, branch: str) -> Any:
    where = {**repository(repo), "path": path.strip("/").split("/")}
    try:
        return await api.get(_CONTENTS, query={"ref": branch}, **where)
    except ServiceRefused as error:
        if error.status != 404:
            raise
        return None


_CONTENTS = "/repos/{owner}/{name}/contents/{path}"


@github.tool(
    risk=Risk.EXTERNAL,
    target=lambda arguments: [f"{arguments['repo']}@{arguments['branch']}"],
    look_up=_was_written,
)
async def write_file(
    api: Api, repo: str, path: str, text: str, message: str, branch: str
) -> Result:
    """Write a file as one commit; a file that is there is replaced.

    Args:
        repo: Owner and name, such as acme/app.
        path: From the root of the repository.
        text: All of the file.
        message: The commit's message.
        branch: The branch it goes to.
    """
    held = await _held(api, repo, path, branch)
    json = {"message": message, "branch": branch}
    json["content"] = base64.b64encode(text.encode()).decode()
    if held is not None:
        json["sha"] = held["sha"]  # GitHub refuses it when somebody has written meanwhile
    where = {**repository(repo), "path": path.strip("/").split("/")}
    written = await api.send("PUT", _CONTENTS, json=json, **where)
    return api.result({"commit": written["commit"]["sha"]}, repo)
