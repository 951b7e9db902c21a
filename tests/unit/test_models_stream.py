"""Folding a stream: odd ways of numbering calls, nonsense, and limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from engine.models import stream
from engine.models.base import Answer, ModelRefused, ModelUnavailable
from engine.models.openai_wire import read
from engine.models.stream import CallPiece, Fold, Pace, Piece, paced


def fold(*pieces: Piece, finish: str = "stop") -> Answer:
    made = Fold("p:m", {"a_wire": "a"})
    for piece in (*pieces, Piece(finish=finish)):
        made.add(piece)
    return made.end()[1]


def test_parts_of_calls_are_put_together_by_index() -> None:
    answer = fold(
        Piece(calls=(CallPiece(0, "1", "a_wire"), CallPiece(1, "2", "b"))),
        Piece(calls=(CallPiece(1, arguments='{"x":'),)),
        Piece(calls=(CallPiece(0, arguments="{}"), CallPiece(1, arguments="1}"))),
    )
    assert [(c.provider_id, c.name, c.arguments) for c in answer.calls] == [
        ("1", "a", "{}"),
        ("2", "b", '{"x":1}'),
    ]
    assert answer.finish == "tool_calls"


def test_calls_all_numbered_zero_are_told_apart_by_id() -> None:
    answer = fold(
        Piece(calls=(CallPiece(0, "1", "a", '{"x":1}'),)),
        Piece(calls=(CallPiece(0, "2", "a", '{"x":2}'),)),
    )
    assert [c.arguments for c in answer.calls] == ['{"x":1}', '{"x":2}']


def test_a_name_that_is_repeated_is_taken_once() -> None:
    answer = fold(Piece(calls=(CallPiece(0, "1", "a"),)), Piece(calls=(CallPiece(0, "1", "a"),)))
    assert [c.name for c in answer.calls] == ["a"]


def test_a_pair_of_surrogates_cut_in_two_is_whole_in_the_answer() -> None:
    made = Fold("p:m", {})
    first = made.add(Piece(text="hi " + chr(0xD83D)))
    made.add(Piece(text=chr(0xDE00) + chr(0xD83D), finish="stop"))
    assert first is not None and first.text == "hi �"
    assert made.end()[1].text == "hi \U0001f600�"


@pytest.mark.parametrize(
    ("pieces", "finish", "error", "says"),
    [
        pytest.param([Piece(text="x")], "", ModelUnavailable, "middle", id="no-finish"),
        pytest.param([], "stop", ModelUnavailable, "empty", id="empty"),
        pytest.param([Piece(text=" \n")], "stop", ModelUnavailable, "empty", id="blank"),
        pytest.param([Piece(reasoning="x")], "length", ModelRefused, "thinking", id="all-thought"),
        pytest.param(
            [Piece(calls=(CallPiece(0),))], "stop", ModelUnavailable, "without a name", id="no-name"
        ),
    ],
)
def test_what_is_no_answer_is_a_failure(
    pieces: list[Piece], finish: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        fold(*pieces, finish=finish)


def test_an_answer_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "ANSWER_LIMIT", 10)
    with pytest.raises(ModelRefused, match="more than 10 characters"):
        fold(*[Piece(text="xxx")] * 4)
    with pytest.raises(ModelRefused, match="more than 10 characters"):
        fold(*[Piece(calls=(CallPiece(0, "1", "a", "xxx"),))] * 4)
    monkeypatch.setattr(stream, "CALL_LIMIT", 2)
    with pytest.raises(ModelRefused, match="more than 2 calls"):
        fold(*[Piece(calls=(CallPiece(n, str(n), "a"),)) for n in range(3)])


async def test_a_timeout_of_the_connection_is_not_taken_for_silence() -> None:
    async def pieces() -> AsyncIterator[Piece]:
        yield Piece(text="x")
        raise TimeoutError("the socket's")

    with pytest.raises(TimeoutError, match="the socket's"):
        _ = [each async for each in paced(pieces(), Pace(), "p:m")]


async def test_signs_of_life_do_not_count_as_content() -> None:
    async def pieces() -> AsyncIterator[Piece]:
        while True:
            await asyncio.sleep(0.01)
            yield Piece(usage=None)

    with pytest.raises(ModelUnavailable, match=r"0.05 s"):
        _ = [each async for each in paced(pieces(), Pace(first=0.05), "p:m")]


@pytest.mark.parametrize(
    ("delta", "text", "reasoning"),
    [
        pytest.param({"content": "a"}, "a", "", id="text"),
        pytest.param({"content": None, "reasoning_content": "r"}, "", "r", id="deepseek"),
        pytest.param({"content": "", "reasoning": "r"}, "", "r", id="openrouter"),
        pytest.param(
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "r"}]},
                    {"type": "text", "text": "a"},
                ]
            },
            "a",
            "r",
            id="mistral",
        ),
        pytest.param({"refusal": "I will not."}, "I will not.", "", id="refusal"),
        pytest.param(None, "", "", id="null"),
    ],
)
def test_dialects_of_a_delta(delta: dict[str, object] | None, text: str, reasoning: str) -> None:
    piece = read({"choices": [{"delta": delta}]})
    assert (piece.text, piece.reasoning) == (text, reasoning)


@pytest.mark.parametrize(
    ("chunk", "cached"),
    [
        ({"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}}, 4),
        ({"usage": {"prompt_tokens": 9, "prompt_cache_hit_tokens": 5}}, 5),
        ({"usage": {"prompt_tokens": 9, "cached_tokens": 6}}, 6),
        ({"x_groq": {"usage": {"prompt_tokens": 9}}}, 0),
    ],
    ids=["openai", "deepseek", "kimi", "groq"],
)
def test_dialects_of_usage(chunk: dict[str, object], cached: int) -> None:
    usage = read(chunk).usage
    assert usage is not None and (usage.input, usage.cache_read) == (9, cached)


def test_arguments_sent_as_an_object_become_text() -> None:
    call = {"index": 0, "function": {"name": "a", "arguments": {"x": 1}}}
    assert read({"choices": [{"delta": {"tool_calls": [call]}}]}).calls[0].arguments == '{"x":1}'


def test_an_error_as_finish_reason_is_a_failure() -> None:
    with pytest.raises(ModelUnavailable):
        read({"choices": [{"delta": {}, "finish_reason": "error"}]})
