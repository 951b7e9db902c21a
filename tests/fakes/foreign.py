"""What tests take from elsewhere: an OAuth server from npm, and a browser from the system.

Where they are missing a test is skipped, and says so; with NOD_CI set it fails instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

__all__ = ["Browser", "oauth2_mock_server", "open_browser"]

_SERVER = "oauth2-mock-server@8.2.3"
#: Seconds for an installation, and for a program to be ready.
INSTALL, READY = 50, 20.0
#: Of Chromium: no window, and nothing asked of the network by itself.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
#: Key of an element's id in WebDriver's answers (W3C WebDriver, 12.2).
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def missing(what: str) -> None:
    """Skip the test, or fail it where everything must be there."""
    if os.environ.get("NOD_CI"):
        pytest.fail(f"{what} must be here")
    pytest.skip(f"{what} is not installed")


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        missing(name)
    return str(found)


def _installed() -> Path:
    """Return the folder of the pinned server; it is installed once for this machine."""
    folder = Path(tempfile.gettempdir()) / f"nod-tests-{os.getuid()}" / _SERVER
    started = folder / "node_modules/oauth2-mock-server/dist/oauth2-mock-server.mjs"
    if not started.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        npm = [_program("npm"), "install", "--no-audit", "--no-fund", "--ignore-scripts"]
        command = [*npm, "--prefix", str(folder), _SERVER]
        try:
            subprocess.run(command, check=True, timeout=INSTALL, capture_output=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            missing(_SERVER)
    return started


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@asynccontextmanager
async def oauth2_mock_server() -> AsyncIterator[str]:
    """Run it, and give its issuer."""
    node, started = _program("node"), await asyncio.to_thread(_installed)
    port = _free_port()
    process = await asyncio.create_subprocess_exec(
        *(node, str(started), "-a", "127.0.0.1", "-p", str(port)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(READY):
            while b"issuer is" not in (line := await process.stdout.readline()):
                assert line, "the server ended before it was ready"
        yield f"http://localhost:{port}"
    finally:
        process.kill()
        await process.communicate()


class Browser:
    """A real browser, driven over WebDriver."""

    def __init__(self, session: aiohttp.ClientSession, at: str) -> None:
        self._session = session
        self._at = at

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send one command and return its value."""
        sent = self._session.request(
            method, f"{self._at}{path}", json={} if body is None and method == "POST" else body
        )
        async with sent as answer:
            value = (await answer.json())["value"]
        if isinstance(value, dict) and "error" in value:
            raise AssertionError(f"{path}: {value['error']}: {value.get('message')}")
        return value

    async def open(self, url: str) -> None:
        await self.ask("POST", "/url", {"url": url})

    async def find(self, css: str) -> list[str]:
        """Return the elements."""
        found = await self.ask("POST", "/elements", {"using": "css selector", "value": css})
        return [each[_ELEMENT] for each in found]

    async def text(self, css: str = "body") -> str:
        """Return what can be read there."""
        async with asyncio.timeout(READY):  # the page it is on may still be coming
            while not (found := await self.find(css)):
                await asyncio.sleep(0.05)
        first = found[0]
        return str(await self.ask("GET", f"/element/{first}/text"))

    async def role(self, css: str) -> tuple[str, str]:
        """Return (role, name) of an element, as assistive software is told."""
        (first, *_) = await self.find(css)
        role = await self.ask("GET", f"/element/{first}/computedrole")
        return str(role), str(await self.ask("GET", f"/element/{first}/computedlabel"))

    async def click(self, css: str) -> None:
        (first, *_) = await self.find(css)
        await self.ask("POST", f"/element/{first}/click")

    async def type(self, css: str, text: str) -> None:
        (first, *_) = await self.find(css)
        await self.ask("POST", f"/element/{first}/value", {"text": text})

    async def run(self, script: str) -> Any:
        """Run a script of the test's own in the page."""
        return await self.ask("POST", "/execute/sync", {"script": script, "args": []})

    async def scheme(self, name: str) -> None:
        """Prefer light or dark pages."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        command = {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}}
        await self.ask("POST", "/goog/cdp/execute", command)

    async def title(self, wanted: str) -> None:
        """Wait until the page has this title."""
        async with asyncio.timeout(READY):
            while wanted not in await self.ask("GET", "/title"):
                await asyncio.sleep(0.05)


@asynccontextmanager
async def open_browser(*, scripts: bool = True) -> AsyncIterator[Browser]:
    """Start Chromium without a window and with nothing in its profile."""
    chromium, driver, port = _program("chromium"), _program("chromedriver"), _free_port()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            *(driver, f"--port={port}"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        options: dict[str, Any] = {
            "binary": chromium,
            "args": [*_FLAGS, f"--user-data-dir={profile}"],
        }
        if not scripts:
            options["prefs"] = {"profile.managed_default_content_settings.javascript": 2}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options}
        at = f"http://127.0.0.1:{port}"
        async with aiohttp.ClientSession() as session:
            try:
                await _up(session, at)
                started = Browser(session, at)
                asked = {"capabilities": {"alwaysMatch": wanted}}
                made = await started.ask("POST", "/session", asked)
                yield Browser(session, f"{at}/session/{made['sessionId']}")
                await started.ask("DELETE", f"/session/{made['sessionId']}")
            finally:
                process.kill()
                await process.communicate()


async def _up(session: aiohttp.ClientSession, at: str) -> None:
    async with asyncio.timeout(READY):
        while True:
            with contextlib.suppress(aiohttp.ClientError, json.JSONDecodeError):
                async with session.get(f"{at}/status") as answer:
                    if (await answer.json())["value"]["ready"]:
                        return
            await asyncio.sleep(0.05)
