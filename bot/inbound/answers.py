"""Takes a person's answer to a prompt, and does in the same transaction what the answer brings.

Whatever the surface (a press, a line, a key, a command, another process), it comes through `take`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from bot.commands import unclear, zones
from connectors.mcp import kept as mcp_kept
from connectors.mcp.servers import read_server, secret_names
from engine import budgets, inbox, people, sessions
from engine.canonical import dumps
from engine.clock import Now, mint
from engine.errors import NodError, PromptError
from engine.inbox import Person, Prompt, Resolution
from engine.schedule import promises, proposals
from engine.schedule.cron import in_zone
from engine.store.base import Tx

__all__ = [
    "Defaults",
    "House",
    "ask_access",
    "notify",
    "offer_folder",
    "retry_post",
    "settle",
    "show_in",
    "take",
    "waiting_as",
]

RETRY_NOTE = "<nod-note>The person asks you to try again from their last message.</nod-note>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a session that a person opens begins with."""

    persona: str
    model: str
    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """What everything on the inbound side shares."""

    tenant: str
    data: Path
    now: Now
    defaults: Defaults

    def open(self, tx: Tx, target: str, owner: str, now: float) -> str:
        """Open a session for a person's thread, and route the thread to it."""
        return sessions.open_session(
            tx,
            tenant=self.tenant,
            home=target,
            owner=owner,
            origin="person",
            persona=self.defaults.persona,
            model=self.defaults.model,
            mode=self.defaults.mode,
            data=self.data,
            now=now,
        )


def take(
    tx: Tx,
    house: House,
    prompt: Prompt,
    answer: Mapping[str, Any],
    by: Person,
    surface: str,
    expect_hash: str | None = None,
) -> tuple[Resolution, list[str]]:
    """Resolve the prompt and return what came of it, with the sessions that may now move.

    Raises PromptError when the person may not give this answer.
    """
    now = house.now()
    if answer.get("kind") == "approve" and answer.get("mode") == "auto" and by.role != "owner":
        raise PromptError("Only an owner may switch to auto.", "Approve without auto.")
    if answer.get("rule"):
        _may_rule(prompt, by)
    resolution = inbox.resolve(tx, prompt.id, answer, by, surface, now, expect_hash)
    moved = [prompt.session] if prompt.session else []
    if resolution.status == "resolved":
        effect = _EFFECTS.get(prompt.kind)
        if effect is not None:
            moved += effect(tx, house, resolution.prompt, by, now)
    return resolution, moved


def _may_rule(prompt: Prompt, by: Person) -> None:
    """Raise PromptError unless the person may make the standing rule of a schedule."""
    own = prompt.payload.get("schedule", {}).get("owner") == by.id
    if not own and by.role != "owner":
        raise PromptError("Only the owner makes rules for others.", "Confirm without the rule.")
    if by.role not in ("operator", "owner"):
        raise PromptError("A standing rule needs the role operator.", "Confirm without the rule.")


def _granted(tx: Tx, house: House, prompt: Prompt, by: Person, now: float) -> list[str]:
    """A folder becomes a root of the session, a schedule or watch is made, more may be spent."""
    if prompt.payload.get("budget"):
        return budgets.answered(tx, prompt, by, now)
    if prompt.payload.get("schedule"):
        return _scheduled(tx, prompt, by, now)
    if prompt.payload.get("promise"):
        return _promised(tx, house, prompt, by, now)
    if prompt.payload.get("unclear"):
        return unclear.asked(
            tx, prompt, now, lambda target, owner: house.open(tx, target, owner, now)
        )
    if prompt.answer is None or prompt.answer["kind"] != "approve":
        return []
    if server := prompt.payload.get("mcp"):
        try:
            mcp_kept.add(tx, prompt.tenant, server["name"], server["table"], by=by.id, now=now)
        except NodError as error:
            raise PromptError(error.what, error.fix) from error
    folder = prompt.payload.get("root")
    if not folder or prompt.session is None:
        return []
    session = sessions.get(tx, prompt.session)
    body = {"root": {"path": folder["path"], "writable": folder["writable"]}}
    mail = sessions.Post(kind="switch", key=f"grant:{prompt.id}", by=by.id, body=body)
    sessions.post(tx, session, mail, now)
    return [session.id]


