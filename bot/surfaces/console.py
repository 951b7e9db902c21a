"""The console surface: each thread is a file of JSON lines under the data folder.

A line is `{"op": "post" | "edit" | "said", "ref", "at", …}`. A post carries its delivery id and is
on the disk when `post` returns, so the file tells surely what was posted, and how often. A line
cut off by a crash was never acknowledged: it is cut away when the thread is next opened.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.cards import text_of
from bot.inbound.pasted import blotted
from bot.surfaces.base import (
    Author,
    Capabilities,
    Commanded,
    Inbound,
    Line,
    Message,
    Pressed,
    Receipt,
    Said,
    SurfaceError,
)
from engine.canonical import clean, dumps, loads
from engine.clock import Now, mint
from engine.targets import ThreadTarget

__all__ = ["ConsoleSurface", "thread_name"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,63}")

#: What is appended to a thread, as it is written to the file.
Entry = Mapping[str, Any]


@dataclass(slots=True)
class _Thread:
    """What is known of one thread's file."""

    path: Path
    #: One writer at a time.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: A line that a crash or a failed write left unfinished may be at the end of the file.
    torn: bool = True


def thread_name(target: str) -> str:
    """Return the name in `console:<name>`; raises SurfaceError when it cannot name a file."""
    parsed = ThreadTarget.parse(target)
    name = parsed.path[0]
    if parsed.surface != "console" or len(parsed.path) != 1 or not _NAME.fullmatch(name):
        raise SurfaceError(
            f"'{target}' is no console thread.",
            "Use letters, digits and . _ - @ + after console: (at most 64, no dot at the front).",
        )
    return name


