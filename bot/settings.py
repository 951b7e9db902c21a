"""What the person set, in nod.toml and in NOD_* variables, as one frozen value. No secret is in it.

The environment wins over the file. API keys and tokens are read from the environment where they
are used, never from here.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from engine.errors import SettingsError
from engine.permissions.base import Mode
from engine.turn.state import Limits
from engine.work import base

__all__ = [
    "Ceilings",
    "Discord",
    "Settings",
    "Slack",
    "Telegram",
    "Voice",
    "Web",
    "data_folder",
    "load",
    "make_data_folder",
]

LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings(base.Ceilings):
    """How much at once; one over it is told so, and waits or is refused."""

    #: Bytes of one file that comes in.
    file_bytes: int = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """Where the HTTP server listens; it does only when something needs it, or a port is set."""

    host: str = "127.0.0.1"
    #: None: 8080, once a platform needs it. 0: any free one.
    port: int | None = None
    #: The https address platforms and people reach it under; empty: none.
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slack:
    """How to connect to Slack; its tokens are secrets."""

    #: socket (no public address needed) or http.
    mode: str = "socket"
    base_url: str = "https://slack.com/api/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Telegram:
    """How to connect to Telegram; its tokens are secrets."""

    #: polling (no public address needed) or webhook.
    mode: str = "polling"
    #: Another one for a Bot API server of one's own.
    base_url: str = "https://api.telegram.org"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discord:
    """How to connect to Discord; its token is a secret. Empty addresses: Discord's own."""

    base_url: str = ""
    gateway_url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """How voice notes are heard; keys are secrets."""

    #: provider:model, or local:SIZE with the extra `voice`; empty: what there is a key for.
    model: str = ""
    #: Another address that speaks OpenAI's transcription API; empty: OpenAI's own.
    base_url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything a start of Nod depends on, besides secrets."""

    data: Path
    #: May hold a password, so it is kept out of the repr; show `store_shown`.
    store: str = field(repr=False)
    #: The file the settings came from; None: there is none.
    file: Path | None = None
    #: provider:model; empty: the first one found (a key, a local server, else practice).
    model: str = ""
    #: Tried in order when the model stays unavailable.
    fallbacks: tuple[str, ...] = ()
    mode: str = Mode.INTERACTIVE
    persona: str = "cowork"
    #: Command prefixes that need no asking.
    allowlist: tuple[str, ...] = ()
    #: Tools whose approval needs two people.
    quorum: tuple[str, ...] = ()
    #: IANA name of the zone schedules and dates are read in.
    zone: str = "UTC"
    #: The person's own models.toml, laid over ours; None: none.
    catalogue: Path | None = None
    #: Endpoints of the person's own: tables like [providers.NAME] of the catalogue.
    gateways: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: The tables [connectors.NAME], read by the connector of that name.
    connectors: Mapping[str, Any] = field(default_factory=dict)
    #: MCP servers: the tables [mcp.NAME], read by connectors/mcp/servers.py.
    mcp: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    ceilings: Ceilings = field(default_factory=Ceilings)
    web: Web = field(default_factory=Web)
    slack: Slack = field(default_factory=Slack)
    telegram: Telegram = field(default_factory=Telegram)
    discord: Discord = field(default_factory=Discord)
    voice: Voice = field(default_factory=Voice)
    #: Days a session is kept after its last word; 0: for ever.
    retention_days: int = 0
    #: on or off: below an answer in a chat, the model, steps, cost and session.
    footer: str = "on"
    log_level: str = "info"
    #: NOD_* variables that are no setting and look like none.
    ignored: tuple[str, ...] = ()

    @property
    def store_shown(self) -> str:
        """The store's address without its password."""
        parts = urlsplit(self.store)
        if parts.password is None:
            return self.store
        return self.store.replace(f":{parts.password}@", ":…@", 1)

    @property
    def log_file(self) -> Path:
        """Where an interactive Nod writes its log."""
        return self.data / "nod.log"


@dataclass(frozen=True, slots=True)
class _Key:
    """One setting as it is written: its kind says how it is read and checked."""

    kind: str
    choices: tuple[str, ...] = ()
    least: int = 1


_KEYS: Mapping[str, _Key] = {
    "store": _Key("text"),
    "model": _Key("text"),
    "fallbacks": _Key("list"),
    "mode": _Key("text", choices=tuple(Mode)),
    "persona": _Key("text"),
    "allowlist": _Key("list"),
    "quorum": _Key("list"),
    "zone": _Key("text"),
    "catalogue": _Key("text"),
    "footer": _Key("text", choices=("on", "off")),
    "log_level": _Key("text", choices=LEVELS),
    **{f"limits.{name}": _Key("number") for name in Limits.__dataclass_fields__},
    **{f"ceilings.{name}": _Key("number") for name in Ceilings.__dataclass_fields__},
    "retention.days": _Key("number", least=0),
    "web.host": _Key("text"),
    "web.port": _Key("number", least=0),
    "web.url": _Key("text"),
    "slack.mode": _Key("text", choices=("socket", "http")),
    "slack.base_url": _Key("text"),
    "telegram.mode": _Key("text", choices=("polling", "webhook")),
    "telegram.base_url": _Key("text"),
    "discord.base_url": _Key("text"),
    "discord.gateway_url": _Key("text"),
    "voice.model": _Key("text"),
    "voice.base_url": _Key("text"),
}
_SECTIONS = frozenset(name.partition(".")[0] for name in _KEYS if "." in name)
_WORDS = {"text": "text in quotes", "list": "a list of texts", "number": "a whole number"}
#: NOD_* variables that are read elsewhere.
_ELSEWHERE = frozenset({"NOD_HOME", "NOD_CONFIG", "NOD_VAULT_KEY_FILE", "NOD_VAULT_PASSPHRASE"})


