"""A strict Bot API server on localhost: what Telegram refuses it refuses; tests act the people.

Updates wait until they are confirmed, by polling or by a webhook's 200. Times are the real ones.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from tests.fakes.markup import Refused, units
from tests.fakes.telegram_wire import (
    METHODS,
    Fault,
    Given,
    buttons_in,
    close,
    found_in,
    given_in,
    not_ok,
    parsed,
    rich_in,
    user_of,
)

__all__ = ["BOT", "TOKEN", "FakeTelegram", "Sent"]

BOT = 7000001
TOKEN = f"{BOT}:AAFake-token_that_is_35_characters_x"
_EMOJI = {"👍", "👎", "👀", "🔥", "🎉", "👌", "🤔"}


@dataclass(slots=True)
class Sent:
    """A message of a bot as it looks now."""

    id: int
    chat: int
    topic: int | None
    text: str
    buttons: list[list[dict[str, str]]]
    reply_to: int | None
    entities: list[dict[str, Any]] = field(default_factory=list)
    rich: bool = False
    files: list[tuple[str, bytes]] = field(default_factory=list)
    edits: list[str] = field(default_factory=list)
    reactions: list[str] = field(default_factory=list)

    @property
    def labels(self) -> list[str]:
        return [button["text"] for line in self.buttons for button in line]


@dataclass(slots=True)
class _Bot:
    token: str
    id: int
    username: str
    privacy: bool
    updates: deque[dict[str, Any]] = field(default_factory=deque)
    webhook: str = ""
    secret: str = ""
    poll: object | None = None
    commands: list[dict[str, str]] = field(default_factory=list)
    revoked: bool = False


class FakeTelegram:
    """`async with FakeTelegram() as fake:` then `fake.url`."""

    def __init__(self, *, rich: bool = True) -> None:
        self.rich = rich
        self.bots = {TOKEN: _Bot(TOKEN, BOT, "nod_bot", True)}
        self.chats: dict[int, dict[str, Any]] = {}
        self.topics: dict[int, set[int]] = defaultdict(set)
        self.moved: dict[int, int] = {}
        self.messages: dict[tuple[int, int], dict[str, Any]] = {}
        #: Groups in which the bot is an administrator who may delete messages.
        self.admin_in: set[int] = set()
        self.sent: list[Sent] = []
        self.drafts: list[tuple[int, int, str]] = []
        self.actions: list[tuple[int, str]] = []
        self.reactions: list[tuple[int, int, str]] = []
        self.answers: dict[str, str] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        #: Calls that were carried out, in their order, and those made before a pause was over.
        self.done: list[tuple[str, dict[str, Any]]] = []
        self.impatient: list[str] = []
        #: chat -> when it takes calls again.
        self._throttled: dict[int, float] = {}
        self.warned: set[int] = set()
        self.files: dict[str, bytes] = {}
        #: Every update there was.
        self.history: list[dict[str, Any]] = []
        self.changed = asyncio.Condition()
        self._failures: dict[str, deque[Fault | str]] = defaultdict(deque)
        self._numbers: dict[int, int] = defaultdict(int)
        self._update = 1000
        #: The port to which calls of webhooks are handed on.
        self.front = 0
        self._runner: web.AppRunner | None = None
        self._hooks: set[asyncio.Task[None]] = set()
        self.url = ""

    async def __aenter__(self) -> FakeTelegram:
        app = web.Application(client_max_size=100_000_000)
        app.router.add_route("*", "/bot{token}/{method}", self._call)
        app.router.add_get("/file/bot{token}/{path:.*}", self._file)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._hooks:
            task.cancel()
        await asyncio.gather(*self._hooks, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()

    # -- what tests do

    @property
    def bot(self) -> _Bot:
        return self.bots[TOKEN]

    def add_bot(self, token: str, username: str) -> _Bot:
        made = _Bot(token, int(token.partition(":")[0]), username, True)
        self.bots[token] = made
        return made

    def private(self, user: int) -> int:
        self.chats[user] = {"id": user, "type": "private", "first_name": f"user{user}"}
        return user

    def group(self, chat: int, *, kind: str = "supergroup", forum: bool = False) -> int:
        made: dict[str, Any] = {"id": chat, "type": kind, "title": f"group {chat}"}
        self.chats[chat] = {**made, "is_forum": True} if forum else made
        return chat

    def fail(self, method: str, code: int, what: str, times: int = 1, **parameters: Any) -> None:
        """Refuse the next calls of a method."""
        self._failures[method].extend([Fault(code, what, **parameters)] * times)

    def throttle(self, chat: int, seconds: float) -> None:
        """Take nothing for a chat for so long; whoever was told so must not call before."""
        self._throttled[chat] = time.monotonic() + seconds
        self.warned.discard(chat)

    def let(self, method: str, times: int = 1) -> None:
        """Take the next calls of a method before those that are to fail."""
        self._failures[method].extend([""] * times)

    def cut(self, method: str, *, after: bool = False, times: int = 1) -> None:
        """Close the connection of the next calls: before anything is done, or after it was."""
        self._failures[method].extend(["after" if after else "before"] * times)

    async def say(
        self,
        chat: int,
        user: int,
        text: str = "",
        *,
        topic: int | None = None,
        reply_to: int | None = None,
        token: str = TOKEN,
        **more: Any,
    ) -> int:
        """A person writes; returns the message's number."""
        number = self._next(chat)
        message = self._message(chat, number, user, topic=topic, reply_to=reply_to, **more)
        if text:
            message["text"] = text
            message.setdefault("entities", found_in(text))
        if "caption" in message:
            message.setdefault("caption_entities", found_in(message["caption"]))
        self.messages[chat, number] = message
        await self._push({"message": message}, token)
        return number

    async def change(self, chat: int, number: int, text: str, stamp: int = 1) -> None:
        """A person edits what they wrote."""
        message = {**self.messages[chat, number], "text": text, "entities": found_in(text)}
        message["edit_date"] = message["date"] + stamp
        self.messages[chat, number] = message
        await self._push({"edited_message": message})

    async def press(self, sent: Sent, label: str, user: int) -> str:
        """A person presses the button whose label begins so; returns the press's id."""
        buttons = [button for line in sent.buttons for button in line]
        data = next(each["callback_data"] for each in buttons if label in each["text"])
        return await self.press_data(sent.chat, sent.id, data, user)

    async def press_data(self, chat: int, number: int, data: str, user: int) -> str:
        self._update += 1
        made = f"q{self._update}"
        message = self.messages[chat, number]
        query = {
            "id": made,
            "from": user_of(user),
            "message": message,
            "chat_instance": "1",
            "data": data,
        }
        sender = message["from"]["id"]
        mine = (token for token, bot in self.bots.items() if bot.id == sender)
        await self._push({"callback_query": query}, next(mine, TOKEN))
        return made

    async def upload(self, content: bytes) -> str:
        """Put a file on the server; returns its id."""
        made = f"file{len(self.files)}"
        self.files[made] = content
        return made

    async def migrate(self, old: int, new: int) -> None:
        """A group becomes a supergroup, in which messages are counted from one again."""
        self.group(new)
        self.moved[old] = new
        number = self._next(old)
        message = self._message(old, number, 1, migrate_to_chat_id=new)
        await self._push({"message": message})
        number = self._next(new)
        message = self._message(new, number, 1, migrate_from_chat_id=old)
        await self._push({"message": message})

    async def push(self, update: dict[str, Any]) -> int:
        """Put any update in the queue; returns its number."""
        return await self._push(update)

    async def again(self, number: int) -> None:
        """Deliver an update once more under its old number, confirmed or not."""
        found = next(each for each in self.history if each["update_id"] == number)
        self.bot.updates.append(found)
        await self._tell()

    async def until(self, holds: Callable[[], object], limit: float = 10.0) -> None:
        """Wait until `holds()`; asked again whenever something changed."""
        async with asyncio.timeout(limit), self.changed:
            await self.changed.wait_for(lambda: bool(holds()))

    def of(self, chat: int) -> list[Sent]:
        return [each for each in self.sent if each.chat == chat]

    # -- the server

    def _next(self, chat: int) -> int:
        self._numbers[chat] += 1
        return self._numbers[chat]

    async def _push(self, update: dict[str, Any], token: str = TOKEN) -> int:
        self._update += 1
        made = {"update_id": self._update, **update}
        self.history.append(made)
        bot = self.bots[token]
        bot.updates.append(made)
        if bot.webhook:
            self._hooks.add(asyncio.create_task(self._deliver(bot)))
        await self._tell()
        return self._update

    def behind(self, bot: _Bot) -> str:
        """Return where a bot's webhook leads: what stands in front of it here has no https."""
        return f"http://127.0.0.1:{self.front}{urlsplit(bot.webhook).path}"

    async def _deliver(self, bot: _Bot) -> None:
        async with aiohttp.ClientSession() as session:
            while bot.updates and bot.webhook:
                headers = {"X-Telegram-Bot-Api-Secret-Token": bot.secret}
                async with session.post(
                    self.behind(bot), json=bot.updates[0], headers=headers
                ) as answer:
                    if answer.status == 200:
                        bot.updates.popleft()
                    else:
                        await asyncio.sleep(0.05)

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    def _message(
        self,
        chat: int,
        number: int,
        user: int,
        *,
        topic: int | None = None,
        reply_to: int | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        made: dict[str, Any] = {
            "message_id": number,
            "date": int(time.time()),
            "chat": self.chats[chat],
            "from": user_of(user),
            **more,
        }
        if topic is not None and topic != 1:
            made |= {"message_thread_id": topic, "is_topic_message": True}
        if reply_to is not None:
            replied = {
                k: v for k, v in self.messages[chat, reply_to].items() if k != "reply_to_message"
            }
            made["reply_to_message"] = replied
            if topic is None and self.chats[chat]["type"] == "supergroup":
                made["message_thread_id"] = replied.get("message_thread_id", reply_to)
        return made

    async def _file(self, request: web.Request) -> web.StreamResponse:
        held = self.files.get(request.match_info["path"])
        if request.match_info["token"] not in self.bots or held is None:
            return web.json_response({"ok": False, "error_code": 404}, status=404)
        return web.Response(body=held)

    async def _call(self, request: web.Request) -> web.StreamResponse:
        bot = self.bots.get(request.match_info["token"])
        method = request.match_info["method"]
        try:
            if bot is None or bot.revoked:
                raise Fault(401, "Unauthorized")
            act = METHODS.get(method)
            if act is None or ("Rich" in method and not self.rich):
                raise Fault(404, "Not Found")
            given = await given_in(request)
            self.calls.append((method, given))
            failure = self._failures[method].popleft() if self._failures[method] else None
            if isinstance(failure, Fault):
                raise failure
            if failure == "before":
                close(request)
            self._hold_back(method, given)
            result = await getattr(self, f"_{method}")(bot, Given(given, act))
            self.done.append((method, given))
            await self._tell()
            if failure == "after":
                close(request)
            return web.json_response({"ok": True, "result": result})
        except Refused as error:
            return not_ok(Fault(400, str(error)))
        except Fault as error:
            return not_ok(error)

    def _hold_back(self, method: str, given: dict[str, Any]) -> None:
        chat = int(given.get("chat_id", 0))
        left = self._throttled.get(chat, 0.0) - time.monotonic()
        if left <= 0:
            return
        if chat in self.warned:
            self.impatient.append(method)
        self.warned.add(chat)
        # The real one writes whole seconds; these are exact, so that a test is short.
        raise Fault(429, f"Too Many Requests: retry after {left}", retry_after=left)

    async def _getMe(self, bot: _Bot, given: Given) -> Any:
        return {
            "id": bot.id,
            "is_bot": True,
            "first_name": "Nod",
            "username": bot.username,
            "can_join_groups": True,
            "can_read_all_group_messages": not bot.privacy,
            "supports_inline_queries": False,
        }

    async def _getUpdates(self, bot: _Bot, given: Given) -> Any:
        if bot.webhook:
            raise Fault(409, "Conflict: can't use getUpdates method while webhook is active")
        offset = int(given.get("offset", 0))
        while bot.updates and offset and bot.updates[0]["update_id"] < offset:
            bot.updates.popleft()
        mine = bot.poll = object()
        await self._tell()

        def ready() -> bool:
            return bool(bot.updates) or bot.poll is not mine or bool(bot.webhook) or bot.revoked

        try:
            async with asyncio.timeout(int(given.get("timeout", 0))), self.changed:
                await self.changed.wait_for(ready)
        except TimeoutError:
            pass
        if bot.revoked:
            raise Fault(401, "Unauthorized")
        if bot.poll is not mine:
            raise Fault(409, "Conflict: terminated by other getUpdates request")
        return list(bot.updates)[: int(given.get("limit", 100))]

    async def _setWebhook(self, bot: _Bot, given: Given) -> Any:
        secret = given.get("secret_token", "")
        if secret and not re.fullmatch(r"[A-Za-z0-9_-]{1,256}", secret):
            raise Fault(400, "Bad Request: secret token contains unallowed characters")
        address = urlsplit(given["url"])
        if address.scheme != "https":
            what = "bad webhook: An HTTPS URL must be provided for webhook"
            raise Fault(400, f"Bad Request: {what}")
        if (address.port or 443) not in (443, 80, 88, 8443):
            what = "bad webhook: Webhook can be set up only on ports 80, 88, 443 or 8443"
            raise Fault(400, f"Bad Request: {what}")
        bot.webhook, bot.secret = given["url"], secret
        self._hooks.add(asyncio.create_task(self._deliver(bot)))
        return True

    async def _deleteWebhook(self, bot: _Bot, given: Given) -> Any:
        bot.webhook = ""
        return True

    async def _getWebhookInfo(self, bot: _Bot, given: Given) -> Any:
        return {
            "url": bot.webhook,
            "has_custom_certificate": False,
            "pending_update_count": len(bot.updates),
        }

    async def _setMyCommands(self, bot: _Bot, given: Given) -> Any:
        for each in given["commands"]:
            if not re.fullmatch(r"[a-z0-9_]{1,32}", each["command"]):
                raise Fault(400, "Bad Request: BOT_COMMAND_INVALID")
            if not 1 <= len(each["description"]) <= 256:
                raise Fault(400, "Bad Request: BOT_COMMAND_DESCRIPTION_INVALID")
        bot.commands = given["commands"]
        return True

    async def _getFile(self, bot: _Bot, given: Given) -> Any:
        held = self.files.get(given["file_id"])
        if held is None:
            raise Fault(400, "Bad Request: invalid file_id")
        if len(held) > 20_000_000:
            raise Fault(400, "Bad Request: file is too big")
        name = given["file_id"]
        return {
            "file_id": name,
            "file_unique_id": name,
            "file_size": len(held),
            "file_path": name,
        }

    # -- sending

    def _place(self, given: Given) -> tuple[int, int | None]:
        chat = int(given["chat_id"])
        if chat in self.moved:
            raise Fault(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                migrate_to_chat_id=self.moved[chat],
            )
        if chat not in self.chats:
            raise Fault(400, "Bad Request: chat not found")
        topic = given.get("message_thread_id")
        if topic is not None and int(topic) not in self.topics[chat]:
            raise Fault(400, "Bad Request: message thread not found")
        return chat, None if topic is None else int(topic)

    def _put(
        self,
        bot: _Bot,
        given: Given,
        text: str,
        entities: Sequence[Any],
        files: Sequence[tuple[str, bytes]] = (),
        **more: Any,
    ) -> dict[str, Any]:
        chat, topic = self._place(given)
        reply = given.get("reply_parameters") or {}
        to = reply.get("message_id")
        if to is not None and (chat, to) not in self.messages:
            if not reply.get("allow_sending_without_reply"):
                raise Fault(400, "Bad Request: message to be replied not found")
            to = None
        buttons = buttons_in(given.get("reply_markup"))
        number = self._next(chat)
        message = self._message(chat, number, bot.id, topic=topic, reply_to=to, **more)
        message["from"] = {
            "id": bot.id,
            "is_bot": True,
            "first_name": "Nod",
            "username": bot.username,
        }
        message |= {"text": text, "entities": list(entities)}
        if buttons:
            message["reply_markup"] = {"inline_keyboard": buttons}
        self.messages[chat, number] = message
        self.sent.append(
            Sent(
                id=number,
                chat=chat,
                topic=topic,
                text=text,
                buttons=buttons,
                reply_to=to,
                entities=list(entities),
                rich="rich" in more,
                files=list(files),
            )
        )
        return message

    async def _sendMessage(self, bot: _Bot, given: Given) -> Any:
        if not (given.get("link_preview_options") or {}).get("is_disabled"):
            raise Fault(400, "fake: link previews must be off")
        text, entities = parsed(given, "text", 4096)
        return self._put(bot, given, text, entities)

    async def _sendRichMessage(self, bot: _Bot, given: Given) -> Any:
        text = rich_in(given)
        return self._put(bot, given, text, [], rich=True)

    async def _sendMessageDraft(self, bot: _Bot, given: Given) -> Any:
        return self._drafted(given, parsed(given, "text", 4096)[0])

    async def _sendRichMessageDraft(self, bot: _Bot, given: Given) -> Any:
        return self._drafted(given, rich_in(given))

    def _drafted(self, given: Given, text: str) -> bool:
        chat, _ = self._place(given)
        if chat < 0:
            raise Fault(400, "Bad Request: PEER_ID_INVALID")
        if not int(given["draft_id"]):
            raise Fault(400, "Bad Request: DRAFT_ID_INVALID")
        self.drafts.append((chat, int(given["draft_id"]), text))
        return True

    def _mine(self, bot: _Bot, given: Given) -> tuple[dict[str, Any], Sent]:
        chat, _ = self._place(given)
        message = self.messages.get((chat, int(given["message_id"])))
        if message is None:
            raise Fault(400, "Bad Request: message to edit not found")
        if message["from"]["id"] != bot.id:
            raise Fault(400, "Bad Request: message can't be edited")
        number = message["message_id"]
        return message, next(each for each in self.of(chat) if each.id == number)

    async def _editMessageText(self, bot: _Bot, given: Given) -> Any:
        message, sent = self._mine(bot, given)
        is_rich = "rich_message" in given.values
        text, entities = (rich_in(given), []) if is_rich else parsed(given, "text", 4096)
        buttons = buttons_in(given.get("reply_markup"))
        if (sent.text, sent.buttons) == (text, buttons):
            raise Fault(400, "Bad Request: message is not modified: specified new message content")
        sent.text, sent.buttons, sent.entities = text, buttons, list(entities)
        sent.edits.append(text)
        message |= {"text": text, "entities": entities}
        message.pop("reply_markup", None)
        if buttons:
            message["reply_markup"] = {"inline_keyboard": buttons}
        return message

    async def _deleteMessage(self, bot: _Bot, given: Given) -> Any:
        chat, _ = self._place(given)
        number = int(given["message_id"])
        message = self.messages.get((chat, number))
        if message is None:
            raise Fault(400, "Bad Request: message to delete not found")
        if message["from"]["id"] != bot.id and chat < 0 and chat not in self.admin_in:
            raise Fault(400, "Bad Request: message can't be deleted")
        self.sent[:] = [each for each in self.sent if (each.chat, each.id) != (chat, number)]
        del self.messages[chat, number]
        return True

    async def _sendDocument(self, bot: _Bot, given: Given) -> Any:
        return self._with_files(bot, given, [given["document"]])

    async def _sendPhoto(self, bot: _Bot, given: Given) -> Any:
        name, content = given["photo"]
        if not content.startswith((b"\x89PNG", b"\xff\xd8")):
            raise Fault(400, "Bad Request: IMAGE_PROCESS_FAILED")
        return self._with_files(bot, given, [(name, content)])

    async def _sendMediaGroup(self, bot: _Bot, given: Given) -> Any:
        media = given["media"]
        if not 2 <= len(media) <= 10 or len({each["type"] for each in media}) > 1:
            raise Fault(400, "Bad Request: wrong number or mix of media")
        files = [given.values[each["media"].removeprefix("attach://")] for each in media]
        first = Given({**given.values, **media[0]}, None)
        return [self._with_files(bot, first, files)]

    def _with_files(
        self, bot: _Bot, given: Given, files: Sequence[tuple[str, bytes]]
    ) -> dict[str, Any]:
        for _, content in files:
            if not 0 < len(content) <= 50_000_000:
                raise Fault(413, "Request Entity Too Large")
        text, entities = ("", []) if not given.get("caption") else parsed(given, "caption", 1024)
        return self._put(bot, given, text, entities, files)

    async def _sendChatAction(self, bot: _Bot, given: Given) -> Any:
        chat, _ = self._place(given)
        self.actions.append((chat, given["action"]))
        return True

    async def _setMessageReaction(self, bot: _Bot, given: Given) -> Any:
        chat, _ = self._place(given)
        number, made = int(given["message_id"]), given["reaction"]
        if (chat, number) not in self.messages:
            raise Fault(400, "Bad Request: message to react not found")
        if len(made) > 1 or any(each["emoji"] not in _EMOJI for each in made):
            raise Fault(400, "Bad Request: REACTION_INVALID")
        self.reactions += [(chat, number, each["emoji"]) for each in made]
        return True

    async def _answerCallbackQuery(self, bot: _Bot, given: Given) -> Any:
        text = given.get("text", "")
        if units(text) > 200:
            raise Fault(400, "Bad Request: MESSAGE_TOO_LONG")
        if given["callback_query_id"] in self.answers:
            raise Fault(400, "Bad Request: query is too old and response timeout expired")
        self.answers[given["callback_query_id"]] = text
        return True
