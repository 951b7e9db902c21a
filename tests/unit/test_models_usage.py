"""Prices times tokens, and usage summed by day and by model."""

from __future__ import annotations

import pytest

from bot.listings import usage_lines
from engine.models.base import Usage
from engine.models.catalogue import Price
from engine.models.usage import by_day, by_model, cost
from engine.store.base import Store

PRICE = Price(input=2.0, output=10.0, cache_read=0.5, cache_write=4.0)


@pytest.mark.parametrize(
    ("usage", "price", "dollars"),
    [
        pytest.param(Usage(input=1_000_000), PRICE, 2.0, id="input"),
        pytest.param(Usage(output=100_000), PRICE, 1.0, id="output"),
        pytest.param(
            Usage(input=1_000_000, cache_read=500_000, cache_write=250_000), PRICE, 1.75, id="cache"
        ),
        pytest.param(
            Usage(input=1_000_000, cache_read=500_000), Price(input=2, output=1), 2.0, id="no-cache"
        ),
        pytest.param(Usage(input=10, cache_read=20), PRICE, 20 * 0.5e-6, id="never-negative"),
        pytest.param(Usage(), PRICE, 0.0, id="nothing"),
        pytest.param(Usage(input=5), None, None, id="unknown"),
    ],
)
def test_cost_is_price_times_tokens(
    usage: Usage, price: Price | None, dollars: float | None
) -> None:
    assert cost(usage, price) == (None if dollars is None else pytest.approx(dollars))


DAY = 86_400.0


def rows() -> list[dict[str, object]]:
    """Return (at, model, tokens, cost) of some calls as rows to store."""
    made = [
        (0.4 * DAY, "a", 100, 0.5),
        (DAY - 0.1, "b", 10, None),
        (DAY, "a", 1, 0.25),
        (5 * DAY, "a", 999, 9.0),
    ]
    return [
        {
            "id": f"u{n}",
            "tenant": "other" if n == 3 else "t",
            "session": "s",
            "principal": "p",
            "turn": 1,
            "iteration": n,
            "purpose": "turn",
            "model": model,
            "input": tokens,
            "output": tokens,
            "cache_read": tokens // 2,
            "cache_write": 0,
            "cost": dollars,
            "at": at,
        }
        for n, (at, model, tokens, dollars) in enumerate(made)
    ]


async def test_usage_is_summed_by_day_and_by_model_for_one_tenant(store: Store) -> None:
    await store.write(lambda tx: tx.many("usage_add", rows()))
    days = await store.read(lambda tx: by_day(tx, "t", 0, 9 * DAY))
    assert [(line.key, line.calls, line.input, line.unpriced) for line in days] == [
        (0, 2, 110, 1),
        (1, 1, 1, 0),
    ]
    assert [line[:10] for line in usage_lines(days)][1:] == ["1970-01-01", "1970-01-02"]
    east = await store.read(lambda tx: by_day(tx, "t", 0, 9 * DAY, 12 * 3600))
    assert [(line.key, line.calls) for line in east] == [(0, 1), (1, 2)]
    models = await store.read(lambda tx: by_model(tx, "t", 0, 9 * DAY))
    assert [(line.key, line.calls, line.cost, line.cache_read) for line in models] == [
        ("a", 2, 0.75, 50),
        ("b", 1, 0.0, 5),
    ]
