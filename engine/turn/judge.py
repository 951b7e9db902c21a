"""Gets calls judged: reads the scene a verdict depends on, asks policy, gives verdicts as facts."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.permissions import policy, rules
from engine.permissions.base import Answer, Mode, Rule, Scene, Verdict
from engine.sessions import Session, files_of
from engine.store.base import Tx
from engine.tools.base import is_named
from engine.turn.ports import Engine
from engine.turn.state import Call

__all__ = ["judge", "verdict_body"]


async def judge(
    engine: Engine, session: Session, calls: Sequence[Call], closed: Collection[str]
) -> list[Verdict]:
    """Return policy's verdict for each call, with rules, roots and taint as they are now.

    Tools in `closed` are none of this session's.
    """
    standing: list[Rule] = []
    if any(_ruled(engine, session, call) for call in calls):
        standing = await engine.store.read(lambda tx: _rules(tx, session, engine.now()))
    scene = _scene(engine, session, standing)
    if not any(_touches_files(engine, call) for call in calls):
        return _judge(engine, session, scene, calls, closed)
    return await asyncio.to_thread(_judge, engine, session, scene, calls, closed)


def verdict_body(call: Call, verdict: Verdict) -> dict[str, Any]:
    """Return the body of the VERDICT fact."""
    return {
        "answer": verdict.answer.value,
        "step": verdict.step,
        "reason": verdict.reason,
        "target": list(verdict.target),
        "hash": call.hash,
    }


def recorded(body: Mapping[str, Any]) -> Verdict:
    """Return the verdict a VERDICT fact holds."""
    return Verdict(
        answer=Answer(body["answer"]),
        step=body["step"],
        reason=body["reason"],
        target=tuple(body["target"]),
    )


def _ruled(engine: Engine, session: Session, call: Call) -> bool:
    """Say whether a standing rule could decide: also about a read that leaves, under taint."""
    declared = engine.tools.get(call.name)
    leaves = declared is not None and declared.egress is not None
    return call.risk == "external" or (bool(session.taint) and leaves)


def _touches_files(engine: Engine, call: Call) -> bool:
    declared = engine.tools.get(call.name)
    return declared is not None and bool(declared.paths or declared.find_paths)


def _judge(
    engine: Engine,
    session: Session,
    scene: Scene,
    calls: Sequence[Call],
    closed: Collection[str],
) -> list[Verdict]:
    cwd = files_of(engine.data, session.id)
    allowed = engine.persona(session.persona).tools
    verdicts = []
    for call in calls:
        offered = call.name not in closed and is_named(call.name, allowed)
        declared = engine.tools.get(call.name) if offered else None
        verdict = policy.judge(declared, call.arguments, scene, cwd)
        if declared is None:
            verdict = replace(verdict, reason=f"There is no tool named {call.name[:80]!r}.")
        verdicts.append(verdict)
    return verdicts


def _rules(tx: Tx, session: Session, now: float) -> list[Rule]:
    return list(
        rules.live_rules(
            tx, tenant=session.tenant, session=session.id, principal=session.owner, now=now
        )
    )


def _scene(engine: Engine, session: Session, standing: Sequence[Rule]) -> Scene:
    return Scene(
        mode=Mode(session.mode),
        roots=session.roots,
        allowlist=engine.allowlist,
        rules=tuple(standing),
        taint=session.taint,
        home=session.home,
        home_open=session.home_open,
        custom={name: Answer(answer) for name, answer in session.custom.items()},
    )
