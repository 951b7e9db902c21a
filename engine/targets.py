"""thread_target: the one string that finds a session, addresses a delivery and pins a rule.

slack:T1/C1/1700.000100    telegram:BOT/-100200/42    discord:G1/C1/T1    console:main
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.errors import TargetError

__all__ = ["ThreadTarget"]

_SURFACE = re.compile(r"[a-z][a-z0-9_]*")
_PART = re.compile(r"[^\s/\x00-\x1f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTarget:
    """A place on a surface. `str()` gives back the text it was parsed from."""

    surface: str
    #: From the widest place to the narrowest, for example team, channel, thread.
    path: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> ThreadTarget:
        """Parse `surface:part/part…`; raises TargetError when it has no such form."""
        surface, colon, rest = text.partition(":")
        parts = tuple(rest.split("/"))
        if not colon or not _SURFACE.fullmatch(surface) or not all(map(_PART.fullmatch, parts)):
            raise TargetError(
                f"'{text}' is no thread target.",
                "Write surface:place, for example console:main or slack:T1/C1/1700.000100.",
            )
        return cls(surface=surface, path=parts)

    def __str__(self) -> str:
        return f"{self.surface}:{'/'.join(self.path)}"
