"""One contract over three wire protocols: the same call, history and trouble, the same outcome."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise, product
from typing import Any

import pytest

from engine.models.base import ModelUnavailable, Request
from engine.models.content import PLACEHOLDER
from tests.fakes.desk import PROTOCOLS, SEEING, THINKING, TOOLS, Desk, open_desk, record, user
from tests.fakes.llm import FakeLLM, Reply
from tests.unit.test_models_content import IMAGE, pdf

pytestmark = pytest.mark.asyncio(loop_scope="module")


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
