"""What comes in from Slack: each post once, whole, and to whom it was said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot.surfaces.base import Commanded, Edited, Pressed, Receipt, Said, SurfaceError
from bot.surfaces.config import Owned
from engine.errors import StoreError
from engine.store.base import Store
from tests.fakes.slack import FakeSlack
from tests.unit.slack_desk import Desk, desk

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 40
PAGE = b"<!DOCTYPE html><html><title>Sign in</title></html>"


@pytest.fixture(params=["socket", "http"])
async def at(request: pytest.FixtureRequest, tmp_path: Path, sqlite_store: Store) -> Any:
    async with desk(tmp_path, sqlite_store, mode=request.param) as made:
        yield made


@pytest.fixture
async def socket(tmp_path: Path, sqlite_store: Store) -> AsyncIterator[Desk]:
    async with desk(tmp_path, sqlite_store) as made:
        yield made


def only(desk: Desk) -> Said:
    (said,) = desk.of(Said)
    return said


# -- whose, and where


async def test_a_mention_opens_a_thread_below_the_post(at: Desk) -> None:
    post = await at.fake.say("@nod what is new?", kinds=("app_mention",))
    said = only(at)
    assert said.target == f"slack:T1/CGEN/{post.ts}"
    assert (said.person.id, said.person.name) == ("T1/UANA", "ana")
    assert (said.text, said.addressed, said.direct, said.bot) == (
        "what is new?",
        True,
        False,
        False,
    )


async def test_mention_and_message_of_one_post_are_one_event(at: Desk) -> None:
    await at.fake.say("@nod hi")
    first, second = at.of(Said)
    assert first.event == second.event
    assert first.text == second.text


async def test_a_mention_alone_is_enough(at: Desk) -> None:
    """Some installs send no message event."""
    await at.fake.say("@nod hi", kinds=("app_mention",))
    assert only(at).addressed


async def test_the_same_event_again_is_the_same_to_the_intake(at: Desk) -> None:
    await at.fake.say("@nod hi", kinds=("message",))
    assert (await at.fake.redeliver()).ok
    assert len({each.event for each in at.of(Said)}) == 1


async def test_a_copy_that_comes_while_the_first_is_taken_waits_for_it(at: Desk) -> None:
    at.hold = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(at.fake.say("@nod hi", kinds=("message",)))
        await at.fake.until(lambda: at.taken)
        again = group.create_task(at.fake.redeliver())
        await asyncio.sleep(0.05)
        assert not again.done()
        at.hold.set()
    assert len(at.taken) == 1
    assert all(ack.ok for ack in at.fake.acks)


async def test_a_reply_in_a_thread_is_of_its_root_whatever_came_last(at: Desk) -> None:
    first = await at.fake.say("@nod one", kinds=("message",))
    second = await at.fake.say("@nod two", kinds=("message",))
    await at.fake.say("yes", thread=first.ts)
    await at.fake.say("a root", channel="CSTAND")
    targets = [each.target for each in at.of(Said)]
    assert targets[:3] == [
        f"slack:T1/CGEN/{first.ts}",
        f"slack:T1/CGEN/{second.ts}",
        f"slack:T1/CGEN/{first.ts}",
    ]
    assert targets[3].startswith("slack:T1/CSTAND/")


async def test_a_line_between_others_is_handed_over_as_not_addressed(at: Desk) -> None:
    await at.fake.say("lunch?", user="UBEN")
    assert not only(at).addressed


async def test_a_dm_is_named_by_its_person_and_is_direct(at: Desk) -> None:
    await at.fake.direct_say("hello")
    said = only(at)
    assert (said.target, said.direct, said.addressed) == ("slack:T1/UANA", True, True)


async def test_a_thread_in_a_dm_is_a_target_of_its_own(at: Desk) -> None:
    root = await at.fake.direct_say("hello")
    await at.fake.direct_say("more", thread=root.ts)
    assert at.of(Said)[1].target == f"slack:T1/UANA/{root.ts}"


async def test_a_line_below_a_post_of_nod_replies_to_it(at: Desk) -> None:
    from bot.surfaces.base import Message

    ref = await at.surface.post("slack:T1/UANA", Message(text="Approve?"), "prompt:p1")
    await at.fake.direct_say("no, later", thread=ref.split("/")[2])
    assert only(at).reply_to == ref


async def test_the_address_is_left_out_and_stays_as_a_flag(at: Desk) -> None:
    await at.fake.say("@nod stop", kinds=("message",))
    assert (only(at).text, only(at).addressed) == ("stop", True)


# -- which posts count


@pytest.mark.parametrize("subtype", ["file_share", "me_message", "thread_broadcast"])
async def test_what_people_write_counts_whatever_its_subtype(at: Desk, subtype: str) -> None:
    await at.fake.say("look", subtype=subtype)
    assert only(at).text == "look"


@pytest.mark.parametrize("subtype", ["channel_join", "message_deleted", "bot_message", "tombstone"])
async def test_what_the_platform_notes_is_acked_and_ignored(at: Desk, subtype: str) -> None:
    await at.fake.say("x", subtype=subtype)
    assert at.taken == []
    assert at.fake.acks[-1].ok


async def test_own_posts_never_come_in(at: Desk) -> None:
    from bot.surfaces.base import Message

    ref = await at.surface.post("slack:T1/CGEN", Message(text="I post"), "answer:s/1/1")
    await at.surface.edit(ref, Message(text="I edit"))
    await at.fake.say("a person", user="UBEN")
    await at.fake.until(lambda: at.fake.echoed == 2)
    assert [each.text for each in at.of(Said)] == ["a person"]
    assert at.of(Edited) == []
    assert at.overheard == [], "no watch hears them either"


async def test_another_bot_is_heard_only_when_it_mentions_nod_and_is_marked(at: Desk) -> None:
    await at.fake.say("done", user="UBEN", bot_id="BOTHER")
    assert at.taken == []
    assert [(each.text, each.addressed) for each in at.overheard] == [("done", False)]
    await at.fake.say("@nod done", user="UBEN", bot_id="BOTHER", kinds=("message",))
    assert only(at).bot


async def test_what_an_app_writes_is_overheard_with_what_stands_beside_it(at: Desk) -> None:
    beside = {"title": "Checkout", "text": "5xx <https://x.test|over> 2 %", "fallback": "no"}
    fields = [{"title": "Since", "value": "07:02"}]
    more = {"bot_id": "BALERTS", "username": "Alerts", "attachments": [beside | {"fields": fields}]}
    await at.fake.say("Alert", subtype="bot_message", **more)
    await at.fake.say("@nod look", subtype="bot_message", kinds=("message",), **more)
    assert at.taken == [] and at.fake.acks[-1].ok
    first, second = at.overheard
    assert first.text == "Alert\n\nCheckout\n5xx [over](https://x.test) 2 %\nSince: 07:02"
    assert (first.person.name, first.bot, second.addressed) == ("Alerts", True, False)
    assert first.target.startswith("slack:T1/CGEN/")


async def test_a_channel_that_is_named_can_be_found_again(at: Desk) -> None:
    await at.fake.say("@nod watch <#C0ALERTS|alerts>", kinds=("message",))
    assert only(at).text == "watch #alerts"
    assert only(at).places == {"#alerts": "slack:T1/C0ALERTS"}


async def test_a_command_that_is_said_keeps_exactly_which_channel_is_meant(at: Desk) -> None:
    await at.fake.say("@nod /watch <#C0ALERTS|alerts>: tell me", kinds=("message",))
    [given] = at.of(Commanded)
    assert (given.name, given.arguments) == ("watch", "<#C0ALERTS|alerts>: tell me")


async def test_a_link_preview_is_no_edit(at: Desk) -> None:
    post = await at.fake.say("see https://example.org", user="UBEN")
    assert (await at.fake.edit(post, "CGEN", post.text)).ok
    earlier = {**post.shown(False), "edited": {"user": "UBEN", "ts": "9.9"}}
    event = {"type": "message", "subtype": "message_changed", "channel": "CGEN", "ts": "9.91"}
    event |= {"message": {**earlier, "attachments": [{"title": "x"}]}, "previous_message": earlier}
    assert (await at.fake.send("events_api", at.fake.event("T1", event))).ok
    assert at.of(Edited) == []
    counts = at.told.ground.counts
    assert counts.get("nod_refused_total", surface="slack", reason="malformed") == 0


async def test_a_changed_text_is_an_edit_of_that_message(at: Desk) -> None:
    post = await at.fake.say("@nod buy 2", kinds=("message",))
    await at.fake.edit(post, "CGEN", "@nod buy 3")
    await at.fake.redeliver()
    first, again = at.of(Edited)
    assert (first.original, first.text) == (f"T1/CGEN/{post.ts}", "buy 3")
    assert first.event == again.event
    assert first.target == only(at).target


# -- durable before it is acknowledged


async def test_what_could_not_be_stored_is_not_acked_and_comes_again(at: Desk) -> None:
    at.failures.append(StoreError("the disk is full"))
    at.fake.limit = 0.3
    await at.fake.say("@nod hi", kinds=("message",))
    assert not at.fake.acks[-1].ok
    assert (await at.fake.redeliver()).ok
    assert only(at).text == "hi"


async def test_the_ack_waits_for_the_intake(at: Desk) -> None:
    at.hold = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(at.fake.say("@nod hi", kinds=("message",)))
        await at.fake.until(lambda: at.taken)
        assert at.fake.acks == []
        at.hold.set()
    assert at.fake.acks[-1].ok


async def test_an_ack_is_quick(at: Desk) -> None:
    await at.fake.say("@nod first", kinds=("message",))
    for n in range(20):
        await at.fake.say(f"line {n}", user="UANA")
    seconds = sorted(ack.seconds for ack in at.fake.acks[1:])
    assert seconds[len(seconds) // 2] < 0.05


@pytest.mark.parametrize(
    "event",
    [{"type": "team_join"}, {"type": "reaction_added"}, {"type": "unheard_of", "x": [1]}],
    ids=lambda event: event["type"],
)
async def test_an_event_nobody_wants_is_acked(at: Desk, event: dict[str, Any]) -> None:
    assert (await at.fake.send("events_api", at.fake.event("T1", event))).ok


@pytest.mark.parametrize(
    "event",
    [
        {"type": "message", "user": "UANA"},
        {"type": "message", "subtype": "message_changed", "channel": "CGEN"},
        {"type": "message", "user": "UANA", "channel": "CGEN", "ts": "1.1", "files": [3]},
        {"type": "app_home_opened", "tab": "home"},
    ],
)
async def test_a_malformed_event_is_acked_and_counted(at: Desk, event: dict[str, Any]) -> None:
    assert (await at.fake.send("events_api", at.fake.event("T1", event))).ok
    counts = at.told.ground.counts
    assert counts.get("nod_refused_total", surface="slack", reason="malformed") == 1
    await at.fake.say("@nod still there?", kinds=("message",))
    assert only(at).text == "still there?"


async def test_a_workspace_without_the_app_gets_nothing(at: Desk) -> None:
    body = at.fake.event("T1", {"type": "message", "user": "UX", "channel": "C9", "ts": "1.1"})
    body["team_id"] = "T9"
    body["authorizations"] = [{"team_id": "T9", "user_id": "UX", "is_bot": True}]
    await at.fake.send("events_api", body)
    assert at.taken == []
    counts = at.told.ground.counts
    assert counts.get("nod_refused_total", surface="slack", reason="workspace") == 1


# -- words


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a &lt;b&gt; &amp; c", "a <b> & c"),
        ("<https://example.org|docs>", "[docs](https://example.org)"),
        ("<https://example.org>", "https://example.org"),
        ("<http://example.org|example.org>", "http://example.org"),
        ("<mailto:a@x.test|a@x.test>", "a@x.test"),
        ("<#C1|general> <!here>", "#general @here"),
        ("ask <@UBEN>", "ask @UBEN"),
        ("`<@nobody` & <", "`<@nobody` & <"),
    ],
)
async def test_marks_become_words(socket: Desk, text: str, shown: str) -> None:
    await socket.fake.say(text)
    assert only(socket).text == shown


async def test_people_who_spoke_are_named_in_what_others_say(socket: Desk) -> None:
    await socket.fake.say("I am ben", user="UBEN")
    await socket.fake.say("ask <@UBEN>")
    assert socket.of(Said)[1].text == "ask @ben"


async def test_a_forwarded_message_comes_whole(socket: Desk) -> None:
    shared = {"is_share": True, "author_name": "Ben", "text": "line 1\nline 2"}
    preview = {"title": "A page", "text": "preview"}
    await socket.fake.say("see", attachments=[shared, preview])
    assert only(socket).text == "see\n\nForwarded from Ben:\n> line 1\n> line 2"


async def test_a_long_post_comes_whole(socket: Desk) -> None:
    await socket.fake.say("x" * 39_000)
    assert len(only(socket).text) == 39_000


async def test_a_name_slack_does_not_tell_in_time_is_the_id(socket: Desk) -> None:
    socket.fake.fail("users.info", "internal_error", status=500)
    await socket.fake.say("hi")
    assert only(socket).person.name == "UANA"


# -- files


async def fetched(desk: Desk, tmp_path: Path, **file: Any) -> bytes:
    await desk.fake.say("look", files=[desk.fake.file(**file)])
    (attachment,) = only(desk).files
    await attachment.fetch(tmp_path / "file")
    return (tmp_path / "file").read_bytes()


async def test_a_file_is_fetched_with_the_token_and_comes_whole(
    socket: Desk, tmp_path: Path
) -> None:
    content = PNG * 10_000
    got = await fetched(socket, tmp_path, name="a.png", media="image/png", content=content)
    assert got == content
    (attachment,) = only(socket).files
    assert (attachment.name, attachment.media_type, attachment.bytes) == (
        "a.png",
        "image/png",
        len(content),
    )


async def test_without_the_scope_the_missing_scope_is_named_and_no_page_is_saved(
    socket: Desk, tmp_path: Path
) -> None:
    socket.fake.teams["T1"].scopes.discard("files:read")
    with pytest.raises(SurfaceError, match=r"sign-in page.*files:read"):
        await fetched(socket, tmp_path, name="a.png", media="image/png", content=PNG)
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize(
    ("instead", "told"),
    [
        ((200, "image/png", PAGE), "sign-in page"),
        ((200, "image/png", b"GIF89a..."), "not the image/png it is said to be"),
        ((302, "text/html", b""), "sign-in page"),
        ((404, "text/plain", b""), "HTTP 404"),
        ((200, "image/png", PNG + b"x" * 2_000_000), "larger than Slack said"),
    ],
    ids=["page as png", "gif as png", "redirect", "gone", "too large"],
)
async def test_what_is_not_the_file_is_refused(
    socket: Desk, tmp_path: Path, instead: tuple[int, str, bytes], told: str
) -> None:
    file = socket.fake.file("a.png", "image/png", PNG)
    file.instead = instead
    await socket.fake.say("look", files=[file])
    with pytest.raises(SurfaceError, match=told):
        await only(socket).files[0].fetch(tmp_path / "file")


async def test_the_token_goes_to_slack_only(socket: Desk, tmp_path: Path) -> None:
    file = socket.fake.file("a.png", "image/png", PNG)
    shown = {**file.shown(socket.fake), "url_private_download": "https://evil.test/a.png"}
    await socket.fake.say("look", **{"subtype": "file_share"})
    event = {"type": "message", "user": "UANA", "channel": "CGEN", "ts": "2.2", "files": [shown]}
    await socket.fake.send("events_api", socket.fake.event("T1", event))
    with pytest.raises(SurfaceError, match="not one of Slack's"):
        await socket.of(Said)[-1].files[0].fetch(tmp_path / "file")


async def test_a_voice_note_is_marked(socket: Desk) -> None:
    file = socket.fake.file("note.m4a", "audio/mp4", b"x", subtype="slack_audio")
    await socket.fake.say("", files=[file])
    assert only(socket).files[0].voice


# -- commands


async def test_a_command_is_read_and_answered_privately_in_its_ack(at: Desk) -> None:
    at.answer = lambda event: Receipt(status="commanded", text="**All** is well")
    ack = await at.fake.command("usage 7 days")
    (commanded,) = at.of(Commanded)
    assert (commanded.name, commanded.arguments) == ("usage", "7 days")
    assert (commanded.target, commanded.direct) == ("slack:T1/CGEN", False)
    assert ack.payload["response_type"] == "ephemeral"
    assert "*All* is well" in ack.payload["text"]


async def test_a_bare_command_asks_for_help_and_one_in_a_dm_is_direct(at: Desk) -> None:
    await at.fake.command("", channel="DM")
    (commanded,) = at.of(Commanded)
    assert (commanded.name, commanded.target, commanded.direct) == ("help", "slack:T1/UANA", True)


async def test_a_slow_command_is_acked_and_answered_later(
    at: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.surfaces.slack_door.COMMAND", 0.05)
    at.answer = lambda event: Receipt(status="commanded", text="late")
    at.hold = asyncio.Event()
    ack = await at.fake.command("status")
    assert ack.ok and ack.payload is None
    at.hold.set()
    await at.fake.until(lambda: at.fake.responses)
    user, shown = at.fake.responses[0]
    assert (user, shown["response_type"], shown["text"]) == ("UANA", "ephemeral", "late")


async def test_a_command_that_fails_says_so_and_one_that_is_said_comes_again(at: Desk) -> None:
    """Slack sends no slash command a second time, and every message that was not acknowledged."""
    at.failures.append(RuntimeError("no"))
    ack = await at.fake.command("status")
    assert ack.ok and "went wrong" in ack.payload["text"]
    at.failures.append(RuntimeError("no"))
    await at.fake.direct_say(" /status")
    assert not at.fake.acks[-1].ok
    assert (await at.fake.redeliver()).ok
    assert [each.name for each in at.of(Commanded)] == ["status"]


async def test_a_long_answer_to_a_command_comes_in_parts(at: Desk) -> None:
    at.answer = lambda event: Receipt(status="commanded", text="word " * 4_000)
    ack = await at.fake.command("usage")
    await at.fake.until(lambda: at.fake.responses)
    shown = json.dumps([ack.payload, *[each for _, each in at.fake.responses]])
    assert shown.count("word ") >= 4_000


# -- what becomes of it is seen at once


async def test_a_thread_gets_a_status_and_a_dm_a_reaction(at: Desk) -> None:
    post = await at.fake.say("@nod hi", kinds=("message",))
    await at.fake.until(lambda: at.fake.statuses)
    assert at.fake.statuses == [("CGEN", post.ts, "is at work…")]
    line = await at.fake.direct_say("hi")
    await at.fake.until(lambda: line.reactions)
    assert line.reactions == ["eyes"]
    assert len(at.fake.statuses) == 1, "no status outside of threads"


async def test_where_a_status_is_not_allowed_a_reaction_is_the_sign(at: Desk) -> None:
    at.fake.teams["T1"].scopes.discard("assistant:write")
    for _ in range(2):
        post = await at.fake.say("@nod hi", kinds=("message",))
        await at.fake.until(lambda post=post: post.reactions)
    assert len(at.fake.called("assistant.threads.setStatus")) == 1, "not asked for again"


@pytest.mark.parametrize("status", ["ignored", "duplicate", "refused"])
async def test_what_was_not_taken_gets_no_sign(at: Desk, status: str) -> None:
    at.answer = lambda event: Receipt(status=status)
    await at.fake.say("hm", kinds=("message",))
    at.answer = lambda event: Receipt(status="accepted")
    await at.fake.say("@nod", kinds=("message",))
    await at.fake.until(lambda: at.fake.statuses)
    assert len(at.fake.statuses) == 1


async def test_a_word_to_the_author_is_seen_by_nobody_else(at: Desk) -> None:
    at.answer = lambda event: Receipt(status="waiting", text="We have not met yet.")
    post = await at.fake.say("@nod hi", user="UBEN", kinds=("message",))
    await at.fake.until(lambda: at.fake.whispers)
    assert at.fake.whispers == [("UBEN", "CGEN", "We have not met yet.")]
    assert at.fake.called("chat.postEphemeral")[0]["thread_ts"] == post.ts


async def test_an_assistant_thread_offers_prompts(at: Desk) -> None:
    root = await at.fake.direct_say("hi")
    thread = {"user_id": "UANA", "channel_id": "DANA", "thread_ts": root.ts}
    event = {"type": "assistant_thread_started", "assistant_thread": thread}
    await at.fake.send("events_api", at.fake.event("T1", event))
    await at.fake.until(lambda: at.fake.suggested)
    assert "What waits for my nod?" in at.fake.suggested[0]


# -- what was missed


async def test_what_was_said_in_owned_threads_meanwhile_is_picked_up_in_order(
    tmp_path: Path, sqlite_store: Store
) -> None:
    async with FakeSlack() as fake:
        root = await fake.say("@nod hi", kinds=("message",))
        line = await fake.direct_say("before")
        owned = (
            Owned(target=f"slack:T1/CGEN/{root.ts}", session="s1", last_at=float(root.ts)),
            Owned(target="slack:T1/UANA", session="s2", last_at=float(line.ts)),
        )
        await fake.say("more", thread=root.ts)
        await fake.say("and more", thread=root.ts, user="UBEN")
        await fake.say("Nod's own answer", thread=root.ts, user="UBOTT1")
        await fake.direct_say("in the dm")
        async with desk(tmp_path, sqlite_store, fake, owned=owned) as made:
            await fake.until(lambda: len(made.taken) == 3)
            texts = [each.text for each in made.of(Said)]
            assert [text for text in texts if text != "in the dm"] == ["more", "and more"]
            assert {each.target for each in made.of(Said)} == {each.target for each in owned}


async def test_a_line_in_a_dm_that_got_answers_below_it_is_still_of_the_dm(
    tmp_path: Path, sqlite_store: Store
) -> None:
    """In a history the root of a thread names itself as its thread."""
    async with FakeSlack() as fake:
        first = await fake.direct_say("before")
        line = await fake.direct_say("missed")
        await fake.direct_say("below", thread=line.ts)
        owned = (Owned(target="slack:T1/UANA", session="s1", last_at=float(first.ts)),)
        async with desk(tmp_path, sqlite_store, fake, owned=owned) as made:
            await fake.until(lambda: made.taken)
            assert (only(made).text, only(made).target) == ("missed", "slack:T1/UANA")


async def test_after_a_reconnect_the_gap_is_read_and_only_the_gap(
    socket: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = await socket.fake.say("@nod hi", kinds=("message",))
    target = f"slack:T1/CGEN/{root.ts}"
    socket.told.owned.append(Owned(target=target, session="s1", last_at=float(root.ts)))
    await socket.fake.disconnect("refresh_requested")
    socket.fake.teams["T1"].channels["CGEN"].add(
        socket.fake.tick(), user="UBEN", text="missed", thread=root.ts
    )
    await socket.fake.connected(2)
    await socket.fake.until(lambda: len(socket.taken) == 2)
    assert [each.text for each in socket.of(Said)] == ["hi", "missed"]


async def test_a_thread_that_cannot_be_read_does_not_hide_the_others(
    tmp_path: Path, sqlite_store: Store
) -> None:
    async with FakeSlack() as fake:
        root = await fake.say("@nod hi", kinds=("message",))
        await fake.say("more", thread=root.ts)
        at = float(root.ts)
        owned = (
            Owned(target="slack:T1/CGONE/1.000001", session="s0", last_at=at + 1),
            Owned(target="slack:T9/CGEN/1.000001", session="s9", last_at=at + 2),
            Owned(target=f"slack:T1/CGEN/{root.ts}", session="s1", last_at=at),
        )
        async with desk(tmp_path, sqlite_store, fake, owned=owned) as made:
            await fake.until(lambda: made.taken)
            assert only(made).text == "more"


# -- presses, as they are read


async def test_an_unknown_button_gets_a_private_answer_and_changes_nothing(at: Desk) -> None:
    from bot.cards import Button, Card, Row
    from bot.surfaces.base import Message

    button = Button(label="Approve", key="a", answer="once", token="t" * 40)
    card = Card(id="c", title="May I?", rows=(Row(prompt="p1", title="x", buttons=(button,)),))
    ref = await at.surface.post("slack:T1/CGEN", Message(card=card), "prompt:p1")
    post = at.fake.teams["T1"].channels["CGEN"].posts[ref.split("/")[2]]
    assert (await at.fake.press("Approve", post, action_id="foreign")).ok
    await at.fake.until(lambda: at.fake.responses)
    assert at.taken == []
    assert "not one of mine" in at.fake.responses[0][1]["text"]


async def test_a_press_carries_token_place_and_message_and_a_copy_is_the_same(at: Desk) -> None:
    from bot.cards import Button, Card, Row
    from bot.surfaces.base import Message

    root = await at.fake.say("x", user="UBEN")
    at.taken.clear()
    button = Button(label="Approve", key="a", answer="once", token="t" * 40)
    card = Card(id="c", title="May I?", rows=(Row(prompt="p1", title="x", buttons=(button,)),))
    target = f"slack:T1/CGEN/{root.ts}"
    ref = await at.surface.post(target, Message(card=card), "prompt:p1")
    post = at.fake.teams["T1"].channels["CGEN"].posts[ref.split("/")[2]]
    await at.fake.press("Approve", post, user="UBEN")
    await at.fake.redeliver()
    first, again = at.of(Pressed)
    assert (first.token, first.target, first.ref) == ("t" * 40, target, ref)
    assert first.person.id == "T1/UBEN"
    assert first.event == again.event
