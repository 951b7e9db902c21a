"""The README keeps its word: its commands, card, settings and examples are the real ones."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from typer.testing import CliRunner

from bot import cards, settings
from bot.cli import app
from bot.commands.table import COMMANDS
from bot.picking import load_catalogue
from bot.surfaces.table import PLATFORMS
from engine.inbox import Prompt
from engine.models.local import KEYED
from tests.unit.house import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
SETTINGS = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
#: Every document that shows commands.
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"]

#: Commands only the terminal has: they steer what it shows, not a session.
TERMINAL = frozenset({"thread", "quit"})


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


def _commands() -> list[str]:
    """Return every `nod …` command that is shown in a block or inline."""
    found = []
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for block in _blocks(text, "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                part = line.split("  #")[0].rpartition("| ")[2]
                if part.split()[:1] == ["nod"]:
                    found.append(part.strip())
        prose = re.sub(r"```.*?```", "", text, flags=re.S)
        found += [re.sub(r"\s*…$", "", each) for each in re.findall(r"`(nod(?: [^`]+)?)`", prose)]
    return list(dict.fromkeys(found))


def _words(command: str) -> list[str]:
    words = shlex.split(command)[1:]
    return words[: words.index("--")] if "--" in words else words  # the rest is another program


def _subcommand(words: list[str]) -> list[str]:
    """Return the words that name the subcommand: those whose help is another page."""
    groups = {"schedule", "session", "audit", "mcp", "hook"}
    if not words or words[0].startswith("-"):
        return []
    return words[:2] if words[0] in groups and len(words) > 1 else words[:1]


@pytest.mark.parametrize("command", _commands())
def test_a_command_that_is_shown_exists_with_its_options(command: str) -> None:
    words = _words(command)
    shown = CliRunner().invoke(app, [*_subcommand(words), "--help"])
    assert shown.exit_code == 0, shown.output
    for word in words:
        if word.startswith("-"):
            option = word.partition("=")[0]
            assert re.search(rf"(^|[\s,]){re.escape(option)}\b", shown.output), option


def test_every_subcommand_is_in_the_readme() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output.partition("Commands:")[2]
    names = re.findall(r"^  (\w+) ", shown, re.M)
    assert "serve" in names
    missing = [name for name in names if not re.search(rf"\bnod {name}\b", README)]
    assert missing in ([], ["version"])


@pytest.mark.parametrize(
    "line",
    [
        "python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/nod demo",
        "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]' && "
        ".venv/bin/pytest -q -n auto",
    ],
    ids=["demo", "tests"],
)
def test_the_two_commands_stand_there_exactly_alone_in_their_block(line: str) -> None:
    assert f"{line}\n" in _blocks(README, "sh")


def test_the_commands_of_a_thread_are_all_there_and_real() -> None:
    named = set(re.findall(r"`/(\w+)", README))
    assert named == set(COMMANDS) | TERMINAL


def test_the_picture_is_a_card_as_it_is_rendered() -> None:
    text = "Release day. Code freeze at noon; the retry fix is not merged yet."
    outside = "calendar:team.ics"
    prompt = Prompt(
        id="p0123456789ab",
        tenant="local",
        session="s1",
        kind="approval",
        subject="c1/0",
        payload={
            "title": "Run send_message?",
            "tool": "send_message",
            "risk": "external",
            "preview": f"To console:standup:\n\n{text}",
            "target": ["console:standup"],
            "rule_target": ["console:standup"],
            "reason": f"It reaches console:standup, while the session holds text from {outside}.",
            "taint": [outside],
        },
    )
    card = cards.card_of([prompt], "console:main", b"k" * 32, str, ZoneInfo("UTC"))
    shown = cards.text_of(card).replace("```", "").replace("**", "").replace("`", "")
    assert _blocks(README, "text")[0] == shown + "\n"


def _platforms_to_come() -> set[str]:
    """Return the sections of settings whose surface is not there yet."""
    surfaces = ROOT / "bot" / "surfaces"
    coming = {name for name in PLATFORMS if not (surfaces / f"{name}.py").exists()}
    return coming | ({"web", "voice"} if len(coming) == len(PLATFORMS) else set())


def test_the_table_of_settings_has_every_setting_with_its_variable_and_default() -> None:
    rows = {
        cells[0].strip("` "): [cell.replace("`", "").strip() for cell in cells[1:3]]
        for line in SETTINGS.splitlines()
        if line.startswith("| `") and len(cells := line.strip("|").split("|")) == 4
    }
    names = re.findall(r"^\| `([\w.]+)` \| `NOD_", SETTINGS, re.M)
    assert len(names) == len(set(names)), "each stands there once"
    del rows["nod.toml"]  # the head of the table
    defaults = settings.load({"NOD_HOME": "/nowhere"})
    said = {"store": "nod.db in the data folder", "model": "the first one found"}
    said |= {"zone": "the system's"}
    for name, (variable, default) in rows.items():
        assert variable == "NOD_" + name.upper().replace(".", "_")
        section, _, key = name.rpartition(".")
        place = getattr(defaults, section, defaults) if section else defaults
        value = getattr(place, "retention_days" if section == "retention" else key)
        assert default == said.get(name, "none" if value in ("", (), None) else str(value)), name
    coming = _platforms_to_come()
    assert set(rows) == {name for name in settings._KEYS if name.partition(".")[0] not in coming}


def test_the_endpoint_of_the_example_is_understood(tmp_path: Path) -> None:
    block = next(each for each in _blocks(README, "toml") if "[providers." in each)
    (tmp_path / "nod.toml").write_text(block, encoding="utf-8")
    read = settings.load({"NOD_HOME": str(tmp_path)})
    provider = load_catalogue(read).entry(read.model).provider
    assert (provider.name, provider.base_url) == ("office", "http://localhost:9000/v1")


def test_the_variables_that_are_named_are_the_providers_own(tmp_path: Path) -> None:
    catalogue = load_catalogue(settings.load({"NOD_HOME": str(tmp_path)}))
    known = {key for name in KEYED for key in catalogue.providers[name].key}
    named = set(re.findall(r"`([A-Z]+_API_KEY)`", README))
    assert named <= known
