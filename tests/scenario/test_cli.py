"""The command line: what it shows, what it changes without a running Nod, and every bad input."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bot import cli
from bot.child import Child
from engine import inbox
from engine.inbox import Prompt
from engine.store.lock import AdvanceLock
from engine.store.opening import open_store

ROOT = Path(__file__).parents[2]

#: Arguments -> (exit code, stdout, stderr)
Nod = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of its own, and nothing else in the environment that Nod would take."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    for name in [n for n in os.environ if n.startswith("NOD_") or n.endswith("_KEY")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NOD_HOME", str(data))
    monkeypatch.setenv("NOD_MODEL", "practice:rules")
    monkeypatch.chdir(tmp_path)
    return data


@pytest.fixture
def nod(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Nod]:
    """Run `nod` with these words, in this process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def run(*words: str, **variables: str) -> tuple[int, str, str]:
        with monkeypatch.context() as changed:
            changed.setattr(sys, "argv", ["nod", *words])
            for name, value in variables.items():
                changed.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                cli.main()
        code = ended.value.code
        shown = capsys.readouterr()
        return (code if isinstance(code, int) else 0), shown.out, shown.err

    yield run
    root.handlers[:], root.level = handlers, level


def made_store(home: Path) -> Path:
    """Make an empty store and return its file."""

    async def make() -> None:
        await (await open_store(str(home / "nod.db"))).close()

    asyncio.run(make())
    return home / "nod.db"


def contents(home: Path) -> dict[Path, bytes]:
    """Return every file but the two SQLite keeps beside a database while it is open."""
    files = [file for file in home.rglob("*") if file.is_file()]
    return {f: f.read_bytes() for f in files if not f.name.endswith(("-shm", "-wal"))}


def test_help_lists_every_command_and_loads_nothing_slow(nod: Nod) -> None:
    code, out, _ = nod("--help")
    assert code == 0
    for command in ("doctor", "demo", "serve", "approve", "inbox", "schedule", "session", "backup"):
        assert re.search(rf"^  {command} ", out, re.M)


def test_the_version_is_told(nod: Nod) -> None:
    assert re.match(r"nod (\d+\.\d+|from its sources)", nod("version")[1])


# -- bad input


def _broken_settings(home: Path) -> None:
    (home / "nod.toml").write_text("mode = auto\n", encoding="utf-8")


def _unknown_setting(home: Path) -> None:
    (home / "nod.toml").write_text("\nmodell = 'x'\n", encoding="utf-8")


def _junk_database(home: Path) -> None:
    (home / "nod.db").write_bytes(b"no database at all" * 100)


def _damaged_database(home: Path) -> None:
    file = made_store(home)
    raw = bytearray(file.read_bytes())
    raw[100:4096] = bytes(3996)  # the first page: the schema
    file.write_bytes(raw)


def _newer_schema(home: Path) -> None:
    with sqlite3.connect(made_store(home)) as connection:
        connection.execute("insert into schema_version values (999, 'later', 0)")
    connection.close()


def _broken_catalogue(home: Path) -> None:
    (home / "nod.toml").write_text("catalogue = 'models.toml'\n", encoding="utf-8")
    (home / "models.toml").write_text("[model.x]\n", encoding="utf-8")


def _broken_persona(home: Path) -> None:
    (home / "personas" / "mine").mkdir(parents=True)
    (home / "personas" / "mine" / "PERSONA.md").write_text("---\nname: x\n", encoding="utf-8")


def _persona_with_unknown_tool(home: Path) -> None:
    (home / "personas" / "mine").mkdir(parents=True)
    text = "---\ntools: [teleport]\n---\nGo."
    (home / "personas" / "mine" / "PERSONA.md").write_text(text, encoding="utf-8")


def _broken_key(home: Path) -> None:
    (home / "button.key").write_bytes(b"short")


def _nothing(home: Path) -> None:
    pass


