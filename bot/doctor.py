"""Says what is configured, what is missing, and the one command that mends each."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from zoneinfo import ZoneInfo

from bot import settings as reading
from bot.app import socket_path
from bot.picking import load_catalogue, pick
from bot.settings import Settings
from bot.shell import socket
from bot.surfaces.table import PLATFORMS
from connectors import accounts
from connectors.accounts import Account
from connectors.mcp.servers import Server, read_servers, secret_names
from connectors.registry import Secrets, secrets_of
from engine import inbox
from engine.clock import Now
from engine.errors import NodError
from engine.store.base import Store, Tx
from engine.store.opening import open_store, sqlite_path

__all__ = ["Finding", "examine", "lines", "sound"]

_DISK_NEEDED = 100_000_000  # bytes; below that a turn may not be able to commit
_DISK_WANTED = 1_000_000_000
_NEEDED_PYTHON = (3, 11)
#: Seconds that the chat platforms have for their answers.
PATIENCE = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    name: str
    text: str
    #: 'ok', 'note' (works, but you may want to know) or 'missing' (needed).
    state: str = "ok"
    #: The command or step that mends it; empty: nothing to do.
    fix: str = ""


async def examine(
    environ: Mapping[str, str], now: Now, patience: float = PATIENCE
) -> list[Finding]:
    """Look at everything a start needs; changes nothing and never raises NodError.

    Args:
        patience: seconds that the chat platforms have for their answers.
    """
    findings = [_python()]
    try:
        settings = reading.load(environ)
    except NodError as error:
        return [*findings, _failed("settings", error)]
    findings += [_settings(settings), _data(settings), _disk(settings)]
    findings += [*await _store(settings, now), await _model(settings, environ)]
    findings.append(await asyncio.to_thread(_secrets, settings, environ))
    findings += await asyncio.to_thread(_mcp, settings, environ)
    findings += await _platforms(settings, environ, patience)
    findings += [_git(), _ripgrep(), _clock(settings, now), await _running(settings)]
    return findings


def sound(findings: Iterable[Finding]) -> bool:
    """Say whether nothing that is needed is missing."""
    return all(finding.state != "missing" for finding in findings)


def lines(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield what was found, as a person reads it."""
    marks = {"ok": "✓", "note": "·", "missing": "✗"}
    for finding in findings:
        yield f"{marks[finding.state]} {finding.name:<10} {finding.text}"
        if finding.fix:
            yield f"  {'':<10} → {finding.fix}"


def _failed(name: str, error: NodError) -> Finding:
    return Finding(name=name, state="missing", text=error.what, fix=error.fix)


def _python() -> Finding:
    version = sys.version_info
    text = f"{version.major}.{version.minor}.{version.micro} at {sys.executable}"
    if version < _NEEDED_PYTHON:
        fix = "Install Python 3.11 or newer and make the environment with it."
        return Finding(name="python", state="missing", text=text, fix=fix)
    return Finding(name="python", text=text)


def _settings(settings: Settings) -> Finding:
    if settings.ignored:
        text = f"variables that are no setting: {', '.join(settings.ignored)}"
        return Finding(name="settings", state="note", text=text)
    file = settings.file or "no nod.toml, the defaults are used"
    return Finding(name="settings", text=f"{file} · mode {settings.mode}")


def _data(settings: Settings) -> Finding:
    data = settings.data
    if not data.exists():
        text = f"{data} does not exist yet; the first start makes it"
        return Finding(name="data", state="note", text=text)
    if not data.is_dir() or not os.access(data, os.W_OK | os.X_OK):
        fix = "Set NOD_HOME to a folder you may write to."
        return Finding(name="data", state="missing", text=f"{data} cannot be written", fix=fix)
    mode = stat.S_IMODE(data.stat().st_mode)
    if mode & 0o077:
        text = f"{data} can be entered by other users (mode {mode:o})"
        return Finding(name="data", state="note", text=text, fix=f"chmod 700 '{data}'")
    return Finding(name="data", text=str(data))


def _disk(settings: Settings) -> Finding:
    place = settings.data
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    text = f"{free / 1e9:.1f} GB free"
    if free < _DISK_WANTED:
        state = "missing" if free < _DISK_NEEDED else "note"
        return Finding(name="disk", state=state, text=text, fix=f"Free some space on {place}.")
    return Finding(name="disk", text=text)


async def _store(settings: Settings, now: Now) -> list[Finding]:
    try:
        path = sqlite_path(settings.store)
        if path is not None and not path.exists():
            text = f"{path} does not exist yet; the first start makes it"
            return [Finding(name="store", state="note", text=text)]
        store = await open_store(settings.store, read_only=path is not None)
    except NodError as error:
        return [_failed("store", error)]
    try:
        return await _inside(settings, store, now)
    except NodError as error:
        return [_failed("store", error)]
    finally:
        await store.close()


async def _inside(settings: Settings, store: Store, now: Now) -> list[Finding]:
    def look(tx: Tx) -> tuple[str, int, int, list[Account]]:
        integrity = tx.one("report_integrity")
        prompts = len(inbox.pending(tx, "local"))
        schedules = len(tx.all("schedule_list", tenant="local"))
        whole = str(integrity["found"] if integrity else "unknown")
        return whole, prompts, schedules, accounts.listed(tx, "local")

    integrity, prompts, schedules, connected = await store.read(look)
    if integrity != "ok":
        fix = "Stop Nod and run: nod restore FILE"
        text = f"{settings.store_shown} is damaged: {integrity}"
        return [Finding(name="store", state="missing", text=text, fix=fix)]
    waiting = f"{prompts} waiting" if prompts else "nothing waits"
    return [
        Finding(name="store", text=f"{settings.store_shown} · whole"),
        Finding(name="inbox", text=waiting, fix="nod inbox" if prompts else ""),
        Finding(name="schedules", text=str(schedules or "none")),
        _apps(connected),
    ]


