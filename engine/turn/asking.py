"""Makes the prompts a turn raises, whole, and turns a person's answer into a call's result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.clock import mint
from engine.events import Kind
from engine.inbox import DEADLINE, REMINDER
from engine.sessions import Session
from engine.tools.base import Result, ToolContext
from engine.turn import run
from engine.turn.ports import Engine
from engine.turn.state import Call, State

__all__ = ["notice", "prompt_for", "result_of"]

_KINDS = {
    "approval": Kind.PERMISSION_REQUIRED,
    "outcome": Kind.PERMISSION_REQUIRED,
    "connect": Kind.PERMISSION_REQUIRED,
    "question": Kind.QUESTION_REQUESTED,
    "plan": Kind.PLAN_PROPOSED,
}


async def prompt_for(
    engine: Engine,
    session: Session,
    state: State,
    call: Call,
    ctx: ToolContext,
    *,
    kind: str = "",
) -> tuple[Kind, dict[str, Any]]:
    """Return the fact that asks a person about `call`, with everything its card shows.

    `kind` is 'outcome' or 'connect'; empty: what the call itself asks, or whether it may run.
    Prompts of one iteration share a card. The subject makes each one unique for good: the call
    and its revision for an approval, the call and its attempt for the other two.
    """
    number = call.attempts if kind else call.revision
    kind = kind or call.asks or "approval"
    now = engine.now()
    prompt = {
        "id": mint("p"),
        "kind": kind,
        "subject": f"{call.id}/{number}",
        "hash": call.hash,
        "payload": await _payload(engine, session, state, call, ctx, kind),
        "approvers": _approvers(session, call, kind),
        "needs": 2 if kind == "approval" and call.name in engine.quorum else 1,
        "remind_at": now + REMINDER,
        "deadline": now + DEADLINE,
    }
    return _KINDS[kind], {"prompt": prompt}


def notice(state: State, text: str, now: float) -> dict[str, Any]:
    """Return the fact that puts a word about an ended turn into the inbox, with Retry."""
    subject = f"{state.session}/{state.turn}"
    payload = {"card": subject, "title": "A turn was ended", "text": text, "retry": True}
    prompt = {
        "id": mint("p"),
        "kind": "notice",
        "subject": subject,
        "payload": payload,
        "approvers": {"role": "operator"},
        "remind_at": None,
        "deadline": now + DEADLINE,
    }
    return {"prompt": prompt}


def result_of(engine: Engine, call: Call) -> Result:
    """Return the result of a call that was a prompt: what the person answered."""
    declared = engine.tools.get(call.name)
    assert declared is not None and declared.answered is not None, "a tool that asks says how"
    assert call.decision is not None, "only an answered call gets here"
    return declared.answered(call.arguments, call.decision["answer"])


async def _payload(
    engine: Engine, session: Session, state: State, call: Call, ctx: ToolContext, kind: str
) -> dict[str, Any]:
    card = f"{session.id}/{call.turn}/{call.iteration}"
    if kind == "connect":
        lacks = call.lacks or {}
        title = f"Connect {lacks['title']}?"
        shared = {"tool": call.name, "attended": state.attended, "title": title}
        return {"card": f"{card}/connect", **lacks, **shared}
    declared = engine.tools.get(call.name)
    if kind in ("question", "plan"):
        shown = declared.card(call.arguments) if declared and declared.card else {}
        return {"card": card, "tool": call.name, "attended": state.attended, **shown}
    verdict: Mapping[str, Any] = call.verdict or {}
    payload = {
        "card": card,
        "title": f"Run {call.name}?",
        "tool": call.name,
        "risk": call.risk,
        "arguments": call.arguments,
        "preview": await run.preview(declared, call, ctx) if declared else "",
        "target": list(declared.targets(call.arguments, session.home)) if declared else [],
        "rule_target": verdict.get("target", []),
        "reason": verdict.get("reason", ""),
        "taint": list(session.taint),
        "attended": state.attended,
    }
    if kind == "outcome":
        loose = any(each.id == call.id for each in state.loose)
        allowed = ["happened", "leave", "unknown"] if loose else None
        return payload | {
            "card": f"{card}/outcome",
            "title": f"Did {call.name} take effect?",
            "options_allowed": allowed,
        }
    return payload


def _approvers(session: Session, call: Call, kind: str) -> dict[str, Any]:
    """Say who may answer: programs outside a sandbox are the owner's, words the person's own."""
    if kind == "connect":
        person = (call.lacks or {}).get("person") or session.owner
        return {"role": "owner", "person": person, "own_suffices": True}
    role = "owner" if call.risk == "exec" else "operator"
    return {
        "role": role,
        "person": session.owner,
        "own_suffices": kind in ("question", "plan"),
    }
