"""What each platform's surface is started with: tokens and how to connect, as frozen values.

A token comes from the environment, else from the vault, under the same name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bot.board import Board
from bot.forms import Forms
from bot.places import Places
from bot.web.counts import Counts
from connectors.registry import Secrets
from engine.clock import Now

if TYPE_CHECKING:  # aiohttp is loaded only when something is connected
    from bot.settings import Settings
    from bot.web.address import Web

__all__ = [
    "DiscordConfig",
    "Ground",
    "Owned",
    "Secret",
    "SlackConfig",
    "TelegramConfig",
    "discord_config",
    "slack_config",
    "telegram_config",
]

#: Returns a secret by name; empty: there is none.
Secret = Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A thread that a session owns."""

    target: str
    session: str
    #: When a message from it was last taken (epoch seconds): history is read from there on.
    last_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a surface may use of the house it stands in."""

    now: Now
    #: The data folder.
    data: Path
    web: Web
    #: Keeps what a surface is given later, such as the tokens of an installation. Blocking.
    secrets: Secrets
    counts: Counts
    #: Lists the owned threads whose target begins with the given text.
    owned: Callable[[str], Awaitable[list[Owned]]]
    #: Tells the owner, once while it is not answered: (cause, title, text).
    notify: Callable[[str, str, str], Awaitable[None]]
    #: What a press opens before it counts, and reads back.
    forms: Forms
    #: What waits for a person, runs, and is planned.
    board: Board
    #: In which thread a post stands, and threads that move.
    places: Places


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackConfig:
    """How Nod connects to Slack."""

    #: xoxb- tokens, one a workspace; none when workspaces are installed by OAuth.
    bot_tokens: tuple[str, ...] = field(default=(), repr=False)
    #: xapp- token, for Socket Mode.
    app_token: str = field(default="", repr=False)
    #: Checks requests in HTTP mode.
    signing_secret: str = field(default="", repr=False)
    #: For installing workspaces by OAuth.
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    #: socket or http.
    mode: str = "socket"
    base_url: str = "https://slack.com/api/"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramConfig:
    """How Nod connects to Telegram."""

    #: One a bot.
    tokens: tuple[str, ...] = field(repr=False)
    #: polling or webhook.
    mode: str = "polling"
    #: Without the token: `/bot<token>/<method>` and `/file/bot<token>/<path>` follow.
    base_url: str = "https://api.telegram.org"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscordConfig:
    """How Nod connects to Discord."""

    token: str = field(repr=False)
    #: Empty: Discord's own.
    base_url: str = ""
    gateway_url: str = ""


def slack_config(settings: Settings, secret: Secret) -> SlackConfig | None:
    """Return how to connect to Slack; None: there is no token."""
    set_so = settings.slack
    config = SlackConfig(
        bot_tokens=_several(secret("SLACK_BOT_TOKEN")),
        app_token=secret("SLACK_APP_TOKEN"),
        signing_secret=secret("SLACK_SIGNING_SECRET"),
        client_id=secret("SLACK_CLIENT_ID"),
        client_secret=secret("SLACK_CLIENT_SECRET"),
        mode=set_so.mode,
        base_url=set_so.base_url,
    )
    return config if config.bot_tokens or config.client_secret else None


def telegram_config(settings: Settings, secret: Secret) -> TelegramConfig | None:
    """Return how to connect to Telegram; None: there is no token."""
    set_so, tokens = settings.telegram, _several(secret("TELEGRAM_BOT_TOKEN"))
    if not tokens:
        return None
    return TelegramConfig(tokens=tokens, mode=set_so.mode, base_url=set_so.base_url)


def discord_config(settings: Settings, secret: Secret) -> DiscordConfig | None:
    """Return how to connect to Discord; None: there is no token."""
    set_so, token = settings.discord, secret("DISCORD_BOT_TOKEN").strip()
    if not token:
        return None
    return DiscordConfig(token=token, base_url=set_so.base_url, gateway_url=set_so.gateway_url)


def _several(text: str) -> tuple[str, ...]:
    """Return the tokens of a list with commas between them."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