def _apps(connected: list[Account]) -> Finding:
    again = sorted({each.connector for each in connected if each.status != "ok"})
    if again:
        text = f"to be connected again: {', '.join(again)}"
        return Finding(name="apps", state="note", text=text, fix=f"nod connect {again[0]}")
    names = sorted({each.connector for each in connected})
    return Finding(name="apps", text=", ".join(names) or "none connected")


async def _model(settings: Settings, environ: Mapping[str, str]) -> Finding:
    """Names variables that hold keys; never shows one."""
    try:
        catalogue = load_catalogue(settings)
        picked = await pick(settings, environ, catalogue)
    except NodError as error:
        return _failed("model", error)
    if picked.practice:
        fix = "Set a key such as ANTHROPIC_API_KEY or OPENAI_API_KEY, or start Ollama."
        text = f"{picked.model}, which is no AI. {picked.why}"
        return Finding(name="model", state="note", text=text, fix=fix)
    keys = [name for name in catalogue.entry(picked.model).provider.key if environ.get(name)]
    held = f" · key in {keys[0]}" if keys else ""
    return Finding(name="model", text=f"{picked.model}{held} · {picked.why}")


def _mcp(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    """Looks whether each MCP server of nod.toml could be started; starts none, shows no secret."""
    secrets = secrets_of(environ, settings.data)
    try:
        return [_server(each, secrets) for each in read_servers(settings.mcp)]
    except NodError as error:
        return [_failed("mcp", error)]


def _server(server: Server, secrets: Secrets) -> Finding:
    name = f"mcp {server.name}"
    if server.command and shutil.which(server.command[0]) is None:
        text = f"there is no program '{server.command[0]}' here"
        return Finding(name=name, state="note", text=text, fix="Install it, or mend nod.toml.")
    missing = [each for each in secret_names(server) if not secrets.get(each)]
    if missing:
        fix = f"nod secrets set {missing[0]}"
        return Finding(name=name, state="note", text=f"{missing[0]} is not set", fix=fix)
    return Finding(name=name, text=server.where)


async def _running(settings: Settings) -> Finding:
    path = socket_path(settings)
    try:
        await socket.ask(path, "whoami", timeout=5.0)
    except socket.NotRunning:
        return Finding(name="running", state="note", text="no Nod is at work here", fix="nod")
    except NodError as error:
        return _failed("running", error)
    return Finding(name="running", text=f"a Nod answers at {path}")


def _secrets(settings: Settings, environ: Mapping[str, str]) -> Finding:
    """Names the platforms that have a token; never shows one."""
    secrets = secrets_of(environ, settings.data)
    try:
        store = secrets.store()
        found = [
            name
            for name, each in PLATFORMS.items()
            if each.config(settings, secrets.get) is not None
        ]
    except NodError as error:
        return _failed("secrets", error)
    where = f"kept in {store.where}" if store is not None else "none kept"
    platforms = f"tokens for {', '.join(found)}" if found else "no chat platform has a token"
    fix = "" if found else "nod slack, nod telegram or nod discord"
    return Finding(
        name="secrets", state="ok" if found else "note", text=f"{where} · {platforms}", fix=fix
    )


async def _platforms(
    settings: Settings, environ: Mapping[str, str], patience: float
) -> list[Finding]:
    """Look at each platform that has a token, as its own guide does; all at once."""
    secret = secrets_of(environ, settings.data).get
    looks = []
    for name, platform in PLATFORMS.items():
        try:
            config = await asyncio.to_thread(platform.config, settings, secret)
        except NodError:
            return []  # what is wrong with the secrets was told
        if config is not None:
            guide = import_module(f"bot.guides.{name}")
            looks.append(_within(patience, name, guide.examine(settings, config)))
    return [finding for found in await asyncio.gather(*looks) for finding in found]


async def _within(patience: float, name: str, look: AsyncIterator[Finding]) -> list[Finding]:
    """Return what a guide finds in that many seconds."""
    found: list[Finding] = []
    try:
        async with asyncio.timeout(patience):
            async for each in look:
                found.append(each)  # noqa: PERF401  # what was found in time is kept
    except TimeoutError:
        text = f"not all was answered within {patience:g} s"
        fix = f"Check the network; then: nod {name}"
        found.append(Finding(name=name, state="missing", text=text, fix=fix))
    return found


def _git() -> Finding:
    found = shutil.which("git")
    if found is None:
        fix = "Install git, for example: apt install git"
        return Finding(name="git", state="note", text="not found: no git tools", fix=fix)
    return Finding(name="git", text=found)


def _ripgrep() -> Finding:
    found = shutil.which("rg")
    text = found or "not found: searching works, in Python and slower"
    return Finding(name="ripgrep", state="ok" if found else "note", text=text)


def _clock(settings: Settings, now: Now) -> Finding:
    here = datetime.fromtimestamp(now(), UTC).astimezone(ZoneInfo(settings.zone))
    text = f"{here:%Y-%m-%d %H:%M} in {settings.zone}"
    if here.year < 2025:
        fix = "Set the system's clock."
        return Finding(name="clock", state="missing", text=f"{text}, which is past", fix=fix)
    return Finding(name="clock", text=text)
