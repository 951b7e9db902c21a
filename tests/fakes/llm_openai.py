"""The fake provider's OpenAI chat completions: what is refused, and how an answer is streamed."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.fakes.llm_rules import NAME, Broken, Reply, Service, check_schema, demand, pieces, sse

PING = b": keep-alive\n\n"
MALFORMED = b"data: {not json\n\n"

_PARAMETERS = set(
    "model messages stream stream_options max_tokens max_completion_tokens tools "
    "parallel_tool_calls prompt_cache_key".split()
)
_KEYS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}


def error(status: int, said: str) -> dict[str, Any]:
    """Return an error body."""
    kinds = {400: "invalid_request_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "server_error" if status >= 500 else "error")
    return {"error": {"message": said, "type": kind, "param": None, "code": None}}


def error_event(said: str) -> bytes:
    """Return an error in the middle of a stream."""
    return sse({"error": {"message": said, "type": "server_error"}})


def check(body: dict[str, Any], service: Service) -> None:
    """Raise Broken as the service would answer 400."""
    for name in body:
        demand(name in _PARAMETERS - service.unknown, f"Unrecognized request argument: {name}")
    demand(body.get("stream") is True, "this fake only streams")
    demand(not ("max_tokens" in body and "max_completion_tokens" in body), "two limits")
    for tool in body.get("tools") or ():
        demand(tool["type"] == "function", "tools[0].type")
        demand(NAME.fullmatch(tool["function"]["name"]), "tools[0].function.name: bad pattern")
        check_schema(tool["function"]["parameters"])
    demand("tools" not in body or body["tools"], "tools is empty")
    demand(body.get("messages"), "messages is empty")
    waiting: list[str] = []
    last_reasoned = max(
        (i for i, m in enumerate(body["messages"]) if m["role"] == "user"), default=0
    )
    before = ""
    reasons = service.reasons and body["model"].startswith("deepseek")
    for index, message in enumerate(body["messages"]):
        role = message.get("role")
        demand(role in _KEYS, f"messages[{index}].role: {role}")
        more = {"reasoning_content"} if reasons else set()
        extra = set(message) - _KEYS[role] - (more if role == "assistant" else set())
        demand(not extra, f"messages[{index}]: extra fields not permitted: {sorted(extra)}")
        if role == "tool":
            demand(message["tool_call_id"] in waiting, "tool result answers no preceding call")
            waiting.remove(message["tool_call_id"])
        else:
            demand(not waiting, f"tool_call_ids without response messages: {waiting}")
        after_tool = role == "user" and before == "tool"
        demand(service.user_after_tool or not after_tool, "Unexpected role 'user' after 'tool'")
        _check_content(message, service)
        if role == "assistant" and message.get("tool_calls"):
            waiting = [_check_call(call, service) for call in message["tool_calls"]]
            demand(len(set(waiting)) == len(waiting), "duplicate ids of calls")
            if reasons and index > last_reasoned:
                _check_reasoning(message, service)
        before = role
    demand(not waiting, f"tool_call_ids without response messages: {waiting}")


def _check_content(message: dict[str, Any], service: Service) -> None:
    content = message.get("content")
    if content is None:
        demand(message.get("tool_calls"), "content is required")
        return
    if isinstance(content, str):
        demand(content.strip(), "text content blocks must be non-empty")
        return
    demand(message["role"] == "user" and content, "content must be text")
    for part in content:
        kind = part["type"]
        if kind == "text":
            demand(part["text"].strip(), "text content blocks must be non-empty")
        elif kind == "image_url":
            demand(service.vision, "this model does not support image input")
        elif kind == "file":
            demand(service.pdf, "this model does not support file input")
        else:
            raise Broken(f"unknown part {kind}")


def _check_call(call: dict[str, Any], service: Service) -> str:
    demand(set(call) == {"id", "type", "function"}, f"bad call {sorted(call)}")
    demand(re.fullmatch(service.ids, call["id"]), f"id of call does not match: {call['id']}")
    demand(NAME.fullmatch(call["function"]["name"]), "name of call: bad pattern")
    try:
        demand(isinstance(json.loads(call["function"]["arguments"]), dict), "arguments no object")
    except ValueError:
        raise Broken("arguments are not JSON") from None
    return str(call["id"])


def _check_reasoning(message: dict[str, Any], service: Service) -> None:
    signed = service.signed.get(message["tool_calls"][0]["id"])
    if signed is not None:
        demand(message.get("reasoning_content") == signed, "Missing reasoning_content field")


def events(reply: Reply, service: Service) -> list[bytes]:
    """Return the server-sent events of an answer."""
    made: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    made += [{"reasoning_content": piece} for piece in pieces(reply.reasoning)]
    made += [{"content": piece} for piece in pieces(reply.text)]
    for index, (name, arguments) in enumerate(reply.calls):
        call_id = service.next("call_") if "{9}" not in service.ids else service.next("abcdefgh")
        service.signed[call_id] = reply.reasoning
        head = {"name": name, "arguments": ""}
        made.append(
            {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": head}]}
        )
        made += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in pieces(arguments, 3)
        ]
    out = [_chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in made]
    finish = reply.finish or ("tool_calls" if reply.calls else "stop")
    out.append(_chunk([{"index": 0, "delta": {}, "finish_reason": finish}]))
    usage = {
        "prompt_tokens": reply.input,
        "completion_tokens": reply.output,
        "prompt_tokens_details": {"cached_tokens": reply.cached},
    }
    if service.tells_usage:
        out.append(_chunk([], usage))
    return [*out, b"data: [DONE]\n\n"]


def _chunk(choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
    return sse({"id": "x", "object": "chat.completion.chunk", "choices": choices, "usage": usage})
