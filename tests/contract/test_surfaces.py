"""One contract for every surface: what is posted is found, edited, and there once."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bot.surfaces.base import (
    Author,
    Commanded,
    Inbound,
    Line,
    Message,
    Pressed,
    Receipt,
    Said,
    Surface,
    SurfaceError,
)
from bot.surfaces.config import TelegramConfig
from bot.surfaces.console import ConsoleSurface
from bot.surfaces.discord import DiscordSurface
from bot.surfaces.slack import SlackSurface
from bot.surfaces.telegram import TelegramSurface
from engine.errors import NodError
from engine.store.base import Store
from tests.fakes.discord import GENERAL, GUILD, discord
from tests.fakes.ground import grounded
from tests.fakes.slack import FakeSlack
from tests.fakes.surface import MemorySurface
from tests.fakes.telegram import BOT, TOKEN, FakeTelegram
from tests.unit.discord_desk import config_of
from tests.unit.slack_desk import config_for

ANA = Author(id="console", name="ana")
HOME = {
    "console": "console:main",
    "discord": f"discord:{GUILD}/{GENERAL}",
    "memory": "memory:main",
    "slack": "slack:T1/CGEN",
    "telegram": f"telegram:{BOT}/-1005",
}


async def accepted(event: Inbound) -> Receipt:
    return Receipt(status="accepted")


@asynccontextmanager
async def on_memory(data: Path, store: Store) -> AsyncIterator[Surface]:
    yield MemorySurface()


@asynccontextmanager
async def on_console(data: Path, store: Store) -> AsyncIterator[Surface]:
    yield ConsoleSurface(data, lambda: 1000.0)


@asynccontextmanager
async def on_slack(data: Path, store: Store) -> AsyncIterator[Surface]:
    async with FakeSlack() as fake, grounded(data, store) as told:
        yield SlackSurface(config_for(fake), told.ground)


class ReadTelegram(TelegramSurface):
    """The surface, with what only people can see: the Bot API shows a bot no history."""

    fake: FakeTelegram

    async def history(self, target: str, since: float) -> list[Line]:
        return [Line(ref=str(each.id), at=since, by="", text=each.text) for each in self.fake.sent]


@asynccontextmanager
async def on_telegram(data: Path, store: Store) -> AsyncIterator[Surface]:
    async with FakeTelegram() as fake, grounded(data, store) as told:
        fake.group(-1005)
        made = ReadTelegram(TelegramConfig(tokens=(TOKEN,), base_url=fake.url), told.ground)
        made.fake = fake
        yield made


@asynccontextmanager
async def on_discord(data: Path, store: Store) -> AsyncIterator[Surface]:
    async with discord() as fake, grounded(data, store) as told:
        yield DiscordSurface(config_of(fake), told.ground)


#: Each yields a surface that is not started, on a fake that is.
PLATFORMS = {
    "console": on_console,
    "discord": on_discord,
    "memory": on_memory,
    "slack": on_slack,
    "telegram": on_telegram,
}


@pytest.fixture(params=sorted(PLATFORMS))
async def surface(request: pytest.FixtureRequest, tmp_path: Path, sqlite_store: Store) -> Any:
    async with PLATFORMS[request.param](tmp_path, sqlite_store) as made:
        await made.start(accepted)
        yield made
        await made.stop()
        await made.stop()  # twice is fine


async def found(surface: Surface, delivery: str) -> str | None:
    """Look a delivery up; a platform that keeps none with its messages never says it found one."""
    ref = await surface.find(HOME[surface.name], delivery)
    assert ref is None or finds(surface)
    return ref


def finds(surface: Surface) -> bool:
    """Say whether what was posted is found; Discord's is, without being sure of what is not."""
    return surface.capabilities.look_up or surface.name == "discord"


def known(surface: Surface, ref: str) -> str | None:
    """Return what `found` must return for what was posted."""
    return ref if finds(surface) else None


async def texts(surface: Surface) -> list[str]:
    return [line.text for line in await surface.history(HOME[surface.name], 0.0)]


async def test_what_is_posted_is_found_by_its_delivery(surface: Surface) -> None:
    home = HOME[surface.name]
    ref = await surface.post(home, Message(text="hello"), "answer:s/1/1")
    assert await found(surface, "answer:s/1/1") == known(surface, ref)
    assert await found(surface, "answer:s/1/2") is None


async def test_two_posts_have_two_refs_and_keep_their_order(surface: Surface) -> None:
    home = HOME[surface.name]
    refs = [await surface.post(home, Message(text=word), f"event:s/{word}") for word in ("a", "b")]
    assert len(set(refs)) == 2
    assert await texts(surface) == ["a", "b"]


async def test_an_edit_replaces_what_is_shown(surface: Surface) -> None:
    ref = await surface.post(HOME[surface.name], Message(text="draft"), "answer:s/1/1")
    await surface.edit(ref, Message(text="final"))
    assert await texts(surface) == ["final"]
    assert await found(surface, "answer:s/1/1") == known(surface, ref)


async def test_a_file_is_posted_with_its_caption(surface: Surface, tmp_path: Path) -> None:
    file = tmp_path / "briefing.md"
    file.write_text("x")
    home = HOME[surface.name]
    ref = await surface.upload(home, [file], Message(text="the briefing"), "act:c1/1")
    assert await found(surface, "act:c1/1") == known(surface, ref)
    assert (await texts(surface))[0].startswith("the briefing")


async def test_lone_surrogates_do_not_break_a_post(surface: Surface) -> None:
    await surface.post(HOME[surface.name], Message(text="caf\ud800é 👩‍💻"), "event:s/1")
    assert "👩‍💻" in (await texts(surface))[0]


