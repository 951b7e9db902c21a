"""Which platforms there are. A platform's library is imported only when it has a token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bot.surfaces import config
from bot.surfaces.base import Surface
from bot.surfaces.config import Ground, Secret

if TYPE_CHECKING:
    from bot.settings import Settings

__all__ = ["PLATFORMS", "Platform"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """One platform: how its surface is configured and where it is written."""

    #: Returns the surface's config; None: it has no token, so it is not started.
    config: Callable[[Settings, Secret], Any]
    module: str
    #: The class in `module`; called with the config and the ground.
    surface: str

    def made(self, configured: Any, ground: Ground) -> Surface:
        """Return the surface, not started; its library is imported here."""
        surface: Surface = getattr(import_module(self.module), self.surface)(configured, ground)
        return surface


PLATFORMS: Mapping[str, Platform] = {
    "slack": Platform(
        config=config.slack_config, module="bot.surfaces.slack", surface="SlackSurface"
    ),
    "telegram": Platform(
        config=config.telegram_config, module="bot.surfaces.telegram", surface="TelegramSurface"
    ),
    "discord": Platform(
        config=config.discord_config, module="bot.surfaces.discord", surface="DiscordSurface"
    ),
}
