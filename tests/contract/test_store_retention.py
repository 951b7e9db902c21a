"""Deleting a session takes everything of it, on both stores, except what it cost and decided."""

from __future__ import annotations

from typing import Any

import pytest

from engine.store import retention
from engine.store.base import Row, Store, Tx, load_migrations, parse_queries
from engine.store.retention import RetentionPolicy, apply_retention, delete_session

DAY = 86_400.0
NOW = 1_000 * DAY

#: Tables that keep their rows when the session goes.
KEPT = {"usage"}

QUERIES = """
-- name: t_columns [sqlite]
select m.name as "table", c.name as "column", lower(c.type) as type, c."notnull" as needed
from sqlite_master m join pragma_table_info(m.name) c
where m.type = 'table' and m.name not like 'sqlite_%' and c.dflt_value is null

-- name: t_columns [postgres]
select table_name as "table", column_name as "column", lower(data_type) as type,
  case when is_nullable = 'NO' and is_identity = 'NO' then 1 else 0 end as needed
from information_schema.columns
where table_schema = current_schema() and column_default is null

-- name: t_audit
select kind, subject from audit where chain = 'tenant:t'

-- name: t_note
insert into audit (tenant_id, chain, n, at, kind, actor, subject, previous, hash)
values (:tenant, 'tenant:' || :tenant, (select count(*) + 1 from audit), 0, 'deleted', 'nod',
        :session, '', '')
"""


def note(tx: Tx, session: Row) -> None:
    tx.run("t_note", tenant=session["tenant_id"], session=session["id"])


@pytest.fixture
async def store(store: Any) -> Store:
    store.queries.update(parse_queries([QUERIES], store.dialect))
    opened: Store = store
    return opened


async def columns(store: Store) -> dict[str, dict[str, Row]]:
    """Every table of the live schema, with its columns."""
    tables: dict[str, dict[str, Row]] = {}
    for row in await store.read(lambda tx: tx.all("t_columns")):
        tables.setdefault(row["table"], {})[row["column"]] = row
    return tables


async def fill(store: Any, session: str) -> set[str]:
    """Put a row of `session` into every table that has one; return the tables."""
    tables = await columns(store)
    with_session = {name for name, fields in tables.items() if "session_id" in fields}
    for table in with_session | {"sessions", "votes"}:
        values = {
            name: _value(table, row, session)
            for name, row in tables[table].items()
            if row["needed"] or name in ("session_id", "id")
            if not (name == "id" and "int" in row["type"])
        }
        names = ", ".join(values)
        places = ", ".join(f":{name}" for name in values)
        text = f"-- name: t_fill\ninsert into {table} ({names}) values ({places})"
        store.queries.update(parse_queries([text], store.dialect))
        await store.write(lambda tx, values=values: tx.run("t_fill", **values))
    return with_session


def _value(table: str, column: Row, session: str) -> object:
    name = column["column"]
    if name == "session_id" or (table == "sessions" and name == "id"):
        return session
    if name == "tenant_id":
        return "t"
    if name in ("id", "prompt_id"):  # a vote finds its prompt
        return f"{session}-1"
    fixed = {"status": "done", "origin": "person", "turn_seq": 0, "updated_at": NOW}
    if name in fixed:
        return fixed[name]
    return 1 if "int" in column["type"] or "double" in column["type"] else f"{session}-{name}"


async def count(store: Any, table: str, session: str) -> int:
    where = {"sessions": "id = :session", "votes": "prompt_id = :session || '-1'"}
    text = f"-- name: t_count\nselect count(*) as n from {table} where " + where.get(
        table, "session_id = :session"
    )
    store.queries.update(parse_queries([text], store.dialect))
    row = await store.read(lambda tx: tx.one("t_count", session=session))
    return int(row["n"])


async def test_deleting_a_session_leaves_no_row_of_it_in_any_table(store: Store) -> None:
    """Reads the tables from the live schema: one that is added and forgotten fails here."""
    tables = await fill(store, "s1") | {"sessions", "votes"}
    await fill(store, "s2")
    assert {table for table in tables if not await count(store, table, "s1")} == set()
    assert await store.write(lambda tx: delete_session(tx, "s1", note))
    assert {table for table in tables if await count(store, table, "s1")} == KEPT
    assert {table for table in tables if not await count(store, table, "s2")} == set()
    rows = await store.read(lambda tx: tx.all("t_audit"))
    assert [(row["kind"], row["subject"]) for row in rows] == [("deleted", "s1")]


async def test_deleting_what_is_not_there_changes_nothing(store: Store) -> None:
    assert not await store.write(lambda tx: delete_session(tx, "s9", note))
    assert await store.read(lambda tx: tx.all("t_audit")) == []


def test_every_table_belongs_to_a_tenant() -> None:
    statements = [s for _, _, steps in load_migrations("sqlite") for s in steps]
    tables = [s for s in statements if s.startswith("create table")]
    assert tables
    assert [t.split()[2] for t in tables if "tenant_id text not null" not in t] == []


