"""Google Calendar's API v3, as far as our connector uses it; developers.google.com.

The calendar of ana@acme.example with one meeting. It refuses what the real one refuses: unknown
parameters (400), times without a zone, an order without single events, more than 2,500 a page, an
id outside base32hex (400) or used before (409), a cancelled event (410).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from aiohttp import web

from tests.fakes.vendors.cases import Case
from tests.fakes.vendors.service import Refused, Service

__all__ = ["ACTS", "MANY", "READS", "Fake"]

_DAY = {"day": "2026-03-02"}
READS = (
    Case(tool="google_calendar_events", arguments=_DAY, gives="Standup"),
    Case(tool="google_calendar_calendars", arguments={}, gives="ana@acme.example"),
    Case(
        tool="google_calendar_busy",
        arguments={
            "people": ["bo@acme.example"],
            "begin": "2026-03-02T08:00:00+01:00",
            "end": "2026-03-02T18:00:00+01:00",
        },
        gives="2026-03-02T09:00:00Z",
        method="POST",
    ),
)
ACTS = (
    Case(
        tool="google_calendar_create_event",
        arguments={
            "title": "Review",
            "begin": "2026-03-03T09:00:00+01:00",
            "end": "2026-03-03T09:30:00+01:00",
            "attendees": ["bo@acme.example", "cy@other.example"],
        },
        gives="Review",
        target=(
            "google_calendar:bo@acme.example",
            "google_calendar:cy@other.example",
            "google_calendar:primary",
        ),
        method="POST",
    ),
    Case(
        tool="google_calendar_update_event",
        arguments={"event_id": "e1", "location": "Room 2"},
        gives="Room 2",
        target=("google_calendar:primary/e1",),
        method="PATCH",
    ),
    Case(
        tool="google_calendar_cancel_event",
        arguments={"event_id": "e1"},
        gives="cancelled",
        target=("google_calendar:primary/e1",),
        method="DELETE",
    ),
)
MANY = Case(
    tool="google_calendar_events",
    arguments={**_DAY, "query": "many", "limit": 10_000},
    gives="event 9999",
)

_LIST = {
    "timeMin",
    "timeMax",
    "timeZone",
    "q",
    "singleEvents",
    "orderBy",
    "maxResults",
    "pageToken",
}
_EVENT = {"id", "summary", "start", "end", "description", "location", "attendees"}


class Fake(Service):
    """The vendor, with one calendar."""

    unauthorized = MappingProxyType({"error": {"code": 401, "message": "Invalid Credentials"}})

    def routes(self) -> None:
        self.events = {
            "e1": {
                "id": "e1",
                "status": "confirmed",
                "summary": "Standup",
                "start": {"dateTime": "2026-03-02T09:00:00+01:00"},
                "end": {"dateTime": "2026-03-02T09:15:00+01:00"},
                "attendees": [{"email": "bo@acme.example", "responseStatus": "accepted"}],
            }
        }
        on = self.on
        on("GET", "/users/me/calendarList", self._calendars)
        on("POST", "/freeBusy", self._busy)
        on("GET", "/calendars/{id}", self._calendar)
        on("GET", "/calendars/{id}/events", self._list)
        on("POST", "/calendars/{id}/events", self._create)
        on("GET", "/calendars/{id}/events/{event}", self._read)
        on("PATCH", "/calendars/{id}/events/{event}", self._change)
        on("DELETE", "/calendars/{id}/events/{event}", self._cancel)

    async def _calendars(self, request: web.Request) -> Any:
        zone = {"timeZone": "Europe/Berlin", "accessRole": "owner"}
        return {"items": [{"id": "ana@acme.example", "summary": "Ana", **zone}]}

    async def _calendar(self, request: web.Request) -> Any:
        self._own(request)
        return {"id": "ana@acme.example", "summary": "Ana", "timeZone": "Europe/Berlin"}

    async def _busy(self, request: web.Request) -> Any:
        asked = await request.json()
        for name in ("timeMin", "timeMax"):
            _moment(asked[name])
        times = [{"start": "2026-03-02T09:00:00Z", "end": "2026-03-02T10:00:00Z"}]
        return {"calendars": {each["id"]: {"busy": times} for each in asked["items"]}}

    async def _list(self, request: web.Request) -> Any:
        self._own(request)
        query = request.query
        if unknown := set(query) - _LIST:
            raise _bad(f"Unknown name {unknown}")
        begin, end = _moment(query["timeMin"]), _moment(query["timeMax"])
        if query.get("orderBy") == "startTime" and query.get("singleEvents") != "true":
            raise _bad("The requested ordering is not available for the particular query.")
        size = int(query.get("maxResults", 250))
        if not 1 <= size <= 2_500:
            raise _bad("Invalid maxResults")
        if query.get("q") == "many":
            one = self.events["e1"]
            found = [{**one, "summary": f"event {n}"} for n in range(10_000)]
        else:
            found = [
                each
                for each in self.events.values()
                if each["status"] != "cancelled"
                # Bounds of an event's end, and of its beginning (docs: Events, list).
                and _when(each["end"]) > begin
                and _when(each["start"]) < end
            ]
        first = int(query.get("pageToken", 0))
        page: dict[str, Any] = {"items": found[first : first + size]}
        if len(found) > first + size:
            page["nextPageToken"] = str(first + size)
        return page

    async def _create(self, request: web.Request) -> Any:
        self._own(request)
        given = self._checked(await request.json())
        if request.query.get("sendUpdates") not in ("all", "externalOnly", "none"):
            raise _bad("Invalid sendUpdates")
        if not re.fullmatch(r"[a-v0-9]{5,1024}", given["id"]):
            raise _bad("Invalid resource id value.")
        if given["id"] in self.events:
            raise Refused(409, _error(409, "The requested identifier already exists."))
        self.events[given["id"]] = {**given, "status": "confirmed"}
        self.acts.append(given)
        return self.events[given["id"]]

    async def _read(self, request: web.Request) -> Any:
        event = self._event(request)
        if event["status"] == "cancelled":  # only these are promised (docs: Events, `status`)
            return {"id": request.match_info["event"], "status": "cancelled"}
        return event

    async def _change(self, request: web.Request) -> Any:
        event, given = self._event(request), await request.json()
        for name in given.keys() & {"start", "end"}:  # a patch merges; null takes a field off
            merged = {**event[name], **given[name]}
            given[name] = {field: value for field, value in merged.items() if value is not None}
        event |= self._checked(given)
        self.acts.append(request.match_info["event"])
        return event

    async def _cancel(self, request: web.Request) -> Any:
        event = self._event(request)
        if event["status"] == "cancelled":
            raise Refused(410, _error(410, "Resource has been deleted"))
        event["status"] = "cancelled"
        self.acts.append(request.match_info["event"])
        return web.Response(status=204)

    def _own(self, request: web.Request) -> None:
        if request.match_info["id"] not in ("primary", "ana@acme.example"):
            raise Refused(404, _error(404, "Not Found"))

    def _event(self, request: web.Request) -> dict[str, Any]:
        self._own(request)
        if request.match_info["event"] not in self.events:
            raise Refused(404, _error(404, "Not Found"))
        return self.events[request.match_info["event"]]

    def _checked(self, given: dict[str, Any]) -> dict[str, Any]:
        if unknown := set(given) - _EVENT:
            raise _bad(f"Unknown name {unknown}")
        for name in ("start", "end"):
            when = given.get(name, {})
            if when.get("dateTime"):
                _moment(when["dateTime"])
            if when.get("date") and when.get("dateTime"):
                raise _bad("Invalid start or end time.")
        for each in given.get("attendees", ()):
            if "@" not in each["email"]:
                raise _bad("Invalid attendee email.")
        return given


def _when(moment: Mapping[str, str]) -> datetime:
    """Return when an event begins or ends; a day alone does at midnight."""
    return _moment(moment.get("dateTime") or f"{moment['date']}T00:00:00Z")


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise _bad("Bad Request") from None
    if found.tzinfo is None:
        raise _bad("Missing time zone definition.")
    return found


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "errors": [{"message": message}]}}


def _bad(message: str) -> Refused:
    return Refused(400, _error(400, message))
