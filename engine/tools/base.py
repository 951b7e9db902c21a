"""What a tool declares beside its function: risk, target, preview, look-up, limits.

A tool is a plain async function `(ctx, arguments…) -> Result`. The decorator reads its signature
and docstring into the schema the model sees. There is no default risk: a tool that does not say
what it may do cannot be registered.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from engine.canonical import dumps
from engine.clock import Now
from engine.errors import ToolError
from engine.events import Kind

__all__ = [
    "Artifact",
    "LookUp",
    "Offer",
    "Outcome",
    "Registry",
    "Result",
    "Risk",
    "Root",
    "Tool",
    "ToolContext",
    "is_named",
    "tool",
]


class Risk(StrEnum):
    """What a call may do to the world."""

    READ = "read"  # changes nothing
    WRITE_LOCAL = "write_local"  # changes files under a writable root
    EXEC = "exec"  # runs a program
    EXTERNAL = "external"  # changes something other people see
    CONTROL = "control"  # the session's own state, or a question to a person


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A folder the session may look into."""

    path: Path
    writable: bool = False
    #: The session's own folder, where writes need no asking.
    own: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file a tool made that is worth keeping or handing over."""

    path: Path  # absolute; under the session's folder
    name: str
    media_type: str = "application/octet-stream"
    #: 'file' (for people), 'spill' (a tool result too long to send), 'preimage' (for undo).
    kind: str = "file"
    #: The handle it is read back by; empty: the store mints one.
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a call gave: text for the model, and what only people or the session see."""

    text: str
    ok: bool = True
    #: Shown to people on the call's card; the model never sees it.
    display: Mapping[str, Any] | None = None
    artifacts: tuple[Artifact, ...] = ()
    #: Facts committed together with the result, as (kind, body): PROGRESS, SWITCHED, NOTICE …
    facts: tuple[tuple[Kind, Mapping[str, Any]], ...] = ()
    #: Names the outside text this result holds, for example 'web:example.org'; empty: none.
    taint: str = ""
    #: What undo needs, one entry a file: {path, before, kept, after}; see engine/tools/files.py.
    undo: tuple[Mapping[str, Any], ...] = ()


class LookUp(StrEnum):
    """What looking at the world says about a start without a result."""

    HAPPENED = "happened"
    DID_NOT = "did_not"
    CANNOT_TELL = "cannot_tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The answer of a look-up; `result` is what the call would have returned, when it happened."""

    found: LookUp
    result: Result | None = None


class Delivery(Protocol):
    """How a tool reaches a thread: through the outbox, never a platform's client."""

    async def send(self, target: str, text: str, files: Sequence[Path], subject: str) -> str:
        """Post once under `subject`; returns the message's ref. Raises ToolError."""
        ...

    async def find(self, target: str, subject: str) -> tuple[LookUp, str]:
        """Tell whether `subject` was posted to `target`, and its ref."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a running call may use. Everything else is out of its reach."""

    session: str
    turn: int
    call: str
    attempt: int
    #: thread_target of the session.
    home: str
    roots: tuple[Root, ...]
    #: Folder of the session's own files; relative paths start here.
    cwd: Path
    #: Folder for what the runtime keeps about this session (spills, pre-images).
    keep: Path
    now: Now
    delivery: Delivery
    #: Opens the session's shell on first use; see engine/sandbox/base.py.
    executor: Callable[[], Awaitable[Any]]
    #: Read-only access to the session's artifacts: id -> absolute path; raises ToolError.
    artifact: Callable[[str], Awaitable[Path]]
    #: Call right before the first byte of an effect leaves; raises when it is too late to start.
    before_act: Callable[[], None] = lambda: None


