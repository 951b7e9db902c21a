"""Connections to Slack: they come back, one dead workspace stops no other, installs are kept."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import ClientSession, CookieJar

from bot.cards import Button, Card, Row
from bot.surfaces.base import Commanded, Message, Pressed, Said, SurfaceError
from bot.surfaces.slack import SlackSurface
from bot.surfaces.slack_intake import installations
from engine.store.base import Store
from tests.fakes.ground import grounded
from tests.fakes.slack import FakeSlack, sign
from tests.unit.slack_desk import Desk, config_for, desk


@pytest.fixture
async def fake() -> AsyncIterator[FakeSlack]:
    async with FakeSlack() as made:
        yield made


# -- the socket


@pytest.mark.parametrize("reason", ["refresh_requested", "warning", ""])
async def test_a_socket_that_ends_is_opened_again_and_the_old_one_closed(
    tmp_path: Path, sqlite_store: Store, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr("bot.surfaces.slack.PING", 0.2)
    async with desk(tmp_path, sqlite_store) as at:
        for turn in range(2, 5):
            await at.fake.disconnect(reason)
            await at.fake.connected(turn)
            await at.fake.until(lambda: sum(not each.closed for each in at.fake.sockets) == 1)
            await at.fake.say(f"line {turn}", kinds=("message",))
        assert [each.text for each in at.of(Said)] == ["line 2", "line 3", "line 4"]


async def test_while_slack_is_away_it_is_tried_until_it_is_back(
    tmp_path: Path, sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.surfaces.slack.PING", 0.1)
    async with desk(tmp_path, sqlite_store) as at:
        at.fake.fail("apps.connections.open", "internal_error", status=500, times=4)
        await at.fake.disconnect("")
        await at.fake.connected(2)
        await at.fake.say("back", kinds=("message",))
        assert [each.text for each in at.of(Said)] == ["back"]


async def test_a_connection_that_went_deaf_is_replaced(
    tmp_path: Path, sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.surfaces.slack.PING", 0.2)
    fake = FakeSlack()
    fake.deaf = True
    async with fake, desk(tmp_path, sqlite_store, fake) as at:
        fake.deaf = False
        await fake.connected(2)
        await fake.until(lambda: not fake.sockets[-1].closed)
        await fake.say("heard", kinds=("message",))
        assert [each.text for each in at.of(Said)] == ["heard"]


async def test_three_starts_leave_one_socket_open(
    tmp_path: Path, sqlite_store: Store, fake: FakeSlack
) -> None:
    for _ in range(3):
        async with desk(tmp_path, sqlite_store, fake):
            assert sum(not each.closed for each in fake.sockets) == 1
    await fake.until(lambda: all(each.closed for each in fake.sockets))


async def test_more_than_one_connection_is_warned_of(
    tmp_path: Path, sqlite_store: Store, fake: FakeSlack, caplog: pytest.LogCaptureFixture
) -> None:
    async with desk(tmp_path, sqlite_store, fake), desk(tmp_path, sqlite_store, fake):
        await fake.until(lambda: "2 connections" in caplog.text)


# -- what a start needs


async def started(fake: FakeSlack, tmp_path: Path, store: Store, **config: object) -> None:
    async with grounded(tmp_path, store) as told:
        surface = SlackSurface(config_for(fake, **config), told.ground)
        try:
            await surface.start(_never)
        finally:
            await surface.stop()


async def _never(event: object) -> object:
    raise AssertionError("nothing is to come in")


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"app_token": ""}, "SLACK_APP_TOKEN"),
        ({"app_token": "xapp-wrong"}, "app token is not accepted.*SLACK_APP_TOKEN"),
        ({"mode": "http", "signing_secret": ""}, "SLACK_SIGNING_SECRET"),
        ({"bot_tokens": ("xoxb-wrong",)}, "invalid_auth.*Install Nod again"),
    ],
    ids=["no app token", "wrong app token", "no signing secret", "wrong bot token"],
)
async def test_a_start_that_cannot_work_ends_with_what_to_do(
    fake: FakeSlack, tmp_path: Path, sqlite_store: Store, config: dict[str, object], told: str
) -> None:
    with pytest.raises(SurfaceError, match=told) as raised:
        await started(fake, tmp_path, sqlite_store, **config)
    assert raised.value.retry_after is None, "another try makes no sense"


async def test_a_start_while_slack_is_away_is_worth_another_try(
    fake: FakeSlack, tmp_path: Path, sqlite_store: Store
) -> None:
    fake.fail("auth.test", "internal_error", status=503)
    with pytest.raises(SurfaceError) as raised:
        await started(fake, tmp_path, sqlite_store)
    assert raised.value.retry_after


async def test_names_of_ours_in_the_environment_change_nothing_in_bolt(
    tmp_path: Path, sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bolt reads these names too, and would keep installations in plain files."""
    for name in ("CLIENT_ID", "CLIENT_SECRET", "BOT_TOKEN", "SIGNING_SECRET"):
        monkeypatch.setenv(f"SLACK_{name}", "other")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    async with desk(tmp_path, sqlite_store) as at:
        await at.fake.say("hi", kinds=("message",))
        assert len(at.taken) == 1
    assert not (tmp_path / "home").exists()


