"""Personas: what is read, what is refused and where, and the one that is shipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import SettingsError
from personas.manifest import read_manifest, read_prompt, split
from personas.registry import Personas

GOOD = """---
name: Analyst   # shown to people
tagline: 'Reads # and counts'
mode: plan
model: anthropic:claude-sonnet-5
tools:
  - read
  - "search"
---

You read numbers.

---
Still the prompt.
"""


def own(tmp_path: Path, text: str, name: str = "analyst") -> Path:
    folder = tmp_path / "personas" / name
    folder.mkdir(parents=True)
    (folder / "PERSONA.md").write_text(text, encoding="utf-8")
    return tmp_path / "personas"


def test_a_manifest_is_read_whole() -> None:
    manifest = read_manifest("analyst", GOOD, "PERSONA.md")
    assert (manifest.title, manifest.tagline) == ("Analyst", "Reads # and counts")
    persona = manifest.persona
    assert (persona.name, persona.mode, persona.model) == (
        "analyst",
        "plan",
        "anthropic:claude-sonnet-5",
    )
    assert persona.tools == ("read", "search")
    assert persona.prompt == "You read numbers.\n\n---\nStill the prompt."


SAME = [
    ("windows_lines", GOOD.replace("\n", "\r\n")),
    ("byte_order_mark", "\ufeff" + GOOD),
    ("list_in_a_line", GOOD.replace('tools:\n  - read\n  - "search"', "tools: [read, 'search']")),
]


@pytest.mark.parametrize("text", [s[1] for s in SAME], ids=[s[0] for s in SAME])
def test_the_same_manifest_written_otherwise_reads_the_same(text: str) -> None:
    assert read_manifest("analyst", text, "x") == read_manifest("analyst", GOOD, "x")


def test_without_front_matter_all_is_prompt() -> None:
    manifest = read_manifest("plain", "Just be brief. Prêt.", "PERSONA.md")
    assert (manifest.title, manifest.persona.prompt) == ("plain", "Just be brief. Prêt.")
    assert (manifest.persona.tools, manifest.persona.mode) == (None, "")


def test_no_tools_is_another_thing_than_all_tools() -> None:
    assert read_manifest("mute", "---\ntools: []\n---\nTalk.", "x").persona.tools == ()


WRONG = [
    (
        "D-198_unknown_field",
        "---\ntool: [read]\n---\nx",
        "line 2: there is no field 'tool'",
        "ls'?",
    ),
    ("unknown_far", "---\nname: A\nqqq: 1\n---\nx", "line 3: there is no field 'qqq'", "Known:"),
    ("text_for_a_list", "---\ntools: read\n---\nx", "line 2: 'tools' must be a list", "[a, b]"),
    ("list_for_a_text", "---\nname: [a]\n---\nx", "line 2: 'name' must be one text", "Mend"),
    ("no_mode", "---\nmode: fast\n---\nx", "line 2: 'mode' cannot be 'fast'", "interactive"),
    ("D-196_no_end", "---\nname: A\nx", "has no end", "a line that says ---"),
    ("no_prompt", "---\nname: A\n---\n  \n", "has no prompt", "below the second ---"),
    ("no_field", "---\nname: A\njust words\n---\nx", "line 3: this is no field", "name: value"),
    ("item_of_nothing", "---\n- a\n---\nx", "line 2: this is no field", "- item below"),
    ("twice", "---\nname: A\nname: B\n---\nx", "line 3: 'name' is here twice", "Remove one"),
    ("open_quotes", "---\nname: 'A\n---\nx", "line 2: these quotes do not end", "Close"),
    ("open_list", "---\ntools: [a, b\n---\nx", "line 2: this list has no end", "Close"),
    ("folded_text", "---\ntagline: >-\n  long\n---\nx", "line 2: this is YAML", "plain text"),
]


@pytest.mark.parametrize(("text", "what", "fix"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_wrong_manifest_fails_loudly_at_its_line(text: str, what: str, fix: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_manifest("analyst", text, "PERSONA.md")
    assert "PERSONA.md" in str(caught.value)
    assert what in str(caught.value)
    assert fix in str(caught.value)


@pytest.mark.parametrize("name", ["Big", "a/b", "..", "", "x" * 65, "ä"])
def test_an_id_that_could_be_a_path_or_a_look_alike_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="cannot be a persona's id"):
        read_manifest(name, "x", "PERSONA.md")


def test_the_shipped_persona_is_there_and_may_use_every_tool() -> None:
    personas = Personas.load()
    cowork = personas.require("cowork")
    assert cowork.title == "Cowork"
    assert cowork.persona.tools is None
    assert "You are Nod" in cowork.persona.prompt


def test_the_persons_own_persona_is_found_and_wins_over_a_shipped_one(tmp_path: Path) -> None:
    own(tmp_path, GOOD)
    personas = Personas.load(own(tmp_path, "Be someone else.", "cowork"))
    assert personas.names() == ["analyst", "cowork"]
    assert personas.get("cowork").prompt == "Be someone else."


def test_an_unknown_persona_is_the_default_one_for_a_session_and_an_error_for_a_person() -> None:
    personas = Personas.load()
    assert personas.get("gone").name == "cowork"
    with pytest.raises(SettingsError, match="Personas are cowork"):
        personas.require("gone")


def test_a_folder_without_a_manifest_is_told(tmp_path: Path) -> None:
    (tmp_path / "personas" / "empty").mkdir(parents=True)
    with pytest.raises(SettingsError, match=r"There is no .*empty/PERSONA\.md"):
        Personas.load(tmp_path / "personas")


def test_D_198_a_persona_that_wants_an_unknown_tool_is_told(tmp_path: Path) -> None:
    personas = Personas.load(own(tmp_path, GOOD))
    personas.check_tools({"read", "search"})
    with pytest.raises(SettingsError, match="wants the tool 'search'"):
        personas.check_tools({"read"})


def test_a_persona_may_want_what_comes_when_something_is_connected(tmp_path: Path) -> None:
    wanted = "".join(f"  - {each}\n" for each in ("mcp_files_*", "mcp_board_add", "github_search"))
    text = GOOD.replace('  - "search"\n', wanted)
    assert text != GOOD
    personas = Personas.load(own(tmp_path, text))
    personas.check_tools({"read"}, ("mcp_", "github_"))
    with pytest.raises(SettingsError, match="wants the tool 'github_search'"):
        personas.check_tools({"read"}, ("mcp_",))


def test_the_morning_briefing_is_a_prompt_with_lines_to_read_back() -> None:
    prompt = Personas.load().prompt("cowork", "morning-briefing")
    text = prompt.fill(repo="/r", calendar="/c.ics", report_to="console:standup")
    for line in ("repo: /r", "calendar: /c.ics", "report to: console:standup"):
        assert line in text.splitlines()
    assert "{" not in text


def test_what_fills_a_blank_is_not_read_as_a_blank() -> None:
    prompt = read_prompt("---\ntitle: T\ntakes: [a, b]\n---\n{a} {b}", "x.md")
    assert prompt.fill(a="{b}", b="2") == "{b} 2"
    with pytest.raises(SettingsError, match="'T' needs b"):
        prompt.fill(a="1")


def test_blanks_and_their_names_must_agree() -> None:
    with pytest.raises(SettingsError, match="do not agree on b"):
        read_prompt("---\ntitle: T\ntakes: [a]\n---\n{a} {b}", "x.md")


def test_a_prompt_is_found_only_by_its_name() -> None:
    with pytest.raises(SettingsError, match="no prompt"):
        Personas.load().prompt("cowork", "../PERSONA")


def test_a_list_keeps_its_order_and_comments_are_dropped() -> None:
    document = split("---\na: # none yet\n  - 1 # one\n\n  - 2\n---\n", "x")
    assert document.fields == {"a": ("1", "2")}
