"""Notion: pages made, text added, comments. What was written is looked for where it was to be."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from connectors.base import Api, Result, Risk
from connectors.notion import CONNECTOR as notion
from connectors.notion import blocks, children, plain
from engine.tools.base import LookUp, Outcome

__all__: list[str] = []

#: Blocks of a page that a look-up goes through.
RECENT = 1_000
#: Seconds by which the clocks of two machines may differ.
APART = 120.0


def _since(api: Api, when: str, seen: Any) -> bool:
    """Say whether Notion dates something not before the call's start; it dates by the minute."""
    at = datetime.fromisoformat(when).astimezone(UTC).timestamp()
    return bool(at >= float(seen) - APART)


async def _now(api: Api, _arguments: Mapping[str, Any]) -> float:
    return api.ctx.now()


async def _was_made(api: Api, arguments: Mapping[str, Any], seen: Any) -> Outcome:
    """Look for a page of this title below its parent that is not older than the call."""
    async for each in children(api, arguments["parent_id"], RECENT):
        titled = (each.get("child_page") or {}).get("title") == arguments["title"]
        if titled and _since(api, each["created_time"], seen):
            done = api.result({"id": each["id"]})
            return Outcome(found=LookUp.HAPPENED, result=done)
    return Outcome(found=LookUp.DID_NOT)


@notion.tool(
    risk=Risk.EXTERNAL,
    target=lambda arguments: [str(arguments["parent_id"])],
    look_up=_was_made,
    witness=_now,
)
async def create_page(api: Api, parent_id: str, title: str, text: str = "") -> Result:
    """Make a page below another one.

    Args:
        parent_id: The page it goes below, from a search.
        title: Its title.
        text: Its text, plain; an empty line begins another paragraph.
    """
    json = {
        "parent": {"page_id": parent_id},
        "properties": {"title": {"title": [{"text": {"content": title}}]}},
        "children": blocks(text),
    }
    made = await api.send("POST", "/pages", json=json)
    return api.result({"id": made["id"], "url": made["url"]}, title)


def _page(arguments: Mapping[str, Any]) -> list[str]:
    return [str(arguments["page_id"])]


async def _was_added(api: Api, arguments: Mapping[str, Any], seen: Any) -> Outcome:
    """Look whether the last paragraph stands on the page and is not older than the call."""
    last = [plain_of(each) for each in blocks(arguments["text"])][-1:]
    async for each in children(api, arguments["page_id"], RECENT):
        held = plain((each.get("paragraph") or {}).get("rich_text"))
        if [held] == last and _since(api, each["created_time"], seen):
            return Outcome(found=LookUp.HAPPENED)
    return Outcome(found=LookUp.DID_NOT)


def plain_of(block: Mapping[str, Any]) -> str:
    """Return the text of a paragraph as we send it."""
    return "".join(each["text"]["content"] for each in block["paragraph"]["rich_text"])


@notion.tool(risk=Risk.EXTERNAL, target=_page, look_up=_was_added, witness=_now)
async def add_text(api: Api, page_id: str, text: str) -> Result:
    """Add text at the end of a page.

    Args:
        page_id: From a search.
        text: The text, plain; an empty line begins another paragraph.
    """
    json = {"children": blocks(text)}
    await api.send("PATCH", "/blocks/{id}/children", json=json, id=page_id)
    return api.result({"added_to": page_id})


async def _was_said(api: Api, arguments: Mapping[str, Any], seen: Any) -> Outcome:
    query = {"block_id": arguments["page_id"], "page_size": 100}
    found = (await api.get("/comments", query=query))["results"]
    there = any(
        plain(each["rich_text"]) == arguments["text"] and _since(api, each["created_time"], seen)
        for each in found
    )
    return Outcome(found=LookUp.HAPPENED if there else LookUp.DID_NOT)


@notion.tool(risk=Risk.EXTERNAL, target=_page, look_up=_was_said, witness=_now)
async def comment(api: Api, page_id: str, text: str) -> Result:
    """Comment on a page.

    Args:
        page_id: From a search.
        text: The comment, plain, at most 2,000 characters.
    """
    rich = [{"text": {"content": text}}]
    said = await api.send(
        "POST", "/comments", json={"parent": {"page_id": page_id}, "rich_text": rich}
    )
    return api.result({"comment": said["id"]})
