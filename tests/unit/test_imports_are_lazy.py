"""Nod is ready before anything is loaded that nobody has used: no platform, no provider's SDK."""

from __future__ import annotations

from pathlib import Path

import pytest

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
