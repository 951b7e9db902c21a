"""A ToolContext for tests: real folders, a delivery that records, a clock that stands still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.errors import ToolError
from engine.targets import ThreadTarget
from engine.tools.base import LookUp, Root, ToolContext

__all__ = ["NOW", "RecordedDelivery", "make_context"]

#: 2026-03-02 08:00 UTC, a Monday.
NOW = 1_772_438_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One delivery, as it was asked for."""

    target: str
    text: str
    files: tuple[Path, ...]
    subject: str
    ref: str


@dataclass(slots=True)
class RecordedDelivery:
    """Keeps what is sent; refuses a target that does not parse, a used subject, a missing file."""

    sent: list[Sent] = field(default_factory=list)
    #: Subjects whose fate nobody knows.
    unclear: set[str] = field(default_factory=set)

    async def send(self, target: str, text: str, files: Sequence[Path], subject: str) -> str:
        ThreadTarget.parse(target)
        if not subject.startswith("act:"):
            raise ToolError(f"'{subject}' is no subject of an act.")
        if any(each.subject == subject for each in self.sent):
            raise ToolError(f"{subject} was sent already.")
        if not text.strip() and not files:
            raise ToolError("There is nothing to send.")
        for file in files:
            if not file.is_file():
                raise ToolError(f"{file} is no file.")
        ref = f"m{len(self.sent) + 1}"
        self.sent.append(
            Sent(target=target, text=text, files=tuple(files), subject=subject, ref=ref)
        )
        return ref

    async def find(self, target: str, subject: str) -> tuple[LookUp, str]:
        ThreadTarget.parse(target)
        if subject in self.unclear:
            return LookUp.CANNOT_TELL, ""
        for each in self.sent:
            if (each.target, each.subject) == (target, subject):
                return LookUp.HAPPENED, each.ref
        return LookUp.DID_NOT, ""


def make_context(folder: Path, **changed: Any) -> ToolContext:
    """Return a context whose own root is `folder`/files; `changed` replaces fields of it."""
    files, keep = folder / "files", folder / "keep"
    files.mkdir(parents=True, exist_ok=True)
    keep.mkdir(exist_ok=True)
    artifacts: dict[str, Path] = changed.pop("artifacts", {})

    async def artifact(id: str) -> Path:
        if id not in artifacts:
            raise ToolError(f"There is no artifact '{id}'.")
        return artifacts[id]

    async def executor() -> Any:
        raise ToolError("This test has no shell.")

    fields: dict[str, Any] = {
        "session": "s_test",
        "turn": 1,
        "call": "c_test",
        "attempt": 1,
        "home": "console:main",
        "roots": (Root(path=files, writable=True, own=True),),
        "cwd": files,
        "keep": keep,
        "now": lambda: NOW,
        "delivery": RecordedDelivery(),
        "executor": executor,
        "artifact": artifact,
    }
    return ToolContext(**{**fields, **changed})
