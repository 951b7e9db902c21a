"""Markdown to each platform: how fast, and whether anything of random texts is refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from bot.render import discord, slack, telegram
from tests.bench import machine
from tests.bench.figure import Figure, percentiles
from tests.bench.setting import Setting
from tests.fakes import markup
from tests.unit.render_texts import LONG, documents

TEXTS = 20_000

FIGURES = (
    *(
        Figure(
            name=f"render_{name}",
            text=f"an answer of 7,000 characters, rendered for {name.capitalize()}",
            original="not measured",
            target={},
        )
        for name in ("slack", "telegram", "discord")
    ),
    Figure(
        name="render_fuzz",
        text="20,000 random Markdown texts, in the form of each platform, given to the fakes",
        original="not measured",
        target={"refused": 0},
    ),
)


async def measure(setting: Setting) -> dict[str, dict[str, Any]]:
    """Return what was measured, by figure."""
    times = setting.times(200)
    return {
        "render_slack": _speed(slack.render, times),
        "render_telegram": _speed(telegram.render, times),
        "render_discord": _speed(discord.render, times),
        "render_fuzz": _fuzz(setting.times(TEXTS)),
    }


def _speed(render: Callable[[str], Sequence[Any]], times: int) -> dict[str, Any]:
    samples = []
    for _ in range(times + 1):  # the first is the warm-up
        began = time.perf_counter()
        render(LONG)
        samples.append(time.perf_counter() - began)
    measured = percentiles(samples[1:])
    rate = len(LONG) / measured["p50_ms"] * 1e3
    return {**measured, "characters_per_s": round(rate), "runs": times, "load": machine.load()}


def _fuzz(texts: int) -> dict[str, Any]:
    refused: list[str] = []
    messages, began = 0, time.perf_counter()
    for text in documents(seed=1, count=texts):
        for take in (_slack, _telegram, _discord):
            try:
                messages += take(text)
            except markup.Refused as error:
                refused.append(f"{take.__name__}: {error}: {text!r}")
    return {
        "texts": texts,
        "messages": messages,
        "refused": len(refused),
        "first": refused[:3],
        "seconds": round(time.perf_counter() - began, 1),
    }


def _slack(text: str) -> int:
    parts = slack.render(text)
    for part in parts:
        markup.slack_message(part.blocks, part.fallback)
    return len(parts)


def _telegram(text: str) -> int:
    parts = telegram.render(text)
    for part in parts:
        markup.telegram_html(part.html)
        markup.telegram_entities(part.plain, [])
    return len(parts)


def _discord(text: str) -> int:
    parts = discord.render(text)
    for part in parts:
        markup.discord_content(part)
    return len(parts)
