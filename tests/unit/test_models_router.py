"""What the router says and does without a provider."""

from __future__ import annotations

import asyncio

import pytest

from engine.models.base import Answer, Delta, Request, UnknownModel
from engine.models.catalogue import Catalogue
from engine.models.router import Router
from tests.fakes.llm import FakeLLM, Reply

CATALOGUE = Catalogue.load()


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (
            "gpt-4o",
            "openai:gpt-4o: 128,000 tokens of context, sees images and PDFs, "
            "$2.5 in and $10 out per million tokens.",
        ),
        (
            "ollama:mine",
            "ollama:mine: 32,000 tokens of context, text only, price unknown, "
            "not in the catalogue, so these are cautious guesses.",
        ),
    ],
)
def test_a_model_is_described_in_one_line(model: str, says: str) -> None:
    assert Router(CATALOGUE, {}).describe(model) == says


def test_an_unknown_model_cannot_be_described() -> None:
    with pytest.raises(UnknownModel):
        Router(CATALOGUE, {}).describe("nobody:x")


async def test_the_practice_model_needs_no_connection() -> None:
    router = Router(CATALOGUE, {})
    await router.warm("practice:rules")
    request = Request(model="practice:rules", messages=[{"role": "user", "content": "Hi"}])
    delta, answer = [each async for each in router.stream(request)]
    assert isinstance(delta, Delta) and isinstance(answer, Answer)
    assert answer.cost == 0 and "not an AI" in answer.text
    await router.aclose()


def test_one_router_serves_one_event_loop_after_another() -> None:
    environ: dict[str, str] = {}
    router = Router(CATALOGUE, environ)

    async def once() -> None:
        async with FakeLLM([Reply(text="Hi.")]) as fake:
            environ.update(fake.environ())
            request = Request(model="gpt-4o", messages=[{"role": "user", "content": "Hi"}])
            last = [each async for each in router.stream(request)][-1]
            assert isinstance(last, Answer) and last.text == "Hi."
            await router.aclose()
            await router.aclose()

    asyncio.run(once())
    asyncio.run(once())
