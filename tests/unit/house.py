"""Reads our packages as syntax trees, for the tests that hold the house rules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["PACKAGES", "ROOT", "Module", "imported", "modules"]

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("bot", "connectors", "engine", "personas")


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One module of ours: its dotted name and its text, parsed."""

    name: str
    text: str
    tree: ast.Module

    @classmethod
    def of(cls, name: str, text: str) -> Module:
        """Parse `text` as the module `name`."""
        return cls(name=name, text=text, tree=ast.parse(text))

    def at(self, node: ast.AST) -> str:
        """Return where a node stands, as an offence begins."""
        return f"{self.name}, line {getattr(node, 'lineno', 1)}"


@cache
def modules() -> tuple[Module, ...]:
    """Return every module of ours that holds code."""
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            parts = path.relative_to(ROOT).with_suffix("").parts
            if text.strip():
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                found.append(Module.of(name, text))
    return tuple(found)


def imported(module: Module) -> Iterator[str]:
    """Yield what the module imports, also inside functions: modules, or `module.name`."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
