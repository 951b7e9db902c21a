"""GitHub: what others see. Each act leaves a mark that is not shown, by which it is looked up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

from connectors.base import APART, Api, Result, Risk, as_wanted, by_link, sought, when_started
from connectors.github import CONNECTOR as github
from connectors.github import repository
from engine.errors import ToolError
from engine.tools.base import Outcome

__all__: list[str] = []

#: Items a look-up goes through; an act is looked up minutes after it, not months.
PAGE, RECENT = 100, 500


def _marked(api: Api, body: str) -> str:
    return f"{body}\n\n{_mark(api)}"


def _mark(api: Api) -> str:
    """Return a comment that GitHub's Markdown does not show."""
    return f"<!-- nod {api.ctx.call} -->"


async def _with_mark(
    api: Api, path: str, query: Mapping[str, Any], where: Any, until: float = 0.0
) -> Outcome:
    """Look for the act's mark in the bodies of a list, up to an item from before `until`."""
    asked = {**query, "per_page": PAGE}
    items = api.pages(path, query=asked, paging=by_link, most=RECENT, **where)

    def shown(item: Mapping[str, Any]) -> Result | None:
        return api.result(_made(item), path) if _mark(api) in (item.get("body") or "") else None

    return await sought(_not_before(items, until), RECENT, shown)


async def _not_before(items: AsyncIterator[Any], until: float) -> AsyncIterator[Any]:
    """Give items, the newest first, up to one that was made before `until`; 0: all."""
    async for each in items:
        if until and datetime.fromisoformat(each["created_at"]).timestamp() < until:
            return
        yield each


def _made(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item[name] for name in ("number", "state", "html_url") if name in item}


def _repo(arguments: Mapping[str, Any]) -> list[str]:
    """The repository, and whoever is assigned: GitHub tells them."""
    return [str(arguments["repo"]), *_assigned(arguments)]


def _thread(arguments: Mapping[str, Any]) -> list[str]:
    return [f"{arguments['repo']}#{arguments['number']}", *_assigned(arguments)]


def _assigned(arguments: Mapping[str, Any]) -> list[str]:
    return [f"@{each}".lower() for each in arguments.get("assignees") or ()]


async def _issue_was_made(api: Api, arguments: Mapping[str, Any], seen: Any) -> Outcome:
    where = repository(arguments["repo"])
    return await _with_mark(api, "/repos/{owner}/{name}/issues", _NEWEST, where, seen - APART)


_NEWEST = {"state": "all", "sort": "created", "direction": "desc"}


@github.tool(risk=Risk.EXTERNAL, target=_repo, look_up=_issue_was_made, witness=when_started)
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


async def _was_said(api: Api, arguments: Mapping[str, Any], seen: Any) -> Outcome:
    """Comments come oldest first: those from before the call are left out."""
    before = datetime.fromtimestamp(seen - APART, UTC)
    where = {**repository(arguments["repo"]), "number": arguments["number"]}
    path = "/repos/{owner}/{name}/issues/{number}/comments"
    return await _with_mark(api, path, {"since": f"{before:%Y-%m-%dT%H:%M:%SZ}"}, where)


@github.tool(risk=Risk.EXTERNAL, target=_thread, look_up=_was_said, witness=when_started)
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


_ISSUE = "/repos/{owner}/{name}/issues/{number}"


async def _item(api: Api, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    where = {**repository(arguments["repo"]), "number": arguments["number"]}
    found: Mapping[str, Any] = await api.get(_ISSUE, **where)
    return found


async def _changed_at(api: Api, arguments: Mapping[str, Any]) -> str:
    return str((await _item(api, arguments))["updated_at"])


async def _is_changed(api: Api, arguments: Mapping[str, Any], seen: Any) -> Outcome:
    item = await _item(api, arguments)
    held = {"title": item["title"], "state": item["state"]}
    for name, key in (("labels", "name"), ("assignees", "login")):
        held[name] = sorted(each[key].lower() for each in item[name])
    wanted = {
        name: sorted(each.lower() for each in value) if isinstance(value, list) else value
        for name, value in _given(arguments).items()
    }
    return as_wanted(wanted, held, item["updated_at"] == seen)


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are to be set; what is empty stays as it is."""
    names = ("title", "state", "labels", "assignees")
    return {name: arguments[name] for name in names if arguments[name] not in ("", None)}


@github.tool(risk=Risk.EXTERNAL, target=_thread, look_up=_is_changed, witness=_changed_at)
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
    json = _given(given)
    if not json:
        raise ToolError("Nothing would change.", "Give a title, a state, labels or assignees.")
    where = {**repository(repo), "number": number}
    changed = await api.send("PATCH", _ISSUE, json=json, **where)
    return api.result(_made(changed), repo)


async def _pull_was_made(api: Api, arguments: Mapping[str, Any], seen: Any) -> Outcome:
    where = repository(arguments["repo"])
    return await _with_mark(api, "/repos/{owner}/{name}/pulls", _NEWEST, where, seen - APART)


@github.tool(risk=Risk.EXTERNAL, target=_repo, look_up=_pull_was_made, witness=when_started)
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
