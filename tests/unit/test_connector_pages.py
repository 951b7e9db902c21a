"""What `nod connectors` tells and writes: pages from declarations, a skeleton that works."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from connectors import pages
from connectors.registry import CONNECTORS, load
from engine.errors import NodError
from tests.unit.house import ROOT


@pytest.mark.parametrize("name", CONNECTORS)
def test_a_page_tells_every_tool_and_what_it_does_to_the_world(name: str) -> None:
    page, connector = pages.page(name), load(name)
    for each in connector.declared:
        assert f"### {name}_{each.run.__name__}\n" in page
    for auth in connector.auth:
        for field in getattr(auth, "fields", ()):
            assert field.title in page
    assert page.startswith(f"# {CONNECTORS[name].title}\n")


@pytest.mark.parametrize("name", CONNECTORS)
def test_every_argument_of_every_tool_is_explained(name: str) -> None:
    for each in load(name).declared:
        text = each.run.__doc__ or ""
        own = [n for n in each.run.__annotations__ if n not in ("api", "return")]
        missing = [argument for argument in own if f"{argument}: " not in text]
        assert not missing, f"{each.run.__name__}: {missing}"


@pytest.mark.parametrize("name", ["github", "Acme", "a b", "../x", "", "1st"], ids=str)
def test_a_name_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(NodError):
        pages.skeleton(name, "Acme")


def test_a_new_connector_passes_its_contract_as_it_is_written(tmp_path: Path) -> None:
    """The skeleton, put into a copy of the checkout, holds what every connector holds."""
    for each in ("connectors", "engine", "bot", "personas", "tests"):
        shutil.copytree(ROOT / each, tmp_path / each, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for path, text in pages.skeleton("acme", "Acme").items():
        (tmp_path / path).write_text(text)
    registry = tmp_path / "connectors" / "registry.py"
    entry = (
        '"acme": Entry(module="connectors.acme", title="Acme", about="x"),\n    "github": Entry('
    )
    registry.write_text(registry.read_text().replace('"github": Entry(', entry, 1))
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "tests/contract/test_connectors.py",
            "-k",
            "acme",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
    assert " passed" in ran.stdout