Run = Callable[..., Awaitable[Result]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A declared tool."""

    name: str
    description: str
    run: Run
    risk: Risk
    #: Argument name -> 'read' or 'write', for every argument that is a path or a list of paths.
    paths: Mapping[str, str] = field(default_factory=dict)
    #: Like `paths`, for paths that must be dug out of an argument (a patch): -> [(path, mode)].
    find_paths: Callable[[Mapping[str, Any]], Sequence[tuple[str, str]]] | None = None
    #: Everything a standing rule must pin: all recipients. Empty: no rule can be made.
    target: Callable[[Mapping[str, Any]], Sequence[str]] | None = None
    #: Read-only: what the card shows (a diff, recipients, rows). Takes (ctx, arguments).
    preview: Callable[[ToolContext, Mapping[str, Any]], Awaitable[str]] | None = None
    #: Looks whether a started call took effect. Takes (ctx, arguments, what `witness` gave).
    look_up: Callable[[ToolContext, Mapping[str, Any], Any], Awaitable[Outcome]] | None = None
    #: Taken right before the start and stored with the intent; what `look_up` compares with.
    witness: Callable[[ToolContext, Mapping[str, Any]], Awaitable[Any]] | None = None
    #: Seconds a service may still be at work on what it was sent: a look-up that finds nothing
    #: looks once more after them.
    settle: float = 0.0
    #: The effect carries a key, so repeating a started call is safe.
    idempotent: bool = False
    #: Its arguments leave for an address the model chose; returns the host.
    egress: Callable[[Mapping[str, Any]], str] | None = None
    #: Seconds a call may run.
    timeout: float = 60.0
    #: Characters of result the model is sent; the rest spills to an artifact.
    result_budget: int = 20_000
    #: 'question' or 'plan': the call is a prompt, and the answer is its result.
    asks: str = ""
    #: For a tool that asks: what its card shows, and what an answer of the inbox gives.
    card: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    answered: Callable[[Mapping[str, Any], Mapping[str, Any]], Result] | None = None
    #: Its effect is a delivery to this thread_target, committed together with the start.
    delivers: Callable[[Mapping[str, Any]], str] | None = None
    #: The effect goes to the session's home, which is no argument; ask `targets` and `destination`.
    to_home: bool = False
    #: Straightens what models often get wrong, before the arguments are checked; may raise
    #: ToolError. What it returns is what the hash, the card and the run see.
    accept: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    #: Only offered in these modes; empty: in all.
    modes: frozenset[str] = frozenset()
    #: JSON schema of the arguments, where no Python signature says them: a server's own tool.
    parameters: Mapping[str, Any] | None = None

    def schema(self) -> dict[str, Any]:
        """Return the OpenAI function schema of the tool."""
        from engine.tools import schema  # aisuite is 0.4 s to import: only when a model is called

        return schema.describe(self)

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments validated and completed; raises ToolError that names the fault."""
        from engine.tools import schema  # as above

        return schema.validate(self, arguments)

    def targets(self, arguments: Mapping[str, Any], home: str) -> tuple[str, ...]:
        """Return, sorted, all that a standing rule must pin; `home` is the session's target."""
        if self.to_home:
            return (home,)
        return tuple(sorted(self.target(arguments))) if self.target else ()

    def destination(self, arguments: Mapping[str, Any], home: str) -> str:
        """Return the thread_target the effect is delivered to; empty: it is no delivery."""
        if self.to_home:
            return home
        return self.delivers(arguments) if self.delivers else ""


def tool(*, risk: Risk, **declared: Any) -> Callable[[Run], Tool]:
    """Declare the decorated async function as a tool; keyword arguments are fields of `Tool`.

    The function's name becomes the tool's, the first paragraph of its docstring its description.
    """

    def declare(run: Run) -> Tool:
        text = inspect.getdoc(run) or ""
        if not text:
            raise TypeError(f"tool {run.__name__} has no docstring, so no model could use it")
        name = declared.pop("name", run.__name__)
        description = text.split("\n\nArgs:")[0].strip()
        return Tool(name=name, description=description, run=run, risk=risk, **declared)

    return declare


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The tools of one model call, as the model is sent them."""

    schemas: tuple[Mapping[str, Any], ...] = ()
    #: Their size in characters of JSON.
    size: int = 0


class Registry:
    """The tools a session can be offered, by name."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        #: Group -> the names in it.
        self._groups: dict[str, tuple[str, ...]] = {}
        self._offers: dict[_Asked, Offer] = {}
        for each in tools:
            self.add(each)

    def add(self, declared: Tool) -> None:
        """Register a tool; raises when the name is taken."""
        if declared.name in self._tools:
            raise ToolError(f"Two tools are named {declared.name}.", "Rename one of them.")
        self._tools[declared.name] = declared
        self._offers.clear()

    def replace(self, group: str, tools: Iterable[Tool]) -> None:
        """Put `tools` in place of those of `group`, such as "github"; calls under way go on.

        Raises ToolError, and changes nothing, when a name belongs to something else.
        """
        new = {each.name: each for each in tools}
        kept = {n: t for n, t in self._tools.items() if n not in self._groups.get(group, ())}
        taken = sorted(kept.keys() & new.keys())
        if taken:
            raise ToolError(f"Two tools are named {taken[0]}.", "Rename one of them.")
        self._tools, self._groups[group] = kept | new, tuple(new)
        self._offers.clear()

    def group(self, name: str) -> tuple[str, ...]:
        """Return the names of a group's tools; none for a group that was never put in."""
        return self._groups.get(name, ())

    def get(self, name: str) -> Tool | None:
        """Return the tool of that name, or None."""
        return self._tools.get(name)

    def offered(
        self, mode: str, names: Iterable[str] | None = None, closed: Collection[str] = ()
    ) -> list[Tool]:
        """Return the tools for `mode`, sorted by name, without those in `closed`.

        `names` narrows them to a persona's; a name may end in `*`.
        """
        wanted = None if names is None else tuple(names)
        return [
            declared
            for name, declared in sorted(self._tools.items())
            if name not in closed
            and is_named(name, wanted)
            and (not declared.modes or mode in declared.modes)
        ]

    async def offer(
        self, mode: str, names: tuple[str, ...] | None, closed: frozenset[str] = frozenset()
    ) -> Offer:
        """Return the schemas of what is offered; made once for each asking, off the event loop."""
        asked = (mode, names, closed)
        found = self._offers.get(asked)
        if found is None:
            found = await asyncio.to_thread(self._describe, *asked)
            if len(self._offers) >= OFFERS:
                self._offers.clear()
            self._offers[asked] = found
        return found

    def _describe(self, mode: str, names: tuple[str, ...] | None, closed: frozenset[str]) -> Offer:
        schemas = tuple(declared.schema() for declared in self.offered(mode, names, closed))
        return Offer(schemas=schemas, size=len(dumps(schemas)))


#: Mode, a persona's names and what is closed to the session; and how many offers are kept.
_Asked = tuple[str, tuple[str, ...] | None, frozenset[str]]
OFFERS = 64


def is_named(name: str, names: Collection[str] | None) -> bool:
    """Say whether a persona's list names the tool; None names all, `github_*` all of GitHub's."""
    if names is None or name in names:
        return True
    return any(each.endswith("*") and name.startswith(each[:-1]) for each in names)
