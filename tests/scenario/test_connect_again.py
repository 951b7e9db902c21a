"""An account that its service refuses is connected again on a card, and the call goes on."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from bot import cards
from bot.surfaces.base import Commanded, Pressed
from engine.events import Kind
from engine.store.base import Store
from tests.fakes.acme import acme_at
from tests.fakes.chat import ANA, chatting
from tests.fakes.oauth import FakeOAuth, fake_oauth, oauth_at
from tests.fakes.scripted import ScriptedModel, call, calls


async def sign_in(fake: FakeOAuth, link: str) -> None:
    """Say yes at the service, as a person does in their browser."""
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        async with session.post(link, data={"way": "oauth"}) as answer:
            found = re.search(r'content="0;url=([^"]+)"', await answer.text())
        assert found
        query = parse_qs(urlsplit(unescape(found[1])).query)
        asked = {name: values[0] for name, values in query.items()}
        code = fake.approve(asked["code_challenge"], asked["redirect_uri"])
        there = f"{asked['redirect_uri']}?code={code}&state={asked['state']}"
        async with session.get(there) as answer:
            assert answer.status == 200, await answer.text()


def link_in(text: str) -> str:
    return text.split("minutes: ")[1].split()[0]


@pytest.mark.parametrize("change", ["withdrawn", "renewed"])
async def test_a_token_that_ends_in_the_middle_of_work(
    change: str, sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that only needs renewing is renewed unseen; one that was withdrawn asks its owner."""
    model = ScriptedModel([calls(call("acme_search", query="kite")), "There is a kite."])
    async with (
        fake_oauth() as fake,
        acme_at(fake.url, sqlite_store, tmp_path, monkeypatch, oauth=oauth_at(fake.url)) as acme,
        chatting(
            sqlite_store,
            tmp_path,
            model,
            connecting=acme.connecting,
            now=lambda: acme.clock[0],
        ) as chat,
    ):
        acme.hints.append(
            lambda session: chat.context.enqueue(session) if session else chat.presenter.poke()
        )
        given = Commanded(
            event="k1", target="console:main", person=ANA, name="connect", arguments="acme"
        )
        await sign_in(fake, link_in((await chat.take(given)).text))
        (before,) = await acme.accounts()
        tool = acme.tools.get("acme_search")
        assert tool is not None
        chat.world.engine.tools.replace("acme", [tool])

        fake.withdraw() if change == "withdrawn" else fake.live.clear()
        receipt = await chat.said("Is there a kite?", "e1")
        session = str(receipt.session)
        await chat.shown(session)
        if change == "withdrawn":
            assert fake.searched == []
            (prompt,) = await chat.world.pending(session)
            assert (prompt.payload["connector"], prompt.payload["account"]) == ("acme", "ana")
            listed = await chat.take(
                Commanded(event="k2", target="console:main", person=ANA, name="connect")
            )
            assert "to be connected again" in listed.text
            pressed = Pressed(
                event="p1",
                target="console:main",
                person=ANA,
                token=cards.token(prompt, "link", chat.key),
                ref="",
            )
            await sign_in(fake, link_in((await chat.take(pressed)).text))
            await chat.shown(session)

        facts = await chat.world.log(session)
        (done,) = [fact for fact in facts if fact.kind is Kind.TOOL_FINISHED]
        assert done.body["status"] == "ok"
        assert "a kite" in done.body["content"]
        assert fake.searched == ["kite"], "it was asked once"
        assert facts[-1].body["status"] == "completed"
        (after,) = await acme.accounts()
        assert (after.id, after.status) == (before.id, "ok")
