"""Which connectors there are and what tools each brings; one is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from importlib import import_module
from pathlib import Path

from connectors.secrets import Secrets
from engine.tools.base import Tool

__all__ = ["CONNECTORS", "Secrets", "connector_tools", "secrets_of", "write_sample_calendar"]

#: Name of a connector -> the module that declares its `TOOLS`.
CONNECTORS = {
    "calendar": "connectors.icalendar",
}


def connector_tools(names: Sequence[str] = tuple(CONNECTORS)) -> list[Tool]:
    """Return the tools of the named connectors, sorted by name."""
    modules = [import_module(CONNECTORS[name]) for name in names]
    return sorted((each for module in modules for each in module.TOOLS), key=lambda t: t.name)


def write_sample_calendar(path: Path, today: date, zone: str) -> None:
    """Write a calendar to try Nod with, dated around `today` in the IANA zone `zone`."""
    import_module(CONNECTORS["calendar"]).write_sample(path, today, zone)


def secrets_of(environ: Mapping[str, str], data: Path) -> Secrets:
    """Return this installation's secrets; nothing is opened yet."""
    return Secrets(environ, data)
