"""One bot: takes its updates, in order and each once, and answers what only the asker may see.

Updates are kept on the disk, then confirmed, then handed to the intake, conversation by
conversation. One that always fails is told to the owner and left for the next start.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import html
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from aiohttp import web
from telegram import BotCommand, Update, User

from bot import cards
from bot.commands.table import COMMANDS
from bot.surfaces.base import (
    Commanded,
    Inbound,
    Message,
    Pressed,
    Receipt,
    Said,
    SurfaceError,
)
from bot.surfaces.base import Line as Earlier
from bot.surfaces.config import Ground
from bot.surfaces.pacing import Paused
from bot.surfaces.telegram_lanes import Lanes
from bot.surfaces.telegram_line import Conflicting, Line, Refused
from bot.surfaces.telegram_out import Sender
from bot.surfaces.telegram_places import Place, Post, moving
from bot.surfaces.telegram_reading import (
    ALLOWED,
    Filled,
    Migrated,
    Reader,
    form,
    is_joined,
    lane_of,
    may_go_on,
)
from bot.surfaces.telegram_spool import Held, Spool
from engine.errors import NodError, PromptError, StoreError

__all__ = ["TelegramBot"]

#: Seconds: after which an album is whole, and one sign or private answer may take.
QUIET, SIGN = 0.7, 20.0
#: Seconds before the next poll after a failed one, doubled each time.
RETRY_FIRST, RETRY_MOST = 1.0, 30.0
#: Conflicts in a row from which on the owner is told; tries of an update that fails.
CONFLICTS, TRIES = 3, 3
#: Characters of the text over a pressed button: https://core.telegram.org/bots/api#answercallbackquery
ALERT = 200

SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"

Take = Callable[[Inbound], Awaitable[Receipt]]

_log = logging.getLogger(__name__)


class TelegramBot:
    """One token's bot: `open` it, then post through `sender`."""

    def __init__(self, token: str, base_url: str, mode: str, ground: Ground) -> None:
        self._ground = ground
        self._mode = mode
        self._line = Line(token, base_url)
        self.id = self._line.id
        self.sender = Sender(self._line, ground.places.moved)
        self._spool = Spool(ground.data / "telegram" / self.id)
        self._lanes: Lanes[Held] = Lanes(
            self._handle,
            lambda one, two: is_joined(one.raw, two.raw),
            lambda held: may_go_on(held.raw),
            QUIET,
        )
        # Whoever calls the webhook must know it; from the token, so that a restart changes nothing.
        self._secret = hmac.new(token.encode(), b"nod webhook", hashlib.sha256).hexdigest()
        self._tasks: set[asyncio.Task[None]] = set()
        self._me: User
        self._reader: Reader
        self._take: Take

    @property
    def path(self) -> str:
        """The path of the webhook."""
        return f"/telegram/{self.id}"

    async def open(self, take: Take) -> None:
        """Begin to hand updates to `take`; returns when connected. Raises SurfaceError."""
        self._take = take
        self._me = await self._line.open()
        self._reader = Reader(self._me, self._ground.places, self._ground.owned, self._line.fetch)
        for held in await self._spool.left():
            self._lanes.put(lane_of(held.raw), held)
        if self._mode == "webhook":
            await self._hook()
        else:
            await self._line.told(self._line.bot.delete_webhook)
            self._own(self._poll(), "telegram poll")
        self._own(self._menu(), "telegram menu")
        if not self._me.can_read_all_group_messages:
            _log.warning(
                "@%s: privacy mode is on, so in groups it is not shown plain mentions: see"
                " `nod telegram`",
                self._me.username,
            )

    def earlier(self, thread: str) -> list[Earlier]:
        """Return what the first message of a reply chain answered: the Bot API shows no more."""
        found = self._reader.quotes.get(thread)
        return [] if found is None else [found]

    async def close(self) -> None:
        """Take no more updates and close the connections."""
        self._ground.web.remove("POST", self.path)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._lanes.close()
        await self.sender.close()
        await self._line.close()

    def _own(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _menu(self) -> None:
        """Tell the apps which commands there are (at most 100, 256 characters each)."""
        menu = [BotCommand(each.name, each.help[:256]) for each in COMMANDS.values()][:100]
        await self._quietly(lambda: self._line.told(lambda: self._line.bot.set_my_commands(menu)))

    # -- polling

    async def _poll(self) -> None:
        offset: int | None = None
        failures = conflicts = 0
        while True:
            try:
                await self._lanes.room()
                raws = await self._line.updates(offset, ALLOWED)
                if raws:
                    await self._keep(raws)
                    offset = max(int(raw["update_id"]) for raw in raws) + 1
                failures = conflicts = 0
            except (SurfaceError, OSError) as error:
                failures += 1
                conflicts += isinstance(error, Conflicting)
                if conflicts == CONFLICTS:
                    await self._conflict()
                if isinstance(error, Refused):
                    await self._shut_out(error)
                    return
                _log.warning("bot %s: no updates: %s", self.id, error)
                asked = error.retry_after if isinstance(error, Paused) else None
                await asyncio.sleep(asked or _pause(failures))

    async def _keep(self, raws: Sequence[dict[str, Any]]) -> None:
        for held in await self._spool.keep(raws):
            self._lanes.put(lane_of(held.raw), held)

    async def _conflict(self) -> None:
        self._fault("conflict")
        text = (
            f"Telegram says that somebody else polls @{self._me.username}: another Nod, or another"
            " program with the same token. Messages go to either of them. Stop the other one, or"
            " get a new token from @BotFather. This one goes on trying."
        )
        await self._notify(f"telegram:{self.id}:conflict", "Two programs poll one bot", text)

    async def _shut_out(self, error: SurfaceError) -> None:
        """The token was revoked: this bot is deaf until a restart; the others go on."""
        self._fault("token")
        text = f"{error} Nothing from @{self._me.username} comes in any more. Check: nod telegram"
        await self._notify(f"telegram:{self.id}:token", "A Telegram bot is shut out", text)

    def _fault(self, reason: str) -> None:
        _log.error("bot %s: %s", self.id, reason)
        self._ground.counts.add("nod_surface_faults_total", surface="telegram")

    async def _notify(self, cause: str, title: str, text: str) -> None:
        try:
            await self._ground.notify(cause, title, text)
        except NodError as error:
            _log.warning("the owner could not be told: %s", error)

    # -- the webhook

    async def _hook(self) -> None:
        if not self._ground.web.public.startswith("https://"):
            raise SurfaceError(
                "Telegram calls a webhook under https alone, and web.url is no such address.",
                "Set web.url, or telegram.mode to polling.",
            )
        await self._ground.web.add("POST", self.path, self._called)
        address = f"{self._ground.web.url}{self.path}"
        await self._line.told(
            lambda: self._line.bot.set_webhook(
                address, secret_token=self._secret, allowed_updates=ALLOWED
            )
        )

    async def _called(self, request: web.Request) -> web.StreamResponse:
        """Take one update; it is on the disk when the server gets its answer."""
        given = request.headers.get(SECRET_HEADER, "")
        if not hmac.compare_digest(given.encode(), self._secret.encode()):
            self._ground.counts.add("nod_refused_total", surface="telegram", reason="secret")
            return web.Response(status=403, text="This is not for you.\n")
        try:
            raw = json.loads(await request.read())
            raw["update_id"]
        except (ValueError, TypeError, KeyError):
            self._ground.counts.add("nod_refused_total", surface="telegram", reason="malformed")
            return web.Response(status=400, text="This is no update.\n")
        await self._lanes.room()
        await self._keep([raw])
        return web.Response(text="ok\n")

    # -- taking

    async def _handle(self, group: Sequence[Held]) -> None:
        """Take a group of updates in; one that always fails is left for the next start."""
        failures = 0
        while True:
            try:
                await self._taken([held.raw for held in group])
                break
            except StoreError as error:  # not stored, so not to be forgotten
                failures += 1
                _log.warning("bot %s: an update waits: %s", self.id, error)
                await asyncio.sleep(_pause(failures))
            except Exception as error:  # noqa: BLE001  # broad: one bad update must not block all
                failures += 1
                if failures < TRIES:
                    continue
                await self._put_aside(group, error)
                return
        for held in group:
            await self._spool.taken(held)

    async def _put_aside(self, group: Sequence[Held], error: Exception) -> None:
        numbers = ", ".join(str(held.raw.get("update_id")) for held in group)
        _log.error("bot %s: update %s failed: %s", self.id, numbers, type(error).__name__)
        self._ground.counts.add("nod_refused_total", surface="telegram", reason="failed")
        text = (
            f"Update {numbers} of bot {self.id} failed {TRIES} times ({type(error).__name__}). It"
            " is kept, and tried again at the next start of Nod: perhaps a newer one reads it."
        )
        await self._notify(f"telegram:{self.id}:{numbers}", "A message could not be read", text)

    async def _taken(self, raws: Sequence[dict[str, Any]]) -> None:
        bot = self._line.bot
        updates = [Update.de_json(raw, bot) for raw in raws]
        if updates[0].my_chat_member is not None:
            self._met(updates[0])
            return
        found = await self._reader.read(updates)
        if isinstance(found, Migrated):
            await self._ground.places.moved(moving(self.id, found.old, found.new))
        elif isinstance(found, Filled):
            await self._filled(found)
        elif isinstance(found, Pressed) and updates[0].callback_query is not None:
            await self._pressed(found, updates[0].callback_query.id)
        elif found is not None:
            receipt = await self._take(found)
            self._sign(found, receipt)

    def _met(self, update: Update) -> None:
        """Say in a group that Nod was added to what it cannot hear there."""
        change = update.my_chat_member
        assert change is not None, "asked for by the caller"
        joined = change.new_chat_member.status == "member" and change.old_chat_member.status in (
            "left",
            "kicked",
        )
        if joined and change.chat.id < 0 and not self._me.can_read_all_group_messages:
            text = (
                "In this group I see only commands and replies to me: my privacy mode is on."
                " Whoever owns me can turn it off with /setprivacy at @BotFather and add me again."
            )
            self._own(self._say(Place(bot=self.id, chat=change.chat.id), text), "telegram hello")

    # -- presses and forms

    async def _pressed(self, press: Pressed, query: str) -> None:
        if cards.says(press.token) == "edit":
            text = await self._form(press)
        else:
            receipt = await self._take(press)
            text = receipt.text
        if len(text) > ALERT:
            place = Place.parse(press.target)
            self._own(self._told_to(press, place, text), "telegram look")
            text = "" if place.is_private else "I write it to you in private."
        bot, told = self._line.bot, text.replace("`", "")

        async def answer() -> None:
            await self._line.told(
                lambda: bot.answer_callback_query(query, told or None, show_alert=bool(told))
            )

        self._own(self._quietly(answer), "telegram answer")

    async def _form(self, press: Pressed) -> str:
        """Ask for other arguments: the answer to that message is the press. Returns a refusal."""
        try:
            opened = await self._ground.forms.open("telegram", press.person.id, press.token)
        except PromptError as error:
            return str(error)
        values = {field.name: field.value for field in opened.fields}
        shown = html.escape(json.dumps(values, ensure_ascii=False, indent=1), quote=False)
        text = (
            f'<a href="{html.escape(form(press.token))}">Other arguments</a> for'
            f" {html.escape(opened.title)}: answer this message with those that change, as JSON."
            f"\n<pre>{shown[:3000]}</pre>"
        )
        place, post = Place.parse(press.target), Post.parse(press.ref)
        ask = partial(self.sender.ask, place, post.message, text)
        self._own(self._quietly(ask), "telegram form")
        return ""

    async def _filled(self, filled: Filled) -> None:
        """Press with the arguments somebody wrote."""
        press = filled.press
        try:
            given = json.loads(filled.text.strip().removeprefix("```json").strip("`\n "))
            if not isinstance(given, dict):
                raise ValueError("no object")
            values = {n: v if isinstance(v, str) else json.dumps(v) for n, v in given.items()}
            read = await self._ground.forms.read("telegram", press.person.id, press.token, values)
        except ValueError:
            receipt = Receipt(
                status="refused",
                text='That is no JSON object. Answer the form again, for example: {"text": "…"}',
            )
        except PromptError as error:
            receipt = Receipt(status="refused", text=str(error))
        else:
            receipt = await self._take(
                Pressed(
                    event=press.event,
                    target=press.target,
                    person=press.person,
                    token=press.token,
                    ref="",
                    arguments=read.arguments,
                )
            )
        self._sign(press, receipt)

    # -- signs and private answers

    def _sign(self, event: Inbound, receipt: Receipt) -> None:
        """Show at once that it was taken, and what is for the asker only."""
        place = Place.parse(event.target)
        if isinstance(event, Said) and receipt.status in ("accepted", "answered"):
            post = Post.parse(event.event)
            seen = partial(self.sender.seen, post.chat, post.message)
            self._own(self._quietly(seen), "telegram seen")
        if receipt.text:
            self._own(self._told_to(event, place, receipt.text), "telegram answer")

    async def _told_to(self, event: Inbound, place: Place, text: str) -> None:
        """Answer what one person asked in a group in their own chat; a hint stays in the group."""
        if isinstance(event, Commanded | Pressed) and not place.is_private:
            own = Place(bot=self.id, chat=int(event.person.id))
            try:
                async with asyncio.timeout(SIGN):
                    await self.sender.post(own, Message(text=text), f"private:{event.event}")
                return
            except (SurfaceError, TimeoutError):
                handle = self._me.username
                text = f"I answer that in private only: open https://t.me/{handle}, press Start."
        await self._say(place, text, f"private:{event.event}")

    async def _say(self, place: Place, text: str, delivery: str = "") -> None:
        await self._quietly(lambda: self.sender.post(place, Message(text=text), delivery or text))

    async def _quietly(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do what is only a sign: when it fails, the log says so."""
        try:
            async with asyncio.timeout(SIGN):
                await work()
        except (SurfaceError, TimeoutError) as error:
            _log.info("bot %s: a sign was not shown: %s", self.id, error)


def _pause(failures: int) -> float:
    return min(RETRY_MOST, RETRY_FIRST * 2.0 ** (failures - 1))
