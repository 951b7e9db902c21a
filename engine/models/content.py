"""Fits a conversation to one model: replaces what it cannot take, leaves out what is not its own.

The history itself is never changed: where a message differs, `fit` makes a new one.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.canonical import clean, digest
from engine.models.base import Message
from engine.models.catalogue import Entry

__all__ = ["PLACEHOLDER", "Documents", "estimate", "fit"]

#: Stands where an image was, for a model without vision.
PLACEHOLDER = "[image attachment — not viewable by this model]"

#: Characters of a PDF's text a model is sent.
PDF_BUDGET = 200_000
#: Seconds reading one PDF may take.
PDF_TIMEOUT = 30.0
#: PDFs whose text is kept; the oldest goes first.
PDF_KEPT = 32

#: Tokens an attachment is taken to cost: providers tile images, and a page is about 1,500.
IMAGE_TOKENS = 1_600
FILE_TOKENS = 6_000

_PDF = "data:application/pdf;base64,"
_KEYS = {
    "system": frozenset({"role", "content"}),
    "user": frozenset({"role", "content"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
    "assistant": frozenset({"role", "content", "tool_calls", "model"}),
}

_log = logging.getLogger(__name__)


class Documents:
    """The text of PDF attachments, read once each, off the event loop."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    async def prepare(self, messages: Iterable[Message], entry: Entry) -> None:
        """Read every PDF in `messages` that `entry` cannot take natively. Never raises for one."""
        if entry.pdf:
            return
        for data in _pdfs(messages):
            key = digest(data)
            if key in self._texts:
                continue
            try:
                async with asyncio.timeout(PDF_TIMEOUT):
                    text = await asyncio.to_thread(_pdf_text, data)
            except TimeoutError:
                text = "(reading this PDF took too long)"
            self._texts[key] = text
            while len(self._texts) > PDF_KEPT:
                self._texts.pop(next(iter(self._texts)))

    def text(self, data: str) -> str:
        """Return the text of a PDF data URL, or a note that says why there is none."""
        return self._texts.get(digest(data), "(the text of this PDF has not been read)")


def fit(
    messages: Sequence[Message],
    entry: Entry,
    documents: Documents | None = None,
    *,
    open_from: int | None = None,
) -> list[Message]:
    """Return `messages` as this model can take them, still in canonical shape.

    Images, PDFs and other files become text where the model has no sense for them; keys only
    people see are stripped; reasoning goes back only to the model that made it; blank text is
    dropped. PDFs a model cannot take must have been read by `documents.prepare` before. Each
    message is fitted by itself, so with `open_from` a part may be fitted alone.

    `open_from` is the index at which the open turn begins; None: it is found by its user message.
    """
    documents = documents or Documents()
    border = _open_turn(messages) if open_from is None else open_from
    fitted: list[Message] = []
    for index, message in enumerate(messages):
        made: Message | None = message
        if not _fits(message):
            made = _made(message, entry, documents, is_open=index >= border)
        if made is not None:
            fitted.append(made)
    return fitted


def _fits(message: Message) -> bool:
    """Tell whether every model can take the message as it is. Most are, so this must be quick."""
    content, role = message.get("content"), message["role"]
    if role == "assistant" and ("reasoning" in message or "provider_data" in message):
        return False
    if content.__class__ is str:
        plain: object = content.isascii() and content and not content.isspace()
    else:
        plain = content is None and message.get("tool_calls")
    return bool(plain and message.keys() <= _KEYS[role])


def _made(
    message: Message, entry: Entry, documents: Documents, *, is_open: bool
) -> dict[str, Any] | None:
    role = message["role"]
    if role == "assistant":
        return _assistant(message, entry, is_open)
    if role == "user":
        return {"role": "user", "content": _parts(message.get("content"), entry, documents)}
    made = {key: message[key] for key in _KEYS[role] if key in message}
    text = _plain(message.get("content"))
    made["content"] = text if text.strip() else "(no output)"
    return made


def estimate(message: Message) -> int:
    """Return about how many tokens a message costs: a quarter of its bytes, attachments flat."""
    content = message.get("content")
    total = 4  # role and separators
    if isinstance(content, str):
        total += _tokens(content)
    elif content:
        total += sum(_part_tokens(part) for part in content)
    for call in message.get("tool_calls") or ():
        function = call["function"]
        total += 8 + _tokens(function["name"]) + _tokens(function["arguments"])
    return total


