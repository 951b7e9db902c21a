"""Runs one call: its context, its time limit, its result within budget, its look-up after a crash.

Nothing here writes to the store; what a call gave comes back as a `Ran` for the driver to record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import artifacts
from engine.canonical import defused, digest, dumps, loads
from engine.errors import NeedsConnection, ToolError
from engine.events import Event, Kind
from engine.sandbox.base import Executor, ShellState
from engine.sessions import Session, files_of, keep_of
from engine.store.base import Tx
from engine.tools.base import Artifact, LookUp, Outcome, Result, Tool, ToolContext
from engine.turn.ports import Engine
from engine.turn.state import Call
from engine.work.base import ACT_BY

__all__ = [
    "Ran",
    "Shell",
    "act",
    "context",
    "intent",
    "look_up",
    "make_folders",
    "preview",
    "together",
    "witness",
]

PREVIEW_LIMIT = 10.0  # seconds for the preview on a card
LOOK_UP_LIMIT = 20.0  # seconds for looking whether something happened

_log = logging.getLogger(__name__)


class TooLate(Exception):
    """The call may not act any more: its intent is older than its `act_by`, or it was dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What running a call gave. `result` None: nobody knows whether it took effect."""

    result: Result | None
    #: What the model is sent.
    content: str = ""
    #: Artifacts with their digest and size, for the store.
    kept: tuple[Mapping[str, Any], ...] = ()
    #: The call did not begin in time; trying again is safe.
    late: bool = False
    #: The connection it lacked, so that nothing was done: {connector, account, why, person, title}.
    lacks: Mapping[str, str] | None = None


class Shell:
    """The session's shell: opened when first used, closed when the turn ends or parks.

    What can be written down of it, its folder and exports, is kept in a file between turns.
    """

    def __init__(self, engine: Engine, session: str) -> None:
        self._engine = engine
        self._session = session
        self._home = files_of(engine.data, session)
        self._file = keep_of(engine.data, session) / "shell.json"
        self._executor: Executor | None = None

    async def executor(self) -> Executor:
        """Return the open shell, opening it where the last one left off."""
        if self._executor is None:
            await asyncio.to_thread(make_folders, self._engine, self._session)
            before = await asyncio.to_thread(_read_shell, self._file)
            self._executor = self._engine.open_executor(self._home, before)
        return self._executor

    async def interrupt(self) -> None:
        """End the running command, if any."""
        if self._executor is not None:
            await self._executor.interrupt()

    async def close(self) -> None:
        """Close the shell, keeping its folder and exports for the next one."""
        if self._executor is not None:
            executor, self._executor = self._executor, None
            state = await executor.state()
            await executor.close()
            await asyncio.to_thread(_write_shell, self._file, state)


def _read_shell(file: Path) -> ShellState | None:
    try:
        kept = loads(file.read_bytes())
        return ShellState(cwd=Path(kept["cwd"]), exports=kept["exports"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # a shell without a past starts in the session's folder


def _write_shell(file: Path, state: ShellState) -> None:
    new = file.with_suffix(".new")
    new.write_text(dumps({"cwd": str(state.cwd), "exports": dict(state.exports)}))
    new.replace(file)


def context(
    engine: Engine,
    session: Session,
    call: Call,
    shell: Shell,
    too_late: Callable[[], bool],
    unsaved: Sequence[Event],
) -> ToolContext:
    """Return what a call of this session may use.

    `too_late` says whether an effect may not begin any more.
    `unsaved` is the driver's buffer: results and artifacts of this turn that no commit holds yet.
    """

    def before_act() -> None:
        if too_late():
            raise TooLate

    async def artifact(handle: str) -> Path:
        return await _artifact(engine, session, unsaved, handle)

    return ToolContext(
        session=session.id,
        turn=call.turn,
        call=call.id,
        attempt=call.attempts or 1,
        home=session.home,
        roots=session.roots,
        cwd=files_of(engine.data, session.id),
        keep=keep_of(engine.data, session.id),
        now=engine.now,
        delivery=engine.delivery,
        executor=shell.executor,
        artifact=artifact,
        before_act=before_act,
    )


async def act(engine: Engine, tool: Tool, call: Call, ctx: ToolContext) -> Ran:
    """Run the call within its time limit.

    A ToolError means that nothing was done, and is its result; of those, NeedsConnection lets the
    call wait for a connection. Any other failure of a call with
    consequences leaves open whether it took effect.
    """
    try:
        ctx.before_act()
        async with asyncio.timeout(tool.timeout):
            result = await tool.run(ctx, **call.arguments)
    except TooLate:
        return Ran(result=None, late=True)
    except NeedsConnection as error:
        named = ("connector", "account", "why", "person", "title")
        return Ran(result=None, lacks={name: getattr(error, name) for name in named})
    except ToolError as error:
        words = defused(str(error))
        said = Result(text=words, ok=False, taint=error.taint)
        return Ran(result=said, content=f"Error: {words}")
    except TimeoutError:
        return _failed(call, f"{tool.name} took longer than {tool.timeout:g} s.")
    except Exception as error:  # noqa: BLE001  # broad: a tool is a plug-in border
        _log.exception("tool %s failed", tool.name)
        return _failed(call, f"{tool.name} failed: {type(error).__name__}.")
    return await _within_budget(engine, tool, call, ctx, result)


async def together(acts: Sequence[Coroutine[Any, Any, Ran]]) -> list[Ran]:
    """Run calls that change nothing at the same time."""
    if len(acts) == 1:
        return [await acts[0]]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(act) for act in acts]
    return [task.result() for task in tasks]


def _failed(call: Call, text: str) -> Ran:
    if call.harmless:
        return Ran(result=Result(text=text, ok=False), content=f"Error: {text}")
    return Ran(result=None)


def make_folders(engine: Engine, session: str) -> None:
    """Make the session's folders; a call finds them there."""
    for folder in (files_of(engine.data, session), keep_of(engine.data, session)):
        folder.mkdir(parents=True, exist_ok=True)


