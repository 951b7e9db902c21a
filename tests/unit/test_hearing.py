"""Voice notes: which model hears them, what it gives, and one sentence when it does not."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
from aiohttp import web

from bot.inbound import hearing
from bot.inbound.hearing import Ear, NotHeard


@dataclass
class Transcriber:
    """Speaks OpenAI's audio/transcriptions, and refuses what it does not know."""

    url: str = ""
    says: str = "Hello Nod"
    status: int = 200
    asked: list[Mapping[str, str]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        form = await request.post()
        sent = form.get("file")
        if not isinstance(sent, web.FileField) or "model" not in form:
            return web.json_response({"error": {"message": "malformed"}}, status=400)
        kept = {"model": str(form["model"]), "key": request.headers.get("Authorization", "")}
        self.asked.append({**kept, "bytes": str(len(sent.file.read()))})
        if self.status != 200:
            return web.json_response({"error": {"message": "sk-secret"}}, status=self.status)
        return web.json_response({"text": self.says})


@pytest.fixture
async def provider() -> AsyncIterator[Transcriber]:
    made = Transcriber()
    served = web.Application()
    served.router.add_post("/v1/audio/transcriptions", made.answer)
    runner = web.AppRunner(served)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield made
    await runner.cleanup()


@pytest.fixture
def note(tmp_path: Path) -> Path:
    path = tmp_path / "note.ogg"
    path.write_bytes(b"OggS" + b"x" * 100)
    return path


def ear(provider: Transcriber, model: str = "", **secrets: str) -> Ear:
    return Ear(lambda name: secrets.get(name, ""), model, provider.url)


async def test_a_key_is_enough(provider: Transcriber, note: Path) -> None:
    assert await ear(provider, OPENAI_API_KEY="sk-1").heard(note) == "Hello Nod"
    assert provider.asked == [
        {"model": "gpt-4o-mini-transcribe", "key": "Bearer sk-1", "bytes": "104"}
    ]


async def test_the_model_that_is_set_hears(provider: Transcriber, note: Path) -> None:
    await ear(provider, "openai:whisper-1", OPENAI_API_KEY="sk-1").heard(note)
    assert provider.asked[0]["model"] == "whisper-1"


async def test_without_a_key_it_says_what_to_set(provider: Transcriber, note: Path) -> None:
    with pytest.raises(NotHeard, match="OPENAI_API_KEY"):
        await ear(provider).heard(note)


async def test_silence_is_told(provider: Transcriber, note: Path) -> None:
    provider.says = "  "
    with pytest.raises(NotHeard, match="nothing was heard"):
        await ear(provider, OPENAI_API_KEY="sk-1").heard(note)


async def test_a_provider_that_refuses_is_told_without_its_words(
    provider: Transcriber, note: Path
) -> None:
    provider.status = 400
    with pytest.raises(NotHeard, match=r"openai failed \(\w+\)") as caught:
        await ear(provider, OPENAI_API_KEY="sk-1").heard(note)
    assert "secret" not in str(caught.value)


async def test_a_note_over_the_limit_is_not_sent(
    provider: Transcriber, note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearing, "BYTES", 50)
    with pytest.raises(NotHeard, match="over the limit"):
        await ear(provider, OPENAI_API_KEY="sk-1").heard(note)
    assert provider.asked == []


async def test_a_provider_that_hangs_is_given_up(
    provider: Transcriber, note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearing, "TIMEOUT", 0.0)
    with pytest.raises(NotHeard, match="took longer"):
        await ear(provider, OPENAI_API_KEY="sk-1").heard(note)
    await asyncio.sleep(0)


async def test_notes_that_hang_keep_no_other_work_waiting(
    note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearing, "TIMEOUT", 0.01)
    gate = threading.Event()

    def hangs(name: str) -> str:
        gate.wait(30)
        return ""

    made = Ear(hangs)
    told = await asyncio.gather(*(made.heard(note) for _ in range(40)), return_exceptions=True)
    async with asyncio.timeout(5):
        await asyncio.to_thread(note.stat)
    gate.set()
    assert {type(each) for each in told} == {NotHeard}


# -- heard here

#: Stands in for faster-whisper: its class and its two calls, as version 1.2 has them.
LOCAL = """
import threading
loads = []
class WhisperModel:
    def __init__(self, size, compute_type):
        loads.append((size, compute_type))
        if size == "gone":
            raise RuntimeError("an error occurred while contacting https://huggingface.co/secret")
    def transcribe(self, path):
        class Segment:
            text = " Hello here. "
        return iter([Segment(), Segment()]), None
"""


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "faster_whisper.py").write_text(LOCAL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "faster_whisper", raising=False)
    yield import_module("faster_whisper")
    sys.modules.pop("faster_whisper", None)


async def test_without_a_key_the_local_model_hears_and_is_loaded_once(
    local: ModuleType, note: Path
) -> None:
    made = Ear(lambda name: "")
    heard = await asyncio.gather(*(made.heard(note) for _ in range(4)))
    assert heard == ["Hello here. Hello here."] * 4
    assert local.loads == [("small", "int8")]


async def test_a_key_is_asked_before_the_local_model(
    local: ModuleType, provider: Transcriber, note: Path
) -> None:
    assert await ear(provider, OPENAI_API_KEY="sk-1").heard(note) == "Hello Nod"
    assert local.loads == []


async def test_a_local_model_that_cannot_be_loaded_says_what_to_do(
    local: ModuleType, note: Path
) -> None:
    with pytest.raises(NotHeard) as caught:
        await Ear(lambda name: "", "local:gone").heard(note)
    told = str(caught.value)
    assert "'gone'" in told and "huggingface.co" in told and "NOD_VOICE_MODEL" in told
    assert "OPENAI_API_KEY" in told and "secret" not in told


@pytest.mark.skipif(find_spec("faster_whisper") is not None, reason="the extra is installed")
async def test_a_local_model_without_the_extra_names_it(note: Path) -> None:
    with pytest.raises(NotHeard, match=r"nod-coworker\[voice\]"):
        await Ear(lambda name: "", "local:small").heard(note)
