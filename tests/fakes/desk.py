"""A desk to try models at: a fake provider, a router in front of it, and the waits it asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.models.base import Answer, Delta, Request
from engine.models.catalogue import Catalogue
from engine.models.content import Documents, fit
from engine.models.router import Patience, Router
from engine.models.stream import Pace
from tests.fakes.llm import FakeLLM

__all__ = ["PROTOCOLS", "SEEING", "THINKING", "TOOLS", "Desk", "open_desk", "record", "user"]

CATALOGUE = Catalogue.load()

#: A model that sees, by protocol; and one that thinks aloud.
SEEING = {
    "openai": "openai:gpt-4o",
    "anthropic": "anthropic:claude-3-5-haiku-latest",
    "gemini": "gemini:gemini-2.0-flash",
}
THINKING = {
    "openai": "deepseek:deepseek-chat",
    "anthropic": "anthropic:claude-sonnet-4-5",
    "gemini": "gemini:gemini-2.5-pro",
}
PROTOCOLS = list(SEEING)
PACE = Pace(first=5, between=5)

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Does {name}.",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "required": [],
                "additionalProperties": False,
            },
        },
    }
    for name in ("read_file", "now", "time.get-zone")
]


@dataclass
class Desk:
    """A provider, a router in front of it, and the waits it asked for."""

    fake: FakeLLM
    router: Router
    waits: list[float]

    def request(self, model: str, history: Sequence[Any], **more: Any) -> Request:
        messages = fit(history, self.router.catalogue.entry(model), self.router._documents)
        return Request(model=model, messages=messages, **more)

    async def ask(
        self, model: str, history: Sequence[Any], **more: Any
    ) -> tuple[list[Delta], Answer]:
        """Fit, call, and return the deltas and the answer."""
        await self.router._documents.prepare(history, self.router.catalogue.entry(model))
        got = [each async for each in self.router.stream(self.request(model, history, **more))]
        *deltas, answer = got
        assert isinstance(answer, Answer)
        assert all(isinstance(each, Delta) for each in deltas)
        return deltas, answer  # type: ignore[return-value]


def open_desk(fake: FakeLLM, pace: Pace = PACE, environ: dict[str, str] | None = None) -> Desk:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    router = Router(
        CATALOGUE,
        {**fake.environ(), **(environ or {})},
        documents=Documents(),
        pace=pace,
        patience=Patience(attempts=3),
        sleep=sleep,
    )
    return Desk(fake, router, waits)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def record(history: list[Any], answer: Answer, *results: str) -> None:
    """Append an answer and the results of its calls as the engine keeps them."""
    ids = [f"s0abcdefghjkm-12-{len(history)}-{index}" for index in range(len(answer.calls))]
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "model": answer.model}
    message |= {"reasoning": answer.reasoning, "provider_data": answer.provider_data}
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": ours,
                "provider_id": call.provider_id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for ours, call in zip(ids, answer.calls, strict=True)
        ]
    history.append(json.loads(json.dumps(message)))  # as it comes back from the store
    for ours, result in zip(ids, results, strict=True):
        history.append({"role": "tool", "tool_call_id": ours, "content": result})