STARTS: list[tuple[str, Callable[[Path], None], dict[str, str], str]] = [
    ("broken_settings", _broken_settings, {}, r"nod\.toml, line 1, column 8: .*Mend that line"),
    ("unknown_setting", _unknown_setting, {}, r"line 2: there is no setting 'modell'.*'model'"),
    ("unknown_variable", _nothing, {"NOD_MODEL_": "x"}, r"variable NOD_MODEL_\. Did you mean"),
    ("unknown_model", _nothing, {"NOD_MODEL": "opnai:x"}, r"'opnai:x' names no provider.*openai"),
    ("unknown_fallback", _nothing, {"NOD_FALLBACKS": "nope:x"}, r"'nope:x' names no provider"),
    ("missing_key", _nothing, {"NOD_MODEL": "openai:gpt-5"}, r"needs a key.*Set OPENAI_API_KEY"),
    ("unknown_persona", _nothing, {"NOD_PERSONA": "ghost"}, r"no persona 'ghost'.*cowork"),
    ("no_database", _junk_database, {}, r"nod\.db is no database; it was not changed.*restore"),
    ("damaged_database", _damaged_database, {}, r"damaged.*not changed.*restore"),
    ("newer_schema", _newer_schema, {}, r"schema 999; this Nod knows schemas up to \d+.*newer"),
    ("broken_catalogue", _broken_catalogue, {}, r"models\.toml: unknown section \[model\]"),
    ("no_catalogue", _nothing, {"NOD_CATALOGUE": "none.toml"}, r"none\.toml cannot be read"),
    ("broken_persona", _broken_persona, {}, r"front matter of .*PERSONA\.md has no end"),
    ("persona_tool", _persona_with_unknown_tool, {}, r"wants the tool 'teleport'"),
    ("broken_key", _broken_key, {}, r"button\.key is not a key"),
    ("wrong_store", _nothing, {"NOD_STORE": "mysql://x"}, r"kind 'mysql://'.*postgresql://"),
]


@pytest.mark.parametrize(
    ("prepare", "variables", "told"), [s[1:] for s in STARTS], ids=[s[0] for s in STARTS]
)
def test_a_start_that_cannot_be_says_why_in_one_line_and_changes_nothing(
    nod: Nod,
    home: Path,
    prepare: Callable[[Path], None],
    variables: dict[str, str],
    told: str,
) -> None:
    prepare(home)
    before = contents(home)
    code, out, err = nod("serve", **variables)
    assert (code, out) == (1, "")
    assert re.search(told, err), err
    assert len(err.strip().splitlines()) == 1
    assert before.items() <= contents(home).items()
    assert not (home / "nod.sock").exists()


def test_a_second_start_on_the_same_folder_is_refused(nod: Nod, home: Path) -> None:
    lock = AdvanceLock.take(home)
    try:
        code, _, err = nod("serve")
        assert code == 1
        assert re.fullmatch(r"Another Nod \(process \d+\) is at work on .*Postgres\.\n", err)
        code, _, err = nod("new")
        assert (code, err) == (1, "Nod is just starting or stopping. Try again in a moment.\n")
    finally:
        lock.release()


