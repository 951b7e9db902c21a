"""Anthropic's Messages on the wire: thinking that goes back signed, cache marks, merged results."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import anthropic
from aisuite.provider import Provider as AisuiteProvider  # type: ignore[import-untyped]
from aisuite.providers.anthropic_provider import (  # type: ignore[import-untyped]
    AnthropicProvider,
)

from engine.models.base import Message, Usage
from engine.models.catalogue import Provider
from engine.models.schemas import wire_name, wire_tools
from engine.models.stream import CallPiece, Piece
from engine.models.wire import (
    CallIds,
    Options,
    alternating,
    arguments_object,
    data_url,
    max_tokens,
)

__all__ = ["OPTIONAL", "Reader", "Wire", "request"]

#: What a model may refuse and a request can do without.
OPTIONAL = ("thinking",)

FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
#: The API demands a limit; this one every model takes.
DEFAULT_TOKENS = 8_192
#: Tokens of thinking for models that take a budget; the API's least is 1,024.
THINKING_TOKENS = 8_192
_MARK = {"type": "ephemeral"}


class Wire(AnthropicProvider):  # type: ignore[misc]
    """aisuite's Anthropic provider, asynchronous only, yielding our pieces."""

    def __init__(self, provider: Provider, *, api_key: str, base_url: str, timeout: Any) -> None:
        AisuiteProvider.__init__(self)  # the parent's own would open a second, blocking client
        self.async_client = anthropic.AsyncAnthropic(
            api_key=api_key, base_url=base_url, timeout=timeout, max_retries=0
        )

    async def achat_completions_create_stream(
        self, model: str, messages: Sequence[Message], **kwargs: Any
    ) -> AsyncGenerator[Piece, None]:
        """Send one request and yield what comes; closing the generator closes the connection."""
        body = request(messages, kwargs.get("tools") or (), kwargs["options"])
        stream: anthropic.AsyncStream[object] = await self.async_client.post(
            "/v1/messages",
            body=body,
            cast_to=object,
            stream=True,
            stream_cls=anthropic.AsyncStream[object],
        )
        reader = Reader()
        try:
            async for event in stream:
                if isinstance(event, Mapping):
                    yield reader.read(event)
        finally:
            await stream.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.async_client.close()


def request(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], options: Options
) -> dict[str, Any]:
    """Return the body of a streaming request; what the endpoint refused before is left out."""
    entry = options.entry
    system, turns = _conversation(messages, options)
    limit = max_tokens(entry) or DEFAULT_TOKENS
    body: dict[str, Any] = {
        "model": entry.model,
        "max_tokens": limit,
        "stream": True,
        "messages": _marked(turns),
    }
    if system:
        body["system"] = [*system[:-1], {**system[-1], "cache_control": _MARK}]
    body |= _tools(tools, turns, entry.parallel)
    thinking = _thinking(entry.reasoning, limit, turns)
    if thinking and "thinking" not in options.without:
        body["thinking"] = thinking
    return body


def _tools(
    tools: Sequence[Mapping[str, Any]], turns: Sequence[Mapping[str, Any]], parallel: bool
) -> dict[str, Any]:
    if tools:
        made = [_tool(each["function"]) for each in wire_tools(tools, "anthropic")]
        choice = {"type": "auto", "disable_parallel_tool_use": True}
        return {"tools": made} if parallel else {"tools": made, "tool_choice": choice}
    # a history with calls is refused unless their tools are declared, offered or not
    called = {b["name"] for m in turns for b in m["content"] if b["type"] == "tool_use"}
    schema = {"type": "object", "properties": {}}
    gone = [{"name": n, "description": "", "input_schema": schema} for n in sorted(called)]
    return {"tools": gone, "tool_choice": {"type": "none"}} if gone else {}


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": function["name"],
        "description": function["description"],
        "input_schema": function["parameters"],
    }


