"""Notion: pages made, text added, comments. What was written is looked for where it was to be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from connectors.base import APART, Api, Result, Risk, by_cursor, sought, when_started
from connectors.notion import CONNECTOR as notion
from connectors.notion import children, plain
from engine.errors import ToolError
from engine.tools.base import Outcome

__all__: list[str] = []

#: Characters of one piece of text, blocks of one request (docs: limits).
PIECE, BLOCKS = 2_000, 100
#: Blocks or comments of a page that a look-up goes through.
RECENT = 1_000


def _since(each: Mapping[str, Any], seen: Any) -> bool:
    """Say whether something was not made before the call's start; Notion dates by the minute."""
    at = datetime.fromisoformat(each["created_time"]).astimezone(UTC).timestamp()
    return bool(at >= float(seen) - APART)


async def _was_made(api: Api, arguments: Mapping[str, Any], seen: Any) -> Outcome:
    """Look for a page of this title below its parent that is not older than the call."""

    def shown(block: Mapping[str, Any]) -> Result | None:
        titled = (block.get("child_page") or {}).get("title") == arguments["title"]
        return api.result({"id": block["id"]}) if titled and _since(block, seen) else None

    return await sought(children(api, arguments["parent_id"], RECENT), RECENT, shown)


@notion.tool(
    risk=Risk.EXTERNAL,
    target=lambda arguments: [str(arguments["parent_id"])],
    look_up=_was_made,
    witness=when_started,
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

    def shown(block: Mapping[str, Any]) -> Result | None:
        ours = [plain((block.get("paragraph") or {}).get("rich_text"))] == last
        done = {"added_to": arguments["page_id"]}
        return api.result(done) if ours and _since(block, seen) else None

    return await sought(children(api, arguments["page_id"], RECENT), RECENT, shown)


def plain_of(block: Mapping[str, Any]) -> str:
    """Return the text of a paragraph as we send it."""
    return "".join(each["text"]["content"] for each in block["paragraph"]["rich_text"])


@notion.tool(risk=Risk.EXTERNAL, target=_page, look_up=_was_added, witness=when_started)
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
    """Look through the comments, the oldest first: those that somebody resolved are not told."""
    query = {"block_id": arguments["page_id"], "page_size": 100}
    following = by_cursor("next_cursor", "start_cursor")
    said = api.pages("/comments", query=query, items="results", paging=following, most=RECENT)

    def shown(comment: Mapping[str, Any]) -> Result | None:
        ours = plain(comment["rich_text"]) == arguments["text"]
        return api.result({"comment": comment["id"]}) if ours and _since(comment, seen) else None

    return await sought(said, RECENT, shown)


@notion.tool(risk=Risk.EXTERNAL, target=_page, look_up=_was_said, witness=when_started)
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


def blocks(text: str) -> list[dict[str, Any]]:
    """Return text as blocks, a paragraph each; raises ToolError when there are too many."""
    made = [_paragraph(each) for each in text.split("\n\n") if each.strip()]
    if len(made) > BLOCKS:
        raise ToolError(
            f"The text has {len(made)} paragraphs, {BLOCKS} are the limit.", "Split it."
        )
    return made


def _paragraph(text: str) -> dict[str, Any]:
    pieces = [{"type": "text", "text": {"content": each}} for each in _pieces(text)]
    return {"object": "block", "type": "paragraph", "paragraph": {"rich_text": pieces}}


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), PIECE):
        yield text[start : start + PIECE]
