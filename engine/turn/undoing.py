"""Undoes the file edits of the last turn, and tells people and the model what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.canonical import loads
from engine.events import Kind
from engine.sessions import Session
from engine.store.base import Tx
from engine.tools.undo import restore
from engine.turn.ports import Engine
from engine.turn.state import Mail

__all__ = ["undo"]


async def undo(
    engine: Engine, session: Session, mail: Mail
) -> list[tuple[Kind, Mapping[str, Any]]]:
    """Restore what the last turn changed, only where the file still is as it left it.

    Returns the facts that tell what was restored and what cannot be undone.
    """
    entries = await engine.store.read(lambda tx: _entries(tx, session))
    effects = await engine.store.read(lambda tx: _effects(tx, session))
    restored, skipped = await restore(entries)
    lines = [f"- restored: {path}" for path in restored]
    lines += [f"- left as it is: {path} ({why})" for path, why in skipped]
    lines += [f"- cannot be undone: {name}" for name in effects]
    text = "Undo of the last turn's edits:\n" + "\n".join(lines) if lines else "Nothing to undo."
    message = {"role": "user", "content": f"<nod-note>{text}</nod-note>"}
    return [
        (Kind.MESSAGE, {"message": message, "cause": "undo", "by": mail.by, "mail": mail.id}),
        (Kind.NOTICE, {"text": text}),
    ]


def _entries(tx: Tx, session: Session) -> list[Mapping[str, Any]]:
    facts = tx.all("log_turn", session=session.id, turn=session.turn)
    bodies = [loads(row["body"]) for row in facts if row["kind"] == Kind.TOOL_FINISHED.value]
    return [entry for body in bodies for entry in body.get("undo", ())]


def _effects(tx: Tx, session: Session) -> list[str]:
    """Return the names of the last turn's calls that no file can take back."""
    return [
        str(row["name"])
        for row in tx.all("calls_of", session=session.id)
        if row["turn"] == session.turn
        and row["risk"] in ("exec", "external")
        and row["status"] in ("finished", "unknown")
    ]
