"""The inbox: prompts that wait for a person, and the one atomic step that resolves each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine import audit
from engine.canonical import dumps, loads
from engine.clock import mint
from engine.errors import PromptError
from engine.permissions import rules
from engine.store.base import Row, Tx
from engine.tools.base import Risk

__all__ = [
    "KINDS",
    "Person",
    "Prompt",
    "Resolution",
    "Role",
    "ask",
    "expire",
    "find",
    "get",
    "may_answer",
    "pending",
    "pending_in",
    "remind",
    "resolve",
    "standing_votes",
    "withdraw",
]

DAY = 24 * 60 * 60.0  # seconds

#: How long a prompt waits before silence is a no; waiting costs nothing.
DEADLINE = 7 * DAY
#: After this long without an answer the person is reminded, once a day.
REMINDER = DAY

KINDS = frozenset(
    {"approval", "question", "plan", "grant", "access", "outcome", "connect", "notice"}
)

#: A rule made without saying more holds so long and so often.
RULE_SECONDS = 30 * DAY
RULE_USES = 100

#: Roles from least to most; each may do what the ones before it may.
Role = str
ROLES: tuple[Role, ...] = ("guest", "member", "operator", "owner")

#: What each kind of prompt may be answered with.
ANSWERS: Mapping[str, frozenset[str]] = {
    "approval": frozenset({"once", "always", "edit", "deny"}),
    "question": frozenset({"answer", "deny"}),
    "plan": frozenset({"approve", "deny"}),
    "grant": frozenset({"approve", "deny"}),
    "access": frozenset({"allow", "deliver", "dismiss"}),
    "outcome": frozenset({"happened", "run", "leave", "unknown"}),
    "connect": frozenset({"done", "deny"}),
    "notice": frozenset({"seen", "retry"}),
}

#: What silence means, by kind; never a yes.
SILENCE: Mapping[str, Mapping[str, Any]] = {
    "outcome": {"kind": "unknown", "silence": True},
    "access": {"kind": "dismiss", "silence": True},
    "notice": {"kind": "seen", "silence": True},
}
_DENIED = {"kind": "deny", "silence": True, "reason": "no answer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Who answers, with the role read at this moment."""

    id: str
    role: Role
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One row of the inbox."""

    id: str
    tenant: str
    session: str | None
    kind: str
    subject: str
    call: str | None = None
    turn: int = 0
    hash: str = ""
    #: Everything the card shows, whole: title, tool, risk, arguments, preview, target, reason …
    payload: Mapping[str, Any] = field(default_factory=dict)
    #: Votes a yes needs.
    needs: int = 1
    #: The least role that may answer, and the principal whose session it is.
    approvers: Mapping[str, Any] = field(default_factory=dict)
    created_at: float = 0.0
    remind_at: float | None = None
    deadline: float = 0.0
    status: str = "pending"
    answer: Mapping[str, Any] | None = None
    resolved_by: str = ""
    resolved_on: str = ""
    resolved_at: float = 0.0

    @property
    def options(self) -> frozenset[str]:
        """The answers this prompt takes; its payload may narrow those of its kind."""
        narrowed = self.payload.get("options_allowed")
        return frozenset(narrowed) if narrowed else ANSWERS[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What an answer led to."""

    prompt: Prompt
    #: 'resolved' (this answer decided), 'voted' (more votes are needed), 'already' (somebody else).
    status: str
    votes: int = 0


def ask(tx: Tx, prompt: Prompt) -> Prompt:
    """Write the prompt, or return the one that is there already for the same subject."""
    added = tx.run(
        "prompt_add",
        id=prompt.id or mint("p"),
        tenant=prompt.tenant,
        session=prompt.session,
        kind=prompt.kind,
        subject=prompt.subject,
        call=prompt.call,
        turn=prompt.turn,
        hash=prompt.hash,
        payload=dumps(prompt.payload),
        needs=prompt.needs,
        approvers=dumps(prompt.approvers),
        now=prompt.created_at,
        remind=prompt.remind_at,
        deadline=prompt.deadline,
    )
    row = tx.one(
        "prompt_by_subject", tenant=prompt.tenant, kind=prompt.kind, subject=prompt.subject
    )
    assert row is not None, "a prompt that was just written is there"
    found = prompt_from(row)
    if added:
        entry = audit.Entry(kind="asked", actor="nod", subject=found.id, arguments_hash=found.hash)
        audit.append(tx, found.tenant, _chain(found), [entry], prompt.created_at)
    return found


def get(tx: Tx, prompt_id: str) -> Prompt:
    """Return the prompt; raises PromptError when there is none."""
    row = tx.one("prompt_get", id=prompt_id)
    if row is None:
        raise PromptError(f"There is no prompt {prompt_id}.", "See what waits with `nod inbox`.")
    return prompt_from(row)