# -- signed requests


async def answered(at: Desk, body: str, headers: dict[str, str]) -> int:
    async with ClientSession() as client:
        given = {"Content-Type": "application/json", **headers}
        async with client.post(at.fake.request_url, data=body, headers=given) as answer:
            return answer.status


async def test_only_what_slack_signed_now_is_taken(tmp_path: Path, sqlite_store: Store) -> None:
    async with desk(tmp_path, sqlite_store, mode="http") as at:
        event = {"type": "message", "user": "UANA", "channel": "CGEN", "ts": "1.1", "text": "hi"}
        body = json.dumps(at.fake.event("T1", event))
        good = sign(body)
        forged = [
            {},
            sign(body, "other secret"),
            sign(body, at=time.time() - 360),
            {**good, "X-Slack-Request-Timestamp": "soon"},
        ]
        statuses = [await answered(at, body, headers) for headers in forged]
        assert statuses[:3] == [401, 401, 401]
        assert statuses[3] in (401, 500)
        assert at.taken == []
        refused = at.told.ground.counts.get(
            "nod_refused_total", surface="slack", reason="signature"
        )
        assert refused >= 3
        assert await answered(at, body, good) == 200
        assert len(at.taken) == 1
        assert await answered(at, "{not json", sign("{not json")) in (200, 400, 500)


async def test_slacks_question_for_the_address_is_answered(
    tmp_path: Path, sqlite_store: Store
) -> None:
    async with desk(tmp_path, sqlite_store, mode="http") as at:
        ack = await at.fake.send("events_api", {"type": "url_verification", "challenge": "abc"})
        assert ack.ok
        assert "abc" in str(ack.payload)


async def test_after_a_stop_the_address_takes_nothing(tmp_path: Path, sqlite_store: Store) -> None:
    async with desk(tmp_path, sqlite_store, mode="http") as at:
        await at.surface.stop()
        assert await answered(at, "{}", sign("{}")) == 404


# -- several workspaces


async def test_two_workspaces_share_a_socket_and_each_gets_its_own(
    tmp_path: Path, sqlite_store: Store, fake: FakeSlack
) -> None:
    fake.add_team("T2", "Other")
    async with desk(tmp_path, sqlite_store, fake) as at:
        assert len(fake.sockets) == 1
        await fake.say("@nod one", team="T1", kinds=("message",))
        await fake.say("@nod two", team="T2", kinds=("message",))
        assert [each.target.split("/")[0] for each in at.of(Said)] == ["slack:T1", "slack:T2"]
        assert [each.person.id for each in at.of(Said)] == ["T1/UANA", "T2/UANA"]
        await at.surface.post("slack:T2/CGEN", Message(text="x"), "answer:s/1/1")
        posts = [(team, name) for name, team, _ in fake.calls if name == "chat.postMessage"]
        assert posts == [("T2", "chat.postMessage")]
        assert fake.teams["T1"].channels["CGEN"].of_nod == []


async def test_a_dead_token_leaves_the_other_workspaces_and_is_told(
    tmp_path: Path, sqlite_store: Store, fake: FakeSlack
) -> None:
    fake.add_team("T2", "Other")
    fake.teams["T1"].revoked = True
    async with desk(tmp_path, sqlite_store, fake) as at:
        ((_, _, text),) = at.told.notices
        assert "token_revoked" in text and "1. of SLACK_BOT_TOKEN" in text
        await fake.say("@nod two", team="T2", kinds=("message",))
        assert len(at.taken) == 1


