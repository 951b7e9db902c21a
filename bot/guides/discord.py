"""`nod discord`: what is missing in the set-up of Discord, asked of Discord; and the invite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import typer

from bot.guides.showing import show

if TYPE_CHECKING:
    from bot.doctor import Finding
    from bot.settings import Settings
    from bot.surfaces.config import DiscordConfig

__all__ = ["PERMISSIONS", "discord_app", "examine", "invite"]

#: What Nod's role must be allowed in a server, by its bit, and as Discord calls it.
#: https://discord.com/developers/docs/topics/permissions
PERMISSIONS: Mapping[int, str] = {
    1 << 10: "View Channels",
    1 << 11: "Send Messages",
    1 << 15: "Attach Files",
    1 << 16: "Read Message History",
    1 << 35: "Create Public Threads",
    1 << 38: "Send Messages in Threads",
}
#: Permission that holds all others.
_ADMINISTRATOR = 1 << 3
#: Flags of an application that may read messages: in many servers, and in fewer than a hundred.
_MAY_READ = 1 << 18 | 1 << 19

#: Seconds one question to Discord may take.
TIMEOUT = 15.0

_API = "https://discord.com/api/v10"
_APPS = "https://discord.com/developers/applications"

discord_app = typer.Typer(
    help="Check how Discord is set up.", invoke_without_command=True, rich_markup_mode=None
)


@discord_app.callback()
def check() -> None:
    """Check token, intents and permissions with Discord; print the link that invites Nod."""
    show("discord", examine)


def invite(application: str) -> str:
    """Return the link that adds Nod to a server with what it needs, and no more."""
    scope, permissions = "bot+applications.commands", sum(PERMISSIONS)
    return (
        f"https://discord.com/oauth2/authorize?client_id={application}"
        f"&scope={scope}&permissions={permissions}"
    )


async def examine(settings: Settings, config: DiscordConfig | None) -> AsyncIterator[Finding]:
    """Look at the set-up of Discord; asks Discord about the token, and changes nothing."""
    from bot.doctor import Finding

    if config is None:
        steps = f"Make an application at {_APPS}; under Bot, Reset Token; then: "
        fix = f"{steps}nod secrets set DISCORD_BOT_TOKEN"
        yield Finding(name="discord", state="missing", text="no DISCORD_BOT_TOKEN", fix=fix)
        return
    about = await _asked(config, "/applications/@me")
    if isinstance(about, str):
        fix = f"Make a new token at {_APPS} (Bot, Reset Token); set it as DISCORD_BOT_TOKEN."
        yield Finding(name="token", state="missing", text=about, fix=fix)
        return
    application = str(about["id"])
    yield Finding(name="token", text=f"{about['name']} ({application})")
    yield _intent(about)
    if (elsewhere := _elsewhere(about)) is not None:
        yield elsewhere
    guilds = await _asked(config, "/users/@me/guilds")
    for finding in _servers(guilds if isinstance(guilds, list) else [], application):
        yield finding
    yield Finding(name="invite", text=invite(application))


def _intent(about: Mapping[str, Any]) -> Finding:
    from bot.doctor import Finding

    if int(about.get("flags", 0)) & _MAY_READ:
        return Finding(name="intents", text="Message Content is on")
    fix = f"Switch on Message Content Intent at {_APPS}/{about['id']}/bot and start Nod again."
    text = "Message Content is off, so Discord lets Nod read no messages"
    return Finding(name="intents", state="missing", text=text, fix=fix)


def _elsewhere(about: Mapping[str, Any]) -> Finding | None:
    """Say when presses and commands go to another address, or the invite cannot work."""
    from bot.doctor import Finding

    page = f"{_APPS}/{about['id']}"
    if about.get("interactions_endpoint_url"):
        fix = f"Empty Interactions Endpoint URL at {page}/information."
        text = "presses and commands are sent to another address, so Nod gets none"
        return Finding(name="interactions", state="missing", text=text, fix=fix)
    if about.get("bot_require_code_grant"):
        fix = f"Switch off Requires OAuth2 Code Grant at {page}/bot."
        text = "the invite asks for a code grant, which Nod does not give"
        return Finding(name="invite", state="missing", text=text, fix=fix)
    return None


def _servers(guilds: list[Mapping[str, Any]], application: str) -> list[Finding]:
    from bot.doctor import Finding

    if not guilds:
        fix = f"Open {invite(application)} and choose a server; direct messages need one in common."
        return [Finding(name="servers", state="note", text="it is in no server", fix=fix)]
    return [_server(guild) for guild in guilds]


def _server(guild: Mapping[str, Any]) -> Finding:
    from bot.doctor import Finding

    held = int(guild.get("permissions", 0))
    lacking = [name for bit, name in PERMISSIONS.items() if not held & (bit | _ADMINISTRATOR)]
    text = f"{guild['name']} ({guild['id']})"
    if lacking:
        fix = f"Give Nod's role: {', '.join(lacking)} (Server Settings, Roles)."
        return Finding(name="server", state="missing", text=text, fix=fix)
    return Finding(name="server", text=text)


async def _asked(config: DiscordConfig, path: str) -> Any:
    """Return Discord's answer, or a sentence why there is none."""
    import aiohttp

    url = (config.base_url or _API).rstrip("/") + path
    headers = {"Authorization": f"Bot {config.token}", "User-Agent": "DiscordBot (nod, 1)"}
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    try:
        async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
            async with session.get(url) as answer:
                if answer.status == 401:
                    return "Discord does not know this token"
                answer.raise_for_status()
                return await answer.json()
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        return f"Discord could not be asked ({type(error).__name__})"
