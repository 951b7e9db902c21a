"""Checks the views a Slack app shows (modals, the Home), as strictly as Slack does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.fakes.markup import Refused, slack_message

__all__ = ["check_view"]

#: https://docs.slack.dev/reference/views
_FIELDS = {
    "modal": {"type", "callback_id", "private_metadata", "title", "submit", "close", "blocks"},
    "home": {"type", "callback_id", "private_metadata", "blocks"},
}
_INPUTS = ("plain_text_input", "static_select", "number_input", "checkboxes", "radio_buttons")


def check_view(view: Mapping[str, Any], kind: str) -> None:
    """Raise Refused("invalid_arguments: …") when Slack would not take the view."""
    _fault(view.get("type") != kind, f"type must be {kind}")
    unknown = set(view) - _FIELDS[kind]
    _fault(bool(unknown), f"unknown fields: {sorted(unknown)}")
    _fault(len(view.get("private_metadata", "")) > 3000, "private_metadata too long")
    _fault(len(view.get("callback_id", "")) > 255, "callback_id too long")
    blocks = view.get("blocks", [])
    _fault(not 1 <= len(blocks) <= 100, f"{len(blocks)} blocks")
    if kind == "modal":
        inputs = [each for each in blocks if each["type"] == "input"]
        _fault(bool(inputs) and "submit" not in view, "missing required field: submit")
        for name in ("title", "submit", "close"):
            if name in view or name == "title":
                _label(view.get(name), 24, name)
    ids = [each["block_id"] for each in blocks if "block_id" in each]
    _fault(len(ids) != len(set(ids)), "block_id already exists")
    for block in blocks:
        if block["type"] == "input":
            _input(block)
        else:
            slack_message([block], "")


def _input(block: Mapping[str, Any]) -> None:
    _label(block.get("label"), 2000, "label")
    element = block["element"]
    _fault(element["type"] not in _INPUTS, f"unsupported element {element['type']}")
    _fault(not element.get("action_id"), "missing action_id")
    if element["type"] == "plain_text_input":
        most = element.get("max_length", 3000)
        _fault(not 1 <= most <= 3000, "max_length out of range")
        _fault(len(element.get("initial_value", "")) > most, "initial_value too long")
        _fault(element.get("initial_value") == "", "initial_value is empty")
    if element["type"] == "static_select":
        options = element.get("options", [])
        _fault(not 1 <= len(options) <= 100, "options")
        for each in options:
            _label(each["text"], 75, "option")
            _fault(not 1 <= len(each["value"]) <= 150, "option value")
        first = element.get("initial_option")
        _fault(first is not None and first not in options, "initial_option is no option")


def _label(value: Any, most: int, name: str) -> None:
    _fault(not isinstance(value, Mapping), f"missing required field: {name}")
    _fault(value.get("type") != "plain_text", f"{name} must be plain_text")
    _fault(not 1 <= len(value.get("text", "")) <= most, f"{name} has a wrong length")


def _fault(is_wrong: bool, why: str) -> None:
    if is_wrong:
        raise Refused(f"invalid_arguments: {why}")
