"""A model in this process whose answers a test writes down beforehand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from engine.models.base import Answer, Delta, RawCall, Request, Usage

__all__ = ["ScriptedModel", "Step", "call", "calls"]

#: What one model call does: say this, answer this, fail with this, or decide from the request.
Step = str | Answer | BaseException | Callable[[Request], "str | Answer | BaseException"]


def call(name: str, /, **arguments: Any) -> RawCall:
    """Return a tool call as a model would write it; the provider's id repeats on purpose."""
    return RawCall(provider_id="call_0", name=name, arguments=json.dumps(arguments))


def calls(*made: RawCall, text: str = "") -> Answer:
    """Return an answer that makes these calls, each with the id `call_<index>`."""
    numbered = tuple(
        RawCall(provider_id=f"call_{index}", name=each.name, arguments=each.arguments)
        for index, each in enumerate(made)
    )
    return Answer(text=text, calls=numbered, finish="tool_calls")


class ScriptedModel:
    """Implements `Model`: the n-th call takes the n-th step.

    Args:
        steps: what each call does; one call too many is a failed assertion.
        latency: seconds before the first delta.
        chunk: characters a delta carries; 0 sends no deltas.
        hold: when given, every call waits for it after its deltas and before its answer.
        then: the step of every call after the last one; None fails the test.
    """

    def __init__(
        self,
        steps: Sequence[Step] = (),
        *,
        latency: float = 0.0,
        chunk: int = 0,
        hold: asyncio.Event | None = None,
        then: Step | None = None,
    ) -> None:
        self.steps = list(steps)
        self.then = then
        self.latency = latency
        self.chunk = chunk
        self.hold = hold
        #: Every request, in order of arrival.
        self.requests: list[Request] = []
        #: Set when a call has sent its deltas and waits for `hold` or is about to answer.
        self.streamed = asyncio.Event()
        #: How many streams were closed before their answer.
        self.cut = 0

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Answer, None]:
        """Yield the step's deltas, then its answer; raise what the step says."""
        step = self._next()
        self.requests.append(request)
        finished = False
        try:
            if self.latency:
                await asyncio.sleep(self.latency)
            answer = _answer(step, request)
            for delta in self._deltas(answer):
                yield delta
            self.streamed.set()
            if self.hold is not None:
                await self.hold.wait()
            finished = True
            yield answer
        finally:
            self.cut += not finished

    def _next(self) -> Step:
        step = self.steps.pop(0) if self.steps else self.then
        assert step is not None, f"model call {len(self.requests) + 1} is not in the script"
        return step

    def _deltas(self, answer: Answer) -> list[Delta]:
        if not self.chunk:
            return []
        pieces = [Delta(reasoning=answer.reasoning)] if answer.reasoning else []
        text, size = answer.text, self.chunk
        return pieces + [Delta(text=text[at : at + size]) for at in range(0, len(text), size)]


def _answer(step: Step, request: Request) -> Answer:
    made = step(request) if callable(step) else step
    if isinstance(made, BaseException):
        raise made
    if isinstance(made, str):
        made = Answer(text=made)
    if made.model:
        return made
    usage = made.usage if made.usage != Usage() else Usage(input=10, output=5)
    return Answer(
        text=made.text,
        calls=made.calls,
        reasoning=made.reasoning,
        finish=made.finish,
        usage=usage,
        model=request.model,
        provider_data=made.provider_data,
        cost=made.cost,
        notices=made.notices,
    )
