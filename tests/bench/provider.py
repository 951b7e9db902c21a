"""A model provider in a process of its own, so that its CPU is not ours; a fake on loopback.

Run as `python -m tests.bench.provider`: prints its address, and ends when its input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.fakes.llm import KEY, FakeLLM, Reply

__all__ = ["TOOLS", "provider"]

TOOLS = 'Look around with "look".'  # a message that says so is answered with calls


@asynccontextmanager
async def provider() -> AsyncIterator[dict[str, str]]:
    """Run the provider; yields the environment in which it is OpenAI."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.bench.provider",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        async with asyncio.timeout(30):
            url = (await process.stdout.readline()).decode().strip()
        yield {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{url}/v1"}
    finally:
        process.stdin.close()
        await process.wait()


def _answer(fake: FakeLLM, body: dict[str, Any]) -> Reply:
    """Answer in plain text, or as in a turn of four model calls with eight read-only calls."""
    fake.seen.clear()
    fake.replies = (lambda following: _answer(fake, following),)
    step, at = 0, len(body["messages"]) - 1
    while body["messages"][at]["role"] != "user":
        step += body["messages"][at]["role"] == "assistant"
        at -= 1
    if step == 3 or TOOLS not in str(body["messages"][at]["content"]):
        return Reply(text="Nothing new.")
    labels = "abc" if step < 2 else "ab"
    return Reply(calls=tuple(("look", json.dumps({"label": f"{each}{step}"})) for each in labels))


async def _serve() -> None:
    async with FakeLLM() as fake:
        fake.replies = (lambda body: _answer(fake, body),)
        print(fake.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
