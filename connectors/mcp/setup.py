"""What an MCP server is started with: its secrets, an environment of its own, its folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from connectors.mcp.ports import Broken, Ports
from connectors.mcp.servers import Server, secret_names
from engine.sandbox.leftovers import MARK
from engine.tools.program import environment

__all__ = ["Setup", "prepared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything a start needs."""

    #: Its secrets by name.
    values: Mapping[str, str]
    #: The whole environment of a program.
    env: Mapping[str, str]
    folder: Path

    def redacted(self, text: str) -> str:
        """Return what the server printed without the secrets it was given."""
        for value in self.values.values():
            text = text.replace(value, "[secret]")
        return text


def prepared(server: Server, ports: Ports) -> Setup:
    """Return what the server is started with; blocking. Raises Broken where it never can be."""
    values = {name: ports.secret(name) for name in secret_names(server)}
    missing = [name for name, value in values.items() if not value]
    if missing:
        raise Broken(f"{missing[0]} is not set; keep it with: nod secrets set {missing[0]}")
    env = _environment(server, ports, values)
    return Setup(values=values, env=env, folder=_folder(server, ports, env))


def _environment(server: Server, ports: Ports, values: Mapping[str, str]) -> dict[str, str]:
    """Nothing is inherited but PATH: no token of ours reaches a server that was not named."""
    given = {variable: values[name] for variable, name in server.env.items()}
    return environment(HOME=str(ports.folder), TERM="dumb", **{MARK: ports.mark}, **given)


def _folder(server: Server, ports: Ports, env: Mapping[str, str]) -> Path:
    if server.command and shutil.which(server.command[0], path=env["PATH"]) is None:
        raise Broken(f"there is no program '{server.command[0]}' here")
    ports.folder.mkdir(parents=True, exist_ok=True)
    named = Path(server.folder).expanduser() if server.folder else ports.folder
    if not named.is_dir():
        raise Broken(f"there is no folder {server.folder}")
    return named
