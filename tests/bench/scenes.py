"""The scenes: each measures some figures, in a process where nothing is loaded or cached."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from types import ModuleType
from typing import Any

from tests.bench import (
    appends,
    crowd,
    hands,
    later,
    loopback,
    mcp,
    parked,
    platforms,
    rendering,
    starting,
    turns,
)
from tests.bench.setting import Setting

__all__ = ["measured", "wanted"]

_SCENES: dict[str, ModuleType] = {
    "turns": turns,
    "loopback": loopback,
    "crowd": crowd,
    "parked": parked,
    "starting": starting,
    "later": later,
    "mcp": mcp,
    "hands": hands,
    "appends": appends,
    "platforms": platforms,
    "rendering": rendering,
}


def wanted(only: str) -> list[str]:
    """Return the scenes that are named so, or measure a figure with `only` in its name."""
    if only in _SCENES:
        return [only]
    return [
        name
        for name, scene in _SCENES.items()
        if any(only in figure.name for figure in scene.FIGURES)
    ]


def measured(scene: str, setting: Setting) -> dict[str, Any]:
    """Run a scene in a fresh process and return its rows."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
        rows: dict[str, Any] = pool.submit(_run, scene, setting).result()
    return rows


def _run(name: str, setting: Setting) -> dict[str, Any]:
    logging.basicConfig(level=logging.WARNING)
    scene = _SCENES[name]
    found = asyncio.run(scene.measure(setting))
    return {figure.name: figure.report(found[figure.name]) for figure in scene.FIGURES}
