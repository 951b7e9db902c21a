"""Brings a message's files in: fetched to a spool, placed in the session's folder, told of."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bot.inbound import pasted
from bot.inbound.hearing import Ear
from bot.markup import defused, plain
from bot.surfaces.base import Attachment, SurfaceError
from engine.errors import NodError

__all__ = ["FILES", "File", "Refused", "announced", "content", "fetch", "place", "refusals"]

#: Files of one message, and bytes of those the model is shown, not only told of.
FILES, INLINE = 10, 5_000_000
#: Bytes of a text file that is looked through for keys.
READ = 1_000_000
#: Seconds one file may take to come.
FETCH_TIMEOUT = 60.0

_SHOWN_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file that came in."""

    name: str
    media_type: str
    path: Path
    #: data: URL of what the model is shown; empty: it is told of the file only.
    url: str = ""
    #: What is said in it, when it is a voice note.
    heard: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A file that was not taken, and why, as one sentence."""

    name: str
    why: str


class _HoldsKey(SurfaceError):
    """The file is not to be kept."""


def refusals(files: Sequence[Attachment], limit: int) -> tuple[list[Attachment], list[str]]:
    """Return the files that may come, and a sentence about each that may not.

    `limit` is in bytes; what the platform says of a file's size is believed until it is here.
    """
    told = [f"Only the first {FILES} files were taken."] if len(files) > FILES else []
    wanted = []
    for number, each in enumerate(files[:FILES]):
        if each.bytes > limit:
            name = file_name(each.name, number, set())
            told.append(f"{name} was not taken: it is over the limit of {limit // 1_000_000} MB.")
        else:
            wanted.append(each)
    return wanted, told


async def fetch(
    files: Sequence[Attachment], spool: Path, limit: int, ear: Ear
) -> tuple[list[File], list[Refused]]:
    """Bring files into the folder `spool`, and hear the voice notes among them."""
    came: list[File] = []
    refused: list[Refused] = []
    await asyncio.to_thread(spool.mkdir, 0o700, True, True)
    for number, each in enumerate(files):
        name = file_name(each.name, number, {file.name for file in came})
        try:
            file = await _one(each, name, spool / name, limit)
        except _HoldsKey as error:
            refused.append(Refused(name=name, why=f"{name} was not taken: {error}"))
            continue
        except (SurfaceError, TimeoutError, OSError) as error:
            why = str(error) or "it took too long"
            refused.append(Refused(name=name, why=f"{name} could not be fetched: {why}."))
            continue
        if each.voice:
            try:
                file = replace(file, heard=pasted.blotted(await ear.heard(file.path)))
            except NodError as error:
                why = f"I could not hear {name}: {error}."
                refused.append(Refused(name=name, why=why))
        came.append(file)
    return came, refused


async def _one(attachment: Attachment, name: str, path: Path, limit: int) -> File:
    async with asyncio.timeout(FETCH_TIMEOUT):
        await attachment.fetch(path)
    size = (await asyncio.to_thread(path.stat)).st_size
    if size > limit:  # it was larger than its platform said
        await asyncio.to_thread(path.unlink)
        raise SurfaceError(f"it is over the limit of {limit // 1_000_000} MB")
    if what := await asyncio.to_thread(_key_in, path, size):
        await asyncio.to_thread(path.unlink)
        raise _HoldsKey(f"It holds {what}.", "Send it without, and end that key: others saw it.")
    url = ""
    if attachment.media_type in _SHOWN_TYPES and size <= INLINE:
        raw = await asyncio.to_thread(path.read_bytes)
        url = f"data:{attachment.media_type};base64,{base64.b64encode(raw).decode()}"
    return File(name=name, media_type=attachment.media_type, path=path, url=url)


def _key_in(path: Path, size: int) -> str:
    """Return what key a small text file holds; empty: none, or it is something else."""
    if size > READ:
        return ""
    try:
        return pasted.found(path.read_bytes().decode())
    except UnicodeDecodeError:
        return ""


def file_name(name: str, number: int, taken: set[str]) -> str:
    """Return a name that stays in its folder and is none of `taken`."""
    last = plain(name).replace("\\", "/").rsplit("/", 1)[-1].lstrip(".")[:120]
    safe = last.replace("\n", " ") or f"file-{number + 1}"
    return f"{number + 1}-{safe}" if safe in taken else safe


def place(file: File, folder: Path) -> File:
    """Put a file into its session's folder, before the row that names it is durable.

    Linked, not moved: when the transaction is run again, it finds its own file there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target, number = folder / file.name, 1
    while True:
        try:
            os.link(file.path, target)
            break
        except FileExistsError:
            if target.samefile(file.path):
                break
            number += 1
            target = folder / f"{file.path.stem}-{number}{file.path.suffix}"
    return replace(file, name=target.name, path=target)


# -- what the model reads


def announced(files: Sequence[Attachment]) -> list[str]:
    """Return a line for each file that is still on its way when its message is stored."""
    late = "still on its way; it follows in a message of its own, else ask for it again"
    return [f"[{defused(plain(each.name))[:120]}: {late}]" for each in files]


def content(
    text: str, stamp: str, files: Sequence[File], told: Sequence[str]
) -> str | list[dict[str, Any]]:
    """Return a message's content: the words, what came with them, and the stamp as last line."""
    lines = [text]
    for file in files:
        lines.append(f"[file in/{defused(file.name)}, {file.media_type}]")
        if file.heard:
            lines.append(f"[transcribed from the voice note:]\n{defused(file.heard)}")
    lines += [f"[{defused(each)}]" for each in told]
    whole = "\n".join(line for line in (*lines, stamp) if line)
    shown = [_part(file) for file in files if file.url]
    return [{"type": "text", "text": whole}, *shown] if shown else whole


def _part(file: File) -> dict[str, Any]:
    if file.media_type == "application/pdf":
        return {"type": "file", "file": {"filename": file.name, "file_data": file.url}}
    return {"type": "image_url", "image_url": {"url": file.url}}
