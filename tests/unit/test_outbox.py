"""The outbox: not having looked is not "it did not"; an act waits for a surface that connects."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bot.outbound.outbox import Outbox
from bot.surfaces.base import Message, Surface, SurfaceError
from bot.web.counts import Counts
from engine.errors import ToolError
from engine.store.base import Store
from engine.tools.base import LookUp
from tests.fakes.surface import MemorySurface


class _Blind(MemorySurface):
    """A platform that cannot be asked just now."""

    async def find(self, target: str, delivery: str) -> str | None:
        raise SurfaceError("Slack could not be reached.", retry_after=2.0)


async def test_a_look_that_failed_cannot_tell(sqlite_store: Store) -> None:
    outbox = Outbox(sqlite_store, {"memory": _Blind()}, lambda: 1.0)
    assert await outbox.find("memory:x", "act:c1/1") == (LookUp.CANNOT_TELL, "")


async def test_an_act_waits_for_a_surface_that_still_connects(
    sqlite_store: Store, tmp_path: Path
) -> None:
    surfaces: dict[str, Surface] = {}
    opened, memory = asyncio.Event(), MemorySurface()
    outbox = Outbox(sqlite_store, surfaces, lambda: 1.0, opened=opened)
    ref = await memory.post("memory:x", Message(text="there"), "act:c1/1")
    finding = asyncio.ensure_future(outbox.find("memory:x", "act:c1/1"))
    sending = asyncio.ensure_future(outbox.send("memory:x", "hi", [], "act:c2/1"))
    await asyncio.sleep(0)
    assert not finding.done() and not sending.done()
    surfaces["memory"] = memory
    opened.set()
    assert await finding == (LookUp.HAPPENED, ref)
    await sending
    assert memory.of("memory:x") == ["there", "hi"]


async def test_a_surface_that_did_not_come_is_said(sqlite_store: Store) -> None:
    opened = asyncio.Event()
    opened.set()
    outbox = Outbox(sqlite_store, {}, lambda: 1.0, opened=opened)
    assert await outbox.find("memory:x", "act:c1/1") == (LookUp.CANNOT_TELL, "")
    with pytest.raises(ToolError, match="no surface 'memory'"):
        await outbox.send("memory:x", "hi", [], "act:c2/1")


async def test_what_is_posted_and_what_fails_is_counted(sqlite_store: Store) -> None:
    surface, counts = MemorySurface(), Counts()
    surface.failures = [SurfaceError("busy")]
    outbox = Outbox(sqlite_store, {"memory": surface}, lambda: 1.0, counts=counts)
    with pytest.raises(SurfaceError):
        await outbox.show("memory:a", Message(text="one"), "event:s/1", doubt=False)
    ref = await outbox.show("memory:a", Message(text="two"), "event:s/2", doubt=False)
    await outbox.update("memory:a", ref, Message(text="three"))
    assert counts.get("nod_posts_total", surface="memory", outcome="failed") == 1
    assert counts.get("nod_posts_total", surface="memory", outcome="sent") == 2


@pytest.mark.parametrize("look_up", [True, False], ids=["found", "cannot-be-looked-up"])
async def test_a_file_that_an_earlier_run_may_have_uploaded_is_found_or_marked(
    sqlite_store: Store, tmp_path: Path, look_up: bool
) -> None:
    surface = MemorySurface(look_up=look_up)
    outbox = Outbox(sqlite_store, {"memory": surface}, lambda: 1.0)
    file, message = tmp_path / "a.txt", Message(text="a.txt")
    file.write_text("a")
    for doubt in (False, True):
        await outbox.upload("memory:x", [file], message, "event:s/1", doubt=doubt)
    marked = ["Possibly shown twice" in text for text in surface.of("memory:x")]
    assert marked == ([False] if look_up else [False, True])
