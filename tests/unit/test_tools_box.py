"""Every tool in the box says what it may do, and shows it before it does."""

from __future__ import annotations

import inspect
from typing import cast

import pytest

from connectors.icalendar import TOOLS as CALENDAR
from engine.schedule.event_tools import event_tools
from engine.schedule.tools import schedule_tools
from engine.store.base import Store
from engine.tools.base import Registry, Risk, Tool
from engine.tools.box import standard_tools

#: Declared without being run, so no store is needed.
LATER = [
    *schedule_tools(cast("Store", None), "UTC"),
    *event_tools(cast("Store", None), "UTC"),
]
TOOLS = [*standard_tools(), *LATER, *CALENDAR]

#: Consequential tools from which no standing rule can be made, and why that is meant.
NO_TARGET = {
    "apply_patch": "the fence and the session's own folder decide",
    "edit_file": "the fence and the session's own folder decide",
    "write_file": "the fence and the session's own folder decide",
}

each_tool = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)


@each_tool
def test_a_tool_declares_its_risk_and_describes_every_argument(tool: Tool) -> None:
    assert isinstance(tool.risk, Risk)
    function = tool.schema()["function"]
    assert function["description"]
    for name, shown in function["parameters"]["properties"].items():
        assert shown["description"], f"{tool.name}.{name}"


@each_tool
def test_a_schema_has_exactly_the_parameters_of_the_function(tool: Tool) -> None:
    wanted = list(inspect.signature(tool.run).parameters)[1:]
    assert sorted(tool.schema()["function"]["parameters"]["properties"]) == sorted(wanted)


@each_tool
def test_a_consequential_tool_has_a_preview_and_a_target_or_a_stated_none(tool: Tool) -> None:
    if tool.risk in (Risk.READ, Risk.CONTROL):
        return
    assert tool.preview is not None
    has_target = tool.target is not None or tool.to_home
    assert has_target or tool.risk is Risk.EXEC or tool.name in NO_TARGET
    if tool.risk is Risk.EXTERNAL:
        assert tool.look_up is not None or tool.idempotent


@each_tool
def test_every_path_argument_is_declared(tool: Tool) -> None:
    names = set(tool.schema()["function"]["parameters"]["properties"]) & {"path", "repo", "patch"}
    own = {"git_log": {"path"}, "git_diff": {"path"}}.get(tool.name, set())  # inside the repository
    assert names - own <= set(tool.paths) or tool.find_paths is not None


@each_tool
def test_a_writing_tool_can_be_looked_up(tool: Tool) -> None:
    if tool.risk is Risk.WRITE_LOCAL:
        assert tool.witness is not None
        assert tool.look_up is not None
        assert "write" in tool.paths.values() or tool.find_paths is not None


def test_names_are_taken_once_and_the_issue_s_tools_are_there() -> None:
    registry = Registry(TOOLS)
    wanted = (
        "read_file list_files search find_files write_file edit_file apply_patch git_status "
        "git_log git_diff git_branches todo_write ask deliver_file send_message read_artifact "
        "calendar_events"
    ).split()
    offered = {tool.name for tool in registry.offered("interactive")}
    assert set(wanted) <= offered
    assert "propose_plan" not in offered
    assert "propose_plan" in {tool.name for tool in registry.offered("plan")}
