"""What advancing a session needs from outside, in one value. Only the wiring makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from engine.clock import Now
from engine.events import Bus
from engine.models.base import Model
from engine.models.catalogue import Catalogue
from engine.models.content import Documents
from engine.sandbox.base import Executor, ShellState
from engine.sessions import Session
from engine.store.base import Store, Tx
from engine.tools.base import Delivery, Registry
from engine.turn.prompt import Persona
from engine.turn.state import Limits
from engine.turn.view import Histories
from engine.work.base import Ceilings, Gate

__all__ = ["Engine"]

#: Opens a shell in a folder: (folder it may call home, state of an earlier shell or None).
OpenExecutor = Callable[[Path, ShellState | None], Executor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Everything a worker advances sessions with. It holds no session's state."""

    store: Store
    model: Model
    catalogue: Catalogue
    tools: Registry
    bus: Bus
    now: Now
    #: The data folder.
    data: Path
    delivery: Delivery
    #: Name -> persona; an unknown name gives the default one.
    persona: Callable[[str], Persona]
    open_executor: OpenExecutor
    #: This worker's id; see engine/work/base.py.
    worker: str
    #: Says whether another worker is known to be dead.
    is_gone: Callable[[str], bool]
    tenant: str = "local"
    limits: Limits = field(default_factory=Limits)
    #: Names of the tools that are not for a session, now: what nobody has connected, or muted.
    hands: Callable[[Tx, Session], frozenset[str]] = lambda _tx, _session: frozenset()
    #: Command prefixes that need no asking.
    allowlist: tuple[str, ...] = ()
    #: Tools whose approval needs two people.
    quorum: tuple[str, ...] = ()
    #: Models tried in order when a session's own stays unavailable.
    fallbacks: tuple[str, ...] = ()
    gate: Gate = field(default_factory=lambda: Gate(Ceilings()))
    histories: Histories = field(default_factory=Histories)
    documents: Documents = field(default_factory=Documents)
