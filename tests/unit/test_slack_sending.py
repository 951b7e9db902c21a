"""What goes out to Slack: whole, once, in order, at Slack's pace, whatever breaks in between."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot.surfaces.base import Message, SurfaceError
from bot.surfaces.slack import SlackSurface
from engine.store.base import Store
from tests.fakes.slack_state import Post
from tests.unit.slack_desk import Desk, config_for, desk

GENERAL = "slack:T1/CGEN"
LONG = "\n\n".join(f"## Part {n}\n\n" + "word " * 900 for n in range(6))


@pytest.fixture
async def at(tmp_path: Path, sqlite_store: Store) -> AsyncIterator[Desk]:
    async with desk(tmp_path, sqlite_store) as made:
        yield made


def nods(at: Desk, channel: str = "CGEN") -> list[Post]:
    return at.fake.teams["T1"].channels[channel].of_nod


def shown(post: Post) -> str:
    return "\n".join(_texts(post.blocks)) or post.text


def _texts(blocks: list[Any]) -> list[str]:
    found = []
    for block in blocks:
        text = block.get("text")
        found += [text["text"] if isinstance(text, dict) else text] if text else []
        found += [
            each["text"] for each in block.get("elements", ()) if isinstance(each.get("text"), str)
        ]
    return found


async def again(at: Desk) -> SlackSurface:
    """Return a second surface on the same Slack, as the next process has it."""
    other = SlackSurface(config_for(at.fake), at.told.ground)
    await other.start(at.take)
    return other


# -- where it goes


async def test_every_call_of_a_thread_carries_the_thread(at: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    root = await at.fake.say("@nod hi", kinds=("message",))
    target = f"{GENERAL}/{root.ts}"
    ref = await at.surface.post(target, Message(text=LONG), "answer:s/1/1")
    await at.surface.edit(ref, Message(text=LONG + "\n\nmore " * 2_000))
    await at.surface.upload(target, [tmp_path / "a.txt"], Message(text="file"), "act:c/1")
    await at.surface.typing(target)
    assert {post.thread for post in nods(at)} == {root.ts}
    assert {each["thread_ts"] for each in at.fake.called("chat.postMessage")} == {root.ts}
    assert {ts for _, ts, _ in at.fake.statuses} == {root.ts}


async def test_a_person_is_resolved_to_their_dm_and_its_thread_is_kept(at: Desk) -> None:
    line = await at.fake.direct_say("hello")
    await at.surface.post("slack:T1/UANA", Message(text="root"), "event:s/1")
    await at.surface.post(f"slack:T1/UANA/{line.ts}", Message(text="inside"), "event:s/2")
    root, inside = nods(at, "DANA")
    assert (root.thread, inside.thread) == ("", line.ts)
    await at.surface.post("slack:T1/UBEN", Message(text="root"), "event:s/3")
    await at.surface.post("slack:T1/UBEN", Message(text="root"), "event:s/4")
    assert at.fake.called("conversations.open") == [{"users": "UBEN"}], "asked once"


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("slack:T1/CNONE", "channel_not_found"),
        ("slack:T1/UNOBODY", "user_not_found"),
        ("slack:T9/CGEN", "not installed"),
        ("slack:T1", "no place on Slack"),
        ("slack:T1/CGEN/1.0/2", "no place on Slack"),
        ("slack:T1/CGEN/99.000001", "thread_not_found"),
        ("nothing", "no thread target"),
    ],
)
async def test_a_place_that_is_not_there_is_said_and_nothing_was_posted(
    at: Desk, target: str, told: str
) -> None:
    with pytest.raises(SurfaceError, match=told) as raised:
        await at.surface.post(target, Message(text="x"), "act:c/1")
    assert raised.value.certain
    assert raised.value.retry_after is None


# -- how it looks


MARKDOWN = """# Title