def test_a_data_folder_that_cannot_be_is_told(nod: Nod, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    code, _, err = nod("serve", NOD_HOME=str(tmp_path / "file" / "nod"))
    assert code == 1
    assert "Set NOD_HOME to a folder you may write to." in err


COMMANDS: list[tuple[str, list[str], int, str]] = [
    ("no_such_command", ["aprove"], 2, "No such command"),
    ("wrong_option", ["demo", "--fast"], 2, "No such option"),
    ("two_answers", ["approve", "p1", "--deny", "--always"], 2, "Choose one of"),
    ("reason_for_a_yes", ["approve", "p1", "--reason", "x"], 2, "--reason goes with --deny"),
    ("nothing_to_do", ["schedule", "add", "0 8 * * *"], 2, "Say what to do"),
    ("no_such_prompt", ["approve", "p1"], 1, "No prompt has an id that begins with 'p1'"),
    ("no_arguments_json", ["approve", "p1", "--edit", "{x"], 1, "These arguments are no JSON"),
    ("no_such_mode", ["mode", "fast"], 1, "There is no mode 'fast'. Choose one of"),
    ("no_such_model", ["model", "nope:x"], 1, "'nope:x' names no provider"),
    ("nothing_said", ["mode"], 1, "Nothing was said in console:main yet"),
    ("bad_thread", ["new", "--thread", "a b"], 1, "is no thread target"),
    ("hidden_thread", ["new", "--thread", ".x"], 1, "is no console thread"),
    ("bad_cron", ["schedule", "add", "x y", "go"], 1, "do not surely understand 'x y'"),
    ("bad_zone", ["schedule", "add", "0 8 * * *", "go", "--zone", "Mars/Base"], 1, "Mars/Base"),
    ("never", ["schedule", "add", "0 0 31 2 *", "go"], 1, "never comes"),
    ("past", ["schedule", "add", "2020-01-02 8:00", "go"], 1, "it is now"),
    ("bad_retry", ["schedule", "add", "@daily", "go", "--retry", "9"], 1, "Write 0 to 5"),
    ("bad_overlap", ["schedule", "add", "@daily", "go", "--overlap", "x"], 1, "'overlap x'"),
    ("bad_quiet", ["schedule", "add", "@daily", "go", "--quiet", "22-25"], 1, "no time of day"),
    ("bad_deadline", ["schedule", "add", "@daily", "go", "--deadline", "9"], 1, "'deadline 9'"),
    ("bad_target", ["schedule", "add", "0 8 * * *", "go", "--report-to", "me"], 1, "no thread"),
    ("no_folder", ["schedule", "add", "0 8 * * *", "go", "--read", "none"], 1, "There is no"),
    ("no_prompt_file", ["schedule", "add", "0 8 * * *", "--prompt", "x"], 1, "no prompt 'x'"),
    ("no_schedule", ["schedule", "remove", "c1"], 1, "No schedule has an id"),
    ("no_session", ["session", "show", "s1"], 1, "No session has an id that begins with 's1'"),
    ("every_session", ["session", "delete", "%"], 1, "No session has an id"),
    ("stop_alone", ["stop"], 1, "nod stop needs a running Nod. Start `nod` or `nod serve` first"),
    ("say_alone", ["say", "hello"], 1, "nod say needs a running Nod"),
    ("no_archive", ["restore", "none.tar.gz"], 1, "There is no backup at"),
]


@pytest.mark.parametrize(
    ("words", "code", "told"), [c[1:] for c in COMMANDS], ids=[c[0] for c in COMMANDS]
)
def test_a_command_that_cannot_be_says_why(
    nod: Nod, home: Path, words: list[str], code: int, told: str
) -> None:
    made_store(home)
    ended, _, err = nod(*words)
    assert ended == code
    assert told in err
    assert "Traceback" not in err


def test_looking_before_the_first_start_says_so_and_makes_nothing(nod: Nod, home: Path) -> None:
    for words in (
        ["inbox"],
        ["usage"],
        ["usage", "--by", "day"],
        ["session", "list"],
        ["audit", "verify"],
    ):
        code, _, err = nod(*words)
        assert code == 1
        assert "Start Nod once; it makes one." in err
    assert list(home.iterdir()) == []


def test_what_went_wrong_inside_is_one_sentence_and_a_traceback_in_the_log(
    nod: Nod, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("with a correct-horse in it")

    monkeypatch.setattr(cli, "_settings", broken)
    code, _, err = nod("usage", MY_TOKEN="correct-horse")
    assert code == 1
    assert (
        err
        == f"Something went wrong inside Nod (RuntimeError). The details are in {home}/nod.log.\n"
    )
    log = (home / "nod.log").read_text(encoding="utf-8")
    assert "RuntimeError: with a [secret] in it" in log


# -- without a running Nod


def test_the_rules_of_a_schedule_are_set_from_the_shell_and_shown(nod: Nod) -> None:
    rules = ["--catch-up", "all", "--overlap", "queue", "--deadline", "30m", "--retry", "2"]
    code, out, err = nod("schedule", "add", "0 8 * * *", "Go", *rules, "--quiet", "22:00-07:00")
    assert (code, err) == (0, "")
    said = "catch up all, queue, deadline 30 min, retry 2, quiet 22:00-07:00"
    assert out.rstrip().endswith(f"Rules: {said}.")
    shown = nod("schedule", "show", out.split()[1].rstrip(":"))[1]
    for line in (
        "Missed while Nod was down: each is made up, the oldest first",
        "Due while a run is at work: waits until that run has ended, 12 at most",
        "Deadline: stopped after 30 min at work",
        "After an error: tried again after 1 min, 5 min;",
        "Quiet hours: 22:00-07:00",
        "Budget: none of its own",
    ):
        assert line in shown


def test_a_schedule_is_added_from_a_prompt_file_listed_and_removed(nod: Nod, home: Path) -> None:
    words = ["--prompt", "morning-briefing", "--set", f"repo={home}", "--set", "calendar=/c.ics"]
    more = ["--report-to", "console:standup", "--read", str(home), "--zone", "Europe/Berlin"]
    code, out, err = nod("schedule", "add", "0 8 * * 1-5", *words, *more)
    assert (code, err) == (0, "")
    found = re.match(
        r"Schedule (c\w+): At 08:00, Monday .* \(Europe/Berlin\) \(0 8 \* \* 1-5\)", out
    )
    assert found
    listed = nod("schedule", "list")[1]
    assert re.search(
        rf"{found[1]}  0 8 \* \* 1-5 .* next \d{{4}}-.* 08:00  Morning briefing", listed
    )
    for verb, says in (
        ("show", "At 08:00, Monday through Friday"),
        ("history", "It has not run yet."),
        ("pause", "is paused"),
        ("resume", "goes on: next"),
    ):
        code, out, _ = nod("schedule", verb, found[1][:6])
        assert code == 0 and says in out
    assert nod("schedule", "remove", found[1][:6])[0] == 0
    assert nod("schedule", "list")[1] == "There are no schedules.\n"
    assert nod("audit", "verify")[1] == "The audit is whole.\n"


def test_a_session_is_opened_steered_shown_and_deleted(nod: Nod, home: Path) -> None:
    assert nod("new")[1] == "A new session begins here.\n"
    assert nod("mode", "plan")[1] == "Mode plan from now.\n"
    session = nod("session", "list")[1].split()[0]
    assert nod("session", "show", session[:6])[1].startswith(f"Session {session}")
    assert nod("session", "delete", session)[0] == 0
    assert nod("session", "list")[1] == "There are no sessions yet.\n"
    assert "deleted" in nod("audit", "show")[1]


def asked(home: Path, session: str, name: str) -> str:
    """Write an open approval of the session, as a parked turn leaves one."""

    async def ask() -> str:
        store = await open_store(str(home / "nod.db"))
        prompt = Prompt(
            id=f"p{name}",
            tenant="local",
            session=session,
            kind="approval",
            subject=name,
            call=None,
            hash="ab" * 32,
            payload={"title": "Run send_message?", "tool": "send_message", "arguments": {"a": 1}},
            approvers={"role": "owner"},
            created_at=1.0,
            deadline=9e9,
        )
        await store.write(lambda tx: inbox.ask(tx, prompt))
        await store.close()
        return prompt.id

    return asyncio.run(ask())


ANSWERS = [
    ("yes", [], r"Approved by @console", "once"),
    ("no", ["--deny", "--reason", "it's too early"], r"Denied by .*: it's too early", "deny"),
    ("edited", ["--edit", '{"a": "two words"}'], r"Approved with changes", "edit"),
]


@pytest.mark.parametrize(
    ("words", "said", "kind"), [a[1:] for a in ANSWERS], ids=[a[0] for a in ANSWERS]
)
def test_a_card_is_answered_while_nothing_runs_and_the_next_start_goes_on(
    nod: Nod, home: Path, words: list[str], said: str, kind: str
) -> None:
    nod("new")
    session = nod("session", "list")[1].split()[0]
    prompt = asked(home, session, "one")
    assert prompt in nod("inbox")[1]
    assert "Run send_message?" in nod("inbox")[1]
    assert '"a": 1' in nod("inbox", prompt)[1]
    code, out, err = nod("approve", prompt, *words)
    assert (code, err) == (0, "")
    assert re.match(said, out)
    assert nod("inbox")[1] == "Nothing waits for you.\n"
    assert re.search(rf"decided .*by console  on shell .*{kind}", nod("audit", "show", session)[1])
    assert nod("approve", prompt)[1].startswith("Already decided.")


def test_a_backup_is_written_and_brought_back_and_its_cards_still_answer(
    nod: Nod, home: Path, tmp_path: Path
) -> None:
    nod("new")
    session = nod("session", "list")[1].split()[0]
    prompt = asked(home, session, "one")
    archive = str(tmp_path / "nod.tar.gz")
    code, out, _ = nod("backup", archive)
    assert (code, out.startswith(f"Backed up to {archive}")) == (0, True)
    nod("session", "delete", session)
    assert nod("restore", archive)[0] == 1  # the folder is in use
    code, out, _ = nod("restore", archive, "--replace")
    assert (code, out.startswith(f"Restored to {home}. What was there is kept in")) == (0, True)
    assert session in nod("session", "list")[1]
    assert nod("approve", prompt)[1].startswith("Approved by @console")


# -- with a running Nod


async def _ready(child: Child, home: Path) -> None:
    async with asyncio.timeout(20):
        while "nod is ready" not in (home / "serve.log").read_text(encoding="utf-8"):
            child.check()
            await asyncio.sleep(0.02)


def test_a_running_nod_takes_commands_and_ends_in_order(nod: Nod, home: Path) -> None:
    child = Child(home, {**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        asyncio.run(_ready(child, home))
        assert nod("say", "Good morning", "--thread", "work")[1] == "Said in console:work.\n"
        assert nod("mode", "discuss", "--thread", "work")[1] == "Mode discuss from now.\n"
        assert nod("schedule", "add", "0 8 * * *", "Look around")[0] == 0
        assert "console:work" in nod("session", "list")[1]
        code, _, err = nod("serve")
        assert (code, f"Another Nod (process {child.pid}) is at work" in err) == (1, True)
        assert "whole" in nod("doctor")[1]
    finally:
        code = asyncio.run(child.stop())
    assert code == 0
    assert not (home / "nod.sock").exists()
    assert "Traceback" not in (home / "serve.log").read_text(encoding="utf-8")
