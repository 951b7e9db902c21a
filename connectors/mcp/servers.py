"""What somebody wrote about an MCP server, checked: how it is reached, and what its tools may do.

Secrets stand here by name only. A name holds no underscore, so that `mcp_<server>_<tool>` can be
read in one way.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from engine.canonical import digest, dumps
from engine.errors import SettingsError

__all__ = ["Server", "read_server", "read_servers", "secret_names"]

_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
#: Characters of a server's name; 64 less `mcp_`, and room for the tool's own name.
NAME_LIMIT = 24
_SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.]*)\}")
#: Seconds; what a person may set. A day-long call would hold a turn for a day.
TIMEOUT, LONGEST = 60.0, 3600.0
#: Hosts that are this machine: a secret may go there without TLS.
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})
#: Header names whose value is a secret, so it must not stand in a file.
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server as it is set up."""

    name: str
    #: Program and arguments, for a server that is started here.
    command: tuple[str, ...] = ()
    #: Folder it is started in; empty: one of its own.
    folder: str = ""
    #: Variable it gets -> name of the secret or variable whose value that is.
    env: Mapping[str, str] = field(default_factory=dict)
    #: Address, for a server that is reached over HTTP.
    url: str = ""
    #: Header -> text in which {NAME} stands for a secret.
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Its credentials come by OAuth, after `nod mcp connect`.
    oauth: bool = False
    #: Its tools by name; `*` stands for anything. What is excluded is not offered.
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    #: Tools that only read, by the owner's word; of these, those that are asked about all the same.
    read: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    #: Tool -> its arguments that name all recipients; what a standing rule pins.
    targets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Seconds a call may take.
    timeout: float = TIMEOUT
    #: Offered in everybody's sessions, or only in those of the house's owners.
    shared: bool = True

    @property
    def where(self) -> str:
        """The exact command, or the address without what could be a secret in it."""
        if self.command:
            return shlex.join(self.command)
        parts = urlsplit(self.url)
        return parts._replace(
            netloc=parts.netloc.rpartition("@")[2], query="", fragment=""
        ).geturl()

    @property
    def fingerprint(self) -> str:
        """Changes with anything that decides which program or address is reached, and how."""
        said = [self.command, self.folder, dict(self.env), self.url, dict(self.headers), self.oauth]
        return digest(dumps(said))[:16]

    def offers(self, tool: str) -> bool:
        """Say whether the tool, by its own name, is to be offered."""
        return named(tool, self.include) and not named(tool, self.exclude)

    def only_reads(self, tool: str) -> bool:
        """Say whether the owner declared that the tool only reads."""
        return named(tool, self.read) and not named(tool, self.ask)


def named(tool: str, patterns: Sequence[str]) -> bool:
    """Say whether one of `patterns` is the name, or fits it."""
    return any(fnmatchcase(tool, each) for each in patterns)


def secret_names(server: Server) -> list[str]:
    """Return the names of the secrets the server needs, sorted."""
    in_headers = (name for text in server.headers.values() for name in _PLACEHOLDER.findall(text))
    return sorted({*server.env.values(), *in_headers})


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return a header's text with its secrets in place."""
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)


def read_servers(tables: Mapping[str, Any]) -> list[Server]:
    """Return the servers of the tables `[mcp.NAME]`, by name; raises SettingsError."""
    return [read_server(name, tables[name]) for name in sorted(tables)]


def read_server(name: str, table: Any) -> Server:
    """Return one server from its table; raises SettingsError that names the key."""
    if not _NAME.fullmatch(name) or len(name) > NAME_LIMIT:
        raise SettingsError(
            f"'{name[:40]}' is no name for an MCP server.",
            f"Use small letters, digits and hyphens, at most {NAME_LIMIT}, for example my-files.",
        )
    if not isinstance(table, Mapping):
        raise SettingsError(f"'mcp.{name}' must be a table.", f"Write [mcp.{name}].")
    unknown = sorted(set(table) - set(_KEYS))
    if unknown:
        raise SettingsError(
            f"[mcp.{name}]: there is no setting '{unknown[0]}'.",
            f"There are {', '.join(sorted(_KEYS))}.",
        )
    given = {key: _KEYS[key](f"[mcp.{name}]: '{key}'", value) for key, value in table.items()}
    args = given.pop("args", ())
    program = given.pop("command", "")
    server = Server(name=name, command=(program, *args) if program else (), **given)
    for fault in _faults(server, args):
        raise SettingsError(f"[mcp.{name}]: {fault}", "Mend it in nod.toml, or add it anew.")
    return server


