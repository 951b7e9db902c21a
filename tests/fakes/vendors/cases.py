"""What the suite of all connectors knows of one call of a tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Case"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call against a vendor's server as it is when it starts."""

    tool: str
    arguments: Mapping[str, Any]
    #: What its result must hold.
    gives: str
    #: For an act: the exact targets a standing rule would pin, sorted.
    target: tuple[str, ...] = ()
    #: The request that faults are meant for: its method, and what its body holds.
    method: str = "GET"
    holding: str = ""

    def __str__(self) -> str:
        return self.tool
