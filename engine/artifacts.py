"""What a session keeps beside its log: results too long to send, files made, contents for undo."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.canonical import clean, dumps, loads
from engine.clock import mint
from engine.errors import ToolError
from engine.store.base import Row, Tx
from engine.tools.base import Artifact
from engine.tools.changes import write_new
from engine.tools.places import failure

__all__ = ["ArtifactRow", "artifact_add", "artifact_get", "budget", "measure"]

#: Share of a preview that shows the beginning; the rest shows the end.
_HEAD = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactRow:
    """An artifact as it is stored."""

    id: str
    session: str
    call: str | None
    kind: str  # 'file', 'spill', 'preimage'
    name: str
    media_type: str
    path: str  # relative to the data folder
    bytes: int
    digest: str  # SHA-256, hex
    #: Labels of the outside text it may hold.
    taint: tuple[str, ...]
    created_at: float


async def budget(text: str, limit: int, keep: Path, name: str) -> tuple[str, Artifact | None]:
    """Return `text` fit for the model: whole, or beginning, end and a handle to the rest.

    Over `limit` characters the whole text goes to a file under `keep`/spills (the returned
    artifact, to be stored with the result), and what is returned is at most `limit` long. It is
    cut between lines; JSON is laid out on lines first, so that it is cut between values. Raises
    ToolError when the file cannot be written.
    """
    if len(text) <= limit:
        return text, None
    return await asyncio.to_thread(_spill, text, limit, keep, name)


def _spill(text: str, limit: int, keep: Path, name: str) -> tuple[str, Artifact]:
    handle = mint("art_")
    whole, media_type = _laid_out(clean(text))
    path = keep / "spills" / f"{handle}.txt"
    write_new(path, whole.encode())
    artifact = Artifact(id=handle, path=path, name=name, media_type=media_type, kind="spill")
    return _preview(whole, limit, handle), artifact


def _laid_out(text: str) -> tuple[str, str]:
    """Return JSON text on many lines, other text as it is, and the media type."""
    if text.lstrip()[:1] not in ("{", "["):
        return text, "text/plain"
    try:
        value = loads(text)
    except ValueError:
        return text, "text/plain"
    return json.dumps(value, ensure_ascii=False, indent=1), "application/json"


def _preview(text: str, limit: int, handle: str) -> str:
    size = len(text)
    room = limit - len(_note(size, size, size, handle))
    if room <= 0:
        return _note(0, size, size, handle).strip()[:limit]
    start = _line_end(text, int(room * _HEAD))
    end = _line_start(text, size - (room - start))
    return text[:start].rstrip("\n") + _note(start, end, size, handle) + text[end:]


def _note(start: int, end: int, size: int, handle: str) -> str:
    where = f"characters {start:,} to {end:,} of {size:,} left out"
    return f"\n[… {where}; read_artifact('{handle}', {start})]\n"


def _line_end(text: str, at: int) -> int:
    """Return the end of the last whole line before `at`, or `at` when that loses over half."""
    cut = text.rfind("\n", 0, at) + 1
    return cut if cut * 2 > at else at


def _line_start(text: str, at: int) -> int:
    """Return where the first whole line after `at` begins, or `at` when that loses over half."""
    cut = text.find("\n", at) + 1
    return cut if cut and (len(text) - cut) * 2 > len(text) - at else at


async def measure(artifact: Artifact, data: Path) -> ArtifactRow:
    """Return the row for `artifact`, size and hash read from its file; the rest still empty.

    `data` is the data folder the path is stored relative to. Raises ToolError.
    """
    return await asyncio.to_thread(_measured, artifact, data)


def _measured(artifact: Artifact, data: Path) -> ArtifactRow:
    try:
        with artifact.path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
    except OSError as error:
        raise failure(artifact.name, error) from error
    return ArtifactRow(
        id=artifact.id or mint("art_"),
        session="",
        call=None,
        kind=artifact.kind,
        name=artifact.name,
        media_type=artifact.media_type,
        path=artifact.path.relative_to(data).as_posix(),
        bytes=size,
        digest=digest,
        taint=(),
        created_at=0.0,
    )


def artifact_add(
    tx: Tx,
    measured: ArtifactRow,
    *,
    tenant: str,
    session: str,
    call: str | None,
    taint: Sequence[str],
    now: float,
) -> str:
    """Store an artifact `measure` looked at; returns its id. A second time changes nothing."""
    tx.run(
        "artifact_add",
        id=measured.id,
        tenant_id=tenant,
        session_id=session,
        call_id=call,
        kind=measured.kind,
        name=measured.name,
        media_type=measured.media_type,
        path=measured.path,
        bytes=measured.bytes,
        digest=measured.digest,
        taint=dumps(list(taint)),
        created_at=now,
    )
    return measured.id


def artifact_get(tx: Tx, id: str) -> ArtifactRow:
    """Return the artifact of that id; raises ToolError when there is none.

    Check `session` before anything of it is shown: ids of other sessions are found, too.
    """
    row = tx.one("artifact_get", id=id)
    if row is None:
        raise ToolError(f"There is no artifact '{id[:80]}'.", "Copy the id from the result.")
    return _row(row)


def _row(row: Row) -> ArtifactRow:
    return ArtifactRow(
        id=row["id"],
        session=row["session_id"],
        call=row["call_id"],
        kind=row["kind"],
        name=row["name"],
        media_type=row["media_type"],
        path=row["path"],
        bytes=row["bytes"],
        digest=row["digest"],
        taint=tuple(loads(row["taint"])),
        created_at=row["created_at"],
    )
