"""The conversation in a terminal; without one, lines in and text out.

Cards are answered by a single key. A key only counts when nothing follows it for a moment and the
card has been on the screen for a while, so that a sentence that begins with it approves nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from bot import cards
from bot.cards import Button
from bot.commands.table import Context
from bot.markup import plain
from bot.outbound.presenter import Presenter
from bot.shell.feed import Feed
from bot.surfaces.base import Author, Receipt
from bot.surfaces.console import ConsoleSurface, thread_name
from engine import inbox, sessions
from engine.errors import NodError
from engine.events import Bus, Event
from engine.inbox import Prompt
from engine.sessions import Session
from engine.store.base import Tx

if TYPE_CHECKING:  # prompt_toolkit is 60 ms to import: only for a real terminal
    from prompt_toolkit import PromptSession
    from prompt_toolkit.buffer import Buffer
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

__all__ = ["Plain", "Seat", "Terminal", "run"]

#: Seconds a card must be on the screen, and a key must stand alone, before the key counts.
SETTLE, ALONE = 0.7, 0.35
#: Seconds within which a second Ctrl-C leaves.
TWICE = 2.0
#: Messages of a thread shown when it is entered; lines that may wait to be printed.
HISTORY, WAITING = 20, 1_000
#: Open cards of a thread that are looked at.
CARDS = 50
#: Seconds between looks whether a session rests, beside the bus.
LOOK = 1.0

LEAVE = frozenset({"/quit", "/exit"})
#: What a plain run ends with: how its last turn ended -> exit code.
EXIT = {"": 0, "completed": 0, "parked": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What a terminal is wired to."""

    surface: ConsoleSurface
    presenter: Presenter
    context: Context
    bus: Bus
    person: Author
    #: Signs the buttons.
    key: bytes
    #: thread_target where cards of no session are read.
    place: str = "console:main"

    async def at(self, target: str) -> tuple[str | None, list[Prompt], int]:
        """Return the thread's session, the prompts read there, and how many wait elsewhere."""

        def look(tx: Tx) -> tuple[str | None, list[Prompt], int]:
            tenant = self.context.tenant
            session = sessions.find_thread(tx, tenant, target)
            rows = tx.all("prompts_at", tenant=tenant, target=target, place=self.place, limit=CARDS)
            counted = tx.one("prompts_waiting", tenant=tenant)
            elsewhere = 0 if counted is None else counted["n"] - len(rows)
            return session, [inbox.prompt_from(row) for row in rows], elsewhere

        return await self.context.store.read(look)

    async def session(self, session: str) -> Session:
        """Return the session's row."""
        return await self.context.store.read(lambda tx: sessions.get(tx, session))


async def run(seat: Seat, thread: str = "main") -> int:
    """Converse until the person leaves or the input ends; return the exit code."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        return await Terminal(seat, thread, _print).run()
    return await Plain(seat, thread, _print).run()


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@asynccontextmanager
async def _following(seat: Seat, take: Callable[[Event], None], name: str) -> AsyncIterator[None]:
    """Hand every event of the bus to `take` inside the block."""

    async def follow() -> None:
        with seat.bus.subscribe() as subscription:
            ready.set()
            while True:
                take(await subscription.next())

    ready = asyncio.Event()
    task = asyncio.create_task(follow(), name=name)
    await ready.wait()
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Plain:
    """Each line is one message; its turn is waited for. For pipes and scripts."""

    def __init__(self, seat: Seat, thread: str, write: Callable[[str], None]) -> None:
        self._seat = seat
        self._target = f"console:{thread}"
        self._feed = Feed(write, live=False)
        self._write = write
        self._session: str | None = None
        self._moved = asyncio.Event()

    async def run(self) -> int:
        """Return 0 when the last turn ended well, 3 when it waits for a nod, else 1."""
        thread_name(self._target)
        with self._seat.surface.listen(self._entry):
            async with _following(self._seat, self._event, "plain terminal"):
                async for line in _lines():
                    if line in LEAVE:
                        break
                    if line:
                        await self._say(line)
        if self._feed.ended == "parked":
            self._write("It waits for your nod: see `nod inbox`, then `nod approve ID`.")
        return EXIT.get(self._feed.ended, 1)

    async def _say(self, line: str) -> None:
        command, _, name = line.partition(" ")
        if command == "/thread":
            thread_name(f"console:{name.strip()}")
            self._target, self._session = f"console:{name.strip()}", None
            return
        self._feed.ended = ""
        try:
            receipt = await self._seat.surface.say(self._target, self._seat.person, line)
        except NodError as error:
            self._write(plain(str(error)))
            return
        self._session = receipt.session  # at once, so that no event of its turn is missed
        if receipt.text:
            self._write(plain(receipt.text))
        await self._rest()

    async def _rest(self) -> None:
        """Wait until the thread's session rests and everything it said is shown."""
        while True:
            self._moved.clear()
            self._session, _, _ = await self._seat.at(self._target)
            if self._session is None:
                return
            row = await self._seat.session(self._session)
            if row.worker is None and row.wanted == row.seen:
                await self._seat.presenter.caught_up(row.id, row.seq)
                if row.state == "parked":
                    self._feed.ended = "parked"
                return
            try:
                async with asyncio.timeout(LOOK):
                    await self._moved.wait()
            except TimeoutError:
                continue

    def _entry(self, target: str, entry: Mapping[str, Any]) -> None:
        if target == self._target:
            self._feed.entry(entry)

    def _event(self, event: Event) -> None:
        if event.session == self._session:
            self._feed.event(event)
            self._moved.set()


