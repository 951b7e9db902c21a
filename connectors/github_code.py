"""GitHub: code, commits, checks, deployments, and files read and written."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from connectors.base import Api, Result, Risk, by_link
from connectors.github import CONNECTOR as github
from connectors.github import PAGE, checks, found, repository
from connectors.http import ServiceRefused
from engine.errors import ToolError
from engine.tools.base import LookUp, Outcome

__all__: list[str] = []


@github.tool(risk=Risk.READ)
async def search_code(api: Api, query: str, limit: int = 20) -> Result:
    """Search code; gives repository and path of each file.

    Args:
        query: In GitHub's search words: repo:acme/app path:src "def retry".
        limit: How many, at most.
    """
    hits = await found(api, "code", query, limit)
    files = [{"repo": each["repository"]["full_name"], "path": each["path"]} for each in hits]
    return api.result(files, "search")


@github.tool(risk=Risk.READ)
async def list_commits(
    api: Api, repo: str, branch: str = "", path: str = "", since: str = "", limit: int = 30
) -> Result:
    """List commits, newest first.

    Args:
        repo: Owner and name, such as acme/app.
        branch: A branch, tag or commit; empty: the default branch.
        path: Only those that touch this file or folder.
        since: Only later ones: 2026-03-01T00:00:00Z.
        limit: How many, at most.
    """
    query = {"sha": branch, "path": path, "since": since, "per_page": min(limit, PAGE)}
    where = "/repos/{owner}/{name}/commits"
    pages = api.pages(where, query=query, paging=by_link, most=limit, **repository(repo))
    listed = [
        {
            "sha": each["sha"],
            "by": each["commit"]["author"]["name"],
            "at": each["commit"]["author"]["date"],
            "message": each["commit"]["message"],
        }
        async for each in pages
    ]
    return api.result(listed, repo)


@github.tool(risk=Risk.READ)
async def list_checks(api: Api, repo: str, ref: str) -> Result:
    """List the checks of a commit with their outcome.

    Args:
        repo: Owner and name, such as acme/app.
        ref: A branch, tag or commit.
    """
    return api.result(await checks(api, ref, repository(repo)), repo)


@github.tool(risk=Risk.READ)
async def list_deployments(api: Api, repo: str, environment: str = "", limit: int = 10) -> Result:
    """List deployments, newest first, each with its latest state.

    Args:
        repo: Owner and name, such as acme/app.
        environment: Only of this one, such as production.
        limit: How many, at most.
    """
    where, query = repository(repo), {"environment": environment, "per_page": min(limit, PAGE)}
    path = "/repos/{owner}/{name}/deployments"
    pages = api.pages(path, query=query, paging=by_link, most=min(limit, 30), **where)
    kept = ("id", "ref", "sha", "environment", "created_at", "description")
    listed = []
    async for each in pages:
        states = await api.get(
            path + "/{id}/statuses", id=each["id"], query={"per_page": 1}, **where
        )
        state = states[0]["state"] if states else "none yet"
        listed.append({**{name: each[name] for name in kept}, "state": state})
    return api.result(listed, repo)


@github.tool(risk=Risk.READ)
async def read_file(api: Api, repo: str, path: str, ref: str = "") -> Result:
    """Read a file, or list a folder.

    Args:
        repo: Owner and name, such as acme/app.
        path: From the root of the repository; empty: the root.
        ref: A branch, tag or commit; empty: the default branch.
    """
    where = {**repository(repo), "path": [part for part in path.split("/") if part]}
    held = await api.get("/repos/{owner}/{name}/contents/{path}", query={"ref": ref}, **where)
    if isinstance(held, list):
        listed = [
            {"name": each["name"], "type": each["type"], "bytes": each["size"]} for each in held
        ]
        return api.result(listed, repo)
    if held.get("encoding") != "base64":  # over 1 MB the API sends none
        raise ToolError(f"{path} is too large to be read here, or no file.")
    return api.result(base64.b64decode(held["content"]).decode("utf-8", "replace"), repo)


async def _sha_before(api: Api, arguments: Mapping[str, Any]) -> str:
    held = await _held(api, arguments["repo"], arguments["path"], arguments["branch"])
    return "" if held is None else str(held["sha"])


async def _was_written(api: Api, arguments: Mapping[str, Any], seen: Any) -> Outcome:
    """Compare the file's id with that of our text; where it is neither, somebody else wrote."""
    now = await _sha_before(api, arguments)
    if now == _blob(arguments["text"]):
        return Outcome(found=LookUp.HAPPENED)
    return Outcome(found=LookUp.DID_NOT if now == seen else LookUp.CANNOT_TELL)


def _blob(text: str) -> str:
    """Return the id git gives a file of this text."""
    data = text.encode()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


async def _held(api: Api, repo: str, path: str, branch: str) -> Any:
    where = {**repository(repo), "path": path.strip("/").split("/")}
    try:
        held = await api.get(_CONTENTS, query={"ref": branch}, **where)
    except ServiceRefused as error:
        if error.status != 404:
            raise
        return None
    if isinstance(held, list):
        raise ToolError(f"{path} is a folder.", "Name a file.")
    return held


_CONTENTS = "/repos/{owner}/{name}/contents/{path}"


@github.tool(
    risk=Risk.EXTERNAL,
    target=lambda arguments: [f"{arguments['repo']}@{arguments['branch']}"],
    look_up=_was_written,
    witness=_sha_before,
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