@dataclass(frozen=True, slots=True)
class _File:
    """The text of nod.toml, kept to find lines in."""

    path: Path
    text: str

    def at(self, name: str) -> str:
        """Return `file, line n` of a setting written as section.key or key."""
        section = ""
        for number, line in enumerate(self.text.splitlines(), 1):
            header = re.match(r"\s*\[\s*([^\]]+?)\s*\]", line)
            key = re.match(r"\s*[\"']?([\w.-]+)[\"']?\s*=", line)
            if header:
                section = written = header[1]
            elif key:
                written = f"{section}.{key[1]}" if section else key[1]
            else:
                continue
            if f"{written}.".startswith(f"{name}."):
                return f"{self.path}, line {number}"
        return str(self.path)


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings; nothing on the disk is made or changed.

    Raises SettingsError that names the file and line, or the variable, with what was found.
    """
    environ = os.environ if environ is None else environ
    data = data_folder(environ)
    path = Path(environ["NOD_CONFIG"]).expanduser() if environ.get("NOD_CONFIG") else None
    file = _read(path or data / "nod.toml", needed=path is not None)
    tables, values = _from_file(file) if file else ({}, {})
    ignored = []
    for name, value in _from_environment(environ):
        if value is None:
            ignored.append(name)
        else:
            values[name] = value
    base = file.path.parent if file else data
    return Settings(
        data=data,
        file=file.path if file else None,
        store=values.get("store") or str(data / "nod.db"),
        zone=_zone(values.get("zone"), environ),
        catalogue=_under(base, values.get("catalogue")),
        gateways=tables.get("providers", {}),
        connectors=tables.get("connectors", {}),
        mcp=tables.get("mcp", {}),
        limits=Limits(**_section(values, "limits")),
        ceilings=Ceilings(**_section(values, "ceilings")),
        web=_web(_section(values, "web"), environ),
        slack=Slack(**_section(values, "slack")),
        telegram=Telegram(**_section(values, "telegram")),
        discord=Discord(**_section(values, "discord")),
        voice=Voice(**_section(values, "voice")),
        retention_days=values.get("retention.days", 0),
        ignored=tuple(ignored),
        **{name: values[name] for name in _PLAIN if name in values},
    )


_PLAIN = ("model", "fallbacks", "mode", "persona", "allowlist", "quorum", "footer", "log_level")


def data_folder(environ: Mapping[str, str]) -> Path:
    """Return NOD_HOME, or the folder for a user's data on this system. It need not exist."""
    if environ.get("NOD_HOME"):
        return Path(environ["NOD_HOME"]).expanduser().absolute()
    if environ.get("XDG_DATA_HOME"):  # specifications.freedesktop.org/basedir-spec
        return Path(environ["XDG_DATA_HOME"]).absolute() / "nod"
    home = Path(environ.get("HOME") or Path.home())
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "nod"
    return home / ".local" / "share" / "nod"


def make_data_folder(settings: Settings) -> None:
    """Make the data folder, for its owner only; one that is there keeps its permissions.

    Raises SettingsError when it cannot be made or written.
    """
    try:
        settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"The data folder {settings.data} cannot be made ({error.strerror}).",
            "Set NOD_HOME to a folder you may write to.",
        ) from error
    if not os.access(settings.data, os.W_OK | os.X_OK):
        raise SettingsError(
            f"The data folder {settings.data} cannot be written.",
            "Set NOD_HOME to a folder you may write to.",
        )


