"""The catalogue: what is known, the person's file over ours, and mistakes in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import SettingsError
from engine.models.base import UnknownModel
from engine.models.catalogue import Catalogue, Price

OURS = Catalogue.load()


@pytest.mark.parametrize(
    ("model", "provider", "name"),
    [
        pytest.param("gpt-4o", "openai", "gpt-4o", id="bare"),
        pytest.param("anthropic:claude-x", "anthropic", "claude-x", id="prefix"),
        pytest.param("openrouter:v/model:free", "openrouter", "v/model:free", id="keeps-colon"),
        pytest.param("ollama:llama3.2:3b", "ollama", "llama3.2:3b", id="ollama-tag"),
        pytest.param("google:gemini-9", "gemini", "gemini-9", id="alias-google"),
        pytest.param("grok:grok-4", "xai", "grok-4", id="alias-grok"),
        pytest.param("zhipu:glm-5", "glm", "glm-5", id="alias-zhipu"),
        pytest.param("moonshot:k", "kimi", "k", id="alias-moonshot"),
        pytest.param("dashscope:q", "qwen", "q", id="alias-dashscope"),
    ],
)
def test_an_id_names_its_provider(model: str, provider: str, name: str) -> None:
    found, rest = OURS.split(model)
    assert (found.name, rest) == (provider, name)
    assert OURS.entry(model).id == f"{provider}:{name}"


@pytest.mark.parametrize("model", ["antropic:claude", "vendor/model:free", "openai:", ":x", ""])
def test_an_unknown_prefix_is_refused_with_names(model: str) -> None:
    with pytest.raises(UnknownModel):
        OURS.split(model)


def test_the_nearest_provider_is_named() -> None:
    with pytest.raises(UnknownModel, match=r"Did you mean anthropic.*Providers are .*ollama"):
        OURS.split("antropic:claude")


def test_an_unknown_model_gets_cautious_defaults() -> None:
    entry = OURS.entry("ollama:never-heard-of")
    assert (entry.window, entry.vision, entry.pdf, entry.parallel) == (32_000, False, False, False)
    assert entry.price is None and entry.max_output is None and not entry.known


def test_patterns_are_applied_from_general_to_specific() -> None:
    entry = OURS.entry("anthropic:claude-sonnet-4-5-20250929")
    assert entry.vision and entry.pdf and entry.window == 200_000
    assert entry.price == Price(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75)
    assert OURS.entry("openai:gpt-3.5-turbo").vision is False


def test_every_provider_we_promise_is_there() -> None:
    promised = """openai anthropic gemini ollama lmstudio vllm deepseek glm kimi qwen minimax
    mistral xai together fireworks openrouter groq practice""".split()
    assert set(promised) <= set(OURS.providers)


def test_a_persons_file_overlays_field_by_field(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text(
        '[providers.openai]\nbase_url = "http://here/v1"\n'
        '[models."openai:gpt-4.1"]\nwindow = 5\n'
        '[models."ollama:mine*"]\nvision = true\n'
    )
    mine = Catalogue.load(file, {"corp": {"base_url": "https://gw/v1", "key": ["CORP_KEY"]}})
    assert mine.providers["openai"].base_url == "http://here/v1"
    assert mine.providers["openai"].key == ("OPENAI_API_KEY",)
    entry = mine.entry("gpt-4.1")
    assert entry.window == 5 and entry.price == OURS.entry("gpt-4.1").price
    assert mine.entry("ollama:mine:7b").vision
    corp = mine.entry("corp:any/model:x").provider
    assert (corp.protocol, corp.key, corp.base_url_variable) == (
        "openai",
        ("CORP_KEY",),
        "CORP_BASE_URL",
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("a = [", "not valid TOML", id="syntax"),
        pytest.param("\nb = 1 2", "line 2", id="syntax-line"),
        pytest.param('\n[models."x"]\nwindw = 1', r"line 2: \[models.x\].*window", id="typo"),
        pytest.param('[models."x"]\nwindow = "big"', "whole number", id="kind"),
        pytest.param('[models."x"]\nwindow = true', "whole number", id="bool-is-no-number"),
        pytest.param('[models."x"]\nwindow = 0', "below 1", id="zero"),
        pytest.param('[models."x"]\nprice = {input = 1}', "malformed price", id="half-price"),
        pytest.param(
            '[models."x"]\nprice = {input = 1, output = -1}', "malformed price", id="negative"
        ),
        pytest.param('[models."x"]\nreasoning = "much"', "Choose one of", id="choice"),
        pytest.param("[models]\nx = 1", "not a table", id="no-table"),
        pytest.param("models = 1", "must be tables", id="no-tables"),
        pytest.param("[prices]\nx = 1", r"unknown section \[prices\]", id="section"),
        pytest.param("[providers.gw]\nkey = []", "no base_url", id="no-base-url"),
        pytest.param('[providers."G W"]\nbase_url = "x"', "is no name", id="name"),
    ],
)
def test_a_malformed_file_is_named_with_its_entry(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "models.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=says) as raised:
        Catalogue.load(file)
    assert "models.toml" in str(raised.value)


def test_a_key_written_into_the_file_is_refused_and_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text('[providers.gw]\nbase_url = "x"\nkey = ["sk-secret-123"]')
    with pytest.raises(SettingsError, match="environment variable") as raised:
        Catalogue.load(file)
    assert "sk-secret-123" not in str(raised.value)


def test_an_unreadable_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        Catalogue.load(tmp_path / "absent.toml")


def test_importing_the_layer_loads_no_sdk() -> None:
    names = ["base", "catalogue", "content", "router", "local", "practice", "usage"]
    code = f"import sys\nfor n in {names}: __import__('engine.models.' + n)\n"
    code += "heavy = {'aisuite', 'openai', 'anthropic', 'google.genai', 'pypdf', 'pydantic'}\n"
    code += "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