def _scheduled(tx: Tx, prompt: Prompt, by: Person, now: float) -> list[str]:
    """Make what the card shows, or show it anew with what was changed on it."""
    answer = prompt.answer or {}
    try:
        if answer["kind"] == "edit":
            again = proposals.changed(tx, prompt, answer["arguments"], now)
            for row in tx.all("deliveries_of", tenant=prompt.tenant, subject=f"prompt:{prompt.id}"):
                show_in(tx, again, row["destination"], now)
            return []
        said = "did not confirm the schedule; nothing is scheduled"
        if answer["kind"] == "approve":
            made = proposals.confirm(tx, prompt, by, now, ruled=bool(answer.get("rule")))
            first = in_zone(made.policy.begins(made.next_at or now, made.zone), made.zone)
            said = f"confirmed schedule {made.id}; it comes first at {first} ({made.zone})"
            if made.when.event:
                said = f"confirmed schedule {made.id}; it comes with the event {made.when.event}"
    except NodError as error:
        raise PromptError(error.what, error.fix) from error
    return _noted(tx, prompt, by, said, now)


def _promised(tx: Tx, house: House, prompt: Prompt, by: Person, now: float) -> list[str]:
    """Begin the watch, or the wait for an event, that the card shows."""
    said = "did not say yes; nothing is watched or waited for"
    if (prompt.answer or {}).get("kind") == "approve":
        try:
            said = promises.keep(tx, prompt, by, now, data=house.data)
        except NodError as error:
            raise PromptError(error.what, error.fix) from error
    return _noted(tx, prompt, by, said, now)


def _noted(tx: Tx, prompt: Prompt, by: Person, said: str, now: float) -> list[str]:
    """Tell the session in which it was asked for, if one was, what the person decided."""
    if prompt.session is None:
        return []
    note = {"role": "user", "content": f"<nod-note>{by.name or by.id} {said}.</nod-note>"}
    mail = sessions.Post(kind="note", key=f"granted:{prompt.id}", by=by.id, body={"message": note})
    sessions.post(tx, sessions.get(tx, prompt.session), mail, now)
    return [prompt.session]


def _admitted(tx: Tx, house: House, prompt: Prompt, by: Person, now: float) -> list[str]:
    """Somebody was let in; with 'deliver', what they wrote meanwhile goes where it belongs."""
    kind = (prompt.answer or {}).get("kind")
    if kind not in ("allow", "deliver"):
        return []
    who = prompt.payload["identity"]
    person = people.add_person(
        tx,
        house.tenant,
        who["platform"],
        who["id"],
        name=who["name"],
        role="member",
        by=by.id,
        now=now,
    )
    if kind == "allow":
        return []
    moved = []
    waiting = waiting_as(who["platform"], who["id"])
    for row in tx.all("mail_unrouted", tenant=house.tenant, waiting=waiting):
        target = row["thread_target"]
        session = sessions.find_thread(tx, house.tenant, target)
        session = session or house.open(tx, target, person.id, now)
        tx.run("mail_route", id=row["id"], session=session, by=person.id)
        tx.run("session_want", id=session)
        moved.append(session)
    return moved


def _noticed(tx: Tx, house: House, prompt: Prompt, by: Person, now: float) -> list[str]:
    held = prompt.payload.get("held")
    if held:
        again = (prompt.answer or {}).get("kind") == "retry"
        tx.run("held_release" if again else "held_drop", tenant=house.tenant, key=held)
        return []
    if (prompt.answer or {}).get("kind") != "retry" or prompt.session is None:
        return []
    session = sessions.get(tx, prompt.session)
    sessions.post(tx, session, retry_post(f"notice:{prompt.id}", by.id), now)
    return [session.id]


def _told(tx: Tx, house: House, prompt: Prompt, by: Person, now: float) -> list[str]:
    """Where a person is was the last that was missing: their schedule is proposed in its place."""
    proposed = zones.answered(tx, prompt, now)
    if proposed is not None:
        show_in(tx, proposed, prompt.payload["zoned"]["target"], now)
    return []


_EFFECTS = {"question": _told, "grant": _granted, "access": _admitted, "notice": _noticed}


def retry_post(key: str, by: str) -> sessions.Post:
    """Return the mail that starts a new turn from the last message."""
    body = {"message": {"role": "user", "content": RETRY_NOTE}}
    return sessions.Post(kind="retry", key=key, by=by, body=body)


def waiting_as(platform: str, external_id: str) -> str:
    """Return the name under which an unknown person's messages wait."""
    return f"identity:{platform}:{external_id}"


