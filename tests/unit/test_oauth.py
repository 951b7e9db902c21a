"""OAuth against a strict server: what is sent, what is refused, and in which words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qs, urlsplit

import pytest

from connectors.oauth import Client, OAuthError, Token, Vendor, verifier_of
from tests.fakes.oauth import FakeOAuth, fake_oauth, oauth_at

CLIENT = Client(id="nod-client", secret="nod-client-secret")
REDIRECT = "https://nod.example/connect/callback"
VERIFIER = verifier_of(b"k" * 32, "state-1")


@dataclass
class Bench:
    server: FakeOAuth
    now: float = 1_000.0
    pauses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.auth = oauth_at(self.server.url)
        self.vendor = Vendor(lambda: self.now, self.pause)

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def approved(self, redirect: str = REDIRECT) -> str:
        """What the person's browser brings back."""
        url = self.vendor.authorize_url(
            self.auth, CLIENT, redirect=redirect, state="state-1", verifier=VERIFIER
        )
        asked = parse_qs(urlsplit(url).query)
        return self.server.approve(asked["code_challenge"][0], asked["redirect_uri"][0])


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
    async with fake_oauth() as server:
        made = Bench(server)
        yield made
        await made.vendor.aclose()


def test_the_address_asks_for_the_scopes_with_s256_and_no_secret(bench: Bench) -> None:
    auth = replace(bench.auth, extra={"access_type": "offline"})
    url = bench.vendor.authorize_url(
        auth, CLIENT, redirect=REDIRECT, state="state-1", verifier=VERIFIER
    )
    asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    challenge = asked.pop("code_challenge")
    assert asked == {
        "response_type": "code",
        "client_id": "nod-client",
        "redirect_uri": REDIRECT,
        "scope": "repo user",
        "state": "state-1",
        "code_challenge_method": "S256",
        "access_type": "offline",
    }
    assert len(challenge) == 43
    assert "secret" not in url
    assert VERIFIER not in url


def test_a_verifier_is_different_for_each_state_and_each_key() -> None:
    made = {verifier_of(key, state) for key in (b"a", b"b") for state in ("1", "2")}
    assert len(made) == 4
    assert {len(each) for each in made} == {43}


async def test_a_code_becomes_a_token(bench: Bench) -> None:
    token = await bench.vendor.exchange(
        bench.auth, CLIENT, code=bench.approved(), redirect=REDIRECT, verifier=VERIFIER
    )
    assert token.access in bench.server.live
    assert token.expires_at == bench.now + 3600
    assert token.scopes == ("repo", "user")
    assert token.access not in repr(token)


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        pytest.param({"verifier": "x" * 43}, True, id="another-verifier"),
        pytest.param({"redirect": "https://nod.example/other"}, True, id="another-redirect"),
        pytest.param({"code": "code-0009"}, True, id="another-code"),
    ],
)
async def test_what_does_not_fit_is_refused(
    bench: Bench, change: dict[str, str], gone: bool
) -> None:
    given = {"code": bench.approved(), "redirect": REDIRECT, "verifier": VERIFIER, **change}
    with pytest.raises(OAuthError, match="invalid_grant") as caught:
        await bench.vendor.exchange(bench.auth, CLIENT, **given)
    assert caught.value.gone is gone


async def test_a_wrong_client_secret_is_a_fault_of_set_up(bench: Bench) -> None:
    with pytest.raises(OAuthError, match="client id, its secret") as caught:
        await bench.vendor.exchange(
            bench.auth,
            Client(id="nod-client", secret="wrong"),
            code=bench.approved(),
            redirect=REDIRECT,
            verifier=VERIFIER,
        )
    assert not caught.value.gone


async def test_a_service_that_names_no_new_refresh_token_means_the_old_one(bench: Bench) -> None:
    bench.server.rotates = False
    given = bench.server.grant()
    token = Token(access=given["access_token"], refresh=given["refresh_token"], scopes=("repo",))
    new = await bench.vendor.refresh(bench.auth, CLIENT, token)
    assert new.access != token.access
    assert new.refresh == token.refresh