AGES = [
    pytest.param({}, "person", 1 * DAY, False, id="kept-for-good"),
    pytest.param({"person": 30 * DAY}, "person", 31 * DAY, True, id="too-old"),
    pytest.param({"person": 30 * DAY}, "person", 29 * DAY, False, id="young"),
    pytest.param({"person": 30 * DAY}, "schedule", 31 * DAY, False, id="of-another-origin"),
    pytest.param({"schedule": 7 * DAY}, "schedule", 8 * DAY, True, id="a-scheduled-run"),
]


@pytest.mark.parametrize(("policy", "origin", "age", "gone"), AGES)
async def test_a_finished_session_goes_at_its_age(
    store: Any, policy: dict[str, float], origin: str, age: float, gone: bool
) -> None:
    await _session(store, "s1", origin=origin, updated_at=NOW - age)
    deleted = await apply_retention(store, RetentionPolicy(**policy), NOW, note)
    assert deleted == (["s1"] if gone else [])
    assert await count(store, "sessions", "s1") == (0 if gone else 1)


STILL_WANTED = [
    pytest.param("update sessions set state = 'parked'", id="parked"),
    pytest.param("update sessions set worker = 'w'", id="at-work"),
    pytest.param("update sessions set turn_seq = 3", id="open-turn"),
    pytest.param("update sessions set wanted = seen + 1", id="wanted"),
    pytest.param(
        "insert into mailbox (tenant_id, session_id, kind, event_key, thread_target, principal_id, "
        "body, at) values ('t', 's1', 'message', 'k', 'x', 'p', '{}', 0)",
        id="mail",
    ),
    pytest.param(
        "insert into prompts (id, tenant_id, session_id, kind, subject, turn, payload, approvers, "
        "created_at, deadline) values ('p', 't', 's1', 'question', 'x', 1, '{}', '[]', 0, 0)",
        id="prompt",
    ),
    pytest.param(
        "insert into wakes (id, tenant_id, session_id, due, note, status) "
        "values ('w', 't', 's1', 0, '', 'waiting')",
        id="wake",
    ),
    pytest.param(
        "insert into deliveries (id, tenant_id, session_id, kind, subject, destination, payload, "
        "status, created_at, updated_at) "
        "values ('d', 't', 's1', 'show', 'remind:p/1', 'y', '{\"text\": \"x\"}', 'open', 0, 0)",
        id="delivery",
    ),
    pytest.param("update sessions set seq = presented + 1", id="not-shown-yet"),
]


@pytest.mark.parametrize("statement", STILL_WANTED)
async def test_a_session_that_something_waits_for_stays(store: Any, statement: str) -> None:
    await _session(store, "s1", origin="person", updated_at=NOW - 99 * DAY)
    store.queries["t_still"] = statement
    await store.write(lambda tx: tx.run("t_still"))
    assert await apply_retention(store, RetentionPolicy(person=DAY), NOW, note) == []


LEFT_BEHIND = [
    pytest.param(
        "insert into deliveries (id, tenant_id, session_id, kind, subject, destination, status, "
        "created_at, updated_at) values ('d', 't', 's1', 'show', 'answer:s1/1/1', 'y', 'open', "
        "0, 0)",
        id="answer-without-words",
    ),
    pytest.param(
        "insert into deliveries (id, tenant_id, session_id, kind, subject, destination, status, "
        "created_at, updated_at) values ('d', 't', 's1', 'act', 'act:c/1', 'y', 'sending', 0, 0)",
        id="act-nobody-knows-of",
    ),
    pytest.param(
        "insert into calls (id, tenant_id, session_id, turn, iteration, place, name, risk, "
        "arguments_hash, status, attempt) "
        "values ('c', 't', 's1', 1, 1, 0, 'x', 'external', '', 'unknown', 1)",
        id="call-nobody-knows-of",
    ),
]


@pytest.mark.parametrize("statement", LEFT_BEHIND)
async def test_what_an_ended_turn_leaves_behind_keeps_no_session(
    store: Any, statement: str
) -> None:
    await _session(store, "s1", origin="person", updated_at=NOW - 99 * DAY)
    store.queries["t_left"] = statement
    await store.write(lambda tx: tx.run("t_left"))
    assert await apply_retention(store, RetentionPolicy(person=DAY), NOW, note) == ["s1"]