**bold**, [docs](https://example.org), ~~old~~, 1 * x * 2, <!channel> and <@UBEN>

| a | b |
|---|---|
| 1 | 2 |

```python
**not bold** [x](https://y)
```
"""


async def test_markdown_is_shown_in_blocks_and_pings_nobody(at: Desk) -> None:
    """The fake refuses what pings, and what it cannot parse."""
    await at.surface.post(GENERAL, Message(text=MARKDOWN, footer="model · 3 steps"), "answer:s/1/1")
    (post,) = nods(at)
    assert "model · 3 steps" in shown(post)
    assert "**not bold** [x](https://y)" in shown(post)
    kinds = [block["type"] for block in post.blocks]
    assert "table" in kinds and kinds[-1] == "context"
    assert "*bold*" in post.text and "<https://example.org|docs>" in post.text


@pytest.mark.parametrize("error", ["invalid_blocks", "msg_blocks_too_long"])
async def test_refused_blocks_are_sent_plainer_and_all_of_the_text_arrives(
    at: Desk, error: str
) -> None:
    at.fake.fail("chat.postMessage", error, times=2)
    await at.surface.post(GENERAL, Message(text=LONG, footer="the end"), "answer:s/1/1")
    assert all(post.blocks == [] for post in nods(at)), "sections were refused too"
    everything = " ".join(post.text for post in nods(at))
    assert everything.count("word") == 6 * 900
    assert everything.rstrip().endswith("the end")
    assert all(len(post.text) <= 4_000 for post in nods(at))


async def test_an_update_that_is_refused_falls_back_as_well(at: Desk) -> None:
    ref = await at.surface.post(GENERAL, Message(text="one"), "answer:s/1/1")
    at.fake.fail("chat.update", "invalid_blocks")
    await at.surface.edit(ref, Message(text="two"))
    (post,) = nods(at)
    assert post.text == "two"
    assert post.blocks[0]["type"] == "section"


async def test_plain_text_above_4000_characters_is_split(at: Desk) -> None:
    at.fake.fail("chat.postMessage", "invalid_blocks", times=2)
    await at.surface.post(GENERAL, Message(text="x" * 4_500), "answer:s/1/1")
    assert sum(post.text.count("x") for post in nods(at)) == 4_500


async def test_an_empty_message_is_an_error_and_no_post(at: Desk) -> None:
    with pytest.raises(SurfaceError):
        await at.surface.post(GENERAL, Message(text=""), "answer:s/1/1")
    assert nods(at) == []


# -- long messages


async def test_a_long_message_is_several_posts_in_order_under_one_ref(at: Desk) -> None:
    ref = await at.surface.post(GENERAL, Message(text=LONG, footer="end"), "answer:s/1/1")
    posts = nods(at)
    assert len(posts) > 1
    assert ref == f"T1/CGEN/{posts[0].ts}"
    assert "Part 0" in shown(posts[0]) and "Part 5" in shown(posts[-1])
    assert [("end" in shown(post)) for post in posts] == [False] * (len(posts) - 1) + [True]


async def test_an_edit_grows_and_shrinks_the_posts_also_after_a_restart(at: Desk) -> None:
    ref = await at.surface.post(GENERAL, Message(text="short"), "answer:s/1/1")
    await at.surface.edit(ref, Message(text=LONG))
    many = len(nods(at))
    assert many > 1
    other = await again(at)
    await other.edit(ref, Message(text=LONG + "\n\nlast"))
    assert "last" in shown(nods(at)[-1])
    await other.edit(ref, Message(text="short again"))
    (post,) = nods(at)
    assert shown(post) == "short again"
    assert await other.find(GENERAL, "answer:s/1/1") == ref
    await other.stop()


async def test_posts_that_look_the_same_are_not_changed_again(at: Desk) -> None:
    ref = await at.surface.post(GENERAL, Message(text=LONG), "answer:s/1/1")
    await at.surface.edit(ref, Message(text=LONG + " more"))
    assert len(at.fake.called("chat.update")) == 1


async def test_a_long_message_cut_off_in_between_is_in_doubt_and_healed_by_an_edit(
    at: Desk,
) -> None:
    at.fake.fail("chat.postMessage", "fatal_error")
    first = Message(text=LONG)
    with pytest.raises(SurfaceError) as raised:
        await at.surface.post(GENERAL, first, "answer:s/1/1")
    assert not raised.value.certain, "Slack's own trouble tells nothing"
    await at.surface.post(GENERAL, Message(text="x"), "answer:s/1/0")
    before = len(nods(at))
    calls = len(at.fake.called("chat.postMessage"))
    task = asyncio.ensure_future(at.surface.post(GENERAL, first, "answer:s/1/2"))
    await at.fake.until(lambda: len(at.fake.called("chat.postMessage")) > calls)
    at.fake.fail("chat.postMessage", "channel_not_found")
    with pytest.raises(SurfaceError) as raised:
        await task
    assert not raised.value.certain
    assert len(nods(at)) == before + 1
    ref = await at.surface.find(GENERAL, "answer:s/1/2")
    assert ref is not None
    await at.surface.edit(ref, first)
    assert "Part 5" in shown(nods(at)[-1])


# -- once


async def test_a_post_whose_answer_was_lost_is_in_doubt_and_found(at: Desk) -> None:
    at.fake.fail("chat.postMessage", after=True)
    with pytest.raises(SurfaceError) as raised:
        await at.surface.post(GENERAL, Message(text="once"), "act:c1/1")
    assert not raised.value.certain
    (post,) = nods(at)
    other = await again(at)
    assert await other.find(GENERAL, "act:c1/1") == f"T1/CGEN/{post.ts}"
    assert await other.find(GENERAL, "act:c2/1") is None
    assert len(at.fake.called("chat.postMessage")) == 1, "never sent twice by itself"
    await other.stop()


async def test_a_post_that_never_left_was_surely_not_made(at: Desk) -> None:
    team = next(iter(at.surface._teams))
    team.client.base_url = "http://127.0.0.1:9/api/"
    with pytest.raises(SurfaceError, match="could not be reached") as raised:
        await at.surface.post(GENERAL, Message(text="x"), "act:c1/1")
    assert raised.value.certain
    assert raised.value.retry_after


async def test_what_was_posted_is_found_behind_many_pages(at: Desk) -> None:
    ref = await at.surface.post(GENERAL, Message(text="old"), "act:c1/1")
    for n in range(9):
        await at.surface.post(GENERAL, Message(text=str(n)), f"event:s/{n}")
    at.fake.page = 2
    assert await at.surface.find(GENERAL, "act:c1/1") == ref


async def test_a_look_through_too_much_says_that_it_cannot_tell(at: Desk) -> None:
    for n in range(12):
        await at.surface.post(GENERAL, Message(text=str(n)), f"event:s/{n}")
    at.fake.page = 1
    with pytest.raises(SurfaceError, match="too much"):
        await at.surface.find(GENERAL, "act:none/1")


# -- Slack's pace


@pytest.mark.parametrize("status", [200, 429])
async def test_a_post_waits_as_long_as_slack_says_and_then_arrives(at: Desk, status: int) -> None:
    at.fake.fail("chat.postMessage", "ratelimited", status=status, retry_after="1")
    began = asyncio.get_running_loop().time()
    await at.surface.post(GENERAL, Message(text="x"), "act:c1/1")
    assert asyncio.get_running_loop().time() - began >= 1
    assert len(nods(at)) == 1


async def test_a_longer_wait_is_left_to_the_caller_and_others_do_not_ask_meanwhile(
    at: Desk,
) -> None:
    at.fake.fail("chat.postMessage", "ratelimited", status=429, retry_after="60")
    for n in range(3):
        with pytest.raises(SurfaceError) as raised:
            await at.surface.post(GENERAL, Message(text="x"), f"act:c{n}/1")
        assert raised.value.certain
        assert 50 < (raised.value.retry_after or 0) <= 60
    assert nods(at) == []
    assert at.fake.called("chat.postMessage") == [], "the one that was refused came to nothing"


async def test_edits_that_wait_are_merged_and_the_last_one_is_shown(at: Desk) -> None:
    ref = await at.surface.post(GENERAL, Message(text="0"), "answer:s/1/1")
    at.fake.fail("chat.update", "ratelimited", retry_after="1")
    edits = [at.surface.edit(ref, Message(text=str(n))) for n in range(1, 20)]
    await asyncio.gather(*edits)
    (post,) = nods(at)
    assert shown(post) == "19"
    assert post.edits <= 2


async def test_a_lost_edit_is_an_error_and_never_silent(at: Desk) -> None:
    ref = await at.surface.post(GENERAL, Message(text="0"), "answer:s/1/1")
    at.fake.fail("chat.update", "message_not_found")
    with pytest.raises(SurfaceError, match="message_not_found"):
        await at.surface.edit(ref, Message(text="1"))
    await at.surface.edit(ref, Message(text="1"))
    assert shown(nods(at)[0]) == "1", "what failed is not taken for shown"


async def test_posts_of_a_channel_keep_their_order_and_cards_go_first(at: Desk) -> None:
    from bot.cards import Card, Row

    card = Card(id="c", title="May I?", rows=(Row(prompt="p", title="x", decided="No"),))
    at.fake.fail("chat.postMessage", "ratelimited", retry_after="1")
    posts = [at.surface.post(GENERAL, Message(text=str(n)), f"event:s/{n}") for n in range(4)]
    posts.append(at.surface.post(GENERAL, Message(card=card), "prompt:p"))
    await asyncio.gather(*posts)
    order = [shown(post).split("\n")[0] for post in nods(at)]
    assert order == ["0", "*May I?*", "1", "2", "3"]


async def test_a_slow_channel_holds_no_other_back(at: Desk) -> None:
    lane = at.surface._sender._lane
    from bot.surfaces.slack_places import Spot

    async with lane(Spot(team="T1", channel="CGEN", ts="?")).turn(0):
        await at.surface.post("slack:T1/CSTAND", Message(text="x"), "event:s/1")
    assert len(nods(at, "CSTAND")) == 1


async def test_who_gives_up_waiting_leaves_the_lane_to_the_next(at: Desk) -> None:
    from bot.surfaces.slack_places import Spot

    lane = at.surface._sender._lane(Spot(team="T1", channel="CGEN", ts="?"))
    async with lane.turn(0):
        waiting = [
            asyncio.ensure_future(at.surface.post(GENERAL, Message(text=str(n)), f"event:s/{n}"))
            for n in range(2)
        ]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting[0].cancel()
    await asyncio.wait(waiting)
    assert waiting[0].cancelled()
    assert [shown(post) for post in nods(at)] == ["1"]


# -- files


async def test_files_are_one_message_with_a_caption(at: Desk, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.md", "b.csv")]
    for file in files:
        file.write_text("content of " + file.name)
    message = Message(text="**Both** files", footer="small")
    ref = await at.surface.upload(GENERAL, files, message, "act:c1/1")
    (post,) = nods(at)
    assert ref == f"T1/CGEN/{post.ts}"
    assert [each["name"] for each in post.files] == ["a.md", "b.csv"]
    assert shown(post) == "*Both* files\nsmall"
    assert at.fake.files[post.files[0]["id"]].content == b"content of a.md"
    other = await again(at)
    assert await other.find(GENERAL, "act:c1/1") == ref
    await other.stop()


async def test_an_upload_whose_message_comes_late_is_waited_for(at: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("x")
    at.fake.share_delay = 0.3
    ref = await at.surface.upload(GENERAL, [tmp_path / "a.md"], Message(), "act:c1/1")
    assert ref == f"T1/CGEN/{nods(at)[0].ts}"


async def test_an_upload_whose_answer_was_lost_is_in_doubt_and_found(
    at: Desk, tmp_path: Path
) -> None:
    (tmp_path / "a.md").write_text("x")
    at.fake.fail("files.completeUploadExternal", after=True)
    with pytest.raises(SurfaceError) as raised:
        await at.surface.upload(GENERAL, [tmp_path / "a.md"], Message(text="x"), "act:c1/1")
    assert not raised.value.certain
    await at.fake.until(lambda: nods(at))
    assert await at.surface.find(GENERAL, "act:c1/1") == f"T1/CGEN/{nods(at)[0].ts}"


async def test_a_failed_upload_is_said_and_nothing_is_shown(at: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("x")
    (tmp_path / "empty").write_text("")
    at.fake.teams["T1"].scopes.discard("files:write")
    with pytest.raises(SurfaceError, match=r"missing_scope: files:write.*nod slack"):
        await at.surface.upload(GENERAL, [tmp_path / "a.md"], Message(text="x"), "act:c1/1")
    with pytest.raises(SurfaceError, match="empty"):
        await at.surface.upload(GENERAL, [tmp_path / "empty"], Message(text="x"), "act:c1/1")
    assert nods(at) == []
    await at.surface.post(GENERAL, Message(text="text still arrives"), "answer:s/1/1")


async def test_the_token_is_in_no_log_and_no_error(
    tmp_path: Path, sqlite_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with desk(tmp_path, sqlite_store) as at:
        await at.fake.say("@nod hi")
        at.fake.fail("chat.postMessage", "channel_not_found")
        with pytest.raises(SurfaceError) as failed:
            await at.surface.post(GENERAL, Message(text="x"), "event:s/1")
        at.fake.fail("chat.postMessage", status=502, error="x")
        with pytest.raises(SurfaceError) as broken:
            await at.surface.post(GENERAL, Message(text="x"), "event:s/2")
        held = repr(config_for(at.fake)) + repr(list(at.surface._teams))
    shown = caplog.text + repr(failed.value) + repr(broken.value) + held
    assert "xoxb-" not in shown
    assert "xapp-" not in shown


# -- anything


async def test_no_text_is_refused_or_lost(at: Desk) -> None:
    """Random Markdown, growing by edits; the fake is strict."""
    dice = random.Random(7)
    signs = [
        "*",
        "_",
        "`",
        "```\n",
        "\n\n",
        "| a | b |\n|---|---|\n| 1 | 2 |\n",
        "# ",
        "<!here>",
        "word ",
        "&lt;",
        "👩‍💻",
        "- x\n",
        "> q\n",
        "[a](b",
        "~~",
        "x" * 500,
    ]
    for n in range(12):
        text = "".join(dice.choice(signs) for _ in range(dice.randrange(5, 200))) + " end"
        ref = await at.surface.post(GENERAL, Message(text=text, growing=True), f"answer:s/{n}/1")
        await at.surface.edit(ref, Message(text=text * 3))
