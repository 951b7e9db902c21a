"""The terminal: keys that answer cards and nothing else, Ctrl-C, and lines through a pipe."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from bot.shell import terminal
from bot.shell.feed import Feed
from bot.shell.terminal import Terminal
from engine.events import Event, Kind
from engine.store.base import Store
from engine.tools.base import Risk
from tests.fakes.chat import Chat, chatting
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.world import probe


class Screen:
    """A terminal under test: what it printed, and the keys it is sent."""

    def __init__(self, chat: Chat, send: Callable[[str], None]) -> None:
        self.chat = chat
        self.send = send
        self.lines: list[str] = []
        self.terminal = Terminal(chat.seat, "main", self.lines.append)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    async def until(self, holds: Callable[[], Any], limit: float = 8.0) -> None:
        """Wait until `holds()`; the terminal has no event for what a person sees."""
        async with asyncio.timeout(limit):
            while not holds():
                await asyncio.sleep(0.01)

    async def shows(self, text: str) -> None:
        await self.until(lambda: text in self.text)

    async def card(self) -> None:
        """Wait until a card is open and its keys count."""
        await self.until(lambda: bool(self.terminal._open))
        await asyncio.sleep(terminal.SETTLE + 0.05)


@asynccontextmanager
async def screen(
    store: Store, data: Path, model: ScriptedModel, log: list[Any] | None = None, **more: Any
) -> AsyncIterator[Screen]:
    tools = None if log is None else [probe("send", Risk.EXTERNAL, log)]
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        async with chatting(store, data, model, tools=tools, **more) as chat:
            made = Screen(chat, pipe.send_text)
            running = asyncio.create_task(made.terminal.run())
            try:
                yield made
                made.send("\x04")
                async with asyncio.timeout(5):
                    assert await running == 0
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)


def asks_then(*then: str) -> ScriptedModel:
    return ScriptedModel([calls(call("send", label="a")), *then])


async def test_a_line_is_said_and_its_answer_is_shown_once(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(["First line.\nSecond line."], chunk=4)
    async with screen(sqlite_store, tmp_path, model) as seen:
        seen.send("hello\r")
        await seen.shows("Second line.")
        await seen.chat.world.settle()
        assert seen.text.count("First line.") == 1
        assert seen.text.count("Second line.") == 1


@pytest.mark.parametrize(
    ("keys", "ran", "kind"),
    [
        pytest.param("a", True, "once", id="approve"),
        pytest.param("w", True, "always", id="always"),
    ],
)
async def test_one_key_answers_a_card(
    sqlite_store: Store, tmp_path: Path, keys: str, ran: bool, kind: str
) -> None:
    log: list[Any] = []
    async with screen(sqlite_store, tmp_path, asks_then("Done."), log) as seen:
        seen.send("please send\r")
        await seen.card()
        seen.send(keys)
        await seen.shows("Done.")
    assert bool(log) == ran


async def test_deny_asks_why(sqlite_store: Store, tmp_path: Path) -> None:
    log: list[Any] = []
    async with screen(sqlite_store, tmp_path, asks_then("Understood."), log) as seen:
        seen.send("please send\r")
        await seen.card()
        seen.send("d")
        await seen.until(lambda: seen.terminal._asking is not None)
        seen.send("ask Bo first\r")
        await seen.shows("Understood.")
        assert "Denied by @console" in seen.text
        assert "ask Bo first" in seen.text
    assert log == []


async def test_edit_opens_the_arguments_and_refuses_what_is_no_json(
    sqlite_store: Store, tmp_path: Path
) -> None:
    log: list[Any] = []
    async with screen(sqlite_store, tmp_path, asks_then("Done."), log) as seen:
        seen.send("please send\r")
        await seen.card()
        seen.send("e")
        await seen.until(lambda: '"label"' in seen.terminal._typed())
        seen.send("x\r")
        await seen.shows("no JSON object")
        await seen.until(lambda: seen.terminal._typed().endswith("x"))
        seen.send("\x7f" * 5 + 'b"}')
        await seen.until(lambda: seen.terminal._typed().endswith('b"}'))
        seen.send("\r")
        await seen.shows("Done.")
    assert [label for _, _, label in log] == ["b", "b"]


async def test_a_sentence_that_begins_with_a_key_approves_nothing(
    sqlite_store: Store, tmp_path: Path
) -> None:
    log: list[Any] = []
    async with screen(sqlite_store, tmp_path, asks_then("Understood."), log) as seen:
        seen.send("please send\r")
        await seen.card()
        for letter in "actually, no\r":
            seen.send(letter)
        await seen.shows("Understood.")
        assert "actually, no" in seen.text
    assert log == []


async def test_a_key_pressed_as_the_card_appears_does_not_count(
    sqlite_store: Store, tmp_path: Path
) -> None:
    log: list[Any] = []
    async with screen(sqlite_store, tmp_path, asks_then("Ok."), log) as seen:
        seen.send("please send\r")
        await seen.until(lambda: bool(seen.terminal._open))
        seen.send("a")
        await seen.until(lambda: seen.terminal._typed() == "a")
        await asyncio.sleep(terminal.ALONE + 0.2)
        assert seen.terminal._typed() == "a"
        seen.send("\x15")
    assert log == []


async def test_a_question_is_answered_by_its_number(sqlite_store: Store, tmp_path: Path) -> None:
    options = [{"label": "Red"}, {"label": "Blue"}]
    model = ScriptedModel([calls(call("ask", question="Which?", options=options)), "Blue it is."])
    async with screen(sqlite_store, tmp_path, model) as seen:
        seen.send("go\r")
        await seen.card()
        seen.send("2")
        await seen.shows("Blue it is.")
    assert '"Blue"' in json.dumps(model.requests[1].messages[-1], ensure_ascii=False).replace(
        "\\", ""
    )


async def test_the_whole_payload_is_shown_on_demand(sqlite_store: Store, tmp_path: Path) -> None:
    async with screen(sqlite_store, tmp_path, asks_then("Ok."), []) as seen:
        seen.send("please send\r")
        await seen.card()
        seen.send("?")
        await seen.shows("Arguments:")


async def test_ctrl_c_stops_the_turn_and_twice_leaves(sqlite_store: Store, tmp_path: Path) -> None:
    model = ScriptedModel(["never said"], hold=asyncio.Event())
    async with screen(sqlite_store, tmp_path, model) as seen:
        seen.send("work\r")
        async with asyncio.timeout(5):
            await model.streamed.wait()
        await seen.until(lambda: seen.terminal._feed.busy)
        seen.send("\x03")
        await seen.shows("Stopped after 1 step.")
        assert "never said" not in seen.text
        seen.send("\x03")


async def test_a_thread_is_entered_with_its_history(sqlite_store: Store, tmp_path: Path) -> None:
    model = ScriptedModel(["Hi from work.", "Hi from home."])
    async with screen(sqlite_store, tmp_path, model) as seen:
        seen.send("/thread work\r")
        await seen.until(lambda: seen.terminal._target == "console:work")
        seen.send("hello\r")
        await seen.shows("Hi from work.")
    async with screen(sqlite_store, tmp_path, model) as seen:
        seen.send("/thread work\r")
        await seen.shows("Hi from work.")
        assert "console › hello" in seen.text or "ana › hello" in seen.text
        seen.send("/threads\r")
        await seen.shows("console:work")
        seen.send("/nonsense\r")
        await seen.shows("There is no command /nonsense.")


# -- what is printed


def feed() -> tuple[Feed, list[str]]:
    printed: list[str] = []
    return Feed(printed.append, live=True), printed


def delta(text: str, iteration: int = 1) -> Event:
    return Event(
        session="s", kind=Kind.ASSISTANT_DELTA, turn=1, iteration=iteration, body={"text": text}
    )


def post(text: str, delivery: str = "answer:s/1/1") -> dict[str, Any]:
    return {"op": "post", "ref": "main/1", "delivery": delivery, "text": text}


def test_streamed_text_is_not_printed_again() -> None:
    view, printed = feed()
    for piece in ("One\nTw", "o\nThr", "ee"):
        view.event(delta(piece))
    view.entry(post("One\nTwo\nThree"))
    assert printed == ["One", "Two", "Three"]


def test_an_answer_that_differs_from_its_stream_is_printed_whole() -> None:
    view, printed = feed()
    view.event(delta("Lost in a cra\n"))
    view.entry(post("The new answer"))
    assert printed == ["Lost in a cra", "The new answer"]


@pytest.mark.parametrize(
    "evil",
    ["\x1b[2J", "\x1b]0;owned\x07", "\x9b31m", "\r", "\x08\x08", "\u202e", "\x1b]52;c;AAAA\x1b\\"],
)
def test_no_text_can_command_the_terminal(evil: str) -> None:
    view, printed = feed()
    view.event(Event(session="s", kind=Kind.TURN_START, turn=1, body={}))
    view.event(delta(f"a{evil}b\nrest{evil}"))
    status = view.status()
    view.entry(post(f"{evil}x", "event:s/9"))
    shown = "".join([*printed, status])
    assert not any(each in shown for each in "\x1b\x07\x9b\r\x08\u202e")


def test_the_status_line_tells_tools_and_todos() -> None:
    view, _ = feed()
    view.event(Event(session="s", kind=Kind.TURN_START, turn=1, body={}))
    view.event(Event(session="s", kind=Kind.TOOL_PROPOSED, call="c1", body={"name": "read_file"}))
    todos = [
        {"content": "read", "status": "done"},
        {"content": "write the briefing", "status": "in_progress"},
    ]
    view.event(Event(session="s", kind=Kind.PROGRESS, body={"todos": todos}))
    assert view.status() == "read_file · 1/2 write the briefing"
    view.event(Event(session="s", kind=Kind.TURN_END, body={"status": "completed"}))
    assert (view.status(), view.ended) == ("", "completed")


# -- real processes

CHILD = """
import asyncio, sys
from pathlib import Path
from bot.shell import terminal
from engine.store.opening import open_store
from engine.tools.base import Risk
from tests.fakes.chat import chatting
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.world import probe

