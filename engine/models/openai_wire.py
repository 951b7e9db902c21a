"""OpenAI chat completions on the wire: OpenAI itself and everything that speaks like it.

Requests go through the SDK's own transport as plain JSON, and chunks stay plain JSON: building the
SDK's typed objects for each costs three times the rest of the call.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import openai
from aisuite.provider import Provider as AisuiteProvider  # type: ignore[import-untyped]
from aisuite.providers.openai_provider import OpenaiProvider  # type: ignore[import-untyped]

from engine.canonical import dumps
from engine.models.base import Message, ModelUnavailable, Usage
from engine.models.catalogue import Provider
from engine.models.schemas import wire_name, wire_tools
from engine.models.stream import CallPiece, Piece
from engine.models.wire import CallIds, Options, alternating, max_tokens

__all__ = ["OPTIONAL", "Wire", "read", "request"]

#: What an endpoint may refuse and a request can do without.
OPTIONAL = (
    "max_completion_tokens",
    "max_tokens",
    "stream_options",
    "parallel_tool_calls",
    "prompt_cache_key",
    "reasoning_content",
    "reasoning_details",
)

FINISH = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "refusal",
}


class Wire(OpenaiProvider):  # type: ignore[misc]
    """aisuite's OpenAI provider, asynchronous only, yielding our pieces."""

    def __init__(self, provider: Provider, *, api_key: str, base_url: str, timeout: Any) -> None:
        AisuiteProvider.__init__(self)  # the parent's own would open a second, blocking client
        self.aclient = openai.AsyncOpenAI(
            api_key=api_key or "none", base_url=base_url, timeout=timeout, max_retries=0
        )
        # the SDK takes these from the environment; no provider but OpenAI has a right to them
        if provider.name != "openai":
            self.aclient.organization = self.aclient.project = None

    async def achat_completions_create_stream(
        self, model: str, messages: Sequence[Message], **kwargs: Any
    ) -> AsyncGenerator[Piece, None]:
        """Send one request and yield what comes; closing the generator closes the connection."""
        body = request(messages, kwargs.get("tools") or (), kwargs["options"])
        stream: openai.AsyncStream[object] = await self.aclient.post(
            "/chat/completions",
            content=dumps(body).encode(),  # the SDK's own encoder takes ten times as long
            cast_to=object,
            stream=True,
            stream_cls=openai.AsyncStream[object],
        )
        details = _Details()
        try:
            async for chunk in stream:
                if isinstance(chunk, Mapping):
                    yield read(chunk, details)
        finally:
            await stream.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.aclient.close()


