"""The view: what the model is sent, and that the log is never changed for it."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

from engine.events import Event, Kind
from engine.models.base import ContextTooLong
from engine.models.catalogue import Catalogue, Entry
from engine.models.content import Documents
from engine.tools.base import Offer
from engine.turn.view import Border, History, View, build

CATALOGUE = Catalogue.load()
SMALL = CATALOGUE.entry("practice:small")


def _entry(window: int) -> Entry:
    import dataclasses

    return dataclasses.replace(SMALL, window=window, max_output=None)


class Talk:
    """Writes a session's facts as a worker would."""

    def __init__(self) -> None:
        self.facts: list[Event] = []
        self.turn = 0

    def add(self, kind: Kind, body: dict[str, Any], call: str | None = None) -> None:
        self.facts.append(
            Event(
                session="s1",
                kind=kind,
                seq=len(self.facts) + 1,
                turn=self.turn,
                iteration=1,
                call=call,
                body=body,
            )
        )

    def exchange(self, words: str, result: str = "") -> None:
        """One turn: a line, a call with `result` when given, an answer."""
        self.turn += 1
        self.add(Kind.TURN_START, {})
        self.add(Kind.MESSAGE, {"message": {"role": "user", "content": words}})
        if result:
            call = f"s1-{self.turn}-1-0"
            made = {"id": call, "type": "function", "provider_id": "x"}
            function = {"name": "look", "arguments": "{}"}
            message = {
                "role": "assistant",
                "content": None,
                "tool_calls": [{**made, "function": function}],
            }
            self.add(Kind.ASSISTANT_MESSAGE, {"message": message})
            self.add(Kind.TOOL_FINISHED, {"content": result, "status": "ok"}, call)
        self.add(
            Kind.ASSISTANT_MESSAGE, {"message": {"role": "assistant", "content": f"on {words}"}}
        )
        self.add(Kind.TURN_END, {"status": "completed"})

    def history(self) -> History:
        history = History("s1")
        history.extend(self.facts)
        return history


async def _build(history: History, turn: int, entry: Entry) -> View:
    return await build(history, turn, entry, "You help.", Offer(), Documents())


def _apply(history: History, view: View, entry: Entry, talk: Talk) -> None:
    """Record the border as the driver does."""
    if view.border is not None:
        body = {"model": entry.id, "results": view.border.results, "turns": view.border.turns}
        talk.add(Kind.ELIDED, body)
        history.extend(talk.facts)


async def test_a_short_session_is_sent_whole_and_in_order() -> None:
    talk = Talk()
    talk.exchange("one", "result one")
    talk.exchange("two")
    view = await _build(talk.history(), 2, _entry(100_000))
    roles = [message["role"] for message in view.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user", "assistant"]
    assert view.border is None


async def test_what_was_sent_before_is_sent_again_byte_for_byte() -> None:
    talk = Talk()
    entry = _entry(100_000)
    history = talk.history()
    sent: list[list[Any]] = []
    for n in range(6):
        talk.exchange(f"turn {n}", f"result {n}")
        history.extend(talk.facts)
        view = await _build(history, talk.turn, entry)
        sent.append(copy.deepcopy(view.messages))
    for shorter, longer in itertools.pairwise(sent):
        assert longer[: len(shorter)] == shorter


async def test_oldest_results_go_first_each_with_a_handle_and_the_prefix_then_holds() -> None:
    talk = Talk()
    entry = _entry(8_000)
    for n in range(8):
        talk.exchange(f"turn {n}", f"result {n} " + "x" * 4_000)
    history = talk.history()
    before = copy.deepcopy(history.lines)
    view = await _build(history, talk.turn, entry)
    assert view.border is not None and view.border.turns == 0
    contents = [m["content"] for m in view.messages if m["role"] == "tool"]
    assert "read_artifact(id='call:s1-1-1-0')" in contents[0]
    assert contents[-1].startswith("result 7 ")
    assert history.lines == before
    _apply(history, view, entry, talk)
    again = await _build(history, talk.turn, entry)
    assert again.border is None
    assert again.messages == view.messages
    talk.exchange("one more")
    history.extend(talk.facts)
    longer = await _build(history, talk.turn, entry)
    assert longer.border is None
    assert longer.messages[: len(view.messages)] == view.messages


async def test_then_whole_oldest_turns_become_one_line() -> None:
    talk = Talk()
    entry = _entry(8_000)
    for n in range(20):
        talk.exchange(f"turn {n} " + "word " * 800)
    history = talk.history()
    view = await _build(history, talk.turn, entry)
    assert view.border is not None and view.border.turns > 0
    first = view.messages[1]["content"]
    assert "earlier messages of this session are left out" in first
    assert "turn 19" in str(view.messages)


async def test_an_open_turn_that_cannot_fit_ends_with_a_sentence() -> None:
    talk = Talk()
    talk.exchange("x" * 100_000)
    with pytest.raises(ContextTooLong, match="/new"):
        await _build(talk.history(), 1, _entry(8_000))


async def test_a_border_of_one_model_does_not_bind_another() -> None:
    talk = Talk()
    small, large = _entry(8_000), CATALOGUE.entry("anthropic:claude-sonnet-4-5")
    for n in range(8):
        talk.exchange(f"turn {n}", "x" * 4_000)
    history = talk.history()
    _apply(history, await _build(history, talk.turn, small), small, talk)
    assert history.borders[small.id] != Border()
    whole = await _build(history, talk.turn, large)
    assert "left out" not in str(whole.messages)


async def test_only_the_open_turn_is_fitted_again() -> None:
    """The work of a call must not grow with the history."""
    talk = Talk()
    for n in range(50):
        talk.exchange(f"turn {n}")
    history = talk.history()
    entry = _entry(100_000)
    await _build(history, talk.turn, entry)
    kept = history.fitted[entry.id][2]
    await _build(history, talk.turn, entry)
    assert history.fitted[entry.id][2] is kept
