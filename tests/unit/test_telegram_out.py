"""What the Telegram surface posts: forms, limits, edits, drafts, files, pauses; nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.cards import Button, Card, Row
from bot.outbound.outbox import DUPLICATE
from bot.surfaces.base import Message, SurfaceError
from bot.surfaces.telegram_places import Place, Post
from bot.surfaces.telegram_rich import rich
from bot.surfaces.telegram_words import keyboard, looks
from engine.store.base import Store
from tests.fakes.markup import telegram_pings
from tests.fakes.telegram import BOT, FakeTelegram
from tests.fakes.telegram_rich import rich_text
from tests.unit.render_texts import documents, keeps
from tests.unit.test_telegram import ANA, BOB, GROUP, Desk, at_work

HOME, TEAM = f"telegram:{BOT}/{ANA}", f"telegram:{BOT}/{GROUP}"
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20

RICH_TEXT = """# Title

Some **bold** _words_, `code`, [a link](https://x.test/a_(b)) and <thinking>.

1. one
2. two
   - inner
   - [x] done

| a | b |
|---|--:|
| 1 | 2 |

> quoted

```python
print("x < y")
```
"""


@pytest.fixture
async def fake(request: pytest.FixtureRequest) -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram(rich=getattr(request, "param", True)) as made:
        made.private(ANA)
        made.private(BOB)
        made.group(GROUP)
        yield made


@pytest.fixture
async def desk(sqlite_store: Store, tmp_path: Path, fake: FakeTelegram) -> AsyncIterator[Desk]:
    async with at_work(sqlite_store, tmp_path, fake) as made:
        yield made


plain_server = pytest.mark.parametrize("fake", [False], indirect=True, ids=["old-server"])
both_servers = pytest.mark.parametrize(
    "fake", [True, False], indirect=True, ids=["rich", "old-server"]
)


def card(*, decided: str = "", preview: str = "Good morning", rows: int = 1) -> Card:
    buttons = (
        Button(label="Approve", key="a", answer="once", token="tok-yes"),
        Button(label="Deny", key="d", answer="deny", token="tok-no", asks="reason"),
    )
    made = tuple(
        Row(
            prompt=f"p{number}",
            title="send_message",
            facts=(("To", "`telegram:1/2`"),),
            preview="" if decided else preview,
            buttons=() if decided else buttons,
            decided=decided,
        )
        for number in range(rows)
    )
    return Card(id="c1", title="Nod asks for your nod", rows=made)


# -- forms


async def test_a_rich_message_is_tried_first(desk: Desk) -> None:
    await desk.surface.post(HOME, Message(text=RICH_TEXT), "answer:s/1/1")
    sent = desk.fake.of(ANA)[0]
    assert sent.rich and "<thinking>" in sent.text and "print" in sent.text


@plain_server
async def test_an_old_server_gets_html_and_is_asked_for_rich_only_once(desk: Desk) -> None:
    for number in range(3):
        await desk.surface.post(HOME, Message(text=RICH_TEXT), f"answer:s/{number}/1")
    sent = desk.fake.of(ANA)
    assert len(sent) == 3 and not any(each.rich for each in sent)
    assert "<thinking>" in sent[0].text
    assert {"bold", "pre"} <= {each["type"] for each in sent[0].entities}


@plain_server
async def test_what_the_server_cannot_parse_is_sent_plain(desk: Desk) -> None:
    desk.fake.fail("sendMessage", 400, "Bad Request: can't parse entities: whatever")
    await desk.surface.post(HOME, Message(text="**bold** (docs) v1.2 - {x}"), "answer:s/1/1")
    sent = desk.fake.of(ANA)[0]
    assert sent.text == "bold (docs) v1.2 - {x}" and sent.entities == []


async def test_a_refused_rich_message_falls_back_for_itself_alone(desk: Desk) -> None:
    desk.fake.fail("sendRichMessage", 400, "Bad Request: RICH_MESSAGE_INVALID")
    await desk.surface.post(HOME, Message(text="one"), "answer:s/1/1")
    await desk.surface.post(HOME, Message(text="two"), "answer:s/1/2")
    assert [each.rich for each in desk.fake.of(ANA)] == [False, True]


@both_servers
@pytest.mark.parametrize(
    "text",
    [
        "See (docs) v1.2 - done! {x}\n\n---\n\n[a](https://x.test/a_(b))",
        "p " * 1975 + "\n\n```python\n" + "x = 1\n" * 40 + "```",
        "```\n" + "y" * 9000 + "\n```",
        "👩‍💻" * 1500,
        "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 600,
        "|" + "h|" * 30 + "\n|" + "---|" * 30 + "\n|" + "c|" * 30,
        "z" * 40_000,
        "- a\n" * 700,
        "1. a\n   1. b\n      1. c\n         - d\n\n2) e\n\n- f",
        "> " * 30 + "deep",
    ],
    ids=[
        "reserved-signs",
        "fence-at-the-border",
        "endless-line",
        "families",
        "long-table",
        "wide-table",
        "one-word",
        "list",
        "lists-in-lists",
        "quotes",
    ],
)
async def test_every_text_is_taken_within_the_limits(desk: Desk, text: str) -> None:
    await desk.surface.post(HOME, Message(text=text, footer="3 steps"), "answer:s/1/1")
    assert desk.fake.of(ANA)
    assert "3 steps" in desk.fake.of(ANA)[-1].text


@both_servers
async def test_a_models_text_tells_nobody(desk: Desk) -> None:
    text = "@channel_name hi [x](tg://user?id=1) ![p](https://evil.test/?q=secret)"
    await desk.surface.post(HOME, Message(text=text), "answer:s/1/1")
    name, given = next(each for each in desk.fake.calls if each[0].startswith("send"))
    sent = desk.fake.of(ANA)[0]
    assert "<img" not in str(given) and "tg://" not in str(sent.entities)
    if name == "sendMessage":
        assert telegram_pings(sent.text) == []
    else:
        assert given["rich_message"]["skip_entity_detection"] is True


def test_rich_html_keeps_lists_tables_and_quotes() -> None:
    (made,) = rich(RICH_TEXT)
    assert "<h1>Title</h1>" in made and "<table bordered>" in made
    assert "<ol><li><p>one</p></li><li><p>two</p><ul><li>" in made
    assert "☑ done" in made and "<blockquote>" in made
    assert rich_text(made)


def test_random_text_is_taken_as_rich_and_nothing_of_it_is_lost() -> None:
    for text in documents(7, 300):
        assert keeps(text, "\n".join(rich_text(part) for part in rich(text))), text


# -- where


async def test_a_reply_chain_is_answered_as_a_reply(desk: Desk) -> None:
    root = await desk.fake.say(GROUP, ANA, "@nod_bot hi")
    await desk.surface.post(f"{TEAM}/r{root}", Message(text="hello"), "answer:s/1/1")
    assert desk.fake.of(GROUP)[0].reply_to == root
    await desk.surface.post(f"{TEAM}/r999", Message(text="it is gone"), "answer:s/1/2")
    assert desk.fake.of(GROUP)[1].reply_to is None


@pytest.mark.parametrize(
    "target", ["telegram:1", "telegram:1/x", "telegram:1/2/3/4", "slack:T/C", "telegram:1/2/rx"]
)
async def test_what_is_no_place_is_refused_with_a_sentence(desk: Desk, target: str) -> None:
    with pytest.raises(SurfaceError, match="no place on Telegram"):
        await desk.surface.post(target, Message(text="x"), "a:1")


@pytest.mark.parametrize("text", [f"telegram:{BOT}/5", f"telegram:{BOT}/-5/7"])
def test_general_has_no_thread_number(text: str) -> None:
    assert Place.parse(text).thread in (None, 7)
    assert Place.parse(f"telegram:{BOT}/-5/1").thread is None


@pytest.mark.parametrize("ref", ["1/-2/3", "1/2/d77", "1/2/d77.5"])
def test_a_ref_reads_back_as_it_was_written(ref: str) -> None:
    assert str(Post.parse(ref)) == ref


# -- cards


async def test_a_card_has_its_buttons_and_loses_them_when_decided(desk: Desk) -> None:
    ref = await desk.surface.post(HOME, Message(card=card()), "prompt:p0")
    sent = desk.fake.of(ANA)[0]
    assert sent.labels == ["Approve", "Deny"] and "Good morning" in sent.text
    await desk.surface.edit(ref, Message(card=card(decided="Approved by @ana, 09:02")))
    assert sent.labels == [] and "Approved by @ana, 09:02" in sent.text


def test_the_button_for_all_is_there_only_when_everything_is_shown() -> None:
    both = Button(label="Approve all", key="A", answer="all", token="tok-all")
    look = Button(label="Why do you ask?", key="w", answer="why", token="tok-why")
    made = card(rows=2)
    made = replace(made, buttons=(both,), rows=tuple(replace(r, looks=(look,)) for r in made.rows))

    def labels(shown: Card) -> list[str]:
        (one,) = looks(Message(card=shown), is_rich=False)
        lines = (one.keyboard or {"inline_keyboard": []})["inline_keyboard"]
        return [button["text"] for line in lines for button in line]

    assert labels(made)[-1] == "Approve all" and "2. Why do you ask?" in labels(made)
    long = replace(made, rows=tuple(replace(row, preview="x" * 3000) for row in made.rows))
    assert "Approve all" not in labels(long)
    many = replace(made, rows=made.rows * 30)
    assert len(labels(many)) <= 100 and "1. Approve" in labels(many)


async def test_a_card_of_several_rows_numbers_their_buttons(desk: Desk) -> None:
    await desk.surface.post(HOME, Message(card=card(rows=2)), "prompt:p0")
    assert desk.fake.of(ANA)[0].labels == ["1. Approve", "1. Deny", "2. Approve", "2. Deny"]


@both_servers
async def test_a_card_is_always_one_message(desk: Desk) -> None:
    await desk.surface.post(HOME, Message(card=card(preview="x" * 1500, rows=30)), "prompt:p0")
    (sent,) = desk.fake.of(ANA)
    assert len(sent.labels) == 60
    if not sent.rich:
        assert "/inbox p3" in sent.text


@pytest.mark.parametrize(
    ("token", "is_taken"),
    [("x" * 64, True), ("x" * 65, False), ("ж" * 32, True), ("ж" * 33, False), ("", False)],
    ids=["64-bytes", "65-bytes", "64-bytes-cyrillic", "66-bytes-cyrillic", "none"],
)
def test_a_buttons_value_is_measured_in_bytes(token: str, is_taken: bool) -> None:
    button = Button(label="Approve", key="a", answer="once", token=token)
    made = Card(id="c", title="t", rows=(Row(prompt="p", title="t", buttons=(button,)),))
    if is_taken:
        assert keyboard(made)
    else:
        with pytest.raises(SurfaceError, match="more than 64 bytes"):
            keyboard(made)


# -- growing answers


async def test_in_private_an_answer_grows_as_a_draft_and_is_posted_once(desk: Desk) -> None:
    ref = await desk.surface.post(HOME, Message(text="Hel …", growing=True), "answer:s/1/1")
    await desk.surface.edit(ref, Message(text="Hello wor …", growing=True))
    assert desk.fake.of(ANA) == []
    assert [text for _, _, text in desk.fake.drafts] == ["Hel …", "Hello wor …"]
    assert len({number for _, number, _ in desk.fake.drafts}) == 1
    await desk.surface.edit(ref, Message(text="Hello world."))
    await desk.surface.edit(ref, Message(text="Hello world."))
    assert [each.text for each in desk.fake.of(ANA)] == ["Hello world."]


async def test_a_draft_of_an_earlier_run_is_posted_as_a_possible_duplicate(desk: Desk) -> None:
    await desk.surface.edit(f"{BOT}/{ANA}/d77", Message(text="Hello."))
    assert DUPLICATE in desk.fake.of(ANA)[0].text


async def test_in_a_group_an_answer_grows_by_edits_that_keep_the_pace(desk: Desk) -> None:
    root = await desk.fake.say(GROUP, ANA, "@nod_bot hi")
    place = f"{TEAM}/r{root}"
    ref = await desk.surface.post(place, Message(text="a …", growing=True), "answer:s/1/1")
    for text in ("a b …", "a b c …", "a b c d …"):
        await desk.surface.edit(ref, Message(text=text, growing=True))
    sent = desk.fake.of(GROUP)[0]
    assert len(sent.edits) == 1
    await desk.surface.edit(ref, Message(text="a b c d e."))
    assert sent.text == "a b c d e." and desk.fake.of(GROUP) == [sent]


@plain_server
async def test_an_answer_that_outgrew_its_message_goes_on_in_another(desk: Desk) -> None:
    root = await desk.fake.say(GROUP, ANA, "@nod_bot hi")
    place = f"{TEAM}/r{root}"
    ref = await desk.surface.post(place, Message(text="a …", growing=True), "answer:s/1/1")
    whole = "word " * 2000
    await desk.surface.edit(ref, Message(text=whole))
    await desk.surface.edit(ref, Message(text=whole))
    shown = desk.fake.of(GROUP)
    assert len(shown) == 3
    assert sum(each.text.count("word") for each in shown) == 2000
    await desk.surface.edit(ref, Message(text="short"))
    assert [each.text for each in desk.fake.of(GROUP)] == ["short"]


async def test_equal_edits_are_skipped_and_not_modified_is_a_success(desk: Desk) -> None:
    ref = await desk.surface.post(TEAM, Message(text="same"), "answer:s/1/1")
    await desk.surface.edit(ref, Message(text="same"))
    assert [name for name, _ in desk.fake.calls].count("editMessageText") == 0
    stranger = f"{BOT}/{GROUP}/{desk.fake.of(GROUP)[0].id}"
    desk.fake.fail("editMessageText", 400, "Bad Request: message is not modified: …")
    await desk.surface.edit(stranger, Message(text="other"))
    edits = [name for name, _ in desk.fake.calls].count("editMessageText")
    assert edits == 1, "it is tried in no other form"


# -- files


async def test_a_document_is_posted_with_its_caption(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "briefing.md"
    file.write_text("# Briefing")
    await desk.surface.upload(HOME, [file], Message(text="the **briefing**"), "act:c/1")
    (sent,) = desk.fake.of(ANA)
    assert sent.text == "the briefing" and sent.files == [("briefing.md", b"# Briefing")]


async def test_pictures_are_one_album_and_a_bad_picture_is_a_document(
    desk: Desk, tmp_path: Path
) -> None:
    files = [tmp_path / "a.png", tmp_path / "b.png"]
    for file in files:
        file.write_bytes(PNG)
    await desk.surface.upload(HOME, files, Message(text="both"), "act:c/1")
    assert [name for name, _ in desk.fake.of(ANA)[0].files] == ["a.png", "b.png"]
    files[0].write_bytes(b"no picture")
    await desk.surface.upload(HOME, files[:1], Message(text="one"), "act:c/2")
    names = [name for name, _ in desk.fake.calls]
    assert names[-2:] == ["sendPhoto", "sendDocument"]


async def test_a_caption_that_is_too_long_goes_before_the_file(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("x")
    await desk.surface.upload(HOME, [file], Message(text="long " * 300), "act:c/1")
    text, held = desk.fake.of(ANA)
    assert text.text.count("long") == 300 and held.files and not held.text


@pytest.mark.parametrize("size", [0, 50_000_001], ids=["empty", "over-50-MB"])
async def test_a_file_that_cannot_be_sent_is_told(desk: Desk, tmp_path: Path, size: int) -> None:
    file = tmp_path / "a.bin"
    with file.open("wb") as out:
        out.truncate(size)
    with pytest.raises(SurfaceError, match="Telegram does not take it"):
        await desk.surface.upload(HOME, [file], Message(), "act:c/1")


# -- trouble


async def test_a_pause_holds_its_own_chat_for_as_long_as_asked_and_no_other(desk: Desk) -> None:
    desk.fake.fail("sendRichMessage", 429, "Too Many Requests: retry after 1000", retry_after=1000)
    with pytest.raises(SurfaceError) as first:
        await desk.surface.post(HOME, Message(text="x"), "answer:s/1/1")
    assert first.value.certain and 980 < (first.value.retry_after or 0) <= 1000
    before = len(desk.fake.calls)
    with pytest.raises(SurfaceError) as second:
        await desk.surface.post(HOME, Message(text="x"), "answer:s/1/1")
    assert 980 < (second.value.retry_after or 0) <= 1000
    await desk.surface.typing(HOME)
    assert len(desk.fake.calls) == before
    await desk.surface.post(TEAM, Message(text="others go on"), "answer:s/2/1")


@plain_server
async def test_a_post_that_broke_off_goes_on_where_it_stopped(desk: Desk) -> None:
    await desk.surface.post(TEAM, Message(text="warm"), "answer:s/0/1")
    whole = Message(text="word " * 2000)
    calls = desk.fake.calls
    real = len(calls)

    async def post() -> str:
        return await desk.surface.post(TEAM, whole, "answer:s/1/1")

    desk.fake.let("sendMessage", 1)
    desk.fake.fail("sendMessage", 400, "Bad Request: a passing fault")
    with pytest.raises(SurfaceError):
        await post()
    await post()
    texts = [each.text for each in desk.fake.of(GROUP)[1:]]
    assert sum(text.count("word") for text in texts) == 2000
    assert len(calls) > real


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (403, "Forbidden: bot was blocked by the user"),
        (400, "Bad Request: chat not found"),
        (400, "Bad Request: message thread not found"),
    ],
)
async def test_what_the_server_refuses_for_good_is_not_tried_again(
    desk: Desk, code: int, what: str
) -> None:
    desk.fake.fail("sendRichMessage", code, what)
    with pytest.raises(SurfaceError, match="(?i)" + what.partition(": ")[2]) as raised:
        await desk.surface.post(HOME, Message(text="x"), "answer:s/1/1")
    assert raised.value.certain and raised.value.retry_after is None
    assert desk.fake.of(ANA) == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_cut_connection_leaves_it_open_whether_it_was_posted(
    desk: Desk, after: bool
) -> None:
    desk.fake.cut("sendRichMessage", after=after)
    with pytest.raises(SurfaceError) as raised:
        await desk.surface.post(HOME, Message(text="x"), "answer:s/1/1")
    assert not raised.value.certain and raised.value.retry_after
    assert len(desk.fake.of(ANA)) == int(after)


async def test_a_server_that_is_not_there_surely_took_nothing(
    desk: Desk, fake: FakeTelegram
) -> None:
    assert fake._runner is not None
    await fake._runner.cleanup()
    with pytest.raises(SurfaceError) as raised:
        await desk.surface.post(HOME, Message(text="x"), "answer:s/1/1")
    assert raised.value.certain and raised.value.retry_after


async def test_a_bad_gateway_is_another_try_away(desk: Desk) -> None:
    desk.fake.fail("sendRichMessage", 502, "Bad Gateway")
    with pytest.raises(SurfaceError) as raised:
        await desk.surface.post(HOME, Message(text="x"), "answer:s/1/1")
    assert raised.value.retry_after


async def test_posts_of_many_chats_go_out_side_by_side(desk: Desk) -> None:
    chats = [desk.fake.private(9000 + number) for number in range(20)]

    async def post(chat: int) -> Any:
        return await desk.surface.post(f"telegram:{BOT}/{chat}", Message(text=str(chat)), str(chat))

    refs = await asyncio.gather(*map(post, chats))
    assert len(set(refs)) == 20
    assert all(desk.fake.of(chat)[0].text == str(chat) for chat in chats)
