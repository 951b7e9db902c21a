"""A person connects an account: over the wire, at a server that is not ours, in a browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from connectors.base import OAuth
from engine import people
from engine.canonical import loads
from engine.store.base import Store
from tests.fakes.acme import ANA, BO, Acme, acme_at
from tests.fakes.foreign import oauth2_mock_server, open_browser
from tests.fakes.oauth import FakeOAuth, fake_oauth, oauth_at


@asynccontextmanager
async def visitor() -> AsyncIterator[aiohttp.ClientSession]:
    """A browser without scripts: it keeps cookies and follows nothing by itself."""
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        yield session


@pytest.fixture
async def fake() -> AsyncIterator[FakeOAuth]:
    async with fake_oauth() as server:
        yield server


@pytest.fixture
async def acme(
    fake: FakeOAuth, sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Acme]:
    auth = oauth_at(fake.url)
    async with acme_at(
        fake.url, sqlite_store, tmp_path, monkeypatch, oauth=auth, keyed=True
    ) as made:
        yield made


async def get(session: aiohttp.ClientSession, url: str) -> tuple[int, str, Any]:
    async with session.get(url, allow_redirects=False) as answer:
        return answer.status, await answer.text(), answer.headers


async def post(
    session: aiohttp.ClientSession, url: str, form: dict[str, str], **headers: str
) -> tuple[int, str, Any]:
    async with session.post(url, data=form, headers=headers, allow_redirects=False) as answer:
        return answer.status, await answer.text(), answer.headers


def onward(page: str) -> str:
    """The address a page goes on to."""
    found = re.search(r'http-equiv="refresh" content="0;url=([^"]+)"', page)
    assert found, page
    return unescape(found[1])


def back(fake: FakeOAuth, url: str) -> str:
    """The service says yes: where it sends the browser."""
    asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    code = fake.approve(asked["code_challenge"], asked["redirect_uri"])
    return f"{asked['redirect_uri']}?code={code}&state={asked['state']}"


async def begun(acme: Acme, session: aiohttp.ClientSession, link: str) -> str:
    status, page, _ = await post(session, link, {"way": "oauth"})
    assert status == 200
    return onward(page)


async def test_the_page_says_what_is_connected_for_whom_and_with_what(acme: Acme) -> None:
    link = await acme.link()
    async with visitor() as session:
        status, page, headers = await get(session, link)
    assert status == 200
    assert "<title>Connect Acme &amp; Co · Nod</title>" in page
    assert "<strong>Ana &lt;b&gt;Bold&lt;/b&gt;</strong>" in page
    assert "<code>repo</code>" in page
    assert "<script" not in page
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Robots-Tag"] == "noindex, nofollow"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "form-action 'self'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


async def test_an_account_is_connected_by_a_yes_at_the_service(acme: Acme, fake: FakeOAuth) -> None:
    link = await acme.link()
    async with visitor() as session:
        status, page, _ = await get(session, back(fake, await begun(acme, session, link)))
    assert status == 200, page
    assert "Acme &amp; Co is connected" in page
    (account,) = await acme.accounts()
    assert (account.label, account.owner, account.scopes) == ("ana", ANA.id, ("repo", "user"))
    assert await acme.credentials.headers(account)
    assert acme.secrets.names() == [f"connection.{account.id}"]
    assert acme.tools.group("acme") == ("acme_search",)
    ((place, payload),) = await acme.told()
    assert (place, loads(payload)["text"]) == ("console:main", "Acme & Co is connected.")


async def test_a_link_connects_once(acme: Acme, fake: FakeOAuth) -> None:
    link = await acme.link()
    async with visitor() as session:
        there = back(fake, await begun(acme, session, link))
        assert (await get(session, there))[0] == 200
        assert (await get(session, there))[0] == 400
        status, page, _ = await get(session, link)
        assert (status, "used up" in page) == (400, True)
        assert (await post(session, link, {"way": "oauth"}))[0] == 400
    assert len(await acme.accounts()) == 1


async def test_a_link_holds_ten_minutes(acme: Acme) -> None:
    link = await acme.link()
    async with visitor() as session:
        acme.clock[0] += 599.0
        assert (await get(session, link))[0] == 200
        acme.clock[0] += 1.0
        assert (await get(session, link))[0] == 400


@pytest.mark.parametrize("change", ["another-browser", "another-state", "begun-anew", "too-late"])
async def test_what_does_not_belong_together_connects_nothing(
    acme: Acme, fake: FakeOAuth, change: str
) -> None:
    link = await acme.link()
    async with visitor() as session, visitor() as other:
        there = back(fake, await begun(acme, session, link))
        used = session
        match change:
            case "another-browser":
                used = other
            case "another-state":
                there = there[:-4] + "xxxx"
            case "begun-anew":
                await begun(acme, session, link)
            case "too-late":
                acme.clock[0] += 601.0
        status, page, _ = await get(used, there)
    assert status == 400
    assert "did not work" in page
    assert await acme.accounts() == []
    assert acme.secrets.names() == []


async def test_who_guesses_a_state_or_takes_an_address_uses_nothing_up(
    acme: Acme, fake: FakeOAuth
) -> None:
    link = await acme.link()
    async with visitor() as session, visitor() as other:
        there = back(fake, await begun(acme, session, link))
        assert (await get(session, there[:-4] + "xxxx"))[0] == 400
        assert (await get(other, there))[0] == 400
        assert (await get(session, there))[0] == 200
    assert len(await acme.accounts()) == 1


async def test_a_no_at_the_service_is_told_and_the_link_holds_on(
    acme: Acme, fake: FakeOAuth
) -> None:
    link = await acme.link()
    async with visitor() as session:
        state = parse_qs(urlsplit(await begun(acme, session, link)).query)["state"][0]
        at = f"{acme.url}/connect/callback?error=access_denied&state={state}"
        status, page, _ = await get(session, at)
        assert (status, "said no" in page) == (400, True)
        assert (await get(session, back(fake, await begun(acme, session, link))))[0] == 200


async def test_a_code_the_service_does_not_take_lets_the_person_try_again(
    acme: Acme, fake: FakeOAuth
) -> None:
    link = await acme.link()
    async with visitor() as session:
        there = back(fake, await begun(acme, session, link))
        fake.codes.clear()
        assert (await get(session, there))[0] == 400
        assert (await get(session, back(fake, await begun(acme, session, link))))[0] == 200


async def test_a_key_is_checked_kept_and_never_shown(acme: Acme) -> None:
    link = await acme.link(BO, "console:main")
    async with visitor() as session:
        wrong = {"way": "key", "key": "wrong-key-7f3a", "site": "acme.example"}
        status, page, headers = await post(session, link, wrong)
        assert status == 422
        assert "does not take this" in page and 'role="alert"' in page
        assert "wrong-key" not in page and "acme.example<" not in page
        assert headers["Cache-Control"] == "no-store"
        assert acme.secrets.names() == []
        status, page, _ = await post(session, link, {"way": "key", "key": " good-key "})
    assert status == 200
    assert "good-key" not in page
    (account,) = await acme.accounts()
    assert (account.owner, account.label) == (BO.id, "ana")
    assert await acme.credentials.headers(account) == {"Authorization": "Bearer good-key"}


@pytest.mark.parametrize("key", ["", "  ", "x" * 5001, "a\nb"])
async def test_a_field_that_cannot_be_right_is_not_sent_anywhere(
    acme: Acme, fake: FakeOAuth, key: str
) -> None:
    link = await acme.link()
    async with visitor() as session:
        status, page, _ = await post(session, link, {"way": "key", "key": key})
    assert status == 422
    assert "API key" in page
    assert fake.looked == 0


async def test_a_form_sent_from_another_site_is_refused(acme: Acme) -> None:
    link = await acme.link()
    async with visitor() as session:
        form = {"way": "key", "key": "good-key"}
        status, _, _ = await post(session, link, form, **{"Sec-Fetch-Site": "cross-site"})
    assert status == 403
    assert await acme.accounts() == []


async def test_a_person_who_was_shut_out_connects_nothing(acme: Acme) -> None:
    link = await acme.link(BO, "console:main")
    await acme.store.write(
        lambda tx: people.set_role(tx, "local", BO.id, "guest", by="console", now=1.0)
    )
    async with visitor() as session:
        assert (await get(session, link))[0] == 400
        assert (await post(session, link, {"way": "key", "key": "good-key"}))[0] == 400


async def test_connecting_again_renews_the_same_account(acme: Acme, fake: FakeOAuth) -> None:
    for _ in range(2):
        link = await acme.link()
        async with visitor() as session:
            await get(session, back(fake, await begun(acme, session, link)))
    (account,) = await acme.accounts()
    assert acme.secrets.names() == [f"connection.{account.id}"]
    held = await acme.credentials.headers(account)
    assert held["Authorization"].removeprefix("Bearer ") == max(fake.live)


async def test_no_secret_is_in_the_store(acme: Acme, fake: FakeOAuth, tmp_path: Path) -> None:
    link = await acme.link()
    async with visitor() as session:
        there = back(fake, await begun(acme, session, link))
        await get(session, there)
    raw = b"".join(file.read_bytes() for file in tmp_path.glob("nod.db*"))
    state = parse_qs(urlsplit(there).query)["state"][0]
    for secret in (link.rpartition("/")[2], state, *fake.live, *fake.refresh):
        assert secret.encode() not in raw


# -- at a server that is not ours


def _foreign(issuer: str) -> OAuth:
    return OAuth(
        authorize_url=f"{issuer}/authorize",
        token_url=f"{issuer}/token",
        revoke_url=f"{issuer}/revoke",
        scopes=("openid", "profile"),
        client="ACME",
    )


async def test_it_works_with_an_oauth_server_that_is_not_ours(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        oauth2_mock_server() as issuer,
        acme_at(issuer, sqlite_store, tmp_path, monkeypatch, oauth=_foreign(issuer)) as acme,
        visitor() as session,
    ):
        there = await begun(acme, session, await acme.link())
        status, _, headers = await get(session, there)
        assert status == 302
        status, page, _ = await get(session, headers["Location"])
        assert (status, "johndoe" in page) == (200, True)
        (account,) = await acme.accounts()
        first = await acme.credentials.headers(account)
        await asyncio.sleep(1.1)  # its tokens differ by the second they were made in
        assert await acme.credentials.renewed(account, first) != first
        assert await acme.credentials.forget(account)


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
async def test_in_a_real_browser_a_person_connects_an_account(
    scripts: bool, sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        open_browser(scripts=scripts) as browser,
        oauth2_mock_server() as issuer,
        acme_at(issuer, sqlite_store, tmp_path, monkeypatch, oauth=_foreign(issuer)) as acme,
    ):
        await browser.open(await acme.link())
        await browser.title("Connect Acme & Co")
        assert await browser.role("button") == ("button", "Continue to Acme & Co")
        assert await browser.role("h1") == ("heading", "Connect Acme & Co")
        await browser.click("button")
        await browser.title("Acme & Co is connected")
        assert "johndoe is connected" in await browser.text()
        assert len(await acme.accounts()) == 1


async def test_in_a_real_browser_a_key_is_typed_unseen(
    acme: Acme, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_browser() as browser:
        await browser.open(await acme.link())
        await browser.title("Connect Acme & Co")
        assert await browser.role("#field-1") == ("textbox", "API key")
        assert await browser.run("return document.documentElement.lang") == "en"
        assert await browser.run("return document.querySelector('#field-1').type") == "password"
        for scheme in ("light", "dark"):
            await browser.scheme(scheme)
            contrast = await browser.run(_CONTRAST)
            assert min(contrast) >= 4.5, (scheme, contrast)
        await browser.click("form:last-of-type button")  # empty: the browser asks for it
        await browser.type("#field-1", "wrong-key-7f3a")
        await browser.click("form:last-of-type button")
        await browser.title("Connect Acme & Co")
        assert "does not take this" in await browser.text("[role=alert]")
        assert await browser.run("return document.querySelector('#field-1').value") == ""
        await browser.type("#field-1", "good-key")
        await browser.click("form:last-of-type button")
        await browser.title("Acme & Co is connected")
    assert len(await acme.accounts()) == 1


#: Contrast of each text with what is behind it (WCAG 2.2, 1.4.3).
_CONTRAST = """
const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= .04045 ? v / 12.92
  : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b };
const parts = c => c.match(/[\\d.]+/g).map(Number);
const behind = e => { while (e) { const c = parts(getComputedStyle(e).backgroundColor);
  if (c.length < 4 || c[3] > 0) return c.slice(0, 3); e = e.parentElement }
  return [255, 255, 255] };
return [...document.querySelectorAll('h1, h2, p, label, li, button, input')].map(e => {
  const a = light(parts(getComputedStyle(e).color).slice(0, 3)), b = light(behind(e));
  return (Math.max(a, b) + .05) / (Math.min(a, b) + .05) });
"""
