"""The scripted model keeps the contract of `Model`."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from engine.models.base import Answer, Delta, ModelUnavailable, Request
from tests.fakes.scripted import ScriptedModel, call, calls


async def test_steps_are_taken_in_order_and_requests_are_kept() -> None:
    model = ScriptedModel(
        ["hello", lambda request: calls(call("read", path=request.model))], chunk=3
    )
    request = Request(model="test:m", messages=[])
    first = [each async for each in model.stream(request)]
    second = [each async for each in model.stream(request)]
    assert first[:-1] == [Delta(text="hel"), Delta(text="lo")]
    assert isinstance(first[-1], Answer) and first[-1].model == "test:m"
    assert isinstance(second[-1], Answer)
    assert second[-1].calls[0].arguments == '{"path": "test:m"}'
    assert model.requests == [request, request]
    assert model.cut == 0


async def test_errors_are_raised_and_an_unscripted_call_fails() -> None:
    model = ScriptedModel([ModelUnavailable("Down.")])
    request = Request(model="test:m", messages=[])
    with pytest.raises(ModelUnavailable):
        await anext(model.stream(request))
    with pytest.raises(AssertionError):
        await anext(model.stream(request))


async def test_closing_a_stream_early_is_counted() -> None:
    model = ScriptedModel(["a long answer"], chunk=1)
    async with aclosing(model.stream(Request(model="test:m", messages=[]))) as stream:
        await anext(stream)
    assert model.cut == 1