@pytest.mark.parametrize("error", ["token_revoked", "token_expired", "account_inactive"])
async def test_a_token_that_dies_at_work_is_told_and_the_others_go_on(
    tmp_path: Path,
    sqlite_store: Store,
    fake: FakeSlack,
    caplog: pytest.LogCaptureFixture,
    error: str,
) -> None:
    fake.add_team("T2", "Other")
    async with desk(tmp_path, sqlite_store, fake) as at:
        fake.fail("chat.postMessage", error)
        with pytest.raises(SurfaceError, match=error):
            await at.surface.post("slack:T1/CGEN", Message(text="x"), "answer:s/1/1")
        (cause, _, text) = at.told.notices[0]
        assert cause == "slack:T1"
        assert "Acme (T1)" in text and "nod slack" in text
        await at.surface.post("slack:T2/CGEN", Message(text="x"), "answer:s/1/2")
        assert "xoxb-" not in caplog.text and "xoxb-" not in str(at.told.notices)


async def test_a_workspace_that_removes_the_app_is_forgotten(
    tmp_path: Path, sqlite_store: Store, fake: FakeSlack
) -> None:
    fake.add_team("T2", "Other")
    async with desk(tmp_path, sqlite_store, fake) as at:
        await fake.send("events_api", fake.event("T2", {"type": "app_uninstalled"}))
        await fake.until(lambda: at.told.notices)
        with pytest.raises(SurfaceError, match="not installed"):
            await at.surface.post("slack:T2/CGEN", Message(text="x"), "answer:s/1/1")
        await at.surface.post("slack:T1/CGEN", Message(text="x"), "answer:s/1/1")


# -- installing by OAuth


async def installed(at: Desk, client: ClientSession, code: str) -> tuple[int, str]:
    """Walk through an installation as a browser does."""
    house = at.told.ground.web.url
    async with client.get(f"{house}/slack/install", allow_redirects=False) as sent:
        address = urlsplit(sent.headers["Location"])
    assert address.path == "/oauth/v2/authorize"
    asked = parse_qs(address.query)
    assert "chat:write" in asked["scope"][0].split(",")
    back = f"{asked['redirect_uri'][0]}?code={code}&state={asked['state'][0]}"
    async with client.get(back) as answer:
        return answer.status, await answer.text()


def jar() -> CookieJar:
    return CookieJar(unsafe=True)


async def test_an_installed_workspace_works_at_once_and_after_a_restart(
    tmp_path: Path, sqlite_store: Store, fake: FakeSlack
) -> None:
    fake.add_team("T2", "Other")
    config = {"bot_tokens": (fake.teams["T1"].token,), "client_id": "1.2", "client_secret": "s"}
    fake.oauth_codes["good"] = "T2"
    async with desk(tmp_path, sqlite_store, fake, **config) as at:
        async with ClientSession(cookie_jar=jar()) as client:
            status, text = await installed(at, client, "good")
        assert (status, "Other" in text) == (200, True)
        await fake.say("@nod two", team="T2", kinds=("message",))
        assert len(at.taken) == 1
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("vault*"))
    assert kept and b"xoxb-T2" not in kept
    async with desk(tmp_path, sqlite_store, fake, **config) as at:
        await at.surface.post("slack:T2/CGEN", Message(text="again"), "answer:s/1/1")


@pytest.mark.parametrize("way", ["other browser", "made up", "twice", "wrong code", "turned down"])
async def test_an_installation_that_is_not_the_browsers_own_is_refused(
    tmp_path: Path, sqlite_store: Store, fake: FakeSlack, way: str
) -> None:
    config = {"client_id": "1.2", "client_secret": "s"}
    fake.add_team("T2", "Other").token = "xoxb-new"
    async with desk(tmp_path, sqlite_store, fake, **config) as at:
        before = [team.id for team in at.surface._teams]
        fake.oauth_codes["good"] = "T2"
        house = at.told.ground.web.url
        async with (
            ClientSession(cookie_jar=jar()) as client,
            ClientSession(cookie_jar=jar()) as other,
        ):
            async with client.get(f"{house}/slack/install", allow_redirects=False) as sent:
                state = parse_qs(urlsplit(sent.headers["Location"]).query)["state"][0]
            if way == "twice":
                async with client.get(f"{house}/slack/oauth_redirect?code=no&state={state}"):
                    pass
            query = {
                "other browser": f"code=good&state={state}",
                "made up": "code=good&state=guess",
                "twice": f"code=good&state={state}",
                "wrong code": f"code=bad&state={state}",
                "turned down": f"error=access_denied&state={state}",
            }[way]
            used = other if way == "other browser" else client
            async with used.get(f"{house}/slack/oauth_redirect?{query}") as answer:
                wanted = {"wrong code": 502, "turned down": 200}.get(way, 401)
                assert answer.status == wanted
                assert "xoxb" not in await answer.text()
        assert [team.id for team in at.surface._teams] == before


