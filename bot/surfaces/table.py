"""Which platforms there are. A platform's library is imported only when it has a token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.surfaces import config
from bot.surfaces.base import Surface
from bot.surfaces.config import DiscordConfig, Ground, Secret, SlackConfig, TelegramConfig

if TYPE_CHECKING:
    from bot.settings import Settings

__all__ = ["PLATFORMS", "Platform"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """One platform: how its surface is configured and made."""

    #: Returns the surface's config; None: it has no token, so it is not started.
    config: Callable[[Settings, Secret], Any]
    #: The module that is slow to load.
    module: str
    #: Makes the surface from its config; it is not started.
    made: Callable[[Any, Ground], Surface]


def _slack(configured: SlackConfig, ground: Ground) -> Surface:
    from bot.surfaces.slack import SlackSurface

    return SlackSurface(configured, ground)


def _telegram(configured: TelegramConfig, ground: Ground) -> Surface:
    from bot.surfaces.telegram import TelegramSurface

    return TelegramSurface(configured, ground)


def _discord(configured: DiscordConfig, ground: Ground) -> Surface:
    from bot.surfaces.discord import DiscordSurface

    return DiscordSurface(configured, ground)


PLATFORMS: Mapping[str, Platform] = {
    "slack": Platform(config=config.slack_config, module="bot.surfaces.slack", made=_slack),
    "telegram": Platform(
        config=config.telegram_config, module="bot.surfaces.telegram", made=_telegram
    ),
    "discord": Platform(config=config.discord_config, module="bot.surfaces.discord", made=_discord),
}
