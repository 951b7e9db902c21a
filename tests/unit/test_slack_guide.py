"""`nod slack`: a manifest that fits what Nod does, and findings that say what to change."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bot import doctor, settings
from bot.cli import app
from bot.doctor import Finding
from bot.guides.slack import EVENTS, SCOPES, examine, manifest
from bot.surfaces.config import SlackConfig
from engine.clock import system_now
from tests.fakes.slack import APP_TOKEN, FakeSlack
from tests.fakes.slack_api import METHODS
from tests.unit.slack_desk import config_for


@pytest.fixture
async def fake() -> AsyncIterator[FakeSlack]:
    async with FakeSlack() as made:
        yield made


async def found(config: SlackConfig | None, tmp_path: Path, url: str = "") -> list[Finding]:
    loaded = settings.load({"NOD_HOME": str(tmp_path)})
    loaded = replace(loaded, web=replace(loaded.web, url=url))
    return [each async for each in examine(loaded, config)]


# -- the manifest


def test_the_manifest_is_printed_as_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NOD_HOME", str(tmp_path))
    done = CliRunner().invoke(app, ["slack", "manifest"])
    assert done.exit_code == 0
    assert json.loads(done.output) == manifest()


def test_the_manifest_asks_for_every_scope_the_calls_need_and_no_other() -> None:
    """Scopes of the calls we make, of reading histories, and of the events that come."""
    calls = {scope for _, scope, _, _ in METHODS.values() if scope}
    heard = {"app_mentions:read", "channels:history", "groups:history", "im:history"}
    heard |= {"mpim:history", "commands"}
    asked = set(manifest()["oauth_config"]["scopes"]["bot"])
    assert asked == set(SCOPES) == calls | heard


def test_in_socket_mode_no_address_is_named() -> None:
    made = manifest()
    assert made["settings"]["socket_mode_enabled"] is True
    assert "http" not in json.dumps(made)


def test_in_http_mode_all_three_addresses_are_named() -> None:
    made = manifest("https://nod.example.org", "https://nod.example.org")
    events = "https://nod.example.org/slack/events"
    assert made["settings"]["socket_mode_enabled"] is False
    assert made["settings"]["event_subscriptions"]["request_url"] == events
    assert made["settings"]["interactivity"]["request_url"] == events
    assert made["features"]["slash_commands"][0]["url"] == events
    redirects = made["oauth_config"]["redirect_urls"]
    assert redirects == ["https://nod.example.org/slack/oauth_redirect"]


def test_the_manifest_keeps_slacks_limits() -> None:
    made = manifest()
    about = made["display_information"]
    assert len(about["name"]) <= 35 and len(about["description"]) <= 140
    assert len(made["features"]["bot_user"]["display_name"]) <= 80
    assert set(made["settings"]["event_subscriptions"]["bot_events"]) == set(EVENTS)
    assert made["features"]["app_home"]["home_tab_enabled"] is True


# -- the check


async def test_a_good_set_up_is_sound(fake: FakeSlack, tmp_path: Path) -> None:
    findings = await found(config_for(fake), tmp_path)
    assert [each.state for each in findings] == ["ok", "ok"]
    assert "nod in Acme (T1)" in findings[0].text


async def test_the_doctor_looks_at_a_platform_that_has_a_token(
    fake: FakeSlack, tmp_path: Path
) -> None:
    fake.teams["T1"].scopes.discard("chat:write")
    environ = {
        "NOD_HOME": str(tmp_path),
        "NOD_MODEL": "practice:rules",
        "NOD_SLACK_BASE_URL": fake.base_url,
        "SLACK_BOT_TOKEN": fake.teams["T1"].token,
        "SLACK_APP_TOKEN": APP_TOKEN,
    }
    findings = {each.name: each for each in await doctor.examine(environ, system_now)}
    assert "chat:write" in findings["bot token"].fix
    assert findings["app token"].state == "ok"


async def test_without_a_token_the_first_steps_are_told(tmp_path: Path) -> None:
    (finding,) = await found(None, tmp_path)
    assert finding.state == "missing"
    assert "nod slack manifest" in finding.fix


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"bot_tokens": ("xoxp-user",)}, "begins xoxb-"),
        ({"bot_tokens": ("xoxb-dead",)}, "Install the app again"),
        ({"app_token": ""}, "connections:write"),
        ({"app_token": "xoxb-T1"}, "connections:write"),
        ({"app_token": "xapp-dead"}, "connections:write"),
        ({"mode": "http", "signing_secret": ""}, "SLACK_SIGNING_SECRET"),
        ({"mode": "http"}, "https address"),
        ({"base_url": "http://127.0.0.1:9/api/"}, "Install the app again"),
    ],
)
async def test_what_is_wrong_is_named_with_what_to_do(
    fake: FakeSlack, tmp_path: Path, config: dict[str, Any], told: str
) -> None:
    findings = await found(config_for(fake, **config), tmp_path)
    wrong = [each for each in findings if each.state == "missing"]
    assert wrong
    assert told in wrong[0].fix
    assert not any(APP_TOKEN in each.text + each.fix for each in findings)


async def test_a_missing_scope_is_named_with_its_reason(fake: FakeSlack, tmp_path: Path) -> None:
    fake.teams["T1"].scopes -= {"files:read", "users:read"}
    first = (await found(config_for(fake), tmp_path))[0]
    assert first.state == "missing"
    assert "files:read (read files people send it)" in first.fix
    assert "users:read" in first.fix
    assert "chat:write" not in first.fix


@pytest.mark.parametrize(
    ("config", "url", "told"),
    [
        ({"client_id": "1.2"}, "https://nod.example.org", ""),
        ({"client_id": "1.2"}, "", "https address"),
        ({}, "https://nod.example.org", "SLACK_CLIENT_ID"),
    ],
    ids=["sound", "no address", "no id"],
)
async def test_installing_further_workspaces_needs_an_id_and_an_address(
    fake: FakeSlack, tmp_path: Path, config: dict[str, Any], url: str, told: str
) -> None:
    config = {"client_secret": "s", **config}
    findings = {each.name: each for each in await found(config_for(fake, **config), tmp_path, url)}
    assert findings["install"].state == ("missing" if told else "ok")
    assert told in findings["install"].fix
    assert "/slack/install" in findings["install"].text


async def test_the_token_of_an_organization_is_said_to_be_one(
    fake: FakeSlack, tmp_path: Path
) -> None:
    fake.add_org("E1", "Starship", "T8", "T9")
    findings = await found(config_for(fake), tmp_path)
    assert "nod in all of Starship (E1)" in findings[1].text


async def test_in_http_mode_a_public_address_is_sound(fake: FakeSlack, tmp_path: Path) -> None:
    findings = await found(config_for(fake, mode="http"), tmp_path, "https://nod.example.org")
    assert [each.state for each in findings] == ["ok", "ok"]
    assert "https://nod.example.org/slack/events" in findings[1].text
