"""`nod slack`: a manifest to make the Slack app from, and what is still missing in its set-up."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import typer

from bot.guides.showing import show

if TYPE_CHECKING:
    from bot.doctor import Finding
    from bot.settings import Settings
    from bot.surfaces.config import SlackConfig

__all__ = ["EVENTS", "SCOPES", "examine", "manifest", "slack_app"]

#: What the bot must be allowed to do, and why.
SCOPES: Mapping[str, str] = {
    "app_mentions:read": "hear when it is mentioned",
    "assistant:write": "show that it is at work",
    "channels:history": "read threads it takes part in",
    "chat:write": "answer",
    "commands": "take /nod",
    "files:read": "read files people send it",
    "files:write": "hand over files",
    "groups:history": "read threads in private channels it was invited to",
    "im:history": "hear direct messages",
    "im:write": "begin direct messages, for cards",
    "mpim:history": "hear group messages",
    "reactions:write": "show that it saw a message",
    "users:read": "know people's names",
}
#: Events Slack must send.
EVENTS = (
    "app_home_opened",
    "app_mention",
    "app_uninstalled",
    "assistant_thread_started",
    "message.channels",
    "message.groups",
    "message.im",
    "message.mpim",
    "tokens_revoked",
)
#: Seconds one question to Slack may take.
TIMEOUT = 15

_APPS = "https://api.slack.com/apps"

slack_app = typer.Typer(
    help="Set Slack up, and check it.", invoke_without_command=True, rich_markup_mode=None
)


@slack_app.callback()
def check(context: typer.Context) -> None:
    """Check tokens and scopes against Slack, and say what to change."""
    if context.invoked_subcommand is not None:
        return
    show("slack", examine)


@slack_app.command("manifest")
def show_manifest() -> None:
    """Print the manifest to make the app from: at api.slack.com/apps, "From a manifest"."""
    from bot import settings

    loaded = settings.load()
    made = manifest(loaded.web.url if loaded.slack.mode == "http" else "", loaded.web.url)
    typer.echo(json.dumps(made, indent=2, ensure_ascii=False))


def manifest(http: str = "", public: str = "") -> dict[str, Any]:
    """Return the app's manifest (docs.slack.dev/reference/app-manifest).

    Args:
        http: public address of Nod when Slack is to send events there; empty: Socket Mode.
        public: public address of Nod, for installing it in further workspaces; empty: none.
    """
    events = f"{http}/slack/events"
    command = {
        "command": "/nod",
        "description": "Ask Nod for its inbox, status and more",
        "usage_hint": "help",
        "should_escape": True,
        **({"url": events} if http else {}),
    }
    request = {"request_url": events} if http else {}
    redirects = {"redirect_urls": [f"{public}/slack/oauth_redirect"]} if public else {}
    return {
        "display_information": {
            "name": "Nod",
            "description": "An AI coworker that asks for a nod",
            "background_color": "#1f3a2e",
        },
        "features": {
            "app_home": {
                "home_tab_enabled": True,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "assistant_view": {"assistant_description": "Works with your tools and asks first."},
            "bot_user": {"display_name": "Nod", "always_online": True},
            "slash_commands": [command],
        },
        "oauth_config": {**redirects, "scopes": {"bot": sorted(SCOPES)}},
        "settings": {
            "event_subscriptions": {**request, "bot_events": list(EVENTS)},
            "interactivity": {"is_enabled": True, **request},
            "org_deploy_enabled": True,
            "socket_mode_enabled": not http,
            "token_rotation_enabled": False,
        },
    }


async def examine(settings: Settings, config: SlackConfig | None) -> AsyncIterator[Finding]:
    """Look at the set-up of Slack; asks Slack about every token, and changes nothing."""
    from bot.doctor import Finding

    if config is None:
        steps = f"Make an app at {_APPS} from `nod slack manifest`, install it, and set its token."
        yield Finding(name="slack", state="missing", text="no SLACK_BOT_TOKEN", fix=steps)
        return
    for token in config.bot_tokens:
        yield await _bot_token(config, token)
    if config.client_secret:
        yield _install(settings, config)
    if config.mode == "http":
        yield _http(settings, config)
    else:
        yield await _app_token(config)


def _http(settings: Settings, config: SlackConfig) -> Finding:
    from bot.doctor import Finding

    fix = ""
    if not config.signing_secret:
        fix = "Set SLACK_SIGNING_SECRET, from the app's page Basic Information."
    elif not settings.web.url.startswith("https://"):
        fix = "Set web.url to the https address Slack reaches Nod under."
    state = "missing" if fix else "ok"
    text = f"events come to {settings.web.url or 'no address'}/slack/events"
    return Finding(name="http", state=state, text=text, fix=fix)


def _install(settings: Settings, config: SlackConfig) -> Finding:
    """Look at what installing in further workspaces needs."""
    from bot.doctor import Finding

    fix = ""
    if not config.client_id:
        fix = "Set SLACK_CLIENT_ID, from the app's page Basic Information."
    elif not settings.web.url.startswith("https://"):
        fix = "Set web.url to the https address browsers reach Nod under, and the manifest anew."
    text = f"workspaces are installed at {settings.web.url or 'no address'}/slack/install"
    return Finding(name="install", state="missing" if fix else "ok", text=text, fix=fix)


async def _bot_token(config: SlackConfig, token: str) -> Finding:
    from bot.doctor import Finding

    if not token.startswith("xoxb-"):
        fix = "Take the Bot User OAuth Token from the app's page Install App; it begins xoxb-."
        return Finding(name="bot token", state="missing", text="no bot token", fix=fix)
    answer = await _asked(config, token, "auth_test")
    if isinstance(answer, str):
        fix = f"Install the app again at {_APPS}, and set SLACK_BOT_TOKEN to its new token."
        return Finding(name="bot token", state="missing", text=answer, fix=fix)
    granted = {each.strip() for each in answer.headers.get("x-oauth-scopes", "").split(",")}
    lacking = [f"{scope} ({why})" for scope, why in SCOPES.items() if scope not in granted]
    where = "all of " if answer.get("is_enterprise_install") else ""
    text = f"{answer['user']} in {where}{answer['team']} ({answer['team_id']})"
    if lacking:
        fix = f"Add the bot scopes {'; '.join(lacking)}, then install the app again."
        return Finding(name="bot token", state="missing", text=text, fix=fix)
    return Finding(name="bot token", text=text)


async def _app_token(config: SlackConfig) -> Finding:
    from bot.doctor import Finding

    fix = "Make an app-level token with scope connections:write (Basic Information); xapp-…"
    if not config.app_token.startswith("xapp-"):
        text = "no app token, which Socket Mode needs"
        return Finding(name="app token", state="missing", text=text, fix=f"{fix} → SLACK_APP_TOKEN")
    answer = await _asked(config, config.app_token, "apps_connections_open", config.app_token)
    if isinstance(answer, str):
        return Finding(name="app token", state="missing", text=answer, fix=fix)
    return Finding(name="app token", text="Socket Mode is open")


async def _asked(config: SlackConfig, token: str, method: str, app_token: str = "") -> Any:
    """Return Slack's answer, or a sentence why there is none."""
    from aiohttp import ClientError
    from slack_sdk.errors import SlackApiError
    from slack_sdk.web.async_client import AsyncWebClient

    client = AsyncWebClient(token=token, base_url=config.base_url, timeout=TIMEOUT)
    given = {"app_token": app_token} if app_token else {}
    try:
        return await getattr(client, method)(**given)
    except SlackApiError as error:
        return f"Slack does not accept it: {error.response.get('error')}"
    except (ClientError, TimeoutError, OSError) as error:
        return f"Slack could not be asked ({type(error).__name__})"
