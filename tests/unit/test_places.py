"""A place that moves: everything that names it is rewritten, at once or not at all."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from bot.places import Places
from bot.surfaces.telegram_places import Place, moving
from engine.canonical import dumps, loads
from engine.store.base import Store, load_migrations, parse_queries

OLD, NEW = "telegram:77/-7", "telegram:77/-1007"
MOVE = moving("77", -7, -1007)
#: Another group, whose number begins like it.
OTHER = "telegram:77/-70"

#: Columns in which a thread_target stands, and which a move rewrites.
MOVED = {
    "sessions.home",
    "threads.thread_target",
    "mailbox.thread_target",
    "deliveries.destination",
    "rules.target",
    "schedules.home",
    "schedules.report_to",
    "subscriptions.source",
    "settings.name",
    "settings.value",
    "prompts.payload",
    "held.event",
    "watched.body",
    "budgets.thing",
    "gates.scope",
    "connecting.place",
}
#: Columns in which one may stand and stays, with the reason.
KEPT = {
    "log.body": "history is never rewritten",
    "mailbox.body": "it becomes history",
    "prompts.subject": "only tells one prompt from another",
    "prompts.answer": "what was decided stays as it was decided",
    "votes.answer": "what was decided stays as it was decided",
    "deliveries.payload": "a text, or the id of a prompt",
    "deliveries.subject": "names what is shown, not where",
    "mailbox.event_key": "the platform's own number of what came from the old place",
    "held.event_key": "the platform's own number of what came from the old place",
    "audit.subject": "ids alone",
    "identities.dm": "a conversation of two never moves",
    "events.source": "hook, job, session or connector, and its id",
    "events.payload": "outside text",
    "schedules.instructions": "a person's words",
    "wakes.note": "the model's words",
    "subscriptions.filter": "what is looked for, in words",
    "memories.content": "words",
    "memories.subject": "words",
    "memories.scope": "a person or persona",
    "grants.thing": "a session or schedule",
    "grants.body": "folders",
    "leases.name": "a worker or connection",
    "jobs.command": "a command line",
    "budgets.scope": "says what kind of thing has it",
    "spendings.period": "a day, a month or a session",
    "connections.account": "a name in somebody else's system",
    "connections.scopes": "rights in somebody else's system",
    "events.event_key": "the source's own number",
    "subscriptions.words": "words that are looked for",
    "sources.source": "what an account brings",
    "sources.seen": "what somebody else's system numbers",
}
#: Names of columns that hold no place in any table.
PLAIN = frozenset(
    """
    id tenant_id session_id call_id schedule_id subscription_id prompt_id event_id owner_id
    principal_id external_id run_id account_id connection_id
    title persona origin model mode roots custom taint state worker kind name risk status attempt
    arguments_hash needs approvers resolved_by resolved_on surface part ref shown tool made_under
    cron zone catch_up overlap quiet cause note event media_type path digest purpose chain actor
    rule outcome previous hash role platform holder token_hash secret
    connector browser_hash state_hash by_id budget_id period unit
    """.split()
)


def columns() -> set[str]:
    """Return every column of text there is, as the migrations of SQLite make them."""
    made = sqlite3.connect(":memory:")
    for _, _, statements in load_migrations("sqlite"):
        for statement in statements:
            made.execute(statement)
    tables = [row[0] for row in made.execute("select name from sqlite_master where type = 'table'")]
    found = {
        f"{table}.{name}"
        for table in tables
        if not table.startswith("sqlite_")
        for _, name, kind, *_ in made.execute(f"pragma table_info({table})")
        if kind.lower() == "text"
    }
    made.close()
    return found


def test_every_column_of_text_says_whether_a_move_rewrites_it() -> None:
    known = MOVED | set(KEPT)
    unknown = sorted(
        each for each in columns() if each not in known and each.partition(".")[2] not in PLAIN
    )
    assert not unknown, (
        f"may a thread_target stand in {', '.join(unknown)}? Then bot/places.py moves it, and it "
        "is in MOVED here; else it is in KEPT with the reason, or its name in PLAIN"
    )
    assert known <= columns(), f"not there any more: {sorted(known - columns())}"


SEEDS = {
    "mailbox": {
        "session_id": "s1", "kind": "message", "event_key": "telegram:77/-7/5", "thread_target":
        f"{OLD}/r5", "principal_id": "console", "body": "{}", "at": 1.0,
    },
    "threads": {"thread_target": f"{OLD}/r5", "session_id": "s1", "created_at": 1.0},
    "sessions": {
        "id": "s1", "home": f"{OLD}/r5", "persona": "cowork", "owner_id": "console", "origin":
        "person", "home_open": 1, "model": "m", "mode": "interactive", "roots": "[]",
        "created_at": 1.0, "updated_at": 1.0,
    },
    "deliveries": {
        "id": "d1", "session_id": "s1", "kind": "show", "subject": "answer:s1/1/1", "destination":
        f"{OLD}/r5", "status": "sent", "ref": "77/-7/6", "created_at": 1.0, "updated_at": 1.0,
    },
    "rules": {
        "id": "r1", "principal_id": "console", "tool": "send_message", "created_at": 1.0,
        "target": dumps([OLD, "slack:T1/C1"]),
    },
    "schedules": {
        "id": "c1", "owner_id": "console", "title": "t", "cron": "", "zone": "UTC",
        "instructions": f"report to {OLD}", "home": OLD, "report_to": OLD, "persona": "p",
        "model": "m", "catch_up": "once", "overlap": "skip", "enabled": 1, "created_at": 1.0,
        "updated_at": 1.0,
    },
    "subscriptions": {
        "id": "w1", "session_id": "s1", "source": OLD, "filter": "", "status": "active",
        "created_at": 1.0,
    },
    "held": {
        "event_key": "telegram:77/-7/9", "tries": 3, "status": "held", "at": 1.0,
        "event": dumps({"kind": "Said", "target": f"{OLD}/r9", "text": "hm"}),
    },
    "watched": {
        "session_id": "s1", "subscription_id": "w1", "at": 1.0,
        "body": dumps({"who": "ana", "text": "hm", "where": OLD}),
    },
    "prompts": {
        "id": "p1", "kind": "grant", "subject": "thing", "turn": 0, "approvers": "{}",
        "created_at": 1.0, "deadline": 9e9,
        "payload": dumps({"schedule": {"home": f"{OLD}/r5"}, "facts": [["To", f"{OLD} (here)"]]}),
    },
    "budgets": {
        "id": "b1", "scope": "channel", "thing": OLD, "period": "day", "unit": "calls", "zone":
        "UTC", "owner_id": "console", "created_at": 1.0,
    },
    "gates": {"connector": "web", "scope": f"channel:{OLD}", "by_id": "console", "created_at": 1.0},
    "connecting": {
        "id": "k1", "connector": "web", "principal_id": "console", "place": f"{OLD}/r5",
        "until": 9e9,
    },
    "settings": {"name": "place:#team", "value": dumps(OLD), "updated_at": 1.0},
}  # fmt: skip


async def seeded(store: Any, table: str, **changes: Any) -> None:
    """Insert a row that names the old place; `changes` says what is otherwise."""
    row = {"tenant_id": "local", **SEEDS[table], **changes}
    names, name = ", ".join(row), f"t_{table}"
    values = ", ".join(f":{each}" for each in row)
    sql = f"-- name: {name}\ninsert into {table} ({names}) values ({values})"
    store.queries |= parse_queries([sql], store.dialect)
    await store.write(lambda tx: tx.run(name, **row))


async def table(store: Any, name: str) -> list[Any]:
    store.queries |= parse_queries([f"-- name: t_all\nselect * from {name}"], store.dialect)
    return list(await store.read(lambda tx: tx.all("t_all")))


async def found(store: Any, each: str) -> list[str]:
    name, _, column = each.partition(".")
    return [str(row[column]) for row in await table(store, name)]


async def everything(store: Any) -> None:
    for name in SEEDS:
        await seeded(store, name)
    await seeded(store, "settings", name=f"mention:{OLD}", value="true")


async def test_a_move_rewrites_every_column_in_which_the_place_may_stand(store: Store) -> None:
    await everything(store)
    poked: list[str] = []
    assert {each.partition(".")[0] for each in MOVED} == set(SEEDS), "each table has a row here"
    for each in MOVED:
        assert any(OLD in value for value in await found(store, each)), each
    places = Places(store, "local", lambda: poked.append("look"))
    for _ in range(2):  # told again after a crash
        await places.moved(MOVE)
        for each in MOVED - {"settings.name"}:
            values = await found(store, each)
            assert all(OLD not in value.replace(NEW, "") for value in values), each
            assert any(NEW in value for value in values), each
    assert poked == ["look", "look"], "what is to be shown anew is looked for"
    names = await found(store, "settings.name")
    assert f"mention:{NEW}" in names and f"mention:{OLD}" not in names
    assert await found(store, "sessions.home") == [f"{NEW}/m5"]
    assert await found(store, "rules.target") == [dumps(sorted([NEW, "slack:T1/C1"]))]
    assert await found(store, "schedules.instructions") == [f"report to {OLD}"]
    (payload,) = await found(store, "prompts.payload")
    told = {"schedule": {"home": f"{NEW}/m5"}, "facts": [["To", f"{NEW} (here)"]]}
    assert loads(payload) == told
    assert await places.after(OLD) == NEW
    assert await places.after(OTHER) == ""


async def test_a_place_whose_name_begins_alike_stays(store: Store) -> None:
    await seeded(store, "sessions", home=f"{OTHER}/r5")
    await seeded(store, "schedules", home=OTHER, report_to="")
    await seeded(store, "rules", target=dumps([OTHER]))
    await seeded(store, "settings", value=dumps(OTHER))
    await seeded(store, "prompts", payload=dumps({"home": OTHER}))
    await Places(store, "local").moved(MOVE)
    assert await found(store, "sessions.home") == [f"{OTHER}/r5"]
    assert await found(store, "schedules.home") == [OTHER]
    assert await found(store, "rules.target") == [dumps([OTHER])]
    assert dumps(OTHER) in await found(store, "settings.value")
    assert await found(store, "prompts.payload") == [dumps({"home": OTHER})]


async def test_a_move_that_fails_moves_nothing(store: Store) -> None:
    await everything(store)
    await seeded(store, "rules", id="r2", target=f'not JSON "{OLD}"')
    with pytest.raises(ValueError, match="line 1 column 1"):
        await Places(store, "local").moved(MOVE)
    for each in MOVED - {"settings.name"}:
        assert NEW not in str(await found(store, each)), each


async def test_a_card_that_waits_is_to_be_shown_anew_and_nothing_left_behind_is_edited(
    store: Store,
) -> None:
    for number, (kind, status) in enumerate(
        [("grant", "pending"), ("grant", "resolved"), ("approval", "pending")]
    ):
        asked = {"id": f"p{number}", "kind": kind, "status": status, "subject": f"s{number}"}
        await seeded(store, "prompts", **asked, payload=dumps({"arguments": {"target": OLD}}))
        shown = {"subject": f"prompt:p{number}", "ref": f"77/-7/{number}"}
        await seeded(store, "deliveries", id=f"d{number}", **shown)
    done = {"kind": "act", "subject": "act:c1/1", "ref": "77/-7/8", "destination": OLD}
    await seeded(store, "deliveries", id="d8", **done)
    await seeded(store, "deliveries", id="d9", ref="77/-70/6", subject="x", destination=OTHER)
    await Places(store, "local").moved(MOVE)

    rows = {row["id"]: row for row in await table(store, "deliveries")}
    waiting = await store.read(
        lambda tx: tx.all("deliveries_open", tenant="local", after_at=0.0, after="", limit=9)
    )
    assert [loads(row["payload"]) for row in waiting] == [{"prompt": "p0"}, {"prompt": "p2"}]
    assert {row["destination"] for row in waiting} == {f"{NEW}/m5"}
    assert [rows[each]["ref"] for each in ("d0", "d1", "d2")] == [None, None, None]
    assert rows["d8"]["ref"] == "77/-7/8", "that it was posted is not forgotten"
    assert rows["d9"]["ref"] == "77/-70/6"
    payloads = {row["id"]: loads(row["payload"]) for row in await table(store, "prompts")}
    targets = [each["arguments"]["target"] for each in (payloads["p0"], payloads["p2"])]
    assert targets == [NEW, OLD], "an approval stands for exactly the arguments it was asked for"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (OLD, NEW),
        (f"{OLD}/r5", f"{NEW}/m5"),
        (f"{NEW}/m5", f"{NEW}/m5"),
        (OTHER, OTHER),
        ("telegram:77/-1/r7", "telegram:77/-1/r7"),
    ],
)
def test_where_a_target_is_now(before: str, after: str) -> None:
    assert MOVE.now(before) == after


def test_a_chain_that_was_left_behind_replies_to_nothing() -> None:
    assert Place.parse(f"{NEW}/m5") == Place(bot="77", chat=-1007)
