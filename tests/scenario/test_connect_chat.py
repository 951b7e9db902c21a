"""Connecting from chat: a card, a private link, a key on the page, and the turn goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bot import cards
from bot.surfaces.base import Author, Commanded, Edited, Pressed, Said
from connectors import accounts
from engine import people
from engine.errors import NeedsConnection
from engine.events import Kind
from engine.inbox import Prompt
from engine.store.base import Store
from engine.tools.base import Result, Risk, ToolContext, tool
from tests.fakes.acme import Acme, acme_at
from tests.fakes.chat import ANA, Chat, chatting
from tests.fakes.oauth import fake_oauth, oauth_at
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.surface import MemorySurface

BO = Author(id="T1/U2", name="Bo")
#: Made of a maker's form; it opens nothing.
KEY = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def asks_acme(store: Store) -> Any:
    async def ask_acme(ctx: ToolContext) -> Result:
        """Ask Acme."""
        found = await store.read(lambda tx: accounts.listed(tx, "local"))
        if not found:
            raise NeedsConnection("acme", "", "Acme & Co is not connected.")
        return Result(text=f"Acme answers {found[0].label}.")

    return tool(risk=Risk.READ, name="ask_acme")(ask_acme)


@asynccontextmanager
async def at_acme(
    store: Store, data: Path, monkeypatch: pytest.MonkeyPatch, model: Any
) -> AsyncIterator[tuple[Chat, Acme, MemorySurface]]:
    slack = MemorySurface("slack")
    async with (
        fake_oauth() as fake,
        acme_at(fake.url, store, data, monkeypatch, oauth=oauth_at(fake.url), keyed=True) as acme,
        chatting(
            store,
            data,
            model,
            surfaces=[slack],
            connecting=acme.connecting,
            tools=[asks_acme(store)],
            now=lambda: acme.clock[0],
        ) as chat,
    ):
        acme.hints += [
            lambda session: chat.context.enqueue(session) if session else chat.presenter.poke()
        ]
        yield chat, acme, slack


async def waiting(chat: Chat) -> Prompt:
    """Ask for something of Acme, and return the prompt that it leads to."""
    receipt = await chat.said("What does Acme say?", "e1")
    await chat.shown(str(receipt.session))
    (prompt,) = await chat.world.pending(str(receipt.session))
    return prompt


def pressed(chat: Chat, prompt: Prompt, answer: str, by: Author = ANA, n: int = 1) -> Pressed:
    return Pressed(
        event=f"press{n}",
        target="slack:T1/C1/1.1" if by is BO else "console:main",
        person=by,
        token=cards.token(prompt, answer, chat.key),
        ref="",
    )


async def fill(link: str, key: str) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.post(link, data={"way": "key", "key": key}) as answer,
    ):
        return answer.status


async def read(chat: Chat) -> str:
    lines = await chat.console.history("console:main", 0.0)
    return "\n".join(line.text for line in lines)


async def test_a_call_waits_on_a_card_and_goes_on_when_its_app_is_connected(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel([calls(call("ask_acme")), "Acme said hello."])
    async with at_acme(sqlite_store, tmp_path, monkeypatch, model) as (chat, acme, _):
        prompt = await waiting(chat)
        shown = await read(chat)
        assert "Connect acme?" in shown and "Acme & Co is not connected." in shown
        assert "[a] Connect" in shown and "[d] Not now" in shown
        receipt = await chat.take(pressed(chat, prompt, "link"))
        assert receipt.status == "answered"
        link = receipt.text.split("minutes: ")[1].split()[0]
        assert link.startswith(f"{acme.url}/connect/")
        assert await fill(link, "good-key") == 200
        await chat.shown(str(prompt.session))
        facts = await chat.world.log(str(prompt.session))
        (done,) = [fact for fact in facts if fact.kind is Kind.TOOL_FINISHED]
        assert done.body["content"] == "Acme answers ana."
        assert facts[-1].body["status"] == "completed"
        shown = await read(chat)
        assert "Connected by @" in shown
        assert "Acme & Co is connected." in shown
        assert "Acme said hello." in shown
        assert link.rpartition("/")[2] not in shown


async def test_not_now_is_a_no_and_the_turn_goes_on_without(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel([calls(call("ask_acme")), "Without Acme, then."])
    async with at_acme(sqlite_store, tmp_path, monkeypatch, model) as (chat, _, _):
        prompt = await waiting(chat)
        await chat.take(pressed(chat, prompt, "deny"))
        await chat.shown(str(prompt.session))
        facts = await chat.world.log(str(prompt.session))
        (done,) = [fact for fact in facts if fact.kind is Kind.TOOL_FINISHED]
        assert done.body["status"] == "error"
        assert "Without Acme, then." in await read(chat)


async def test_only_who_was_asked_gets_the_link(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel([calls(call("ask_acme"))])
    async with at_acme(sqlite_store, tmp_path, monkeypatch, model) as (chat, _, _):
        prompt = await waiting(chat)
        await chat.store.write(
            lambda tx: people.set_role(tx, "local", "u-bo", "owner", by="console", now=1.0)
        )
        receipt = await chat.take(pressed(chat, prompt, "link", BO))
        assert receipt.status == "refused"
        assert "Only the one who was asked" in receipt.text
        assert await chat.rows("connecting_live", now=0.0) == []


async def test_what_somebody_else_connects_answers_no_card_of_mine(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel([calls(call("ask_acme"))])
    async with at_acme(sqlite_store, tmp_path, monkeypatch, model) as (chat, acme, _):
        prompt = await waiting(chat)
        bo = await chat.store.read(lambda tx: people.get(tx, "local", "u-bo"))
        assert bo is not None
        assert await fill(await acme.link(bo, "console:main"), "good-key") == 200
        assert [each.id for each in await chat.world.pending(str(prompt.session))] == [prompt.id]


async def test_a_pressed_link_after_the_decision_says_who_decided(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel([calls(call("ask_acme")), "Without."])
    async with at_acme(sqlite_store, tmp_path, monkeypatch, model) as (chat, _, _):
        prompt = await waiting(chat)
        await chat.take(pressed(chat, prompt, "deny"))
        receipt = await chat.take(pressed(chat, prompt, "link", n=2))
        assert "Already decided" in receipt.text or "no answer" in receipt.text


# -- a key in chat


def raw(data: Path) -> bytes:
    return b"".join(file.read_bytes() for file in data.rglob("*") if file.is_file())


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(f"here you are: {KEY}", id="in-words"),
        pytest.param(KEY, id="bare"),
        pytest.param(f"first\n{KEY}\nlast", id="in-lines"),
    ],
)
async def test_a_pasted_key_is_deleted_and_goes_no_further(
    line: str, sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel(["Hello."])
    async with at_acme(sqlite_store, tmp_path, monkeypatch, model) as (chat, _, slack):
        said = Said(event="m1", target="slack:T1/D1", person=BO, text=line, direct=True)
        receipt = await chat.take(said)
        assert receipt.status == "refused"
        assert "a GitHub token" in receipt.text
        assert "I have deleted your message" in receipt.text
        assert slack.erased == ["m1"]
        assert (await chat.take(said)).status == "duplicate"
        edit = Edited(event="m0/e1", target="slack:T1/D1", person=BO, original="m0", text=line)
        assert (await chat.take(edit)).status == "refused"
        assert slack.erased == ["m1", "m0"]
        await chat.said(line, "c1")
        await chat.console.say("console:main", ANA, line)
        given = Commanded(event="k1", target="console:main", person=ANA, name="new", arguments=line)
        assert (await chat.take(given)).status == "refused"
        await chat.world.settle()
        assert model.requests == []
        assert KEY.encode() not in raw(tmp_path)


@pytest.mark.parametrize("part", ["text", "arguments"])
async def test_a_key_in_a_form_goes_no_further(
    part: str, sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel([calls(call("ask_acme"))])
    async with at_acme(sqlite_store, tmp_path, monkeypatch, model) as (chat, _, _):
        prompt = await waiting(chat)
        given = KEY if part == "text" else {"command": f"curl -H 'Authorization: {KEY}'"}
        press = replace(pressed(chat, prompt, "deny"), **{part: given})
        assert (await chat.take(press)).status == "refused"
        assert len(await chat.world.pending(str(prompt.session))) == 1
        assert KEY.encode() not in raw(tmp_path)


async def test_where_the_platform_keeps_it_the_person_is_told_to_delete_it(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_acme(sqlite_store, tmp_path, monkeypatch, ScriptedModel()) as (chat, _, slack):
        slack.erases = False
        receipt = await chat.take(
            Said(event="m1", target="slack:T1/D1", person=BO, text=KEY, direct=True)
        )
        assert "I cannot delete it here: do so yourself" in receipt.text


async def test_a_line_that_is_nobodys_goes_on_without_its_key(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_acme(sqlite_store, tmp_path, monkeypatch, ScriptedModel()) as (chat, _, slack):
        said = Said(
            event="m1", target="slack:T1/C9/2.2", person=BO, text=f"x {KEY} y", addressed=False
        )
        assert (await chat.take(said)).status == "ignored"
        assert slack.erased == []
        assert KEY.encode() not in raw(tmp_path)
