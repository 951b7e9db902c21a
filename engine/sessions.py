"""Sessions and their mailboxes: open, find, post into, read. Functions of an open transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.canonical import dumps, loads
from engine.clock import mint
from engine.errors import SessionError
from engine.store.base import Row, Tx
from engine.tools.base import Root

__all__ = [
    "Post",
    "Session",
    "bind",
    "files_of",
    "find_thread",
    "get",
    "listed",
    "open_session",
    "post",
    "session_from",
]

#: Mail a session keeps at most; one more is refused, and its sender told.
MAILBOX_LIMIT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One durable conversation, as its row says."""

    id: str
    tenant: str
    #: thread_target where its text, progress and cards go.
    home: str
    title: str
    persona: str
    #: The principal it belongs to.
    owner: str
    origin: str
    #: A person opened it in its home thread, so posting there needs no asking.
    home_open: bool
    model: str
    mode: str
    roots: tuple[Root, ...]
    custom: Mapping[str, str]
    taint: tuple[str, ...]
    state: str
    worker: str | None
    epoch: int
    wanted: int
    seen: int
    attempts: int
    stop_mark: int
    seq: int
    turn: int
    turn_seq: int
    presented: int
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """Something for a session's mailbox."""

    #: message, stop, retry, undo, switch, note, fire, wake
    kind: str
    #: The platform's event id: posting the same key again is a no-op.
    key: str
    by: str
    body: Mapping[str, Any]


def session_from(row: Row) -> Session:
    """Return the value of a `sessions` row."""
    return Session(
        id=row["id"],
        tenant=row["tenant_id"],
        home=row["home"],
        title=row["title"],
        persona=row["persona"],
        owner=row["owner_id"],
        origin=row["origin"],
        home_open=bool(row["home_open"]),
        model=row["model"],
        mode=row["mode"],
        roots=_roots(row["roots"]),
        custom=loads(row["custom"]),
        taint=tuple(loads(row["taint"])),
        state=row["state"],
        worker=row["worker"],
        epoch=row["epoch"],
        wanted=row["wanted"],
        seen=row["seen"],
        attempts=row["attempts"],
        stop_mark=row["stop_mark"],
        seq=row["seq"],
        turn=row["turn"],
        turn_seq=row["turn_seq"],
        presented=row["presented"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


@lru_cache(maxsize=1024)
def _roots(text: str) -> tuple[Root, ...]:
    return tuple(
        Root(path=Path(each["path"]), writable=each["writable"], own=each["own"])
        for each in loads(text)
    )


@lru_cache(maxsize=1024)
def files_of(data: Path, session: str) -> Path:
    """Return the session's own writable folder."""
    return data / "sessions" / session / "files"


@lru_cache(maxsize=1024)
def keep_of(data: Path, session: str) -> Path:
    """Return the folder for what the runtime keeps about a session: spills, pre-images."""
    return data / "sessions" / session / "keep"


def open_session(
    tx: Tx,
    *,
    tenant: str,
    home: str,
    owner: str,
    origin: str,
    persona: str,
    model: str,
    mode: str,
    data: Path,
    now: float,
    roots: Sequence[Root] = (),
    title: str = "",
    route: bool = True,
) -> str:
    """Open a session at `home` and return its id.

    `route` makes the thread's next messages come here. `origin` is 'person' when a person opened
    it in that thread; only then is posting there without asking allowed.
    """
    session = mint("s")
    own = Root(path=files_of(data, session), writable=True, own=True)
    tx.run(
        "session_add",
        id=session,
        tenant=tenant,
        home=home,
        title=title,
        persona=persona,
        owner=owner,
        origin=origin,
        home_open=int(origin == "person"),
        model=model,
        mode=mode,
        roots=roots_json((own, *roots)),
        now=now,
    )
    if route:
        bind(tx, tenant, home, session, now)
    return session


def roots_json(roots: Sequence[Root]) -> str:
    """Return roots as the JSON a session's row holds."""
    return dumps([{"path": str(r.path), "writable": r.writable, "own": r.own} for r in roots])


def bind(tx: Tx, tenant: str, target: str, session: str, now: float) -> None:
    """Route the thread's next messages to `session`."""
    tx.run("thread_bind", tenant=tenant, target=target, session=session, now=now)


def find_thread(tx: Tx, tenant: str, target: str) -> str | None:
    """Return the session a thread's messages go to, or None."""
    row = tx.one("thread_get", tenant=tenant, target=target)
    return None if row is None else str(row["session_id"])


def get(tx: Tx, session: str) -> Session:
    """Return the session; raises SessionError when there is none of that id."""
    row = tx.one("session_get", id=session)
    if row is None:
        raise SessionError(f"There is no session {session}.", "List them with `nod session list`.")
    return session_from(row)


def listed(tx: Tx, tenant: str, limit: int = 50) -> list[Session]:
    """Return the tenant's sessions, the latest first."""
    return [session_from(row) for row in tx.all("session_list", tenant=tenant, limit=limit)]


def post(tx: Tx, session: Session, mail: Post, now: float) -> bool:
    """Put `mail` into the session's mailbox and make it runnable; False: it was there already.

    Raises SessionError when the mailbox is full. A stop always fits.
    """
    if mail.kind != "stop":
        waiting = tx.one("mail_count", session=session.id)
        if waiting is not None and waiting["n"] >= MAILBOX_LIMIT:
            raise SessionError(
                f"{MAILBOX_LIMIT} messages already wait for this session.",
                "Wait until it has read them, or send stop.",
            )
    added = tx.run(
        "mail_add",
        tenant=session.tenant,
        session=session.id,
        kind=mail.kind,
        key=mail.key,
        target=session.home,
        by=mail.by,
        body=dumps(mail.body),
        now=now,
    )
    if not added:
        return False
    tx.run("session_stop" if mail.kind == "stop" else "session_want", id=session.id)
    return True
