"""Blots what opens an account out of what its service sends back, before anybody reads it.

A service may say a request's own headers or address again: in an error, a log it serves, a debug
page. What is blotted out here reaches no model, card, log, file or store.
"""

from __future__ import annotations

import base64
import binascii
import html
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from engine.canonical import dumps

__all__ = ["blotted", "blotted_in", "blotted_pieces", "words_of"]

MARK = "[secret]"
#: Characters of a secret; a shorter word would blot out common ones.
SHORTEST = 6


def words_of(values: Iterable[str]) -> frozenset[str]:
    """Return the words in `values` that are secret: headers that open an account, keys, addresses.

    Of "Bearer X" that is X, of a Basic header also the password in it, of an address all behind
    its host.
    """
    return frozenset(word for value in values for word in _words(value) if len(word) >= SHORTEST)


def blotted(data: bytes, words: Collection[str]) -> bytes:
    """Return `data` without the words, however it spells them."""
    for form in _forms(words):
        data = data.replace(form, MARK.encode())
    return data


def blotted_in(value: Any, words: Collection[str]) -> Any:
    """Return a JSON value in which no text holds the words."""
    if not words:
        return value
    if isinstance(value, str):
        return blotted(value.encode("utf-8", "replace"), words).decode()
    if isinstance(value, Mapping):
        return {blotted_in(name, words): blotted_in(each, words) for name, each in value.items()}
    return [blotted_in(each, words) for each in value] if isinstance(value, list) else value


async def blotted_pieces(
    pieces: AsyncIterator[bytes], words: Collection[str]
) -> AsyncIterator[bytes]:
    """Give the pieces without the words, also where one lies across two pieces."""
    kept = max((len(form) for form in _forms(words)), default=1) - 1
    held = b""
    async for piece in pieces:
        held = blotted(held + piece, words)
        cut = len(held) - kept
        if cut > 0:
            yield held[:cut]
            held = held[cut:]
    if held:
        yield held


def _words(value: str) -> Iterator[str]:
    scheme, _, word = value.strip().rpartition(" ")
    if "://" in word:
        parts = urlsplit(word)
        yield from (parts.password or "", parts.path.strip("/"), parts.query)
        return
    yield word
    if scheme.lower() == "basic":
        yield _password(word)


def _password(pair: str) -> str:
    try:
        return base64.b64decode(pair, validate=True).decode("utf-8", "replace").partition(":")[2]
    except binascii.Error:
        return ""


def _forms(words: Collection[str]) -> list[bytes]:
    """Return every spelling of the words that an answer may hold, the longest first."""
    found = {form for word in words for form in _spellings(word)}
    return sorted((form.encode("utf-8", "replace") for form in found), key=len, reverse=True)


def _spellings(word: str) -> Iterator[str]:
    yield word
    yield quote(word, safe="")
    yield quote(word, safe="/")
    yield html.escape(word)
    in_json = dumps(word)[1:-1]
    yield in_json
    yield in_json.replace("/", "\\/")
