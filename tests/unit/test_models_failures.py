"""What a provider's failure means is read from what it carries, and no key is ever repeated."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from engine.models.base import (
    ContextTooLong,
    KeyRejected,
    ModelError,
    ModelRefused,
    ModelUnavailable,
)
from engine.models.failures import QuotaSpent, classify, complaint

NOW = 1_800_000_000.0
KEY = "sk-secret-0123456789"


class SdkError(Exception):
    """Carries what the SDKs' errors carry."""

    def __init__(
        self,
        status: int | None,
        said: str,
        headers: dict[str, str] | None = None,
        **body: Any,
    ) -> None:
        super().__init__(f"Error code: {status}")
        self.status_code = status
        self.body = {"error": {"message": said, **body}}
        self.response = SimpleNamespace(headers=headers or {})


def inside(error: Exception) -> Exception:
    """Return the error as aisuite hands it on: wrapped, and known by its context alone."""
    wrapped = RuntimeError("An error occurred")
    wrapped.__context__ = error
    return wrapped


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(SdkError(401, "bad key"), KeyRejected, id="401"),
        pytest.param(SdkError(403, "region"), KeyRejected, id="403"),
        pytest.param(SdkError(402, "pay"), QuotaSpent, id="402"),
        pytest.param(
            SdkError(429, "You exceeded your current quota", code="insufficient_quota"),
            QuotaSpent,
            id="openai-quota",
        ),
        pytest.param(SdkError(400, "Your credit balance is too low"), QuotaSpent, id="anthropic"),
        pytest.param(SdkError(429, "slow down"), ModelUnavailable, id="429"),
        pytest.param(SdkError(408, "timeout"), ModelUnavailable, id="408"),
        pytest.param(SdkError(503, "down"), ModelUnavailable, id="503"),
        pytest.param(SdkError(529, "overloaded"), ModelUnavailable, id="529"),
        pytest.param(SdkError(599, "odd"), ModelUnavailable, id="599"),
        pytest.param(SdkError(404, "no model"), ModelRefused, id="404"),
        pytest.param(SdkError(400, "bad image"), ModelRefused, id="400"),
        pytest.param(SdkError(413, "too large"), ContextTooLong, id="413"),
        pytest.param(SdkError(400, "prompt is too long: 3 > 2"), ContextTooLong, id="too-long"),
        pytest.param(
            SdkError(400, "x", code="context_length_exceeded"), ContextTooLong, id="too-long-code"
        ),
        pytest.param(SdkError(None, "x", type="overloaded_error"), ModelUnavailable, id="in-sse"),
        pytest.param(SdkError(200, "x", type="overloaded_error"), ModelUnavailable, id="sse-200"),
        pytest.param(SdkError(None, "x", code=502), ModelUnavailable, id="openrouter-in-sse"),
        pytest.param(
            SdkError(None, "no", type="invalid_request_error"), ModelRefused, id="refused-in-sse"
        ),
        pytest.param(ConnectionResetError("reset"), ModelUnavailable, id="network"),
        pytest.param(json.JSONDecodeError("x", "y", 0), ModelUnavailable, id="no-json"),
    ],
)
def test_a_failure_is_told_by_what_it_carries(error: Exception, kind: type[ModelError]) -> None:
    for each in (error, inside(error)):
        assert type(classify(each, "p:m", KEY, NOW)) is kind


@pytest.mark.parametrize("error", [TypeError("ours"), KeyError("role"), RuntimeError("x")])
def test_an_error_of_our_own_is_none_of_the_providers(error: Exception) -> None:
    assert classify(error, "p:m", KEY, NOW) is None


@pytest.mark.parametrize(
    ("headers", "said", "seconds"),
    [
        pytest.param({"retry-after": "7"}, "", 7.0, id="seconds"),
        pytest.param({"retry-after": "1.5"}, "", 1.5, id="fraction"),
        pytest.param({"retry-after-ms": "250", "retry-after": "9"}, "", 0.25, id="ms"),
        pytest.param({"retry-after": "Fri, 15 Jan 2027 08:00:30 GMT"}, "", 30.0, id="date"),
        pytest.param({"retry-after": "Fri, 15 Jan 2021 08:00:30 GMT"}, "", 0.0, id="past"),
        pytest.param({"retry-after": "soon"}, "", None, id="nonsense"),
        pytest.param({}, "", None, id="none"),
    ],
)
def test_retry_after_is_read_in_every_form(
    headers: dict[str, str], said: str, seconds: float | None
) -> None:
    error = classify(SdkError(429, said, headers), "p:m", KEY, NOW)
    assert isinstance(error, ModelUnavailable) and error.retry_after == seconds


def test_gemini_tells_its_delay_in_the_body() -> None:
    error = SdkError(429, "wait")
    error.args = ("429 {'details': [{'@type': 'RetryInfo', 'retryDelay': '12s'}]}",)
    found = classify(error, "p:m", KEY, NOW)
    assert isinstance(found, ModelUnavailable) and found.retry_after == 12.0


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500])
def test_the_key_is_struck_out_of_every_text(status: int) -> None:
    error = classify(SdkError(status, f"Incorrect key {KEY} given"), "p:m", KEY, NOW)
    assert error is not None and KEY not in str(error) and "[key]" in str(error)


def test_a_local_servers_one_letter_key_spoils_no_text() -> None:
    assert "Example" in str(classify(SdkError(400, "Example"), "p:m", "x", NOW))


def test_a_long_text_is_cut() -> None:
    assert len(str(classify(SdkError(400, "x" * 9000), "p:m", KEY, NOW))) < 500


def test_only_a_malformed_request_is_a_complaint() -> None:
    assert complaint(SdkError(400, "Unsupported: X")) == "unsupported: x"
    assert complaint(SdkError(500, "max_tokens")) == ""
