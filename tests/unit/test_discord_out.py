"""What goes out to Discord: posts in parts, edits, files, threads; and what is read back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.surfaces.base import Message, SurfaceError
from bot.surfaces.pacing import PATIENCE
from engine.store.base import Store
from tests.fakes import discord_rules
from tests.unit.discord_desk import Desk, at_work


@pytest.fixture
async def desk(sqlite_store: Store, tmp_path: Path) -> AsyncIterator[Desk]:
    async with at_work(sqlite_store, tmp_path) as made:
        yield made
        assert all(each.startswith(("10003", "160004")) for each in made.fake.refused)


async def thread(desk: Desk) -> tuple[str, str]:
    """Mention Nod; return the target, and the id of the thread that is not there yet."""
    said = await desk.fake.say(desk.fake.general, desk.ana, f"{desk.mention} plan\nthe trip")
    return (await desk.first()).target, said["id"]


# -- threads


async def test_the_first_sign_opens_the_thread_at_the_mention(desk: Desk) -> None:
    target, opened = await thread(desk)
    await desk.surface.typing(target)
    assert desk.fake.typed == [opened]
    assert desk.fake.channels[opened]["name"] == "plan"
    await desk.surface.post(target, Message(text="Where to?"), "answer:s/1/1")
    assert desk.fake.shown(opened) == ["Where to?"]
    assert desk.fake.shown(desk.fake.general) == []


async def test_a_thread_opened_in_another_life_gets_its_name_from_its_message(desk: Desk) -> None:
    said = await desk.fake.say(desk.fake.general, desk.ana, "no mention, but a session reports")
    await desk.surface.post(f"{desk.channel}/{said['id']}", Message(text="x"), "event:s/1")
    assert desk.fake.channels[said["id"]]["name"] == "no mention, but a session reports"


async def test_posts_at_once_open_one_thread(desk: Desk) -> None:
    target, opened = await thread(desk)
    posts = (desk.surface.post(target, Message(text=str(n)), f"event:s/{n}") for n in range(3))
    await asyncio.gather(desk.surface.typing(target), *posts)
    assert sorted(desk.fake.shown(opened)) == ["0", "1", "2"]


async def test_without_the_right_to_open_threads_it_says_so_in_the_channel(desk: Desk) -> None:
    target, _ = await thread(desk)
    denied = {"message": "Missing Permissions", "code": 50013}
    desk.fake.fail("POST", "/threads", 403, denied, times=2)
    for _ in range(2):
        with pytest.raises(SurfaceError, match="nod discord") as failed:
            await desk.surface.post(target, Message(text="x"), "event:s/1")
    assert (failed.value.certain, failed.value.retry_after) == (True, None)
    (told,) = desk.fake.shown(desk.fake.general)
    assert "Create Public Threads" in told


# -- texts

LENGTHS = [
    ("1999", "a" * 1999, 1),
    ("2000", "a" * 2000, 1),
    ("2001", "a" * 2001, 2),
    ("emoji", "👩‍💻" * 1000, 3),
    ("cjk", "船" * 2500, 2),
    ("fence", "```python\n" + "print('x')\n" * 400 + "```", 3),
]


@pytest.mark.parametrize(("text", "parts"), [e[1:] for e in LENGTHS], ids=[e[0] for e in LENGTHS])
async def test_a_text_of_any_length_arrives_whole_in_order(
    desk: Desk, text: str, parts: int
) -> None:
    await desk.surface.post(desk.channel, Message(text=text), "answer:s/1/1")
    shown = desk.fake.shown(desk.fake.general)
    assert len(shown) == parts
    bare = "".join(shown).replace("```python", "").replace("```", "").replace("\n", "")
    assert bare == text.replace("```python", "").replace("```", "").replace("\n", "")


async def test_nothing_a_model_writes_pings_or_unfurls_in_posts_edits_or_files(
    desk: Desk, tmp_path: Path
) -> None:
    text = "@everyone @here <@&5> <@7> <#9> https://example.org/x [y](https://example.org/y)"
    ref = await desk.surface.post(desk.channel, Message(text=text, footer=text), "answer:s/1/1")
    await desk.surface.edit(ref, Message(text=text + "!", growing=True))
    (tmp_path / "a.txt").write_text("a")
    await desk.surface.upload(desk.channel, [tmp_path / "a.txt"], Message(text=text), "act:c/1")
    raw = " ".join(each["content"] for each in desk.fake.of(desk.fake.general))
    assert "@everyone" not in raw and "<@7>" not in raw  # and the fake says that nobody was told
    bodies = [body for _, path, body in desk.fake.done if "/messages" in path]
    quiet = {"parse": [], "replied_user": False}
    assert [each["allowed_mentions"] for each in bodies] == [quiet] * 3


async def test_a_footer_is_one_small_line_below(desk: Desk) -> None:
    message = Message(text="Done.", footer="practice · 3 steps\ns1")
    await desk.surface.post(desk.channel, message, "answer:s/1/1")
    assert desk.fake.shown(desk.fake.general) == ["Done.\n-# practice · 3 steps s1"]


async def test_a_message_of_nothing_is_not_sent(desk: Desk) -> None:
    with pytest.raises(SurfaceError, match="nothing to be seen"):
        await desk.surface.post(desk.channel, Message(text=" \u200b"), "event:s/1")
    assert ("POST", f"/channels/{desk.fake.general}/messages") not in desk.fake.requests


# -- edits


async def test_a_growing_answer_rolls_over_and_shrinks_again(desk: Desk) -> None:
    ref = await desk.surface.post(desk.channel, Message(text="a", growing=True), "answer:s/1/1")
    for length in (1500, 3500, 6500, 2500, 10):
        await desk.surface.edit(ref, Message(text="a" * length, growing=length != 10))
        shown = desk.fake.shown(desk.fake.general)
        assert "".join(shown) == "a" * length
        assert all(len(each) <= 2000 for each in shown)


async def test_an_edit_changes_only_the_messages_that_differ(desk: Desk) -> None:
    long = "a" * 2000 + "\n\n"
    ref = await desk.surface.post(desk.channel, Message(text=long + "b"), "answer:s/1/1")
    desk.fake.requests.clear()
    await desk.surface.edit(ref, Message(text=long + "c"))
    await desk.surface.edit(ref, Message(text=long + "c"))
    assert [method for method, _ in desk.fake.requests] == ["PATCH"]


async def test_after_a_restart_an_edit_finds_the_other_messages_again(
    sqlite_store: Store, tmp_path: Path, desk: Desk
) -> None:
    ref = await desk.surface.post(desk.channel, Message(text="a"), "answer:s/1/1")
    await desk.surface.edit(ref, Message(text="a" * 4500, growing=True))
    async with at_work(sqlite_store, tmp_path, fake=desk.fake) as again:
        await again.surface.edit(ref, Message(text="b" * 4400))
    assert [len(each) for each in desk.fake.shown(desk.fake.general)] == [2000, 2000, 400]
    assert "".join(desk.fake.shown(desk.fake.general)) == "b" * 4400


async def test_an_edit_of_a_message_that_was_deleted_is_certain(desk: Desk) -> None:
    ref = await desk.surface.post(desk.channel, Message(text="a"), "answer:s/1/1")
    desk.fake.posts[desk.fake.general].clear()
    with pytest.raises(SurfaceError) as failed:
        await desk.surface.edit(ref, Message(text="b"))
    assert (failed.value.certain, failed.value.retry_after) == (True, None)
    desk.fake.refused.clear()


# -- files


async def test_files_go_out_with_their_caption(desk: Desk, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("briefing.md", "SPOILER_plot.png")]
    for path in paths:
        path.write_bytes(path.name.encode())
    ref = await desk.surface.upload(desk.channel, paths, Message(text="**Today**"), "act:c/1")
    (post,) = desk.fake.of(desk.fake.general)
    assert [each["filename"] for each in post["attachments"]] == [each.name for each in paths]
    assert post["content"] == "**Today**"
    assert [desk.fake.files[each["id"]] for each in post["attachments"]] == [
        b"briefing.md",
        b"SPOILER_plot.png",
    ]
    assert await desk.surface.find(desk.channel, "act:c/1") == ref


async def test_a_file_needs_no_caption_and_one_that_is_gone_is_told(
    desk: Desk, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("a")
    await desk.surface.upload(desk.channel, [tmp_path / "a.txt"], Message(), "act:c/1")
    with pytest.raises(SurfaceError, match="cannot be read"):
        await desk.surface.upload(desk.channel, [tmp_path / "b.txt"], Message(), "act:c/2")
    with pytest.raises(SurfaceError, match="10 files"):
        await desk.surface.upload(desk.channel, [tmp_path / "a.txt"] * 11, Message(), "act:c/3")


# -- once


async def test_the_same_delivery_is_posted_once_however_often_it_is_sent(
    sqlite_store: Store, tmp_path: Path, desk: Desk
) -> None:
    first = await desk.surface.post(desk.channel, Message(text="Good morning"), "act:c/1")
    async with at_work(sqlite_store, tmp_path, fake=desk.fake) as again:
        second = await again.surface.post(desk.channel, Message(text="Good morning"), "act:c/1")
    assert first == second
    assert desk.fake.shown(desk.fake.general) == ["Good morning"]


async def test_an_answer_that_was_lost_is_uncertain_and_found(desk: Desk) -> None:
    trouble = {"message": "trouble", "code": 0}
    desk.fake.fail("POST", "/messages", 503, trouble, after=True)
    with pytest.raises(SurfaceError) as failed:
        await desk.surface.post(desk.channel, Message(text="once"), "act:c/1")
    assert not failed.value.certain
    found = await desk.fake.until(lambda: desk.fake.of(desk.fake.general))
    async with asyncio.timeout(5):
        while (ref := await desk.surface.find(desk.channel, "act:c/1")) is None:
            await asyncio.sleep(0.01)
    assert ref == f"{desk.fake.general}/{found[0]['id']}"


async def test_it_never_says_surely_that_nothing_was_posted(desk: Desk) -> None:
    assert await desk.surface.find(desk.channel, "act:c/1") is None
    assert not desk.surface.capabilities.look_up


FAILURES = [
    ("limit", 429, {"retry_after": 40.0, "global": False}, {"Via": "x"}, True, 40.0),
    ("banned", 429, {"message": "slow"}, {"Retry-After": "120"}, True, 120.0),
    ("refused", 400, {"message": "no", "code": 50035}, {}, True, None),
    ("forbidden", 403, {"message": "no", "code": 50001}, {}, True, None),
    ("gateway", 503, {"message": "trouble", "code": 0}, {}, False, 5.0),
]


@pytest.mark.parametrize(
    ("status", "body", "headers", "certain", "after"),
    [f[1:] for f in FAILURES],
    ids=[f[0] for f in FAILURES],
)
async def test_a_failure_says_whether_it_may_be_there_and_when_to_try_again(
    desk: Desk, status: int, body: object, headers: dict[str, str], certain: bool, after: float
) -> None:
    desk.fake.fail("POST", "/messages", status, body, headers=headers)
    with pytest.raises(SurfaceError) as failed:
        await desk.surface.post(desk.channel, Message(text="x"), "event:s/1")
    assert failed.value.certain == certain
    told = failed.value.retry_after
    assert told == after if after is None or status != 429 else after - PATIENCE <= told <= after


async def test_a_short_wait_that_discord_asks_for_is_kept(desk: Desk) -> None:
    asked = {"retry_after": 0.2, "global": False, "message": "slow"}
    desk.fake.fail("POST", "/messages", 429, asked, headers={"Via": "x"})
    began = asyncio.get_running_loop().time()
    await desk.surface.post(desk.channel, Message(text="x"), "event:s/1")
    assert asyncio.get_running_loop().time() - began >= 0.2


TARGETS = ["discord:1", "discord:a/b", "discord:1/2/3/4", "slack:T1/C1", "discord:@me/1/2", "x"]


@pytest.mark.parametrize("target", TARGETS)
async def test_what_is_no_place_is_told(desk: Desk, target: str) -> None:
    with pytest.raises(SurfaceError):
        await desk.surface.post(target, Message(text="x"), "event:s/1")
    for ref in ("", "1", "a/b", "1/2/3"):
        with pytest.raises(SurfaceError):
            await desk.surface.edit(ref, Message(text="x"))


# -- back


async def test_history_tells_who_said_what_from_the_mention_on(desk: Desk) -> None:
    target, opened = await thread(desk)
    assert await desk.surface.history(target, 0.0) == []  # the thread is not there yet
    ref = await desk.surface.post(target, Message(text="Where to?"), "answer:s/1/1")
    words = f"<@{desk.ana['id']}> to sea"
    bob = await desk.fake.say(opened, desk.fake.user("bob"), words)
    lines = await desk.surface.history(target, 0.0)
    assert [(line.by, line.text) for line in lines] == [
        ("Ana", "@Nod plan\nthe trip"),
        ("", "Where to?"),
        ("Bob", "@Ana to sea"),
    ]
    assert [line.ref for line in lines] == [
        f"{desk.fake.general}/{opened}",
        ref,
        f"{opened}/{bob['id']}",
    ]
    assert [line.author for line in lines[:2]] == [desk.ana["id"], ""]


async def test_history_is_read_over_pages_and_from_a_moment_on(desk: Desk) -> None:
    place = desk.fake.direct(desk.ana)
    for number in range(230):
        desk.fake._message(place, desk.ana, str(number))
    lines = await desk.surface.history(f"discord:@me/{place}", 0.0)
    assert [line.text for line in lines] == [str(number) for number in range(230)]
    later = await desk.surface.history(f"discord:@me/{place}", lines[-1].at + 1.0)
    assert later == []


def test_the_fake_refuses_what_discord_refuses() -> None:
    """Each row of the rules, so that a test that passes on the fake means something."""
    button = {"type": 2, "style": 1, "label": "x", "custom_id": "a"}
    quiet = {"allowed_mentions": {"parse": []}}
    refused = [
        {"content": "x" * 2001},
        {"content": " "},
        {"content": "x", "nonce": "n" * 26},
        {"content": "x", "flags": 1 << 15},
        {"components": [{"type": 10, "content": "x"}]},
        {"flags": 1 << 15, "components": [{"type": 10, "content": "x" * 4001}]},
        {"flags": 1 << 15, "components": [{"type": 10, "content": "x"}] * 41},
        {"flags": 1 << 15, "components": [{"type": 1, "components": [button] * 2}]},
        {"flags": 1 << 15, "components": [{"type": 1, "components": []}]},
        {"flags": 1 << 15, "components": [{"type": 1, "components": [{**button, "label": ""}]}]},
        {"content": "x", "attachments": [{"id": 0}]},
    ]
    for body in refused:
        with pytest.raises(discord_rules.Refused):
            discord_rules.check_message({**body, **quiet})
    assert discord_rules.pinged({"content": "@everyone"}) == ["@everyone"]
    assert discord_rules.pinged({"content": "@everyone", **quiet}) == []
    assert discord_rules.unfurled({"content": "https://x.test"}) == ["https://x.test"]