def show_in(tx: Tx, prompt: Prompt, place: str, now: float) -> None:
    """Have the prompt's card shown in `place`, a thread_target, whatever its session's home is."""
    tx.run(
        "delivery_add",
        id=mint("d"),
        tenant=prompt.tenant,
        session=prompt.session or "",
        kind="show",
        subject=f"prompt:{prompt.id}",
        destination=place,
        part=1,
        payload=dumps({"prompt": prompt.id}),
        status="open",
        attempted=None,
        now=now,
    )


def offer_folder(
    tx: Tx, house: House, session: sessions.Session, folder: Path, *, writable: bool = False
) -> Prompt | None:
    """Ask, on a card in the session's home, whether it may look into `folder`.

    Returns None when it may already, or the folder was offered to this session before.
    """
    if any(folder == root.path and root.writable >= writable for root in session.roots):
        return None
    subject = f"{session.id}/{folder}" + ("/rw" if writable else "")
    if tx.one("prompt_by_subject", tenant=house.tenant, kind="grant", subject=subject) is not None:
        return None
    now = house.now()
    does = "read and change" if writable else "read"
    payload = {
        "title": f"May Nod {does} the files in this folder?",
        "text": str(folder),
        "root": {"path": str(folder), "writable": writable},
    }
    return _raise(tx, house.tenant, "grant", subject, payload, session.id, now)


def offer_server(tx: Tx, house: House, name: str, table: Mapping[str, Any], place: str) -> Prompt:
    """Ask in `place`, a thread_target, whether the program of an MCP server may be started."""
    server, now = read_server(name, table), house.now()
    payload = {
        "title": f"Start this program as the MCP server {name}?",
        "text": server.where,
        "facts": [
            ["Runs", "on the machine Nod runs on, as its user, and again after each start"],
            ["Is given", ", ".join(secret_names(server)) or "no secret"],
            ["In", server.folder or "a folder of its own"],
        ],
        "mcp": {"name": name, "table": dict(table)},
    }
    prompt = _raise(tx, house.tenant, "grant", f"mcp:{name}/{mint('n')}", payload, None, now)
    show_in(tx, prompt, place, now)
    return prompt


def ask_access(
    tx: Tx, house: House, platform: str, external_id: str, name: str, target: str
) -> tuple[Prompt | None, bool]:
    """Ask the owner about an unknown person; return the open prompt, and whether it is new.

    None: the owner turned them down, so they are not asked about again. Where nobody answered in
    time, they are.
    """
    identity = subject = f"{platform}:{external_id}"
    for number in count(2):
        row = tx.one("prompt_by_subject", tenant=house.tenant, kind="access", subject=subject)
        if row is None:
            break
        if row["status"] == "pending":
            return inbox.prompt_from(row), False
        if row["resolved_by"] != "clock":
            return None, False
        subject = f"{identity}#{number}"
    payload = {
        "text": f"{name} ({identity}) wrote in {target}.",
        "identity": {"platform": platform, "id": external_id, "name": name},
    }
    return _raise(tx, house.tenant, "access", subject, payload, None, house.now()), True


def notify(
    tx: Tx, tenant: str, now: float, cause: str, title: str, text: str, *, held: str = ""
) -> Prompt | None:
    """Tell the owner; None: the same cause was told and is not answered yet.

    `held` is the key of an event in quarantine: then the card has Retry and Drop.
    """
    if tx.one("notice_open", tenant=tenant, prefix=f"{cause}/%") is not None:
        return None
    payload = {"title": title, "text": text} | ({"held": held, "retry": True} if held else {})
    return _raise(tx, tenant, "notice", f"{cause}/{mint('n')}", payload, None, now)


def settle(tx: Tx, tenant: str, cause: str, now: float) -> None:
    """Close the open notice of a cause that is over; if it comes again, that is told again."""
    row = tx.one("notice_open", tenant=tenant, prefix=f"{cause}/%")
    if row is not None:
        inbox.withdraw(tx, inbox.get(tx, row["id"]), now)


def _raise(
    tx: Tx,
    tenant: str,
    kind: str,
    subject: str,
    payload: Mapping[str, Any],
    session: str | None,
    now: float,
) -> Prompt:
    """Write a prompt that no log tells of; the presenter finds and shows it."""
    return inbox.ask(
        tx,
        Prompt(
            id=mint("p"),
            tenant=tenant,
            session=session,
            kind=kind,
            subject=subject,
            payload=payload,
            approvers={"role": "owner"},
            created_at=now,
            remind_at=now + inbox.REMINDER,
            deadline=now + inbox.DEADLINE,
        ),
    )
