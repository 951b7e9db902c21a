"""Google Calendar: calendars, events, free times; events made, changed and cancelled.

Our own declarations of API v3: Google's client library is synchronous and untyped.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from connectors.base import Api, Connector, Found, Identity, Limits, Result, Risk
from connectors.google import following, oauth
from engine.errors import ToolError

__all__ = ["CONNECTOR", "brief"]

CONNECTOR = calendar = Connector(
    name="google_calendar",
    title="Google Calendar",
    about="Calendars, events and free times.",
    base="https://www.googleapis.com/calendar/v3",
    docs="https://developers.google.com/workspace/calendar/api/v3/reference",
    auth=(oauth("calendar.events", "calendar.readonly"),),
    limits=Limits(per_minute=300),  # 600 a minute and person (docs: quotas)
)

#: Events of one page, the days one call may ask for, and the people that are told of one event.
PAGE, DAYS, SHOWN = 250, 92, 50
#: Calendars one question for free times may name (docs: freebusy, calendarExpansionMax).
ASKED = 50

#: How long before it begins an event is told, and how many may begin in that time.
SOON, NEAR = timedelta(minutes=15), 50


@calendar.check
async def check(api: Api) -> Identity:
    """See whose the calendar is."""
    own = await api.get("/calendars/primary")
    return Identity(label=own["id"], text=f"Signed in as {own['id']}.")


@calendar.tool(risk=Risk.READ)
async def calendars(api: Api) -> Result:
    """List the calendars the account sees."""
    pages = api.pages("/users/me/calendarList", items="items", paging=following, most=250)
    kept = ("id", "summary", "timeZone", "accessRole")
    return api.result([{name: each.get(name) for name in kept} async for each in pages])


@calendar.tool(risk=Risk.READ)
async def events(
    api: Api,
    day: str = "today",
    days: int = 1,
    query: str = "",
    calendar_id: str = "primary",
    zone: str = "",
    limit: int = 250,
) -> Result:
    """List what is in a calendar on a day, in order, recurring events worked out.

    Args:
        day: The first day: today, tomorrow, yesterday, or a date such as 2026-03-01.
        days: How many days.
        query: Only events with these words.
        calendar_id: From the list of calendars; primary is the account's own.
        zone: The time zone the days are meant in; empty: the calendar's own.
        limit: How many, at most.
    """
    if not zone:
        zone = (await api.get("/calendars/{id}", id=calendar_id))["timeZone"]
    begin = _midnight(day, zone, api.ctx.now())
    end = begin + timedelta(days=max(1, min(days, DAYS)))
    asked = {
        "timeMin": begin.isoformat(),
        "timeMax": end.isoformat(),
        "timeZone": zone,
        "q": query,
        "singleEvents": True,
        "orderBy": "startTime",
        "maxResults": min(limit, PAGE),
    }
    path = "/calendars/{id}/events"
    pages = api.pages(
        path, query=asked, items="items", paging=following, most=limit, id=calendar_id
    )
    return api.result([brief(each) async for each in pages], calendar_id)


def _midnight(day: str, zone: str, now: float) -> datetime:
    """Return the beginning of the day in the zone; raises ToolError for what is none."""
    try:
        place = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError):
        raise ToolError(f"There is no time zone '{zone}'.", "Use one as Europe/Berlin.") from None
    today = datetime.fromtimestamp(now, place).date()
    near = {"yesterday": -1, "today": 0, "tomorrow": 1}.get(day.strip().lower())
    try:
        found = date.fromisoformat(day) if near is None else today + timedelta(days=near)
    except ValueError:
        raise ToolError(f"'{day}' is no day.", "Write today, or a date as 2026-03-01.") from None
    return datetime(found.year, found.month, found.day, tzinfo=place)


def brief(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a model is told of an event; of a cancelled one its id may be all there is."""
    kept = ("id", "summary", "location", "hangoutLink", "description", "status", "htmlLink")
    people = [
        {"who": each.get("email"), "says": each.get("responseStatus")}
        for each in event.get("attendees") or ()
    ]
    more = {"more_attendees": len(people) - SHOWN} if len(people) > SHOWN else {}
    return {
        **{name: _moment(event[name]) for name in ("start", "end") if name in event},
        **{name: event[name] for name in kept if event.get(name)},
        "attendees": people[:SHOWN],
        **more,
    }


def _moment(when: Mapping[str, Any]) -> str:
    return str(when.get("dateTime") or when["date"])  # a date alone: all day


@calendar.tool(risk=Risk.READ)
async def busy(api: Api, people: list[str], begin: str, end: str) -> Result:
    """Tell when people are busy, as far as the account may see it.

    Args:
        people: Addresses, or ids of calendars; at most 50.
        begin: From when: 2026-03-02T08:00:00+01:00.
        end: Until when.
    """
    if len(people) > ASKED:
        raise ToolError(f"At most {ASKED} can be asked about at once.", "Ask in parts.")
    items = [{"id": each} for each in people]
    asked = {"timeMin": begin, "timeMax": end, "items": items}
    found = (await api.ask("POST", "/freeBusy", json=asked)).json()["calendars"]
    return api.result({who: each.get("busy", each.get("errors")) for who, each in found.items()})


@calendar.source("soon", every=120)
async def soon(api: Api, seen: Any) -> Found:
    """An event in the account's own calendar begins within 15 minutes."""
    now = datetime.fromtimestamp(api.now(), UTC)
    asked = {
        "timeMin": now.isoformat(timespec="seconds"),
        "timeMax": (now + SOON).isoformat(timespec="seconds"),
        "singleEvents": True,
        "orderBy": "startTime",
        "maxResults": NEAR,
    }
    found = (await api.get("/calendars/{id}/events", query=asked, id="primary")).get("items", ())
    near = {f"{each['id']}@{_moment(each['start'])}": each for each in found if _ahead(each, now)}
    new = [(key, _near(each)) for key, each in near.items() if key not in (seen or ())]
    return Found(items=new, seen=list(near))


def _ahead(event: Mapping[str, Any], now: datetime) -> bool:
    """Say whether the event has a time of day that is still to come, and was not declined."""
    begins = event["start"].get("dateTime")
    own = (each for each in event.get("attendees") or () if each.get("self"))
    declined = any(each.get("responseStatus") == "declined" for each in own)
    return bool(begins) and datetime.fromisoformat(begins) > now and not declined


def _near(event: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("id", "summary", "location", "hangoutLink", "htmlLink")
    told = {name: event[name] for name in kept if event.get(name)}
    return {**told, "begins": _moment(event["start"]), "ends": _moment(event["end"])}
