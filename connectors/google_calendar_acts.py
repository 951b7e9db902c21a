"""Google Calendar: events that others are invited to, made, changed and cancelled."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from connectors.base import Api, Result, Risk
from connectors.google_calendar import CONNECTOR as calendar
from connectors.google_calendar import brief
from connectors.http import ServiceRefused
from engine.canonical import digest
from engine.errors import ToolError
from engine.tools.base import LookUp, Outcome

__all__: list[str] = []


def _reached(arguments: Mapping[str, Any]) -> list[str]:
    """Everybody who gets an invitation, and the calendar it is in."""
    return [str(arguments["calendar_id"]), *map(str, arguments.get("attendees") or ())]


def _own_id(api: Api) -> str:
    """Return the event's id, made by us: the same call cannot make two (409 the second time)."""
    return f"nod{digest(api.ctx.call)[:40]}"  # base32hex, as the API asks for


async def _was_made(api: Api, arguments: Mapping[str, Any], _seen: Any) -> Outcome:
    where: dict[str, Any] = {"calendar": arguments["calendar_id"], "id": _own_id(api)}
    try:
        made = await api.get("/calendars/{calendar}/events/{id}", **where)
    except ServiceRefused as error:
        if error.status != 404:
            raise
        return Outcome(found=LookUp.DID_NOT)
    return Outcome(found=LookUp.HAPPENED, result=api.result(brief(made)))


@calendar.tool(risk=Risk.EXTERNAL, target=_reached, look_up=_was_made)
async def create_event(
    api: Api,
    title: str,
    begin: str,
    end: str,
    attendees: list[str] | None = None,
    description: str = "",
    location: str = "",
    calendar_id: str = "primary",
) -> Result:
    """Put an event into a calendar and invite people.

    Args:
        title: Its title.
        begin: When it begins: 2026-03-02T09:00:00+01:00; or 2026-03-02 for all day.
        end: When it ends, in the same form; all day: the day after the last.
        attendees: The addresses of everybody who is invited.
        description: Its text.
        location: Where.
        calendar_id: From the list of calendars; primary is the account's own.
    """
    json = {"id": _own_id(api), "summary": title, **_times(begin, end)}
    json |= {"description": description, "location": location}
    json["attendees"] = [{"email": each} for each in attendees or ()]
    query, path = {"sendUpdates": "all"}, "/calendars/{id}/events"
    return api.result(brief(await api.send("POST", path, json=json, query=query, id=calendar_id)))


def _times(begin: str, end: str) -> dict[str, Any]:
    return {
        name: {"dateTime" if "T" in when else "date": when}
        for name, when in (("start", begin), ("end", end))
        if when
    }


async def _all_of(api: Api, arguments: Mapping[str, Any]) -> str:
    """Show the event as it is, and what would become of it."""
    event = await api.get(_EVENT, calendar=arguments["calendar_id"], id=arguments["event_id"])
    if event["status"] == "cancelled":
        return "It was cancelled before."
    new = {n: v for n, v in arguments.items() if v and n not in ("calendar_id", "event_id")}
    shown = brief(event)
    people = ", ".join(str(each.get("email")) for each in event.get("attendees") or ())
    people = people or "nobody else"
    lines = [f"{shown.get('summary', '(no title)')}, {shown['start']}", f"Invited: {people}"]
    return "\n".join([*lines, *(f"{name}: {value}" for name, value in new.items())])


_EVENT = "/calendars/{calendar}/events/{id}"


def _event_itself(arguments: Mapping[str, Any]) -> list[str]:
    return [f"{arguments['calendar_id']}/{arguments['event_id']}"]


def _changes(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields an update sets. The other form of a time is taken off: all day or not."""
    names = (("summary", "title"), ("description", "description"), ("location", "location"))
    given = {field: arguments[name] for field, name in names if arguments[name]}
    times = _times(arguments["begin"], arguments["end"])
    bare = {"date": None, "dateTime": None}
    return given | {name: {**bare, **when} for name, when in times.items()}


async def _is_so(api: Api, arguments: Mapping[str, Any], _seen: Any) -> Outcome:
    """Look whether the event is as it was to be: a second change would tell everybody again."""
    where: dict[str, Any] = {"calendar": arguments["calendar_id"], "id": arguments["event_id"]}
    event = await api.get(_EVENT, **where)
    same = all(_same(event.get(name), value) for name, value in _changes(arguments).items())
    done = api.result(brief(event)) if same else None
    return Outcome(found=LookUp.HAPPENED if same else LookUp.DID_NOT, result=done)


def _same(held: Any, wanted: Any) -> bool:
    if not isinstance(wanted, dict):
        return bool(held == wanted)
    if not isinstance(held, dict) or held.get("date") != wanted["date"]:
        return False
    times = {str(each) for each in (held.get("dateTime"), wanted["dateTime"]) if each}
    return not times or len({datetime.fromisoformat(each) for each in times}) == 1


@calendar.tool(risk=Risk.EXTERNAL, target=_event_itself, preview=_all_of, look_up=_is_so)
async def update_event(
    api: Api,
    event_id: str,
    title: str = "",
    begin: str = "",
    end: str = "",
    description: str = "",
    location: str = "",
    calendar_id: str = "primary",
) -> Result:
    """Change an event, and tell everybody who is invited; what is left empty stays as it is.

    Args:
        event_id: From the list of events.
        title: A new title.
        begin: When it begins now: 2026-03-02T09:00:00+01:00.
        end: When it ends now.
        description: A new text.
        location: A new place.
        calendar_id: From the list of calendars.
    """
    given = {"title": title, "description": description, "location": location}
    json = _changes({**given, "begin": begin, "end": end})
    if not json:
        raise ToolError("Nothing would change.", "Give a title, a time, a text or a place.")
    where: dict[str, Any] = {"calendar": calendar_id, "id": event_id}
    query = {"sendUpdates": "all"}
    return api.result(brief(await api.send("PATCH", _EVENT, json=json, query=query, **where)))


async def _is_gone(api: Api, arguments: Mapping[str, Any], _seen: Any) -> Outcome:
    where: dict[str, Any] = {"calendar": arguments["calendar_id"], "id": arguments["event_id"]}
    try:
        gone = (await api.get(_EVENT, **where))["status"] == "cancelled"
    except ServiceRefused as error:
        if error.status not in (404, 410):
            raise
        gone = True
    return Outcome(found=LookUp.HAPPENED if gone else LookUp.DID_NOT)


@calendar.tool(risk=Risk.EXTERNAL, target=_event_itself, preview=_all_of, look_up=_is_gone)
async def cancel_event(api: Api, event_id: str, calendar_id: str = "primary") -> Result:
    """Cancel an event, and tell everybody who is invited.

    Args:
        event_id: From the list of events.
        calendar_id: From the list of calendars.
    """
    where: dict[str, Any] = {"calendar": calendar_id, "id": event_id}
    await api.send("DELETE", _EVENT, query={"sendUpdates": "all"}, **where)
    return api.result({"cancelled": event_id})
