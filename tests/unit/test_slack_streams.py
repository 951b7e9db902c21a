"""Answers are streamed to Slack's threads within Slack's limits, whole whatever goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.surfaces import slack, slack_sending, slack_stream
from bot.surfaces.base import MORE, Message, SurfaceError, Task
from engine.store.base import Store
from tests.fakes.slack_state import Post
from tests.fakes.slack_streams import METHODS
from tests.unit.slack_desk import Desk, desk

ANSWER = "answer:s1/1/1"


@pytest.fixture
async def at(
    tmp_path: Path, sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Desk]:
    monkeypatch.setattr(slack_sending, "TEND", 0.02)
    async with desk(tmp_path, sqlite_store) as made:
        yield made


async def asked(at: Desk, user: str = "UANA") -> str:
    """Let somebody mention Nod; return the target of the thread."""
    root = await at.fake.say("@nod go", user=user)
    await at.fake.until(lambda: at.fake.statuses)
    return f"slack:T1/CGEN/{root.ts}"


def nods(at: Desk) -> list[Post]:
    return at.fake.teams["T1"].channels["CGEN"].of_nod


def growing(text: str) -> Message:
    return Message(text=text + MORE, growing=True)


async def test_an_answer_is_streamed_to_who_asked_and_the_whole_replaces_it(at: Desk) -> None:
    target = await asked(at)
    ref = await at.surface.post(target, growing("Hel"), ANSWER)
    await at.surface.edit(ref, growing("Hello **wor"))
    await at.surface.edit(ref, growing("Hello **world** and <!channel> al"))
    (post,) = nods(at)
    assert post.text.startswith("Hello **world** and ") and "<!channel>" not in post.text
    (begun,) = at.fake.called("chat.startStream")
    assert (begun["recipient_team_id"], begun["recipient_user_id"]) == ("T1", "UANA")
    assert not at.fake.called("chat.update"), "it grew by appends alone"
    await at.surface.edit(ref, Message(text="Hello **world** and all.", footer="small"))
    assert post.text == "Hello *world* and all."
    assert post.blocks[-1]["type"] == "context" and not post.streaming
    assert post.metadata["event_payload"] == {"delivery": ANSWER, "part": 1}
    assert nods(at) == [post]


@pytest.mark.parametrize("error", ["unknown_method", "missing_scope"])
async def test_a_workspace_that_takes_no_streams_gets_edits_and_is_asked_once(
    at: Desk, error: str
) -> None:
    at.fake.fail("chat.startStream", error)
    target = await asked(at)
    for number in (1, 2):
        ref = await at.surface.post(target, growing("Hello"), f"answer:s1/{number}/1")
        await at.surface.edit(ref, Message(text="Hello world"))
    assert [post.text for post in nods(at)] == ["Hello world"] * 2
    assert at.fake._failure("chat.startStream") is None, "it was tried"
    assert not at.fake.called("chat.startStream"), "and not again"


@pytest.mark.parametrize(
    "where",
    ["slack:T1/CGEN", "slack:T1/UANA", "thread nobody was heard in"],
)
async def test_where_slack_takes_no_stream_an_answer_grows_by_edits(at: Desk, where: str) -> None:
    """A stream is a reply, and names its reader."""
    root = at.fake.teams["T1"].channels["CGEN"].add(at.fake.tick(), user="UANA", text="hi")
    target = where if where.startswith("slack") else f"slack:T1/CGEN/{root.ts}"
    ref = await at.surface.post(target, growing("Hello"), ANSWER)
    await at.surface.edit(ref, growing("Hello wor"))
    await at.surface.edit(ref, Message(text="Hello world"))
    assert not at.fake.called("chat.startStream")
    assert at.fake.called("chat.update")


async def test_a_refused_append_goes_on_by_edits(at: Desk) -> None:
    target = await asked(at)
    ref = await at.surface.post(target, growing("one "), ANSWER)
    at.fake.fail("chat.appendStream", "internal_error")
    await at.surface.edit(ref, growing("one two "))
    await at.surface.edit(ref, growing("one two three "))
    (post,) = nods(at)
    assert "three" in post.text and not post.streaming
    await at.surface.edit(ref, Message(text="one two three four"))
    assert post.text == "one two three four"


async def test_a_text_that_was_changed_is_edited(at: Desk) -> None:
    target = await asked(at)
    ref = await at.surface.post(target, growing("one two "), ANSWER)
    await at.surface.edit(ref, growing("another text "))
    (post,) = nods(at)
    assert "another" in post.text and "two" not in post.text


async def test_before_its_limit_a_stream_goes_on_in_a_next_one(at: Desk) -> None:
    """The fake takes 12,000 characters a message, and 12,000 an append."""
    target = await asked(at)
    text = "".join(f"line {number} of a long answer\n" for number in range(1_500))
    ref = await at.surface.post(target, growing(text[:5_000]), ANSWER)
    for end in range(8_000, len(text) + 3_000, 3_000):
        await at.surface.edit(ref, growing(text[:end]))
    assert len(at.fake.called("chat.startStream")) == len(nods(at)) >= 3
    assert "".join(post.text for post in nods(at)) == text
    await at.surface.edit(ref, Message(text=text))
    assert [post.metadata["event_payload"]["part"] for post in nods(at)] == [
        *range(1, len(nods(at)) + 1)
    ]
    shown = "".join(block["text"] for post in nods(at) for block in post.blocks)
    assert shown.count("of a long answer") == 1_500


async def test_one_huge_piece_is_cut_into_appends_slack_takes(at: Desk) -> None:
    target = await asked(at)
    await at.surface.post(target, growing("word " * 7_000), ANSWER)
    assert "".join(post.text for post in nods(at)).count("word") == 7_000


async def test_no_fence_is_left_open_at_a_roll_over(at: Desk) -> None:
    target = await asked(at)
    code = "```python\n" + "print(1)\n" * 2_000
    await at.surface.post(target, growing(code), ANSWER)
    first, *_, last = nods(at)
    assert first.text.endswith("\n```")
    assert last.text.startswith("```\nprint(1)")


@pytest.mark.parametrize("limit", ["AGE", "QUIET"])
async def test_an_old_stream_is_ended_before_slack_does_it_and_goes_on_by_edits(
    at: Desk, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(slack_stream, limit, 0.0)
    target = await asked(at)
    ref = await at.surface.post(target, growing("one "), ANSWER)
    await at.surface.edit(ref, growing("one two "))
    (post,) = nods(at)
    assert post.text.startswith("one two ") and not post.streaming
    await at.surface.edit(ref, Message(text="one two three"))
    assert [post.text for post in nods(at)] == ["one two three"]


async def test_a_quiet_stream_is_ended_in_time_though_nothing_comes(
    at: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool runs for ten minutes; the fake breaks a stream after three without a word."""
    target = await asked(at)
    ref = await at.surface.post(target, growing("Let me look. "), ANSWER)
    (post,) = nods(at)
    await at.fake.until(lambda: at.fake.statuses)
    assert post.is_streaming(at.fake)
    monkeypatch.setattr(slack_stream, "QUIET", 0.0)
    await at.fake.until(lambda: not post.streaming and post.text.endswith("…"))
    at.fake.ahead = 600.0
    assert not post.is_broken(at.fake)
    await at.surface.edit(ref, growing("Let me look. Found "))
    await at.surface.edit(ref, Message(text="Let me look. Found it."))
    assert [each.text for each in nods(at)] == ["Let me look. Found it."]
    assert post.metadata["event_payload"] == {"delivery": ANSWER, "part": 1}
    assert len(at.fake.called("chat.startStream")) == 1


