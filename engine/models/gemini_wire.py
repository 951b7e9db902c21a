"""Gemini's generateContent on the wire: thought signatures that go back, calls without ids."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import httpx2
from aisuite.provider import Provider as AisuiteProvider  # type: ignore[import-untyped]
from aisuite.providers.gemini_provider import GeminiProvider  # type: ignore[import-untyped]
from google import genai

from engine.canonical import dumps
from engine.clock import mint
from engine.models.base import Message, ModelUnavailable, Usage
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
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE"), "refusal"
    ),
}
#: Google's own word for "this call was made elsewhere"; without any, Gemini 3 answers 400.
_UNSIGNED = b"skip_thought_signature_validator"
#: Ids we gave because Gemini gave none; they mean nothing to it and are never sent.
_OURS = "gem"

#: Where the running call's HTTP response is kept, so that it can be closed at once.
_responses: ContextVar[list[httpx2.Response]] = ContextVar("gemini_responses")


class Wire(GeminiProvider):  # type: ignore[misc]
    """aisuite's Gemini provider, asynchronous only, yielding our pieces."""

    def __init__(self, provider: Provider, *, api_key: str, base_url: str, timeout: Any) -> None:
        AisuiteProvider.__init__(self)
        self.http = httpx2.AsyncClient(
            timeout=timeout, follow_redirects=True, event_hooks={"response": [_keep]}
        )
        options = genai.types.HttpOptions(
            base_url=base_url,
            api_version="v1beta",  # gateways speak this one; the SDK's own default is newer
            httpx_async_client=self.http,
            retry_options=genai.types.HttpRetryOptions(attempts=1),
        )
        self.client = genai.Client(api_key=api_key, vertexai=False, http_options=options)

    async def achat_completions_create_stream(
        self, model: str, messages: Sequence[Message], **kwargs: Any
    ) -> AsyncGenerator[Piece, None]:
        """Send one request and yield what comes; closing the generator closes the connection."""
        asked = request(messages, kwargs.get("tools") or (), kwargs["options"])
        responses: list[httpx2.Response] = []
        token = _responses.set(responses)
        reader = Reader()
        try:
            # the request leaves with the first step, in this very context
            stream = await self.client.aio.models.generate_content_stream(**asked)
            first = await anext(stream, None)
            _responses.reset(token)
            if first is not None:
                yield reader.read(first)
            async for chunk in stream:
                yield reader.read(chunk)
        finally:
            for response in responses:
                await response.aclose()

    async def close(self) -> None:
        """Close the connections."""
        await self.http.aclose()
        await self.client.aio.aclose()
        self.client.close()


async def _keep(response: httpx2.Response) -> None:
    _responses.get([]).append(response)


def request(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], options: Options
) -> dict[str, Any]:
    """Return the arguments of generate_content_stream."""
    entry = options.entry
    system, contents = _conversation(messages, options)
    config: dict[str, Any] = {"automatic_function_calling": {"disable": True}}
    if system:
        config["system_instruction"] = system
    if tools:
        declared = [_declaration(each["function"]) for each in wire_tools(tools, "gemini")]
        config["tools"] = [{"function_declarations": declared}]
    if entry.reasoning == "thoughts" and "thinking" not in options.without:
        config["thinking_config"] = {"include_thoughts": True}
    limit = max_tokens(entry)
    if limit is not None:
        config["max_output_tokens"] = limit
    return {"model": entry.model, "contents": contents, "config": config}


def _declaration(function: Mapping[str, Any]) -> dict[str, Any]:
    made = {"name": function["name"], "description": function["description"]}
    # an object without properties is refused
    if function["parameters"]["properties"]:
        made["parameters"] = function["parameters"]
    return made


def _conversation(
    messages: Sequence[Message], options: Options
) -> tuple[str, list[dict[str, Any]]]:
    """Return (system instruction, alternating contents)."""
    ids, sent = CallIds(options.entry), dict[str, dict[str, Any]]()
    system: list[str] = []
    contents: list[dict[str, Any]] = []
    for message in alternating(messages):
        role = message["role"]
        if role == "system" and not contents:
            system.append(message["content"])
            continue
        if role == "assistant":
            parts = _assistant(message, ids, sent, options)
        elif role == "tool":
            parts = [_result(message, sent)]
        elif role == "system":  # only the beginning has a place for it
            parts = [{"text": f"<system>\n{message['content']}\n</system>"}]
        else:
            parts = _parts(message["content"])
        side = "model" if role == "assistant" else "user"
        if contents and contents[-1]["role"] == side:
            contents[-1]["parts"] += parts
        else:
            contents.append({"role": side, "parts": parts})
    return "\n\n".join(system), contents