async def test_more_than_one_page_of_old_sessions_goes(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_PAGE", 2)
    for n in range(5):
        await _session(store, f"s{n}", origin="person", updated_at=NOW - 99 * DAY)
    deleted = await apply_retention(store, RetentionPolicy(person=DAY), NOW, note)
    assert deleted == [f"s{n}" for n in range(5)]


def _loose(name: str, waits: bool, at: float) -> list[str]:
    """Return statements that write what a stranger and a notice leave, still open or closed."""
    status = "pending" if waits else "resolved"
    rest = f"0, '{{}}', '{status}', '{{}}', 0, 0, {at}"
    prompt = (
        "insert into prompts (id, tenant_id, kind, subject, turn, payload, status, approvers, "
        "created_at, deadline, resolved_at) values "
    )
    delivery = (
        "insert into deliveries (id, tenant_id, session_id, kind, subject, destination, status, "
        "created_at, updated_at) values "
    )
    return [
        f"{prompt} ('a{name}', 't', 'access', 'x:{name}', {rest})",
        f"{prompt} ('n{name}', 't', 'notice', '{name}', {rest})",
        "insert into mailbox (tenant_id, kind, event_key, thread_target, principal_id, body, at) "
        f"values ('t', 'message', '{name}', 'x', 'identity:x:{name}', '{{}}', {at})",
        "insert into votes (tenant_id, prompt_id, principal_id, answer, arguments_hash, surface, "
        f"at) values ('t', 'n{name}', 'p', 'seen', '', '', {at})",
        f"{delivery} ('d{name}', 't', '', 'show', 'prompt:n{name}', 'y', 'sent', 0, {at})",
    ]


LOOSE = [
    pytest.param(False, 31 * DAY, {"prompts": 1}, id="closed-and-old"),
    pytest.param(
        True, 31 * DAY, {"prompts": 2, "mailbox": 1, "votes": 1, "deliveries": 1}, id="still-open"
    ),
    pytest.param(
        False, 29 * DAY, {"prompts": 2, "mailbox": 1, "votes": 1, "deliveries": 1}, id="young"
    ),
]


@pytest.mark.parametrize(("waits", "age", "left"), LOOSE)
async def test_what_belongs_to_no_session_goes_at_its_age_but_for_decisions_about_people(
    store: Any, waits: bool, age: float, left: dict[str, int]
) -> None:
    for n, statement in enumerate(_loose("one", waits, NOW - age)):
        store.queries[f"t_loose{n}"] = statement
    await store.write(lambda tx: [tx.run(f"t_loose{n}") for n in range(5)])
    await apply_retention(store, RetentionPolicy(schedule=DAY), NOW, note)
    assert await _counts(store) == {"prompts": 2, "mailbox": 1, "votes": 1, "deliveries": 1}
    await apply_retention(store, RetentionPolicy(person=30 * DAY), NOW, note)
    assert {table: n for table, n in (await _counts(store)).items() if n} == left


async def _counts(store: Any) -> dict[str, int]:
    counted = {}
    for table in ("prompts", "mailbox", "votes", "deliveries"):
        store.queries["t_count"] = f"select count(*) as n from {table}"
        counted[table] = (await store.read(lambda tx: tx.one("t_count")))["n"]
    return counted


async def _session(store: Any, id: str, *, origin: str, updated_at: float) -> None:
    def opened(tx: Tx) -> None:
        tx.run(
            "session_add",
            id=id,
            tenant="t",
            home="console:main",
            title="",
            persona="cowork",
            owner="p",
            origin=origin,
            home_open=1,
            model="m",
            mode="interactive",
            roots="[]",
            now=updated_at,
        )

    await store.write(opened)


@pytest.mark.parametrize(
    ("days", "status", "session", "stays"),
    [
        pytest.param(39, "skipped", None, False, id="old-and-never-begun"),
        pytest.param(39, "failed", None, False, id="old-and-its-run-deleted"),
        pytest.param(39, "completed", "s1", True, id="its-run-is-kept"),
        pytest.param(39, "queued", None, True, id="still-waits"),
        pytest.param(37, "skipped", None, True, id="a-digest-may-tell-of-it"),
    ],
)
async def test_due_times_that_led_to_nothing_kept_go_too(
    store: Any, days: int, status: str, session: str | None, stays: bool
) -> None:
    fire = {"id": "f1", "tenant": "t", "schedule": "c1", "due": 0.0, "now": NOW - days * DAY}
    more = {"status": status, "cause": "schedule", "note": "", "event": ""}
    await store.write(lambda tx: tx.run("fire_add", **fire, **more))
    if session is not None:
        store.queries["t_session"] = f"update fires set session_id = '{session}'"
        await store.write(lambda tx: tx.run("t_session"))
    await apply_retention(store, RetentionPolicy(person=30 * DAY), NOW, note)
    assert (await store.read(lambda tx: tx.one("fire_get", id="f1")) is not None) == stays


@pytest.mark.parametrize(
    ("days", "kept"),
    [pytest.param(71, False, id="past"), pytest.param(69, True, id="this-month-or-a-run")],
)
async def test_what_was_spent_in_periods_long_past_goes_too(
    store: Any, days: int, kept: bool
) -> None:
    spent = {"calls": 1, "tokens": 1, "cost": 0.0, "unpriced": 0, "now": NOW - days * DAY}
    await store.write(
        lambda tx: tx.run("spending_add", tenant="t", budget="b1", period="2025-01", **spent)
    )
    await apply_retention(store, RetentionPolicy(person=30 * DAY), NOW, note)
    row = await store.read(lambda tx: tx.one("spending_get", budget="b1", period="2025-01"))
    assert (row is not None) == kept
