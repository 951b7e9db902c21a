"""Fitting a conversation to a model changes what is sent, never what is kept."""

from __future__ import annotations

import base64
import copy
import io
from typing import Any

import pypdf
import pytest

from engine.models import content
from engine.models.catalogue import Catalogue
from engine.models.content import PLACEHOLDER, Documents, estimate, fit

CATALOGUE = Catalogue.load()
VISION = CATALOGUE.entry("openai:gpt-4o")
BLIND = CATALOGUE.entry("deepseek:deepseek-chat")
CLAUDE = CATALOGUE.entry("anthropic:claude-sonnet-4-5")

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def pdf(text: str = "", password: str = "", pages: int = 1) -> dict[str, Any]:
    """Return a file part that holds a real PDF with `text` on every page."""
    writer = pypdf.PdfWriter()
    for _ in range(pages):
        page = writer.add_blank_page(200, 200)
        stream = pypdf.generic.DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 10 100 Td ({text}) Tj ET".encode())
        font = pypdf.generic.DictionaryObject(
            {
                pypdf.generic.NameObject("/Type"): pypdf.generic.NameObject("/Font"),
                pypdf.generic.NameObject("/Subtype"): pypdf.generic.NameObject("/Type1"),
                pypdf.generic.NameObject("/BaseFont"): pypdf.generic.NameObject("/Helvetica"),
            }
        )
        fonts = pypdf.generic.DictionaryObject({pypdf.generic.NameObject("/F1"): font})
        resources = pypdf.generic.DictionaryObject({pypdf.generic.NameObject("/Font"): fonts})
        page[pypdf.generic.NameObject("/Resources")] = resources
        page[pypdf.generic.NameObject("/Contents")] = writer._add_object(stream)
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    data = base64.b64encode(out.getvalue()).decode()
    file = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{data}"}
    return {"type": "file", "file": file}


def test_an_image_becomes_the_placeholder_and_comes_back() -> None:
    history = [{"role": "user", "content": [{"type": "text", "text": "see"}, IMAGE]}]
    before = copy.deepcopy(history)
    blind = fit(history, BLIND)
    assert blind == [{"role": "user", "content": f"see\n\n{PLACEHOLDER}"}]
    assert history == before
    assert fit(history, VISION)[0]["content"][1] == IMAGE


def test_an_address_of_an_image_is_not_fetched_by_the_provider() -> None:
    part = {"type": "image_url", "image_url": {"url": "https://evil/x.png?secret"}}
    assert fit([{"role": "user", "content": [part]}], VISION)[0]["content"] == PLACEHOLDER


async def test_a_pdf_goes_natively_or_as_text_and_is_decided_anew() -> None:
    part = pdf("Quarterly figures")
    history = [{"role": "user", "content": [part]}]
    documents = Documents()
    await documents.prepare(history, BLIND)
    assert fit(history, CLAUDE, documents)[0]["content"] == [part]
    assert "Quarterly figures" in fit(history, BLIND, documents)[0]["content"]


async def test_a_pdf_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    history = [{"role": "user", "content": [pdf("x")]}]
    reads: list[str] = []
    real = content._pdf_text

    def read(data: str) -> str:
        reads.append(data)
        return real(data)

    monkeypatch.setattr(content, "_pdf_text", read)
    documents = Documents()
    await documents.prepare(history, BLIND)
    await documents.prepare(history, BLIND)
    assert len(reads) == 1


@pytest.mark.parametrize(
    ("part", "says"),
    [
        pytest.param(pdf(""), "seems to be scanned", id="scanned"),
        pytest.param(pdf("x", password="p"), "password", id="locked"),
        pytest.param(
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA"}},
            "could not be read",
            id="damaged",
        ),
        pytest.param(
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,!"}},
            "arrived damaged",
            id="no-base64",
        ),
        pytest.param(
            {"type": "file", "file": {"filename": "a.zip", "file_data": "data:application/zip,"}},
            "a.zip — not viewable",
            id="other-file",
        ),
    ],
)
async def test_what_cannot_be_read_is_said(part: dict[str, Any], says: str) -> None:
    history = [{"role": "user", "content": [part]}]
    documents = Documents()
    await documents.prepare(history, BLIND)
    assert says in fit(history, BLIND, documents)[0]["content"]


