"""Several Discord servers at once: each its own threads, people, roles and permissions."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.surfaces.base import Message, SurfaceError
from bot.surfaces.config import Owned
from engine.store.base import Store
from tests.fakes.discord import GUILD, FakeDiscord, discord
from tests.unit.discord_desk import at_work


def two_servers(fake: FakeDiscord) -> tuple[str, str]:
    """Make a second server with a channel; return both ids."""
    quay = fake.guild("The Quay")
    return quay, fake.channel("cranes", guild=quay)


async def test_a_mention_stands_in_the_server_it_was_written_in(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with discord() as fake:
        quay, cranes = two_servers(fake)
        async with at_work(sqlite_store, tmp_path, fake=fake) as desk:
            first = await fake.say(fake.general, desk.ana, f"{desk.mention} here")
            second = await fake.say(cranes, desk.ana, f"{desk.mention} and there")
            await desk.got(2)
            assert {each.target for each in desk.taken} == {
                f"discord:{GUILD}/{fake.general}/{first['id']}",
                f"discord:{quay}/{cranes}/{second['id']}",
            }
            ref = await desk.surface.post(desk.taken[-1].target, Message(text="Yes."), "answer:s")
            assert ref.startswith(second["id"]) and fake.shown(second["id"]) == ["Yes."]
            assert fake.shown(first["id"]) == []


async def test_a_server_that_nod_joins_later_is_served_at_once(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        quay, cranes = two_servers(desk.fake)
        await desk.fake.invite(quay)
        await desk.fake.say(cranes, desk.ana, f"{desk.mention} hello")
        assert (await desk.first()).target.startswith(f"discord:{quay}/{cranes}/")


async def test_the_role_that_stands_for_nod_is_the_servers_own(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with discord() as fake:
        quay, cranes = two_servers(fake)
        role = fake.guilds[quay]["role"]
        async with at_work(sqlite_store, tmp_path, fake=fake) as desk:
            await fake.say(fake.general, desk.ana, f"<@&{role}> is somebody else here")
            await fake.say(cranes, desk.ana, f"<@&{role}> come")
            event = await desk.first()
            assert event.target.startswith(f"discord:{quay}/")
            await desk.settled()
            assert [each for each in desk.taken if GUILD in each.target] == []


async def test_what_was_missed_is_read_from_the_threads_of_every_server(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with discord() as fake:
        _, cranes = two_servers(fake)
        async with at_work(sqlite_store, tmp_path, fake=fake) as desk:
            for channel in (fake.general, cranes):
                said = await fake.say(channel, desk.ana, f"{desk.mention} begin")
                await fake.branch(said, "thread")
            await desk.got(2)
            threads = {each.target for each in desk.taken}
            desk.house.owned += [Owned(target=each, session="s", last_at=0.0) for each in threads]
            desk.taken.clear()
            await fake.drop(forget=True)
            for target in threads:
                await fake.say(target.rpartition("/")[2], desk.ana, "are you there?")
            missed = [each for each in await desk.got(4) if each.text == "are you there?"]
            assert {each.target for each in missed} == threads


@pytest.mark.parametrize(
    ("kind", "told"),
    [("hidden", "its role needs View Channel"), ("silent", "Give Nod's role the permissions")],
)
async def test_a_channel_without_permission_is_told_with_what_to_do_and_others_go_on(
    sqlite_store: Store, tmp_path: Path, kind: str, told: str
) -> None:
    async with discord() as fake:
        quay, cranes = two_servers(fake)
        getattr(fake, kind).add(cranes)
        async with at_work(sqlite_store, tmp_path, fake=fake) as desk:
            with pytest.raises(SurfaceError) as failed:
                await desk.surface.post(f"discord:{quay}/{cranes}", Message(text="x"), "act:c/1")
            assert told in failed.value.fix and failed.value.certain
            assert failed.value.retry_after is None
            await desk.surface.post(desk.channel, Message(text="here"), "act:c/2")
            assert fake.shown(fake.general) == ["here"]


async def test_nothing_is_heard_from_a_channel_nod_may_not_see(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with discord() as fake:
        _, cranes = two_servers(fake)
        fake.hidden.add(cranes)
        async with at_work(sqlite_store, tmp_path, fake=fake) as desk:
            await fake.say(cranes, desk.ana, f"{desk.mention} can you see me?")
            await desk.settled()
            assert desk.taken == []