async def test_a_stop_of_nod_ends_its_streams_and_the_next_run_completes_them(
    at: Desk, tmp_path: Path, sqlite_store: Store
) -> None:
    targets = [await asked(at), await asked(at, "UBEN")]
    refs = [
        await at.surface.post(each, growing("half of "), f"answer:s{n}/1/1")
        for n, each in enumerate(targets)
    ]
    await at.surface.stop()
    assert [post.text for post in nods(at)] == ["half of  …"] * 2
    assert not any(post.streaming for post in nods(at))
    async with desk(tmp_path / "next", sqlite_store, at.fake) as after:
        await after.surface.edit(refs[0], Message(text="half of it, and the rest"))
    assert nods(at)[0].text == "half of it, and the rest"


async def test_a_stop_waits_for_no_slack_that_does_not_answer(
    at: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slack, "CLOSING", 0.05)
    await at.surface.post(await asked(at), growing("half of "), ANSWER)
    at.fake.mute.add("chat.stopStream")
    async with asyncio.timeout(3.0):
        await at.surface.stop()


async def test_no_status_is_left_behind_by_an_answer_that_was_edited(at: Desk) -> None:
    """Slack takes a status away after a post, and not after an edit."""
    target = await asked(at)
    assert at.fake.busy
    ref = await at.surface.post(target, growing("one "), ANSWER)
    assert not at.fake.busy
    await at.surface.typing(target)
    await at.surface.edit(ref, growing("one two "))
    assert at.fake.busy, "it is still at work"
    await at.surface.edit(ref, Message(text="one two three"))
    assert not at.fake.busy
    cleared = [each for each in at.fake.called("assistant.threads.setStatus") if not each["status"]]
    assert len(cleared) == 1
    await at.surface.edit(ref, Message(text="one two three four"))
    assert len(at.fake.called("assistant.threads.setStatus")) == 3


