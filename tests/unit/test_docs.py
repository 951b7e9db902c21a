"""What the documents say is so: links lead somewhere, tables hold, examples run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from engine.permissions.base import Answer, Mode, Rule, Scene
from engine.permissions.policy import judge
from engine.tools.base import LookUp, Registry, Result, Risk, Root, Tool, ToolContext
from tests.fakes.context import make_context
from tests.unit.house import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])

HOME = "console:main"


def _found(pattern: str) -> list[tuple[Path, str]]:
    return [
        (path, match)
        for path in DOCUMENTS
        for match in re.findall(pattern, path.read_text(encoding="utf-8"))
    ]


def _shown(value: object) -> str:
    return value.name if isinstance(value, Path) else str(value)


@pytest.mark.parametrize(("path", "link"), _found(r"\]\((?!http)([^)#]+)"), ids=_shown)
def test_a_link_leads_to_a_file(path: Path, link: str) -> None:
    assert (path.parent / link).exists()


@pytest.mark.parametrize(
    ("path", "name"),
    _found(r"`((?:bot|engine|connectors|personas|tests|docs)/[\w/.]+)`"),
    ids=_shown,
)
def test_a_file_that_is_named_is_there(path: Path, name: str) -> None:
    assert (ROOT / name).exists()


@pytest.mark.parametrize("path", DOCUMENTS, ids=_shown)
def test_a_document_opens_with_one_title(path: Path) -> None:
    lines = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S).splitlines()
    assert lines[0].startswith("# ")
    assert sum(line.startswith("# ") for line in lines) == 1


# -- docs/permissions.md: risks and modes


async def _nothing(ctx: ToolContext) -> Result:
    return Result(text="")


def _tool(risk: Risk, name: str = "act", **declared: object) -> Tool:
    return Tool(name=name, description="", run=_nothing, risk=risk, **declared)  # type: ignore[arg-type]


SEND = _tool(Risk.EXTERNAL, target=lambda arguments: [arguments["to"]])
HOME_SEND = _tool(Risk.EXTERNAL, "send_message", target=lambda arguments: [arguments["to"]])
WRITE = _tool(Risk.WRITE_LOCAL, paths={"path": "write"})
PROGRAM = _tool(Risk.EXEC)
FETCH = _tool(Risk.READ, egress=lambda arguments: arguments["to"])

#: First cell of a row -> the tool, its arguments, and what the scene has beside the usual.
ROWS: dict[str, tuple[Tool, dict[str, str], dict[str, object]]] = {
    "read in its folders": (_tool(Risk.READ, paths={"path": "read"}), {"path": "read/a"}, {}),
    "its own to-dos, questions, plans": (_tool(Risk.CONTROL), {}, {}),
    "write in its own folder": (WRITE, {"path": "own/a"}, {}),
    "write in a folder you opened for writing": (WRITE, {"path": "write/a"}, {}),
    "a command on the allowlist": (PROGRAM, {"command": "git status"}, {}),
    "any other command": (PROGRAM, {"command": "make"}, {}),
    "a message or file to its own thread": (HOME_SEND, {"to": HOME}, {}),
    "reach others, a standing rule fits": (
        SEND,
        {"to": "console:team"},
        {"rules": (Rule(id="r1", tool="act", target=("console:team",)),)},
    ),
    "reach others": (SEND, {"to": "console:team"}, {}),
    "reach others, outside text in play": (SEND, {"to": "console:team"}, {"taint": ("web:x",)}),
    "look something up on the web": (FETCH, {"to": "example.org"}, {}),
    "the same, outside text in play": (FETCH, {"to": "example.org"}, {"taint": ("web:x",)}),
    "any path outside its folders": (WRITE, {"path": "/etc/hosts"}, {}),
}


def _table() -> dict[str, dict[str, str]]:
    text = (ROOT / "docs" / "permissions.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip(" *") for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|") and "---" not in line
    ]
    start = next(n for n, row in enumerate(rows) if row[0] == "Nod wants to")
    modes = rows[start][1:]
    return {
        row[0]: dict(zip(modes, row[1:], strict=True))
        for row in rows[start + 1 : start + 1 + len(ROWS)]
    }


def test_the_table_of_modes_has_exactly_the_rows_that_are_checked() -> None:
    assert list(_table()) == list(ROWS)


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.CUSTOM])
@pytest.mark.parametrize("row", ROWS)
def test_the_table_says_what_policy_says(row: str, mode: Mode, tmp_path: Path) -> None:
    tool, arguments, more = ROWS[row]
    scene = Scene(
        mode=mode,
        roots=(
            Root(path=tmp_path / "own", writable=True, own=True),
            Root(path=tmp_path / "write", writable=True),
            Root(path=tmp_path / "read"),
        ),
        allowlist=("git status",),
        home=HOME,
        home_open=True,
        **more,  # type: ignore[arg-type]
    )
    words = {Answer.ALLOW: "yes", Answer.ASK: "asks", Answer.REFUSE: "no"}
    assert _table()[row][mode] == words[judge(tool, arguments, scene, tmp_path).answer]


# -- docs/tools.md: the example


def _example(folder: Path) -> Tool:
    text = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(.*?)```", text, re.S)
    assert block
    names: dict[str, Any] = {"__name__": "board"}
    exec(compile(block[1], "docs/tools.md", "exec"), names)
    names["FOLDER"] = folder / "boards"
    [declared] = names["TOOLS"]
    assert isinstance(declared, Tool)
    return declared


async def test_the_example_of_a_tool_runs_shows_and_can_be_looked_up(tmp_path: Path) -> None:
    tool, ctx = _example(tmp_path), make_context(tmp_path)
    assert Registry([tool]).get("post_note") is tool
    arguments = tool.check({"board": "team", "text": "Hello"})
    assert tool.targets(arguments, HOME) == ("board:team",)
    assert tool.preview and "Hello" in await tool.preview(ctx, arguments)
    assert tool.look_up
    assert (await tool.look_up(ctx, arguments, None)).found is LookUp.DID_NOT
    assert (await tool.run(ctx, **arguments)).ok
    assert (await tool.look_up(ctx, arguments, None)).found is LookUp.HAPPENED
    later = make_context(tmp_path, attempt=2)
    assert (await tool.look_up(later, arguments, None)).found is LookUp.DID_NOT


def test_the_table_of_a_tool_s_fields_names_fields_there_are() -> None:
    text = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")
    named = {
        name
        for line in text.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert named
    assert named <= set(Tool.__dataclass_fields__)
