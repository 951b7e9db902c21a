"""Where things are on Discord: thread targets and refs, taken apart and put together.

target   discord:G1/C1/T1   a thread          ref   C1/M1   a message: its channel, or thread, first
         discord:G1/C1      a channel
         discord:@me/C2     a direct message

A thread that begins at a message has the id of that message, so a target names it before it is
there.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.surfaces.base import SurfaceError
from engine.errors import TargetError
from engine.targets import ThreadTarget

__all__ = ["DIRECT", "Place", "Spot", "at_of", "id_at"]

#: Stands for the server in a direct message.
DIRECT = "@me"

#: Milliseconds of the first moment an id can tell of.
#: https://discord.com/developers/docs/reference#snowflakes
_EPOCH = 1_420_070_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A conversation on Discord. `str()` gives its target."""

    #: A server's id, or DIRECT.
    guild: str
    channel: str
    #: Empty: none.
    thread: str = ""

    @classmethod
    def parse(cls, target: str) -> Place:
        """Raises SurfaceError when it is no target of Discord."""
        try:
            parsed = ThreadTarget.parse(target)
        except TargetError as error:
            raise SurfaceError(error.what, error.fix) from error
        server, *ids = parsed.path
        numbers = ids if server == DIRECT else parsed.path
        fits = parsed.surface == "discord" and len(ids) in (1, 2) and all(map(_is_id, numbers))
        if not fits or (server == DIRECT and len(ids) == 2):
            raise SurfaceError(f"{target} is no place on Discord.", _FORM)
        return cls(guild=server, channel=ids[0], thread=ids[1] if len(ids) == 2 else "")

    @property
    def posts_in(self) -> str:
        """The id messages are posted under."""
        return self.thread or self.channel

    @property
    def is_direct(self) -> bool:
        """It is a conversation of one person and Nod."""
        return self.guild == DIRECT

    def __str__(self) -> str:
        return "discord:" + "/".join(
            part for part in (self.guild, self.channel, self.thread) if part
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A message that was posted. `str()` gives its ref."""

    channel: str
    message: str

    @classmethod
    def parse(cls, ref: str) -> Spot:
        """Raises SurfaceError when it is no ref of Discord."""
        channel, _, message = ref.partition("/")
        if not (_is_id(channel) and _is_id(message)):
            raise SurfaceError(f"{ref} is no message on Discord.")
        return cls(channel=channel, message=message)

    def __str__(self) -> str:
        return f"{self.channel}/{self.message}"


_FORM = "Write discord:SERVER/CHANNEL or discord:SERVER/CHANNEL/THREAD, with their ids."


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 20


def at_of(number: str) -> float:
    """Return when the thing with this id was made, in epoch seconds."""
    return ((int(number) >> 22) + _EPOCH) / 1000.0


def id_at(moment: float) -> int:
    """Return an id below those of everything made since the moment (epoch seconds)."""
    return max(0, int(moment * 1000) - _EPOCH) << 22
