"""The doctor: what is there, what is missing, what mends it; a key is named and never shown."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bot import doctor
from bot.doctor import Finding
from connectors import accounts
from connectors.registry import secrets_of
from engine import inbox
from engine.inbox import Prompt
from engine.store.base import Store
from engine.store.opening import open_store

NOON = 1_790_000_000.0


async def found(tmp_path: Path, **more: str) -> dict[str, Finding]:
    variables = {"NOD_HOME": str(tmp_path / "data"), "NOD_MODEL": "practice:rules", **more}
    findings = await doctor.examine(variables, lambda: NOON)
    return {finding.name: finding for finding in findings}


async def store_in(tmp_path: Path) -> Store:
    (tmp_path / "data").mkdir(mode=0o700)
    return await open_store(str(tmp_path / "data" / "nod.db"))


async def test_a_fresh_machine_is_sound_and_nothing_is_made(tmp_path: Path) -> None:
    findings = await found(tmp_path)
    assert doctor.sound(findings.values())
    assert findings["data"].state == findings["store"].state == "note"
    assert findings["running"].fix == "nod"
    assert list(tmp_path.iterdir()) == []


async def test_broken_settings_are_told_and_nothing_after_them(tmp_path: Path) -> None:
    findings = await found(tmp_path, NOD_MODE="fast")
    assert list(findings) == ["python", "settings"]
    assert not doctor.sound(findings.values())
    assert "Choose one of discuss" in findings["settings"].fix


async def test_an_mcp_server_that_cannot_start_is_told_with_what_mends_it(tmp_path: Path) -> None:
    file = tmp_path / "nod.toml"
    file.write_text(
        "[mcp.gone]\ncommand = 'no-such-program'\n"
        "[mcp.bare]\ncommand = 'sh'\nenv = ['BOARD_TOKEN']\n"
        "[mcp.fine]\ncommand = 'sh'\nenv = ['HELD']\n"
    )
    findings = await found(tmp_path, NOD_CONFIG=str(file), HELD="correct-horse")
    assert findings["mcp gone"].text == "there is no program 'no-such-program' here"
    assert findings["mcp bare"].fix == "nod secrets set BOARD_TOKEN"
    assert (findings["mcp fine"].state, findings["mcp fine"].text) == ("ok", "sh")
    assert "correct-horse" not in "\n".join(doctor.lines(findings.values()))


async def test_a_key_is_named_and_never_shown(tmp_path: Path) -> None:
    key = {"OPENAI_API_KEY": "correct-horse"}
    findings = await found(tmp_path, NOD_MODEL="openai:gpt-5", **key)
    assert "key in OPENAI_API_KEY" in findings["model"].text
    assert "correct-horse" not in "\n".join(doctor.lines(findings.values()))


def _junk(data: Path) -> None:
    (data / "nod.db").write_bytes(b"junk")


def _no_folder(data: Path) -> None:
    data.rmdir()
    data.write_text("", encoding="utf-8")


MISSING: list[tuple[str, Callable[[Path], None], dict[str, str], str, str]] = [
    ("no_key", lambda data: None, {"NOD_MODEL": "openai:gpt-5"}, "model", "Set OPENAI_API_KEY"),
    ("no_model", lambda data: None, {"NOD_MODEL": "nope:x"}, "model", "Providers are"),
    ("junk_store", _junk, {}, "store", "nod restore"),
    ("no_folder", _no_folder, {}, "data", "Set NOD_HOME"),
]


@pytest.mark.parametrize(
    ("spoil", "more", "name", "fix"), [m[1:] for m in MISSING], ids=[m[0] for m in MISSING]
)
async def test_what_is_needed_and_missing_is_marked_with_what_mends_it(
    tmp_path: Path, spoil: Callable[[Path], None], more: dict[str, str], name: str, fix: str
) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    spoil(tmp_path / "data")
    findings = await found(tmp_path, **more)
    assert findings[name].state == "missing"
    assert fix in findings[name].fix
    assert not doctor.sound(findings.values())


async def test_a_store_that_is_damaged_inside_is_found(tmp_path: Path) -> None:
    store = await store_in(tmp_path)
    await store.close()
    file = tmp_path / "data" / "nod.db"
    raw = bytearray(file.read_bytes())
    middle = len(raw) // 2
    raw[middle : middle + 8192] = b"\xff" * 8192
    file.write_bytes(raw)
    finding = (await found(tmp_path))["store"]
    assert finding.state == "missing"
    assert "damaged" in finding.text


async def test_what_waits_is_counted_with_the_command_that_shows_it(tmp_path: Path) -> None:
    store = await store_in(tmp_path)
    prompt = Prompt(
        id="p1",
        tenant="local",
        session=None,
        kind="notice",
        subject="x",
        approvers={"role": "owner"},
        created_at=NOON,
        deadline=NOON + 1,
    )
    await store.write(lambda tx: inbox.ask(tx, prompt))
    await store.close()
    findings = await found(tmp_path)
    assert (findings["inbox"].text, findings["inbox"].fix) == ("1 waiting", "nod inbox")
    assert findings["store"].text.endswith("· whole")
    assert findings["schedules"].text == "none"


async def test_a_folder_others_may_enter_is_noted_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    finding = (await found(tmp_path))["data"]
    assert (finding.state, finding.fix) == ("note", f"chmod 700 '{tmp_path}/data'")


async def test_without_git_and_ripgrep_the_doctor_says_what_that_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    findings = await found(tmp_path)
    assert "no git tools" in findings["git"].text
    assert "slower" in findings["ripgrep"].text
    assert doctor.sound(findings.values())


async def test_a_clock_in_the_past_is_missing(tmp_path: Path) -> None:
    findings = await doctor.examine({"NOD_HOME": str(tmp_path)}, lambda: 0.0)
    (clock,) = [each for each in findings if each.name == "clock"]
    assert (clock.state, clock.fix) == ("missing", "Set the system's clock.")


def test_findings_are_shown_one_a_line_with_their_mending() -> None:
    shown = doctor.lines(
        [
            Finding(name="git", text="/usr/bin/git"),
            Finding(name="data", state="missing", text="gone", fix="Make it."),
        ]
    )
    assert list(shown) == ["✓ git        /usr/bin/git", "✗ data       gone", f"{'':13}→ Make it."]


async def test_secrets_are_told_by_platform_and_never_shown(tmp_path: Path) -> None:
    findings = await found(tmp_path, SLACK_BOT_TOKEN="xoxb-secret-value")
    assert findings["secrets"].text == "none kept · tokens for slack"
    assert "xoxb" not in "".join(doctor.lines(findings.values()))


async def test_a_damaged_vault_is_told_with_what_mends_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    secrets_of({}, data).set("A", "b")
    (data / "vault.db").write_bytes(b"damaged")
    findings = await found(tmp_path)
    assert findings["secrets"].state == "missing"
    assert "Restore it" in findings["secrets"].fix


async def test_platforms_that_never_answer_hold_the_doctor_up_no_longer_than_its_patience(
    tmp_path: Path,
) -> None:
    ends = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ends.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    variables = {
        "NOD_HOME": str(tmp_path),
        "NOD_MODEL": "practice:rules",
        "TELEGRAM_BOT_TOKEN": "7000001:AAFake-token_that_is_35_characters_x",
        "NOD_TELEGRAM_BASE_URL": url,
        "DISCORD_BOT_TOKEN": "a-token",
        "NOD_DISCORD_BASE_URL": url,
    }
    try:
        async with asyncio.timeout(10):
            findings = await doctor.examine(variables, lambda: NOON, patience=0.2)
    finally:
        ends.set()
        server.close()
    late = {each.name: each for each in findings if "within 0.2 s" in each.text}
    assert set(late) == {"telegram", "discord"}
    assert late["discord"].fix.endswith("nod discord")
    assert not doctor.sound(findings)


async def test_an_app_that_refused_an_account_is_told_with_what_mends_it(tmp_path: Path) -> None:
    store = await store_in(tmp_path)
    for name in ("github", "jira"):
        made = await store.write(
            lambda tx, name=name: accounts.add(tx, "local", name, "ana", "console", now=NOON)
        )
    assert (await found(tmp_path))["apps"].text == "github, jira"
    await store.write(lambda tx: accounts.mark(tx, made, "revoked", NOON))
    findings = await found(tmp_path)
    assert (findings["apps"].state, findings["apps"].fix) == ("note", "nod connect jira")
    assert doctor.sound(findings.values())
    await store.close()
