"""Where things stand on Telegram: thread targets and refs, taken apart and put together.

    telegram:BOT/CHAT            a private chat, or a group as a whole
    telegram:BOT/CHAT/TOPIC      a forum topic; 1 is General
    telegram:BOT/CHAT/rMESSAGE   the reply chain of that message, in a group without topics
    telegram:BOT/CHAT/mMESSAGE   the same, from before the group became a supergroup

A ref, and the event of a post, is BOT/CHAT/MESSAGE. An answer that is still a draft has the ref
BOT/CHAT/dDRAFT or BOT/CHAT/dDRAFT.TOPIC: it becomes a message when it is whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.places import Move
from bot.surfaces.base import SurfaceError
from engine.errors import TargetError
from engine.targets import ThreadTarget

__all__ = ["CHAIN", "GENERAL", "Place", "Post", "moving", "target"]

#: The topic every forum has; it is sent to without its number.
GENERAL = 1
#: How the name of a reply chain begins, and of one that was left behind by a migration.
CHAIN, _LEFT = "r", "m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A thread."""

    bot: str
    chat: int
    topic: int | None = None
    #: The message whose reply chain it is.
    root: int | None = None

    @classmethod
    def parse(cls, text: str) -> Place:
        """Parse a thread_target; raises SurfaceError when it is none of Telegram's."""
        try:
            parsed = ThreadTarget.parse(text)
            if parsed.surface != "telegram" or not 2 <= len(parsed.path) <= 3:
                raise ValueError
            bot, chat, *rest = parsed.path
            last = rest[0] if rest else ""
            if last.startswith(CHAIN):
                return cls(bot=bot, chat=int(chat), root=int(last[1:]))
            if last.startswith(_LEFT) and last[1:].isdecimal():
                return cls(bot=bot, chat=int(chat))  # that message was left behind
            return cls(bot=bot, chat=int(chat), topic=int(last) if last else None)
        except (ValueError, TargetError):
            raise SurfaceError(
                f"'{text}' is no place on Telegram.",
                "Write telegram:BOT/CHAT or telegram:BOT/CHAT/TOPIC, as /threads lists them.",
            ) from None

    @property
    def thread(self) -> int | None:
        """The topic to send to; None for General, which the server takes without a number."""
        return None if self.topic == GENERAL else self.topic

    @property
    def is_private(self) -> bool:
        """A conversation with one person: their ids are above zero, those of groups below."""
        return self.chat > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A message, or a draft that becomes one."""

    bot: str
    chat: int
    message: int = 0
    draft: int = 0
    topic: int | None = None

    @classmethod
    def parse(cls, ref: str) -> Post:
        """Parse a ref; raises SurfaceError when it is none of ours."""
        try:
            bot, chat, last = ref.split("/")
            if not last.startswith("d"):
                return cls(bot=bot, chat=int(chat), message=int(last))
            draft, _, topic = last[1:].partition(".")
            return cls(
                bot=bot, chat=int(chat), draft=int(draft), topic=int(topic) if topic else None
            )
        except ValueError:
            raise SurfaceError(f"'{ref}' is no message on Telegram.") from None

    def __str__(self) -> str:
        topic = f".{self.topic}" if self.topic is not None else ""
        last = f"d{self.draft}{topic}" if self.draft else str(self.message)
        return f"{self.bot}/{self.chat}/{last}"


def target(bot: str, chat: int, inside: str = "") -> str:
    """Return the thread_target of a chat, or of `inside` it: a topic, or r and a root."""
    return f"telegram:{bot}/{chat}/{inside}" if inside else f"telegram:{bot}/{chat}"


def moving(bot: str, old: int, new: int) -> Move:
    """Return what changes when the group `old` becomes the supergroup `new`."""
    return Move(
        old=target(bot, old),
        new=target(bot, new),
        posts=f"{bot}/{old}/",
        was=CHAIN,
        becomes=_LEFT,
    )
