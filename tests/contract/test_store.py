"""What every store backend keeps: the same suite on SQLite and on Postgres."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from engine.errors import Conflict, SchemaTooNew, StoreError
from engine.store.base import Store, Tx, load_queries, parse_queries
from engine.store.opening import open_store
from engine.store.schema import newest

#: Queries on the settings table, which any tenant may fill with any name.
QUERIES = """
-- name: t_add
insert into settings (tenant_id, name, value, updated_at) values ('t', :name, :value, :at)

-- name: t_add_once
insert into settings (tenant_id, name, value, updated_at) values ('t', :name, :value, 0)
on conflict (tenant_id, name) do nothing

-- name: t_set
update settings set value = :value where name = :name

-- name: t_get
select value, updated_at from settings where tenant_id = 't' and name = :name

-- name: t_names
select name from settings where name like 't%' or name like :like order by name

-- name: t_call
insert into calls (id, tenant_id, session_id, turn, iteration, place, name, risk, arguments_hash,
                   status, attempt, worker, act_by)
values (:id, 't', 's', :turn, 1, :flag, :name, 'READ', '', 'proposed', 1, :worker, :act_by)

-- name: t_call_get
select * from calls where id = :id

-- name: t_version
select number, name from schema_version order by number

-- name: t_newer
insert into schema_version (number, name, applied_at) values (:number, 'from the future', 0)

-- name: t_dialect
select 'general' as said

-- name: t_dialect [postgres]
select 'postgres' as said

