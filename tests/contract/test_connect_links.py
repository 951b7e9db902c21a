"""Links on both stores: for one use, for ten minutes, for the browser that began."""

from __future__ import annotations

import asyncio

import pytest

from bot.connect.links import LINK, ConnectError, Links
from engine.store.base import Store


class Clock:
    """A time that tests move."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def links(store: Store, clock: Clock) -> Links:
    return Links(store, clock, "local")


async def test_a_link_names_what_it_is_for_until_it_ends(links: Links, clock: Clock) -> None:
    token = await links.add("github", "ana", "slack:T1/C1/1.1")
    row = await links.live(token)
    assert (row["connector"], row["principal_id"], row["place"]) == (
        "github",
        "ana",
        "slack:T1/C1/1.1",
    )
    assert token not in str(dict(row))
    with pytest.raises(ConnectError):
        await links.live(token[:-1] + "x")
    clock.now += LINK
    with pytest.raises(ConnectError):
        await links.live(token)
    with pytest.raises(ConnectError):
        await links.begin(row, "state")
    with pytest.raises(ConnectError):
        await links.use(row)


async def test_of_many_uses_at_once_one_counts(links: Links) -> None:
    row = await links.live(await links.add("github", "ana", "console:main"))
    done = await asyncio.gather(*(links.use(row) for _ in range(8)), return_exceptions=True)
    assert sorted(type(each).__name__ for each in done) == ["ConnectError"] * 7 + ["NoneType"]
    await links.reopen(row)
    await links.use(row)


async def test_what_comes_back_belongs_to_the_last_beginning_and_its_browser(links: Links) -> None:
    token = await links.add("github", "ana", "console:main")
    first = await links.begin(await links.live(token), "state-1")
    second = await links.begin(await links.live(token), "state-2")
    for state, cookie in (("state-1", first), ("state-2", first), ("state-3", second), ("", "")):
        with pytest.raises(ConnectError):
            await links.of_state(state, cookie)
    assert (await links.of_state("state-2", second))["principal_id"] == "ana"


async def test_beginning_gives_ten_minutes_more(links: Links, clock: Clock) -> None:
    token = await links.add("github", "ana", "console:main")
    clock.now += LINK - 1
    row = await links.live(token)
    cookie = await links.begin(row, "state")
    clock.now += LINK - 1
    await links.use(await links.of_state("state", cookie))


async def test_what_is_long_over_is_swept(links: Links, clock: Clock) -> None:
    assert not await links.sweep()
    token = await links.add("github", "ana", "console:main")
    assert await links.sweep()
    clock.now += LINK
    assert not await links.sweep()
    clock.now -= LINK
    await links.live(token)  # it was kept, for whoever asks what became of it
    clock.now += 25 * 3600.0 + LINK
    await links.sweep()
    clock.now -= 25 * 3600.0 + LINK
    with pytest.raises(ConnectError):
        await links.live(token)
