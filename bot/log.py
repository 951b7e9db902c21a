"""The log: to stderr, or to a file when a person sits at the terminal; secrets never reach it."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from engine.errors import SettingsError

__all__ = ["Redactor", "hide", "secrets_in", "start"]

#: Their lines at info tell every request's address, which may hold a token.
_CHATTY = (
    "httpx",
    "httpcore",
    "openai",
    "anthropic",
    "google_genai",
    "urllib3",
    "apscheduler",
    "aiohttp",
    "slack_sdk",
    "slack_bolt",
    "telegram",
    "discord",
    "mcp",
    "client",  # the MCP SDK's, too
    "httpx2",
)

_FILE_BYTES = 2_000_000  # of one log file; two older ones are kept
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.I)
_SHORTEST = 8  # characters; a shorter value would hide common words

_PATTERNS = re.compile(
    r"""
      \bsk-[\w-]{16,}                 # OpenAI, Anthropic, OpenRouter, DeepSeek
    | \bAIza[\w-]{30,}                # Google
    | \bx(?:ox[a-z]|app)-[\w-]{10,}   # Slack
    | \b(?:gh[pousr]_|github_pat_)\w{20,}
    | \b\d{6,}:[\w-]{30,}             # Telegram
    | (?<=Bearer\ )[\w.~+/=-]{8,}
    | (?<=://)[^\s/:@]*:[^\s/@]+(?=@) # name and password in an address
    """,
    re.X,
)


class Redactor(logging.Formatter):
    """Formats a record, traceback included, and blots out what is or looks like a secret."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._secrets = frozenset[str]()
        self._known: re.Pattern[str] | None = None
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Blot out these values too from now on."""
        self._secrets |= {each for each in secrets if len(each) >= _SHORTEST}
        known = sorted(self._secrets, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def format(self, record: logging.LogRecord) -> str:
        """Return the line as it may be written."""
        return self.redact(super().format(record))

    def redact(self, text: str) -> str:
        """Return `text` without secrets."""
        if self._known is not None:
            text = self._known.sub("[secret]", text)
        return _PATTERNS.sub("[secret]", text)


def secrets_in(environ: Mapping[str, str], named: Iterable[str] = ()) -> list[str]:
    """Return the values of variables that are named or look like secrets."""
    wanted = frozenset(named)
    return [
        value
        for name, value in environ.items()
        if len(value) >= _SHORTEST and (name in wanted or _SECRET_NAME.search(name))
    ]


def hide(secrets: Iterable[str]) -> None:
    """Blot these values out of whatever the log is sent to; before `start` there is no log."""
    held = list(secrets)
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, Redactor):
            handler.formatter.learn(held)


def start(level: str, secrets: Iterable[str], file: Path | None = None) -> Redactor:
    """Send the log to `file`, or to stderr, from `level` on; replaces what was set up before.

    Raises SettingsError when the file cannot be written.
    """
    redactor = Redactor(secrets)
    handler = logging.StreamHandler(sys.stderr) if file is None else _file_handler(file)
    handler.setFormatter(redactor)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    return redactor


def _file_handler(file: Path) -> logging.Handler:
    from logging.handlers import RotatingFileHandler  # only here: it imports sockets and pickles

    try:
        file.touch(mode=0o600)
        return RotatingFileHandler(file, maxBytes=_FILE_BYTES, backupCount=2, encoding="utf-8")
    except OSError as error:
        raise SettingsError(
            f"The log {file} cannot be written ({error.strerror}).",
            "Mend its permissions, or free some space.",
        ) from error
