"""The fake provider's Anthropic Messages: what is refused, and how an answer is streamed."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.fakes.llm_rules import NAME, Broken, Reply, Service, check_schema, demand, pieces, sse

PING = sse({"type": "ping"}, "ping")
MALFORMED = b"event: content_block_delta\ndata: {not json\n\n"

_PARAMETERS = set("model messages max_tokens system stream tools tool_choice thinking".split())
FINISH = {"": "end_turn", "length": "max_tokens"}


def error(status: int, said: str) -> dict[str, Any]:
    """Return an error body."""
    kinds = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "overloaded_error" if status == 529 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": said}}


def error_event(said: str) -> bytes:
    """Return an error in the middle of a stream."""
    return sse(error(529, said), "error")


def check(body: dict[str, Any], service: Service) -> None:
    """Raise Broken as the service would answer 400."""
    for name in body:
        demand(name in _PARAMETERS - service.unknown, f"{name}: Extra inputs are not permitted")
    demand(isinstance(body.get("max_tokens"), int), "max_tokens: Field required")
    for tool in body.get("tools") or ():
        demand(set(tool) <= {"name", "description", "input_schema"}, "tools: extra inputs")
        demand(NAME.fullmatch(tool["name"]), "tools.0.name: bad pattern")
        check_schema(tool["input_schema"])
        demand(not {"anyOf", "oneOf", "allOf"} & set(tool["input_schema"]), "no anyOf on top")
    for block in body.get("system") or ():
        demand(block["text"].strip(), "system: text content blocks must be non-empty")
    marks = json.dumps(body).count('"cache_control"')
    demand(marks <= 4, f"A maximum of 4 blocks with cache_control may be provided. Found {marks}.")
    _check_messages(body, service)
    _check_thinking(body)


def _check_messages(body: dict[str, Any], service: Service) -> None:
    demand(body["messages"] and body["messages"][0]["role"] == "user", "first message: user")
    waiting: list[str] = []
    used: set[str] = set()
    role = "assistant"
    for index, message in enumerate(body["messages"]):
        demand(message["role"] in ("user", "assistant"), f"messages.{index}.role")
        demand(message["role"] != role, "roles must alternate")
        role = message["role"]
        blocks = message["content"]
        demand(blocks, f"messages.{index}: content must be non-empty")
        blocks = [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks
        answered = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        demand(sorted(answered) == sorted(waiting), f"tool_use ids without results: {waiting}")
        lead = [b["type"] == "tool_result" for b in blocks]
        demand(lead == sorted(lead, reverse=True), "tool_result blocks must come first")
        for block in blocks:
            _check_block(block, role, service)
        waiting = [b["id"] for b in blocks if b["type"] == "tool_use"]
        demand(not used & set(waiting), "`tool_use` ids must be unique")
        used |= set(waiting)
    demand(not used or body.get("tools"), "tools: required when messages hold tool_use blocks")
    demand(role == "user", "this model does not support assistant message prefill")


def _check_block(block: dict[str, Any], role: str, service: Service) -> None:
    kind = block["type"]
    if kind == "text":
        demand(block["text"].strip(), "text content blocks must be non-empty")
    elif kind == "tool_use":
        demand(role == "assistant" and isinstance(block["input"], dict), "tool_use.input: object")
        demand(re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]), "tool_use.id: bad pattern")
        demand(NAME.fullmatch(block["name"]), "tool_use.name: bad pattern")
    elif kind == "thinking":
        demand(role == "assistant" and "cache_control" not in block, "thinking block misplaced")
        known = service.signed.get(block.get("signature", ""))
        demand(known == block["thinking"], "Invalid `signature` in `thinking` block")
    elif kind in ("image", "document"):
        media = "image/" if kind == "image" else "application/pdf"
        demand(block["source"]["media_type"].startswith(media), f"{kind}: media_type")
        demand(service.vision, "this model does not support image input")
    else:
        demand(kind == "tool_result" and role == "user", f"unknown block {kind}")


def _check_thinking(body: dict[str, Any]) -> None:
    thinking = body.get("thinking")
    if thinking is None or thinking["type"] != "enabled":
        return
    demand(1024 <= thinking["budget_tokens"] < body["max_tokens"], "thinking.budget_tokens")
    opened = None
    for message in reversed(body["messages"]):
        if message["role"] == "assistant":
            opened = message["content"][0]["type"]
        elif not any(block["type"] == "tool_result" for block in message["content"]):
            break
    if opened is not None and opened != "thinking":
        raise Broken(f"Expected `thinking` or `redacted_thinking`, but found `{opened}`")


def events(reply: Reply, service: Service) -> list[bytes]:
    """Return the server-sent events of an answer."""
    usage = {
        "input_tokens": reply.input - reply.cached,
        "cache_read_input_tokens": reply.cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": 1,
    }
    out = [_event("message_start", message={"id": service.next("msg_"), "usage": usage})]
    index = 0
    if reply.reasoning:
        signature = service.next("signature_")
        service.signed[signature] = reply.reasoning
        deltas = [
            {"type": "thinking_delta", "thinking": piece} for piece in pieces(reply.reasoning)
        ]
        deltas.append({"type": "signature_delta", "signature": signature})
        empty = {"type": "thinking", "thinking": "", "signature": ""}
        out += _block(index, empty, deltas)
        index += 1
    if reply.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(reply.text)]
        out += _block(index, {"type": "text", "text": ""}, deltas)
        index += 1
    for name, arguments in reply.calls:
        deltas = [
            {"type": "input_json_delta", "partial_json": piece} for piece in pieces(arguments, 3)
        ]
        block: dict[str, Any] = {
            "type": "tool_use",
            "id": service.next("toolu_"),
            "name": name,
            "input": {},
        }
        out += _block(index, block, deltas)
        index += 1
    finish = FINISH.get(reply.finish, reply.finish)
    if reply.calls and not reply.finish:
        finish = "tool_use"
    delta = {"stop_reason": finish, "stop_sequence": None}
    out.append(_event("message_delta", delta=delta, usage={"output_tokens": reply.output}))
    return [*out, _event("message_stop")]


def _block(index: int, block: dict[str, Any], deltas: list[Any]) -> list[bytes]:
    return [
        _event("content_block_start", index=index, content_block=block),
        *(_event("content_block_delta", index=index, delta=delta) for delta in deltas),
        _event("content_block_stop", index=index),
    ]


def _event(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, kind)
