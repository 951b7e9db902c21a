"""Starting Nod: how long, how much memory, and which libraries it has loaded when it is ready."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from tests.bench import machine
from tests.bench.figure import Figure, percentiles
from tests.bench.process import imported, started
from tests.bench.setting import Setting

GOAL = {"p50_ms": 800.0, "rss_mb": 60.0, "unused_modules": 0}

FIGURES = (
    Figure(
        name="start_console",
        text="process start to ready, console",
        original="1.4 s, 80 MB",
        target=GOAL,
    ),
    Figure(
        name="start_service",
        text="process start to ready, service",
        original="1.4 s, 80 MB",
        target=GOAL,
    ),
    Figure(
        name="load_provider",
        text="loading a provider's SDK afterwards, in the background",
        original="within the 1.4 s",
        target={},
    ),
)

STARTS = 9

#: What nobody has used yet when Nod is ready.
UNUSED = ("openai anthropic google.genai aisuite slack_bolt telegram discord pypdf mcp").split()

_LOAD = """
import asyncio, time, psutil
from engine.models.catalogue import Catalogue
from engine.models.router import Router
async def load():
    router = Router(Catalogue.load(), {{"{variable}": "no-key"}})
    before, began = psutil.Process().memory_info().rss, time.perf_counter()
    await router.warm("{model}")
    seconds = time.perf_counter() - began
    print(seconds, (psutil.Process().memory_info().rss - before) / 1e6)
    await router.aclose()
asyncio.run(load())
"""
_PROVIDERS = {
    "openai": ("OPENAI_API_KEY", "openai:gpt-5.2"),
    "anthropic": ("ANTHROPIC_API_KEY", "anthropic:claude-sonnet-5"),
    "gemini": ("GEMINI_API_KEY", "gemini:gemini-flash-latest"),
}


async def measure(setting: Setting) -> dict[str, dict[str, Any]]:
    """Return what was measured, by figure."""
    return {
        "start_console": await _start(setting, []),
        "start_service": await _start(setting, ["serve"]),
        "load_provider": {name: await _load(*of) for name, of in _PROVIDERS.items()},
    }


async def _start(setting: Setting, words: Sequence[str]) -> dict[str, Any]:
    data, url = setting.place()
    environ = {"NOD_HOME": str(data), "NOD_STORE": url, "NOD_MODEL": "practice:rules"}
    first = await started(words, environ, ["-X", "importtime"])  # also the warm-up
    modules = imported(first.said)
    unused = sorted(name for name in UNUSED if name in modules)
    starts = [await started(words, environ) for _ in range(setting.times(STARTS))]
    return {
        **percentiles([each.seconds for each in starts]),
        "cpu_ms": sorted(each.cpu_ms for each in starts)[len(starts) // 2],
        "rss_mb": max(each.rss_mb for each in starts),
        "modules": len(modules),
        "unused_modules": len(unused),
        "unused": unused,
        "runs": len(starts),
        "load": machine.load(),
    }


async def _load(variable: str, model: str) -> dict[str, float]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _LOAD.format(variable=variable, model=model),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    seconds, grown = map(float, said.split())
    return {"ms": round(seconds * 1e3, 1), "rss_mb": round(grown, 1)}
