"""A connector that is off is mute: what it brings reaches no session there, on both stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors import gates
from engine.schedule import named, subscriptions, wakes
from engine.sessions import Session
from engine.store.base import Store
from tests.contract.later import NOW, a_session, due_wakes


async def fire(store: Store, name: str, source: str) -> None:
    await store.write(
        lambda tx: named.fire_event(tx, "local", name, "{}", f"k{name}", NOW + 1, source=source)
    )


async def waits(store: Store, session: Session, name: str) -> str:
    """Let the session wait for the event and watch it; return the watch's id."""

    def work(tx):  # type: ignore[no-untyped-def]
        wakes.add_on(tx, session, name, "look", NOW, key=f"c{name}")
        return subscriptions.add(
            tx,
            session=session,
            source=f"event:{name}",
            task="look",
            any_of=(),
            all_of=(),
            window=1.0,
            now=NOW,
        ).id

    return await store.write(work)


async def heard(store: Store, watch: str) -> int:
    rows = await store.read(lambda tx: tx.one("watched_count", watch=watch))
    assert rows is not None
    return int(rows["n"])


@pytest.mark.parametrize("kind", ["channel", "person", "persona", "wider"])
@pytest.mark.parametrize(
    ("name", "source", "muted"),
    [
        pytest.param("github-push", "hook:h1", True, id="named-like-it"),
        pytest.param("github", "hook:h1", True, id="named-as-it"),
        pytest.param("push", "connector:github", True, id="from-it"),
        pytest.param("githubber-push", "hook:h1", False, id="a-name-that-begins-alike"),
        pytest.param("push", "hook:h1", False, id="another-one"),
    ],
)
async def test_what_is_off_brings_nothing(
    store: Store, tmp_path: Path, name: str, source: str, muted: bool, kind: str
) -> None:
    session = await a_session(store, tmp_path, "slack:T1/C1/17.1")
    scopes = {
        "channel": f"channel:{session.home}",
        "wider": f"channel:{session.home.rpartition('/')[0] or session.home}",
        "person": f"person:{session.owner}",
        "persona": f"persona:{session.persona}",
    }
    watch = await waits(store, session, name)
    await store.write(
        lambda tx: gates.shut(tx, "local", "github", scopes[kind], by="console", now=NOW)
    )
    await fire(store, name, source)
    assert (await due_wakes(store, NOW + 1) == []) is muted
    assert await heard(store, watch) == (0 if muted else 1)


async def test_elsewhere_it_is_heard_as_ever(store: Store, tmp_path: Path) -> None:
    session = await a_session(store, tmp_path, "slack:T1/C1/17.1")
    watch = await waits(store, session, "github-push")
    for scope in ("channel:slack:T9/C9", "person:somebody", "persona:other", "channel:con"):
        await store.write(
            lambda tx, scope=scope: gates.shut(tx, "local", "github", scope, by="c", now=NOW)
        )
    await fire(store, "github-push", "hook:h1")
    assert len(await due_wakes(store, NOW + 1)) == 1
    assert await heard(store, watch) == 1
