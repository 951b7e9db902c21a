"""One contract over three wire protocols: the same call, history and trouble, the same outcome."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import pytest
import pytest_asyncio

from engine.models.base import (
    Answer,
    ContextTooLong,
    Delta,
    KeyRejected,
    ModelRefused,
    ModelUnavailable,
    Request,
    UnknownModel,
)
from engine.models.catalogue import Catalogue
from engine.models.content import PLACEHOLDER, Documents, fit
from engine.models.router import Patience, Router
from engine.models.stream import Pace
from tests.fakes.llm import FakeLLM, Reply
from tests.unit.test_models_content import IMAGE, pdf

pytestmark = pytest.mark.asyncio(loop_scope="module")

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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Desk]:
    """One provider and one router for all: making a client takes longer than most tests."""
    async with FakeLLM() as running:
        made = open_desk(running)
        yield made
        await made.router.aclose()


@pytest.fixture
def fake(shared: Desk) -> FakeLLM:
    """The provider, as new."""
    shared.fake.reset()
    return shared.fake


@pytest.fixture
def desk(shared: Desk, fake: FakeLLM) -> Desk:
    """The shared desk, knowing nothing of earlier tests."""
    shared.waits.clear()
    for home in shared.router._homes.values():
        for connection in home.connections.values():
            connection._without.clear()
    return shared


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


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_text_streams_and_adds_up(desk: Desk, protocol: str) -> None:
    desk.fake.replies = [Reply(text="Hello there, dear reader.")]
    history = [{"role": "system", "content": "Be kind."}, user("Hi")]
    deltas, answer = await desk.ask(SEEING[protocol], history)
    assert len(deltas) > 2
    assert "".join(delta.text for delta in deltas) == answer.text == "Hello there, dear reader."
    assert answer.finish == "stop" and answer.model == SEEING[protocol]
    assert not answer.calls and not answer.notices


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_usage_counts_the_whole_prompt_and_what_was_cached(desk: Desk, protocol: str) -> None:
    desk.fake.replies = [Reply(text="Hi", input=1000, cached=400, output=20)]
    _, answer = await desk.ask(SEEING[protocol], [user("Hi")])
    assert (answer.usage.input, answer.usage.cache_read, answer.usage.output) == (1000, 400, 20)


async def test_a_cached_prompt_costs_less(desk: Desk) -> None:
    desk.fake.replies = [Reply(text="Hi", input=1_000_000, cached=500_000, output=0)]
    _, answer = await desk.ask("openai:gpt-4o", [user("Hi")])
    assert answer.cost == pytest.approx(2.5 / 2 + 1.25 / 2)


async def test_usage_that_is_not_told_is_estimated(desk: Desk) -> None:
    desk.fake.service.tells_usage = False
    desk.fake.replies = [Reply(text="four" * 10)]
    _, answer = await desk.ask("openai:gpt-4o", [user("x" * 400)])
    assert (answer.usage.input, answer.usage.output) == (104, 10)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_several_calls_arrive_whole_and_in_order(desk: Desk, protocol: str) -> None:
    calls = (
        ("read_file", '{"path": "a/long/path.txt"}'),
        ("now", ""),
        ("time_get-zone_38e9e31a", '{"path": "x"}'),
    )
    sent: list[str] = []

    def reply(body: dict[str, Any]) -> Reply:
        names = [name for name in _names(body) if name.startswith("time")]
        sent.extend(names)
        return Reply(text="Let me look.", calls=(*calls[:2], (names[0], calls[2][1])))

    desk.fake.replies = [reply]
    _, answer = await desk.ask(SEEING[protocol], [user("Look")], tools=TOOLS)
    assert [call.name for call in answer.calls] == ["read_file", "now", "time.get-zone"]
    assert json.loads(answer.calls[0].arguments) == {"path": "a/long/path.txt"}
    assert answer.calls[1].arguments == "{}", "a call without arguments is an empty object"
    assert answer.finish == "tool_calls" and answer.text == "Let me look."
    assert sent and "." not in sent[0]


def _names(body: dict[str, Any]) -> list[str]:
    tools = body["tools"]
    if "functionDeclarations" in tools[0]:
        return [each["name"] for each in tools[0]["functionDeclarations"]]
    return [each.get("name") or each["function"]["name"] for each in tools]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_reasoning_goes_round_with_a_tool_result(desk: Desk, protocol: str) -> None:
    desk.fake.service.reasons = True
    reply = Reply(reasoning="I should look at the file first.", calls=(("read_file", "{}"),) * 2)
    desk.fake.replies = [reply, Reply(reasoning="Now I know.", text="It says 42.")]
    history: list[Any] = [user("What does it say?")]
    deltas, answer = await desk.ask(THINKING[protocol], history, tools=TOOLS)
    assert "".join(delta.reasoning for delta in deltas) == answer.reasoning == reply.reasoning
    assert answer.text == ""
    record(history, answer, "42", "42")
    _, answer = await desk.ask(THINKING[protocol], history, tools=TOOLS)
    assert (answer.text, answer.reasoning) == ("It says 42.", "Now I know.")
    assert not desk.fake.refused


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_steering_message_enters_after_the_results(desk: Desk, protocol: str) -> None:
    desk.fake.service.reasons = True
    desk.fake.replies = [
        Reply(reasoning="Hm.", calls=(("now", ""),)),
        Reply(text="Fine."),
    ]
    history: list[Any] = [user("What time is it?")]
    _, answer = await desk.ask(THINKING[protocol], history, tools=TOOLS)
    record(history, answer, "9:00")
    history += [user("In Berlin, I mean."), user("Please.")]
    _, answer = await desk.ask(THINKING[protocol], history, tools=TOOLS)
    assert answer.text == "Fine." and not desk.fake.refused


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_last_call_without_tools_may_follow_calls(desk: Desk, protocol: str) -> None:
    desk.fake.replies = [Reply(calls=(("now", ""),)), Reply(text="That is all.")]
    history: list[Any] = [user("Go")]
    _, answer = await desk.ask(THINKING[protocol], history, tools=TOOLS)
    record(history, answer, "9:00")
    _, answer = await desk.ask(THINKING[protocol], history)
    assert answer.text == "That is all." and not desk.fake.refused


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_image_and_a_pdf_are_sent_to_who_can_take_them(desk: Desk, protocol: str) -> None:
    desk.fake.replies = [Reply(text="I see.")]
    content = [{"type": "text", "text": "Look"}, IMAGE, pdf("Figures")]
    await desk.ask(SEEING[protocol], [{"role": "user", "content": content}])
    sent = json.dumps(desk.fake.seen[0].body)
    assert "AAAA" in sent and "application/pdf" in sent and PLACEHOLDER not in sent


async def test_a_blind_model_is_sent_words_instead(desk: Desk) -> None:
    desk.fake.service.vision = desk.fake.service.pdf = False
    desk.fake.replies = [Reply(text="I read.")]
    content = [{"type": "text", "text": "Look"}, IMAGE, pdf("Figures")]
    await desk.ask("deepseek:deepseek-chat", [{"role": "user", "content": content}])
    sent = json.dumps(desk.fake.seen[0].body, ensure_ascii=False)
    assert PLACEHOLDER in sent and "Figures" in sent and not desk.fake.refused


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_cut_off_answer_says_so(desk: Desk, protocol: str) -> None:
    desk.fake.replies = [Reply(text="It begins", finish="length")]
    _, answer = await desk.ask(SEEING[protocol], [user("Hi")])
    assert answer.finish == "length"


@pytest.mark.parametrize(
    ("protocol", "finish"),
    [("openai", "content_filter"), ("anthropic", "refusal"), ("gemini", "refusal")],
)
async def test_a_refusal_is_an_answer(desk: Desk, protocol: str, finish: str) -> None:
    desk.fake.replies = [Reply(finish=finish)]
    _, answer = await desk.ask(SEEING[protocol], [user("Hi")])
    assert answer.finish == "refusal" and not answer.text


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_empty_answer_is_tried_again_then_a_failure(desk: Desk, protocol: str) -> None:
    desk.fake.replies = [Reply(), Reply(text="Here."), Reply(), Reply(), Reply()]
    _, answer = await desk.ask(SEEING[protocol], [user("Hi")])
    assert answer.text == "Here."
    with pytest.raises(ModelUnavailable, match="empty answer"):
        await desk.ask(SEEING[protocol], [user("Hi")])


# -- trouble


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_transient_failure_is_tried_again(desk: Desk, protocol: str, status: int) -> None:
    desk.fake.replies = [Reply(status=status, said="Busy"), Reply(text="Now.")]
    _, answer = await desk.ask(SEEING[protocol], [user("Hi")])
    assert answer.text == "Now." and len(desk.waits) == 1 and 0 < desk.waits[0] <= 0.5
    assert not answer.notices


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_servers_retry_after_is_obeyed(desk: Desk, protocol: str) -> None:
    slow = Reply(status=429, said="Slow down", headers={"retry-after": "7"})
    date = "Wed, 21 Oct 2099 07:28:00 GMT"
    desk.fake.replies = [slow, Reply(text="Now."), Reply(status=429, headers={"retry-after": date})]
    await desk.ask(SEEING[protocol], [user("Hi")])
    assert 7 <= desk.waits[0] < 7.5
    with pytest.raises(ModelUnavailable) as raised:
        await desk.ask(SEEING[protocol], [user("Hi")])
    assert raised.value.retry_after and raised.value.retry_after > 1e9
    assert len(desk.waits) == 1, "a wait longer than the patience is not begun"


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_attempts_are_bounded_and_the_failure_names_the_cause(
    desk: Desk, protocol: str
) -> None:
    desk.fake.replies = [Reply(status=529, said="Overloaded")] * 3
    with pytest.raises(ModelUnavailable, match="529: Overloaded"):
        await desk.ask(SEEING[protocol], [user("Hi")])
    assert len(desk.fake.seen) == 3 and desk.waits[1] > desk.waits[0] / 2


@pytest.mark.parametrize(("protocol", "other"), list(product(PROTOCOLS, PROTOCOLS)))
async def test_then_the_fallback_answers_and_people_are_told(
    desk: Desk, protocol: str, other: str
) -> None:
    model = "gemini:gemini-2.5-flash" if other == "gemini" else THINKING[other]
    desk.fake.replies = [*[Reply(status=503, said="Down")] * 3, Reply(text="I stand in.")]
    history = [{"role": "user", "content": [{"type": "text", "text": "See"}, IMAGE]}]
    fallbacks = ("nobody:knows", model)
    _, answer = await desk.ask(SEEING[protocol], history, fallbacks=fallbacks)
    assert answer.text == "I stand in." and answer.model == model
    assert answer.notices == (f"{SEEING[protocol]} was unavailable, so {model} answered.",)
    assert (PLACEHOLDER in json.dumps(desk.fake.seen[-1].body, ensure_ascii=False)) == (
        other == "openai"
    )


async def test_when_nobody_answers_the_first_models_failure_is_told(desk: Desk) -> None:
    desk.fake.replies = [Reply(status=503, said="First")] * 3 + [
        Reply(status=503, said="Second")
    ] * 3
    with pytest.raises(ModelUnavailable, match="First"):
        await desk.ask(SEEING["openai"], [user("Hi")], fallbacks=(SEEING["anthropic"],))


@pytest.mark.parametrize("fault", ["stall", "ping"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_silent_stream_is_cut_in_the_stated_time(
    fake: FakeLLM, protocol: str, fault: str
) -> None:
    desk = open_desk(fake, Pace(first=5, between=0.15))
    fake.replies = [Reply(text="It begins and then nothing", fault=fault, after=3)]
    with pytest.raises(ModelUnavailable, match=r"sent nothing for 0.15 s"):
        await desk.ask(SEEING[protocol], [user("Hi")])
    await asyncio.wait_for(fake.closed.wait(), 5)
    await desk.router.aclose()


@pytest.mark.parametrize("fault", ["stall", "ping"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_stream_that_never_begins_is_cut_and_tried_again(
    fake: FakeLLM, protocol: str, fault: str
) -> None:
    desk = open_desk(fake, Pace(first=0.3, between=5))
    await desk.router.warm(SEEING[protocol])
    fake.replies = [Reply(fault=fault, after=0), Reply(text="Here.")]
    _, answer = await desk.ask(SEEING[protocol], [user("Hi")])
    assert answer.text == "Here."
    await desk.router.aclose()


@pytest.mark.parametrize("fault", ["cut", "truncate", "malformed", "error"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_stream_broken_after_text_is_a_failure_and_not_repeated(
    desk: Desk, protocol: str, fault: str
) -> None:
    desk.fake.replies = [Reply(text="It begins and goes on", fault=fault, after=3, said="Oops")]
    shown: list[str] = []
    with pytest.raises(ModelUnavailable):
        async for piece in desk.router.stream(desk.request(SEEING[protocol], [user("Hi")])):
            assert isinstance(piece, Delta)
            shown.append(piece.text)
    assert "".join(shown).startswith("It begins"[:7]) and len(desk.fake.seen) == 1


@pytest.mark.parametrize("fault", ["cut", "truncate", "malformed", "error"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_stream_broken_before_text_is_tried_again(
    desk: Desk, protocol: str, fault: str
) -> None:
    desk.fake.replies = [Reply(text="x", fault=fault, after=0, said="Oops"), Reply(text="Whole.")]
    _, answer = await desk.ask(SEEING[protocol], [user("Hi")])
    assert answer.text == "Whole." and len(desk.fake.seen) == 2


@pytest.mark.parametrize("how", ["cancel", "close"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_stopping_closes_the_connection_at_once(desk: Desk, protocol: str, how: str) -> None:
    desk.fake.replies = [Reply(text="It begins and then nothing", fault="stall", after=3)]
    request = desk.request(SEEING[protocol], [user("Hi")])
    first = asyncio.Event()

    async def read() -> None:
        async with aclosing(desk.router.stream(request)) as stream:
            async for _ in stream:
                first.set()
                if how == "close":
                    return

    task = asyncio.create_task(read())
    await asyncio.wait_for(first.wait(), 5)
    if how == "cancel":
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await asyncio.wait({task})
    await asyncio.wait_for(desk.fake.closed.wait(), 1)


TOO_LONG = {
    "openai": "This model's maximum context length is 128000 tokens. Please reduce the length.",
    "anthropic": "prompt is too long: 213462 tokens > 200000 maximum",
    "gemini": "The input token count (1200000) exceeds the maximum number of tokens allowed.",
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_conversation_too_long_is_its_own_error(desk: Desk, protocol: str) -> None:
    desk.fake.replies = [Reply(status=400, said=TOO_LONG[protocol])]
    with pytest.raises(ContextTooLong):
        await desk.ask(SEEING[protocol], [user("Hi")])
    assert len(desk.fake.seen) == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_bad_key_is_refused_and_never_repeated(fake: FakeLLM, protocol: str) -> None:
    name = SEEING[protocol].partition(":")[0].upper() + "_API_KEY"
    desk = open_desk(fake, environ={name: "sk-wrong-98765"})
    with pytest.raises(KeyRejected, match="does not accept the key") as raised:
        await desk.ask(SEEING[protocol], [user("Hi")])
    assert "sk-wrong-98765" not in str(raised.value) and len(fake.seen) == 1
    assert raised.value.__cause__ is None and raised.value.__suppress_context__
    await desk.router.aclose()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_missing_key_names_the_variable_to_set(fake: FakeLLM, protocol: str) -> None:
    provider = SEEING[protocol].partition(":")[0]
    name = provider.upper() + "_API_KEY"
    desk = open_desk(fake, environ={name: " "})
    with pytest.raises(KeyRejected, match=f"Set {name}"):
        await desk.ask(SEEING[protocol], [user("Hi")])
    assert not fake.seen


async def test_a_key_is_never_sent_to_another_provider(fake: FakeLLM) -> None:
    desk = open_desk(fake, environ={"DEEPSEEK_API_KEY": ""})
    with pytest.raises(KeyRejected, match="DEEPSEEK_API_KEY"):
        await desk.ask("deepseek:deepseek-chat", [user("Hi")])
    assert not fake.seen


async def test_organisation_headers_go_to_openai_only(
    fake: FakeLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-mine")
    desk = open_desk(fake)
    fake.replies = [Reply(text="a"), Reply(text="b")]
    await desk.ask("openai:gpt-4o", [user("Hi")])
    await desk.ask("mistral:m", [user("Hi")])
    assert [each.headers.get("openai-organization") for each in fake.seen] == ["org-mine", None]
    await desk.router.aclose()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_unknown_model_at_the_provider_is_refused_once(desk: Desk, protocol: str) -> None:
    desk.fake.replies = [Reply(status=404, said="no such model")]
    with pytest.raises(ModelRefused, match="no such model"):
        await desk.ask(SEEING[protocol], [user("Hi")], fallbacks=(SEEING["openai"],))
    assert len(desk.fake.seen) == 1


async def test_an_unknown_provider_is_told_before_anything_is_sent(desk: Desk) -> None:
    with pytest.raises(UnknownModel):
        await anext(desk.router.stream(Request(model="nobody:x", messages=[user("Hi")])))


async def test_no_credit_goes_to_the_fallback_without_waiting(desk: Desk) -> None:
    spent = Reply(status=429, said="You exceeded your current quota: insufficient_quota")
    desk.fake.replies = [spent, Reply(text="Mine.")]
    _, answer = await desk.ask(SEEING["openai"], [user("Hi")], fallbacks=(SEEING["anthropic"],))
    assert answer.text == "Mine." and not desk.waits


# -- parameters a provider refuses


@pytest.mark.parametrize(
    ("model", "unknown"),
    [
        pytest.param("mistral:x", {"stream_options"}, id="stream-options"),
        pytest.param("ollama:x", {"stream_options", "parallel_tool_calls"}, id="two"),
        pytest.param("openai:gpt-4o", {"max_completion_tokens"}, id="max-tokens-rename"),
        pytest.param(
            "openai:gpt-4o", {"max_completion_tokens", "max_tokens"}, id="max-tokens-drop"
        ),
        pytest.param("openai:gpt-4o", {"prompt_cache_key"}, id="cache-key"),
        pytest.param("anthropic:claude-sonnet-4-5", {"thinking"}, id="anthropic-thinking"),
        pytest.param("gemini:gemini-2.5-pro", {"thinking"}, id="gemini-thinking"),
    ],
)
async def test_a_refused_parameter_is_left_out_and_remembered(
    desk: Desk, model: str, unknown: set[str]
) -> None:
    desk.fake.service.unknown = frozenset(unknown)
    desk.fake.service.keyed = not model.startswith("ollama")
    desk.fake.replies = [Reply(text="One."), Reply(text="Two.")]
    _, answer = await desk.ask(model, [user("Hi")], session="s1", tools=TOOLS[:1])
    assert answer.text == "One." and len(desk.fake.refused) == len(unknown)
    await desk.ask(model, [user("Hi")], session="s1", tools=TOOLS[:1])
    assert len(desk.fake.refused) == len(unknown), "the second call knows"


@pytest.mark.parametrize("said", ["Invalid image", "thinking about stream_options is not allowed"])
async def test_an_unrelated_refusal_is_not_repeated(desk: Desk, said: str) -> None:
    desk.fake.replies = [Reply(status=400, said=said)]
    with pytest.raises(ModelRefused):
        await desk.ask("anthropic:claude-3-5-haiku-latest", [user("Hi")])
    assert len(desk.fake.seen) == 1 and not desk.waits


# -- caches


async def test_anthropic_is_told_where_to_cache_and_history_is_not_marked(desk: Desk) -> None:
    desk.fake.replies = [Reply(text="a")]
    history = [{"role": "system", "content": "S"}, user("1"), user("2")]
    before = json.dumps(history)
    await desk.ask(SEEING["anthropic"], history, tools=TOOLS)
    body = desk.fake.seen[0].body
    assert (
        body["system"][-1]["cache_control"] and body["messages"][-1]["content"][-1]["cache_control"]
    )
    assert json.dumps(history) == before


async def test_openai_is_told_the_session_as_cache_key(desk: Desk) -> None:
    desk.fake.replies = [Reply(text="a"), Reply(text="b")]
    await desk.ask("openai:gpt-4o", [user("1")], session="s-1")
    await desk.ask("deepseek:deepseek-chat", [user("1")], session="s-1")
    assert [each.body.get("prompt_cache_key") for each in desk.fake.seen] == ["s-1", None]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_sent_prefix_is_the_same_bytes_every_call(desk: Desk, protocol: str) -> None:
    desk.fake.service.reasons = True
    desk.fake.replies = [
        Reply(reasoning="a", calls=(("now", ""), ("read_file", '{"path":"x"}'))),
        Reply(reasoning="b", calls=(("now", ""),)),
        Reply(text="Done."),
    ]
    history: list[Any] = [{"role": "system", "content": "S"}, user("Go")]
    for results in (("1", "2"), ("3",), ()):
        _, answer = await desk.ask(THINKING[protocol], history, tools=TOOLS)
        record(history, answer, *results)
    sent = [_unmarked(each.body) for each in desk.fake.seen]
    for earlier, later in pairwise(sent):
        assert later[: len(earlier)] == earlier


def _unmarked(body: dict[str, Any]) -> list[str]:
    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: strip(v) for k, v in value.items() if k != "cache_control"}
        return [strip(each) for each in value] if isinstance(value, list) else value

    return [json.dumps(strip(m)) for m in body.get("messages") or body["contents"]]


# -- switching


ALL = {**{f"{k}-thinking": v for k, v in THINKING.items()}, **SEEING, "mistral": "mistral:mid"}


@pytest.mark.parametrize(("one", "two"), [p for p in product(ALL, ALL) if p[0] != p[1]])
async def test_switching_the_model_in_mid_session_always_works(
    desk: Desk, one: str, two: str
) -> None:
    """Every pair, with calls, in the open turn and across turns, there and back."""
    service = desk.fake.service
    service.reasons = True
    history: list[Any] = [{"role": "system", "content": "S"}, user("Look at it")]
    calling = Reply(
        reasoning="Hm.", text="Looking.", calls=(("read_file", '{"path":"a"}'), ("now", ""))
    )
    for model in (one, two, one, two):
        service.ids = "[a-zA-Z0-9]{9}" if model == "mistral" else "[a-zA-Z0-9_-]{1,40}"
        service.user_after_tool = model != "mistral"
        desk.fake.replies = [calling]
        _, answer = await desk.ask(ALL[model], history, tools=TOOLS)
        record(history, answer, "found", "9:00")
    for model in (two, one):
        service.ids = "[a-zA-Z0-9]{9}" if model == "mistral" else "[a-zA-Z0-9_-]{1,40}"
        service.user_after_tool = model != "mistral"
        desk.fake.replies = [Reply(text="It is so.")]
        _, answer = await desk.ask(ALL[model], history, tools=TOOLS)
        record(history, answer)
        history.append(user("And now?"))
    assert not desk.fake.refused


async def test_gemini_ids_do_not_repeat_over_turns(desk: Desk) -> None:
    desk.fake.replies = [Reply(calls=(("now", ""),)), Reply(calls=(("now", ""),))]
    history: list[Any] = [user("Go")]
    ids = []
    for _ in range(2):
        _, answer = await desk.ask(THINKING["gemini"], history, tools=TOOLS)
        record(history, answer, "1")
        ids.append(answer.calls[0].provider_id)
    assert len(set(ids)) == 2


# -- open models


@pytest.mark.parametrize("tools", [TOOLS, []], ids=["tools", "no-tools"])
async def test_open_models_think_and_call_in_words(desk: Desk, tools: list[Any]) -> None:
    desk.fake.service.keyed = False
    written = (
        '<think>Hm.</think>\n\nLet me see. <tool_call>{"name":"now","arguments":{}}</tool_call>'
    )
    desk.fake.replies = [Reply(text=written)]
    deltas, answer = await desk.ask("ollama:qwen3:4b", [user("Hi")], tools=tools)
    shown = "".join(delta.text for delta in deltas)
    assert answer.reasoning == "Hm." and answer.text == shown
    assert [call.name for call in answer.calls] == (["now"] if tools else [])
    assert ("tool_call" in shown) == (not tools)
    assert answer.finish == ("tool_calls" if tools else "stop")


# -- clients


async def test_calls_side_by_side_open_one_client(fake: FakeLLM) -> None:
    fake.replies = [Reply(text="Hi.")] * 20
    desk = open_desk(fake)
    answers = await asyncio.gather(*(desk.ask(SEEING["openai"], [user("?")]) for _ in range(20)))
    assert {answer.text for _, answer in answers} == {"Hi."}
    (home,) = desk.router._homes.values()
    assert list(home.connections) == ["openai"]
    await desk.router.aclose()


async def test_an_error_of_our_own_is_not_taken_for_the_providers(desk: Desk) -> None:
    with pytest.raises(KeyError):
        await desk.router.stream(
            Request(model=SEEING["openai"], messages=[{"content": "no role"}])
        ).__anext__()
