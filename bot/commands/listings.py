"""What the command line shows of the store, as plain text: inbox, sessions, transcripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from engine import sessions
from engine.canonical import dumps
from engine.errors import SessionError
from engine.events import Event, Kind
from engine.inbox import Prompt
from engine.schedule import proposals
from engine.schedule.runs import Fire
from engine.schedule.schedules import Schedule
from engine.sessions import Session
from engine.store.base import Row, Tx
from engine.turn.journal import event_from

__all__ = [
    "audit_lines",
    "audit_of",
    "find_session",
    "fire_lines",
    "inbox_lines",
    "schedule_lines",
    "schedule_told",
    "session_lines",
    "spoken",
    "told",
    "transcript",
    "transcript_of",
]

_CUT = 72  # characters of a line in a list
#: What the runtime stamps onto a message for the model.
_STAMP = re.compile(r"\s*<nod-context>.*?</nod-context>", re.S)


def find_session(tx: Tx, tenant: str, start: str) -> str:
    """Return the one session whose id begins with `start`; raises SessionError otherwise."""
    prefix = start.replace("%", "").replace("_", "")
    rows = tx.all("report_session_find", tenant=tenant, prefix=prefix + "%") if prefix else []
    if len(rows) != 1:
        what = "More than one session" if rows else "No session"
        raise SessionError(
            f"{what} has an id that begins with '{start}'.", "See `nod session list`."
        )
    return str(rows[0]["id"])


def inbox_lines(prompts: Sequence[Prompt], now: float) -> Iterator[str]:
    """Yield a line for each prompt: id, how long it waits, kind, what it is about."""
    if not prompts:
        yield "Nothing waits for you."
    for prompt in prompts:
        age = spoken(now - prompt.created_at)
        yield f"{prompt.id}  {age:>7}  {prompt.kind:<8}  {_title(prompt)}"


def session_lines(found: Sequence[Session], zone: str) -> Iterator[str]:
    """Yield a line for each session: id, last change, state, home, title."""
    if not found:
        yield "There are no sessions yet."
    for each in found:
        when = _moment(each.updated_at, ZoneInfo(zone))
        yield f"{each.id}  {when}  {each.state:<7}  {each.home:<16}  {_cut(each.title)}".rstrip()


def transcript(session: Session, events: Iterable[Event], zone: str) -> Iterator[str]:
    """Yield the session's log as people read it."""
    place = ZoneInfo(zone)
    yield f"Session {session.id} · {session.title or 'no title'} · {session.home} · {session.mode}"
    for event in events:
        for line in told(event):
            yield f"{_clock(event.at, place)}  {line}"


def told(event: Event) -> list[str]:
    """Return the lines that tell of one fact; none when people need not see it."""
    shown = _SHOWN.get(event.kind)
    return shown(event.body).splitlines() if shown else []


def transcript_of(tx: Tx, tenant: str, start: str, zone: str) -> Iterator[str]:
    """Yield the transcript of the session whose id begins with `start`."""
    session = sessions.get(tx, find_session(tx, tenant, start))
    rows = tx.all("log_since", session=session.id, seq=1)
    yield from transcript(session, map(event_from, rows), zone)


def audit_of(tx: Tx, tenant: str, start: str, limit: int, zone: str) -> Iterator[str]:
    """Yield the last audit rows, of one session when `start` is given, the oldest first."""
    if start:
        rows = tx.all("audit_chain", chain=find_session(tx, tenant, start))[-limit:]
    else:
        rows = tx.all("audit_recent", tenant=tenant, limit=limit)[::-1]
    yield from audit_lines(rows, zone)


def schedule_lines(found: Sequence[Schedule]) -> Iterator[str]:
    """Yield a line for each schedule: id, time, zone, next time, how the last run went, title."""
    if not found:
        yield "There are no schedules."
    times = [
        f"when {each.when.event}" if each.when.event else each.cron or "once" for each in found
    ]
    width = min(24, max(14, *map(len, times), 0))
    for each, time in zip(found, times, strict=True):
        line = f"{each.id}  {time:<{width}} {each.zone:<14} {_coming(each)}  {_cut(each.title)}"
        yield f"{line}  (last run: {each.outcome})" if each.outcome else line


def _coming(each: Schedule) -> str:
    if each.next_at is not None:
        zone = ZoneInfo(each.zone)
        begins = each.policy.begins(each.next_at, each.zone)
        since = each.held_from or (each.next_at if begins > each.next_at else None)
        held = f" (due {_moment(since, zone)}, quiet hours)" if since is not None else ""
        return f"next {_moment(begins, zone)}{held}"
    if each.when.event and each.enabled:
        return "waits for it"
    return "done" if each.when.once is not None and each.outcome else "switched off"


