"""A site with a feed and a published calendar. Needs no account."""

from __future__ import annotations

from email.utils import formatdate
from typing import Any

from aiohttp import web

from tests.fakes.vendors.cases import Case
from tests.fakes.vendors.service import Service

__all__ = ["ACTS", "READS", "Fake"]

READS = (
    Case(tool="feeds_read", arguments={"url": "{url}/feed.xml"}, gives="Version 2 is out"),
    Case(tool="feeds_read", arguments={"url": "{url}/atom.xml"}, gives="Atom entry"),
    Case(
        tool="feeds_events",
        arguments={"url": "{url}/team.ics", "day": "2026-03-02"},
        gives="Standup",
    ),
)
ACTS = ()

_RSS = f"""<?xml version="1.0"?>
<rss version="2.0"><channel><title>News</title><link>https://acme.example</link>
<description>All</description>
<item><title>Version 2 is out</title><link>https://acme.example/2</link>
<pubDate>{formatdate(1_772_438_400)}</pubDate>
<description>&lt;p&gt;Faster&lt;script&gt;alert(1)&lt;/script&gt;&lt;/p&gt;</description></item>
</channel></rss>"""
_ATOM = """<?xml version="1.0"?>
<feed xmlns="http://www.w3.org/2005/Atom"><title>Log</title><id>urn:x</id>
<updated>2026-03-02T08:00:00Z</updated>
<entry><title>Atom entry</title><id>urn:y</id><updated>2026-03-02T08:00:00Z</updated>
<link href="https://acme.example/y"/><summary>One</summary></entry></feed>"""
_ICS = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//acme//test//EN
BEGIN:VEVENT
UID:1@acme.example
DTSTAMP:20260301T080000Z
DTSTART:20260302T090000Z
DTEND:20260302T091500Z
RRULE:FREQ=DAILY;COUNT=3
SUMMARY:Standup
END:VEVENT
END:VCALENDAR
"""


class Fake(Service):
    """The site."""

    def routes(self) -> None:
        for path, text, kind in (
            ("/feed.xml", _RSS, "application/rss+xml"),
            ("/atom.xml", _ATOM, "application/atom+xml"),
            ("/team.ics", _ICS.replace("\n", "\r\n"), "text/calendar"),
        ):
            self.on("GET", path, _giving(text, kind), open=True)


def _giving(text: str, kind: str) -> Any:
    async def given(_request: web.Request) -> web.Response:
        return web.Response(text=text, content_type=kind)

    return given
