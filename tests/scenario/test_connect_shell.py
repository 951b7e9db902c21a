"""`nod connect` and `nod connections`, as a person in a shell gives them, at work and not."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

ROOT = Path(__file__).parents[2]
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
PATIENCE = 40.0  # seconds


@asynccontextmanager
async def github() -> AsyncIterator[str]:
    """An API that knows one token."""

    async def user(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.json_response({"message": "Bad credentials"}, status=401)
        return web.json_response({"login": "ana"})

    served = web.Application()
    served.router.add_get("/user", user)
    runner = web.AppRunner(served, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Shell:
    """One data folder, and the commands that are given on it."""

    def __init__(self, place: Path, base: str) -> None:
        self.data = place / "data"
        self.data.mkdir(mode=0o700)
        (self.data / "nod.toml").write_text(f'[connectors.github]\nbase_url = "{base}"\n')
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(place),
            "PYTHONPATH": str(ROOT),
            "NOD_HOME": str(self.data),
            "NOD_MODEL": "practice:rules",
            "NOD_WEB_PORT": "0",
        }

    async def begin(self, *words: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "bot.cli", *words),
            env=self._environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def run(self, *words: str, said: str = "") -> tuple[int, str]:
        process = await self.begin(*words)
        async with asyncio.timeout(PATIENCE):
            out, _ = await process.communicate(said.encode())
        assert TOKEN.encode() not in out
        return process.returncode or 0, out.decode()

    def kept(self) -> bytes:
        return b"".join(file.read_bytes() for file in self.data.rglob("*") if file.is_file())


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    async with github() as base:
        yield Shell(tmp_path, base)


@asynccontextmanager
async def at_work(shell: Shell) -> AsyncIterator[None]:
    process = await shell.begin("serve")
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        while b"nod is ready" not in (line := await process.stdout.readline()):
            assert line, "nod ended before it was ready"
    yield
    process.terminate()
    async with asyncio.timeout(PATIENCE):
        await process.communicate()


async def link_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        line = (await process.stdout.readline()).decode()
    assert "minutes: " in line, line
    return line.split("minutes: ")[1].strip()


async def fill(link: str) -> int:
    form = {"way": "key", "token": TOKEN}
    async with aiohttp.ClientSession() as session, session.post(link, data=form) as answer:
        return answer.status


CONNECTED = "GitHub is connected: Signed in as ana."


async def test_an_app_is_connected_by_a_key_while_nothing_is_at_work(shell: Shell) -> None:
    code, out = await shell.run("connect", "github", "--key", said="ghp_wrong\n")
    assert (code, "GitHub does not take this." in out) == (1, True), out
    assert await shell.run("connect", "github", "--key", said=f"{TOKEN}\n") == (0, f"{CONNECTED}\n")
    assert await shell.run("connections") == (0, "github  ana  of console\n")
    assert TOKEN.encode() not in shell.kept()
    code, out = await shell.run("secrets", "list")
    assert "accounts of apps: 1" in out  # what did not work was forgotten


async def test_an_app_is_connected_in_a_browser_while_nothing_is_at_work(shell: Shell) -> None:
    process = await shell.begin("connect", "github")
    assert await fill(await link_of(process)) == 200
    async with asyncio.timeout(PATIENCE):
        out, _ = await process.communicate()
    assert (process.returncode, CONNECTED in out.decode()) == (0, True)


async def test_an_app_is_connected_through_the_nod_at_work(shell: Shell) -> None:
    async with at_work(shell):
        given = await shell.run("connect", "github", "--key", said=f"{TOKEN}\n")
        assert given == (0, f"{CONNECTED}\n")
        process = await shell.begin("connect", "github")
        link = await link_of(process)
        await process.communicate()
        assert process.returncode == 0
        assert await fill(link) == 200
    assert await shell.run("connections") == (0, "github  ana  of console\n")
    assert TOKEN.encode() not in shell.kept()


async def test_what_is_no_connector_is_told_with_those_there_are(shell: Shell) -> None:
    code, out = await shell.run("connect", "githbu")
    assert code == 1
    assert "There is no connector 'githbu'. There are:" in out
