"""`nod mcp`: what is typed in a shell reaches the Nod at work word for word."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from bot.cli import app
from bot.shell import reach


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        pytest.param(["list"], "list", id="list"),
        pytest.param(["tool", "a", "x y", "read"], "tool a 'x y' read", id="tool"),
        pytest.param(
            ["add", "a", "--env", "T", "--", "npx", "-y", "pkg", "--flag", "/my files"],
            "add a --env T -- npx -y pkg --flag '/my files'",
            id="program",
        ),
        pytest.param(
            ["add", "a", "https://x.example/mcp", "--header", "Authorization=Bearer {T}"],
            "add a https://x.example/mcp --header 'Authorization=Bearer {T}'",
            id="address",
        ),
    ],
)
def test_words_are_handed_on(
    typed: list[str], given: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    heard: list[tuple[Any, ...]] = []

    async def command(*asked: Any) -> str:
        heard.append(asked[2:])
        return "Done."

    monkeypatch.setattr(reach, "command", command)
    monkeypatch.setenv("NOD_HOME", str(tmp_path))
    done = CliRunner().invoke(app, ["mcp", *typed])
    assert done.output == "Done.\n"
    assert heard == [("mcp", given, "console:main")]