# -- an organization


ORG: dict[str, Any] = {"client_id": "1.2", "client_secret": "s"}


@pytest.fixture
async def org(tmp_path: Path, sqlite_store: Store, fake: FakeSlack) -> AsyncIterator[Desk]:
    """A house that serves T1 and has just been installed for all of Starship."""
    fake.add_org("E1", "Starship", "T8", "T9")
    fake.oauth_codes["good"] = "E1"
    config = {**ORG, "bot_tokens": (fake.teams["T1"].token,)}
    async with desk(tmp_path, sqlite_store, fake, **config) as at:
        async with ClientSession(cookie_jar=jar()) as client:
            status, text = await installed(at, client, "good")
        assert status == 200 and "Starship" in text and "an admin adds it" in text
        yield at


async def test_an_organization_is_installed_once_and_served_in_its_workspaces(org: Desk) -> None:
    first = await org.fake.say("@nod one", team="E1", kinds=("message",))
    await org.fake.say("@nod two", team="E1", channel="CSTAND", workspace="T9", kinds=("message",))
    await org.fake.say("@nod three", team="T1", kinds=("message",))
    said = org.of(Said)
    assert [each.target.split("/")[:2] for each in said] == [
        ["slack:E1", "CGEN"],
        ["slack:E1", "CSTAND"],
        ["slack:T1", "CGEN"],
    ]
    assert [each.person.id for each in said] == ["E1/UANA", "E1/UANA", "T1/UANA"]
    await org.surface.post(f"slack:E1/CGEN/{first.ts}", Message(text="x"), "answer:s/1/1")
    await org.surface.post("slack:E1/UANA", Message(text="y"), "answer:s/1/2")
    posts = [team for name, team, _ in org.fake.calls if name == "chat.postMessage"]
    assert posts == ["E1", "E1"]


async def test_an_organization_is_served_after_a_restart(
    tmp_path: Path, sqlite_store: Store, org: Desk
) -> None:
    await org.surface.stop()
    async with desk(tmp_path, sqlite_store, org.fake, **{**ORG, "bot_tokens": ()}) as at:
        await at.surface.post("slack:E1/CGEN", Message(text="again"), "answer:s/1/1")
        await at.fake.say("@nod hi", team="E1", kinds=("message",))
        assert len(at.taken) == 1
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("vault*"))
    assert kept and b"xoxb-E1" not in kept
    org.fake.teams["E1"].revoked = True
    config = {**ORG, "bot_tokens": (org.fake.teams["T1"].token,)}
    async with desk(tmp_path, sqlite_store, org.fake, **config) as at:
        assert [text for _, _, text in at.told.notices if "Starship (E1)" in text]


async def test_a_stream_in_an_organization_names_its_readers_workspace(org: Desk) -> None:
    """Slack takes no organization for the team of a reader."""
    root = await org.fake.say("@nod go", team="E1", channel="CSTAND", workspace="T9")
    await org.fake.until(lambda: org.fake.statuses)
    growing = Message(text="Hello …", growing=True)
    await org.surface.post(f"slack:E1/CSTAND/{root.ts}", growing, "answer:s1/1/1")
    (begun,) = org.fake.called("chat.startStream")
    assert (begun["recipient_team_id"], begun["recipient_user_id"]) == ("T9", "UANA")
    assert not org.fake.called("chat.postMessage")


