"""The Telegram surface alone: what comes in, from a strict Bot API server, through real sockets."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bot.surfaces import telegram_bot
from bot.surfaces.base import (
    Commanded,
    Edited,
    Inbound,
    Message,
    Pressed,
    Receipt,
    Said,
    SurfaceError,
)
from bot.surfaces.config import TelegramConfig
from bot.surfaces.telegram import TelegramSurface
from engine.errors import StoreError
from engine.store.base import Store
from tests.fakes.ground import Told, grounded
from tests.fakes.telegram import BOT, TOKEN, FakeTelegram

ANA, BOB = 501, 502
GROUP = -1005


@dataclass(slots=True)
class Desk:
    """A surface at work, and everything it handed over."""

    fake: FakeTelegram
    surface: TelegramSurface
    house: Told
    taken: list[Inbound] = field(default_factory=list)
    #: Lines that nobody addressed to Nod.
    overheard: list[Said] = field(default_factory=list)
    answer: Callable[[Inbound], Awaitable[Receipt]] | None = None

    async def take(self, event: Inbound) -> Receipt:
        receipt = Receipt(status="accepted")
        if isinstance(event, Said) and event.overheard:
            self.overheard.append(event)
            return Receipt(status="ignored")
        if self.answer is not None:
            receipt = await self.answer(event)
        self.taken.append(event)
        async with self.fake.changed:
            self.fake.changed.notify_all()
        return receipt

    async def got(self, count: int) -> list[Inbound]:
        await self.fake.until(lambda: len(self.taken) >= count)
        return self.taken


@asynccontextmanager
async def at_work(
    store: Store,
    data: Path,
    fake: FakeTelegram,
    *,
    mode: str = "polling",
    tokens: tuple[str, ...] = (TOKEN,),
    answer: Callable[[Inbound], Awaitable[Receipt]] | None = None,
    url: str = "",
) -> AsyncIterator[Desk]:
    async with grounded(data, store, url=url) as house:
        config = TelegramConfig(tokens=tokens, mode=mode, base_url=fake.url)
        surface = TelegramSurface(config, house.ground)
        desk = Desk(fake=fake, surface=surface, house=house, answer=answer)
        try:
            await surface.start(desk.take)
            yield desk
        finally:
            await surface.stop()


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as made:
        made.private(ANA)
        made.private(BOB)
        made.group(GROUP)
        yield made


@pytest.fixture
async def desk(sqlite_store: Store, tmp_path: Path, fake: FakeTelegram) -> AsyncIterator[Desk]:
    async with at_work(sqlite_store, tmp_path, fake) as made:
        yield made


def said(event: Inbound) -> Said:
    assert isinstance(event, Said)
    return event


# -- what comes in


async def test_a_private_message_is_addressed_and_direct(desk: Desk) -> None:
    number = await desk.fake.say(ANA, ANA, "hello")
    event = said((await desk.got(1))[0])
    assert (event.target, event.text) == (f"telegram:{BOT}/{ANA}", "hello")
    assert event.event == f"{BOT}/{ANA}/{number}"
    assert event.addressed and event.direct and not event.bot
    assert (event.person.id, event.person.name) == (str(ANA), f"user{ANA}")
    await desk.fake.until(lambda: (ANA, number, "👀") in desk.fake.reactions)


async def test_in_a_group_a_bare_line_is_nobodys_and_a_mention_opens_a_chain(desk: Desk) -> None:
    await desk.fake.say(GROUP, BOB, "just talking")
    number = await desk.fake.say(GROUP, ANA, "@Nod_Bot what is up?")
    event = said((await desk.got(1))[0])
    assert event.target == f"telegram:{BOT}/{GROUP}/r{number}"
    assert event.text == "what is up?"
    assert event.addressed and not event.direct
    assert len(desk.taken) == 1
    [heard] = desk.overheard
    assert (heard.text, heard.target) == ("just talking", f"telegram:{BOT}/{GROUP}")
    assert not heard.addressed


async def test_a_mention_after_an_emoji_is_found_and_a_link_stays_whole(desk: Desk) -> None:
    await desk.fake.say(GROUP, ANA, "👨‍👩‍👧 http://example.org @nod_bot look")
    event = said((await desk.got(1))[0])
    assert event.text == "👨‍👩‍👧 http://example.org look"


async def test_overlapping_entities_print_the_text_once(desk: Desk) -> None:
    entities = [
        {"type": "bold", "offset": 0, "length": 5},
        {"type": "italic", "offset": 3, "length": 5},
    ]
    await desk.fake.say(ANA, ANA, "klmnopqr", entities=entities)
    assert said((await desk.got(1))[0]).text == "klmnopqr"


async def test_the_address_of_a_hidden_link_is_told(desk: Desk) -> None:
    entities = [{"type": "text_link", "offset": 3, "length": 4, "url": "https://x.test/a"}]
    await desk.fake.say(ANA, ANA, "👍 here please", entities=entities)
    assert said((await desk.got(1))[0]).text == "👍 here (https://x.test/a) please"


async def test_a_mention_that_answers_somebody_begins_with_what_they_wrote(desk: Desk) -> None:
    other = await desk.fake.say(GROUP, BOB, "the build is red")
    number = await desk.fake.say(GROUP, ANA, "@nod_bot why?", reply_to=other)
    event = said((await desk.got(1))[0])
    lines = await desk.surface.history(event.target, 0.0)
    assert event.target.endswith(f"/r{number}")
    assert [(line.by, line.text) for line in lines] == [(f"user{BOB}", "the build is red")]


@pytest.mark.parametrize(("topic", "place"), [(42, "42"), (None, "1")], ids=["a-topic", "general"])
async def test_a_forum_topic_is_a_thread_and_general_is_topic_one(
    desk: Desk, topic: int | None, place: str
) -> None:
    forum = desk.fake.group(-1009, forum=True)
    desk.fake.topics[forum].add(42)
    await desk.fake.say(forum, ANA, "@nod_bot hi", topic=topic)
    await desk.fake.say(forum, ANA, "and more", topic=topic)
    first, second = map(said, await desk.got(2))
    assert first.target == second.target == f"telegram:{BOT}/{forum}/{place}"
    assert first.addressed and not second.addressed
    ref = await desk.surface.post(first.target, Message(text="hello"), "answer:s/1/1")
    sent = desk.fake.of(forum)[-1]
    assert sent.topic == (42 if topic else None)
    assert ref == f"{BOT}/{forum}/{sent.id}"


async def test_a_new_topic_is_answered_in_itself(desk: Desk) -> None:
    forum = desk.fake.group(-1009, forum=True)
    desk.fake.topics[forum] |= {42, 77}
    await desk.fake.say(forum, ANA, "@nod_bot old", topic=42)
    await desk.fake.say(forum, ANA, "@nod_bot new", topic=77)
    events = list(map(said, await desk.got(2)))
    assert [event.target.rpartition("/")[2] for event in events] == ["42", "77"]
    await desk.surface.post(events[1].target, Message(text="here"), "answer:s/1/1")
    assert desk.fake.of(forum)[-1].topic == 77


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("/status", "status", ""),
        ('/schedule add "0 8 * * 1-5" brief me', "schedule", 'add "0 8 * * 1-5" brief me'),
        ("/start", "help", ""),
        ("/mode@nod_bot auto", "mode", "auto"),
    ],
)
async def test_a_command_is_one(desk: Desk, text: str, name: str, arguments: str) -> None:
    await desk.fake.say(ANA, ANA, text)
    event = (await desk.got(1))[0]
    assert isinstance(event, Commanded)
    assert (event.name, event.arguments, event.direct) == (name, arguments, True)


async def test_another_bots_command_is_not_ours_and_a_path_is_text(desk: Desk) -> None:
    await desk.fake.say(GROUP, ANA, "/status@other_bot")
    await desk.fake.say(
        ANA, ANA, "/etc/hosts is odd", entities=[{"type": "bot_command", "offset": 0, "length": 4}]
    )
    assert said((await desk.got(1))[0]).text == "/etc/hosts is odd"
    assert len(desk.taken) == 1


async def test_a_start_link_carries_its_words(desk: Desk) -> None:
    await desk.fake.say(ANA, ANA, "/start ABCD-1234")
    assert said((await desk.got(1))[0]).text == "ABCD-1234"


async def test_a_command_in_a_group_is_answered_in_private(
    sqlite_store: Store, tmp_path: Path, fake: FakeTelegram
) -> None:
    async def answer(event: Inbound) -> Receipt:
        return Receipt(status="commanded", text="Mode interactive.")

    async with at_work(sqlite_store, tmp_path, fake, answer=answer) as desk:
        await desk.fake.say(GROUP, ANA, "/mode@nod_bot")
        await fake.until(lambda: fake.of(ANA))
        assert fake.of(ANA)[0].text == "Mode interactive."
        fake.fail("sendRichMessage", 403, "Forbidden: bot can't initiate conversation with a user")
        await desk.fake.say(GROUP, BOB, "/mode@nod_bot")
        await fake.until(lambda: fake.of(GROUP))
        assert "https://t.me/nod_bot" in fake.of(GROUP)[0].text


async def test_an_edit_is_an_edit_and_never_a_command(desk: Desk) -> None:
    number = await desk.fake.say(ANA, ANA, "/restart it")
    await desk.fake.change(ANA, number, "/restart", 5)
    event = (await desk.got(2))[1]
    assert isinstance(event, Edited)
    assert (event.original, event.text) == (f"{BOT}/{ANA}/{number}", "/restart")
    assert event.event != event.original


async def test_an_album_is_one_message_with_its_caption(desk: Desk, tmp_path: Path) -> None:
    held = [await desk.fake.upload(content) for content in (b"one", b"two")]
    sizes = [{"file_id": f, "file_unique_id": f, "width": 9, "height": 9} for f in held]
    await desk.fake.say(ANA, ANA, media_group_id="7", photo=[sizes[0]], caption="both, please")
    await desk.fake.say(ANA, ANA, media_group_id="7", photo=[sizes[1]])
    await desk.fake.say(ANA, ANA, "next")
    first, second = map(said, await desk.got(2))
    assert first.text == "both, please" and second.text == "next"
    assert [file.media_type for file in first.files] == ["image/jpeg"] * 2
    for number, file in enumerate(first.files):
        await file.fetch(tmp_path / str(number))
    assert [(tmp_path / str(n)).read_bytes() for n in (0, 1)] == [b"one", b"two"]


async def test_a_text_the_app_cut_up_is_one_message(desk: Desk) -> None:
    await desk.fake.say(ANA, ANA, "a" * 4096)
    await desk.fake.say(ANA, ANA, "b" * 10)
    event = said((await desk.got(1))[0])
    assert event.text == "a" * 4096 + "\n" + "b" * 10


async def test_a_voice_note_comes_as_one(desk: Desk) -> None:
    held = await desk.fake.upload(b"OggS")
    voice = {"file_id": held, "file_unique_id": held, "duration": 2, "mime_type": "audio/ogg"}
    await desk.fake.say(ANA, ANA, voice={**voice, "file_size": 4})
    event = said((await desk.got(1))[0])
    assert event.files[0].voice and event.files[0].bytes == 4


async def test_a_file_over_the_limit_is_told_before_it_is_asked_for(
    desk: Desk, tmp_path: Path
) -> None:
    big = {"file_id": "f", "file_unique_id": "f", "file_size": 20_000_001, "file_name": "a.zip"}
    await desk.fake.say(ANA, ANA, document=big)
    event = said((await desk.got(1))[0])
    with pytest.raises(SurfaceError, match="no file over 20 MB"):
        await event.files[0].fetch(tmp_path / "a.zip")
    assert not [name for name, _ in desk.fake.calls if name == "getFile"]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"location": {"latitude": 1.5, "longitude": 2.5}}, "[location: 1.5, 2.5]"),
        ({"contact": {"first_name": "Ana", "phone_number": "+1"}}, "[contact: Ana, +1]"),
    ],
    ids=["location", "contact"],
)
async def test_what_has_no_text_is_said_in_words(
    desk: Desk, more: dict[str, Any], text: str
) -> None:
    await desk.fake.say(ANA, ANA, **more)
    assert said((await desk.got(1))[0]).text == text


async def test_another_bots_line_is_marked_and_our_own_is_dropped(desk: Desk) -> None:
    other = {"id": 99, "is_bot": True, "first_name": "Other"}
    me = {"id": BOT, "is_bot": True, "first_name": "Nod", "username": "nod_bot"}
    await desk.fake.say(GROUP, ANA, "@nod_bot me", **{"from": me})
    await desk.fake.say(GROUP, ANA, "@nod_bot hi", **{"from": other})
    event = said((await desk.got(1))[0])
    assert event.bot and event.text == "hi"
    assert len(desk.taken) == 1


# -- presses


async def test_a_press_carries_its_token_and_is_answered_in_private(
    sqlite_store: Store, tmp_path: Path, fake: FakeTelegram
) -> None:
    async def answer(event: Inbound) -> Receipt:
        text = "Already decided. `x` " + "y" * 150 if isinstance(event, Pressed) else ""
        return Receipt(status="refused", text=text)

    async with at_work(sqlite_store, tmp_path, fake, answer=answer) as desk:
        number = await fake.say(ANA, ANA, "x")
        query = await fake.press_data(ANA, number, "token-1", BOB)
        event = (await desk.got(2))[1]
        assert isinstance(event, Pressed)
        assert (event.token, event.ref) == ("token-1", f"{BOT}/{ANA}/{number}")
        assert event.person.id == str(BOB)
        await fake.until(lambda: query in fake.answers)
        assert fake.answers[query].startswith("Already decided. x y")
        assert fake.of(ANA) == []


@pytest.mark.parametrize("where", [ANA, GROUP], ids=["private", "group"])
async def test_a_long_answer_to_a_press_is_written_to_the_presser_alone(
    sqlite_store: Store, tmp_path: Path, fake: FakeTelegram, where: int
) -> None:
    async def answer(event: Inbound) -> Receipt:
        return Receipt(status="answered", text="Everything. " * 50)

    async with at_work(sqlite_store, tmp_path, fake, answer=answer):
        number = await fake.say(where, ANA, "@nod_bot x")
        query = await fake.press_data(where, number, "token-1", ANA)
        await fake.until(lambda: fake.answers.get(query) is not None)
        await fake.until(lambda: any("Everything." in each.text for each in fake.of(ANA)))
        assert not any("token" in each.text for each in fake.of(GROUP))
        assert len(fake.answers[query]) <= 200


# -- stored first, then confirmed


async def test_what_came_while_nod_was_down_is_picked_up_in_order(
    sqlite_store: Store, tmp_path: Path, fake: FakeTelegram
) -> None:
    for word in ("one", "two", "three"):
        await fake.say(ANA, ANA, word)
    async with at_work(sqlite_store, tmp_path, fake) as desk:
        await desk.got(3)
        assert [said(event).text for event in desk.taken] == ["one", "two", "three"]


async def test_an_update_is_on_the_disk_before_it_is_confirmed(
    sqlite_store: Store, tmp_path: Path, fake: FakeTelegram
) -> None:
    gate = asyncio.Event()

    async def answer(event: Inbound) -> Receipt:
        await gate.wait()
        return Receipt(status="accepted")

    folder = tmp_path / "telegram" / str(BOT)
    async with at_work(sqlite_store, tmp_path, fake, answer=answer) as desk:
        await fake.say(ANA, ANA, "hello")
        await fake.until(lambda: not fake.bot.updates)  # confirmed, and not taken
        kept = [json.loads(path.read_text()) for path in folder.iterdir()]
        assert [raw["message"]["text"] for raw in kept] == ["hello"]
        assert desk.taken == []
    async with at_work(sqlite_store, tmp_path, fake) as again:
        assert said((await again.got(1))[0]).text == "hello"
        async with asyncio.timeout(5):
            while list(folder.iterdir()):
                await asyncio.sleep(0.01)


async def test_a_torn_line_in_the_spool_is_skipped(
    sqlite_store: Store, tmp_path: Path, fake: FakeTelegram
) -> None:
    folder = tmp_path / "telegram" / str(BOT)
    folder.mkdir(parents=True)
    (folder / "000000000001.jsonl").write_bytes(b'{"update_id": 1, "mess')
    async with at_work(sqlite_store, tmp_path, fake) as desk:
        await fake.say(ANA, ANA, "hello")
        assert said((await desk.got(1))[0]).text == "hello"


async def test_an_update_that_could_not_be_stored_is_taken_later_and_in_order(
    sqlite_store: Store, tmp_path: Path, fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telegram_bot, "RETRY_FIRST", 0.01)
    failures = [StoreError("busy"), StoreError("busy"), StoreError("busy"), StoreError("busy")]

    async def answer(event: Inbound) -> Receipt:
        if failures:
            raise failures.pop()
        return Receipt(status="accepted")

    async with at_work(sqlite_store, tmp_path, fake, answer=answer) as desk:
        await fake.say(ANA, ANA, "one")
        await fake.say(ANA, ANA, "two")
        await desk.got(2)
        assert [said(event).text for event in desk.taken] == ["one", "two"]
        assert desk.house.notices == []


async def test_an_update_that_always_fails_blocks_nobody_and_is_told_once(desk: Desk) -> None:
    await desk.fake.push({"message": {"message_id": "not a number", "chat": {"id": ANA}}})
    await desk.fake.say(ANA, ANA, "hello")
    assert said((await desk.got(1))[0]).text == "hello"
    assert [title for _, title, _ in desk.house.notices] == ["A message could not be read"]
    assert (
        desk.house.ground.counts.get("nod_refused_total", surface="telegram", reason="failed") == 1
    )


async def test_an_update_that_cannot_be_read_is_kept_and_tried_again_at_the_next_start(
    sqlite_store: Store, tmp_path: Path, fake: FakeTelegram
) -> None:
    folder = tmp_path / "telegram" / str(BOT)
    async with at_work(sqlite_store, tmp_path, fake) as desk:
        number = await fake.say(ANA, ANA, "precious")
        await desk.got(1)
        held = {**fake.messages[ANA, number], "message_id": "not a number"}
        await fake.push({"message": held})
        await fake.say(ANA, ANA, "after it")
        await desk.got(2)
        assert len(desk.house.notices) == 1 and "next start" in desk.house.notices[0][2]
    (kept,) = folder.iterdir()
    async with at_work(sqlite_store, tmp_path, fake) as desk:  # which still cannot read it
        async with asyncio.timeout(5):
            while not desk.house.notices:
                await asyncio.sleep(0.01)
    kept.write_text(kept.read_text().replace('"not a number"', "77"))  # what a newer one reads
    async with at_work(sqlite_store, tmp_path, fake) as desk:
        assert said((await desk.got(1))[0]).text == "precious"
        async with asyncio.timeout(5):
            while list(folder.iterdir()):
                await asyncio.sleep(0.01)


async def test_one_slow_conversation_holds_no_other_back_and_each_keeps_its_order(
    sqlite_store: Store, tmp_path: Path, fake: FakeTelegram
) -> None:
    gate = asyncio.Event()

    async def answer(event: Inbound) -> Receipt:
        if event.person.id == str(ANA):
            await gate.wait()
        return Receipt(status="accepted")

    async with at_work(sqlite_store, tmp_path, fake, answer=answer) as desk:
        for word in ("1", "2", "3"):
            await fake.say(ANA, ANA, word)
            await fake.say(BOB, BOB, word)
        await desk.got(3)
        assert {event.person.id for event in desk.taken} == {str(BOB)}
        gate.set()
        await desk.got(6)
        for person in (ANA, BOB):
            words = [said(e).text for e in desk.taken if e.person.id == str(person)]
            assert words == ["1", "2", "3"]


# -- the webhook


async def test_a_webhook_takes_updates_with_the_secret_and_none_without(
    sqlite_store: Store, tmp_path: Path, fake: FakeTelegram
) -> None:
    url = "https://nod.test"
    async with at_work(sqlite_store, tmp_path, fake, mode="webhook", url=url) as desk:
        assert fake.bot.webhook == f"{url}/telegram/{BOT}"
        fake.front = desk.house.ground.web.port
        await fake.say(ANA, ANA, "hello")
        assert said((await desk.got(1))[0]).text == "hello"
        await fake.until(lambda: not fake.bot.updates)
        address = fake.behind(fake.bot)
        forged = {"update_id": 1, "message": fake.messages[ANA, 1]}
        headers = {"X-Telegram-Bot-Api-Secret-Token": "guessed"}
        async with aiohttp.ClientSession() as session:
            async with session.post(address, json=forged) as answer:
                assert answer.status == 403
            async with session.post(address, json=forged, headers=headers) as answer:
                assert answer.status == 403
            right = {"X-Telegram-Bot-Api-Secret-Token": fake.bot.secret}
            async with session.post(address, data=b"[]", headers=right) as answer:
                assert answer.status == 400
        assert len(desk.taken) == 1
        counts = desk.house.ground.counts
        assert counts.get("nod_refused_total", surface="telegram", reason="secret") == 2
        assert counts.get("nod_refused_total", surface="telegram", reason="malformed") == 1


@pytest.mark.parametrize("url", ["", "http://nod.test"])
async def test_a_webhook_without_an_https_address_is_told_with_what_to_set(
    sqlite_store: Store, tmp_path: Path, fake: FakeTelegram, url: str
) -> None:
    with pytest.raises(SurfaceError, match=r"under https alone.*Set web.url"):
        async with at_work(sqlite_store, tmp_path, fake, mode="webhook", url=url):
            pass


# -- trouble


async def test_a_second_poller_is_told_to_the_owner_and_polling_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telegram_bot, "RETRY_FIRST", 0.01)
    desk.fake.fail("getUpdates", 409, "Conflict: terminated by other getUpdates request", times=4)
    await desk.fake.say(ANA, ANA, "wakes the poll")
    await desk.got(1)
    await desk.fake.say(ANA, ANA, "after")
    await desk.got(2)
    assert [title for _, title, _ in desk.house.notices] == ["Two programs poll one bot"]
    assert desk.house.ground.counts.get("nod_surface_faults_total", surface="telegram") == 1


async def test_a_revoked_token_is_told_and_the_other_bot_goes_on(
    sqlite_store: Store, tmp_path: Path, fake: FakeTelegram
) -> None:
    token = "7000002:AAFake-token_that_is_35_characters_y"
    fake.add_bot(token, "other_bot")
    async with at_work(sqlite_store, tmp_path, fake, tokens=(TOKEN, token)) as desk:
        fake.bot.revoked = True
        async with fake.changed:
            fake.changed.notify_all()
        await fake.say(BOB, BOB, "hello", token=token)
        event = said((await desk.got(1))[0])
        assert event.target == f"telegram:7000002/{BOB}"
        async with asyncio.timeout(5):
            while not desk.house.notices:
                await asyncio.sleep(0.01)
        assert [title for _, title, _ in desk.house.notices] == ["A Telegram bot is shut out"]
        assert TOKEN not in str(desk.house.notices)
        await desk.surface.post(f"telegram:7000002/{BOB}", Message(text="still here"), "a:1")


async def test_a_wrong_token_stops_the_start_with_a_sentence_that_does_not_hold_it(
    sqlite_store: Store, tmp_path: Path, fake: FakeTelegram
) -> None:
    wrong = "123:AAwrong_wrong_wrong_wrong_wrong_wr"
    with pytest.raises(SurfaceError, match="does not know the token of bot 123") as raised:
        async with at_work(sqlite_store, tmp_path, fake, tokens=(wrong,)):
            pass
    assert wrong not in str(raised.value) and raised.value.retry_after is None


async def test_no_log_line_and_no_error_holds_the_token(
    sqlite_store: Store,
    tmp_path: Path,
    fake: FakeTelegram,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(telegram_bot, "RETRY_FIRST", 0.01)
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # as bot.log sets it
    logging.getLogger("httpcore").setLevel(logging.WARNING)
    logging.getLogger("telegram").setLevel(logging.WARNING)
    async with at_work(sqlite_store, tmp_path, fake) as desk:
        fake.cut("getUpdates")
        fake.cut("sendRichMessage")
        await fake.say(ANA, ANA, "hello")
        await desk.got(1)
        with pytest.raises(SurfaceError) as raised:
            await desk.surface.post(f"telegram:{BOT}/{ANA}", Message(text="x"), "a:1")
    assert TOKEN not in str(raised.value)
    assert raised.value.__cause__ is None and raised.value.__context__ is None
    assert TOKEN not in caplog.text


async def test_privacy_mode_is_told_at_the_start_and_in_a_group_it_is_added_to(
    sqlite_store: Store, tmp_path: Path, fake: FakeTelegram, caplog: pytest.LogCaptureFixture
) -> None:
    async with at_work(sqlite_store, tmp_path, fake):
        assert "privacy mode is on" in caplog.text
        member = {"user": {"id": BOT, "is_bot": True, "first_name": "Nod"}}
        change = {
            "chat": fake.chats[GROUP],
            "from": {"id": ANA, "is_bot": False, "first_name": "Ana"},
            "date": 1,
            "old_chat_member": {**member, "status": "left"},
            "new_chat_member": {**member, "status": "member"},
        }
        await fake.push({"my_chat_member": change})
        await fake.until(lambda: fake.of(GROUP))
        assert "/setprivacy" in fake.of(GROUP)[0].text


async def test_the_menu_of_commands_is_set(desk: Desk) -> None:
    await desk.fake.until(lambda: desk.fake.bot.commands)
    names = {each["command"] for each in desk.fake.bot.commands}
    assert {"help", "status", "stop", "schedule", "inbox"} <= names
