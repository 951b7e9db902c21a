"""Nod is ready before anything is loaded that nobody has used: no platform, no provider's SDK."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import hands
from tests.bench.process import imported, started
from tests.bench.starting import UNUSED


@pytest.mark.parametrize(
    ("words", "also_unused"),
    [
        pytest.param(["serve"], ["prompt_toolkit", "rich"], id="service"),
        pytest.param([], ["rich"], id="console"),
    ],
)
async def test_what_is_not_used_is_not_imported_when_nod_is_ready(
    words: list[str], also_unused: list[str], tmp_path: Path
) -> None:
    environ = {"NOD_HOME": str(tmp_path), "NOD_MODEL": "practice:rules"}

    ready = await started(words, environ, ["-X", "importtime"])

    modules = imported(ready.said)
    assert "engine.turn.drive" in modules, "the imports were not seen"
    assert [name for name in [*UNUSED, *also_unused] if name in modules] == []


@pytest.mark.parametrize("connected", [False, True], ids=["none connected", "all connected"])
async def test_what_only_a_call_of_a_connector_uses_is_not_imported_at_the_start(
    connected: bool, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'nod.db'}"
    if connected:
        await hands.plant(tmp_path, url)
    environ = {"NOD_HOME": str(tmp_path), "NOD_STORE": url, "NOD_MODEL": "practice:rules"}

    ready = await started(["serve"], environ, ["-X", "importtime"])

    modules = imported(ready.said)
    assert "connectors.http" in modules, "the imports were not seen"
    assert ("connectors.letters" in modules) is connected, "those that are connected are loaded"
    assert [name for name in hands.UNUSED if name in modules] == []