def find(tx: Tx, tenant: str, start: str) -> Prompt:
    """Return the one prompt whose id begins with `start`; raises PromptError otherwise."""
    pattern = start.replace("%", "").replace("_", "") + "%"
    rows = tx.all("prompt_find", tenant=tenant, prefix=pattern)
    if len(rows) != 1 or pattern == "%":
        what = "No prompt" if not rows else "More than one prompt"
        raise PromptError(f"{what} has an id that begins with '{start}'.", "See `nod inbox`.")
    return prompt_from(rows[0])


def pending(tx: Tx, tenant: str, limit: int = 100) -> list[Prompt]:
    """Return what waits for a person, the oldest first."""
    return [prompt_from(row) for row in tx.all("prompts_pending", tenant=tenant, limit=limit)]


def pending_in(tx: Tx, session: str) -> list[Prompt]:
    """Return what waits in one session, in the order it was asked."""
    return [prompt_from(row) for row in tx.all("prompts_pending_in", session=session)]


def resolve(
    tx: Tx,
    prompt_id: str,
    answer: Mapping[str, Any],
    by: Person,
    surface: str,
    now: float,
    expect_hash: str | None = None,
) -> Resolution:
    """Take one person's answer; the step that decides does so once, and wakes the session.

    A prompt is open until the clock resolves it, also past its deadline: what people pressed
    while Nod was down counts when it arrives.

    Args:
        answer: `{"kind": …}` with what that kind carries (reason, arguments, answers, mode).
        by: who answers; the role is checked here, at the press.
        expect_hash: the argument hash the card was made for, when the surface knows it.

    Raises PromptError when the person may not, the answer does not fit, or the hash differs.
    """
    prompt = get(tx, prompt_id)
    if prompt.session is not None:
        tx.run("session_want", id=prompt.session)  # first: every step locks the session's row first
        prompt = get(tx, prompt_id)
    if prompt.status != "pending":
        return Resolution(prompt=prompt, status="already")
    _check(prompt, answer, by, expect_hash)
    votes = _vote(tx, prompt, answer, by, surface, now)
    if answer["kind"] in ("once", "always", "approve") and votes < prompt.needs:
        return Resolution(prompt=prompt, status="voted", votes=votes)
    if answer["kind"] == "always":
        _make_rule(tx, prompt, answer, by, now)
    return _decide(tx, prompt, answer, by.id, surface, now, votes)


def expire(tx: Tx, now: float, limit: int = 100) -> list[Prompt]:
    """Resolve what has passed its deadline, by the clock; silence is never a yes."""
    expired = []
    for row in tx.all("prompts_expired", now=now, limit=limit):
        prompt = prompt_from(row)
        if prompt.session is not None:
            tx.run("session_want", id=prompt.session)
        answer = SILENCE.get(prompt.kind, _DENIED)
        resolution = _decide(tx, prompt, answer, "clock", "", now, 0)
        if resolution.status == "resolved":
            expired.append(resolution.prompt)
    return expired


def withdraw(tx: Tx, prompt: Prompt, now: float) -> None:
    """Close a notice whose cause is over; nobody needs to have seen it."""
    _decide(tx, prompt, {"kind": "seen", "over": True}, "clock", "", now, 0)


def remind(tx: Tx, now: float, limit: int = 100) -> list[Prompt]:
    """Return what is due for a reminder, and set the next one."""
    due = [prompt_from(row) for row in tx.all("prompts_remind", now=now, limit=limit)]
    for prompt in due:
        following = now + REMINDER
        tx.run(
            "prompt_reminded",
            id=prompt.id,
            at=following if following < prompt.deadline else None,
        )
    return due


def may_answer(prompt: Prompt, by: Person) -> bool:
    """Say whether the person's role allows an answer to this prompt."""
    if by.role not in ROLES:
        return False
    rank = ROLES.index(by.role)
    if rank >= ROLES.index(prompt.approvers.get("role", "owner")):
        return True
    own = prompt.approvers.get("person") == by.id
    return own and rank >= ROLES.index("member") and bool(prompt.approvers.get("own_suffices"))


def may_see(prompt: Prompt, by: Person) -> bool:
    """Say whether the person may read all of the prompt: who may answer it, or whose turn asks."""
    return may_answer(prompt, by) or prompt.approvers.get("person") == by.id


def standing_votes(tx: Tx, prompt: Prompt) -> int:
    """Return how many of those who said yes to the prompt may still do so."""
    rows = tx.all("vote_people", prompt=prompt.id, hash=prompt.hash)
    people = [Person(id=row["id"], role=row["role"], name=row["name"]) for row in rows]
    return sum(may_answer(prompt, person) for person in people)


