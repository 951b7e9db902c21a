"""What must hold of a session, whatever its workers went through: each fault as a sentence."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine import audit, inbox, sessions
from engine.canonical import digest, dumps
from engine.events import Event, Kind
from engine.sessions import Session
from engine.store.base import Tx, parse_queries
from engine.turn.decide import ATTEMPTS
from engine.turn.journal import event_from
from engine.turn.state import State, fold
from tests.fault.child import FINAL, KEY, POSTED, TARGET, WRITTEN, Spec
from tests.fault.outside import lines_of

__all__ = ["faults", "log_of", "with_queries"]

_QUERIES = """
-- name: proof_usage
select turn, iteration from usage where session_id = :session
-- name: prompts_of
select id, answer from prompts where session_id = :session order by id
-- name: proof_mail
select entered_seq from mailbox where event_key = :key
"""


def with_queries(store: Any) -> Any:
    """Return the store, able to answer what only a proof asks."""
    store.queries.update(parse_queries([_QUERIES], store.dialect))
    return store


def log_of(tx: Tx, session: str) -> list[Event]:
    """Return every fact of the session."""
    return [event_from(row) for row in tx.all("log_since", session=session, seq=1)]


def faults(tx: Tx, spec: Spec) -> list[str]:
    """Return what is wrong with the session of a run that rested; empty: all is well."""
    session_id = sessions.find_thread(tx, "local", spec.thread)
    if session_id is None:
        return ["the session is gone"]
    session, facts = sessions.get(tx, session_id), log_of(tx, session_id)
    told = [json.loads(line) for line in (spec.folder / "told").read_text().splitlines()]
    return [
        *_rest(tx, session, facts),
        *_message(tx, spec, facts),
        *_told(tx, facts, told),
        *_results(facts),
        *_repeats(facts),
        *_effects(spec, facts),
        *_tables(tx, session, facts),
        *audit.verify(tx, "local"),
    ]


def _rest(tx: Tx, session: Session, facts: Sequence[Event]) -> list[str]:
    found = []
    if [fact.seq for fact in facts] != list(range(1, len(facts) + 1)):
        found.append("the log has a gap")
    if session.seq != len(facts):
        found.append(f"the session says {session.seq} facts, the log has {len(facts)}")
    if (session.worker, session.turn_seq, session.attempts) != (None, 0, 0):
        found.append(f"not given up: {session}")
    if session.wanted != session.seen:
        found.append("something was left undone")
    state = fold(State(session=session.id), facts)
    if state.open or state.loose:
        found.append(f"the turn did not end: {state}")
    statuses = [f.body["status"] for f in facts if f.kind is Kind.TURN_END]
    if statuses[-1:] != ["completed"]:
        found.append(f"the turn ended with {statuses}")
    if inbox.pending_in(tx, session.id):
        found.append("a prompt is still open")
    return found


def _message(tx: Tx, spec: Spec, facts: Sequence[Event]) -> list[str]:
    entered = [f for f in facts if f.kind is Kind.MESSAGE and f.body["cause"] == "message"]
    found = []
    if [f.body["message"]["content"] for f in entered] != [spec.says]:
        found.append(f"the message entered {len(entered)} times")
    last = [f for f in facts if f.kind is Kind.ASSISTANT_MESSAGE][-1]
    if last.body["message"]["content"] != FINAL:
        found.append(f"the answer is {last.body['message']['content']!r}")
    if tx.all("mail_waiting", session=facts[0].session):
        found.append("mail was left in the mailbox")
    return found


def _told(tx: Tx, facts: Sequence[Event], told: Sequence[dict[str, Any]]) -> list[str]:
    """Whatever a worker said before it died is so."""
    found = []
    by_seq = {fact.seq: fact for fact in facts}
    for line in told:
        if line["told"] == "fact":
            fact = by_seq.get(line["seq"])
            said = (line["kind"], line["body"])
            if fact is None or (fact.kind.value, digest(dumps(fact.body))) != said:
                found.append(f"fact {line['seq']} ({line['kind']}) was shown and is gone")
        elif line["told"] == "answer":
            answer = inbox.get(tx, line["prompt"]).answer
            if answer is None or answer["kind"] != line["kind"]:
                found.append(f"the answer to {line['prompt']} is lost")
        elif line["told"] == "intake" and line["session"] != facts[0].session:
            found.append("the message went to another session")
    return found


def _results(facts: Sequence[Event]) -> list[str]:
    proposed = Counter(f.call for f in facts if f.kind is Kind.TOOL_PROPOSED)
    finished = Counter(f.call for f in facts if f.kind is Kind.TOOL_FINISHED)
    return [] if proposed == finished else [f"calls {proposed} have results {finished}"]


def _repeats(facts: Sequence[Event]) -> list[str]:
    """A call with consequences starts again only after it is known not to have happened."""
    found, open_starts = [], {}
    consequential = {
        f.call
        for f in facts
        if f.kind is Kind.TOOL_PROPOSED and f.body["risk"] in ("write_local", "external")
    }
    for fact in facts:
        if fact.call not in consequential:
            continue
        if fact.kind is Kind.TOOL_STARTED:
            if fact.call in open_starts:
                found.append(f"{fact.call} was started again, its fate unknown")
            open_starts[fact.call] = fact.seq
        elif (fact.kind is Kind.UNKNOWN and fact.body["found"] == "did_not") or (
            fact.kind is Kind.DECIDED and fact.body["answer"]["kind"] == "run"
        ):
            open_starts.pop(fact.call, None)
    return found


def _effects(spec: Spec, facts: Sequence[Event]) -> list[str]:
    """What is outside is there once, and the log knows how it got there.

    A call whose workers died as often as it may be tried, each before its effect, did nothing and
    says so.
    """
    found: list[str] = []
    results = {f.body["name"]: f.body["status"] for f in facts if f.kind is Kind.TOOL_FINISHED}
    starts = Counter(f.body["name"] for f in facts if f.kind is Kind.TOOL_STARTED)
    given_up = {
        name
        for name in ("send_message", "write_file")
        if results.get(name) == "error" and starts[name] == ATTEMPTS
    }
    tools = ("send_message", "write_file", "read_file", "list_files")
    failed = [name for name in tools if results.get(name) != "ok" and name not in given_up]
    found += [f"{name} ended as {results.get(name)}" for name in failed]
    posted = [(line["target"], line["text"]) for line in lines_of(spec.folder / "effects")]
    if posted != ([] if "send_message" in given_up else [(TARGET, POSTED)]):
        found.append(f"posted: {posted}")
    wanted = 0 if "write_file" in given_up else 1
    if len(lines_of(spec.folder / "writes")) != wanted:
        found.append(f"written {len(lines_of(spec.folder / 'writes'))} times, not {wanted}")
    files = sessions.files_of(Path(spec.data), facts[0].session)
    briefing = files / "briefing.md"
    if (briefing.read_text() if briefing.exists() else None) != (WRITTEN if wanted else None):
        found.append("the file is not as the log says")
    if wanted and (left := [each.name for each in files.glob(".nod-*")]):
        found.append(f"left in the folder: {left}")
    return found


def _tables(tx: Tx, session: Session, facts: Sequence[Event]) -> list[str]:
    """The tables beside the log say what the log says."""
    wanted = {f.call: f.body["status"] for f in facts if f.kind is Kind.TOOL_FINISHED}
    names = {"ok": "finished", "error": "failed", "denied": "denied", "interrupted": "failed"}
    found = [
        f"call {row['id']} is {row['status']}, its result {wanted}"
        for row in tx.all("calls_of", session=session.id)
        if row["status"] != names.get(wanted.get(row["id"], ""), "")
    ]
    answered = sum(1 for f in facts if f.kind is Kind.ASSISTANT_MESSAGE and "usage" in f.body)
    used = len(tx.all("proof_usage", session=session.id))
    if used != answered:
        found.append(f"{answered} answers, {used} usage rows")
    mail = tx.one("proof_mail", key=f"{KEY}:{session.home}")
    at = next(f.seq for f in facts if f.kind is Kind.MESSAGE)
    if mail is None or mail["entered_seq"] != at:
        found.append("the mailbox does not know where the message went")
    return found
