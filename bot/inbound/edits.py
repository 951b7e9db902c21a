"""What becomes of a message that its author changed after it was taken.

Not read yet: replaced. Read already: a note tells of it, which starts a turn only when the message
was the last word of an idle session. An edit never gives a command and never answers a prompt.
"""

from __future__ import annotations

from typing import Any

from bot.markup import defused, plain
from bot.surfaces.base import Edited
from engine import sessions
from engine.canonical import dumps, loads
from engine.inbox import Person
from engine.sessions import Post, Session
from engine.store.base import Row, Tx

__all__ = ["rewrite"]


def rewrite(tx: Tx, edited: Edited, row: Row, person: Person, key: str, now: float) -> str | None:
    """Take in the edit of the message in mailbox `row`; return the session that may now move.

    `key` is the edit's own mailbox key.
    """
    body = loads(row["body"])
    source = body.get("source", {})
    before, length = _text(body), int(source.get("length", 0))
    said = defused(edited.text)
    if before[:length] == said:
        return None
    if row["entered_seq"] is None:
        source["length"] = len(said)
        _set_text(body, said + before[length:])
        tx.run("mail_rewrite", id=row["id"], body=dumps(body))
        return None
    session = sessions.get(tx, row["session_id"])
    name = defused(plain(person.name)).replace("\n", " ")
    note = f"<nod-note>{name} changed an earlier message. It now says:</nod-note>\n{said}"
    again = {"message": {"role": "user", "content": note}, "source": {"event": edited.event}}
    kind = "message" if _last_word(tx, session, row["id"]) else "note"
    sessions.post(tx, session, Post(kind=kind, key=key, by=person.id, body=again), now)
    return session.id


def _last_word(tx: Tx, session: Session, mail: int) -> bool:
    """Say whether the session is idle and nobody has said anything since that message."""
    later = tx.one("mail_after", session=session.id, id=mail)
    return not session.turn_seq and later is None


def _text(body: dict[str, Any]) -> str:
    content = body["message"]["content"]
    return content if isinstance(content, str) else str(content[0]["text"])


def _set_text(body: dict[str, Any], text: str) -> None:
    if isinstance(body["message"]["content"], str):
        body["message"]["content"] = text
    else:
        body["message"]["content"][0]["text"] = text
