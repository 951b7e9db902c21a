"""Feeds: what is new in an RSS or Atom feed, and what a published calendar holds on a day.

Needs no account. Feeds are read by feedparser, calendars by icalendar; both get bytes, the request
is ours: the model chooses the address, so only public ones are asked.
"""

from __future__ import annotations

import asyncio
import calendar
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from connectors.base import Api, Connector, Limits, Open, Result, Risk
from connectors.icalendar import events_of
from engine.errors import ToolError

__all__ = ["CONNECTOR"]

CONNECTOR = feeds = Connector(
    name="feeds",
    title="The feed",
    about="RSS and Atom feeds, and calendars published as .ics.",
    base="",
    docs="https://www.rssboard.org/rss-specification",
    auth=(Open(),),
    limits=Limits(per_minute=120, body_bytes=10_000_000),
    headers={"Accept": "*/*"},
)

#: Entries of one feed, and characters of the text of each.
ENTRIES, TEXT = 100, 1_000


def _host(arguments: Mapping[str, Any]) -> str:
    """Return where the address leads: under outside text, a person is asked first."""
    return urlsplit(str(arguments["url"])).hostname or ""


async def _bytes(api: Api, url: str) -> tuple[bytes, str]:
    """Return what lies at the address, and its host; webcal: is https by another name."""
    parts = urlsplit(url.strip().replace("webcal://", "https://", 1))
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise ToolError(f"'{url[:100]}' is no address of a feed.", "It begins with https://.")
    return (await api.ask("GET", parts.geturl())).body, parts.hostname


@feeds.tool(risk=Risk.READ, egress=_host)
async def read(api: Api, url: str, limit: int = 20) -> Result:
    """Read a feed, newest entry first as the feed gives them.

    Args:
        url: Its address.
        limit: How many entries, at most 100.
    """
    import feedparser  # type: ignore[import-untyped]

    data, host = await _bytes(api, url)
    found = await asyncio.to_thread(feedparser.parse, data)
    if not found.entries and (found.bozo or not found.version):
        raise ToolError(f"{host} gave no feed.", "Look for the address of its RSS or Atom feed.")
    listed = [_entry(each) for each in found.entries[: min(limit, ENTRIES)]]
    return api.result({"feed": found.feed.get("title", host), "entries": listed}, host)


def _entry(entry: Mapping[str, Any]) -> dict[str, str]:
    from bs4 import BeautifulSoup

    moment = entry.get("published_parsed") or entry.get("updated_parsed")
    at = "" if moment is None else f"{datetime.fromtimestamp(calendar.timegm(moment), UTC):%FT%TZ}"
    text = BeautifulSoup(entry.get("summary", ""), "html.parser").get_text(" ", strip=True)
    named = {"title": entry.get("title", ""), "link": entry.get("link", "")}
    return {**named, "at": at, "text": text[:TEXT]}


@feeds.tool(risk=Risk.READ, egress=_host)
async def events(api: Api, url: str, day: str = "today", days: int = 1, zone: str = "") -> Result:
    """List what a published calendar (.ics) holds on a day, recurring events worked out.

    Args:
        url: Its address; webcal: is taken, too.
        day: The first day: today, tomorrow, yesterday, or a date such as 2026-03-01.
        days: How many days.
        zone: The time zone to show; empty: the calendar's own.
    """
    data, host = await _bytes(api, url)
    now = api.ctx.now()
    return api.result(await events_of(data, host, day=day, days=days, zone=zone, now=now), host)
