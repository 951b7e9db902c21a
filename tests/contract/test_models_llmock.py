"""A provider somebody else wrote breaks in its own ways, watches us, and finds nothing to fault."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from llmock.scenarios import Fail, StreamFault, ToolFault
from llmock.testing import LLMockServer
from llmock.verdict import judge

from engine.models.base import Answer, ModelRefused, ModelUnavailable, Request
from engine.models.catalogue import Catalogue
from engine.models.router import Patience, Router
from engine.models.stream import Pace

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODELS = ["openai:gpt-4o", "anthropic:claude-sonnet-4-5", "gemini:gemini-2.0-flash"]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
ASKED = {"role": "user", "content": "How is the weather in Paris?"}


@pytest.fixture(scope="module")
def server() -> Iterator[LLMockServer]:
    with LLMockServer() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def router(server: LLMockServer) -> AsyncIterator[Router]:
    environ = {
        f"{name.upper()}_{what}": value
        for name in ("openai", "anthropic", "gemini")
        for what, value in (("API_KEY", "any"), ("BASE_URL", server.base_url(name)))
    }
    made = Router(
        Catalogue.load(),
        environ,
        pace=Pace(first=0.5, between=0.5),
        # long enough for the server to have noted the end of the attempt before
        patience=Patience(attempts=3, first=0.8),
        chance=lambda: 1.0,
    )
    yield made
    await made.aclose()


@pytest.fixture
def mock(server: LLMockServer) -> Iterator[LLMockServer]:
    """The server with nothing planned; afterwards it must have no complaint about us."""
    server.state.reset()
    yield server
    judge(server.state.journal.records()).assert_ok(strict=True)


async def ask(router: Router, model: str, tools: tuple[Any, ...] = ()) -> Answer:
    request = Request(model=model, messages=[ASKED], tools=tools)
    answer = [each async for each in router.stream(request)][-1]
    assert isinstance(answer, Answer)
    return answer


@pytest.mark.parametrize("model", MODELS)
async def test_a_plain_answer(router: Router, mock: LLMockServer, model: str) -> None:
    answer = await ask(router, model)
    assert answer.text and answer.usage.input and answer.usage.output


@pytest.mark.parametrize("model", MODELS)
async def test_a_call_with_arguments(router: Router, mock: LLMockServer, model: str) -> None:
    answer = await ask(router, model, (TOOL,))
    assert [call.name for call in answer.calls] == ["get_weather"]
    assert "city" in answer.calls[0].arguments


@pytest.mark.parametrize("status", [429, 500, 503, 529])
@pytest.mark.parametrize("model", MODELS)
async def test_an_http_failure_is_tried_again_as_asked(
    router: Router, mock: LLMockServer, model: str, status: int
) -> None:
    mock.state.scenarios.add(Fail(status, retry_after=0.2))
    assert (await ask(router, model)).text


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
@pytest.mark.parametrize("model", MODELS)
async def test_a_refusal_is_not_tried_again(
    router: Router, mock: LLMockServer, model: str, status: int
) -> None:
    mock.state.scenarios.add(Fail(status))
    with pytest.raises(ModelRefused):
        await ask(router, model)


@pytest.mark.parametrize("kind", ["disconnect", "truncate", "malformed", "stall"])
@pytest.mark.parametrize("model", MODELS)
async def test_a_stream_that_breaks_before_its_text_is_tried_again(
    router: Router, mock: LLMockServer, model: str, kind: Any
) -> None:
    mock.state.scenarios.add(StreamFault(kind, after_chunks=0, stall_seconds=5))
    assert (await ask(router, model)).text


@pytest.mark.parametrize("model", MODELS)
async def test_an_outage_ends_in_one_clear_error(
    router: Router, mock: LLMockServer, model: str
) -> None:
    mock.state.scenarios.add(Fail(503, retry_after=0.05, times=None))
    with pytest.raises(ModelUnavailable, match="503"):
        await ask(router, model)
    mock.state.scenarios.clear()


@pytest.mark.parametrize("model", MODELS)
async def test_arguments_that_are_no_json_are_handed_on_as_written(
    router: Router, mock: LLMockServer, model: str
) -> None:
    """The engine tells the model; this layer neither mends nor hides it."""
    mock.state.scenarios.add(ToolFault("malformed_arguments"))
    answer = await ask(router, model, (TOOL,))
    assert [call.name for call in answer.calls] == ["get_weather"]
