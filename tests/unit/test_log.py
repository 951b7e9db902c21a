"""The log: what is or looks like a secret does not reach it, not even inside a traceback."""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot import log
from engine.errors import SettingsError


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in set(root.handlers) - set(handlers):
        handler.close()
    root.handlers[:], root.level = handlers, level


def written(tmp_path: Path, level: str = "info", **environ: str) -> Path:
    file = tmp_path / "nod.log"
    log.start(level, log.secrets_in(environ, ["GATE"]), file)
    return file


def test_a_secret_of_the_environment_is_blotted_out_also_in_a_traceback(tmp_path: Path) -> None:
    file = written(tmp_path, MY_TOKEN="correct-horse", GATE="battery-staple", NAME="plain-name")
    try:
        raise ValueError("sent correct-horse")
    except ValueError:
        logging.getLogger("nod").exception("with battery-staple and plain-name")
    text = file.read_text(encoding="utf-8")
    assert "correct-horse" not in text
    assert "battery-staple" not in text
    assert "plain-name" in text
    assert "ValueError: sent [secret]" in text


LOOKS = [
    ("openai", "sk-proj-abcdefghijklmnop1234"),
    ("google", "AIza" + "a" * 35),
    ("slack", "xoxb-1234567890-abcdef"),
    ("github", "ghp_" + "a" * 36),
    ("telegram", "123456789:" + "A" * 35),
    ("bearer", "Bearer abcdef.ghijkl"),
    ("address", "postgresql://nod:hush@db.example/nod"),
]


@pytest.mark.parametrize("text", [x[1] for x in LOOKS], ids=[x[0] for x in LOOKS])
def test_what_looks_like_a_secret_is_blotted_out(text: str) -> None:
    shown = log.Redactor([]).redact(f"before {text} after")
    assert "[secret]" in shown
    assert text not in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")


def test_a_short_value_hides_no_common_word() -> None:
    assert log.secrets_in({"API_KEY": "on", "OTHER_KEY": "a-long-enough-one"}) == [
        "a-long-enough-one"
    ]


def test_requests_are_not_told_even_at_debug(tmp_path: Path) -> None:
    file = written(tmp_path, level="debug")
    logging.getLogger("httpx").info("GET https://api.example/bot123/x")
    logging.getLogger("nod").debug("ours")
    text = file.read_text(encoding="utf-8")
    assert "api.example" not in text
    assert "ours" in text


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    assert stat.S_IMODE(written(tmp_path).stat().st_mode) == 0o600


def test_a_log_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"The log .* cannot be written"):
        log.start("info", [], tmp_path / "no" / "such" / "nod.log")
