"""One contract over three wire protocols: what goes wrong, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from itertools import product

import pytest

from engine.models.base import (
    ContextTooLong,
    Delta,
    KeyRejected,
    ModelRefused,
    ModelUnavailable,
    Request,
    UnknownModel,
)
from engine.models.content import PLACEHOLDER
from engine.models.stream import Pace
from tests.fakes.desk import PROTOCOLS, SEEING, THINKING, TOOLS, Desk, open_desk, user
from tests.fakes.llm import FakeLLM, Reply
from tests.unit.test_models_content import IMAGE

pytestmark = pytest.mark.asyncio(loop_scope="module")


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


async def test_what_a_provider_tells_of_its_usage_at_the_start_is_known_when_it_is_stopped(
    desk: Desk,
) -> None:
    desk.fake.replies = [Reply(text="It begins and then nothing", fault="stall", after=3)]
    request = desk.request(SEEING["anthropic"], [user("Hi")])
    async with aclosing(desk.router.stream(request)) as stream:
        first = await anext(stream)
    assert isinstance(first, Delta) and first.usage is not None
    assert first.usage.input > 0


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
