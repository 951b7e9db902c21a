"""Pairing: only the code, only in a direct message, only once; strangers until then and after."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bot import pairing
from bot.commands.table import run
from bot.surfaces.base import Author, Said
from bot.surfaces.table import PLATFORMS
from engine import inbox, people
from engine.errors import NodError
from engine.store.base import Store
from tests.fakes.chat import OWNER, Chat, chatting
from tests.fakes.scripted import ScriptedModel
from tests.fakes.surface import MemorySurface

NOW = 1_750_057_320.0
ANA = Author(id="42", name="Ana")
EVE = Author(id="66", name="Eve")


@dataclass
class Clock:
    """A clock that a test sets."""

    at: float = NOW

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def chat(sqlite_store: Store, tmp_path: Path, clock: Clock) -> AsyncIterator[Chat]:
    """An intake, with a Telegram that is closed until paired."""
    async with chatting(
        sqlite_store,
        tmp_path,
        ScriptedModel(),
        surfaces=[MemorySurface("telegram")],
        at_work=False,
        presenting=False,
        now=clock,
    ) as made:
        yield made


async def code_of(chat: Chat) -> str:
    text = await run(chat.context.of(OWNER, "console:main"), "pair", "")
    return text.splitlines()[0]


def typed(text: str, event: str = "e1", **changes: Any) -> Said:
    fields: dict[str, Any] = {"target": "telegram:B1/42", "person": ANA, "direct": True, **changes}
    return Said(event=event, text=text, **fields)


async def known(chat: Chat, external: str = "42") -> str:
    """Return principal and role of somebody on Telegram; empty: unknown."""
    person = await chat.store.read(lambda tx: people.person_of(tx, "local", "telegram", external))
    return f"{person.id} {person.role}" if person else ""


@pytest.mark.parametrize("form", ["{}", " {} ", "{} ", "lower", "bare"])
async def test_the_code_makes_its_sender_the_owner(chat: Chat, form: str) -> None:
    code = await code_of(chat)
    text = {"lower": code.lower(), "bare": code.replace("-", "")}.get(form) or form.format(code)
    receipt = await chat.take(typed(text))
    assert (receipt.status, "paired" in receipt.text) == ("answered", True)
    assert await known(chat) == "console owner"
    places = await chat.store.read(lambda tx: people.places_of(tx, "local", people.CONSOLE))
    assert places == ["telegram:B1/42"]


async def test_a_code_counts_once(chat: Chat) -> None:
    code = await code_of(chat)
    await chat.take(typed(code))
    receipt = await chat.take(typed(code, "e2", person=EVE, target="telegram:B1/66"))
    assert receipt.status != "answered"
    assert await known(chat, "66") == ""


async def test_a_second_copy_of_the_code_is_nothing(chat: Chat) -> None:
    code = await code_of(chat)
    await chat.take(typed(code))
    assert (await chat.take(typed(code))).status == "duplicate"


@pytest.mark.parametrize(
    "changes", [{"direct": False}, {"bot": True}], ids=["in a group", "a machine"]
)
async def test_the_code_elsewhere_is_no_code(chat: Chat, changes: dict[str, Any]) -> None:
    code = await code_of(chat)
    await chat.take(typed(code, **changes))
    assert await known(chat) == ""
    await chat.take(typed(code, "e2"))
    assert await known(chat) == "console owner"  # it was not used up


async def test_a_code_lives_ten_minutes(chat: Chat, clock: Clock) -> None:
    code = await code_of(chat)
    clock.at += pairing.MINUTES * 60.0
    await chat.take(typed(code))
    assert await known(chat) == ""


async def test_five_wrong_tries_void_the_code(chat: Chat) -> None:
    code = await code_of(chat)
    wrong = "0000-0000" if code != "0000-0000" else "1111-1111"
    for n in range(pairing.TRIES):
        await chat.take(typed(wrong, f"w{n}", person=EVE, target="telegram:B1/66"))
    await chat.take(typed(code))
    assert await known(chat) == ""


async def test_a_new_code_voids_the_one_before(chat: Chat) -> None:
    first, second = await code_of(chat), await code_of(chat)
    await chat.take(typed(first))
    assert await known(chat) == ""
    await chat.take(typed(second, "e2"))
    assert await known(chat) == "console owner"


async def test_the_code_itself_is_not_kept(chat: Chat) -> None:
    code = await code_of(chat)
    rows = await chat.rows("setting_get", tenant="local", name="pairing")
    assert code.replace("-", "") not in rows[0]["value"]


async def test_a_code_is_made_at_the_console_only(chat: Chat) -> None:
    with pytest.raises(NodError, match="console only"):
        await run(chat.context.of(OWNER, "telegram:B1/42"), "pair", "")


async def test_somebody_who_was_let_in_before_can_pair_too(chat: Chat) -> None:
    await chat.store.write(
        lambda tx: people.add_person(
            tx, "local", "telegram", "42", name="Ana", role="member", by="console", now=NOW
        )
    )
    await chat.take(typed(await code_of(chat)))
    assert await known(chat) == "console owner"


async def test_until_paired_strangers_get_one_line_and_the_owner_no_card(chat: Chat) -> None:
    said = [await chat.take(typed("hello", f"e{n}")) for n in range(3)]
    assert [receipt.status for receipt in said] == ["refused"] * 3
    assert [bool(receipt.text) for receipt in said] == [True, False, False]
    assert "pair" in said[0].text
    assert await chat.store.read(lambda tx: inbox.pending(tx, "local")) == []


@pytest.mark.parametrize("platform", sorted(PLATFORMS))
async def test_every_platform_is_closed_until_the_owner_is_known_there(
    chat: Chat, platform: str
) -> None:
    def closed() -> Any:
        return chat.store.read(lambda tx: pairing.closed(tx, "local", platform))

    assert await closed()
    await chat.store.write(
        lambda tx: people.join_owner(tx, "local", platform, "1", name="Ana", now=NOW)
    )
    assert not await closed()


async def test_once_paired_strangers_ask_for_access(chat: Chat) -> None:
    await chat.take(typed(await code_of(chat)))
    first = await chat.take(typed("hi", "e2", person=EVE, target="telegram:B1/66"))
    again = await chat.take(typed("hi?", "e3", person=EVE, target="telegram:B1/66"))
    assert (first.status, bool(first.text), again.text) == ("waiting", True, "")
    prompts = await chat.store.read(lambda tx: inbox.pending(tx, "local"))
    assert [(p.kind, p.subject) for p in prompts] == [("access", "telegram:66")]


async def test_a_strangers_line_in_a_group_that_is_not_for_nod_is_nobodys(chat: Chat) -> None:
    await chat.take(typed(await code_of(chat)))
    line = typed("lunch?", "e2", person=EVE, target="telegram:B1/-100", direct=False)
    receipt = await chat.take(Said(**{**_fields(line), "addressed": False}))
    assert (receipt.status, receipt.text) == ("ignored", "")
    assert await chat.store.read(lambda tx: inbox.pending(tx, "local")) == []


def _fields(said: Said) -> dict[str, Any]:
    return {name: getattr(said, name) for name in Said.__dataclass_fields__}


async def test_machines_that_are_unknown_get_no_line(chat: Chat) -> None:
    receipt = await chat.take(typed("I am a bot", bot=True))
    assert (receipt.status, receipt.text) == ("refused", "")