def _tokens(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return (size + 3) // 4


def _part_tokens(part: Mapping[str, Any]) -> int:
    kind = part.get("type")
    if kind == "text":
        return _tokens(part.get("text") or "")
    return IMAGE_TOKENS if kind == "image_url" else FILE_TOKENS


def _open_turn(messages: Sequence[Message]) -> int:
    """Return where the open turn begins: its user message. One right after results only steers."""
    index = len(messages)
    while index > 0:
        index -= 1
        if messages[index]["role"] != "user":
            continue
        first = index
        while first > 0 and messages[first - 1]["role"] == "user":
            first -= 1
        if first == 0 or messages[first - 1]["role"] != "tool":
            return first
        index = first
    return 0


def _assistant(message: Message, entry: Entry, is_open: bool) -> dict[str, Any] | None:
    made = {key: message[key] for key in _KEYS["assistant"] if key in message}
    text = _plain(message.get("content"))
    calls = message.get("tool_calls")
    made["content"] = text if text.strip() else None
    if not calls:
        made.pop("tool_calls", None)
        if made["content"] is None:
            return None
    back = entry.reasoning_back
    own = message.get("model") == entry.id
    if own and (back == "all" or (back == "turn" and is_open)):
        if message.get("reasoning"):
            made["reasoning"] = message["reasoning"]
        data = (message.get("provider_data") or {}).get(entry.provider.name)
        if data:
            made["provider_data"] = {entry.provider.name: data}
    return made


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return clean(content)
    texts = [part.get("text") or "" for part in content or () if part.get("type") == "text"]
    return clean("\n".join(texts))


def _parts(content: Any, entry: Entry, documents: Documents) -> Any:
    if isinstance(content, str) or not content:
        text = clean(content or "")
        return text if text.strip() else "(no text)"
    made = [_part(part, entry, documents) for part in content]
    kept = [part for part in made if part["type"] != "text" or part["text"].strip()]
    if not kept:
        return "(no text)"
    if all(part["type"] == "text" for part in kept):
        return "\n\n".join(part["text"] for part in kept)
    return kept


def _part(part: Mapping[str, Any], entry: Entry, documents: Documents) -> dict[str, Any]:
    kind = part.get("type")
    if kind == "text":
        return _text(clean(part.get("text") or ""))
    if kind == "image_url":
        url = (part.get("image_url") or {}).get("url") or ""
        if entry.vision and url.startswith("data:image/"):
            return {"type": "image_url", "image_url": {"url": url}}
        return _text(PLACEHOLDER)
    file = part.get("file") or {}
    name, data = file.get("filename") or "attachment", file.get("file_data") or ""
    if not data.startswith(_PDF):
        return _text(f"[file attachment {name} — not viewable by this model]")
    if entry.pdf:
        return {"type": "file", "file": {"filename": name, "file_data": data}}
    return _text(f"[PDF attachment {name}, as text]\n{documents.text(data)}")


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _pdfs(messages: Iterable[Message]) -> Iterable[str]:
    for message in messages:
        content = message.get("content")
        if isinstance(content, str) or not content:
            continue
        for part in content:
            data = (part.get("file") or {}).get("file_data") or ""
            if part.get("type") == "file" and data.startswith(_PDF):
                yield data


def _pdf_text(data: str) -> str:
    """Return the text of a PDF data URL within the budget, or a note. Blocking."""
    import pypdf  # only when a PDF is met

    try:
        reader = pypdf.PdfReader(io.BytesIO(base64.b64decode(data[len(_PDF) :], validate=True)))
        if reader.is_encrypted and not reader.decrypt(""):
            return "(this PDF is protected by a password)"
        pages, size = [], 0
        for page in reader.pages:
            pages.append(page.extract_text())
            size += len(pages[-1])
            if size > PDF_BUDGET:
                break
        total = len(reader.pages)
    except binascii.Error:
        return "(this PDF arrived damaged)"
    except Exception as error:  # noqa: BLE001  # broad: pypdf raises anything on a damaged file
        _log.info("a PDF could not be read: %s", type(error).__name__)
        return "(this PDF could not be read; it may be damaged)"
    text = clean("\n\n".join(pages)).strip()
    if not text:
        return "(no text in this PDF: it seems to be scanned)"
    if size > PDF_BUDGET:
        note = f"(cut here: page {len(pages)} of {total}, {PDF_BUDGET} characters)"
        text = f"{text[:PDF_BUDGET]}\n{note}"
    return text