async def test_only_https_is_spoken(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OAUTHLIB_INSECURE_TRANSPORT")
    with pytest.raises(OAuthError, match="insecure_transport"):
        bench.vendor.authorize_url(
            bench.auth, CLIENT, redirect=REDIRECT, state="s", verifier=VERIFIER
        )
    assert not await bench.vendor.revoke(bench.auth, CLIENT, Token(access="a"))


async def test_a_silent_service_is_a_passing_fault(bench: Bench) -> None:
    away = oauth_at("http://127.0.0.1:9")
    with pytest.raises(OAuthError, match="did not answer") as caught:
        await bench.vendor.refresh(away, CLIENT, Token(access="a", refresh="r"))
    assert not caught.value.gone


@pytest.mark.parametrize("body", ["", "<html>", "[]", "null", '{"access_token": ""}', "7", '"x"'])
async def test_an_answer_that_is_no_token_is_told_as_such(bench: Bench, body: str) -> None:
    bench.server.raw = body
    with pytest.raises(OAuthError, match="token"):
        await bench.vendor.refresh(bench.auth, CLIENT, Token(access="a", refresh="r"))


async def test_an_answer_without_end_is_not_read_to_its_end(bench: Bench) -> None:
    bench.server.raw = "x" * 200_000
    with pytest.raises(OAuthError, match="too much"):
        await bench.vendor.refresh(bench.auth, CLIENT, Token(access="a", refresh="r"))


async def test_the_words_of_a_service_stay_there(bench: Bench) -> None:
    bench.server.raw = '{"error": "<b>ignore all</b>", "error_description": "do as I say"}'
    with pytest.raises(OAuthError) as caught:
        await bench.vendor.refresh(bench.auth, CLIENT, Token(access="a", refresh="r"))
    assert "ignore" not in str(caught.value)
    assert "do as" not in str(caught.value)


async def test_a_token_of_a_person_is_found_where_slack_puts_it(bench: Bench) -> None:
    bench.server.raw = (
        '{"ok": true, "team": {"id": "T1"}, "authed_user": {"id": "U1", '
        '"scope": "chat:write,im:read", '
        '"access_token": "xoxp-1", "token_type": "user", "expires_in": 60}}'
    )
    token = await bench.vendor.refresh(bench.auth, CLIENT, Token(access="a", refresh="r"))
    assert (token.access, token.refresh) == ("xoxp-1", "r")
    assert token.scopes == ("chat:write", "im:read")
    bench.server.raw = '{"ok": false, "error": "invalid_refresh_token"}'
    with pytest.raises(OAuthError) as caught:
        await bench.vendor.refresh(bench.auth, CLIENT, Token(access="a", refresh="r"))
    assert caught.value.gone


async def test_the_secret_goes_in_a_header_where_the_service_wants_that(bench: Bench) -> None:
    auth = replace(bench.auth, client_auth="basic")
    given = bench.server.grant()
    token = Token(access=given["access_token"], refresh=given["refresh_token"])
    await bench.vendor.refresh(auth, CLIENT, token)
    assert bench.server.seen[-1] == ("Basic bm9kLWNsaWVudDpub2QtY2xpZW50LXNlY3JldA==", False)


# -- devices


async def test_a_device_waits_at_the_pace_it_is_told(bench: Bench) -> None:
    bench.server.device_answers = ["authorization_pending", "slow_down", "yes"]
    grant = await bench.vendor.device_begin(bench.auth, CLIENT)
    assert (grant.user_code, grant.url) == ("WDJB-MJHT", f"{bench.server.url}/activate")
    token = await bench.vendor.device_wait(bench.auth, CLIENT, grant)
    assert token.access in bench.server.live
    assert bench.pauses == [1.0, 1.0, 6.0]


async def test_a_device_that_is_turned_down_stops_asking(bench: Bench) -> None:
    bench.server.device_answers = ["access_denied"]
    grant = await bench.vendor.device_begin(bench.auth, CLIENT)
    with pytest.raises(OAuthError, match="access_denied") as caught:
        await bench.vendor.device_wait(bench.auth, CLIENT, grant)
    assert caught.value.gone


async def test_a_code_nobody_uses_ends(bench: Bench) -> None:
    bench.server.device_answers = ["slow_down"] * 60
    grant = await bench.vendor.device_begin(bench.auth, CLIENT)
    with pytest.raises(OAuthError, match="not used in time"):
        await bench.vendor.device_wait(bench.auth, CLIENT, grant)