def _assistant(
    message: Message, ids: CallIds, sent: dict[str, dict[str, Any]], options: Options
) -> list[dict[str, Any]]:
    data = (message.get("provider_data") or {}).get(options.entry.provider.name) or {}
    signatures = data.get("signatures") or {}
    parts: list[dict[str, Any]] = []
    if message.get("content"):
        parts.append({"text": message["content"]})
        _sign(parts[0], data.get("text_signature"))
    for index, call in enumerate(message.get("tool_calls") or ()):
        made = {"name": wire_name(call["function"]["name"])}
        wire_id = ids.call(call, message)
        if wire_id == call.get("provider_id") and not wire_id.startswith(_OURS):
            made["id"] = wire_id
        sent[call["id"]] = made
        arguments = arguments_object(call["function"]["arguments"])
        part: dict[str, Any] = {"function_call": {**made, "args": arguments}}
        _sign(part, signatures.get(call.get("provider_id")))
        if index == 0 and not signatures and options.entry.reasoning == "thoughts":
            part["thought_signature"] = _UNSIGNED
        parts.append(part)
    return parts


def _sign(part: dict[str, Any], signature: str | None) -> None:
    if signature:
        part["thought_signature"] = base64.b64decode(signature)


def _result(message: Message, sent: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    call = sent.get(message["tool_call_id"], {"name": "unknown"})
    return {"function_response": {**call, "response": {"result": message["content"]}}}


def _parts(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"text": content}]
    made = []
    for part in content:
        if part["type"] == "text":
            made.append({"text": part["text"]})
            continue
        url = part["image_url"]["url"] if part["type"] == "image_url" else part["file"]["file_data"]
        media_type, data = data_url(url)
        made.append({"inline_data": {"mime_type": media_type, "data": data}})
    return made


class Reader:
    """Reads the chunks of one stream."""

    def __init__(self) -> None:
        self._calls = 0
        self._signatures: dict[str, str] = {}
        self._data: dict[str, Any] = {}

    def read(self, chunk: Any) -> Piece:
        """Return what one chunk says; raises ModelUnavailable for an answer the model botched."""
        piece = Piece(usage=_usage(chunk.usage_metadata))
        feedback = chunk.prompt_feedback
        if feedback is not None and feedback.block_reason is not None:
            piece.finish = "refusal"
        for candidate in (chunk.candidates or ())[:1]:
            for part in (candidate.content and candidate.content.parts) or ():
                self._part(part, piece)
            if candidate.finish_reason is not None:
                piece.finish = self._finish(candidate.finish_reason)
        piece.data = self._data
        return piece

    def _part(self, part: Any, piece: Piece) -> None:
        signature = base64.b64encode(part.thought_signature or b"").decode()
        if part.function_call is not None:
            call = part.function_call
            # its ids, where there are any, and its numbering start anew in every answer
            made = call.id or mint(_OURS)
            arguments = dumps(dict(call.args or {}))
            piece.calls += (CallPiece(self._calls, made, call.name or "", arguments),)
            self._calls += 1
            if signature:
                self._signatures[made] = signature
                self._data["signatures"] = self._signatures
        elif part.thought:
            piece.reasoning += part.text or ""
        else:
            piece.text += part.text or ""
            if signature:
                self._data["text_signature"] = signature

    def _finish(self, reason: Any) -> str:
        name = getattr(reason, "name", str(reason))
        if name in FINISH:
            return FINISH[name]
        if name.startswith("IMAGE"):
            return "refusal"
        raise ModelUnavailable(f"The model botched its answer ({name}).", "Try again.")


def _usage(usage: Any) -> Usage | None:
    if usage is None:
        return None
    return Usage(
        input=(usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0),
        output=(usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
        cache_read=usage.cached_content_token_count or 0,
    )
