"""The verdict on one call: allow, ask or refuse, in nine steps; the first that fits decides.

Reading the file system (links on the way of a path) is its only effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.errors import ToolError
from engine.permissions.base import Answer, Mode, Scene, Verdict
from engine.permissions.matching import home_rule, matching_rule, target_set
from engine.permissions.paths import fence, is_own
from engine.permissions.shell import allowlisted
from engine.tools.base import Risk, Tool

__all__ = ["holds_at_start", "judge", "stricter"]

_ORDER = (Answer.ALLOW, Answer.ASK, Answer.REFUSE)


def judge(tool: Tool | None, arguments: Mapping[str, Any], scene: Scene, cwd: Path) -> Verdict:
    """Return the verdict on calling `tool` with `arguments`, which were checked against its schema.

    Relative paths start at `cwd`. Never raises for what a model wrote. Looks at the file system,
    so call it off the event loop.
    """
    if tool is None:
        return _verdict(Answer.REFUSE, "unknown", "There is no tool of that name.")
    if tool.risk is Risk.CONTROL:
        return _verdict(Answer.ALLOW, "control", "It only touches the session itself.")
    try:
        written = _fenced(tool, arguments, scene, cwd)
    except ToolError as error:
        return _verdict(Answer.REFUSE, "roots", str(error))
    if scene.mode in (Mode.DISCUSS, Mode.PLAN) and tool.risk is not Risk.READ:
        reason = f"Mode {scene.mode} only reads; {tool.name} does more."
        return _verdict(Answer.REFUSE, "mode", reason)
    return _customised(_consequences(tool, arguments, scene, written), tool, scene)


def stricter(a: Verdict, b: Verdict) -> Verdict:
    """Return the one that allows less (allow < ask < refuse); `a` when they are equal."""
    return b if _ORDER.index(b.answer) > _ORDER.index(a.answer) else a


def holds_at_start(recorded: Verdict, fresh: Verdict, decided: bool) -> bool:
    """Tell whether a call may start, judged once more right before.

    `decided`: a person allowed exactly these arguments. A refuse always wins; an ask wins only
    where nobody decided.
    """
    answer = stricter(recorded, fresh).answer
    return answer is Answer.ALLOW or (answer is Answer.ASK and decided)


def _consequences(
    tool: Tool, arguments: Mapping[str, Any], scene: Scene, written: list[Path]
) -> Verdict:
    """Steps 4 to 9, as in mode interactive or auto."""
    if tool.risk is Risk.READ and not (tool.egress and scene.taint):
        return _verdict(Answer.ALLOW, "read", "It only reads.")
    if tool.risk is Risk.WRITE_LOCAL and written and all(is_own(scene.roots, p) for p in written):
        return _verdict(Answer.ALLOW, "own_root", "It writes in the session's own folder.")
    if tool.risk is Risk.EXEC:
        return _program(arguments, scene)
    target = target_set(tool, arguments, scene.home)
    if rule := matching_rule(scene.rules, tool.name, target):
        reason = f"A standing rule covers exactly {', '.join(target)}."
        return _verdict(Answer.ALLOW, f"rule:{rule.id}", reason, target)
    if home_rule(scene, tool.name, target):
        return _verdict(Answer.ALLOW, "home", "It goes to the thread you opened it in.", target)
    leaves = tool.risk is not Risk.WRITE_LOCAL and target != (scene.home,)
    if scene.mode is Mode.AUTO and not (leaves and scene.taint):
        return _verdict(Answer.ALLOW, "auto", "Mode auto lets it through.", target)
    return _verdict(Answer.ASK, "default", _why_asked(tool, scene, target), target)


def _program(arguments: Mapping[str, Any], scene: Scene) -> Verdict:
    command = arguments.get("command")
    if isinstance(command, str) and allowlisted(command, scene.allowlist):
        return _verdict(Answer.ALLOW, "allowlist", "The command is on the list.")
    return _verdict(Answer.ASK, "exec", "It runs a program that is not on the list.")


def _customised(found: Verdict, tool: Tool, scene: Scene) -> Verdict:
    answer = scene.custom.get(tool.name) if scene.mode is Mode.CUSTOM else None
    if answer is None or answer is found.answer:
        return found
    if tool.risk is Risk.EXEC and answer is Answer.ALLOW:
        return found
    return _verdict(answer, "custom", f"Your own list says {answer} for {tool.name}.", found.target)


def _fenced(tool: Tool, arguments: Mapping[str, Any], scene: Scene, cwd: Path) -> list[Path]:
    """Return the resolved places the call writes to; raises ToolError when a path is outside."""
    written = []
    for path, mode in _named_paths(tool, arguments):
        real = fence(scene.roots, path, mode, cwd)
        if mode != "read":
            written.append(real)
    return written


def _named_paths(tool: Tool, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, mode in tool.paths.items():
        value = arguments.get(name)
        for path in value if isinstance(value, list | tuple) else [value]:
            if path is None:
                continue
            if not isinstance(path, str):
                raise ToolError(f"Argument '{name}' is no path.", "Give it as text.")
            yield path, mode
    if tool.find_paths is not None:
        yield from tool.find_paths(arguments)


def _why_asked(tool: Tool, scene: Scene, target: tuple[str, ...]) -> str:
    if tool.risk is Risk.WRITE_LOCAL:
        return "It changes files outside the session's own folder."
    where = ", ".join(target) or "a place that is not named"
    outside = f", while the session holds text from {', '.join(scene.taint)}"
    return f"It reaches {where}{outside if scene.taint else ''}."


def _verdict(answer: Answer, step: str, reason: str, target: tuple[str, ...] = ()) -> Verdict:
    return Verdict(answer=answer, step=step, reason=reason, target=target)
