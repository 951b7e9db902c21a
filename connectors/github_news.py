"""GitHub: what comes of it by itself, as events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.base import Api, Found
from connectors.github import CONNECTOR as github
from connectors.github import PAGE, WAITING

__all__: list[str] = []

#: Pull requests that are remembered as asked for, when there are more than one page.
KNOWN = 500


@github.source("review", every=120)
async def review(api: Api, seen: Any) -> Found:
    """The account's person is asked to review a pull request."""
    asked = {"q": WAITING, "sort": "updated", "order": "desc", "per_page": PAGE}
    page = await api.get("/search/issues", query=asked)
    waiting = {f"{_repo(each)}#{each['number']}": each for each in page["items"]}
    known = list(seen or ())
    whole = len(page["items"]) < PAGE and not page["incomplete_results"]
    # One that is asked for again after the review is new again; one that is only not shown, is not.
    kept = [*waiting, *(() if whole else (name for name in known if name not in waiting))]
    new = [(name, each) for name, each in waiting.items() if name not in known]
    items = [(f"{name}@{each['updated_at']}", _told(each)) for name, each in reversed(new)]
    return Found(items=items, seen=kept[:KNOWN])


def _repo(pull: Mapping[str, Any]) -> str:
    return str(pull["repository_url"].split("/repos/")[-1])


def _told(pull: Mapping[str, Any]) -> dict[str, Any]:
    by = (pull.get("user") or {}).get("login", "ghost")  # of a deleted account
    kept = {name: pull[name] for name in ("number", "title", "html_url")}
    return {"repo": _repo(pull), **kept, "by": by}