def _thinking(style: str, limit: int, turns: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    if style == "adaptive":
        return {"type": "adaptive", "display": "summarized"}
    budget = min(THINKING_TOKENS, limit // 2)
    if style != "budget" or budget < 1_024 or _opened_without_thinking(turns):
        return None
    return {"type": "enabled", "budget_tokens": budget}


def _opened_without_thinking(turns: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether another model opened the tool loop: the API then refuses to think in it."""
    first = None
    for message in reversed(turns):
        blocks = message["content"] if isinstance(message["content"], list) else []
        if message["role"] == "assistant":
            first = blocks[0] if blocks else {}
        elif not any(block["type"] == "tool_result" for block in blocks):
            break
    return first is not None and first.get("type") not in ("thinking", "redacted_thinking")


def _conversation(
    messages: Sequence[Message], options: Options
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return (system blocks, alternating messages)."""
    ids = CallIds(options.entry)
    system: list[dict[str, Any]] = []
    turns: list[dict[str, Any]] = []
    for message in alternating(messages):
        role = message["role"]
        if role == "system" and not turns:
            system.append(_text(message["content"]))
            continue
        if role == "assistant":
            blocks = _assistant(message, ids, options)
        elif role == "tool":
            blocks = [_result(message, ids)]
        elif role == "system":  # only the beginning has a place for it
            blocks = [_text(f"<system>\n{message['content']}\n</system>")]
        else:
            blocks = _blocks(message["content"])
        side = "assistant" if role == "assistant" else "user"
        if turns and turns[-1]["role"] == side:
            turns[-1]["content"] += blocks  # results of one batch first, then what people said
        else:
            turns.append({"role": side, "content": blocks})
    return system, turns


def _assistant(message: Message, ids: CallIds, options: Options) -> list[dict[str, Any]]:
    blocks = [_text(message["content"])] if message.get("content") else []
    blocks += [
        {
            "type": "tool_use",
            "id": ids.call(call, message),
            "name": wire_name(call["function"]["name"]),
            "input": arguments_object(call["function"]["arguments"]),
        }
        for call in message.get("tool_calls") or ()
    ]
    data = (message.get("provider_data") or {}).get(options.entry.provider.name) or {}
    if "thinking" not in options.without:
        for at, block in data.get("thinking") or ():
            blocks.insert(at, dict(block))
    return blocks


def _result(message: Message, ids: CallIds) -> dict[str, Any]:
    return {
        "type": "tool_result",
        "tool_use_id": ids.result(message["tool_call_id"]),
        "content": message["content"],
    }


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [_text(content)] if isinstance(content, str) else [_block(part) for part in content]


def _block(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return _text(part["text"])
    if part["type"] == "image_url":
        kind, url, more = "image", part["image_url"]["url"], {}
    else:
        kind, url = "document", part["file"]["file_data"]
        more = {"title": part["file"]["filename"]}
    media_type, data = data_url(url)
    source = {"type": "base64", "media_type": media_type, "data": data}
    return {"type": kind, "source": source, **more}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _marked(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mark where the prompt may be cached: the last message, and the one marked the call before."""
    users = [index for index, message in enumerate(turns) if message["role"] == "user"]
    for index in users[-2:]:
        blocks = turns[index]["content"]
        blocks[-1] = {**blocks[-1], "cache_control": _MARK}
    return turns


class Reader:
    """Reads the events of one stream."""

    def __init__(self) -> None:
        self._thinking: dict[int, dict[str, Any]] = {}
        self._tokens: dict[str, int] = {}

    def read(self, event: Mapping[str, Any]) -> Piece:
        """Return what one event says."""
        kind, index = event.get("type"), event.get("index") or 0
        if kind == "content_block_delta":
            return self._delta(index, event.get("delta") or {})
        if kind == "content_block_start":
            return self._start(index, event.get("content_block") or {})
        if kind == "message_start":
            self._count((event.get("message") or {}).get("usage"))
            return Piece(usage=self._usage() if self._tokens else None)
        if kind == "message_delta":
            self._count(event.get("usage"))
            reason = (event.get("delta") or {}).get("stop_reason")
            data = {"thinking": [[at, block] for at, block in sorted(self._thinking.items())]}
            return Piece(
                finish=FINISH.get(reason, "stop") if reason else "",
                usage=self._usage(),
                data=data if self._thinking else {},
            )
        return Piece()

    def _start(self, index: int, block: Mapping[str, Any]) -> Piece:
        kind = block.get("type")
        if kind in ("thinking", "redacted_thinking"):
            self._thinking[index] = dict(block)
        if kind == "tool_use":
            call = CallPiece(index=index, id=block.get("id") or "", name=block.get("name") or "")
            return Piece(calls=(call,))
        return Piece(text=block.get("text") or "")

    def _delta(self, index: int, delta: Mapping[str, Any]) -> Piece:
        kind = delta.get("type")
        if kind == "text_delta":
            return Piece(text=delta.get("text") or "")
        if kind == "input_json_delta":
            return Piece(calls=(CallPiece(index=index, arguments=delta.get("partial_json") or ""),))
        block = self._thinking.get(index)
        if block is None:
            return Piece()
        if kind == "thinking_delta":
            block["thinking"] = (block.get("thinking") or "") + (delta.get("thinking") or "")
            return Piece(reasoning=delta.get("thinking") or "")
        if kind == "signature_delta":
            block["signature"] = (block.get("signature") or "") + (delta.get("signature") or "")
        return Piece()

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        self._tokens |= {k: v for k, v in (usage or {}).items() if isinstance(v, int)}

    def _usage(self) -> Usage:
        got = self._tokens.get
        read, write = got("cache_read_input_tokens", 0), got("cache_creation_input_tokens", 0)
        return Usage(
            input=got("input_tokens", 0) + read + write,
            output=got("output_tokens", 0),
            cache_read=read,
            cache_write=write,
        )
