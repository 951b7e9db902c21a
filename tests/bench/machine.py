"""What the figures were measured on: processor, memory, file system, load, and one disk sync."""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from pathlib import Path
from typing import Any

import psutil

from tests.bench.figure import percentiles

__all__ = ["described", "load", "sync_times"]

#: What a small commit adds to SQLite's log: four pages with a frame header each.
COMMIT_BYTES = 4 * (4096 + 24)


def described(folder: Path) -> dict[str, Any]:
    """Return the machine, and the disk under `folder`."""
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "file_system": _file_system(folder),
        "sync": {"bytes": COMMIT_BYTES, **percentiles(sync_times(folder, 200))},
    }


def load() -> float:
    """Return the load average of the last minute; above the cores, wall time says little."""
    return round(os.getloadavg()[0], 2)


def sync_times(folder: Path, times: int) -> list[float]:
    """Return the seconds each of `times` writes the size of a commit takes to reach the disk.

    The file is written over, not grown, as SQLite does with its log.
    """
    path, block = folder / "sync.probe", os.urandom(COMMIT_BYTES)
    path.write_bytes(block * times)
    handle = os.open(path, os.O_RDWR)
    os.fsync(handle)
    samples = []
    try:
        for number in range(times):
            began = time.perf_counter()
            os.pwrite(handle, block, number * COMMIT_BYTES)
            os.fdatasync(handle)
            samples.append(time.perf_counter() - began)
    finally:
        os.close(handle)
        path.unlink()
    return samples


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()


def _file_system(folder: Path) -> str:
    mounts = [m for m in psutil.disk_partitions(all=True) if folder.is_relative_to(m.mountpoint)]
    mounts.sort(key=lambda mount: len(mount.mountpoint))
    return mounts[-1].fstype if mounts else "unknown"