def _faults(server: Server, args: Sequence[str]) -> Iterator[str]:
    if bool(server.command) == bool(server.url):
        yield "say either 'command' or 'url'."
    if server.url:
        yield from _url_faults(server)
    if server.url and (server.env or server.folder or args):
        yield "'args', 'env' and 'folder' go with 'command'."
    if server.command and (server.headers or server.oauth):
        yield "'headers' and 'oauth' go with 'url'."
    if any("\0" in word or "\n" in word for word in server.command):
        yield "a command is one line."
    for header, text in server.headers.items():
        if _SECRET_HEADER.search(header) and not _PLACEHOLDER.search(text):
            yield f"'{header}' holds a secret; write its name in braces, as in Bearer {{MY_TOKEN}}."


def _url_faults(server: Server) -> Iterator[str]:
    parts = urlsplit(server.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        yield "'url' must begin with https:// or http:// and name a host."
    elif parts.username or parts.password:
        yield "'url' holds a password; write a header with the name of a secret instead."
    elif (
        parts.scheme == "http" and (server.headers or server.oauth) and parts.hostname not in _HERE
    ):
        yield "a secret goes over https only, except to this machine."


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise SettingsError(f"{where} must be text in quotes.", "Mend or remove it.")
    return value.strip()


def _texts(where: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise SettingsError(f"{where} must be a list of texts.", 'Write ["one", "two"].')
    return tuple(value)


def _switch(where: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise SettingsError(f"{where} must be true or false.", "Mend or remove it.")
    return value


def _seconds(where: str, value: Any) -> float:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= LONGEST
    if not fits:
        raise SettingsError(f"{where} must be 1 to {LONGEST:.0f} seconds.", "Mend or remove it.")
    return float(value)


def _names(where: str, value: Any) -> dict[str, str]:
    """Read variables: a list of names, or a table of variable -> name of the secret."""
    found = dict.fromkeys(value) if isinstance(value, list | tuple) else value
    if not isinstance(found, Mapping):
        raise SettingsError(f"{where} must be a list of names.", 'Write ["MY_TOKEN"].')
    pairs = {str(variable): str(name or variable) for variable, name in found.items()}
    for each in (*pairs, *pairs.values()):
        if not _SECRET.fullmatch(each):
            raise SettingsError(
                f"{where} takes names of secrets, never values.",
                "Write a name, and keep its value with: nod secrets set NAME",
            )
    return pairs


def _headers(where: str, value: Any) -> dict[str, str]:
    fits = isinstance(value, Mapping) and all(isinstance(each, str) for each in value.values())
    if not fits or any(not re.fullmatch(r"[A-Za-z0-9-]+", each) for each in value):
        raise SettingsError(
            f"{where} must be a table of header = text.", 'Write Authorization = "Bearer {TOKEN}".'
        )
    return dict(value)


def _recipients(where: str, value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, Mapping):
        raise SettingsError(f"{where} must be a table.", 'Write send_mail = ["to", "cc"].')
    return {str(tool): _texts(f"{where}.{tool}", names) for tool, names in value.items()}


_KEYS: Mapping[str, Callable[[str, Any], Any]] = {
    "command": _text,
    "args": _texts,
    "folder": _text,
    "env": _names,
    "url": _text,
    "headers": _headers,
    "oauth": _switch,
    "include": _texts,
    "exclude": _texts,
    "read": _texts,
    "ask": _texts,
    "targets": _recipients,
    "timeout": _seconds,
    "shared": _switch,
}