def schedule_told(
    each: Schedule,
    runs: Sequence[Fire],
    allowed: Sequence[str],
    now: float,
    *,
    budget: str,
    link: Callable[[str], str] = str,
) -> Iterator[str]:
    """Yield everything about a schedule; `allowed` is what its standing rules let it do."""
    yield f"{each.id}  {each.title}"
    yield f"When: {each.when}"
    coming = "; ".join(proposals.coming(each.when, each.policy, now))
    yield f"Next: {coming if coming and each.enabled and each.held_from is None else _coming(each)}"
    yield f"Reports to: {each.report_to or each.home}"
    yield f"Without asking: {'; '.join(allowed) or 'reads, and writes in a folder of its own'}"
    yield from (f"{label}: {rule}" for label, rule in each.policy.told())
    yield f"Budget: {budget}"
    yield f"Model: {each.model}"
    yield f"What to do: {each.instructions}"
    yield from fire_lines(runs, each.zone, link)


def fire_lines(runs: Sequence[Fire], zone: str, link: Callable[[str], str] = str) -> Iterator[str]:
    """Yield a line for each run: when due, outcome, duration, cost, thread, note.

    `link` makes of a thread_target what is shown of it.
    """
    if not runs:
        yield "It has not run yet."
    for run in runs:
        took = ""
        if run.ended_at is not None and run.session is not None:
            took = f"took {spoken(run.ended_at - run.fired_at)}, {spoken(run.worked)} at work"
        cause = run.cause if run.cause != "schedule" else ""
        tries = f"{run.tries + 1} tries" if run.tries else ""
        cost = f"${run.cost:.4f}{'+' if run.unpriced else ''}" if run.cost is not None else ""
        cost = cost or ("cost unknown" if run.unpriced else "")
        thread = link(run.thread) if run.thread else ""
        words = [run.status, cause, took, tries, cost, thread, run.session or "", run.note]
        yield f"{_moment(run.due, ZoneInfo(zone))}  {'  '.join(filter(None, words))}"


def audit_lines(rows: Iterable[Row], zone: str) -> Iterator[str]:
    """Yield a line for each audit entry, the oldest first."""
    place = ZoneInfo(zone)
    for row in rows:
        words = [row["kind"], row["subject"], f"by {row['actor']}"]
        words += [f"on {row['surface']}"] if row["surface"] else []
        words += [f"rule {row['rule']}"] if row["rule"] else []
        words += [_cut(row["outcome"], 24)] if row["outcome"] else []
        words += [f"#{row['arguments_hash'][:12]}"] if row["arguments_hash"] else []
        yield f"{_moment(row['at'], place)}  {row['chain']} {row['n']:>4}  {'  '.join(words)}"


def spoken(seconds: float) -> str:
    """Return a length of time in its largest unit: 5 s, 12 min, 3 h, 2 d."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _title(prompt: Prompt) -> str:
    return _cut(str(prompt.payload.get("title") or prompt.payload.get("tool") or prompt.subject))


def _cut(text: str, most: int = _CUT) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _moment(at: float, zone: tzinfo) -> str:
    return f"{datetime.fromtimestamp(at, UTC).astimezone(zone):%Y-%m-%d %H:%M}"


def _clock(at: float, zone: tzinfo) -> str:
    return f"{datetime.fromtimestamp(at, UTC).astimezone(zone):%Y-%m-%d %H:%M:%S}"


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content or ()
    return " ".join(part.get("text") or f"[{part.get('type', 'part')}]" for part in parts)


def _message(body: Mapping[str, Any]) -> str:
    said = _STAMP.sub("", _content(body["message"].get("content")))
    return f"{body.get('by') or 'note'}: {said}"


def _answer(body: Mapping[str, Any]) -> str:
    text = _content(body["message"].get("content") or "")
    return f"nod: {text}" if text else ""


def _proposed(body: Mapping[str, Any]) -> str:
    return _cut(f"  → {body['name']} {dumps(body['arguments'])}", 160)


def _finished(body: Mapping[str, Any]) -> str:
    return _cut(f"  ← {body.get('name', '')} {body['status']}: {_content(body['content'])}", 160)


def _decided(body: Mapping[str, Any]) -> str:
    answer = body["answer"]
    extra = f" ({answer['reason']})" if answer.get("reason") else ""
    on = f" on {body['surface']}" if body.get("surface") else ""
    return f"  ✓ {answer['kind']}{extra} by {body['by']}{on}"


_SHOWN: Mapping[Kind, Callable[[Mapping[str, Any]], str]] = {
    Kind.MESSAGE: _message,
    Kind.ASSISTANT_MESSAGE: _answer,
    Kind.TOOL_PROPOSED: _proposed,
    Kind.TOOL_FINISHED: _finished,
    Kind.DECIDED: _decided,
    Kind.PERMISSION_REQUIRED: lambda body: f"  ? waits for a nod ({body['prompt']['id']})",
    Kind.QUESTION_REQUESTED: lambda body: f"  ? asks ({body['prompt']['id']})",
    Kind.PLAN_PROPOSED: lambda body: f"  ? puts forward a plan ({body['prompt']['id']})",
    Kind.UNKNOWN: lambda body: "  ! a start without a result was found",
    Kind.ARTIFACT: lambda body: f"  + file {body['name']} ({body['bytes']} bytes)",
    Kind.NOTICE: lambda body: f"  · {body['text']}",
    Kind.ERROR: lambda body: f"  ! {body['text']}",
    Kind.INTERRUPTED: lambda body: "  · stopped",
    Kind.TURN_END: lambda body: f"  · turn {body['status']}",
}
