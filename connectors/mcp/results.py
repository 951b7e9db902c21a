"""Turns what an MCP server answered into a result: text within bounds, the rest as files."""

from __future__ import annotations

import asyncio
import base64
import binascii
import mimetypes
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from connectors.mcp.schemas import shortened
from connectors.mcp.tools import taint_of
from engine.canonical import defused, dumps, loads
from engine.tools.base import Artifact, Result, ToolContext

__all__ = ["contents_of", "prompt_of", "result_of"]

#: Parts of one answer that are looked at, characters of its text, bytes of one file in it.
PARTS, CHARACTERS, FILE = 200, 2_000_000, 10_000_000
#: Characters of a name or an address in a line of ours.
SHORT = 200


async def result_of(server: str, answer: Mapping[str, Any], ctx: ToolContext) -> Result:
    """Return the result of `tools/call`; `answer` is its JSON."""
    parts = list(answer.get("content") or ())
    made = await _made(parts, ctx)
    structured = answer.get("structuredContent")
    if structured is not None and not _said_already(parts, structured):
        made.text.append(dumps(structured))
    return made.result(server, ok=not answer.get("isError"))


async def contents_of(server: str, answer: Mapping[str, Any], ctx: ToolContext) -> Result:
    """Return the result of `resources/read`."""
    parts = [{"type": "resource", "resource": each} for each in answer.get("contents") or ()]
    return (await _made(parts, ctx)).result(server)


async def prompt_of(server: str, answer: Mapping[str, Any], ctx: ToolContext) -> Result:
    """Return the result of `prompts/get`: the messages, each with who is meant to speak."""
    parts: list[Mapping[str, Any]] = []
    for message in answer.get("messages") or ():
        speaker = "assistant" if message.get("role") == "assistant" else "user"
        parts += [{"type": "text", "text": f"{speaker}:"}, message.get("content") or {}]
    return (await _made(parts, ctx)).result(server)


class _Made:
    """An answer as it is put together."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.files: list[Artifact] = []

    def result(self, server: str, *, ok: bool = True) -> Result:
        text = defused("\n".join(self.text)).strip() or (
            "The server gave no text." if ok else "It failed."
        )
        if len(text) > CHARACTERS:
            text = f"{text[:CHARACTERS]}\n[The server sent more; it was dropped.]"
        return Result(text=text, ok=ok, artifacts=tuple(self.files), taint=taint_of(server))


async def _made(parts: Sequence[Mapping[str, Any]], ctx: ToolContext) -> _Made:
    made = _Made()
    for part in parts[:PARTS]:
        kind = part.get("type")
        if kind == "text":
            made.text.append(str(part.get("text") or ""))
        elif kind in ("image", "audio"):
            await _keep(made, ctx, kind, part.get("data"), part.get("mimeType"))
        elif kind == "resource_link":
            made.text.append(_link(part))
        elif kind == "resource":
            await _resource(made, ctx, part.get("resource") or {})
        else:
            made.text.append("[A part of a kind Nod does not know was left out.]")
    if len(parts) > PARTS:
        made.text.append(f"[{len(parts) - PARTS} more parts were left out.]")
    return made


def _link(part: Mapping[str, Any]) -> str:
    name = shortened(str(part.get("name") or ""), SHORT)
    uri = shortened(str(part.get("uri") or ""), 2 * SHORT)
    return f"[Resource {name}: {uri}]"


async def _resource(made: _Made, ctx: ToolContext, resource: Mapping[str, Any]) -> None:
    uri = shortened(str(resource.get("uri") or ""), 2 * SHORT)
    if "text" in resource:
        made.text += [f"[{uri}]", str(resource["text"])]
    else:
        name = uri.rstrip("/").rpartition("/")[2] or "resource"
        await _keep(made, ctx, name, resource.get("blob"), resource.get("mimeType"))


async def _keep(made: _Made, ctx: ToolContext, name: str, data: Any, kind: Any) -> None:
    """Keep a part that is no text as a file of the session, and say so."""
    if not isinstance(data, str) or len(data) > FILE * 4 // 3 + 4:
        made.text.append(f"[A file of more than {FILE // 1_000_000} MB was left out.]")
        return
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        made.text.append("[A file that cannot be decoded was left out.]")
        return
    media = kind if isinstance(kind, str) and re.fullmatch(r"[\w.+-]+/[\w.+-]+", kind) else ""
    file = await asyncio.to_thread(_write, ctx.cwd / "mcp", _file_name(name, media), raw)
    media = media or "application/octet-stream"
    made.files.append(Artifact(path=file, name=file.name, media_type=media))
    made.text.append(f"[{media}, {len(raw):,} bytes, kept as {file.relative_to(ctx.cwd)}]")


def _file_name(name: str, media: str) -> str:
    """Return a name without a path in it, with an ending that fits its kind."""
    plain = re.sub(r"[^\w.-]", "_", name)[-80:].lstrip(".") or "file"
    return plain if "." in plain else f"{plain}{mimetypes.guess_extension(media) or '.bin'}"


def _write(folder: Path, name: str, raw: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for path in _free(folder, name):
        try:
            with path.open("xb") as file:
                file.write(raw)
        except FileExistsError:
            continue
        return path
    raise AssertionError("there is always another number")


def _free(folder: Path, name: str) -> Iterator[Path]:
    stem, dot, ending = name.rpartition(".")
    yield folder / name
    number = 2
    while True:
        yield folder / f"{stem}-{number}{dot}{ending}"
        number += 1


def _said_already(parts: Sequence[Mapping[str, Any]], structured: Any) -> bool:
    """Say whether the text is the structured answer once more, as the protocol advises."""
    texts = [str(part.get("text") or "") for part in parts if part.get("type") == "text"]
    for text in ("".join(texts), *texts):
        try:
            if loads(text) == structured:
                return True
        except ValueError:
            continue
    values = list(structured.values()) if isinstance(structured, Mapping) else []
    return len(values) == 1 and "".join(texts) in (values[0], dumps(values[0]))
