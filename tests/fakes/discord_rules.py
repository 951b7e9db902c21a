"""What Discord refuses in a body: messages, components, modals, commands; in its own words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.fakes.markup import Refused, discord_content, discord_pings

__all__ = ["check_callback", "check_commands", "check_message", "pinged", "text_of", "unfurled"]

NO_PREVIEWS, PRIVATE, OF_COMPONENTS = 1 << 2, 1 << 6, 1 << 15

_MESSAGE_KEYS = {
    "content", "components", "flags", "allowed_mentions", "nonce", "enforce_nonce", "attachments",
    "message_reference", "tts", "embeds",
}  # fmt: skip


def form(where: str, why: str) -> Refused:
    """Return the usual refusal of a body."""
    return Refused(f"50035: Invalid Form Body: {where}: {why}")


def check_message(body: Mapping[str, Any], files: int = 0, *, was: int = 0) -> None:
    """Check a message that is made or changed. `was`: the flags it had. Raises Refused."""
    unknown = set(body) - _MESSAGE_KEYS
    if unknown:
        raise form(str(unknown), "the fake knows no such key")
    flags, content = body.get("flags", was), body.get("content") or ""
    parts = body.get("components") or []
    if was & OF_COMPONENTS and not flags & OF_COMPONENTS:
        raise form("flags", "IS_COMPONENTS_V2 cannot be removed")
    if flags & OF_COMPONENTS and (content or body.get("embeds")):
        raise form("content", "cannot be used with IS_COMPONENTS_V2")
    if not flags & OF_COMPONENTS and any(each["type"] != 1 for each in parts):
        raise form("components", "only action rows without IS_COMPONENTS_V2")
    if content or not (parts or files or was):
        discord_content(content)
    named = sorted(each["id"] for each in body.get("attachments", ()))
    if named != list(range(files)):
        raise form("attachments", "each file must be named once")
    if files > 10:
        raise form("attachments", "Must be 10 or fewer in length.")
    _check_nonce(body)
    _check_components(parts)


def _check_nonce(body: Mapping[str, Any]) -> None:
    nonce = body.get("nonce")
    if nonce is not None and not (isinstance(nonce, int) or 0 < len(nonce) <= 25):
        raise form("nonce", "Must be between 1 and 25 in length.")
    if body.get("enforce_nonce") and nonce is None:
        raise form("enforce_nonce", "needs a nonce")


def every(parts: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield components and all that is inside them."""
    for each in parts:
        yield each
        yield from every(each.get("components", ()))
        if "component" in each:
            yield from every([each["component"]])


def _check_components(parts: Sequence[Mapping[str, Any]]) -> None:
    found = list(every(parts))
    if len(found) > 40:
        raise form("components", "The total number of components cannot exceed 40")
    texts = [each["content"] for each in found if each["type"] == 10]
    if sum(map(len, texts)) > 4000 or not all(map(str.strip, texts)):
        raise form("components", "Must be between 1 and 4000 in length.")
    ids = [each["custom_id"] for each in found if "custom_id" in each]
    if len(ids) != len(set(ids)) or not all(0 < len(each) <= 100 for each in ids):
        raise form("custom_id", "Component custom id cannot be duplicated, 1 to 100 in length")
    marks = [each["id"] for each in found if "id" in each]
    if len(marks) != len(set(marks)) or not all(0 < each < 2**31 for each in marks):
        raise form("id", "Must be unique, between 1 and 2147483647")
    for each in found:
        _check_component(each)


def _check_component(part: Mapping[str, Any]) -> None:
    match part["type"]:
        case 1:
            inside = part["components"]
            if not 1 <= len(inside) <= 5 or any(each["type"] != 2 for each in inside):
                raise form("components", "Must be between 1 and 5 in length.")
        case 2:
            if not 1 <= len(part.get("label", "")) <= 80 or part["style"] not in (1, 2, 3, 4):
                raise form("label", "Must be between 1 and 80 in length.")
            if not part.get("custom_id"):
                raise form("custom_id", "A custom id is required")
        case 17:
            if not part["components"]:
                raise form("components", "BASE_TYPE_BAD_LENGTH")
        case 10:
            pass
        case other:
            raise form("type", f"{other} is not one of those a message may hold")


# -- what comes of it


def text_of(message: Mapping[str, Any]) -> str:
    """Return all text a message shows."""
    texts = [each["content"] for each in every(message["components"]) if each["type"] == 10]
    return "\n".join([message["content"], *texts]).strip()


