"""What opens an account is blotted out, however its service spells it."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.blot import MARK, blotted, blotted_in, blotted_pieces, words_of
from connectors.declaring import _request_in_words
from connectors.http import Request

TOKEN = 'gho_/se"cr&et+tok=en'


def _basic(pair: str) -> str:
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        pytest.param("Bearer abcdefgh", {"abcdefgh"}, id="bearer"),
        pytest.param("lin_api_key", {"lin_api_key"}, id="bare"),
        pytest.param(
            _basic("ana@x.example:pass:word"),
            {_basic("ana@x.example:pass:word").split()[1], "pass:word"},
            id="basic",
        ),
        pytest.param("Basic no-base64!", {"no-base64!"}, id="no basic"),
        pytest.param(
            "https://u:passwd@hooks.example/services/T0/B0?key=abcdef",
            {"services/T0/B0", "key=abcdef", "passwd"},
            id="address",
        ),
        pytest.param("Bearer abc", set(), id="too short to blot out"),
        pytest.param("", set(), id="nothing"),
    ],
)
def test_which_words_are_secret(value: str, words: set[str]) -> None:
    assert words_of([value]) == words


@pytest.mark.parametrize(
    "spelled",
    [
        pytest.param(TOKEN, id="as it is"),
        pytest.param(json.dumps(TOKEN)[1:-1], id="in JSON"),
        pytest.param(json.dumps(TOKEN)[1:-1].replace("/", "\\/"), id="in JSON of PHP"),
        pytest.param(quote(TOKEN), id="in a path"),
        pytest.param(quote(TOKEN, safe=""), id="in a query"),
        pytest.param(html.escape(TOKEN), id="in HTML"),
    ],
)
def test_every_spelling_is_blotted_out(spelled: str) -> None:
    told = blotted(f"You sent {spelled}.".encode(), words_of([f"Bearer {TOKEN}"]))
    assert told == f"You sent {MARK}.".encode()


def test_json_stays_json() -> None:
    words = words_of([f"Bearer {TOKEN}"])
    answer = {"sent": {"authorization": f"Bearer {TOKEN}"}, "n": [1, TOKEN, None]}
    blot = {"sent": {"authorization": f"Bearer {MARK}"}, "n": [1, MARK, None]}
    assert json.loads(blotted(json.dumps(answer).encode(), words)) == blot
    assert blotted_in(answer, words) == blot
    assert blotted_in({TOKEN: 1}, words) == {MARK: 1}


@given(st.lists(st.sampled_from(["sec", "ret-", "word", "x", "secret-word"]), max_size=30))
async def test_a_word_across_pieces_is_blotted_out_and_nothing_else(parts: list[str]) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for part in parts:
            yield part.encode()

    told = b"".join([piece async for piece in blotted_pieces(pieces(), {"secret-word"})])
    assert told.decode() == "".join(parts).replace("secret-word", MARK)


def test_a_card_shows_no_address_that_is_a_secret() -> None:
    url = "https://hooks.example/services/T0/B0/XYZ"
    request = Request(service="", lane="", method="POST", url=url, hidden=words_of([url]))
    assert _request_in_words(request) == f"POST https://hooks.example/{MARK}"