async def test_a_long_pdf_is_cut_at_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "PDF_BUDGET", 30)
    history = [{"role": "user", "content": [pdf("twenty characters ok", pages=5)]}]
    documents = Documents()
    await documents.prepare(history, BLIND)
    text = fit(history, BLIND, documents)[0]["content"]
    assert "cut here: page 2 of 5" in text and len(text) < 130


def turn(model: str, **extra: Any) -> list[dict[str, Any]]:
    call = {
        "id": "c1",
        "provider_id": "p1",
        "type": "function",
        "function": {"name": "t", "arguments": "{}"},
    }
    return [
        {"role": "user", "content": "do"},
        {"role": "assistant", "content": "", "tool_calls": [call], "model": model, **extra},
        {"role": "tool", "tool_call_id": "c1", "content": "done", "display": {"secret": 1}},
    ]


def test_reasoning_goes_only_to_the_model_that_made_it() -> None:
    data = {"anthropic": {"thinking": [1]}, "gemini": {"x": 1}}
    history = turn(CLAUDE.id, reasoning="hm", provider_data=data)
    own = fit(history, CLAUDE)[1]
    assert own["provider_data"] == {"anthropic": {"thinking": [1]}} and own["reasoning"] == "hm"
    for other in (VISION, BLIND, CATALOGUE.entry("anthropic:claude-opus-4-5")):
        assert not {"provider_data", "reasoning"} & set(fit(history, other)[1])


def test_reasoning_of_older_turns_is_dropped_where_the_provider_allows() -> None:
    history = [*turn(BLIND.id, reasoning="old"), {"role": "assistant", "content": "ok"}]
    history += turn(BLIND.id, reasoning="new")
    fitted = fit(history, BLIND)
    assert "reasoning" not in fitted[1] and fitted[5]["reasoning"] == "new"


def test_a_steering_message_does_not_close_the_turn() -> None:
    history = [*turn(BLIND.id, reasoning="hm"), {"role": "user", "content": "faster"}]
    assert fit(history, BLIND)[1]["reasoning"] == "hm"


def test_display_only_keys_are_stripped() -> None:
    assert "display" not in fit(turn("x:y"), VISION)[2]


@pytest.mark.parametrize("blank", ["", "  \n", None, [{"type": "text", "text": " "}]])
def test_blank_text_is_never_sent(blank: Any) -> None:
    history = turn("x:y")
    history[1]["content"] = blank
    history.append({"role": "assistant", "content": blank})
    history.append({"role": "user", "content": blank})
    fitted = fit(history, CLAUDE)
    assert fitted[1]["content"] is None
    assert [m["role"] for m in fitted] == ["user", "assistant", "tool", "user"]
    assert fitted[-1]["content"] == "(no text)"


def test_lone_surrogates_are_replaced_and_pairs_kept() -> None:
    lone, pair = "hi " + chr(0xD83D), "\U0001f600"
    fitted = fit([{"role": "user", "content": lone + pair}], VISION)
    assert fitted[0]["content"] == "hi �" + pair


def test_fitting_a_part_gives_a_part_of_the_whole() -> None:
    history = [*turn(CLAUDE.id, reasoning="r"), {"role": "user", "content": "a"}] * 3
    parts = [fit(history[:5], CLAUDE), fit(history[5:], CLAUDE)]
    assert parts[0] + parts[1] == fit(history, CLAUDE)


def test_fitting_twice_changes_nothing() -> None:
    history = [*turn(CLAUDE.id, reasoning="r"), {"role": "user", "content": [IMAGE]}]
    once = fit(history, CLAUDE)
    assert fit(once, CLAUDE) == once


def test_an_estimate_counts_attachments_flat_and_text_by_bytes() -> None:
    big = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10**6}}
    assert estimate({"role": "user", "content": [big]}) == 4 + content.IMAGE_TOKENS
    assert estimate({"role": "user", "content": "a" * 400}) == 104
    assert estimate({"role": "user", "content": "漢" * 400}) == 304
    assert estimate(turn("x")[1]) == 4 + 8 + 1 + 1
