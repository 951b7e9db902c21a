"""What the packages import is declared, what is declared is imported, and no file stays behind."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatch
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.unit.house import PACKAGES, ROOT, Module, imported, modules

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

#: Runtime dependencies that nothing imports by name, and why they are needed all the same.
NOT_IMPORTED = {
    "tzdata": "zoneinfo reads it where the system has no zones",
    "psycopg": "an extra; its import is checked with the extra installed",
}


def _declared(requirements: Iterable[str]) -> dict[str, str]:
    """Return name -> requirement, names in their normal form."""
    found = {}
    for requirement in requirements:
        name = re.split(r"[\[<>=!~; ]", requirement)[0]
        found[_normal(name)] = requirement
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


EXTRAS = PROJECT["project"]["optional-dependencies"]
RUNTIME = _declared(PROJECT["project"]["dependencies"])
POSTGRES = _declared(EXTRAS["postgres"])
TEST = _declared(EXTRAS["test"])


def _third_party(found: Iterable[Module]) -> dict[str, set[str]]:
    """Return top-level name -> the distributions that bring it, for what is not ours."""
    ours = {*PACKAGES, "tests", "__future__"}
    brought = packages_distributions()
    names = {name.split(".")[0] for module in found for name in imported(module)}
    names = {name for name in names if name not in ours and name not in sys.stdlib_module_names}
    return {name: {_normal(each) for each in brought.get(name, ())} for name in sorted(names)}


def _tests() -> list[Module]:
    paths = (ROOT / "tests").rglob("*.py")
    return [Module.of(path.stem, path.read_text(encoding="utf-8")) for path in paths]


def test_everything_the_packages_import_is_declared() -> None:
    declared = set(RUNTIME) | set(POSTGRES)
    found = _third_party(modules())
    missing = [name for name, bring in found.items() if not bring & declared]
    assert not missing, f"declare in pyproject.toml what brings: {', '.join(missing)}"


def test_everything_declared_is_imported() -> None:
    brought = set().union(*_third_party(modules()).values())
    idle = [name for name in RUNTIME if name not in brought and name not in NOT_IMPORTED]
    assert not idle, f"nothing imports, so take out: {', '.join(idle)}"


def test_the_postgres_driver_is_imported_only_by_its_store() -> None:
    users = {m.name for m in modules() for name in imported(m) if name.startswith("psycopg")}
    assert users == {"engine.store.postgres"}


def test_everything_the_tests_import_is_declared() -> None:
    declared = set(RUNTIME) | set(POSTGRES) | set(TEST)
    found = _third_party(_tests())
    missing = [name for name, bring in found.items() if not bring & declared]
    assert not missing, f"declare in the test extra what brings: {', '.join(missing)}"


@pytest.mark.parametrize("name", [*RUNTIME, *POSTGRES, *TEST, *_declared(EXTRAS["check"])])
def test_a_dependency_has_a_range(name: str) -> None:
    every = {**RUNTIME, **POSTGRES, **TEST, **_declared(EXTRAS["check"])}
    if name in ("nod-coworker", "tzdata"):  # ourselves; data that only gets righter
        return
    assert re.search(r"==|>=[\d.]+,<\d", every[name]), f"give {name} a lower and an upper bound"


def test_every_file_beside_the_code_goes_into_the_package() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["*"]
    left = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc") and not _goes(path, patterns)
    ]
    assert not left, f"package-data in pyproject.toml takes no: {', '.join(left)}"


def _goes(path: Path, patterns: Iterable[str]) -> bool:
    """Tell whether setuptools takes the file: its folder is a package, or below one by pattern."""
    return any(fnmatch(path.name, pattern) for pattern in patterns)


def test_importing_the_command_loads_no_provider_and_no_terminal() -> None:
    """`nod --help` is quick because the command line imports what it needs, when it needs it."""
    module = next(each for each in modules() if each.name == "bot.cli")
    top = [node for node in module.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = set(imported(Module.of("bot.cli", "\n".join(ast.unparse(node) for node in top))))
    third = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - {"__future__"}
    assert third <= {"typer", "engine", "bot"}
