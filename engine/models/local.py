"""Finds the model a person already has: by a key in the environment, else on a local server."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

from engine.models.catalogue import Catalogue, Provider

__all__ = ["choose", "probe"]

#: Seconds a local server has to list its models; one that is there answers in a few milliseconds.
PROBE_TIMEOUT = 0.3
#: Bytes of the list that are read.
PROBE_LIMIT = 1_000_000

#: Providers in the order their keys are looked for.
KEYED = (
    "anthropic openai gemini openrouter deepseek mistral xai groq kimi glm qwen minimax "
    "together fireworks"
).split()
#: Servers on their well-known local ports, in the order they are taken.
LOCAL = ("ollama", "lmstudio", "vllm", "llamacpp")

Probe = Callable[[str], Awaitable[list[str]]]


async def choose(
    environ: Mapping[str, str], catalogue: Catalogue | None = None, *, probe: Probe | None = None
) -> tuple[str, str]:
    """Return (model id, one sentence that says why).

    Args:
        environ: where keys and NAME_BASE_URL addresses are found.
        probe: address -> the models listed there, [] when nobody answers.
    """
    catalogue = catalogue or Catalogue.load()
    for name in KEYED:
        provider = catalogue.providers[name]
        variable = next((v for v in provider.key if environ.get(v, "").strip()), None)
        if variable is not None:
            return f"{name}:{provider.default}", f"{variable} is set."
    servers = [catalogue.providers[name] for name in LOCAL]
    addresses = [environ.get(p.base_url_variable) or p.base_url for p in servers]
    listed = await asyncio.gather(*map(probe or _probe_in_thread, addresses))
    for provider, address, models in zip(servers, addresses, listed, strict=True):
        model = _pick(models)
        if model is not None:
            return f"{provider.name}:{model}", f"{_label(provider)} runs here, at {address}."
    return "practice:rules", "No key is set and no local model server answers."


def probe(base_url: str) -> list[str]:
    """Return the models an OpenAI-compatible server lists, [] when there is none. Blocking."""
    address = urlsplit(base_url)
    connection = http.client.HTTPConnection(
        address.hostname or "localhost", address.port, timeout=PROBE_TIMEOUT
    )
    try:
        connection.request("GET", f"{address.path.rstrip('/')}/models")
        response = connection.getresponse()
        body = json.loads(response.read(PROBE_LIMIT)) if response.status == 200 else {}
        found = [model.get("id") for model in body.get("data") or ()]
    except (OSError, http.client.HTTPException, ValueError, AttributeError, TypeError):
        return []  # whoever answers on that port is no model server
    finally:
        connection.close()
    return [each for each in found if isinstance(each, str)]


async def _probe_in_thread(base_url: str) -> list[str]:
    return await asyncio.to_thread(probe, base_url)


def _pick(models: list[str]) -> str | None:
    """Return the first model that can talk."""
    return next((model for model in models if "embed" not in model.lower()), None)


def _label(provider: Provider) -> str:
    names = {"ollama": "Ollama", "lmstudio": "LM Studio", "llamacpp": "llama.cpp", "vllm": "vLLM"}
    return names[provider.name]
