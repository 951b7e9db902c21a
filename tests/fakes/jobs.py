"""Waiting for other processes: they offer no event, so one looks again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import psutil

from engine.sandbox import jobs

__all__ = ["ended", "is_gone", "pid_in", "until"]


async def until(true: Callable[[], bool], seconds: float = 15.0) -> None:
    """Wait until it is true."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)


async def ended(folder: Path) -> jobs.Ended:
    """Wait until the job has ended; return how."""
    found: jobs.Ended | None = None
    async with asyncio.timeout(20):
        while found is None:
            await asyncio.sleep(0.01)
            found = jobs.ending(folder)
    return found


async def pid_in(file: Path) -> int:
    """Wait until a process has written its id there."""
    await until(lambda: file.exists() and file.read_text().endswith("\n"))
    return int(file.read_text())


def is_gone(pid: int) -> bool:
    """Say whether that process has ended."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