async def main(data, script):
    steps = {"talk": ["Good morning.", "Good night."],
             "ask": [calls(call("send", label="a")), "Done."]}[script]
    store = await open_store(str(data / "nod.db"))
    tools = [probe("send", Risk.EXTERNAL, [])]
    async with chatting(store, data, ScriptedModel(steps, chunk=3), tools=tools) as chat:
        code = await terminal.run(chat.seat)
    await store.close()
    return code

raise SystemExit(asyncio.run(main(Path(sys.argv[1]), sys.argv[2])))
"""


async def plain(data: Path, script: str, lines: str) -> tuple[int, str, str]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, str(data), script, stdin=-1, stdout=-1, stderr=-1
    )
    async with asyncio.timeout(30):
        out, err = await child.communicate(lines.encode())
    return child.returncode or 0, out.decode(), err.decode()


async def test_a_pipe_says_each_line_and_waits_for_its_turn(tmp_path: Path) -> None:
    code, out, err = await plain(tmp_path, "talk", "hello\n\nbye\n/nonsense\n/quit\nnever\n")
    assert (code, out.splitlines()[:2], err) == (0, ["Good morning.", "Good night."], "")
    assert "There is no command /nonsense." in out
    assert "\x1b" not in out


async def test_a_pipe_that_ends_while_a_nod_is_missing_says_so(tmp_path: Path) -> None:
    code, out, _ = await plain(tmp_path, "ask", "please send\n")
    assert code == 3
    assert "[a] Approve" in out
    assert "nod approve" in out


def test_a_real_terminal_talks_and_leaves(tmp_path: Path) -> None:
    terminal_end, its_end = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path), "ask"],
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
        start_new_session=True,
    )
    os.close(its_end)
    seen = b""

    def read() -> None:
        nonlocal seen
        if select.select([terminal_end], [], [], 0.1)[0]:
            with contextlib.suppress(OSError):  # it has left
                seen += os.read(terminal_end, 65_536)
            if b"\x1b[6n" in seen:  # where is the cursor? A terminal answers.
                os.write(terminal_end, b"\x1b[1;1R")
                seen = seen.replace(b"\x1b[6n", b"")

    def until(text: bytes) -> None:
        end = time.monotonic() + 40
        while text not in seen:
            assert time.monotonic() < end, seen.decode(errors="replace")
            read()

    try:
        until("main ›".encode())
        os.write(terminal_end, b"please send\r")
        until(b"[a] Approve")
        time.sleep(1.2)
        os.write(terminal_end, b"a")
        until(b"Done.")
        end = time.monotonic() + 20
        while child.poll() is None and time.monotonic() < end:
            with contextlib.suppress(OSError):
                os.write(terminal_end, b"\x04")
            for _ in range(10):
                read()
        assert child.poll() == 0
    finally:
        child.kill()
        child.wait()
        os.close(terminal_end)
