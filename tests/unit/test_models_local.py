"""The model a person has is found: a key first, then a local server, then practice."""

from __future__ import annotations

import socket
import time

import pytest

from engine.models import local
from engine.models.local import choose, probe
from tests.fakes.llm import FakeLLM

OLLAMA = "http://localhost:11434/v1"
VLLM = "http://localhost:8000/v1"


def listing(**found: list[str]) -> local.Probe:
    """Return a probe that finds these models at these addresses."""
    addresses = {"ollama": OLLAMA, "vllm": VLLM, "elsewhere": "http://box:1/v1"}
    by_address = {addresses[name]: models for name, models in found.items()}

    async def ask(address: str) -> list[str]:
        return by_address.get(address, [])

    return ask


@pytest.mark.parametrize(
    ("environ", "found", "model", "why"),
    [
        pytest.param({}, {}, "practice:rules", "No key", id="nothing"),
        pytest.param({"OPENAI_API_KEY": "k"}, {}, "openai:gpt-5.6-sol", "OPENAI_API_KEY", id="key"),
        pytest.param(
            {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"},
            {"ollama": ["a"]},
            "anthropic:claude-sonnet-5",
            "ANTHROPIC_API_KEY",
            id="ordered",
        ),
        pytest.param({"GOOGLE_API_KEY": "k"}, {}, "gemini:gemini-flash-latest", "GOOGLE", id="2nd"),
        pytest.param({"OPENAI_API_KEY": " "}, {}, "practice:rules", "No key", id="blank-key"),
        pytest.param({}, {"ollama": ["qwen3:4b"]}, "ollama:qwen3:4b", "Ollama runs", id="ollama"),
        pytest.param(
            {}, {"ollama": ["nomic-embed-text"], "vllm": ["m"]}, "vllm:m", "vLLM", id="no-embedding"
        ),
        pytest.param(
            {"OLLAMA_BASE_URL": "http://box:1/v1"},
            {"elsewhere": ["m"]},
            "ollama:m",
            "http://box:1/v1",
            id="address",
        ),
    ],
)
async def test_the_first_that_is_there_is_taken(
    environ: dict[str, str], found: dict[str, list[str]], model: str, why: str
) -> None:
    chosen, sentence = await choose(environ, probe=listing(**found))
    assert chosen == model and why in sentence
    assert "k" not in environ.values() or " k" not in sentence


async def test_a_real_server_is_asked_for_its_models() -> None:
    async with FakeLLM() as fake:
        fake.service.models = ("embed-x", "talker")
        environ = {
            "OLLAMA_BASE_URL": "http://127.0.0.1:1/v1",
            "LMSTUDIO_BASE_URL": f"{fake.url}/v1",
            "VLLM_BASE_URL": "http://127.0.0.1:1/v1",
            "LLAMACPP_BASE_URL": f"{fake.url}/nothing",
        }
        assert (await choose(environ))[0] == "lmstudio:talker"


def test_a_server_that_says_nothing_costs_only_the_stated_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        assert probe(f"http://127.0.0.1:{silent.getsockname()[1]}/v1") == []
        assert time.monotonic() - started < local.PROBE_TIMEOUT + 1