async def _lines() -> AsyncIterator[str]:
    """Yield the lines of standard input; a thread reads, so that nothing else waits for it."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str | None] = asyncio.Queue(16)

    def hand(line: str | None) -> None:
        asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()

    def read() -> None:
        try:
            for raw in sys.stdin.buffer:
                hand(raw.decode(errors="replace").strip())
            hand(None)
        except RuntimeError:
            return  # the loop has ended: nobody wants more

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while (line := await lines.get()) is not None:
        yield line


@dataclass(frozen=True, slots=True)
class _Asking:
    """A button that was pressed and asks for something before it counts."""

    prompt: Prompt
    button: Button


class Terminal:
    """The interactive conversation."""

    def __init__(self, seat: Seat, thread: str, write: Callable[[str], None]) -> None:
        self._seat = seat
        self._target = f"console:{thread}"
        self._write = write
        self._feed = Feed(write, live=True)
        self._session: str | None = None
        self._open: list[Prompt] = []
        self._elsewhere = 0  # cards open in other threads
        self._since = 0.0  # when the first open card came to the screen
        self._asking: _Asking | None = None
        self._interrupted = float("-inf")
        #: What the keys and the surface ask for, done one after the other.
        self._work: asyncio.Queue[Callable[[], Any]] = asyncio.Queue(WAITING)
        self._prompt: PromptSession[str] | None = None

    async def run(self) -> int:
        """Converse until the person leaves."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.patch_stdout import patch_stdout

        self._prompt = PromptSession(
            self._label, key_bindings=self._keys(), bottom_toolbar=self._toolbar
        )
        with patch_stdout(), self._seat.surface.listen(self._entry):
            async with _following(self._seat, self._event, "terminal"):
                await self._enter(self._target)
                working = asyncio.create_task(self._works(), name="terminal work")
                try:
                    await self._converse()
                finally:
                    working.cancel()
                    await asyncio.gather(working, return_exceptions=True)
        return 0

    async def _converse(self) -> None:
        assert self._prompt is not None
        default = ""
        while True:
            try:
                line = await self._prompt.prompt_async(default=default, handle_sigint=False)
            except EOFError:
                return
            default = ""
            try:
                if line.strip() in LEAVE:
                    return
                if self._asking is not None:
                    default = await self._told(self._asking, line)
                elif line.strip():
                    await self._say(line.strip())
            except NodError as error:
                self._write(plain(str(error)))

    async def _say(self, line: str) -> None:
        command, _, name = line.partition(" ")
        if command == "/thread":
            await self._enter(f"console:{name.strip() or 'main'}")
            return
        self._done(await self._seat.surface.say(self._target, self._seat.person, line))
        await self._look()

    def _done(self, receipt: Receipt) -> None:
        if receipt.session is not None and receipt.status == "accepted":
            self._session = receipt.session  # at once, so that no event of its turn is missed
            self._feed.busy = True
        if receipt.text:
            self._write(plain(receipt.text))

    async def _enter(self, target: str) -> None:
        """Go to a thread and show how it stands."""
        thread_name(target)
        self._target, self._asking = target, None
        self._feed = Feed(self._write, live=True)
        for line in (await self._seat.surface.history(target, 0.0))[-HISTORY:]:
            self._write(plain(f"{line.by} › {line.text}" if line.by else line.text))
        await self._look()
        if self._session is not None:
            row = await self._seat.session(self._session)
            self._feed.busy = row.state == "running" or row.wanted > row.seen

    async def _look(self) -> None:
        """Read which cards are open here."""
        before = self._open[:1]
        self._session, self._open, self._elsewhere = await self._seat.at(self._target)
        if self._open and [p.id for p in before] != [self._open[0].id]:
            self._since = time.monotonic()
        self._redraw()

    # -- what happens

    def _entry(self, target: str, entry: Mapping[str, Any]) -> None:
        if target == self._target:
            self._feed.entry(entry)
        self._plan(self._look)

    def _event(self, event: Event) -> None:
        if event.session == self._session:
            self._feed.event(event)
            self._redraw()

    def _redraw(self) -> None:
        if self._prompt is not None:
            self._prompt.app.invalidate()

    def _plan(self, work: Callable[[], Any]) -> None:
        if not self._work.full():  # a look or a press that is dropped can be made again
            self._work.put_nowait(work)

    async def _works(self) -> None:
        while True:
            work = await self._work.get()
            try:
                await work()
            except NodError as error:
                self._write(plain(str(error)))

    # -- what is on the screen

    def _label(self) -> str:
        if self._asking is None:
            return f"{self._target.removeprefix('console:')} › "
        if self._asking.button.asks == "arguments":
            return "arguments, then Enter › "
        if self._asking.button.asks == "answer":
            return "your answer, then Enter › "
        return "why, or what instead (Enter for nothing) › "

    def _toolbar(self) -> str:
        if self._asking is not None:
            return " Ctrl-C: back to the card"
        parts = [self._feed.status()]
        if self._open:
            prompt = self._open[0]
            offered = (*self._buttons(prompt), *self._for_all(prompt))
            keys = " ".join(f"[{b.key}] {b.label}" for b in offered)
            more = f" (1 of {len(self._open)})" if len(self._open) > 1 else ""
            parts.append(f"{prompt.payload.get('tool') or prompt.kind}{more}: {keys} [?] all of it")
        if self._elsewhere:
            parts.append(f"{self._elsewhere} more wait elsewhere: /inbox")
        return " " + plain("  |  ".join(part for part in parts if part))

    def _buttons(self, prompt: Prompt) -> tuple[Button, ...]:
        zone = ZoneInfo(self._seat.context.zone)
        return cards.card_of([prompt], "", self._seat.key, str, zone).rows[0].buttons

    def _for_all(self, prompt: Prompt) -> tuple[Button, ...]:
        """Return the buttons for all open rows of the prompt's card."""
        card = prompt.payload.get("card")
        rows = [each for each in self._open if each.payload.get("card") == card]
        zone = ZoneInfo(self._seat.context.zone)
        return cards.card_of(rows or [prompt], self._target, self._seat.key, str, zone).buttons

    # -- keys

    def _keys(self) -> KeyBindings:
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.key_binding import KeyBindings

        bindings = KeyBindings()

        @Condition
        def on_card() -> bool:
            shown = time.monotonic() - self._since >= SETTLE
            return bool(self._open) and shown and self._asking is None and not self._typed()

        for key in "awedrhlusA?123456789":
            bindings.add(key, filter=on_card)(self._key)
        bindings.add("c-c")(self._interrupt)
        return bindings

    def _typed(self) -> str:
        return "" if self._prompt is None else self._prompt.default_buffer.text

    def _key(self, event: KeyPressEvent) -> None:
        """The key is typed like any other; standing alone for a moment makes it a press."""
        buffer, key = event.current_buffer, event.data
        buffer.insert_text(key)
        prompt = self._open[0]
        asyncio.get_running_loop().call_later(ALONE, self._alone, buffer, key, prompt)

    def _alone(self, buffer: Buffer, key: str, prompt: Prompt) -> None:
        if buffer.text == key and self._asking is None:
            buffer.reset()
            self._plan(lambda: self._pressed(prompt, key))

    async def _pressed(self, prompt: Prompt, key: str) -> None:
        from prompt_toolkit.document import Document

        if key == "?":
            self._write(plain(cards.full_text(prompt)))
            return
        offered = (*self._buttons(prompt), *self._for_all(prompt))
        button = next((each for each in offered if each.key == key), None)
        if button is None:
            return
        if not button.asks:
            await self._press(button)
            return
        self._asking = _Asking(prompt, button)
        if button.asks == "arguments" and self._prompt is not None:
            arguments = prompt.payload.get("arguments", {})
            text = json.dumps(arguments, ensure_ascii=False, indent=2)
            self._prompt.default_buffer.document = Document(text, len(text))
        self._redraw()

    async def _told(self, asking: _Asking, line: str) -> str:
        """Take what a button asked for; returns what the line is to be filled with again."""
        if asking.button.asks in ("reason", "answer"):
            self._asking = None
            await self._press(asking.button, text=line.strip())
            return ""
        try:
            arguments = json.loads(line)
            if not isinstance(arguments, dict):
                raise ValueError("it is no object")
        except ValueError as error:
            self._write(f"This is no JSON object: {plain(str(error))}. Mend it, or press Ctrl-C.")
            return line
        self._asking = None
        await self._press(asking.button, arguments=arguments)
        return ""

    async def _press(
        self, button: Button, text: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        surface, person = self._seat.surface, self._seat.person
        self._done(await surface.press(self._target, person, button.token, text, arguments))
        await self._look()

    def _interrupt(self, event: KeyPressEvent) -> None:
        """Once: stop the turn. Twice, or with nothing to stop: leave."""
        buffer, now = event.current_buffer, time.monotonic()
        if self._asking is not None:
            self._asking = None
            buffer.reset()
        elif now - self._interrupted < TWICE:
            event.app.exit(exception=EOFError())
        elif buffer.text:
            buffer.reset()
        elif self._feed.busy:
            self._interrupted = now
            self._write("Stopping. Press Ctrl-C again to leave.")
            self._plan(self._stop)
        else:
            event.app.exit(exception=EOFError())

    async def _stop(self) -> None:
        await self._seat.surface.say(self._target, self._seat.person, "/stop")
