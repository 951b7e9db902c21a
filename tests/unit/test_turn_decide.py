"""What comes next, asked of a state by hand: when a start without a result may be judged."""

from __future__ import annotations

import pytest

from engine.turn.decide import LookUp, Wait, decide
from engine.turn.state import Call, Start, State

STARTED_AT = 1_000.0
#: act_by and the tool's timeout: the effect is over then, whoever started it.
OVER = STARTED_AT + 10.0 + 60.0


def _started(*, loose: bool) -> State:
    call = Call(
        id="s-1-1-0",
        turn=1,
        iteration=1,
        place=0,
        name="push",
        arguments={},
        hash="h",
        risk="external",
        status="started",
        attempts=1,
        start=Start(worker="other", attempt=1, act_by=STARTED_AT + 10.0, limit=60.0),
    )
    if loose:
        return State(session="s", turn=1, loose=(call,))
    return State(session="s", turn=1, open=True, iteration=1, answered=True, calls=(call,))


@pytest.mark.parametrize("loose", [False, True], ids=["open-turn", "after-a-stop"])
@pytest.mark.parametrize(
    ("now", "gone", "waits"),
    [
        pytest.param(STARTED_AT, (), True, id="it-may-still-act"),
        pytest.param(OVER - 0.001, (), True, id="its-effect-may-still-run"),
        pytest.param(OVER, (), False, id="its-effect-is-over"),
        pytest.param(STARTED_AT, ("other",), False, id="its-worker-is-known-dead"),
        pytest.param(STARTED_AT, ("third",), True, id="another-worker-is-dead"),
    ],
)
def test_a_start_of_another_worker_is_judged_only_when_it_cannot_act_any_more(
    now: float, gone: tuple[str, ...], waits: bool, loose: bool
) -> None:
    state = _started(loose=loose)
    step = decide(state, now, gone)
    if waits:
        assert step == Wait(until=OVER)
    else:
        assert isinstance(step, LookUp)
