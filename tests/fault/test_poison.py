"""A session that kills its worker again and again is stopped and shown; the others go on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine import people, sessions
from engine.events import Kind
from engine.sessions import Post
from engine.store.base import Tx
from engine.store.opening import open_store
from tests.fault.child import BOMB, FINAL, Spec
from tests.fault.forks import KILLED, Fork
from tests.fault.proof import log_of

OTHERS = 5


def _innocent(tx: Tx, number: int, data: Path) -> str:
    """Open a session that waits for its turn beside the poisonous one."""
    session = sessions.open_session(
        tx,
        tenant="local",
        home=f"console:other{number}",
        owner=people.CONSOLE,
        origin="person",
        persona="cowork",
        model="practice:test",
        mode="interactive",
        data=data,
        now=1.0,
    )
    body = {"message": {"role": "user", "content": "Just say it."}}
    mail = Post(kind="message", key=f"other{number}", by=people.CONSOLE, body=body)
    sessions.post(tx, sessions.get(tx, session), mail, 1.0)
    return session


@pytest.mark.timeout(120)  # five processes
async def test_a_session_that_kills_its_worker_three_times_is_stopped_and_blames_no_other(
    store_url: str, tmp_path: Path
) -> None:
    store = await open_store(store_url)
    others = await store.write(lambda tx: [_innocent(tx, n, tmp_path) for n in range(OTHERS)])
    spec = Spec(url=store_url, data=str(tmp_path), thread="console:poison", says=BOMB)
    async with Fork() as fork:
        codes = [await fork.run(replace(spec, retries=False)) for _ in range(4)]
        assert codes == [KILLED, KILLED, KILLED, 0], (spec.folder / "stderr").read_text()
        poisonous = await store.read(lambda tx: sessions.find_thread(tx, "local", spec.thread))
        assert poisonous is not None
        facts = await store.read(lambda tx: log_of(tx, poisonous))
        ended = [fact.body["status"] for fact in facts if fact.kind is Kind.TURN_END]
        assert ended == ["error"]
        assert any(f.kind is Kind.ERROR and "died 3 times" in f.body["text"] for f in facts)
        notices = [
            fact.body["prompt"]
            for fact in facts
            if fact.kind is Kind.PERMISSION_REQUIRED and fact.body["prompt"]["kind"] == "notice"
        ]
        assert [notice["payload"]["retry"] for notice in notices] == [True]
        seen_of = await store.read(lambda tx: [log_of(tx, other) for other in others])
        for seen in seen_of:
            assert [f.body["status"] for f in seen if f.kind is Kind.TURN_END] == ["completed"]
            assert sum(1 for fact in seen if fact.kind is Kind.TURN_START) == 1

        (tmp_path / "defused").touch()
        assert await fork.run(spec) == 0, (spec.folder / "stderr").read_text()
    facts = await store.read(lambda tx: log_of(tx, poisonous))
    ended = [fact.body["status"] for fact in facts if fact.kind is Kind.TURN_END]
    assert ended == ["error", "completed"]
    answers = [fact for fact in facts if fact.kind is Kind.ASSISTANT_MESSAGE]
    assert answers[-1].body["message"]["content"] == FINAL
    session = await store.read(lambda tx: sessions.get(tx, poisonous))
    assert (session.attempts, session.worker) == (0, None)
    await store.close()