class ConsoleSurface:
    """Threads as files; the terminal, and any test, listens to what is appended."""

    name = "console"
    capabilities = Capabilities(
        text_limit=1_000_000,
        buttons=100,
        value_bytes=64,
        file_bytes=10**12,
        threads=True,
        look_up=True,
    )

    def __init__(self, data: Path, now: Now) -> None:
        self._folder = data / "console"
        self._now = now
        self._threads: dict[str, _Thread] = {}
        self._listeners: set[Callable[[str, Entry], None]] = set()
        self._intake: Callable[[Inbound], Awaitable[Receipt]] | None = None

    async def start(self, intake: Callable[[Inbound], Awaitable[Receipt]]) -> None:
        """Hand what is said here to `intake` from now on."""
        await asyncio.to_thread(self._folder.mkdir, 0o700, True, True)
        self._intake = intake

    async def stop(self) -> None:
        """Take nothing more."""
        self._intake = None

    # -- in

    async def say(self, target: str, person: Author, text: str) -> Receipt:
        """Take a line somebody typed; one that begins with / is a command."""
        intake, event = self._started(), mint("e")
        command, _, arguments = text[1:].partition(" ")
        if text.startswith("/") and command.isalpha():
            return await intake(
                Commanded(
                    event=event, target=target, person=person, name=command, arguments=arguments
                )
            )
        kept = blotted(text)
        line = {"op": "said", "ref": event, "at": self._now(), "by": person.name, "text": kept}
        await self._append(target, line)
        return await intake(Said(event=event, target=target, person=person, text=text))

    async def press(
        self,
        target: str,
        person: Author,
        token: str,
        text: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> Receipt:
        """Take a key that was pressed on a card; `token` is its button's."""
        return await self._started()(
            Pressed(
                event=mint("e"),
                target=target,
                person=person,
                token=token,
                ref="",
                text=text,
                arguments=arguments,
            )
        )

    def _started(self) -> Callable[[Inbound], Awaitable[Receipt]]:
        if self._intake is None:
            raise SurfaceError("The console is not started.", "Start `nod` again.")
        return self._intake

    # -- out

    async def post(self, target: str, message: Message, delivery: str) -> str:
        """Append the message to the thread's file; on the disk when this returns."""
        return await self._post(target, message, delivery, ())

    async def edit(self, ref: str, message: Message) -> None:
        """Append an edit of an earlier message."""
        name, _, _ = ref.partition("/")
        line = {"op": "edit", "ref": ref, "at": self._now(), **_content(message)}
        await self._append(f"console:{name}", line)

    async def upload(
        self, target: str, files: Sequence[Path], message: Message, delivery: str
    ) -> str:
        """Append where the files are; they stay in their place, on this machine."""
        return await self._post(target, message, delivery, files)

    async def erase(self, target: str, event: str) -> bool:
        """Return False: a line with a key in it was not written down to begin with."""
        return False

    async def typing(self, target: str) -> None:
        """Nothing to do: a terminal follows the events."""

    async def history(self, target: str, since: float) -> list[Line]:
        """Return the thread's messages as they read now."""
        thread = self._thread(target)
        async with thread.lock:
            entries = await asyncio.to_thread(_read, thread.path)
        lines: dict[str, Line] = {}
        for entry in entries:
            ref, old = entry["ref"], lines.get(entry["ref"])
            at, by = (old.at, old.by) if old else (entry["at"], entry.get("by", ""))
            lines[ref] = Line(ref=ref, at=at, by=by, text=shown(entry))
        return [line for line in lines.values() if line.at >= since]

    async def find(self, target: str, delivery: str) -> str | None:
        """Return the ref of what was posted under `delivery`; None: surely nothing was."""
        thread = self._thread(target)
        async with thread.lock:
            return await asyncio.to_thread(_found, thread.path, delivery)

    # -- for the terminal

    @contextmanager
    def listen(self, listener: Callable[[str, Entry], None]) -> Iterator[None]:
        """Call `listener(target, entry)` for every line appended inside the block."""
        self._listeners.add(listener)
        try:
            yield
        finally:
            self._listeners.discard(listener)

    # -- the files

    async def _post(
        self, target: str, message: Message, delivery: str, files: Sequence[Path]
    ) -> str:
        ref = f"{thread_name(target)}/{mint('m')}"
        line = {"op": "post", "ref": ref, "delivery": delivery, "at": self._now()}
        held = [{"name": each.name, "path": str(each)} for each in files]
        await self._append(
            target, {**line, **_content(message), **({"files": held} if held else {})}
        )
        return ref

    async def _append(self, target: str, entry: Entry) -> None:
        thread = self._thread(target)
        async with thread.lock:
            await _to_disk(thread, dumps(entry).encode() + b"\n")
        for listener in tuple(self._listeners):
            listener(target, entry)

    def _thread(self, target: str) -> _Thread:
        name = thread_name(target)
        if name not in self._threads:
            self._threads[name] = _Thread(path=self._folder / f"{name}.jsonl")
        return self._threads[name]


def shown(entry: Entry) -> str:
    """Return what an entry shows, as one text: text, card, files, footer."""
    files = [f"[file] {each['name']}: {each['path']}" for each in entry.get("files", ())]
    parts = [entry.get("text", ""), entry.get("card", ""), *files, entry.get("footer", "")]
    return "\n".join(part for part in parts if part)


def _content(message: Message) -> dict[str, Any]:
    content: dict[str, Any] = {"text": clean(message.text)}
    if message.card is not None:
        content["card"] = clean(text_of(message.card))
        content["prompts"] = [row.prompt for row in message.card.rows if not row.decided]
    if message.footer:
        content["footer"] = clean(message.footer)
    return content


async def _to_disk(thread: _Thread, line: bytes) -> None:
    """Append the line; a caller who is cancelled leaves a whole line or none."""
    writing = asyncio.ensure_future(asyncio.to_thread(_append, thread, line))
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        raise
    except OSError as error:
        thread.torn = True
        fix = "Free some space, or mend the folder's rights."
        raise SurfaceError(
            f"{thread.path} could not be written: {error.strerror}.", fix, retry_after=5.0
        ) from error


def _append(thread: _Thread, line: bytes) -> None:
    if thread.torn:
        _mend(thread.path)
        thread.torn = False
    _write(thread.path, line)


def _write(path: Path, line: bytes) -> None:
    created = not path.exists()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        size = os.fstat(handle).st_size
        try:
            if os.write(handle, line) != len(line):
                raise OSError(28, "the disk is full")
            os.fsync(handle)
        except OSError:
            os.ftruncate(handle, size)  # what is not synced was never posted
            raise
    finally:
        os.close(handle)
    if created:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _mend(path: Path) -> None:
    """Cut off a last line that was never finished, so that the next one stands alone."""
    try:
        with path.open("rb+") as file:
            raw = file.read()
            file.truncate(raw.rfind(b"\n") + 1)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)


def _found(path: Path, delivery: str) -> str | None:
    """Return the ref of the post with this delivery id, or None."""
    posts = (entry for entry in _read(path) if entry["op"] == "post")
    return next((post["ref"] for post in posts if post["delivery"] == delivery), None)


def _read(path: Path) -> list[Entry]:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return []
    return list(_entries(raw[: raw.rfind(b"\n") + 1]))


def _entries(raw: bytes) -> Iterator[Entry]:
    for line in raw.splitlines():
        try:
            entry = loads(line)
        except ValueError:
            continue  # a block of zeros after a power cut: it was never acknowledged
        if isinstance(entry, dict) and "op" in entry and "ref" in entry:
            yield entry