async def test_a_stream_that_could_not_be_ended_in_time_is_tried_again(
    at: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = await asked(at)
    await at.surface.post(target, growing("one "), ANSWER)
    at.fake.fail("chat.stopStream", times=2)
    monkeypatch.setattr(slack_stream, "QUIET", 0.0)
    (post,) = nods(at)
    await at.fake.until(lambda: post.text.endswith("…"))
    assert not post.streaming


@pytest.mark.parametrize("rule", ["stream_age", "stream_quiet"])
async def test_a_stream_that_slack_ended_loses_nothing_and_is_mended(at: Desk, rule: str) -> None:
    """Slack says message_not_in_streaming_state, to an append and to a stop."""
    target = await asked(at)
    ref = await at.surface.post(target, growing("one "), ANSWER)
    setattr(at.fake, rule, 0.0)
    (post,) = nods(at)
    assert post.is_broken(at.fake)
    await at.surface.edit(ref, growing("one two "))
    assert post.text.startswith("one two ") and not post.is_broken(at.fake)
    await at.surface.edit(ref, Message(text="one two three"))
    assert [post.text for post in nods(at)] == ["one two three"]
    assert nods(at)[0].metadata["event_payload"]["delivery"] == ANSWER


LONG = "".join(f"line {number} of a long answer\n" for number in range(700))


@pytest.mark.parametrize("came", [True, False], ids=["it was carried out", "it never came"])
async def test_a_next_stream_whose_answer_was_lost_leaves_no_post_behind(
    at: Desk, came: bool
) -> None:
    target = await asked(at)
    ref = await at.surface.post(target, growing(LONG[:5_000]), ANSWER)
    at.fake.fail("chat.startStream", after=came)
    await at.surface.edit(ref, growing(LONG[:15_000]))
    assert len(at.fake.called("chat.startStream")) == 1 + came
    await at.surface.edit(ref, growing(LONG))
    await at.surface.edit(ref, Message(text=LONG))
    assert at.fake.posts_per_delivery() == {1}
    assert all(post.metadata and not post.streaming for post in nods(at))
    shown = "".join(block["text"] for post in nods(at) for block in post.blocks)
    assert shown.count("of a long answer") == 700


async def test_a_lost_stream_that_comes_late_is_taken_away_at_the_end(at: Desk) -> None:
    target = await asked(at)
    ref = await at.surface.post(target, growing(LONG[:5_000]), ANSWER)
    at.fake.fail("chat.startStream")
    await at.surface.edit(ref, growing(LONG[:15_000]))
    late = {"channel": "CGEN", "thread_ts": target.rsplit("/", 1)[1], "markdown_text": "late"}
    late |= {"recipient_team_id": "T1", "recipient_user_id": "UANA"}
    METHODS["chat.startStream"][0](at.fake, at.fake.teams["T1"], late)
    assert [post.text for post in nods(at)][-1] == "late"
    await at.surface.edit(ref, growing(LONG[:16_000]))
    await at.surface.edit(ref, Message(text="short"))
    assert [post.text for post in nods(at)] == ["short"]


async def test_after_a_crash_a_lost_stream_is_taken_away_too(
    at: Desk, tmp_path: Path, sqlite_store: Store
) -> None:
    target = await asked(at)
    ref = await at.surface.post(target, growing(LONG[:5_000]), ANSWER)
    await at.surface.post(target, Message(text="a note"), "event:s1/2")
    at.fake.fail("chat.startStream", after=True)
    at.fake.fail("conversations.replies", "internal_error")
    with pytest.raises(SurfaceError):
        await at.surface.edit(ref, growing(LONG[:15_000]))
    async with desk(tmp_path / "next", sqlite_store, at.fake) as after:
        await after.surface.edit(ref, Message(text="short"))
    assert [post.text for post in nods(at)] == ["short", "a note"]


async def test_a_next_post_whose_answer_was_lost_is_not_made_twice(at: Desk) -> None:
    ref = await at.surface.post("slack:T1/CGEN", Message(text="one"), ANSWER)
    at.fake.fail("chat.postMessage", after=True)
    with pytest.raises(SurfaceError):
        await at.surface.edit(ref, Message(text=LONG))
    await at.surface.edit(ref, Message(text=LONG))
    assert at.fake.posts_per_delivery() == {1}
    assert len(nods(at)) == 2


async def test_what_slack_notes_of_nod_is_no_stream_that_was_left(
    at: Desk, tmp_path: Path, sqlite_store: Store
) -> None:
    ref = await at.surface.post("slack:T1/CGEN", Message(text="one"), ANSWER)
    channel = at.fake.teams["T1"].channels["CGEN"]
    joined = channel.add(at.fake.tick(), user="UBOTT1", text="has joined the channel")
    joined.subtype = "channel_join"
    async with desk(tmp_path / "next", sqlite_store, at.fake) as after:
        await after.surface.edit(ref, Message(text="two"))
    assert [post.text for post in nods(at)] == ["two", "has joined the channel"]


async def test_a_stream_an_earlier_run_left_is_found_ended_and_completed(
    at: Desk, tmp_path: Path, sqlite_store: Store
) -> None:
    target = await asked(at)
    ref = await at.surface.post(target, growing("half of "), ANSWER)
    await at.surface.post(target, Message(text="a note"), "event:s1/2")
    async with desk(tmp_path / "next", sqlite_store, at.fake) as after:
        assert await after.surface.find(target, "act:c/1") is None
        assert await after.surface.find(target, ANSWER) == ref
        await after.surface.edit(ref, Message(text="half of it, and the rest"))
        assert [post.text for post in nods(at)] == ["half of it, and the rest", "a note"]
        assert await after.surface.find(target, ANSWER) == ref


async def test_a_stored_ref_of_a_stream_that_was_left_is_completed(
    at: Desk, tmp_path: Path, sqlite_store: Store
) -> None:
    target = await asked(at)
    text = "word " * 3_000
    ref = await at.surface.post(target, growing(text), ANSWER)
    assert len(nods(at)) == 2
    async with desk(tmp_path / "next", sqlite_store, at.fake) as after:
        await after.surface.edit(ref, Message(text="short"))
        assert [post.text for post in nods(at)] == ["short"], "the second stream is taken away"


async def test_a_start_whose_answer_was_lost_is_in_doubt_and_found(at: Desk) -> None:
    target = await asked(at)
    at.fake.fail("chat.startStream", after=True)
    with pytest.raises(SurfaceError) as raised:
        await at.surface.post(target, growing("Hello "), ANSWER)
    assert not raised.value.certain
    assert await at.surface.find(target, ANSWER) is not None
    assert len(nods(at)) == 1


async def test_a_stop_that_failed_is_done_again_before_the_edit(at: Desk) -> None:
    target = await asked(at)
    ref = await at.surface.post(target, growing("one "), ANSWER)
    at.fake.fail("chat.stopStream")
    with pytest.raises(SurfaceError):
        await at.surface.edit(ref, Message(text="one two"))
    await at.surface.edit(ref, Message(text="one two"))
    assert [post.text for post in nods(at)] == ["one two"]


async def test_appends_of_two_threads_do_not_mix(at: Desk) -> None:
    targets = [await asked(at), await asked(at, "UBEN")]

    async def one(number: int, target: str) -> None:
        words = f"word{number} "
        ref = await at.surface.post(target, growing(words), f"answer:s{number}/1/1")
        for times in range(2, 20):
            await at.surface.edit(ref, growing(words * times))
        await at.surface.edit(ref, Message(text=words * 20))

    await asyncio.gather(*(one(*each) for each in enumerate(targets)))
    assert sorted(set(post.text.split()[0] for post in nods(at))) == ["word0", "word1"]
    assert all(len(set(post.text.split())) == 1 for post in nods(at))


# -- to-do lists


TASKS = (
    Task(title="Read the log", status="done"),
    Task(title="Write **it** <!channel>", status="in_progress"),
    Task(title="Post it", status="pending"),
)


async def test_a_to_do_list_is_a_plan_of_task_cards_in_one_post(at: Desk) -> None:
    text = "✓ Read the log\n▸ Write it\n· Post it"
    ref = await at.surface.post("slack:T1/CGEN", Message(text=text, tasks=TASKS), "event:s/1.p")
    (post,) = nods(at)
    (block,) = post.blocks
    assert (block["type"], block["title"]) == ("plan", "1 of 3 done")
    assert [each["status"] for each in block["tasks"]] == ["complete", "in_progress", "pending"]
    done = tuple(Task(title=each.title, status="done") for each in TASKS)
    await at.surface.edit(ref, Message(text=text, tasks=done))
    assert post.blocks[0]["title"] == "3 of 3 done"
    assert post.edits == 1 and nods(at) == [post]


async def test_a_workspace_that_takes_no_plan_gets_lines(at: Desk) -> None:
    at.fake.fail("chat.postMessage", "invalid_blocks")
    await at.surface.post("slack:T1/CGEN", Message(text="✓ Read", tasks=TASKS), "event:s/1.p")
    (post,) = nods(at)
    assert post.blocks[0]["type"] != "plan" and "Read" in post.text


async def test_a_very_long_list_stays_within_what_slack_takes(at: Desk) -> None:
    tasks = tuple(Task(title="x" * 900 + str(n), status="pending") for n in range(200))
    await at.surface.post("slack:T1/CGEN", Message(text="· x", tasks=tasks), "event:s/1.p")
    assert nods(at)[0].blocks[0]["type"] == "plan"
