"""The picture in docs/design.md shows the imports the code has, all of them and no other."""

from __future__ import annotations

import re

import pytest

from tests.unit.house import ROOT, imported, modules

TEXT = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")

#: Nodes everything may import; arrows to them are not drawn.
COMMON = frozenset({"words", "contracts"})

Edges = set[tuple[str, str]]


def _drawn() -> tuple[dict[str, str], Edges]:
    """Return package or module -> node, and the arrows, as the Mermaid block has them."""
    block = re.search(r"```mermaid\nflowchart TD\n(.*?)```", TEXT, re.S)
    assert block, "docs/design.md has no Mermaid flowchart"
    nodes: dict[str, str] = {}
    edges: Edges = set()
    for line in block[1].strip().splitlines():
        found = re.fullmatch(r"\s*(\w+)\[\"([\w. ]+)\"\](?: --> ([\w &]+))?", line)
        assert found, f"this line of the diagram is not understood: {line}"
        nodes.update(dict.fromkeys(found[2].split(), found[1]))
        edges |= {(found[1], to.strip()) for to in (found[3] or "").split("&") if to}
    return nodes, edges


def _node(nodes: dict[str, str], name: str) -> str | None:
    """Return the node that a dotted name belongs to: the one of its longest prefix."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if node := nodes.get(".".join(parts[:length])):
            return node
    return None


def _real(nodes: dict[str, str]) -> Edges:
    ours = {name.split(".")[0] for name in nodes}
    edges: Edges = set()
    for module in modules():
        here = _node(nodes, module.name)
        assert here, f"{module.name} is in no node of the diagram"
        for name in imported(module):
            there = _node(nodes, name) if name.split(".")[0] in ours else None
            if there and there != here:
                edges.add((here, there))
    return edges


def test_every_module_has_its_place_in_the_diagram_and_every_place_a_module() -> None:
    nodes, _ = _drawn()
    names = {module.name for module in modules()}
    homeless = [name for name in names if _node(nodes, name) is None]
    assert not homeless, f"draw a node for {homeless}"
    gone = [each for each in nodes if not any(n == each or n.startswith(each + ".") for n in names)]
    assert not gone, f"the diagram shows what is not there: {gone}"


def test_the_arrows_are_the_imports() -> None:
    nodes, drawn = _drawn()
    real = _real(nodes)
    shown = {(a, b) for a, b in real if b not in COMMON}
    stated = {(a, b) for a, b in drawn if b not in COMMON}
    assert not shown - stated, f"draw these arrows, or take the imports out: {shown - stated}"
    assert not stated - shown, f"these arrows have no import any more: {stated - shown}"


@pytest.mark.parametrize(
    ("node", "may"), [("words", set()), ("contracts", {"words"})], ids=["words", "contracts"]
)
def test_what_everything_may_import_imports_nothing_above_it(node: str, may: set[str]) -> None:
    assert {b for a, b in _real(_drawn()[0]) if a == node} <= may


def test_the_arrows_never_go_round() -> None:
    _, edges = _drawn()
    left = set(edges)
    while left:
        ends = {b for _, b in left} - {a for a, _ in left}
        assert ends, f"these arrows go round: {left}"
        left = {(a, b) for a, b in left if b not in ends}