def request(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], options: Options
) -> dict[str, Any]:
    """Return the body of a streaming request; what the endpoint refused before is left out."""
    entry, provider = options.entry, options.entry.provider
    body: dict[str, Any] = {
        "model": entry.model,
        "messages": _messages(messages, options),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    limit = max_tokens(entry)
    if limit is not None:
        body[provider.max_tokens] = limit
    if tools:
        body["tools"] = wire_tools(tools, "openai")
        if not entry.parallel:
            body["parallel_tool_calls"] = False
    if provider.cache_key and options.session:
        body["prompt_cache_key"] = options.session[:64]
    for name in options.without:
        value = body.pop(name, None)
        other = _RENAMED.get(name)
        if value is not None and other is not None and other not in options.without:
            body[other] = value
    return body


_RENAMED = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


def _messages(messages: Sequence[Message], options: Options) -> list[dict[str, Any]]:
    ids = CallIds(options.entry)
    made: list[dict[str, Any]] = []
    for message in alternating(messages) if options.entry.provider.alternate else messages:
        role = message["role"]
        if role == "assistant":
            made.append(_assistant(message, ids, options))
        elif role == "tool":
            wire_id = ids.result(message["tool_call_id"])
            made.append({"role": role, "tool_call_id": wire_id, "content": message["content"]})
        else:
            after_tool = bool(made) and made[-1]["role"] == "tool"
            if after_tool and role == "user" and not options.entry.provider.user_after_tool:
                made.append({"role": "assistant", "content": "(a message came in)"})
            made.append({"role": role, "content": message["content"]})
    return made


def _assistant(message: Message, ids: CallIds, options: Options) -> dict[str, Any]:
    made: dict[str, Any] = {"role": "assistant", "content": message.get("content")}
    calls = message.get("tool_calls")
    if calls:
        made["tool_calls"] = [
            {
                "id": ids.call(call, message),
                "type": "function",
                "function": {
                    "name": wire_name(call["function"]["name"]),
                    "arguments": call["function"]["arguments"] or "{}",
                },
            }
            for call in calls
        ]
    data = (message.get("provider_data") or {}).get(options.entry.provider.name) or {}
    if data.get("reasoning_details") and "reasoning_details" not in options.without:
        made["reasoning_details"] = data["reasoning_details"]
    elif message.get("reasoning") and options.entry.reasoning == "content":
        if "reasoning_content" not in options.without:
            made["reasoning_content"] = message["reasoning"]
    return made


class _Details:
    """Puts together OpenRouter's reasoning details, which go back unchanged."""

    def __init__(self) -> None:
        self.blocks: list[dict[str, Any]] = []

    def add(self, parts: Sequence[Mapping[str, Any]]) -> None:
        """Append parts; a part continues the last block of its type and index."""
        for part in parts:
            key = (part.get("type"), part.get("index"))
            last = self.blocks[-1] if self.blocks else {}
            if last and key == (last.get("type"), last.get("index")):
                for name, value in part.items():
                    joins = name in ("text", "summary", "data") and isinstance(value, str)
                    last[name] = (last.get(name) or "") + value if joins else value
            else:
                self.blocks.append(dict(part))


def read(chunk: Mapping[str, Any], details: _Details | None = None) -> Piece:
    """Return what one chunk says."""
    piece = Piece(usage=_usage(chunk))
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        text, thought = _content(delta.get("content"))
        piece.text += text or delta.get("refusal") or ""
        piece.reasoning += thought or delta.get("reasoning_content") or delta.get("reasoning") or ""
        if delta.get("tool_calls"):
            piece.calls += tuple(map(_call, delta["tool_calls"]))
        if delta.get("reasoning_details") and details is not None:
            details.add(delta["reasoning_details"])
            piece.data = {"reasoning_details": details.blocks}
        if choice.get("finish_reason") == "error":
            raise ModelUnavailable("The provider broke off the answer with an error.", "Try again.")
        if choice.get("finish_reason"):
            piece.finish = FINISH.get(choice["finish_reason"], "stop")
        if delta.get("refusal"):
            piece.finish = "refusal"
    return piece


def _content(content: Any) -> tuple[str, str]:
    """Return (text, reasoning): content is text, or Mistral's list of parts."""
    if not isinstance(content, list):
        return content or "", ""
    text, thought = "", ""
    for part in content:
        text += part.get("text") or ""
        thought += "".join(each.get("text") or "" for each in part.get("thinking") or ())
    return text, thought


def _call(part: Mapping[str, Any]) -> CallPiece:
    function = part.get("function") or {}
    arguments = function.get("arguments") or ""
    return CallPiece(
        index=part.get("index") or 0,
        id=part.get("id") or "",
        name=function.get("name") or "",
        # some gateways send an object, whole
        arguments=arguments if isinstance(arguments, str) else dumps(arguments),
    )


def _usage(chunk: Mapping[str, Any]) -> Usage | None:
    usage = chunk.get("usage") or (chunk.get("x_groq") or {}).get("usage")
    if not usage:
        return None
    details = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")
    return Usage(
        input=usage.get("prompt_tokens") or 0,
        output=usage.get("completion_tokens") or 0,
        cache_read=cached or usage.get("cached_tokens") or 0,
        cache_write=details.get("cache_write_tokens") or 0,
    )