async def _within_budget(
    engine: Engine, tool: Tool, call: Call, ctx: ToolContext, result: Result
) -> Ran:
    # A file's own text stays as it is, to be edited; what comes from outside never speaks as us.
    whole = defused(result.text) if result.taint else result.text
    text, spilled = await artifacts.budget(
        whole, tool.result_budget, ctx.keep, f"{tool.name}-{call.id}"
    )
    made = (*result.artifacts, *((spilled,) if spilled else ()))
    kept = [await _kept(engine.data, each, result.taint) for each in made]
    return Ran(result=result, content=text if result.ok else f"Error: {text}", kept=tuple(kept))


async def _kept(data: Path, artifact: Artifact, taint: str) -> Mapping[str, Any]:
    row = await artifacts.measure(artifact, data)
    return {
        "id": row.id,
        "name": row.name,
        "path": row.path,
        "media_type": row.media_type,
        "bytes": row.bytes,
        "digest": row.digest,
        "kind": row.kind,
        "taint": [taint] if taint else [],
    }


async def preview(tool: Tool, call: Call, ctx: ToolContext) -> str:
    """Return what the card shows of the effect; a preview that fails says so."""
    if tool.preview is None:
        return ""
    try:
        async with asyncio.timeout(PREVIEW_LIMIT):
            return await tool.preview(ctx, call.arguments)
    except ToolError as error:
        return f"(no preview: {error})"
    except Exception as error:  # noqa: BLE001  # broad: a tool is a plug-in border
        _log.exception("the preview of %s failed", tool.name)
        return f"(no preview: {type(error).__name__})"  # its text may hold what no card should show


async def witness(tool: Tool, call: Call, ctx: ToolContext) -> Any:
    """Return what the look-up will compare with, taken right before the start."""
    if tool.witness is None:
        return None
    try:
        async with asyncio.timeout(PREVIEW_LIMIT):
            return await tool.witness(ctx, call.arguments)
    except (ToolError, OSError, TimeoutError):
        return None  # the look-up then cannot tell, and a person is asked


async def look_up(
    engine: Engine, tool: Tool | None, call: Call, ctx: ToolContext
) -> tuple[str, Ran]:
    """Say whether a started call took effect: 'happened', 'did_not' or 'cannot_tell'."""
    nothing = Ran(result=None)
    if tool is not None and tool.idempotent:
        return "did_not", nothing  # the effect carries the call's id: once more does no harm
    if tool is None or tool.look_up is None:
        return "cannot_tell", nothing
    seen = call.start.witness if call.start else None
    try:
        async with asyncio.timeout(LOOK_UP_LIMIT):
            outcome: Outcome = await tool.look_up(ctx, call.arguments, seen)
            if outcome.found is LookUp.DID_NOT and tool.settle:
                await asyncio.sleep(tool.settle)
                outcome = await tool.look_up(ctx, call.arguments, seen)
    except Exception:  # noqa: BLE001  # broad: a tool is a plug-in border
        _log.exception("look-up of %s failed", tool.name)
        return "cannot_tell", nothing
    if outcome.found is LookUp.HAPPENED and outcome.result is not None:
        return "happened", await _within_budget(engine, tool, call, ctx, outcome.result)
    if outcome.found is LookUp.HAPPENED:
        return "happened", Ran(result=Result(text="It took effect."), content="It took effect.")
    return ("did_not" if outcome.found is LookUp.DID_NOT else "cannot_tell"), nothing


async def _artifact(
    engine: Engine, session: Session, unsaved: Sequence[Event], handle: str
) -> Path:
    """Return the file behind a handle: an artifact's id, or `call:<id>` for a whole result."""
    kind, colon, call = handle.partition(":")
    for fact in unsaved:
        if fact.kind is Kind.ARTIFACT and fact.body["id"] == handle:
            return engine.data / str(fact.body["path"])
    if not colon:
        row = await engine.store.read(lambda tx: artifacts.artifact_get(tx, handle))
        if row.session != session.id:
            raise ToolError(f"There is no artifact {handle} in this session.")
        return engine.data / row.path
    texts = [f.body["content"] for f in unsaved if f.kind is Kind.TOOL_FINISHED and f.call == call]
    text = texts[0] if texts else await engine.store.read(lambda tx: _result(tx, session.id, call))
    if kind != "call" or text is None:
        raise ToolError(f"There is no result behind {handle} in this session.")
    path = keep_of(engine.data, session.id) / f"result-{digest(call)[:16]}.txt"
    await asyncio.to_thread(_write, path, text)
    return path


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _result(tx: Tx, session: str, call: str) -> str | None:
    row = tx.one("log_call_result", session=session, call=call)
    return None if row is None else str(loads(row["body"])["content"])


def intent(engine: Engine, call: Call, *, rule: str, actor: str, surface: str) -> dict[str, Any]:
    """Return the body of the TOOL_STARTED fact of the call's next attempt."""
    declared = engine.tools.get(call.name)
    return {
        "name": call.name,
        "attempt": call.attempts + 1,
        "worker": engine.worker,
        "act_by": engine.now() + ACT_BY,
        "limit": declared.timeout if declared else 0.0,
        "hash": call.hash,
        "by": actor,
        "surface": surface,
        "rule": rule,
    }
