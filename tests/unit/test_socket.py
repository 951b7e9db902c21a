"""The local socket: a second process answers a card; what is wrong is told in one sentence."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.shell import socket as sockets
from bot.shell.socket import LocalSocket, ask
from engine import inbox
from engine.errors import NodError, SettingsError
from engine.inbox import Prompt
from engine.store.base import Store
from tests.fakes.chat import Chat, chatting
from tests.fakes.scripted import ScriptedModel


@pytest.fixture
async def chat(sqlite_store: Store, tmp_path: Path) -> AsyncIterator[Chat]:
    async with chatting(
        sqlite_store, tmp_path, ScriptedModel(), at_work=False, presenting=False
    ) as made:
        yield made


async def nothing(target: str, text: str) -> str:
    raise AssertionError(f"nobody said {text} in {target}")


async def raw(path: Path, sent: bytes) -> dict[str, object]:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(sent)
    await writer.drain()
    reply: dict[str, object] = json.loads(await reader.readline())
    writer.close()
    return reply


async def test_a_command_is_run_and_answered(chat: Chat, tmp_path: Path) -> None:
    async with LocalSocket(tmp_path / "nod.sock", chat.context, nothing):
        said = await ask(tmp_path / "nod.sock", "whoami", thread="console:other")
    assert "owner, in console:other" in said


async def test_a_second_process_answers_a_card(chat: Chat, tmp_path: Path) -> None:
    receipt = await chat.said("hello", "e1")
    now = chat.world.engine.now()
    prompt = Prompt(
        id="p1",
        tenant="local",
        session=receipt.session,
        kind="approval",
        subject="c1/0",
        approvers={"role": "owner"},
        created_at=now,
        deadline=now + 100,
    )
    await chat.store.write(lambda tx: inbox.ask(tx, prompt))
    script = (
        "import asyncio, sys; from pathlib import Path; from bot.shell.socket import ask;"
        "print(asyncio.run(ask(Path(sys.argv[1]), 'approve', 'p1')))"
    )
    async with LocalSocket(tmp_path / "nod.sock", chat.context, nothing):
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, str(tmp_path / "nod.sock"), stdout=-1
        )
        out, _ = await child.communicate()
    found = await chat.store.read(lambda tx: inbox.get(tx, "p1"))
    assert out.decode().startswith("Approved by @console")
    assert (found.answer, found.resolved_by) == ({"kind": "once"}, "console")


async def test_the_socket_is_for_its_owner_only(chat: Chat, tmp_path: Path) -> None:
    async with LocalSocket(tmp_path / "nod.sock", chat.context, nothing):
        assert stat.S_IMODE((tmp_path / "nod.sock").stat().st_mode) == 0o600
    assert not (tmp_path / "nod.sock").exists()


async def test_without_a_running_nod_one_sentence_says_so(tmp_path: Path) -> None:
    with pytest.raises(NodError) as caught:
        await ask(tmp_path / "nod.sock", "approve", "p1")
    assert str(caught.value) == (
        "nod approve needs a running Nod. Start `nod` or `nod serve` first."
    )


async def test_a_socket_left_by_a_dead_process_is_replaced(chat: Chat, tmp_path: Path) -> None:
    path = tmp_path / "nod.sock"
    script = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1])"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(path))
    await child.wait()
    with pytest.raises(NodError, match="running Nod"):
        await ask(path, "whoami")
    async with LocalSocket(path, chat.context, nothing):
        assert "owner" in await ask(path, "whoami")


async def test_what_a_command_refuses_is_the_callers_error(chat: Chat, tmp_path: Path) -> None:
    async with LocalSocket(tmp_path / "nod.sock", chat.context, nothing):
        with pytest.raises(NodError, match="Did you mean /approve"):
            await ask(tmp_path / "nod.sock", "aprove", "p1")


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        pytest.param(b"no json\n", "no command", id="no JSON"),
        pytest.param(b"[1]\n", "no command", id="no object"),
        pytest.param(b"{}\n", "no command", id="no command"),
        pytest.param(b"x" * 70_000 + b"\n", "64,000 bytes", id="too long"),
        pytest.param(b'{"command": "status", "thread": "nowhere"}\n', "", id="no target"),
    ],
)
async def test_a_bad_request_is_told_and_harms_nothing(
    chat: Chat, tmp_path: Path, sent: bytes, said: str
) -> None:
    async with LocalSocket(tmp_path / "nod.sock", chat.context, nothing):
        reply = await raw(tmp_path / "nod.sock", sent)
        assert reply["ok"] is False
        assert said in str(reply["text"])
        assert "owner" in await ask(tmp_path / "nod.sock", "whoami")


async def test_a_sender_who_says_nothing_is_dropped(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "READ_TIMEOUT", 0.05)
    async with LocalSocket(tmp_path / "nod.sock", chat.context, nothing):
        assert (await raw(tmp_path / "nod.sock", b""))["text"] == "No command came."


async def test_too_many_at_once_are_refused(chat: Chat, tmp_path: Path) -> None:
    path = tmp_path / "nod.sock"
    async with LocalSocket(path, chat.context, nothing):
        held = [await asyncio.open_unix_connection(path) for _ in range(sockets.CONNECTIONS)]
        with pytest.raises(NodError, match="Too many"):
            await ask(path, "whoami")
        for _, writer in held:
            writer.close()


async def test_a_path_that_no_socket_can_have_is_told(chat: Chat, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="NOD_HOME"):
        async with LocalSocket(tmp_path / ("x" * 120) / "nod.sock", chat.context, nothing):
            pass


async def test_a_line_is_said_in_its_thread(chat: Chat, tmp_path: Path) -> None:
    async def say(target: str, text: str) -> str:
        return f"{text} in {target}"

    async with LocalSocket(tmp_path / "nod.sock", chat.context, say):
        said = await ask(tmp_path / "nod.sock", "say", "good morning", thread="console:work")
    assert said == "good morning in console:work"
