"""Prices times tokens, and usage summed by day and by model."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from PIL import Image

from bot.commands.usage_plot import draw
from bot.commands.usage_text import bars, summed, table
from engine.models.base import Usage
from engine.models.catalogue import Price
from engine.models.usage import UsageLine, begun, by, by_day, cost, days_until
from engine.schedule import fires, schedules
from engine.schedule.words import When
from engine.store.base import Store, Tx

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
            "estimated": 0,
            "at": at,
        }
        for n, (at, model, tokens, dollars) in enumerate(made)
    ]


async def test_usage_is_summed_by_day_and_by_model_for_one_tenant(store: Store) -> None:
    await store.write(lambda tx: tx.many("usage_add", rows()))
    days = await store.read(lambda tx: by_day(tx, "t", 0, 9 * DAY, "UTC"))
    assert [(line.key, line.calls, line.input, line.unpriced) for line in days] == [
        ("1970-01-01", 2, 110, 1),
        ("1970-01-02", 1, 1, 0),
    ]
    east = await store.read(lambda tx: by_day(tx, "t", 0, 9 * DAY, "Asia/Kolkata"))
    assert [(line.key, line.calls) for line in east] == [("1970-01-01", 1), ("1970-01-02", 2)]
    models = await store.read(lambda tx: by(tx, "model", "t", 0, 9 * DAY))
    assert [(line.key, line.cost, line.cache_read) for line in models] == [
        ("a", 0.75, 50),
        ("b", 0.0, 5),
    ]
    assert await store.read(lambda tx: by(tx, "model", "t", 0, 9 * DAY, "q")) == []


async def test_usage_is_summed_by_schedule_and_by_person(store: Store) -> None:
    def write(tx: Tx) -> None:
        tx.run("principal_add", id="p", tenant="t", name="Ana", role="owner", now=0.0)
        planned = schedules.add(
            tx,
            tenant="t",
            owner="p",
            title="Briefing",
            when=When(zone="UTC", cron="0 8 * * *"),
            instructions="Brief us.",
            home="console:main",
            persona="cowork",
            model="a",
            now=1.0,
        )
        fired = fires.run_now(tx, planned.id, 2.0, data=Path("data"))
        tx.many("usage_add", [{**row, "session": fired.session} for row in rows()])

    assert await store.read(lambda tx: by(tx, "schedule", "t", 0, 9 * DAY)) == []
    await store.write(write)
    for kind, key in (("schedule", "Briefing"), ("person", "Ana")):
        lines = await store.read(lambda tx, kind=kind: by(tx, kind, "t", 0, 9 * DAY))
        assert [(line.key, line.calls, line.cost) for line in lines] == [(key, 3, 0.75)]


def test_a_day_and_a_month_begin_in_the_zone() -> None:
    at = datetime(2026, 11, 1, 0, 30, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    assert begun(at, "Europe/Berlin") == (at - 1800, at - 1800)
    day, month = begun(at, "UTC")
    assert (at - day, day - month) == (23.5 * 3600, 30 * DAY)


LINES = [
    UsageLine(key="2026-11-28", calls=2, input=90, output=10, cost=1.5),
    UsageLine(key="2026-11-29", calls=3, input=5, cost=0.3, unpriced=1, estimated=1),
]


def test_bars_are_as_long_as_what_was_spent() -> None:
    first, second = bars(LINES)
    assert first == f"2026-11-28 {'█' * 20} $1.50"
    assert second == f"2026-11-29 {'█' * 4:<20} $0.30+"
    free = [replace(line, cost=0.0) for line in LINES]
    assert next(iter(bars(free))).endswith("█ 100 tokens")
    assert list(bars([])) == []


def test_a_table_says_what_is_not_known() -> None:
    head, *lines = table([*LINES, UsageLine(key="x" * 50, calls=1, unpriced=1)], "day")
    assert len({len(line) for line in (head, *lines)} - {len(head)}) <= 1
    assert lines[1].endswith("0.3000+") and lines[2].endswith("unknown")
    assert list(table([], "day")) == ["No model has been called in that time."]
    assert summed(LINES[1]) == "3 calls, 5 tokens, $0.30+, 1 of them cut off and estimated"


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(LINES, id="two"),
        pytest.param([], id="none"),
        pytest.param([replace(LINES[0], key=f"11-{n:02}", cost=0.0) for n in range(60)], id="many"),
    ],
)
def test_a_chart_is_a_picture_with_a_bar_for_each_line(
    tmp_path: Path, lines: list[UsageLine]
) -> None:
    draw(lines, "What Nod used", tmp_path / "plots" / "a.png")
    with Image.open(tmp_path / "plots" / "a.png") as picture:
        assert (picture.format, picture.size) == ("PNG", (960, 480))
        colours = {colour for _, colour in picture.getcolors(1 << 20)}
    assert ((0x4A, 0x6F, 0xDC) in colours) is bool(lines)


@pytest.mark.parametrize(
    ("last", "hours"),
    [
        pytest.param("2026-03-30", 47, id="a-day-of-23-hours"),
        pytest.param("2026-10-26", 49, id="a-day-of-25-hours"),
        pytest.param("2026-06-15", 48, id="days-of-24-hours"),
    ],
)
def test_the_last_days_are_counted_on_the_calendar(last: str, hours: int) -> None:
    midnight = datetime.fromisoformat(last).replace(tzinfo=ZoneInfo("Europe/Berlin"))
    since, names = days_until(midnight.timestamp() + 12 * 3600, "Europe/Berlin", 3)
    assert midnight.timestamp() - since == hours * 3600
    assert names == [f"{midnight - timedelta(days=back):%Y-%m-%d}" for back in (2, 1, 0)]
