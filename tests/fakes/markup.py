"""What each platform refuses in a message, in its own words, and whom a message would tell.

Stricter than the platforms where they silently drop markup, so that nothing is dropped unnoticed.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = [
    "Entity",
    "Refused",
    "discord_content",
    "discord_pings",
    "slack_message",
    "slack_pings",
    "telegram_entities",
    "telegram_html",
    "telegram_pings",
    "units",
]


class Refused(Exception):
    """The platform's answer to a message it does not take; its text is what the platform says."""


def units(text: str) -> int:
    """Return the length of `text` in UTF-16 units. Raises UnicodeEncodeError for half a pair."""
    return len(text.encode("utf-16-le")) // 2


# -- Telegram: https://core.telegram.org/bots/api#formatting-options


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A marked-up stretch, in UTF-16 units."""

    type: str
    offset: int
    length: int
    url: str = ""
    language: str = ""

    @property
    def end(self) -> int:
        return self.offset + self.length


_TAGS = {
    "b": "bold",
    "strong": "bold",
    "i": "italic",
    "em": "italic",
    "u": "underline",
    "ins": "underline",
    "s": "strikethrough",
    "strike": "strikethrough",
    "del": "strikethrough",
    "tg-spoiler": "spoiler",
    "a": "text_link",
    "code": "code",
    "pre": "pre",
    "blockquote": "blockquote",
}
#: What may stand in what; pre and code hold nothing, and quotes hold no quotes.
_STYLES = {"bold", "italic", "underline", "strikethrough", "spoiler"}
_TOKEN = re.compile(r"<(?P<end>/?)(?P<tag>[a-zA-Z0-9-]*)(?P<attributes>[^<>]*)>|<|[^<]+")
_ATTRIBUTE = re.compile(r"\s+([a-z-]+)(?:=(\"[^\"]*\"|'[^']*'|[a-zA-Z0-9.-]+))?")
_KNOWN_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|#\d+|#x[0-9a-fA-F]+);")
_LINK = re.compile(r"(?:https?|tg|ton)://[^\s<>]+", re.IGNORECASE)


def telegram_html(marked: str, limit: int = 4096) -> tuple[str, list[Entity]]:
    """Return text and entities of an HTML message as the Bot API reads it.

    Raises:
        Refused: "can't parse entities", "message is too long" or "message text is empty".
    """
    text: list[str] = []
    open_: list[tuple[str, int, dict[str, str]]] = []
    entities: list[Entity] = []
    place = 0
    for token in _TOKEN.finditer(marked):
        if token["tag"] is None:
            if token[0] == "<":
                raise _unparsed(f"Unclosed start tag at byte offset {_bytes(marked, token)}")
            shown = _KNOWN_ENTITY.sub(lambda found: html.unescape(found[0]), token[0])
            text.append(shown)
            place += units(shown)
        elif token["end"]:
            if not open_ or open_[-1][0] != token["tag"].lower() or token["attributes"].strip():
                expected = f'</{open_[-1][0]}>"' if open_ else "no end tag"
                raise _unparsed(
                    f"Unmatched end tag at byte offset {_bytes(marked, token)}, expected "
                    f'"{expected}, found "</{token["tag"]}>"'
                )
            tag, start, attributes = open_.pop()
            entities.append(_entity(tag, start, place - start, attributes))
        else:
            tag = token["tag"].lower()
            if tag not in _TAGS:
                raise _unparsed(
                    f'Unsupported start tag "{tag}" at byte offset {_bytes(marked, token)}'
                )
            open_.append((tag, place, _attributes(token["attributes"])))
    if open_:
        raise _unparsed(f'Can\'t find end tag corresponding to start tag "{open_[-1][0]}"')
    shown = "".join(text)
    entities = _one_for_pre(entities)
    telegram_entities(shown, entities, limit)
    return shown, entities


def telegram_entities(text: str, entities: Sequence[Entity], limit: int = 4096) -> None:
    """Check a message's text and its entities.

    Raises:
        Refused: as `telegram_html`, and "ENTITIES_TOO_LONG" above 100 entities.
    """
    if not re.sub(r"[\s\u200b-\u200f\u2060-\u2064\ufeff\u00ad\u3164\u2800]", "", text):
        raise Refused("Bad Request: message text is empty")
    if units(text) > limit:
        raise Refused("Bad Request: message is too long")
    if len(entities) > 100:
        raise Refused("Bad Request: ENTITIES_TOO_LONG")
    starts = _sign_borders(text)
    ordered = sorted(entities, key=lambda each: (each.offset, -each.length, _rank(each)))
    for index, outer in enumerate(ordered):
        if outer.length <= 0 or outer.offset not in starts or outer.end not in starts:
            raise _unparsed(f"{outer.type} at {outer.offset} does not cover whole signs")
        for inner in ordered[index + 1 :]:
            if inner.offset >= outer.end:
                break
            if inner.end > outer.end:
                raise _unparsed(f"{outer.type} and {inner.type} overlap at {inner.offset}")
            if not _may_hold(outer, inner):
                raise _unparsed(f"{outer.type} holds {inner.type} at {inner.offset}")


def telegram_pings(text: str, entities: Sequence[Entity] = ()) -> list[str]:
    """Return the names that Telegram would tell of the message."""
    bare = text.encode("utf-16-le")
    for each in entities:
        if each.type in ("pre", "code"):
            blank = " ".encode("utf-16-le") * each.length
            bare = bare[: 2 * each.offset] + blank + bare[2 * each.end :]
    names = re.findall(r"(?<![\w.@])@[A-Za-z]\w{3,}", bare.decode("utf-16-le"))
    return [*names, *(each.url for each in entities if each.url.startswith("tg://user"))]


def _unparsed(why: str) -> Refused:
    return Refused(f"Bad Request: can't parse entities: {why}")


def _bytes(marked: str, token: re.Match[str]) -> int:
    return len(marked[: token.start()].encode())


def _attributes(written: str) -> dict[str, str]:
    place, found = 0, {}
    while match := _ATTRIBUTE.match(written, place):
        found[match[1]] = html.unescape((match[2] or "").strip("\"'"))
        place = match.end()
    if written[place:].strip():
        raise _unparsed(f"Empty attribute name in the tag: {written!r}")
    return found


def _entity(tag: str, offset: int, length: int, attributes: Mapping[str, str]) -> Entity:
    if tag == "a" and not _LINK.fullmatch(attributes.get("href", "")):
        raise _unparsed(f"no address that can be linked: {attributes.get('href')!r}")
    language = attributes.get("class", "").removeprefix("language-") if tag == "code" else ""
    return Entity(
        type=_TAGS[tag],
        offset=offset,
        length=length,
        url=attributes.get("href", ""),
        language=language,
    )


def _one_for_pre(entities: Sequence[Entity]) -> list[Entity]:
    """Return the entities with `<pre><code class="language-…">` as the one it stands for."""
    blocks = {(each.offset, each.length) for each in entities if each.type == "pre"}
    languages = {
        (each.offset, each.length): each.language
        for each in entities
        if each.type == "code" and each.language and (each.offset, each.length) in blocks
    }
    return [
        replace(each, language=languages.get((each.offset, each.length), ""))
        if each.type == "pre"
        else each
        for each in entities
        if each.type != "code" or (each.offset, each.length) not in languages
    ]


def _sign_borders(text: str) -> set[int]:
    borders, place = {0}, 0
    for sign in text:
        place += units(sign)
        borders.add(place)
    return borders


def _rank(entity: Entity) -> int:
    """Return which of two entities of the same stretch holds the other."""
    return {"blockquote": 0, "pre": 2, "code": 2}.get(entity.type, 1)


def _may_hold(outer: Entity, inner: Entity) -> bool:
    if outer.type in ("pre", "code"):
        return False
    if outer.type == "blockquote":
        return inner.type != "blockquote"
    if outer.type == "text_link":
        return inner.type in _STYLES
    return inner.type in _STYLES or inner.type == "text_link"


# -- Slack: https://docs.slack.dev/reference/block-kit/blocks

#: Block types a message may hold and we do not look into.
_OPAQUE = {
    "alert",
    "card",
    "carousel",
    "container",
    "context_actions",
    "divider",
    "file",
    "input",
    "task_card",
    "video",
}
_PING = re.compile(r"<(?:![a-z]+(?:\^[^>]*)?|@[A-Z0-9]+|#[A-Z0-9]+)(?:\|[^>]*)?>", re.IGNORECASE)


def slack_message(blocks: Sequence[Mapping[str, Any]], text: str = "") -> None:
    """Check what chat.postMessage and chat.update are sent.

    Raises:
        Refused: "no_text", "msg_too_long", "invalid_blocks" or "msg_blocks_too_long", followed
            by where and why.
    """
    if not blocks and not text.strip():
        raise Refused("no_text")
    if len(text) > 4000:
        raise Refused("msg_too_long")
    _fault(len(blocks) > 50, "no more than 50 items allowed [json-pointer:/blocks]")
    for index, block in enumerate(blocks):
        _slack_block(block, f"/blocks/{index}")
    tables = [each for each in blocks if each["type"] == "table"]
    _fault(len(tables) > 1, "only_one_table_allowed")
    ids = [each["block_id"] for each in blocks if "block_id" in each]
    _fault(len(ids) != len(set(ids)), "block_id already exists")
    written = sum(len(each["text"]) for each in blocks if each["type"] == "markdown")
    if written > 12_000 or sum(len(each) for each in _slack_texts(blocks)) > 13_200:
        raise Refused("msg_blocks_too_long")


#: What holds no mrkdwn: cells, and plain_text alone.
_UNREAD = ("table", "actions", "header")


def slack_pings(blocks: Sequence[Mapping[str, Any]], text: str = "") -> list[str]:
    """Return what in the message would tell somebody, in every text that Slack reads for it."""
    return [
        found
        for each in (*_slack_texts([b for b in blocks if b["type"] not in _UNREAD]), text)
        for found in _PING.findall(each)
    ]


def _fault(is_wrong: bool, why: str) -> None:
    if is_wrong:
        raise Refused(f"invalid_blocks: {why}")


def _sized(value: Any, most: int, where: str) -> None:
    _fault(not isinstance(value, str), f"must be a string [json-pointer:{where}]")
    _fault(not value, f"must be more than 0 characters [json-pointer:{where}]")
    _fault(len(value) > most, f"must be less than {most + 1} characters [json-pointer:{where}]")
    value.encode()


def _slack_text(value: Any, most: int, where: str, kinds: Sequence[str]) -> None:
    _fault(not isinstance(value, Mapping), f"missing required field: text [json-pointer:{where}]")
    _fault(value.get("type") not in kinds, f"unsupported type [json-pointer:{where}/type]")
    _sized(value.get("text"), most, f"{where}/text")


def _slack_block(block: Mapping[str, Any], where: str) -> None:
    _fault(len(block.get("block_id", "")) > 255, f"block_id too long [json-pointer:{where}]")
    match block.get("type"):
        case "markdown":
            _sized(block.get("text"), 12_000, f"{where}/text")
        case "section":
            _slack_section(block, where)
        case "header":
            _slack_text(block.get("text"), 150, f"{where}/text", ("plain_text",))
        case "context":
            _elements(block, 10, where)
        case "actions":
            elements = _elements(block, 25, where)
            for index, each in enumerate(elements):
                _slack_element(each, f"{where}/elements/{index}")
            ids = [each["action_id"] for each in elements if "action_id" in each]
            _fault(len(ids) != len(set(ids)), f"action_id already exists [json-pointer:{where}]")
        case "image":
            _sized(block.get("alt_text"), 2000, f"{where}/alt_text")
        case "rich_text":
            _rich_text(block, where)
        case "table":
            _slack_table(block, where)
        case "plan":
            _slack_plan(block, where)
        case other:
            _fault(other not in _OPAQUE, f"unsupported type: {other} [json-pointer:{where}/type]")


def _slack_section(block: Mapping[str, Any], where: str) -> None:
    kinds = ("mrkdwn", "plain_text")
    fields = block.get("fields", [])
    _fault("text" not in block and not fields, f"missing required field: text {where}")
    _fault(len(fields) > 10, f"no more than 10 items allowed [json-pointer:{where}/fields]")
    if "text" in block:
        _slack_text(block["text"], 3000, f"{where}/text", kinds)
    for index, each in enumerate(fields):
        _slack_text(each, 2000, f"{where}/fields/{index}", kinds)
    if "accessory" in block:
        _slack_element(block["accessory"], f"{where}/accessory")


def _elements(block: Mapping[str, Any], most: int, where: str) -> Sequence[Mapping[str, Any]]:
    elements: Sequence[Mapping[str, Any]] = block.get("elements", [])
    _fault(not elements, f"no fewer than 1 items allowed [json-pointer:{where}/elements]")
    _fault(len(elements) > most, f"no more than {most} items [json-pointer:{where}/elements]")
    return elements


def _slack_element(element: Mapping[str, Any], where: str) -> None:
    _fault(len(element.get("action_id", "")) > 255, f"action_id too long [json-pointer:{where}]")
    if element.get("type") == "button":
        _slack_text(element.get("text"), 75, f"{where}/text", ("plain_text",))
        _fault(len(element.get("value", "")) > 2000, f"value too long [json-pointer:{where}]")
        _fault(len(element.get("url", "")) > 3000, f"url too long [json-pointer:{where}]")
        style = element.get("style", "primary")
        _fault(style not in ("primary", "danger"), f"unknown style [json-pointer:{where}/style]")
    if str(element.get("type", "")).endswith("_select"):
        most = len(element.get("options", []))
        _fault(most > 100, f"no more than 100 items [json-pointer:{where}/options]")


def _rich_text(block: Mapping[str, Any], where: str) -> None:
    for index, part in enumerate(_elements(block, 10_000, where)):
        inside = f"{where}/elements/{index}"
        _fault(
            part.get("type")
            not in (
                "rich_text_section",
                "rich_text_list",
                "rich_text_quote",
                "rich_text_preformatted",
            ),
            f"unsupported type [json-pointer:{inside}]",
        )
        if part["type"] == "rich_text_list":
            _rich_text(part, inside)
            continue
        for at, element in enumerate(_elements(part, 10_000, inside)):
            if element.get("type") == "text":
                _sized(element.get("text"), 12_000, f"{inside}/elements/{at}/text")
            elif element.get("type") == "link":
                _sized(element.get("url"), 3000, f"{inside}/elements/{at}/url")


def _slack_table(block: Mapping[str, Any], where: str) -> None:
    rows = block.get("rows", [])
    _fault(not 1 <= len(rows) <= 100, f"1 to 100 rows allowed [json-pointer:{where}/rows]")
    for index, row in enumerate(rows):
        _fault(not 1 <= len(row) <= 20, f"1 to 20 cells [json-pointer:{where}/rows/{index}]")
        _fault(len(row) != len(rows[0]), f"rows differ [json-pointer:{where}/rows/{index}]")
        for at, cell in enumerate(row):
            inside = f"{where}/rows/{index}/{at}"
            if cell.get("type") == "rich_text":
                _rich_text(cell, inside)
            else:
                _fault(cell.get("type") != "raw_text", f"unsupported [json-pointer:{inside}]")
                _sized(cell.get("text"), 10_000, f"{inside}/text")
    size = sum(len(each) for each in _slack_texts([block]))
    _fault(size > 10_000, f"more than 10000 characters in cells [json-pointer:{where}]")
    settings = block.get("column_settings", [])
    _fault(len(settings) > 20, f"no more than 20 items [json-pointer:{where}/column_settings]")
    for each in settings:
        _fault(
            each is not None and each.get("align") not in ("left", "center", "right"),
            f"unknown align [json-pointer:{where}/column_settings]",
        )


def _slack_plan(block: Mapping[str, Any], where: str) -> None:
    _sized(block.get("title"), 150, f"{where}/title")
    tasks = block.get("tasks", [])
    _fault(len(tasks) > 50, f"no more than 50 items allowed [json-pointer:{where}/tasks]")
    for index, each in enumerate(tasks):
        inside = f"{where}/tasks/{index}"
        _sized(each.get("task_id"), 255, f"{inside}/task_id")
        _sized(each.get("title"), 256, f"{inside}/title")
        status = each.get("status")
        known = ("pending", "in_progress", "complete", "error")
        _fault(status not in known, f"unknown status [json-pointer:{inside}/status]")
    ids = [each["task_id"] for each in tasks]
    _fault(len(ids) != len(set(ids)), f"task_id already exists [json-pointer:{where}]")


def _slack_texts(value: Any) -> Iterator[str]:
    """Yield every text in blocks."""
    if isinstance(value, Mapping):
        for key, inside in value.items():
            if key == "text" and isinstance(inside, str):
                yield inside
            else:
                yield from _slack_texts(inside)
    elif isinstance(value, list | tuple):
        for inside in value:
            yield from _slack_texts(inside)


# -- Discord: https://discord.com/developers/docs/resources/message


def discord_content(content: str, limit: int = 2000) -> None:
    """Check a message's content.

    Raises:
        Refused: 50035 when it is too long, 50006 when it is empty, 50109 for half a pair.
    """
    try:
        content.encode()
    except UnicodeEncodeError as error:
        raise Refused("50109: The request body contains invalid JSON.") from error
    if not content.strip():
        raise Refused("50006: Cannot send an empty message")
    if len(content) > limit:
        raise Refused(f"50035: Invalid Form Body: content: Must be {limit} or fewer in length.")


def discord_pings(content: str) -> list[str]:
    """Return what in the content would tell somebody; code tells nobody."""
    bare = re.sub(r"\\[\\`]|```.*?```|``.*?``|`[^`]*`", " ", content, flags=re.DOTALL)
    return re.findall(r"@everyone|@here|<@[!&]?\d+>", bare)
