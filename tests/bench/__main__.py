"""Runs the scenes, each in a fresh process, and prints every figure as one JSON object."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench import machine, scenes
from tests.bench.setting import Setting


def main() -> None:
    """Measure what the command line asks for."""
    asked = _asked()
    began, load = time.perf_counter(), machine.load()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="nod-bench-", dir=asked.folder) as name:
        folder = Path(name).resolve()
        about = machine.described(folder)
        for scene in scenes.wanted(asked.only):
            place = folder / scene
            place.mkdir()
            figures |= scenes.measured(scene, Setting(place, asked.url, asked.quick))
    print(
        json.dumps(
            {
                "machine": about,
                "store": asked.url.partition("://")[0] or "sqlite",
                "quick": asked.quick,
                "load": {"before": load, "after": machine.load()},
                "seconds": round(time.perf_counter() - began, 1),
                "met": all(row["met"] for row in figures.values()),
                "figures": figures,
            },
            indent=2,
        )
    )


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", default="", help="a scene, or a figure by a part of its name")
    parser.add_argument("--quick", action="store_true", help="fewer runs, fewer parked turns")
    parser.add_argument("--url", default="", help="postgresql://… instead of a SQLite file")
    parser.add_argument("--folder", default=None, help="where to put the data; else a temp folder")
    return parser.parse_args()


if __name__ == "__main__":
    main()