async def test_presses_forms_commands_and_the_home_of_an_organization_are_its_own(
    org: Desk,
) -> None:
    """Their payloads name no team."""
    button = Button(label="Approve", key="a", answer="once", token="t")
    row = Row(prompt="p1", title="x", buttons=(button,))
    card = Message(card=Card(id="c", title="May I?", rows=(row,)))
    await org.surface.post("slack:E1/CGEN", card, "prompt:p1")
    post = org.fake.teams["E1"].channels["CGEN"].of_nod[-1]
    await org.fake.press("Approve", post, team="E1")
    (pressed,) = org.of(Pressed)
    assert (pressed.person.id, pressed.target) == ("E1/UANA", "slack:E1/CGEN")
    assert pressed.ref == f"E1/CGEN/{post.ts}"
    await org.fake.command("status", team="E1")
    (command,) = org.of(Commanded)
    assert (command.person.id, command.target) == ("E1/UANA", "slack:E1/CGEN")
    await org.fake.open_home(team="E1")
    await org.fake.until(lambda: "UANA" in org.fake.homes)
    assert [team for name, team, _ in org.fake.calls if name == "views.publish"] == ["E1"]


async def test_a_workspace_the_app_was_not_added_to_is_told_and_the_others_go_on(
    org: Desk,
) -> None:
    org.fake.teams["E1"].withheld.add("T9")
    with pytest.raises(SurfaceError, match="team_access_not_granted") as raised:
        await org.surface.post("slack:E1/CSTAND", Message(text="x"), "answer:s/1/1")
    assert "admin of the organization" in str(raised.value)
    assert org.told.notices == [], "the installation is not lost"
    await org.surface.post("slack:E1/CGEN", Message(text="x"), "answer:s/1/2")


async def test_an_organization_that_removes_the_app_is_forgotten(org: Desk) -> None:
    await org.fake.send("events_api", org.fake.event("E1", {"type": "app_uninstalled"}))
    await org.fake.until(lambda: org.told.notices)
    with pytest.raises(SurfaceError, match="not installed"):
        await org.surface.post("slack:E1/CGEN", Message(text="x"), "answer:s/1/1")
    await org.surface.post("slack:T1/CGEN", Message(text="x"), "answer:s/1/2")


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        ({"team_id": "T1"}, ("T1",)),
        ({"team": {"id": "T1"}, "user": {"id": "U", "team_id": "T2"}}, ("T1", "T2")),
        (
            {"team": None, "enterprise": {"id": "E1"}, "is_enterprise_install": True}
            | {"user": {"id": "U", "team_id": "T8"}},
            ("E1", "T8"),
        ),
        (
            {"team": {"id": "T8"}, "enterprise": {"id": "E1"}, "is_enterprise_install": False},
            ("T8", "E1"),
        ),
        (
            {"team_id": "T8", "enterprise_id": "E1", "is_enterprise_install": "true"},
            ("E1", "T8"),
        ),
        (
            {"team_id": "T5", "authorizations": [{"team_id": "T1", "enterprise_id": None}]},
            ("T1", "T5"),
        ),
        ({"team_id": None, "enterprise_id": "E1", "authorizations": []}, ("E1",)),
        (
            {"team": {"id": "T5"}, "view": {"app_installed_team_id": "T1"}},
            ("T1", "T5"),
        ),
        ({}, ()),
    ],
    ids=[
        "a workspace",
        "a press",
        "a press in an organization",
        "a workspace of an organization, installed by itself",
        "a command in an organization",
        "a channel shared with another workspace",
        "a note to an organization",
        "a form opened from another workspace",
        "nothing",
    ],
)
def test_the_installation_a_payload_is_for(body: dict[str, Any], ids: tuple[str, ...]) -> None:
    assert installations(body) == ids


async def test_a_line_from_another_workspace_in_a_shared_channel_is_taken(
    tmp_path: Path, sqlite_store: Store
) -> None:
    """Slack Connect: the payload names the workspace it happened in, not the one Nod is in."""
    async with desk(tmp_path, sqlite_store) as at:
        post = {"type": "message", "user": "UANA", "channel": "CGEN", "ts": "1700000000.000100"}
        body = at.fake.event("T1", {**post, "text": "hi", "user_team": "T5"})
        ack = await at.fake.send("events_api", {**body, "team_id": "T5"})
        assert ack.ok
        assert [each.target for each in at.of(Said)] == ["slack:T1/CGEN/1700000000.000100"]
