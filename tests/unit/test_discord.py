"""What comes in from Discord: from a strict Discord, over real sockets."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from bot.surfaces.base import Commanded, Edited, Inbound, Message, Receipt, Said, SurfaceError
from bot.surfaces.config import Owned
from bot.surfaces.discord import DiscordSurface
from engine.errors import StoreError
from engine.store.base import Store
from tests.fakes.discord import GUILD, ROLE, TOKEN, discord
from tests.fakes.ground import grounded
from tests.unit.discord_desk import at_work, config_of

# -- what is heard


async def test_a_mention_in_a_channel_is_said_in_the_thread_that_begins_there(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        said = await desk.fake.say(desk.fake.general, desk.ana, f"{desk.mention}, what is new?")
        event = await desk.first()
    assert event == Said(
        event=f"{desk.fake.general}/{said['id']}",
        target=f"{desk.channel}/{said['id']}",
        person=event.person,
        text="what is new?",
    )
    assert (event.person.id, event.person.name) == (desk.ana["id"], "Ana")


async def test_a_channel_without_a_mention_is_nobodys(sqlite_store: Store, tmp_path: Path) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        await desk.fake.say(desk.fake.general, desk.ana, "lunch?")
        await desk.fake.say(desk.fake.general, desk.ana, "@everyone lunch?", everyone=True)
        await desk.settled()
        assert desk.taken == []
        assert [each.text for each in desk.overheard] == ["lunch?", "@everyone lunch?"]
        assert not any(each.addressed or each.bot for each in desk.overheard)


async def test_what_machines_and_webhooks_say_is_overheard_with_what_stands_in_its_boxes(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        bot, hook = desk.fake.user("alerts", bot=True), desk.fake.user("hook", bot=True)
        box = {
            "type": "rich",
            "title": "Checkout",
            "description": "5xx over 2 %",
            "fields": [{"name": "Since", "value": "07:02", "inline": True}],
        }
        await desk.fake.say(desk.fake.general, bot, "Alert", embeds=[box])
        await desk.fake.say(desk.fake.general, hook, f"{desk.mention} deployed", webhook_id="77")
        await desk.settled()
        assert desk.taken == []
        first, second = desk.overheard
    assert first.text == "Alert\n\nCheckout\n5xx over 2 %\nSince: 07:02"
    assert second.text == "deployed"
    assert [(each.bot, each.addressed) for each in (first, second)] == [(True, False)] * 2


async def test_everyone_does_not_wake_it(sqlite_store: Store, tmp_path: Path) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        await desk.fake.say(desk.fake.general, desk.ana, "@everyone lunch?", everyone=True)
        await desk.settled()
        assert desk.taken == []


async def test_the_role_that_stands_for_nod_mentions_it(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        await desk.fake.say(desk.fake.general, desk.ana, f"<@&{ROLE}> are you there?")
        assert (await desk.first()).addressed


async def test_a_reply_in_a_thread_needs_no_mention_and_names_what_it_replies_to(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        said = await desk.fake.say(desk.fake.general, desk.ana, f"{desk.mention} hello")
        target = (await desk.first()).target
        ref = await desk.surface.post(target, Message(text="Hi."), "answer:s/1/1")
        (posted,) = [each for each in desk.fake.of(said["id"]) if each["content"] == "Hi."]
        await desk.fake.say(said["id"], desk.ana, "and now?", reply_to=posted)
        await desk.fake.say(said["id"], desk.fake.user("bob"), "me too")
        _, reply, other = await desk.got(3)
    assert isinstance(reply, Said) and isinstance(other, Said)
    assert (reply.target, reply.reply_to, reply.addressed) == (target, ref, False)
    assert (other.target, other.reply_to, other.addressed) == (target, "", False)


async def test_a_direct_message_is_of_one_person_alone(sqlite_store: Store, tmp_path: Path) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        place = desk.fake.direct(desk.ana)
        await desk.fake.say(place, desk.ana, "psst")
        event = await desk.first()
    assert (event.target, event.direct, event.addressed) == (f"discord:@me/{place}", True, True)


async def test_own_posts_webhooks_and_notes_are_never_handed_over(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        hook = {**desk.fake.user("hook", bot=True)}
        await desk.fake.say(desk.fake.general, desk.fake.me, f"{desk.mention} me")
        await desk.fake.say(desk.fake.general, hook, f"{desk.mention} hook", webhook_id="77")
        await desk.fake.say(desk.fake.general, desk.ana, f"{desk.mention} pinned", type=6)
        await desk.settled()
        assert desk.taken == []


async def test_a_machine_is_marked_as_one_and_heard_only_where_it_mentions_nod(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        said = await desk.fake.say(desk.fake.general, desk.ana, f"{desk.mention} hello")
        await desk.surface.typing((await desk.first()).target)
        bot = desk.fake.user("other", bot=True)
        await desk.fake.say(said["id"], bot, "ping")
        await desk.fake.say(said["id"], bot, f"{desk.mention} ping")
        await desk.settled()
        (_, heard) = desk.taken
    assert isinstance(heard, Said)
    assert (heard.bot, heard.text) == (True, "ping")


MARKS = [
    ("user", "<@{me}> tell <@!{ana}>", "tell @Ana"),
    ("inside", "what does <@{me}> think?", "what does @Nod think?"),
    ("channel", "<@{me}> see <#{general}>", "see #general"),
    ("role", "<@{me}> ask <@&{role}>", "ask @Nod"),
    ("emoji", "<@{me}> <:ship:12345> <a:wave:67890>", ":ship: :wave:"),
    ("unknown", "<@{me}> <@99>", "@99"),
    ("code", "<@{me}> `a < b`", "`a < b`"),
]


@pytest.mark.parametrize(("text", "read"), [m[1:] for m in MARKS], ids=[m[0] for m in MARKS])
async def test_marks_of_discord_are_read_as_words(
    sqlite_store: Store, tmp_path: Path, text: str, read: str
) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        ids = {
            "role": ROLE,
            "me": desk.fake.me["id"],
            "ana": desk.ana["id"],
            "general": desk.fake.general,
        }
        await desk.fake.say(desk.fake.general, desk.ana, text.format(**ids))
        assert (await desk.first()).text == read


async def test_forwarded_messages_and_stickers_are_read(
    sqlite_store: Store, tmp_path: Path
) -> None:
    snapshot = {
        "content": "the\nplan", "type": 0, "timestamp": "2026-01-01T00:00:00+00:00",
        "edited_timestamp": None, "mentions": [], "mention_roles": [], "attachments": [],
        "embeds": [], "flags": 0, "components": [],
    }  # fmt: skip
    async with at_work(sqlite_store, tmp_path) as desk:
        await desk.fake.say(
            desk.fake.direct(desk.ana),
            desk.ana,
            "look",
            message_snapshots=[{"message": snapshot}],
            sticker_items=[{"id": "5", "name": "wave", "format_type": 1}],
        )
        text = (await desk.first()).text
    assert text == "look\n\n[sticker: wave]\n\nForwarded:\n> the\n> plan"


async def test_files_come_whole_and_a_voice_note_is_one(
    sqlite_store: Store, tmp_path: Path
) -> None:
    files = [("plan.pdf", "application/pdf", b"%PDF" * 1000), ("v.ogg", "audio/ogg", b"OggS")]
    async with at_work(sqlite_store, tmp_path) as desk:
        await desk.fake.say(desk.fake.direct(desk.ana), desk.ana, "", files=files)
        plan, voice = (await desk.first()).files
        await plan.fetch(tmp_path / "plan")
    assert (tmp_path / "plan").read_bytes() == files[0][2]
    assert (plan.name, plan.media_type, plan.bytes) == ("plan.pdf", "application/pdf", 4000)
    assert (plan.voice, voice.voice) == (False, True)


async def test_a_file_that_is_gone_is_said_so(sqlite_store: Store, tmp_path: Path) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        files = [("a.txt", "text/plain", b"x")]
        await desk.fake.say(desk.fake.direct(desk.ana), desk.ana, "", files=files)
        (file,) = (await desk.first()).files
        desk.fake.files.clear()
        with pytest.raises(SurfaceError, match=r"Discord did not give a\.txt"):
            await file.fetch(tmp_path / "a")


async def test_a_persons_edit_is_told_and_a_preview_is_none(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        said = await desk.fake.say(desk.fake.general, desk.ana, f"{desk.mention} hello")
        await desk.first()
        await desk.fake.dispatch("MESSAGE_UPDATE", {**said, "guild_id": GUILD})  # a preview came
        await desk.fake.change(said, f"{desk.mention} hullo")
        edit = (await desk.got(2))[1]
    assert isinstance(edit, Edited)
    assert (edit.original, edit.text) == (f"{desk.fake.general}/{said['id']}", "hullo")
    assert edit.target == f"{desk.channel}/{said['id']}"


async def test_a_machines_edit_is_never_told(sqlite_store: Store, tmp_path: Path) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        bot = desk.fake.user("other", bot=True)
        said = await desk.fake.say(desk.fake.direct(bot), bot, "beep")
        await desk.fake.change(said, "boop")
        await desk.settled()
        assert desk.taken == []


async def test_messages_of_a_channel_are_taken_in_their_order(
    sqlite_store: Store, tmp_path: Path
) -> None:
    gate = asyncio.Event()

    async def answer(event: Inbound) -> Receipt:
        if isinstance(event, Said) and event.text == "0":
            await gate.wait()
        return Receipt(status="accepted")

    async with at_work(sqlite_store, tmp_path, answer=answer) as desk:
        place = desk.fake.direct(desk.ana)
        for number in range(5):
            await desk.fake.say(place, desk.ana, str(number))
        other = desk.fake.user("bob")
        await desk.fake.say(desk.fake.direct(other), other, "elsewhere")
        await desk.got(1)  # another place does not wait
        gate.set()
        taken = await desk.got(6)
    assert [each.text for each in taken if isinstance(each, Said)] == [
        "elsewhere", "0", "1", "2", "3", "4",
    ]  # fmt: skip


async def test_what_the_intake_says_is_a_reply_to_the_message(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async def answer(event: Inbound) -> Receipt:
        return Receipt(status="waiting", text="We have not met yet, @everyone.")

    async with at_work(sqlite_store, tmp_path, answer=answer) as desk:
        said = await desk.fake.say(desk.fake.general, desk.ana, f"{desk.mention} hello")
        await desk.fake.until(lambda: desk.fake.shown(desk.fake.general))
        reply = desk.fake.of(desk.fake.general)[-1]
    assert reply["message_reference"]["message_id"] == said["id"]
    assert said["id"] not in desk.fake.channels  # and no thread for it


async def test_an_event_that_cannot_be_stored_is_tried_again_and_nothing_is_said(
    sqlite_store: Store, tmp_path: Path
) -> None:
    tries: list[Inbound] = []

    async def answer(event: Inbound) -> Receipt:
        tries.append(event)
        if len(tries) == 1:
            raise StoreError("The disk is full.")
        return Receipt(status="accepted")

    async with at_work(sqlite_store, tmp_path, answer=answer) as desk:
        await desk.fake.say(desk.fake.direct(desk.ana), desk.ana, "hello")
        await desk.got()
    assert len(tries) == 2 and tries[0] == tries[1]


# -- the connection


async def test_it_asks_for_no_more_than_it_needs(sqlite_store: Store, tmp_path: Path) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        (identified,) = desk.fake.identified
    assert identified["intents"] == 1 << 0 | 1 << 9 | 1 << 12 | 1 << 15


@pytest.mark.parametrize(
    ("token", "allowed", "told"),
    [
        pytest.param(
            TOKEN, False, r"Message Content Intent is off.*/applications/\d+/bot", id="D-14"
        ),
        pytest.param("wrong", True, r"does not know this token.*DISCORD_BOT_TOKEN", id="token"),
    ],
)
async def test_what_another_try_cannot_mend_is_told_once_with_what_to_do(
    sqlite_store: Store, tmp_path: Path, token: str, allowed: bool, told: str
) -> None:
    async with discord() as fake, grounded(tmp_path, sqlite_store) as house:
        fake.content_allowed = allowed
        surface = DiscordSurface(config_of(fake, token), house.ground)
        with pytest.raises(SurfaceError, match=told) as failed:
            await surface.start(accepted)
        await surface.stop()
        assert failed.value.retry_after is None
        assert fake.identified == []


async def test_a_dropped_connection_is_resumed_and_loses_nothing(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        await desk.fake.drop()
        await desk.fake.say(desk.fake.direct(desk.ana), desk.ana, "while it was away")
        assert (await desk.first()).text == "while it was away"
    assert desk.fake.resumed == 1


async def test_an_event_that_cannot_be_read_costs_one_connection_and_no_other_event(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        await desk.fake.dispatch("MESSAGE_CREATE", {"id": "no message at all"})
        await desk.fake.until(lambda: len(desk.fake.identified) == 2)
        await desk.fake.say(desk.fake.direct(desk.ana), desk.ana, "still there?")
        await desk.got()
        counts = desk.house.ground.counts
        assert counts.get("nod_refused_total", surface="discord", reason="failed") == 1
        assert desk.house.notices == []


async def test_what_was_said_while_nobody_listened_is_read_from_owned_threads(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        said = await desk.fake.say(desk.fake.general, desk.ana, f"{desk.mention} hello")
        event = await desk.first()
        await desk.surface.post(event.target, Message(text="Hi."), "answer:s/1/1")
        private = desk.fake.direct(desk.ana)
        last = house_now(desk) - 1000.0
        desk.house.owned += [
            Owned(target=event.target, session="s1", last_at=last),
            Owned(target=f"discord:@me/{private}", session="s2", last_at=last),
            Owned(target=f"discord:{GUILD}/1/2", session="s3", last_at=last),
        ]
        await desk.fake.drop(forget=True)
        await desk.fake.say(said["id"], desk.ana, "are you there?")
        await desk.fake.say(private, desk.ana, "psst")
        taken = await desk.got(3)
    found = {(each.target, each.text) for each in taken[1:] if isinstance(each, Said)}
    assert {(event.target, "are you there?"), (f"discord:@me/{private}", "psst")} <= found


async def test_a_token_that_is_revoked_later_is_told_to_the_owner(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        desk.fake.token = "another"
        await desk.fake.drop(forget=True)
        async with asyncio.timeout(20):
            while not desk.house.notices:
                await asyncio.sleep(0.01)
        ((cause, title, text),) = desk.house.notices
    assert (cause, title) == ("surface:discord", "Discord is not connected")
    assert "DISCORD_BOT_TOKEN" in text


async def test_the_token_is_in_no_log_and_no_error(
    sqlite_store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with at_work(sqlite_store, tmp_path) as desk:
        desk.fake.fail("POST", "/messages", 400, {"message": "no", "code": 50035})
        with pytest.raises(SurfaceError) as failed:
            await desk.surface.post(desk.channel, Message(text="x"), "event:s/1")
    assert TOKEN not in caplog.text + repr(failed.value) + repr(config_of(desk.fake))


# -- commands


async def test_every_command_of_the_table_is_listed_and_reaches_the_intake(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async def answer(event: Inbound) -> Receipt:
        return Receipt(status="commanded", text="**Mode** interactive @everyone")

    async with at_work(sqlite_store, tmp_path, answer=answer) as desk:
        place = desk.fake.direct(desk.ana)
        given = await desk.fake.command(place, desk.ana, "mode", "plan")
        event = await desk.first()
        await desk.fake.until(lambda: given.told)
    assert isinstance(event, Commanded)
    assert (event.name, event.arguments, event.direct) == ("mode", "plan", True)
    assert event.target == f"discord:@me/{place}"
    assert given.texts[0].startswith("**Mode** interactive")


async def test_a_command_in_a_thread_belongs_to_the_thread(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        said = await desk.fake.say(desk.fake.general, desk.ana, f"{desk.mention} hello")
        await desk.surface.typing((await desk.first()).target)
        await desk.fake.command(said["id"], desk.ana, "stop")
        event = (await desk.got(2))[1]
    assert isinstance(event, Commanded)
    assert (event.target, event.direct) == (f"{desk.channel}/{said['id']}", False)


async def test_a_command_that_takes_long_is_put_off_in_time_and_answered(
    sqlite_store: Store, tmp_path: Path
) -> None:
    gate = asyncio.Event()

    async def answer(event: Inbound) -> Receipt:
        await gate.wait()
        return Receipt(status="commanded", text="Done at last.")

    async with at_work(sqlite_store, tmp_path, answer=answer, patience=0.05) as desk:
        given = await desk.fake.command(desk.fake.general, desk.ana, "status")
        await desk.fake.until(lambda: given.answers)
        assert given.kinds == [5]
        gate.set()
        await desk.fake.until(lambda: given.told)
    assert given.texts == ["Done at last."]


async def test_a_command_whose_interaction_is_over_runs_and_answers_in_the_dm(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async def answer(event: Inbound) -> Receipt:
        return Receipt(status="commanded", text="You are ana.")

    async with at_work(sqlite_store, tmp_path, answer=answer) as desk:
        desk.fake.window = 0.0
        given = await desk.fake.command(desk.fake.general, desk.ana, "whoami")
        private = desk.fake.direct(desk.ana)
        await desk.fake.until(lambda: desk.fake.shown(private))
    assert desk.fake.shown(private) == ["You are ana."]
    assert (given.told, len(desk.taken)) == ([], 1)


async def test_an_interaction_that_may_not_be_answered_is_an_error_and_counts_all_the_same(
    sqlite_store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with at_work(sqlite_store, tmp_path) as desk:
        desk.fake.fail("POST", "/callback", 403, {"message": "Missing Access", "code": 50001})
        await desk.fake.command(desk.fake.general, desk.ana, "status")
        await desk.first()
        async with asyncio.timeout(5):
            while "could not be handled" not in caplog.text:
                await asyncio.sleep(0.01)
    assert "Missing Access" in caplog.text


async def test_a_long_answer_comes_as_a_file(sqlite_store: Store, tmp_path: Path) -> None:
    async def answer(event: Inbound) -> Receipt:
        return Receipt(status="commanded", text="\n\n".join(f"line {n} " * 40 for n in range(80)))

    async with at_work(sqlite_store, tmp_path, answer=answer) as desk:
        given = await desk.fake.command(desk.fake.general, desk.ana, "audit")
        await desk.fake.until(lambda: given.files)
    assert given.files[0].decode().endswith("line 79 " * 40)


async def test_interactions_are_answered_before_the_commands_are_listed(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with discord() as fake, grounded(tmp_path, sqlite_store) as house:
        fake.commands = [{"id": "5", "name": "status"}]  # as they stood before this start
        fake.fail("PUT", "/commands", 500, {"message": "trouble", "code": 0}, times=99)
        surface = DiscordSurface(config_of(fake), house.ground)
        await surface.start(accepted)
        given = await fake.command(fake.general, fake.user("ana"), "status")
        await fake.until(lambda: given.answers)
        await surface.stop()


def house_now(desk: Any) -> float:
    return float(desk.house.ground.now())


async def accepted(event: Inbound) -> Receipt:
    return Receipt(status="accepted")
