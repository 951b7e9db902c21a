"""A chat platform in a process of its own, with its people and a stopwatch.

Run as `python -m tests.bench.platform slack`: prints what Nod needs to know, then does what each
line of its input asks and prints what came of it, all as JSON. Times are readings of the clock
that all processes of the machine share.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

from tests.bench.stands import ASK, PEOPLE, SEND, STANDS, WAIT, WORK, Said, Stand

__all__ = ["Platform", "platform"]

#: Seconds something may take, and a sign.
PATIENCE, SIGN = 120.0, 10.0
#: The first so many people ask; the last so many put Nod to work.
ASKING, WORKING = 20, 200


class Platform:
    """The other process, as the bench sees it."""

    def __init__(self, process: asyncio.subprocess.Process, told: dict[str, Any]) -> None:
        self._process = process
        #: The environment in which Nod finds it, and the ids of its people.
        self.environ: dict[str, str] = told["environ"]
        self.people: list[str] = told["people"]

    async def asked(self, what: str, times: int = 0) -> Any:
        """Let it do one of its works, and return what came of it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([what, times]).encode() + b"\n")
        async with asyncio.timeout(2 * PATIENCE):
            return json.loads(await self._process.stdout.readline())


@asynccontextmanager
async def platform(name: str) -> AsyncIterator[Platform]:
    """Run one: slack, telegram or discord."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.bench.platform",
        name,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=10_000_000,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        async with asyncio.timeout(30):
            told = json.loads(await process.stdout.readline())
        yield Platform(process, told)
    finally:
        process.stdin.close()
        await process.wait()


async def _event(stand: Stand, person: int) -> dict[str, Any]:
    """Say something and wait for what follows: acknowledgement, first sign, answer."""
    began = perf_counter()
    said = await stand.say(person, ASK)
    acked, signed = await asyncio.gather(stand.acked(said), _signed(stand, said))
    await stand.until(lambda: stand.answered(said), PATIENCE)
    return {"event": said.event, "began": began, "acked": acked, "signed": signed}


async def _signed(stand: Stand, said: Said) -> float:
    with contextlib.suppress(TimeoutError):  # a sign that does not come is a slow one
        await stand.until(lambda: stand.signed(said), SIGN)
    return perf_counter()


async def _connected(stand: Stand, times: int) -> bool:
    await stand.connected()
    return True


async def _events(stand: Stand, times: int) -> list[dict[str, Any]]:
    return [await _event(stand, number % ASKING) for number in range(times)]


async def _work(stand: Stand, times: int) -> int:
    """Put Nod to work in that many threads, for good."""
    return len([await stand.say(PEOPLE - WORKING + number, WORK) for number in range(times)])


async def _burst(stand: Stand, times: int) -> dict[str, Any]:
    """Say something in that many threads at once; the answers come all at once, too."""
    began = perf_counter()
    said = [await stand.say(number, WAIT) for number in range(times)]
    acked = await asyncio.gather(*(stand.acked(each) for each in said))
    await stand.until(lambda: any(map(stand.answered, said)), PATIENCE)
    first = perf_counter()
    await stand.until(lambda: all(map(stand.answered, said)), PATIENCE)
    events = [each.event for each in said]
    return {
        "events": events,
        "began": began,
        "acked": max(acked),
        "first": first,
        "last": perf_counter(),
    }


async def _presses(stand: Stand, times: int) -> list[float]:
    """Ask for what needs a nod, and give it; returns when each button was pressed."""
    return [await _press(stand, number % ASKING) for number in range(times)]


async def _press(stand: Stand, person: int) -> float:
    said = await stand.say(person, SEND)
    await stand.until(lambda: stand.card(said), PATIENCE)
    pressed = perf_counter()
    await stand.press(said, stand.card(said))
    await stand.until(lambda: stand.answered(said), PATIENCE)
    return pressed


_WORKS = {
    "connected": _connected,
    "events": _events,
    "work": _work,
    "burst": _burst,
    "presses": _presses,
}


async def _serve(name: str) -> None:
    async with STANDS[name]() as stand:
        print(json.dumps({"environ": stand.environ, "people": stand.people}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            what, times = json.loads(line)
            print(json.dumps(await _WORKS[what](stand, times)), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
