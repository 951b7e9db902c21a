"""The wire of the fake Bot API: methods and their parameters, texts, buttons, refusals."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from tests.fakes.markup import telegram_entities, telegram_html, units
from tests.fakes.telegram_rich import rich_text

__all__ = [
    "METHODS",
    "Fault",
    "Given",
    "buttons_in",
    "close",
    "found_in",
    "given_in",
    "not_ok",
    "parsed",
    "rich_in",
    "user_of",
]


class Fault(Exception):
    """An answer that is not ok."""

    def __init__(self, code: int, what: str, **parameters: Any) -> None:
        super().__init__(what)
        self.code, self.what, self.parameters = code, what, parameters


_SENDING = {"chat_id", "message_thread_id", "reply_parameters", "reply_markup"}
#: The methods there are, with their parameters; any other is refused.
METHODS: Mapping[str, set[str]] = {
    "getMe": set(),
    "getUpdates": {"offset", "limit", "timeout", "allowed_updates"},
    "setWebhook": {"url", "secret_token", "allowed_updates", "max_connections"},
    "deleteWebhook": {"drop_pending_updates"},
    "getWebhookInfo": set(),
    "setMyCommands": {"commands", "scope", "language_code"},
    "getFile": {"file_id"},
    "sendMessage": {*_SENDING, "text", "parse_mode", "link_preview_options"},
    "sendRichMessage": {*_SENDING, "rich_message"},
    "sendMessageDraft": {"chat_id", "message_thread_id", "draft_id", "text", "parse_mode"},
    "sendRichMessageDraft": {"chat_id", "message_thread_id", "draft_id", "rich_message"},
    "editMessageText": {
        "chat_id",
        "message_id",
        "text",
        "parse_mode",
        "link_preview_options",
        "rich_message",
        "reply_markup",
    },
    "deleteMessage": {"chat_id", "message_id"},
    "sendDocument": {*_SENDING, "document", "caption", "parse_mode"},
    "sendPhoto": {*_SENDING, "photo", "caption", "parse_mode"},
    "sendMediaGroup": {*_SENDING, "media", "media0"},
    "sendChatAction": {"chat_id", "message_thread_id", "action"},
    "setMessageReaction": {"chat_id", "message_id", "reaction", "is_big"},
    "answerCallbackQuery": {"callback_query_id", "text", "show_alert"},
}


class Given:
    """The parameters of a call; one that the method does not have is refused."""

    def __init__(self, values: dict[str, Any], known: set[str] | None) -> None:
        unknown = [] if known is None else sorted(set(values) - known)
        if unknown and not all(isinstance(values[each], tuple) for each in unknown):
            raise Fault(400, f"fake: unknown parameters {unknown}")
        self.values = values

    def __getitem__(self, name: str) -> Any:
        if name not in self.values:
            raise Fault(400, f"Bad Request: {name} is missing")
        return self.values[name]

    def get(self, name: str, other: Any = None) -> Any:
        return self.values.get(name, other)


def user_of(user: int) -> dict[str, Any]:
    return {"id": user, "is_bot": False, "first_name": f"user{user}"}


async def given_in(request: web.Request) -> dict[str, Any]:
    if request.content_type == "application/json":
        held = await request.json()
        return dict(held)
    found: dict[str, Any] = {}
    for name, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            found[name] = (value.filename, value.file.read())
        elif name in _JSON:
            found[name] = json.loads(str(value))
        else:
            found[name] = str(value)
    return found


_JSON = {
    "allowed_updates",
    "commands",
    "link_preview_options",
    "media",
    "reaction",
    "reply_markup",
    "reply_parameters",
    "rich_message",
}


def not_ok(fault: Fault) -> web.Response:
    body: dict[str, Any] = {"ok": False, "error_code": fault.code, "description": fault.what}
    if fault.parameters:
        body["parameters"] = fault.parameters
    return web.json_response(body, status=fault.code)


def close(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()
    raise asyncio.CancelledError


def parsed(given: Given, name: str, limit: int) -> tuple[str, list[dict[str, Any]]]:
    text = given[name]
    if given.get("parse_mode") is None:
        telegram_entities(text, [], limit)
        return text, found_in(text)
    if given["parse_mode"] != "HTML":
        raise Fault(400, "Bad Request: unsupported parse_mode")
    shown, entities = telegram_html(text, limit)
    made = [
        {
            "type": e.type,
            "offset": e.offset,
            "length": e.length,
            **({"url": e.url} if e.url else {}),
        }
        for e in entities
    ]
    return shown, made


def rich_in(given: Given) -> str:
    message = given["rich_message"]
    if set(message) - {"skip_entity_detection"} != {"html"}:
        raise Fault(400, "fake: rich messages are written as html here")
    if not message.get("skip_entity_detection"):
        raise Fault(400, "fake: a model's @name must not tell anybody")
    return rich_text(message["html"])


def buttons_in(markup: Any) -> list[list[dict[str, str]]]:
    if not markup or "inline_keyboard" not in markup:
        return []
    lines: list[list[dict[str, str]]] = markup["inline_keyboard"]
    if sum(map(len, lines)) > 100 or any(not 1 <= len(line) <= 8 for line in lines):
        raise Fault(400, "Bad Request: reply markup is too long")
    for line in lines:
        for button in line:
            if not button["text"].strip() or not 1 <= len(button["callback_data"].encode()) <= 64:
                raise Fault(400, "Bad Request: BUTTON_DATA_INVALID")
    return lines


_ENTITY = re.compile(
    r"(?P<bot_command>(?<!\S)/\w+(?:@\w+)?)|(?P<mention>(?<!\w)@\w{4,})|(?P<url>https?://\S+)"
)


def found_in(text: str) -> list[dict[str, Any]]:
    """Return the entities the server finds itself, in UTF-16 units."""
    return [
        {"type": found.lastgroup, "offset": units(text[: found.start()]), "length": units(found[0])}
        for found in _ENTITY.finditer(text)
    ]
