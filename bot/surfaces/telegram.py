"""The Telegram surface: private chats, groups by reply chains, forum topics; several bots.

python-telegram-bot is used for its typed API and its transport alone: its updater confirms updates
before they are handled, and its persistence and callback cache forget at a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from bot.surfaces.base import Capabilities, Inbound, Line, Message, Receipt, SurfaceError
from bot.surfaces.config import Ground, TelegramConfig
from bot.surfaces.telegram_bot import TelegramBot
from bot.surfaces.telegram_line import UPLOAD
from bot.surfaces.telegram_places import Place, Post

__all__ = ["TelegramSurface"]

#: Seconds after which "typing" is shown anew; it fades after five:
#: https://core.telegram.org/bots/api#sendchataction
SIGN = 4.5
#: Seconds before a bot that could not be reached at the start is tried again.
RETRY = 15.0

_log = logging.getLogger(__name__)


class TelegramSurface:
    """Implements `Surface` for the bots of all tokens."""

    name = "telegram"
    capabilities = Capabilities(
        text_limit=4096,
        buttons=100,
        value_bytes=64,
        file_bytes=UPLOAD,
        edit_every=1.0,
        sign_fades=SIGN,
        small_text=True,
        reactions=True,
        threads=True,
    )

    def __init__(self, config: TelegramConfig, ground: Ground) -> None:
        self._ground = ground
        made = [TelegramBot(token, config.base_url, config.mode, ground) for token in config.tokens]
        self._bots = {bot.id: bot for bot in made}
        self._retries: list[asyncio.Task[None]] = []

    async def start(self, intake: Callable[[Inbound], Awaitable[Receipt]]) -> None:
        """Connect every bot. One that cannot is told to the owner; raises when none can."""
        bots = list(self._bots.values())
        done = await asyncio.gather(*(bot.open(intake) for bot in bots), return_exceptions=True)
        failures = [(bot, error) for bot, error in zip(bots, done, strict=True) if error]
        for _, error in failures:
            if len(failures) == len(bots) or not isinstance(error, SurfaceError):
                raise error
        for bot, error in failures:
            _log.warning("bot %s is not connected: %s", bot.id, error)
            self._ground.counts.add("nod_surface_faults_total", surface=self.name)
            text = f"{error} The other bots go on. Check: nod telegram"
            await self._ground.notify(f"telegram:{bot.id}", "A Telegram bot is not connected", text)

    async def stop(self) -> None:
        """Take no more updates and close the connections."""
        for task in self._retries:
            task.cancel()
        await asyncio.gather(*self._retries, return_exceptions=True)
        await asyncio.gather(*(bot.close() for bot in self._bots.values()))

    async def post(self, target: str, message: Message, delivery: str) -> str:
        """Post a message; one that is too long for one becomes several, with the first's ref."""
        place = Place.parse(target)
        return await self._bot(place.bot).sender.post(place, message, delivery)

    async def edit(self, ref: str, message: Message) -> None:
        """Replace what the message shows."""
        await self._bot(Post.parse(ref).bot).sender.edit(ref, message)

    async def upload(
        self, target: str, files: Sequence[Path], message: Message, delivery: str
    ) -> str:
        """Post files; several as one album."""
        place = Place.parse(target)
        return await self._bot(place.bot).sender.upload(place, files, message, delivery)

    async def erase(self, target: str, event: str) -> bool:
        """Delete a message: any in a private chat, in a group only as its administrator."""
        post = Post.parse(event)
        return await self._bot(post.bot).sender.erase(post)

    async def typing(self, target: str) -> None:
        """Show that Nod is at work."""
        place = Place.parse(target)
        await self._bot(place.bot).sender.typing(place)

    async def history(self, target: str, since: float) -> list[Line]:
        """Return the message that a chain's first one answered; no bot is shown any other."""
        found = self._bot(Place.parse(target).bot).earlier(target)
        return [line for line in found if line.at >= since]

    async def find(self, target: str, delivery: str) -> str | None:
        """Return None: the Bot API keeps nothing with a message that could be looked for."""
        Place.parse(target)
        return None

    def _bot(self, bot: str) -> TelegramBot:
        if bot not in self._bots:
            raise SurfaceError(f"There is no bot {bot} here.", "Set its TELEGRAM_BOT_TOKEN.")
        return self._bots[bot]
