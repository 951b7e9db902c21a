"""Prints what a platform's guide finds, for the command that is named after the platform."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from bot.doctor import Finding
    from bot.settings import Settings

__all__ = ["show"]


def show(platform: str, examine: Callable[[Settings, Any], AsyncIterator[Finding]]) -> None:
    """Print what `examine` finds. Raises typer.Exit with 1 when something needed is missing."""
    from bot import doctor, settings
    from bot.surfaces.table import PLATFORMS
    from connectors.registry import secrets_of

    loaded = settings.load()
    config = PLATFORMS[platform].config(loaded, secrets_of(os.environ, loaded.data).get)

    async def look() -> list[Finding]:
        return [each async for each in examine(loaded, config)]

    findings = asyncio.run(look())
    for line in doctor.lines(findings):
        typer.echo(line)
    if not doctor.sound(findings):
        raise typer.Exit(1)