async def test_posts_at_once_all_arrive(surface: Surface) -> None:
    home = HOME[surface.name]
    posts = [surface.post(home, Message(text=str(n)), f"event:s/{n}") for n in range(20)]
    refs = await asyncio.gather(*posts)
    assert len(set(refs)) == 20
    assert sorted(map(int, await texts(surface))) == list(range(20))


# -- what only the console promises


@pytest.fixture
async def console(tmp_path: Path) -> ConsoleSurface:
    made = ConsoleSurface(tmp_path, lambda: 1000.0)
    await made.start(accepted)
    return made


def lines(data: Path, name: str = "main") -> list[dict[str, Any]]:
    raw = (data / "console" / f"{name}.jsonl").read_bytes()
    return [json.loads(line) for line in raw.splitlines()]


async def test_a_post_is_one_line_with_its_delivery(
    console: ConsoleSurface, tmp_path: Path
) -> None:
    ref = await console.post("console:main", Message(text="hi"), "act:c1/1")
    assert lines(tmp_path) == [
        {"op": "post", "ref": ref, "delivery": "act:c1/1", "at": 1000.0, "text": "hi"}
    ]


async def test_a_post_is_synced_before_it_returns(
    console: ConsoleSurface, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append(os.fstat(handle).st_size)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    await console.post("console:main", Message(text="hi"), "act:c1/1")
    assert (tmp_path / "console" / "main.jsonl").stat().st_size in synced


async def test_a_line_torn_by_a_crash_is_cut_and_was_never_posted(
    console: ConsoleSurface, tmp_path: Path
) -> None:
    ref = await console.post("console:main", Message(text="whole"), "act:c1/1")
    file = tmp_path / "console" / "main.jsonl"
    with file.open("ab") as torn:
        torn.write(b'{"op":"post","ref":"main/m2","delivery":"act:c2/1","te')
    again = ConsoleSurface(tmp_path, lambda: 1000.0)
    assert await again.find("console:main", "act:c2/1") is None
    assert await again.find("console:main", "act:c1/1") == ref
    await again.post("console:main", Message(text="next"), "act:c2/1")
    assert [line["text"] for line in lines(tmp_path)] == ["whole", "next"]


async def test_a_full_disk_is_an_error_and_leaves_no_half_line(
    console: ConsoleSurface, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await console.post("console:main", Message(text="before"), "event:s/1")
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[:9]))
    with pytest.raises(SurfaceError, match="could not be written"):
        await console.post("console:main", Message(text="lost"), "event:s/2")
    monkeypatch.undo()
    assert await console.find("console:main", "event:s/2") is None
    await console.post("console:main", Message(text="after"), "event:s/3")
    assert [line["text"] for line in lines(tmp_path)] == ["before", "after"]


@pytest.mark.parametrize(
    "target",
    [
        "console:../nod",
        "console:..",
        "console:a/b",
        "console:.hidden",
        "console:" + "x" * 65,
        "slack:main",
        "console:",
        "nothing",
    ],
)
async def test_a_thread_cannot_name_a_file_elsewhere(
    console: ConsoleSurface, tmp_path: Path, target: str
) -> None:
    with pytest.raises(NodError):
        await console.post(target, Message(text="x"), "event:s/1")
    assert list(tmp_path.rglob("*.jsonl")) == []


async def test_a_thread_that_is_a_link_is_not_followed(
    console: ConsoleSurface, tmp_path: Path
) -> None:
    (tmp_path / "victim").write_text("keep\n")
    (tmp_path / "console" / "main.jsonl").symlink_to(tmp_path / "victim")
    with pytest.raises(SurfaceError):
        await console.post("console:main", Message(text="x"), "event:s/1")
    assert (tmp_path / "victim").read_text() == "keep\n"


@pytest.mark.parametrize(
    ("line", "kind"), [("hello", Said), ("/status", Commanded), ("/etc/hosts is", Said)]
)
async def test_a_typed_line_reaches_the_intake(
    tmp_path: Path, line: str, kind: type[Inbound]
) -> None:
    taken: list[Inbound] = []

    async def take(event: Inbound) -> Receipt:
        taken.append(event)
        return Receipt(status="accepted")

    surface = ConsoleSurface(tmp_path, lambda: 1000.0)
    await surface.start(take)
    await surface.say("console:main", ANA, line)
    assert [type(event) for event in taken] == [kind]


async def test_a_key_on_a_card_reaches_the_intake(tmp_path: Path) -> None:
    taken: list[Inbound] = []

    async def take(event: Inbound) -> Receipt:
        taken.append(event)
        return Receipt(status="answered")

    surface = ConsoleSurface(tmp_path, lambda: 1000.0)
    await surface.start(take)
    await surface.press("console:main", ANA, "token", text="because")
    assert [(type(e), e.text) for e in taken if isinstance(e, Pressed)] == [(Pressed, "because")]


async def test_history_survives_a_restart(tmp_path: Path) -> None:
    surface = ConsoleSurface(tmp_path, lambda: 1000.0)
    await surface.start(accepted)
    await surface.say("console:work", ANA, "hello")
    await surface.post("console:work", Message(text="hi"), "answer:s/1/1")
    again = ConsoleSurface(tmp_path, lambda: 2000.0)
    history = await again.history("console:work", 0.0)
    assert [(line.by, line.text) for line in history] == [("ana", "hello"), ("", "hi")]
    assert await again.history("console:work", 1500.0) == []
