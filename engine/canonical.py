"""JSON in one form: the text that is stored, and the hash a decision is bound to."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import orjson

__all__ = ["argument_hash", "clean", "defused", "digest", "dumps", "loads"]


def clean(text: str) -> str:
    """Return `text` with lone surrogates replaced by U+FFFD; pairs are joined and kept."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


#: What begins or ends a mark in which only the runtime speaks to a model.
_MARK = re.compile(r"<(?=\s*/?\s*nod-)", re.IGNORECASE)


def defused(text: str) -> str:
    """Return somebody's text, cleaned, in which nothing looks like a mark that only Nod writes."""
    return _MARK.sub("‹", clean(text))


def dumps(value: Any) -> str:
    """Serialise to JSON text. Lone surrogates anywhere inside are replaced by U+FFFD."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        return orjson.dumps(_clean_all(value)).decode()


def loads(text: str | bytes) -> Any:
    """Parse JSON text; raises ValueError when it is none."""
    return orjson.loads(text)


def argument_hash(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return the hash one decision authorises: tool name and arguments, keys sorted."""
    text = orjson.dumps([tool, _clean_all(dict(arguments))], option=orjson.OPT_SORT_KEYS)
    return digest(text)


def digest(data: bytes | str) -> str:
    """Return the SHA-256 of `data` as 64 hex digits."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def _clean_all(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(k)): _clean_all(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean_all(v) for v in value]
    return value