def prompt_from(row: Row) -> Prompt:
    """Return the value of a `prompts` row."""
    return Prompt(
        id=row["id"],
        tenant=row["tenant_id"],
        session=row["session_id"],
        kind=row["kind"],
        subject=row["subject"],
        call=row["call_id"],
        turn=row["turn"],
        hash=row["arguments_hash"],
        payload=loads(row["payload"]),
        needs=row["needs"],
        approvers=loads(row["approvers"]),
        created_at=row["created_at"],
        remind_at=row["remind_at"],
        deadline=row["deadline"],
        status=row["status"],
        answer=None if row["answer"] is None else loads(row["answer"]),
        resolved_by=row["resolved_by"] or "",
        resolved_on=row["resolved_on"] or "",
        resolved_at=row["resolved_at"] or 0.0,
    )


def _check(prompt: Prompt, answer: Mapping[str, Any], by: Person, expect: str | None) -> None:
    if not may_answer(prompt, by):
        raise PromptError(
            f"This needs somebody with the role {prompt.approvers.get('role', 'owner')}.",
            "Ask one of them to answer.",
        )
    if answer.get("kind") not in prompt.options:
        known = ", ".join(sorted(prompt.options))
        raise PromptError(f"'{answer.get('kind')}' is no answer to this.", f"Answer with: {known}.")
    if expect is not None and expect != prompt.hash:
        raise PromptError(
            "What this card shows has changed since it was made.", "Answer on the newest card."
        )
    if answer["kind"] == "always" and not prompt.payload.get("rule_target"):
        raise PromptError("No standing rule can be made from this.", "Answer once or deny.")
    if answer["kind"] == "edit" and not isinstance(answer.get("arguments"), Mapping):
        raise PromptError("An edit must carry the arguments as an object.", "Send them as JSON.")


def _make_rule(tx: Tx, prompt: Prompt, answer: Mapping[str, Any], by: Person, now: float) -> None:
    """Keep the standing rule the card showed; it names the outside text that was in play."""
    person = str(prompt.approvers.get("person", by.id))
    if person != by.id and by.role != "owner":
        raise PromptError("Only the owner makes rules for others.", "Answer once or deny.")
    session = tx.one("session_get", id=prompt.session)
    payload = prompt.payload
    rules.make_rule(
        tx,
        tenant=prompt.tenant,
        session=prompt.session,
        principal=person,
        tool=payload["tool"],
        risk=Risk(payload["risk"]),
        target=payload["rule_target"],
        uses=answer.get("uses") or RULE_USES,
        expires_at=answer.get("expires_at") or now + RULE_SECONDS,
        taint=loads(session["taint"]) if session is not None else (),
        made_under=payload["taint"],
        now=now,
    )


def _vote(
    tx: Tx, prompt: Prompt, answer: Mapping[str, Any], by: Person, surface: str, now: float
) -> int:
    tx.run(
        "vote_add",
        tenant=prompt.tenant,
        prompt=prompt.id,
        by=by.id,
        answer=answer["kind"],
        hash=prompt.hash,
        surface=surface,
        now=now,
    )
    entry = audit.Entry(
        kind="voted",
        actor=by.id,
        surface=surface,
        subject=prompt.id,
        arguments_hash=prompt.hash,
        outcome=answer["kind"],
    )
    audit.append(tx, prompt.tenant, _chain(prompt), [entry], now)
    row = tx.one("vote_count", prompt=prompt.id, hash=prompt.hash)
    return 0 if row is None else int(row["n"])


def _decide(
    tx: Tx,
    prompt: Prompt,
    answer: Mapping[str, Any],
    by: str,
    surface: str,
    now: float,
    votes: int,
) -> Resolution:
    text = dumps(answer)
    if not tx.run("prompt_resolve", id=prompt.id, answer=text, by=by, surface=surface, now=now):
        return Resolution(prompt=get(tx, prompt.id), status="already")
    entry = audit.Entry(
        kind="decided",
        actor=by,
        surface=surface,
        subject=prompt.id,
        arguments_hash=prompt.hash,
        outcome=answer["kind"],
    )
    audit.append(tx, prompt.tenant, _chain(prompt), [entry], now)
    return Resolution(prompt=get(tx, prompt.id), status="resolved", votes=votes)


def _chain(prompt: Prompt) -> str:
    return prompt.session or audit.tenant_chain(prompt.tenant)


def choices(prompts: Sequence[Prompt]) -> dict[str, list[Prompt]]:
    """Group prompts that share one card, in the order they were asked."""
    cards: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        cards.setdefault(str(prompt.payload.get("card") or prompt.id), []).append(prompt)
    return cards
