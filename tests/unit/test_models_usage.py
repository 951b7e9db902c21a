"""Prices times tokens, and usage summed by day and by model."""

from __future__ import annotations

import pytest

from engine.models.base import Usage
from engine.models.catalogue import Price
from engine.models.usage import cost

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