def _read(path: Path, *, needed: bool) -> _File | None:
    try:
        return _File(path, path.read_text(encoding="utf-8-sig"))
    except (FileNotFoundError, NotADirectoryError) as error:
        if not needed:
            return None
        raise SettingsError(
            f"NOD_CONFIG names {path}, and there is no such file.", "Write it or unset NOD_CONFIG."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SettingsError(
            f"The settings file {path} cannot be read: {reason}.", "Mend or remove it."
        ) from error


#: Tables with names of a person's own; who uses them checks what is in them.
_NAMED = ("providers", "connectors", "mcp")


def _from_file(file: _File) -> tuple[dict[str, Mapping[str, Any]], dict[str, Any]]:
    """Return the tables of names, and the settings by name."""
    try:
        tables = tomllib.loads(file.text)
    except tomllib.TOMLDecodeError as error:
        raise _no_toml(file, str(error)) from error
    named = {name: tables.pop(name) for name in _NAMED if name in tables}
    for name, found in named.items():
        if not isinstance(found, dict):
            raise SettingsError(
                f"{file.at(name)}: '{name}' must be tables.", f"Write [{name}.NAME]."
            )
    values = {name: _checked(file.at(name), name, value) for name, value in _flat(tables)}
    return named, values


def _no_toml(file: _File, error: str) -> SettingsError:
    found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", error)
    place = f", line {found[2]}, column {found[3]}" if found else ", at its end"
    what = found[1] if found else error.removesuffix(" (at end of document)")
    return SettingsError(
        f"{file.path}{place}: {what[:1].lower()}{what[1:]}.",
        'Mend that line; text stands in quotes, for example mode = "interactive".',
    )


def _flat(tables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in tables.items():
        if isinstance(value, dict) and name in _SECTIONS:
            yield from ((f"{name}.{key}", inner) for key, inner in value.items())
        else:
            yield name, value


def _checked(where: str, name: str, value: Any) -> Any:
    """Return the value of a setting as the settings hold it; raises SettingsError."""
    key = _KEYS.get(name)
    if key is None:
        raise SettingsError(f"{where}: there is no setting '{name}'.", _nearest(name))
    if not _FITS[key.kind](value):
        raise SettingsError(
            f"{where}: '{name}' must be {_WORDS[key.kind]}; it is {_shown(value)}.",
            "Mend or remove it.",
        )
    if key.choices and value not in key.choices:
        raise SettingsError(
            f"{where}: '{name}' cannot be '{value}'.", f"Choose one of {', '.join(key.choices)}."
        )
    if key.kind == "number" and value < key.least:
        raise SettingsError(
            f"{where}: '{name}' must be {key.least} or more; it is {value}.", "Mend or remove it."
        )
    return tuple(value) if key.kind == "list" else value


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "list": lambda value: isinstance(value, list) and all(isinstance(v, str) for v in value),
    "number": lambda value: isinstance(value, int) and not isinstance(value, bool),
}


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "a list with something else in it"
    return "a table" if isinstance(value, dict) else repr(value)


def _nearest(name: str) -> str:
    tail = name.rpartition(".")[2]
    in_other = [known for known in _KEYS if known.rpartition(".")[2] == tail]
    near = [tail] if tail in _KEYS else in_other  # in the wrong section
    near = near or difflib.get_close_matches(name, _KEYS, n=2)
    quoted = " or ".join(f"'{known}'" for known in near)
    return f"Did you mean {quoted}?" if near else f"Settings are {', '.join(_KEYS)}."


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield settings by name, and what is no setting with the value None."""
    names = {"NOD_" + name.replace(".", "_").upper(): name for name in _KEYS}
    for variable in sorted(environ):
        if not variable.startswith("NOD_") or variable in _ELSEWHERE or not environ[variable]:
            continue
        if variable in names:
            yield names[variable], _typed(variable, names[variable], environ[variable])
            continue
        near = difflib.get_close_matches(variable, [*names, *_ELSEWHERE], n=2, cutoff=0.8)
        if near:
            raise SettingsError(
                f"There is no setting for the variable {variable}.",
                f"Did you mean {' or '.join(near)}?",
            )
        yield variable, None


def _typed(variable: str, name: str, text: str) -> Any:
    kind = _KEYS[name].kind
    value: Any = text
    if kind == "list":
        value = [part.strip() for part in text.split(",") if part.strip()]
    elif kind == "number" and re.fullmatch(r"[+-]?\d{1,18}", text.strip()):
        value = int(text)
    return _checked(variable, name, value)


def _section(values: Mapping[str, Any], section: str) -> dict[str, Any]:
    start = section + "."
    return {k.removeprefix(start): v for k, v in values.items() if k.startswith(start)}


def _web(values: dict[str, Any], environ: Mapping[str, str]) -> Web:
    """Return where to listen. A platform that runs a Procfile names a port, for all comers."""
    named = environ.get("PORT", "")
    if "port" not in values and re.fullmatch(r"\d{1,5}", named):
        values = {"host": "0.0.0.0", **values, "port": int(named)}
    values["url"] = values.get("url", "").rstrip("/")
    return Web(**values)


def _under(base: Path, name: str | None) -> Path | None:
    return base / Path(name).expanduser() if name else None


def _zone(name: str | None, environ: Mapping[str, str]) -> str:
    if name is not None:
        if not _is_zone(name):
            raise SettingsError(
                f"The setting 'zone' cannot be '{name}': there is no such time zone.",
                "Write an IANA name, for example Europe/Berlin.",
            )
        return name
    candidates = (environ.get("TZ", "").lstrip(":"), _system_zone())
    return next((zone for zone in candidates if zone and _is_zone(zone)), "UTC")


def _system_zone() -> str:
    """Return the name /etc/localtime points to; empty when it is no link into a zone folder."""
    try:
        return str(Path("/etc/localtime").resolve()).partition("zoneinfo/")[2]
    except OSError:
        return ""


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError
        return False
    except KeyError:
        return False
    return True