-- name: t_wrong
select * from no_such_table
"""


@pytest.fixture
async def store(store: Store) -> Store:
    return with_queries(store)


def with_queries(store: Any) -> Store:
    store.queries.update(parse_queries([QUERIES], store.dialect))
    opened: Store = store
    return opened


def add(name: str, value: str = "1") -> Callable[[Tx], int]:
    return lambda tx: tx.run("t_add", name=name, value=value, at=1.0)


def names(tx: Tx) -> list[str]:
    return [row["name"] for row in tx.all("t_names", like="")]


async def test_a_write_returns_the_works_value_and_the_next_read_sees_it(store: Store) -> None:
    assert await store.write(add("t1", "one")) == 1
    row = await store.read(lambda tx: tx.one("t_get", name="t1"))
    assert row is not None
    assert row["value"] == "one"


async def test_what_was_committed_is_there_after_reopening(store: Store, store_url: str) -> None:
    await store.write(add("t1"))
    await store.close()
    again = with_queries(await open_store(store_url))
    assert await again.read(names) == ["t1"]
    await again.close()


async def test_a_work_that_raises_stores_nothing(store: Store) -> None:
    def half(tx: Tx) -> None:
        tx.run("t_add", name="t1", value="1", at=1.0)
        raise KeyError("second thoughts")

    with pytest.raises(KeyError, match="second thoughts"):
        await store.write(half)
    assert await store.read(names) == []


async def test_among_a_hundred_writers_only_the_failing_one_fails(store: Store) -> None:
    def fail(tx: Tx) -> int:
        tx.run("t_add", name="t_bad", value="1", at=1.0)
        raise RuntimeError("alone")

    works = [fail if n == 50 else add(f"t{n:03}") for n in range(100)]
    results = await asyncio.gather(*(store.write(w) for w in works), return_exceptions=True)
    assert [n for n, r in enumerate(results) if isinstance(r, BaseException)] == [50]
    assert await store.read(names) == sorted(f"t{n:03}" for n in range(100) if n != 50)


async def test_a_read_is_one_snapshot_while_others_write(store: Store) -> None:
    looked, written = threading.Event(), threading.Event()

    def twice(tx: Tx) -> tuple[list[str], list[str]]:
        before = names(tx)
        looked.set()
        assert written.wait(10)
        return before, names(tx)

    reading = asyncio.ensure_future(store.read(twice))
    assert await asyncio.to_thread(looked.wait, 10)
    await store.write(add("t1"))
    written.set()
    assert await reading == ([], [])
    assert await store.read(names) == ["t1"]


async def test_a_read_refuses_to_write(store: Store) -> None:
    with pytest.raises(StoreError, match="for reading only"):
        await store.read(add("t1"))
    assert await store.read(names) == []


async def test_a_second_row_with_a_unique_key_is_a_conflict(store: Store) -> None:
    await store.write(add("t1"))
    with pytest.raises(Conflict):
        await store.write(add("t1"))
    assert await store.write(lambda tx: tx.run("t_add_once", name="t1", value="2")) == 0


async def test_a_work_that_swallows_a_failed_statement_has_failed(store: Store) -> None:
    def stubborn(tx: Tx) -> str:
        try:
            tx.run("t_add", name="t1", value="2", at=1.0)
        except StoreError:
            return "never mind"
        return "stored"

    await store.write(add("t1"))
    with pytest.raises(Conflict):
        await store.write(stubborn)
    assert await store.write(add("t2")) == 1


async def test_nothing_follows_a_failed_statement(store: Store) -> None:
    def goes_on(tx: Tx) -> None:
        try:
            tx.all("t_wrong")
        except Exception:  # noqa: BLE001  # broad: each driver has its own
            tx.run("t_add", name="t1", value="1", at=1.0)

    with pytest.raises(Exception, match=r"no_such_table|aborted"):
        await store.write(goes_on)
    assert await store.read(names) == []


PARAMETERS = [
    pytest.param({"name": "naïve 🙂 \u2028 'quoted' 100%"}, id="unicode"),
    pytest.param({"name": ""}, id="empty"),
    pytest.param({"worker": None, "act_by": None}, id="none"),
    pytest.param({"act_by": 1_700_000_000.123456}, id="float"),
    pytest.param({"act_by": 0}, id="int-as-float"),
    pytest.param({"flag": True}, id="true"),
    pytest.param({"flag": False}, id="false"),
    pytest.param({"turn": 2**62}, id="big"),
    pytest.param({"name": "x" * 1_000_000}, id="long"),
]


@pytest.mark.parametrize("given", PARAMETERS)
async def test_a_parameter_comes_back_as_it_went(store: Store, given: dict[str, Any]) -> None:
    row = {"id": "c", "turn": 1, "flag": 1, "name": "n", "worker": "w", "act_by": 1.5, **given}
    await store.write(lambda tx: tx.run("t_call", **row))
    found = await store.read(lambda tx: tx.one("t_call_get", id="c"))
    assert found is not None
    columns = {"turn": "turn", "flag": "place", "name": "name", "worker": "worker"}
    assert {k: found[c] for k, c in columns.items()} == {k: row[k] for k in columns}
    assert found["act_by"] == row["act_by"]


async def test_many_runs_the_query_for_each_row(store: Store) -> None:
    rows = [{"name": f"t{n}", "value": "v", "at": 0.0} for n in range(3)]
    await store.write(lambda tx: tx.many("t_add", rows))
    await store.write(lambda tx: tx.many("t_add", []))
    assert await store.read(names) == ["t0", "t1", "t2"]


async def test_run_counts_the_rows_it_changed(store: Store) -> None:
    await store.write(add("t1"))
    assert await store.write(lambda tx: tx.run("t_set", name="t1", value="2")) == 1
    assert await store.write(lambda tx: tx.run("t_set", name="t9", value="2")) == 0


async def test_one_finds_nothing_as_none(store: Store) -> None:
    assert await store.read(lambda tx: tx.one("t_get", name="t1")) is None


async def test_a_percent_sign_in_a_query_is_only_that(store: Store) -> None:
    await store.write(add("t1"))
    assert await store.read(lambda tx: [r["name"] for r in tx.all("t_names", like="x%")]) == ["t1"]


async def test_the_dialects_own_form_of_a_query_wins(store: Store) -> None:
    row = await store.read(lambda tx: tx.one("t_dialect"))
    assert row is not None
    assert row["said"] == ("postgres" if store.dialect == "postgres" else "general")


def test_two_queries_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="t_same"):
        parse_queries(["-- name: t_same\nselect 1", "-- name: t_same\nselect 2"], "sqlite")


@pytest.mark.parametrize("order", [1, -1], ids=["general-first", "special-first"])
def test_the_order_of_two_forms_does_not_matter(order: int) -> None:
    texts = ["-- name: q\nselect :a", "-- name: q [postgres]\nselect :b"][::order]
    assert parse_queries(texts, "postgres") == {"q": "select %(b)s"}
    assert parse_queries(texts, "sqlite") == {"q": "select :a"}


async def test_every_named_query_is_one_the_backend_can_prepare(store: Any) -> None:
    """A slip in any query file, on either backend, fails here."""
    for name, text in load_queries(store.dialect).items():
        if not text.startswith(("pragma", "show")):
            store.queries["t_explain"] = f"explain {text}"
            asked = dict.fromkeys(re.findall(r"(?:%\(|(?<![:\w]):)([a-z_]\w*)", text))
            try:
                await store.write(lambda tx, asked=asked: tx.all("t_explain", **asked))
            except Exception as error:  # noqa: BLE001  # broad: each driver has its own
                pytest.fail(f"{name}: {error}")


async def test_opening_again_applies_no_migration_twice(store: Store, store_url: str) -> None:
    before = [tuple(dict(r).items()) for r in await store.read(lambda tx: tx.all("t_version"))]
    again = with_queries(await open_store(store_url))
    after = [tuple(dict(r).items()) for r in await again.read(lambda tx: tx.all("t_version"))]
    await again.close()
    assert before == after
    assert len(before) == newest()


async def test_two_who_open_a_new_store_at_once_both_get_it(store_url: str) -> None:
    first, second = await asyncio.gather(open_store(store_url), open_store(store_url))
    await with_queries(first).write(add("t1"))
    assert await with_queries(second).read(names) == ["t1"]
    await first.close()
    await second.close()


async def test_a_newer_schema_is_refused(store: Store, store_url: str) -> None:
    await store.write(lambda tx: tx.run("t_newer", number=newest() + 1))
    with pytest.raises(SchemaTooNew, match="newer"):
        await open_store(store_url)


async def test_closing_twice_is_harmless_and_a_closed_store_says_so(store: Store) -> None:
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.write(add("t1"))
    with pytest.raises(StoreError, match="closed"):
        await store.read(names)


async def test_closing_finishes_what_was_accepted(store: Store, store_url: str) -> None:
    writes = [asyncio.ensure_future(store.write(add(f"t{n:03}"))) for n in range(50)]
    await asyncio.sleep(0)  # each has handed its work over
    await store.close()
    assert await asyncio.gather(*writes) == [1] * 50
    again = with_queries(await open_store(store_url))
    assert len(await again.read(names)) == 50
    await again.close()


async def test_a_cancelled_caller_harms_no_neighbour(store: Store) -> None:
    running, go = threading.Event(), threading.Event()

    def slow(tx: Tx) -> str:
        running.set()
        assert go.wait(10)
        return "done"

    first = asyncio.ensure_future(store.write(slow))
    assert await asyncio.to_thread(running.wait, 10)
    writes = [asyncio.ensure_future(store.write(add(f"t{n}"))) for n in range(3)]
    await asyncio.sleep(0)
    writes[1].cancel()
    first.cancel()
    go.set()
    results = await asyncio.gather(first, *writes, return_exceptions=True)
    assert [type(r) for r in results] == [asyncio.CancelledError, int, asyncio.CancelledError, int]
    assert {"t0", "t2"} <= set(await store.read(names))


async def test_a_stop_iteration_reaches_its_caller(store: Store) -> None:
    def stop(tx: Tx) -> None:
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        await store.write(stop)


async def test_a_failed_commit_fails_all_and_stores_nothing(store: Any) -> None:
    def fail() -> None:
        raise OSError("the commit never reached the disk")

    store.before_commit = fail
    writes = (store.write(add(f"t{n}")) for n in range(10))
    results = await asyncio.gather(*writes, return_exceptions=True)
    store.before_commit = None
    assert [type(result) for result in results] == [StoreError] * 10
    assert len({id(result) for result in results}) == 10, "each caller gets an error of its own"
    assert await store.read(names) == []
    assert await store.write(add("t1")) == 1


async def test_each_commit_is_counted_and_waits_for_the_disk(store: Any) -> None:
    durable = await store.write(lambda tx: tx.one("store_durability"))
    assert next(iter(dict(durable).values())) == (2 if store.dialect == "sqlite" else "on")
    before = store.commits
    await store.write(add("t1"))
    assert store.commits == before + 1


@pytest.mark.parametrize("url", ["mysql://u:hunter2@h/d", "sqlite://", "http://x"])
async def test_an_address_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(Exception, match="cannot be opened at an address") as caught:
        await open_store(url)
    assert "hunter2" not in str(caught.value)
