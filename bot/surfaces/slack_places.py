"""Where things are on Slack: thread targets and refs, taken apart and put together.

target   slack:T1/C1/1700.000100   a thread        ref   T1/C1/1700.000200/1700.000100   in a thread
         slack:T1/C1               a channel             T1/C1/1700.000200               elsewhere
         slack:T1/U1               a person's DM
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.surfaces.base import SurfaceError
from engine.errors import TargetError
from engine.targets import ThreadTarget

__all__ = ["Place", "Spot", "target_of"]

#: First letters of the ids of people, whose DM is meant.
PEOPLE = ("U", "W")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A conversation on Slack: where to post."""

    team: str
    #: A channel's id, or a person's: then their DM is meant.
    channel: str
    #: ts of the thread's root; empty: none.
    thread: str = ""

    @classmethod
    def parse(cls, target: str) -> Place:
        """Raises SurfaceError when it is no target of Slack."""
        try:
            parsed = ThreadTarget.parse(target)
        except TargetError as error:
            raise SurfaceError(error.what, error.fix) from error
        if parsed.surface != "slack" or not 2 <= len(parsed.path) <= 3:
            raise SurfaceError(f"{target} is no place on Slack.", _FORM)
        team, channel, thread = (*parsed.path, "")[:3]
        return cls(team=team, channel=channel, thread=thread)

    @property
    def is_person(self) -> bool:
        """It names a person, whose DM is meant."""
        return self.channel.startswith(PEOPLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A message that was posted. `str()` gives its ref."""

    team: str
    channel: str
    ts: str
    #: ts of the root of the thread it stands in; empty: it stands in none.
    thread: str = ""

    @classmethod
    def parse(cls, ref: str) -> Spot:
        """Raises SurfaceError when it is no ref of Slack."""
        parts = ref.split("/")
        if not 3 <= len(parts) <= 4 or not all(parts):
            raise SurfaceError(f"{ref} is no message on Slack.")
        team, channel, ts, thread = (*parts, "")[:4]
        return cls(team=team, channel=channel, ts=ts, thread=thread)

    def __str__(self) -> str:
        inside = self.thread and self.thread != self.ts
        whole = (self.team, self.channel, self.ts, self.thread)
        return "/".join(whole if inside else whole[:3])


_FORM = "Write slack:TEAM/CHANNEL, slack:TEAM/CHANNEL/THREAD or slack:TEAM/USER."


def target_of(team: str, channel: str, user: str, thread: str = "") -> str:
    """Return the thread_target of what stands in `channel`; a DM is named by its person."""
    where = user if channel.startswith("D") and user else channel
    return f"slack:{team}/{where}/{thread}" if thread else f"slack:{team}/{where}"
