"""Tells what a provider's failure means: try again, try another model, or ask a person.

Works on any SDK's exceptions by what they carry (a status, a body, headers), so that no SDK has to
be imported. No text made here holds a key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from engine.models.base import (
    ContextTooLong,
    KeyRejected,
    ModelError,
    ModelRefused,
    ModelUnavailable,
)

__all__ = ["QuotaSpent", "classify", "complaint"]


class QuotaSpent(ModelUnavailable):
    """No credit left: waiting does not help, another model may."""


_TOO_LONG = re.compile(
    r"context.{0,3}(length|window|size)|prompt is too long|maximum context|too many (input )?tokens"
    r"|input token count|reduce the length|input is too long|exceeds the maximum number of tokens"
    r"|request_too_large",
    re.I,
)
_SPENT = re.compile(r"insufficient.{0,3}(quota|balance|credit)|credit balance|exceeded your current"
                    r" quota|payment required|billing.{0,10}limit", re.I)  # fmt: skip
_BUSY = re.compile(r"overloaded|rate.?limit|server_error|api_error|timeout|unavailable|resource_"
                   r"exhausted|internal", re.I)  # fmt: skip
#: Characters from which a key is taken for one; a local server's may be "x", which is in any text.
KEY_LENGTH = 8

_TRANSIENT = frozenset({408, 409, 425, 429})
#: Packages whose exceptions come from the connection or from reading what came over it.
_NETWORK = frozenset(
    "httpx httpx2 httpcore httpcore2 anyio openai anthropic google pydantic_core".split()
)


def classify(error: BaseException, model: str, key: str, now: float) -> ModelError | None:
    """Return what `error` means for a call of `model`, or None when it is no provider's failure.

    Args:
        key: the provider's key; struck out of every text.
        now: seconds since the epoch, for a retry-after that is a date.
    """
    chain = list(_chain(error))
    status, said = _status(chain), " ".join(_said(chain).split())
    if len(key) >= KEY_LENGTH:
        said = said.replace(key, "[key]")
    said = said[:300]
    if status is None and not said and not _is_network(chain):
        return None
    text = f"{said} {_kind(chain)}"
    if _SPENT.search(text) or status == 402:
        return QuotaSpent(f"{model}: no credit is left ({said}).", "Top up at the provider.")
    if status in (401, 403):
        return KeyRejected(
            f"{model}: the provider does not accept the key ({status}: {said}).",
            "Check the key and what it may use.",
        )
    if status == 413 or (status in (400, 422, None) and _TOO_LONG.search(text)):
        return ContextTooLong(f"{model}: the conversation is longer than its window.", "Use /new.")
    if status == 404:
        return ModelRefused(f"{model}: the provider does not know it ({said}).", "Check its name.")
    busy = status is None and _transient(chain, text)
    if busy or status in _TRANSIENT or (status or 0) >= 500:
        return ModelUnavailable(
            f"{model} is unavailable ({status or type(error).__name__}: {said or 'no answer'}).",
            "Try again later.",
            _retry_after(chain, now),
        )
    return ModelRefused(
        f"{model} refused the request ({status or 'in the stream'}: {said}).",
        "Choose another model, or mend its entry in the model catalogue.",
    )


def complaint(error: BaseException) -> str:
    """Return what the provider said is wrong with the request, in lower case; else nothing."""
    chain = list(_chain(error))
    return _said(chain).lower() if _status(chain) in (400, 422) else ""


def _retry_after(chain: list[BaseException], now: float) -> float | None:
    """Return the seconds the server asked to wait: from its headers or, Gemini, its body."""
    for each in chain:
        headers = getattr(getattr(each, "response", None), "headers", None) or {}
        value = headers.get("retry-after-ms")
        if value and _number(value) is not None:
            return float(value) / 1000
        value = headers.get("retry-after")
        if value:
            return _number(value) if _number(value) is not None else _until(value, now)
    delay = re.search(r"retryDelay\W+(\d+(?:\.\d+)?)s", " ".join(str(each) for each in chain))
    return float(delay[1]) if delay else None


def _number(value: str) -> float | None:
    return float(value) if re.fullmatch(r"\s*\d+(\.\d+)?\s*", value) else None


def _until(date: str, now: float) -> float | None:
    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - now)
    except ValueError:
        return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(10):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _status(chain: list[BaseException]) -> int | None:
    """The first HTTP status: an SDK's attribute, or the code inside an error event's body."""
    for each in chain:
        found = (getattr(each, "status_code", None), getattr(each, "code", None))
        body = _body(each)
        for value in (*found, body.get("code")):
            if isinstance(value, int) and 400 <= value < 600:
                return value
    return None


def _body(error: BaseException) -> Mapping[str, Any]:
    body = getattr(error, "body", None)
    if isinstance(body, Mapping):
        inner = body.get("error")
        return inner if isinstance(inner, Mapping) else body
    return {}


def _said(chain: list[BaseException]) -> str:
    for each in chain:
        message = _body(each).get("message") or getattr(each, "message", None)
        if isinstance(message, str) and message:
            return message
        if isinstance(each, json.JSONDecodeError):
            return "it sent something that is not JSON"
    return ""


def _kind(chain: list[BaseException]) -> str:
    kinds = [str(_body(each).get(key) or "") for each in chain for key in ("type", "code")]
    return " ".join([*kinds, *(str(getattr(each, "status", "") or "") for each in chain)])


def _is_network(chain: list[BaseException]) -> bool:
    return any(
        isinstance(each, OSError | TimeoutError | EOFError | UnicodeDecodeError)
        or type(each).__module__.partition(".")[0] in _NETWORK
        for each in chain
    )


def _transient(chain: list[BaseException], text: str) -> bool:
    return not any(_body(each) for each in chain) or bool(_BUSY.search(text))
