"""Sending: to exactly the target that was approved, once, and it can be looked up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.errors import ToolError
from engine.tools.base import LookUp, ToolContext
from engine.tools.messages import deliver_file, send_message
from tests.fakes.context import RecordedDelivery, make_context

MESSAGE = {"target": "slack:T1/C1/1700.000100", "text": "Hello **all**"}


@pytest.fixture
def delivery() -> RecordedDelivery:
    return RecordedDelivery()


@pytest.fixture
def ctx(tmp_path: Path, delivery: RecordedDelivery) -> ToolContext:
    return make_context(tmp_path, delivery=delivery)


async def test_a_message_goes_out_under_its_call_and_attempt(
    ctx: ToolContext, delivery: RecordedDelivery
) -> None:
    result = await send_message.run(ctx, **send_message.check(MESSAGE))
    (sent,) = delivery.sent
    assert (sent.target, sent.text, sent.subject) == (*MESSAGE.values(), "act:c_test/1")
    assert sent.ref in result.text


def test_the_target_is_all_that_a_rule_pins() -> None:
    assert send_message.targets(MESSAGE, "console:main") == (MESSAGE["target"],)
    assert send_message.destination(MESSAGE, "console:main") == MESSAGE["target"]
    assert deliver_file.targets({"path": "a"}, "console:main") == ("console:main",)
    assert deliver_file.destination({"path": "a"}, "console:main") == "console:main"


async def test_the_preview_shows_the_target_and_every_word(ctx: ToolContext) -> None:
    assert send_message.preview is not None
    text = "word " * 20_000
    shown = await send_message.preview(ctx, {**MESSAGE, "text": text})
    assert shown == f"To {MESSAGE['target']}:\n\n{text}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param({**MESSAGE, "target": "#general"}, "is no thread target", id="channel-name"),
        pytest.param({**MESSAGE, "target": "slack:T1//2"}, "is no thread target", id="empty-part"),
        pytest.param({**MESSAGE, "text": " \n"}, "message is empty", id="blank"),
        pytest.param({"text": "x"}, "'target' of send_message is missing", id="missing"),
        pytest.param({**MESSAGE, "cc": "console:x"}, "no argument 'cc'", id="W-21-extra"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anyone_is_asked(
    arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(ToolError, match=said):
        send_message.check(arguments)


def test_the_target_is_brought_into_its_one_form() -> None:
    assert send_message.check({**MESSAGE, "target": " console:main "})["target"] == "console:main"


async def test_when_it_is_too_late_to_start_nothing_is_sent(
    tmp_path: Path, delivery: RecordedDelivery
) -> None:
    def too_late() -> None:
        raise ToolError("Too late.")

    ctx = make_context(tmp_path, delivery=delivery, before_act=too_late)
    with pytest.raises(ToolError, match="Too late"):
        await send_message.run(ctx, **MESSAGE)
    assert delivery.sent == []


async def test_a_look_up_tells_what_happened(ctx: ToolContext, delivery: RecordedDelivery) -> None:
    (ctx.cwd / "a.txt").write_text("x")
    for number, (tool, arguments) in enumerate(
        [(send_message, MESSAGE), (deliver_file, {"path": "a.txt"})], start=1
    ):
        own = make_context(ctx.cwd.parent, delivery=delivery, call=f"c_{number}")
        assert tool.look_up is not None
        assert (await tool.look_up(own, arguments, None)).found is LookUp.DID_NOT
        await tool.run(own, **arguments)
        outcome = await tool.look_up(own, arguments, None)
        assert outcome.found is LookUp.HAPPENED
        assert outcome.result is not None
        assert f"m{number}" in outcome.result.text
        delivery.unclear.add(f"act:c_{number}/1")
        assert (await tool.look_up(own, arguments, None)).found is LookUp.CANNOT_TELL


async def test_a_file_is_handed_to_the_home_as_it_was_then(
    ctx: ToolContext, delivery: RecordedDelivery
) -> None:
    (ctx.cwd / "report.md").write_text("final")
    assert deliver_file.preview is not None
    shown = await deliver_file.preview(ctx, {"path": "report.md", "comment": "Here"})
    assert shown == "To console:main: report.md (5 bytes)\n\nHere"
    result = await deliver_file.run(ctx, path="report.md", comment="Here")
    (ctx.cwd / "report.md").write_text("changed later")
    (sent,) = delivery.sent
    assert (sent.target, sent.text) == ("console:main", "Here")
    (file,) = sent.files
    assert (file.name, file.read_text()) == ("report.md", "final")
    assert [each.kind for each in result.artifacts] == ["file"]


@pytest.mark.parametrize(
    "path", ["../secret", "link", "gone", "."], ids=lambda path: f"D-175-{path}"
)
async def test_only_files_inside_are_handed_over(
    ctx: ToolContext, delivery: RecordedDelivery, path: str
) -> None:
    (ctx.cwd.parent / "secret").write_text("secret")
    (ctx.cwd / "link").symlink_to(ctx.cwd.parent / "secret")
    with pytest.raises(ToolError):
        await deliver_file.run(ctx, path=path)
    assert delivery.sent == []
