"""The contract of a surface: what comes in, what goes out, and what a platform can do.

A surface turns its platform's events into `Said`, `Edited`, `Pressed` and `Commanded`, hands each
to the intake, and acknowledges to the platform what the intake returned from. Outward it shows
messages in no platform's dialect. It holds no state that the platform or the store does not have.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bot.cards import Card
from engine.errors import NodError

__all__ = [
    "MORE",
    "Attachment",
    "Author",
    "Capabilities",
    "Commanded",
    "Edited",
    "Inbound",
    "Line",
    "Message",
    "Pressed",
    "Receipt",
    "Said",
    "Surface",
    "SurfaceError",
    "Task",
]

#: How a text ends that is still being written.
MORE = " …"


class SurfaceError(NodError):
    """A platform did not take what was posted.

    Args:
        certain: True when it is sure that nothing was posted; False when nobody can tell.
        retry_after: seconds the platform asks to wait; None when another try makes no sense.
    """

    def __init__(
        self, what: str, fix: str = "", *, certain: bool = True, retry_after: float | None = None
    ) -> None:
        super().__init__(what, fix)
        self.certain = certain
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """A person as the platform knows them."""

    #: The platform's own id, unique on it; for Slack team and user together.
    id: str
    name: str
    #: IANA name of the time zone in their profile, when a command reads times; empty: not known.
    zone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file that came with a message; its content is fetched only after its size is accepted."""

    name: str
    media_type: str
    bytes: int
    #: A voice note: what is said in it becomes the message's text.
    voice: bool = False
    #: Writes the content to the path. Raises SurfaceError.
    fetch: Callable[[Path], Awaitable[None]] = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Somebody wrote a message."""

    #: The post's id on the platform (place and number): every copy of it carries the same, also
    #: one that comes as another kind of event, such as a mention.
    event: str
    #: thread_target the message stands in.
    target: str
    person: Author
    text: str
    files: tuple[Attachment, ...] = ()
    #: Ref of the message this one replies to; empty: none.
    reply_to: str = ""
    #: Surely meant for Nod: it mentions Nod, or stands in a DM, in the console, or in a thread
    #: where nobody else has written.
    addressed: bool = True
    #: It stands in a conversation of this person and Nod alone.
    direct: bool = False
    #: A machine wrote it; Nod's own posts are never handed over.
    bot: bool = False
    #: Surely nobody's line: only a watch of its channel hears it.
    overheard: bool = False
    #: The channels it names, as people read them (#alerts), with their thread_target.
    places: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """A person changed a message they had written; machines' edits are never handed over."""

    event: str
    target: str
    person: Author
    #: `Said.event` of the message that was changed.
    original: str
    #: What it says now.
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressed:
    """Somebody pressed a button of a card."""

    event: str
    target: str
    person: Author
    token: str
    #: Ref of the message that carries the card.
    ref: str
    #: What a form that the press opened was filled with: a reason, a free answer.
    text: str = ""
    #: Edited arguments, when the press was an edit.
    arguments: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commanded:
    """Somebody gave a / command."""

    event: str
    target: str
    person: Author
    name: str
    arguments: str = ""
    #: It was given in a conversation of this person and Nod alone.
    direct: bool = False
    #: It was given in a channel of threads, and in none of them.
    beside: bool = False


Inbound = Said | Edited | Pressed | Commanded


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of an event. It is durable when this is returned, so the event can be acked."""

    #: accepted, duplicate, answered, commanded, waiting (for access), refused, or ignored: it is
    #: nobody's, and no sign is to be shown
    status: str
    session: str | None = None
    #: Shown to this person only, at once, where the platform can; may be long; empty: nothing.
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One step of a to-do list, for platforms that show such a list in a form of its own."""

    title: str
    #: pending, in_progress or done
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What is shown, in no platform's dialect."""

    #: Markdown.
    text: str = ""
    card: Card | None = None
    #: One small line below.
    footer: str = ""
    #: More of it is still being written, so it ends in `MORE`; an edit with the whole follows.
    growing: bool = False
    #: A to-do list, which `text` shows as well.
    tasks: tuple[Task, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One message of a thread's history."""

    #: Nod's own: the ref it was posted under. A person's: `Said.event` of it.
    ref: str
    at: float
    #: Who wrote it; empty: Nod.
    by: str
    text: str
    #: `Author.id` of who wrote it; empty: Nod, or nobody knows.
    author: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What the platform can do, and its limits."""

    #: Characters of one message.
    text_limit: int
    #: Buttons of one message.
    buttons: int
    #: Bytes of the value a button carries.
    value_bytes: int
    #: Bytes of one file that can be posted.
    file_bytes: int
    #: An answer is shown while it is written, by edits this many seconds apart; 0: it is not,
    #: or the surface follows the events itself.
    edit_every: float = 0.0
    #: It shows a footer in small letters, so that one may stand below every answer.
    small_text: bool = False
    #: Seconds after which the sign of work (`typing`) is shown again; 0: it is shown once.
    sign_fades: float = 0.0
    modals: bool = False
    reactions: bool = False
    threads: bool = False
    #: `find` can tell surely whether a delivery was posted.
    look_up: bool = False


class Surface(Protocol):
    """One platform. Every method that goes out may raise SurfaceError."""

    #: The word before the colon of its thread targets.
    name: str
    capabilities: Capabilities

    async def start(self, intake: Callable[[Inbound], Awaitable[Receipt]]) -> None:
        """Begin to hand events to `intake`; returns when connected."""
        ...

    async def stop(self) -> None:
        """Take no more events and close the connection. Safe to call twice."""
        ...

    async def post(self, target: str, message: Message, delivery: str) -> str:
        """Post a message and return its ref. `delivery` is stored with it, for `find`."""
        ...

    async def edit(self, ref: str, message: Message) -> None:
        """Replace what the message shows."""
        ...

    async def upload(
        self, target: str, files: Sequence[Path], message: Message, delivery: str
    ) -> str:
        """Post files, with the message as their caption, as one; return its ref."""
        ...

    async def typing(self, target: str) -> None:
        """Show that Nod is at work; fades by itself."""
        ...

    async def history(self, target: str, since: float) -> list[Line]:
        """Return what was written in the thread since then (epoch seconds), oldest first."""
        ...

    async def erase(self, target: str, event: str) -> bool:
        """Delete what a person wrote, by its `Said.event`; False: the platform does not let Nod."""
        ...

    async def find(self, target: str, delivery: str) -> str | None:
        """Return the ref of the message posted under `delivery`, or None when none is found."""
        ...
