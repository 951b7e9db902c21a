"""What every store backend keeps: the same suite on SQLite and Postgres."""

from __future__ import annotations

from engine.store.base import Store, Tx


def put(tx: Tx, name: str, value: str = "1") -> int:
    return tx.run("put", name=name, value=value)


async def test_a_committed_write_is_seen_by_the_next_read(store: Store) -> None:
    assert await store.read(lambda tx: tx.all("store_durability")) is not None
