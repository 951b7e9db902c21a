"""The sign of work: beside everything else, tried again, and gone when the work is over."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from bot.outbound import signing
from bot.surfaces.base import SurfaceError
from engine.store.base import Store
from engine.tools.base import Risk
from tests.fakes.chat import chatting
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.surface import MemorySurface
from tests.fakes.world import probe

PLACE = "memory:x"


async def test_a_sign_that_never_comes_back_delays_no_answer(
    sqlite_store: Store, tmp_path: Path
) -> None:
    surface = MemorySurface()
    surface.typing_hangs = True
    hold = asyncio.Event()
    model = ScriptedModel(["Good morning."], hold=hold, chunk=20)
    async with chatting(sqlite_store, tmp_path, model, surfaces=[surface]) as chat:
        session = await chat.world.open(PLACE)
        await chat.presenter.caught_up(session, 0)
        await chat.world.say(session, "hello")
        await surface.until(lambda platform: platform.typed == [PLACE])
        hold.set()
        await surface.until(lambda platform: platform.of(PLACE) == ["Good morning."], limit=3.0)


@pytest.mark.parametrize(
    "failure",
    [SurfaceError("cut", certain=False), SurfaceError("wait", retry_after=0.01), OSError("reset")],
    ids=["lost", "asked to wait", "connection"],
)
async def test_a_sign_that_failed_is_tried_again_while_nod_is_at_work(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    monkeypatch.setattr(signing, "AGAIN", 0.01)
    surface, hold = MemorySurface(), asyncio.Event()
    surface.typing_failures += [failure, failure]
    model = ScriptedModel(["Good morning."], hold=hold, chunk=20)
    async with chatting(sqlite_store, tmp_path, model, surfaces=[surface]) as chat:
        session = await chat.world.open(PLACE)
        await chat.presenter.caught_up(session, 0)
        await chat.world.say(session, "hello")
        await surface.until(lambda platform: platform.typed == [PLACE] * 3)
        hold.set()
        await chat.shown(session)
    assert surface.of(PLACE) == ["Good morning."]
    assert surface.typed == [PLACE] * 3, "one that was shown is not shown again"


async def test_a_platform_that_never_takes_it_is_not_asked_for_ever(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signing, "AGAIN", 0.0)
    surface, hold = MemorySurface(), asyncio.Event()
    surface.typing_failures += [SurfaceError("no")] * 50
    model = ScriptedModel(["one", "two"], hold=hold, chunk=20)
    async with chatting(sqlite_store, tmp_path, model, surfaces=[surface]) as chat:
        session = await chat.world.open(PLACE)
        await chat.presenter.caught_up(session, 0)
        await chat.world.say(session, "hello")
        await surface.until(lambda platform: len(platform.typed) == signing.TRIES)
        hold.set()
        await chat.shown(session)
        await chat.world.say(session, "again")
        await surface.until(lambda platform: len(platform.typed) > signing.TRIES)


async def test_what_fades_is_shown_anew_through_a_long_call_and_not_after_it(
    sqlite_store: Store, tmp_path: Path
) -> None:
    """Also when nothing happens for longer than an idle session is followed."""
    surface, hold = MemorySurface(), asyncio.Event()
    surface.capabilities = replace(surface.capabilities, sign_fades=0.01)

    tool = probe("long_look", Risk.READ, [], gate=hold)
    model = ScriptedModel([calls(call("long_look", label="a")), "Done."])
    async with chatting(
        sqlite_store, tmp_path, model, surfaces=[surface], idle=0.02, tools=[tool]
    ) as chat:
        session = await chat.world.open(PLACE)
        await chat.world.say(session, "hello")
        await surface.until(lambda platform: len(platform.typed) >= 10)
        hold.set()
        await chat.shown(session)
        await surface.until(lambda platform: platform.of(PLACE) == ["Done."])
        async with asyncio.timeout(5):
            while chat.presenter._followers:
                await asyncio.sleep(0.01)
        assert not [each for each in asyncio.all_tasks() if each.get_name().startswith("sign ")]
