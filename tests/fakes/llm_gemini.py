"""The fake provider's Gemini generateContent: what is refused, and how an answer is streamed."""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.fakes.llm_rules import NAME, Broken, Reply, Service, demand, pieces, sse

#: Gemini sends no comments; a chunk without text is its sign of life.
PING = sse({"candidates": [{"content": {"role": "model", "parts": [{"text": ""}]}}]})
MALFORMED = b"data: {not json\n\n"

_PARAMETERS = {"contents", "systemInstruction", "tools", "generationConfig"}
_SCHEMA = set(
    "type format description nullable enum items properties required anyOf minimum maximum "
    "minItems maxItems minLength maxLength pattern title".split()
)
#: Google's documented sentinel for calls made elsewhere.
UNSIGNED = base64.b64encode(b"skip_thought_signature_validator").decode()


def error(status: int, said: str) -> dict[str, Any]:
    """Return an error body."""
    kinds = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED"}
    return {"error": {"code": status, "message": said, "status": kinds.get(status, "UNAVAILABLE")}}


def error_event(said: str) -> bytes:
    """Return an error in the middle of a stream."""
    return sse(error(503, said))


def check(body: dict[str, Any], service: Service) -> None:
    """Raise Broken as the service would answer 400."""
    for name in body:
        demand(name in _PARAMETERS, f"Unknown name {name}")
    config = body.get("generationConfig") or {}
    demand("thinking" not in service.unknown or "thinkingConfig" not in config, "no thinking here")
    for tool in body.get("tools") or ():
        for function in tool["functionDeclarations"]:
            demand(NAME.fullmatch(function["name"]), "Invalid function name")
            if "parameters" in function:
                demand(function["parameters"]["properties"], "properties: should be non-empty")
                _check_schema(function["parameters"])
    role = "model"
    waiting: list[str] = []
    for content in body["contents"]:
        demand(content["role"] in ("user", "model"), "role")
        demand(content["role"] != role, "roles must alternate")
        role = content["role"]
        demand(content["parts"], "parts must not be empty")
        answered = [
            part["functionResponse"]["name"]
            for part in content["parts"]
            if "functionResponse" in part
        ]
        demand(sorted(answered) == sorted(waiting), "function response parts must equal calls")
        waiting = _check_parts(content["parts"], service, "thinkingConfig" in config)
    demand(role == "user", "please end with a user role")


def _check_parts(parts: list[dict[str, Any]], service: Service, thinks: bool) -> list[str]:
    called: list[str] = []
    for part in parts:
        signature = (part.get("thoughtSignature") or "").replace("-", "+").replace("_", "/")
        if "text" in part:
            demand(part["text"].strip(), "text must not be empty")
        elif "functionCall" in part:
            call = part["functionCall"]
            demand(NAME.fullmatch(call["name"]), "Invalid function name")
            if thinks and not called:
                known = signature == UNSIGNED or signature in service.signed
                demand(known, "Function call is missing a thought_signature")
            if signature in service.signed:
                demand(service.signed[signature] == call["name"], "signature of another call")
            called.append(call["name"])
        elif "inlineData" in part:
            demand(service.vision, "image input is not supported")
        else:
            demand(set(part) == {"functionResponse"}, f"unknown part {sorted(part)}")
            demand(isinstance(part["functionResponse"]["response"], dict), "response: object")
    return called


def _check_schema(schema: dict[str, Any]) -> None:
    for key, value in schema.items():
        demand(key in _SCHEMA, f"Unknown name {key} in schema")
        if key == "properties":
            for each in value.values():
                _check_schema(each)
        elif key == "items":
            _check_schema(value)
        elif key == "type" and not isinstance(value, str):
            raise Broken("type must be one word")


def events(reply: Reply, service: Service) -> list[bytes]:
    """Return the server-sent events of an answer."""
    parts: list[dict[str, Any]] = [
        {"text": piece, "thought": True} for piece in pieces(reply.reasoning)
    ]
    parts += [{"text": piece} for piece in pieces(reply.text)]
    for index, (name, arguments) in enumerate(reply.calls):
        part: dict[str, Any] = {
            "functionCall": {"name": name, "args": json.loads(arguments or "{}")}
        }
        if index == 0:
            signature = base64.b64encode(service.next("signature of call ").encode()).decode()
            service.signed[signature] = name
            part["thoughtSignature"] = signature
        parts.append(part)
    out = [_chunk([part]) for part in parts]
    names = {"": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}
    thoughts = 5 if reply.reasoning else 0
    usage = {
        "promptTokenCount": reply.input,
        "candidatesTokenCount": reply.output - thoughts,
        "thoughtsTokenCount": thoughts,
        "cachedContentTokenCount": reply.cached,
        "totalTokenCount": reply.input + reply.output,
    }
    last = {"content": {"role": "model", "parts": [{"text": ""}]}}
    last["finishReason"] = names.get(reply.finish, reply.finish)  # type: ignore[assignment]
    return [*out, sse({"candidates": [last], "usageMetadata": usage})]


def _chunk(parts: list[dict[str, Any]]) -> bytes:
    return sse({"candidates": [{"content": {"role": "model", "parts": parts}}]})