def pinged(body: Mapping[str, Any]) -> list[str]:
    """Return whom a message would ping; without `allowed_mentions`, everybody it names."""
    parts = every(body.get("components") or [])
    texts = [body.get("content") or "", *(each["content"] for each in parts if each["type"] == 10)]
    found = [ping for text in texts for ping in discord_pings(text)]
    allowed = body.get("allowed_mentions")
    if allowed is not None and allowed.get("parse") == []:
        found = []
    replied = (allowed or {}).get("replied_user", True) and "message_reference" in body
    return [*found, *(["the author replied to"] if replied else [])]


def unfurled(body: Mapping[str, Any], was: int = 0) -> list[str]:
    """Return the addresses a message would show previews of."""
    flags = body.get("flags", was)
    if flags & (NO_PREVIEWS | OF_COMPONENTS):
        return []
    return re.findall(r"(?<!<)https?://[^\s>)]+", body.get("content") or "")


# -- answers to interactions


def check_callback(kind: int, of: int, data: Mapping[str, Any]) -> None:
    """Check a first answer of `kind` to an interaction of kind `of`. Raises Refused."""
    fitting = {2: {4, 5, 9}, 3: {4, 5, 6, 7, 9}, 4: {8}, 5: {4, 5, 6, 7}}
    if kind not in fitting[of]:
        raise form("type", f"{kind} does not answer an interaction of type {of}")
    if kind == 4:
        check_message(data)
    elif kind == 8:
        _check_choices(data["choices"])
    elif kind == 9:
        _check_modal(data)


def _check_choices(choices: Sequence[Mapping[str, Any]]) -> None:
    if len(choices) > 25:
        raise form("choices", "Must be 25 or fewer in length.")
    for each in choices:
        if not 1 <= len(each["name"]) <= 100 or not 1 <= len(each["value"]) <= 100:
            raise form("choices", "Must be between 1 and 100 in length.")


def _check_modal(data: Mapping[str, Any]) -> None:
    if not 1 <= len(data["title"]) <= 45 or not 1 <= len(data["custom_id"]) <= 100:
        raise form("title", "Must be between 1 and 45 in length.")
    if not 1 <= len(data["components"]) <= 5:
        raise form("components", "Must be between 1 and 5 in length.")
    ids = [each["custom_id"] for each in every(data["components"]) if "custom_id" in each]
    if len(ids) != len(set(ids)) or not all(1 <= len(each) <= 100 for each in ids):
        raise form("custom_id", "cannot be duplicated, 1 to 100 in length")
    for part in data["components"]:
        if part["type"] == 10:
            continue
        if part["type"] != 18 or not 1 <= len(part["label"]) <= 45:
            raise form("label", "Must be between 1 and 45 in length.")
        _check_input(part["component"])


def _check_input(part: Mapping[str, Any]) -> None:
    if part["type"] == 4:
        if part["style"] not in (1, 2) or not 1 <= part["max_length"] <= 4000:
            raise form("max_length", "Must be between 1 and 4000.")
        if "value" in part and not 1 <= len(part["value"]) <= part["max_length"]:
            raise form("value", "Must be between 1 and 4000 in length.")
    elif part["type"] == 3:
        options = part["options"]
        values = [each["value"] for each in options]
        if not 1 <= len(options) <= 25 or len(values) != len(set(values)):
            raise form("options", "Must be between 1 and 25 in length.")
        if not all(1 <= len(each["label"]) <= 100 for each in options):
            raise form("options", "Must be between 1 and 100 in length.")
        if part["required"] and part["min_values"] == 0:
            raise form("min_values", "Must be 1 or more when it is required.")
    else:
        raise form("type", f"{part['type']} is not one of those a label may hold")


# -- commands


def check_commands(commands: Sequence[Mapping[str, Any]]) -> None:
    """Check the list of an application's commands. Raises Refused."""
    names = [each["name"] for each in commands]
    if len(commands) > 100 or len(names) != len(set(names)):
        raise form("commands", "Application command names must be unique, 100 at most")
    for each in commands:
        options = each.get("options", ())
        for named in (each, *options):
            if not re.fullmatch(r"[-_a-z0-9]{1,32}", named["name"]):
                raise form("name", "String value did not match validation regex.")
            if not 1 <= len(named["description"]) <= 100:
                raise form("description", "Must be between 1 and 100 in length.")
        if len(options) > 25 or len({each["name"] for each in options}) != len(options):
            raise form("options", "Option names must be unique, 25 at most")
        needed = [bool(option.get("required")) for option in options]
        if needed != sorted(needed, reverse=True):
            raise form("options", "Required options must be placed before non-required options")
        for option in options:
            if option["type"] not in range(3, 12):
                raise form("type", "is not one of the kinds of options")
            if option.get("autocomplete") and option["type"] not in (3, 4, 10):
                raise form("autocomplete", "only for text and numbers")
            if "channel_types" in option and option["type"] != 7:
                raise form("channel_types", "only for channels")
